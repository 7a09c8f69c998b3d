"""The made-up worlds, the learner against scikit-learn, and the command: what it shows, writes and
survives."""

import csv
import inspect
import json

import numpy as np
import pytest

from multiberts.benchmarks import b3_experiment as experiment
from multiberts.benchmarks.b3_experiment import (
    RidgeLearner,
    b3_experiment,
    make_world,
    observe,
    true_leakage,
)
from multiberts.runs.errors import UserError
from multiberts.tests import as_module

pytestmark = pytest.mark.seconds

DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(b3_experiment).parameters.items()
    if name != "run_dir"
}
QUICK = {
    "noises": (0.0, 0.5), "num_repetitions": 3, "num_clusters": 4, "cluster_size": 20,
    "num_features": 3, "num_train": 10, "num_draws": 20, "num_folds": 4, "num_new_clusters": 20,
}  # fmt: skip


@pytest.fixture(scope="module")
def world():
    return make_world(DEFAULTS, 6, 0)


def test_learner_equals_scikit_learn(world):
    """Scikit-learn leaves the intercept out of the penalty; a column of ones is in both."""
    from sklearn.linear_model import Ridge

    x = np.column_stack([np.ones(600), world.features])
    train = np.random.default_rng(0).integers(600, size=(5, 40))
    test = np.random.default_rng(1).integers(600, size=(5, 30))
    learner = RidgeLearner(world, 2.0)
    errors, weights = learner.errors(train, test), learner.fit(train)
    for row in range(5):
        theirs = Ridge(alpha=2.0, fit_intercept=False).fit(x[train[row]], world.labels[train[row]])
        np.testing.assert_allclose(weights[row], theirs.coef_, atol=1e-8)
        wrong = np.sign(theirs.predict(x[test[row]])) != world.labels[test[row]]
        assert errors[row] == wrong.mean()


@pytest.mark.parametrize("directions", ["one", "two"])
def test_observed_clusters_and_their_leakage(world, directions):
    observed = observe(world.clusters, 0.3, directions, np.random.default_rng(0))
    names, sizes = np.unique(observed, return_counts=True)
    if directions == "one":
        assert sorted(sizes)[-6:] == [70] * 6 and (np.sort(sizes)[:-6] == 1).all()
        assert all(len(np.unique(world.clusters[observed == name])) == 1 for name in names)
    else:
        assert (sizes == 100).all()
        assert 0.15 < (observed != world.clusters).mean() < 0.3
    outside, inside = [], []
    for i in range(600):
        if (observed == observed[i]).sum() >= 2:
            same = world.clusters == world.clusters[i]
            own = observed == observed[i]
            outside.append(same[~own].mean())
            inside.append((same & own).sum() - 1)
            inside[-1] /= own.sum() - 1
    expected = np.mean(outside), np.mean(inside)
    assert true_leakage(world.clusters, observed, 2) == pytest.approx(expected)
    clean = observe(world.clusters, 0.0, directions, np.random.default_rng(0))
    assert true_leakage(world.clusters, clean, 2) == (0, 1)


@pytest.mark.slow
def test_b3_is_nearer_to_the_truth_than_the_others():
    """At a small scale: k-fold and leave-one-cluster-out look too good by many standard errors of
    the paired difference, and B3 takes away most of what noise adds."""
    parameters = DEFAULTS | {"noises": (0.0, 0.6), "num_train": 30, "num_draws": 150}
    parameters |= {"num_features": 5, "num_new_clusters": 50, "label_noise": 0.2}
    rows = [row for r in range(24) for row in experiment._one_world(parameters, r)]

    def errors(noise, name):
        chosen = [row for row in rows if row["noise"] == noise]
        return np.array([row[name] - row["truth"] for row in chosen])

    def z(differences):
        return differences.mean() / (differences.std(ddof=1) / np.sqrt(len(differences)))

    plain, b3 = errors(0.6, "leave one cluster out"), errors(0.6, "B3, p_0 known")
    clean = errors(0.0, "leave one cluster out")
    assert z(plain - clean) < -4
    assert z(errors(0.6, "k-fold")) < -4
    assert z(b3 - plain) > 4
    assert abs((b3 - clean).mean()) < 0.5 * abs((plain - clean).mean())
    # Without noise there is nothing to take away.
    np.testing.assert_allclose(errors(0.0, "B3, p_0 known"), clean, atol=0.05)
    assert abs(z(clean)) < 3


def test_command_writes_everything_and_continues(tmp_path):
    bindings = [f"--gin_param=b3_experiment.{name} = {value!r}" for name, value in QUICK.items()]
    run_dir = tmp_path / "run"
    flags = [*bindings, f"--gin_param=b3_experiment.run_dir = '{run_dir}'"]
    result = as_module.run("benchmarks.b3_experiment", flags)
    assert result.returncode == 0, result.stderr
    with open(run_dir / "results.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["noise"], row["repetition"]) for row in rows] == [
        (noise, str(repetition)) for noise in ("0.0", "0.5") for repetition in range(3)
    ]
    assert {float(row["p_0"]) for row in rows[:3]} == {0.0}
    assert float(rows[3]["p_0"]) == pytest.approx(10 / 70)
    table = (run_dir / "table.md").read_text()
    assert table.count("\n| 0") == 2 and "Means over 3 worlds" in table
    assert b"<svg" in (run_dir / "figure.svg").read_bytes()

    # As after a kill in the second repetition: what is finished is kept, the rest made again.
    other = tmp_path / "other"
    (other / "repetitions").mkdir(parents=True)
    (other / "config.gin").write_text((run_dir / "config.gin").read_text())
    first = json.loads((run_dir / "repetitions" / "0000.json").read_text())
    first[0]["k-fold"] = 0.25
    (other / "repetitions" / "0000.json").write_text(json.dumps(first))
    (other / "repetitions" / "0001.json.unfinished").write_text("[{")
    b3_experiment(run_dir=str(other), **QUICK)
    with open(other / "results.csv", newline="") as handle:
        again = list(csv.DictReader(handle))
    assert again[0]["k-fold"] == "0.25"
    assert again[1:] == rows[1:]
    before = (other / "results.csv").stat().st_mtime_ns
    b3_experiment(run_dir=str(other), **QUICK)
    assert (other / "results.csv").stat().st_mtime_ns == before


def test_two_directions_run(tmp_path):
    b3_experiment(run_dir=str(tmp_path / "run"), **QUICK | {"directions": "two"})
    assert "| 0.5 |" in (tmp_path / "run" / "table.md").read_text()


def test_summary_by_hand():
    rows = [
        {"noise": 0.1, "repetition": r, "truth": 0.3, "k-fold": value}
        for r, value in enumerate((0.2, 0.4, 0.3))
    ]
    found = experiment.summarise(rows, 0.1, "k-fold")
    assert found.mean == pytest.approx(0.3) and found.bias == pytest.approx(0)
    assert found.bias_error == pytest.approx(0.1 / np.sqrt(3))
    assert found.root_mean_square == pytest.approx(np.sqrt(0.02 / 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noises": ()}, r"noises \[\]"),
        ({"noises": (1.0,)}, r"noises \[1\.0\]"),
        ({"directions": "three"}, "directions 'three'"),
        ({"num_repetitions": 1}, "num_repetitions 1, .* 2"),
        ({"num_train": 1000}, "num_train 1000, .* 80"),
        ({"noises": (0.95,)}, r"noise 0\.95, .*cluster_size"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        b3_experiment(run_dir=str(tmp_path / "run"), **QUICK | options)
    assert not (tmp_path / "run").exists()
