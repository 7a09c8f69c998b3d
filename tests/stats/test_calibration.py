"""Coverage of intervals and levels of tests in made-up data; the short form of `make calibrate`."""

import json
import shutil

import numpy as np
import pytest
import xarray

from multiberts.benchmarks.calibration import calibrate, read_outcome
from multiberts.benchmarks.calibration_trials import (
    LEVELS,
    monte_carlo_error,
    questions_of,
    simulate,
)
from multiberts.benchmarks.crossed_model import SHARES, Condition, all_conditions
from multiberts.runs.errors import UserError
from multiberts.stats import compare
from multiberts.stats.bootstrap.comparison import compare_questions
from multiberts.stats.bootstrap.conclusion import Names

TRIALS, REPLICATES = 1000, 400


def near(count: int, expected: float, trials: int = TRIALS) -> bool:
    """Within four Monte Carlo errors."""
    return abs(count / trials - expected) < 4 * np.sqrt(expected * (1 - expected) / trials)


def dataset(arm):
    return xarray.Dataset(
        {"prediction": (("run", "example"), arm.predictions), "label": ("example", arm.labels)},
        coords={"pretrain_seed": ("run", list(arm.run_seeds))},
    )


@pytest.mark.parametrize(
    "condition",
    [
        Condition("mean", "paired", "seeds", 5),
        Condition("mean", "unpaired", "none", 3),
        Condition("pearson", "paired", "examples", 3),
        Condition("pearson", "single", "residual", 5),
    ],
    ids=lambda condition: condition.name,
)
def test_a_trial_is_what_compare_says(condition):
    questions, settings = questions_of(condition, 7, [40, 41, 42], 60)
    found, *_ = compare_questions(questions, settings, [Names()] * 3)
    for trial, ours in zip((40, 41, 42), found, strict=True):
        sides = [dataset(arm) for arm in condition.arms(7, trial)]
        theirs = compare(
            sides[0], sides[1] if len(sides) > 1 else None, condition.metric, condition.design,
            num_bootstrap=60, bootstrap_seed=settings.bootstrap_seed,
        )  # fmt: skip
        np.testing.assert_array_equal(ours.samples, theirs.samples)
        for field in ("estimate", "standard_error", "degrees_of_freedom", "t", "percentile",
                      "basic", "bca", "studentised", "p_t", "p_percentile", "p_published",
                      "p_sign_flip", "p_permutation"):  # fmt: skip
            assert getattr(ours, field) == getattr(theirs, field), field


def test_trials_are_their_own_and_the_same_in_any_order():
    condition = Condition("mean", "unpaired", "none", 3)
    tables = [condition.arms(1, trial)[1].predictions for trial in range(30)]
    assert len({float(table[0, 0]) for table in tables}) == 30
    np.testing.assert_array_equal(tables[17], condition.arms(1, 17)[1].predictions)
    other = Condition("mean", "unpaired", "none", 5)
    assert other.arms(1, 17)[1].predictions[0, 0] != tables[17][0, 0]
    assert condition.arms(2, 17)[1].predictions[0, 0] != tables[17][0, 0]


@pytest.mark.parametrize("dominant", list(SHARES))
def test_the_variance_of_the_mean_is_one_and_its_shares_are_those_named(dominant):
    condition = Condition("mean", "paired", dominant, 4)
    tables = np.array([condition.arms(3, trial)[1].predictions for trial in range(3000)])
    assert tables.mean(axis=(1, 2)).var() == pytest.approx(1, abs=4 * np.sqrt(2 / 3000))
    outcome = simulate(condition, 3, 60, 40)
    assert sum(outcome.shares) == pytest.approx(1)
    assert outcome.shares == pytest.approx(SHARES[dominant], abs=0.13)


@pytest.mark.parametrize("dominant", ["seeds", "examples", "residual"])
def test_the_true_correlation_is_the_mean_over_new_seeds_and_examples(dominant):
    condition = Condition("pearson", "single", dominant, 25)
    scores = []
    for trial in range(1500):
        arm = condition.arms(5, trial)[0]
        scores.append(np.mean([np.corrcoef(arm.labels, row)[0, 1] for row in arm.predictions]))
    error = np.std(scores) / np.sqrt(len(scores))
    # Of 100 examples r expects less, by at most 0.385 / 200.
    assert -0.002 - 4 * error < np.mean(scores) - condition.truth < 4 * error


@pytest.mark.parametrize(("num_seeds", "percentile"), [(5, 0.846), (10, 0.904)])
def test_where_seeds_dominate_t_covers_and_the_percentile_interval_does_not(num_seeds, percentile):
    found = simulate(Condition("mean", "paired", "seeds", num_seeds), 11, TRIALS, REPLICATES)
    assert near(found.covered["t"], 0.95)
    assert near(found.covered["percentile"], percentile)
    assert found.covered["studentised"] >= found.covered["percentile"]
    for sides in ("one-sided", "two-sided"):
        for level in LEVELS:
            assert near(found.rejected["t"][f"{sides} {level}"], level)
            assert found.rejected["published"][f"{sides} {level}"] / TRIALS > level
    # Of 2**R patterns these many lie in the tail.
    exact = np.floor(0.05 * 2**num_seeds) / 2**num_seeds
    assert near(found.rejected["sign_flip"]["one-sided 0.05"], exact)


def test_permutations_of_unpaired_seeds_keep_their_level():
    found = simulate(Condition("mean", "unpaired", "seeds", 5), 12, TRIALS, REPLICATES)
    # Of 252 deals 12 are within .05, and 2 within .01.
    assert near(found.rejected["permutation"]["one-sided 0.05"], 12 / 252)
    assert near(found.rejected["permutation"]["one-sided 0.01"], 2 / 252)
    assert 0.93 <= found.covered["t"] / TRIALS <= 0.98


def test_of_a_correlation_t_covers_and_keeps_its_level():
    found = simulate(Condition("pearson", "paired", "seeds", 5), 13, TRIALS, REPLICATES)
    assert near(found.covered["t"], 0.95)
    assert near(found.rejected["t"]["two-sided 0.05"], 0.05)
    assert found.covered["percentile"] / TRIALS < 0.9


def test_tests_of_seeds_say_nothing_about_new_examples():
    """With examples that dominate the order of the seeds shows a difference that others have not."""
    found = simulate(Condition("mean", "paired", "examples", 10), 14, 300, 100)
    assert found.rejected["sign_flip"]["two-sided 0.05"] / 300 > 0.5
    assert near(found.covered["t"], 0.95, 300)


def test_the_monte_carlo_error_is_never_nothing():
    assert monte_carlo_error(50, 1000) == pytest.approx(np.sqrt(0.05 * 0.95 / 1000))
    assert monte_carlo_error(0, 1000) == pytest.approx(np.sqrt(0.0005 * 0.9995 / 1000))
    assert monte_carlo_error(1000, 1000) == pytest.approx(monte_carlo_error(0, 1000))


def test_a_study_that_was_cut_goes_on_and_ends_the_same(tmp_path):
    options = {"num_trials": 2, "num_known_trials": 3, "num_bootstrap": 40, "simulation_seed": 4}
    calibrate(run_dir=str(tmp_path / "whole"), **options)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    names = ("calibration.md", "calibration.csv", "calibration.png", "calibration.svg")
    conditions = sorted((tmp_path / "cut" / "conditions").iterdir())
    assert len(conditions) == len(all_conditions())
    # As a kill leaves it: no marker, no tables, some conditions missing, one half written.
    (tmp_path / "cut" / "DONE").unlink()
    for name in names:
        (tmp_path / "cut" / name).unlink()
    kept, *missing = [path for path in conditions if path.stem.endswith("-3")]
    for path in missing:
        path.unlink()
    (tmp_path / "cut" / "conditions" / "half.json.unfinished").write_text("{")
    before = kept.stat().st_mtime_ns
    calibrate(run_dir=str(tmp_path / "cut"), **options)
    assert kept.stat().st_mtime_ns == before and all(path.exists() for path in missing)
    for name in names:
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert json.loads((tmp_path / "cut" / "DONE").read_text())["stage"] == "calibrate"
    assert read_outcome(kept).trials == 2
    with pytest.raises(UserError, match="num_trials"):
        calibrate(run_dir=str(tmp_path / "cut"), **{**options, "num_trials": 4})
