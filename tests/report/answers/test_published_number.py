"""A published number beside runs: predictive laws whose truth is known."""

import math
import re

import numpy as np
import pytest
import scipy.stats

from multiberts import stats
from multiberts.report.answers.published_number import NUM_DRAWS, standard_draws
from multiberts.report.reproduce_command import reproduce_files
from multiberts.runs.errors import UserError
from multiberts.stats.errors import DataError

SCORES = np.array([0.80, 0.82, 0.85, 0.81])
RUNS = np.repeat(SCORES[:, None], 6, axis=1)  # seeds x examples


def reproduce(runs, metric=None, *, published, of="mean", seed_sd=None, **options):
    held = {"resample": "examples"} if len(runs) == 1 else {}
    result = stats.compare(runs, None, metric, design="single", n_resamples=40, **held, **options)
    return stats.reproduce(result.named("ours"), published, of, seed_sd=seed_sd)


@pytest.mark.parametrize("count", [1, 3, 10])
def test_the_mean_of_new_seeds_has_students_predictive_interval(count):
    found = reproduce(RUNS, published=0.85, of=f"mean:{count}")
    error = SCORES.std(ddof=1) * math.sqrt(1 / count + 1 / 4)
    law = scipy.stats.t(3, SCORES.mean(), error)
    assert tuple(found.ci) == pytest.approx(law.interval(0.95))
    assert found.p_value == pytest.approx(2 * law.sf(0.85))
    assert reproduce(RUNS, published=0.85).num_published == 4  # as many as here


@pytest.mark.parametrize("kind", ["best", "median"])
def test_one_published_run_is_its_own_best_and_median(kind):
    """Their simulated law is then Student's."""
    drawn = standard_draws(kind, 1, 4, 3.0, 0)
    law = scipy.stats.t(3, scale=math.sqrt(1 + 1 / 4))
    assert scipy.stats.kstest(drawn, law.cdf).statistic < 2.2 / math.sqrt(NUM_DRAWS)


@pytest.mark.parametrize(
    ("kind", "count"), [("best", 5), ("median", 4), ("median", 5), ("median", 2)]
)
def test_order_statistics_are_those_of_drawn_seeds(kind, count):
    """With endlessly many runs seen, the best and the median are those of normal samples."""
    drawn = standard_draws(kind, count, 10**9, 1e9, 0)
    samples = np.random.default_rng(1).standard_normal((NUM_DRAWS, count))
    truth = {"best": samples.max(axis=1), "median": np.median(samples, axis=1)}[kind]
    assert scipy.stats.ks_2samp(drawn, truth).statistic < 2.2 * math.sqrt(2 / NUM_DRAWS)


def test_the_best_of_many_is_no_surprise_and_the_mean_of_many_is():
    found = {
        of: reproduce(RUNS, published=0.87, of=of, less_is_better=False)
        for of in ("best:20", "mean:20")
    }
    assert found["best:20"].p_value > 0.5 > found["mean:20"].p_value
    assert "the best of 20 new runs" in str(found["best:20"])
    assert found["mean:20"].p_value < 0.05
    assert "seldom give the published" in str(found["mean:20"]) and "it lies outside" in str(
        found["mean:20"]
    )
    assert found["best:20"].record()["p_value"] == found["best:20"].p_value


def test_one_run_borrows_a_spread():
    found = reproduce(RUNS[:1], published=0.85, of="mean:5", seed_sd="0.02/6")
    law = scipy.stats.t(6, 0.80, 0.02 * math.sqrt(1 / 5 + 1))
    assert tuple(found.ci) == pytest.approx(law.interval(0.95))
    assert "borrowed: 6 degrees of freedom" in str(found)


@pytest.mark.parametrize(("unit", "published"), [(100, 0.85), (1, 85)])
def test_a_number_in_another_unit_is_refused_instead_of_contradicted(unit, published):
    with pytest.raises(DataError, match=f"per cent, .*; give published='{0.85 * unit:g}'$"):
        reproduce(RUNS * unit, published=published)
    assert reproduce(RUNS * unit, published=0.85 * unit).p_value > 0.1


def test_the_command_reads_what_compare_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{arm},{seed},e{one},{(seed * one + one) % 3 > 0:d}" for arm in "ab" for seed in range(4)
            for one in range(30)]  # fmt: skip
    (tmp_path / "two.csv").write_text("\n".join(["model,seed,id,correct", *rows]))
    for name in (None, "c"):
        with pytest.raises(UserError, match=r"two.csv holds 2 arms \(a, b\), .* --name=a$"):
            reproduce_files(results="two.csv", published=0.6, name=name)
    assert " of b is 50.00 %" in reproduce_files(results="two.csv", published=0.6, name="b")
    (tmp_path / "one.csv").write_text("\n".join(["model,seed,id,correct", *rows[:120]]))
    text = reproduce_files(results="one.csv", published=0.6, of="median:5")
    assert "Across 4 seeds and 30 examples" in text and "the median of 5 new runs" in text
    assert '"num_published": 5' in reproduce_files(
        results="one.csv", published=0.6, of="median:5", json=True
    )


def test_the_command_takes_labels_apart_and_missing_predictions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = [
        f"{seed},e{one},{(seed * one + one) % 3 > 0:d}" for seed in range(4) for one in range(30)
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["seed,id,prediction", *cells[1:]]))
    (tmp_path / "gold.csv").write_text("\n".join(["id,y", *(f"e{one},1" for one in range(30))]))
    known = {"results": "runs.csv", "published": 0.6}
    with pytest.raises(UserError, match="found no labels, .*labels='FILE'"):
        reproduce_files(**known)
    known |= {"labels": "gold.csv", "label": "y"}
    with pytest.raises(UserError, match=r"found nan .* give missing='omit'"):
        reproduce_files(**known)
    assert "accuracy of runs is 50.57 %" in reproduce_files(**known, missing="omit")


def test_runs_that_failed_or_may_fail_are_named_beside_the_interval():
    """By the function of `compare`, whose sentences these are."""
    random, labels = np.random.default_rng(5), np.arange(400) % 2
    right = random.random((6, 400)) < 0.9
    answers = np.where(right, labels, 1 - labels)
    found = reproduce(answers, "accuracy", labels=labels, published=0.9)
    assert found.comparison.base.failed_seeds == ()
    assert "None of the 6 seeds failed" in str(found)
    assert "not cover failed runs" in str(found)
    answers[2] = np.where(random.random(400) < 0.5, labels, 1 - labels)
    answers[4] = 1
    found = reproduce(answers, "accuracy", labels=labels, published=0.9)
    assert found.comparison.base.failed_seeds == (2, 4)
    assert found.record()["constant_seeds"] == [4] and found.record()["failed_seeds"] == [2, 4]
    assert re.search(r"2 of 6 .*ours \(seeds 2, 4\) .*gap .*\(seed 4", str(found))
    assert "failed to train" not in str(reproduce(RUNS, published=0.85))
    limit = "holds the mean of five new ones in 73 to 83 % of studies"
    assert limit in str(found)
    assert limit not in str(reproduce(RUNS, published=0.85, of="median:5"))
