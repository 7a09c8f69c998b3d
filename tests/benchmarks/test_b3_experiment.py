"""The made-up worlds, the learner against scikit-learn, and the data that the docs quote."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multiberts.benchmarks import b3_experiment as experiment
from multiberts.benchmarks.b3_experiment import (
    KINDS,
    TRUE,
    Learner,
    make_world,
    observe,
    true_leakage,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
DATA = DOCS / "b3_worlds.csv"


def test_learner_equals_scikit_learn():
    """Scikit-learn leaves the intercept out of the penalty; a column of ones is in both."""
    from sklearn.linear_model import Ridge

    train = np.random.default_rng(0).integers(600, size=(5, 40))
    for kind in KINDS.values():
        samples = make_world(kind, 0)
        learner = Learner(samples, kind)
        losses, weights = learner.all_losses(train), learner.fit(train)
        for row, draws in enumerate(train):
            ridge = Ridge(alpha=kind.ridge, fit_intercept=False)
            theirs = ridge.fit(samples.features[draws], samples.targets[draws])
            np.testing.assert_allclose(weights[row], theirs.coef_, atol=1e-8)
            answers = theirs.predict(samples.features)
            wrong = (np.sign(answers) != samples.targets).mean()
            expected = ((answers - samples.targets) ** 2).mean() if kind.squared_loss else wrong
            assert losses[row].mean() == pytest.approx(expected)


@pytest.mark.parametrize("directions", ["one", "two"])
def test_observed_clusters_and_their_leakage(directions):
    clusters = np.repeat(np.arange(6), 100)
    observed = observe(clusters, 0.3, directions, np.random.default_rng(0))
    names, sizes = np.unique(observed, return_counts=True)
    if directions == "one":
        assert sorted(sizes)[-6:] == [70] * 6 and (np.sort(sizes)[:-6] == 1).all()
        assert all(len(np.unique(clusters[observed == name])) == 1 for name in names)
    else:
        assert (sizes == 100).all()
        assert 0.15 < (observed != clusters).mean() < 0.3
    outside, inside = [], []
    for i in range(600):
        if (observed == observed[i]).sum() >= 2:
            same = clusters == clusters[i]
            own = observed == observed[i]
            outside.append(same[~own].mean())
            inside.append(((same & own).sum() - 1) / (own.sum() - 1))
    expected = np.mean(outside), np.mean(inside)
    assert true_leakage(clusters, observed, 2) == pytest.approx(expected)
    clean = observe(clusters, 0.0, directions, np.random.default_rng(0))
    assert true_leakage(clusters, clean, 2) == (0, 1)


def test_b3_is_nearer_to_the_truth_than_the_others_in_the_data_of_the_docs():
    """Held-out clusters and k-fold look too good; B3 takes away more than half of that bias."""
    rows = pd.read_csv(DATA)
    assert len(rows) == 2 * 2 * len(experiment.NOISES) * 10
    for (kind, _), world in rows[rows.noise == 0.5].groupby(["kind", "directions"]):
        plain, b3, folds = (
            world[name] - world[TRUE] for name in ("leave one cluster out", "B3", "k-fold")
        )
        for errors in (plain, folds):
            assert errors.mean() < -3 * errors.std() / np.sqrt(len(errors)), kind
        assert abs(b3.mean()) < 0.5 * abs(plain.mean()), kind
        assert (b3**2).mean() < (plain**2).mean(), kind


def test_the_table_of_departures_is_that_of_the_data():
    expected = experiment.error_table(pd.read_csv(DATA)).drop(columns="noise")
    lines = (DOCS / "departures.md").read_text(encoding="utf-8").splitlines()
    rows = [
        line.strip("| ").split(" | ") for line in lines if line.startswith(("| two parts", "| six"))
    ]
    assert [row[:2] for row in rows] == expected[["kind", "directions"]].to_numpy().tolist()
    for row, numbers in zip(rows, expected.iloc[:, 2:].to_numpy(), strict=True):
        digits = 0.0051 if row[0] == "two parts" else 6e-5
        assert float(row[2]) == pytest.approx(numbers[0], abs=6e-4)
        assert [float(cell) for cell in row[3:]] == pytest.approx(numbers[1:], abs=digits, rel=1e-3)


@pytest.mark.slow
def test_the_program_gives_the_rows_of_the_data():
    rows = pd.read_csv(DATA).query("kind == 'six clusters' and world == 0").reset_index(drop=True)
    made = pd.DataFrame(experiment.world_rows("six clusters", 0))
    names = [name for name in made.columns if name in rows.columns]
    assert set(rows.columns) - set(names) <= {"B3, all of V", "B3, l1"}  # of the study alone
    pd.testing.assert_frame_equal(made[names], rows[names], atol=1e-4)
