"""The rivals' formulas against the programs they come from, the bounds, and the page."""

import numpy as np
import pytest
from scipy.special import expit, ndtri, stdtrit

from multiberts.benchmarks.crossed_model import SHARES, Condition
from multiberts.benchmarks.neighbours import neighbour_intervals
from multiberts.benchmarks.rival_intervals import (
    evalstats_interval,
    kenward_roger_interval,
    logistic_intervals,
    mean_squares,
    pooled_variance,
)
from multiberts.benchmarks.rivals import (
    BLOCK,
    all_trials,
    excess_errors,
    minimax,
    page,
    rivals,
    simulate_block,
)
from multiberts.runs.errors import UserError


def test_trials_are_their_own_and_the_same_in_any_order():
    condition = Condition("mean", "unpaired", "none", 3)
    tables = [condition.arms(1, trial)[1].predictions for trial in range(30)]
    assert len({float(table[0, 0]) for table in tables}) == 30
    np.testing.assert_array_equal(tables[17], condition.arms(1, 17)[1].predictions)
    other = Condition("mean", "unpaired", "none", 5)
    assert other.arms(1, 17)[1].predictions[0, 0] != tables[17][0, 0]
    assert condition.arms(2, 17)[1].predictions[0, 0] != tables[17][0, 0]


@pytest.mark.parametrize("dominant", list(SHARES))
def test_the_mean_of_crossed_scores_has_variance_one(dominant):
    condition = Condition("mean", "paired", dominant, 4)
    means = [condition.arms(3, trial)[1].predictions.mean() for trial in range(3000)]
    assert np.var(means) == pytest.approx(1, abs=4 * np.sqrt(2 / 3000))


@pytest.mark.parametrize("data", ["binary", "wide_seeds"])
def test_crossed_answers_are_as_accurate_as_is_said(data):
    condition = Condition("accuracy", "single", data, 4)
    (arms,) = zip(*(condition.arms(3, trial) for trial in range(500)), strict=True)
    found = [(arm.predictions == arm.labels).mean() for arm in arms]
    assert abs(np.mean(found) - condition.truth()) < 4 * np.std(found) / np.sqrt(500)


def wavy_table():
    """Returns scores of 4 seeds on 12 examples that any program can make."""
    i, j = np.mgrid[:4, :12]
    return 0.8 * np.sin(3 * i * i + 1) + np.cos(5 * j) + 0.6 * np.sin(7 * i * j + j * j)


def test_intervals_of_evalstats():
    """The numbers are those of evalstats 0.3.0, `core.resampling`."""
    cells = np.arange(48).reshape(3, 16)
    first, second = (cells * 7 % 11 < 7).astype(float), ((cells * 5 + 3) % 13 < 9).astype(float)
    two = evalstats_interval([first, second], binary=True)
    np.testing.assert_allclose(two, (-0.0779334885990412, 0.22608163674718934), rtol=1e-12)
    one = evalstats_interval([first], binary=True)
    np.testing.assert_allclose(one, (0.38641040545502714, 0.8151876744113636), rtol=1e-12)
    scores = evalstats_interval([first, second], binary=False)
    np.testing.assert_allclose(scores, (-0.06877202856891897, 0.23543869523558564), rtol=1e-12)


def test_kenward_roger_of_pbkrtest():
    """The ends are those of lme4 and pbkrtest 0.5.2, as far as lme4 iterates."""
    i, j = np.mgrid[:4, :12]
    holes = np.where((5 * i + 3 * j) % 11 == 0, np.nan, wavy_table())
    expected = (-0.5076547783, 1.0551904077)
    np.testing.assert_allclose(kenward_roger_interval(holes), expected, atol=1e-6)


def test_without_missing_cells_kenward_roger_is_satterthwaite():
    table = wavy_table()
    variance, freedom = pooled_variance(*mean_squares(table))
    reach = float(stdtrit(freedom[0], 0.975) * np.sqrt(variance[0]))
    expected = (table.mean() - reach, table.mean() + reach)
    np.testing.assert_allclose(kenward_roger_interval(table), expected, atol=1e-5)


def test_pooled_variance_is_that_of_the_mixed_model():
    """Of tables with and without components of zero."""
    random = np.random.default_rng(0)
    spreads = [(0, 0), (0, 1), (1, 0), (1, 1)]
    tables = np.array(
        [
            random.standard_normal((4, 15))
            + seeds * random.standard_normal((4, 1))
            + examples * random.standard_normal(15)
            for seeds, examples in spreads
        ]
    )
    theirs = neighbour_intervals([np.zeros_like(tables), tables], True, random)["mixed"]
    squares, freedoms = zip(*map(mean_squares, tables), strict=True)
    ours, _ = pooled_variance(np.concatenate(squares, axis=1), freedoms[0])
    np.testing.assert_allclose(ours, ((theirs[:, 1] - theirs[:, 0]) / 2 / ndtri(0.975)) ** 2)


def test_logistic_model_finds_the_accuracy():
    """Of many seeds on many examples, whatever the prior; of two seeds the prior decides."""
    random = np.random.default_rng(1)
    latent = 1.0 + 0.3 * random.standard_normal((8, 1)) + 1.5 * random.standard_normal(200)
    answers = (random.random(latent.shape) < expit(latent)).astype(float)
    truth = expit(1 + np.hypot(0.3, 1.5) * random.standard_normal(10**5)).mean()
    many = logistic_intervals([answers], False, random)
    for low, high in many.values():
        assert low < truth < high and high - low < 0.16
    widths = [high - low for low, high in many.values()]
    assert abs(widths[1] / widths[0] - 1) < 0.15
    (low, high), (wider_low, wider_high) = logistic_intervals([answers[:2]], False, random).values()
    assert wider_high - wider_low > 1.2 * (high - low)
    # The arms may change places, but for the draws.
    sides = [answers[:2], answers[2:4]]
    there, back = (logistic_intervals(arms, True, random) for arms in (sides, sides[::-1]))
    np.testing.assert_allclose(there["logistic"], -np.array(back["logistic"])[::-1], atol=0.02)


def test_no_interval_is_much_narrower():
    """The narrowest of ten seeds has .91 of our width."""
    found = minimax(10)
    assert found["best"] / found["ours"] == pytest.approx(0.914, abs=0.005)
    assert 0.945 < found["ours covers"] <= 0.951


def test_narrower_degrees_of_freedom_err_at_low_levels():
    found = excess_errors(5, num_draws=100)
    ours, narrower = found["ours"], found["quantile .40, pooled"]
    assert narrower["mean"] < ours["mean"] == 1.0
    assert ours["0.05"] < 1.1 and ours["0.001"] < 4 < narrower["0.001"]


@pytest.mark.seconds
def test_a_block_is_the_same_again_and_fills_the_page():
    chosen = {}
    for trials in all_trials():
        if trials.condition.num_seeds == 3:
            chosen.setdefault((trials.group, trials.condition.metric), trials)
    blocks = {
        trials.group: simulate_block(trials, 0, range(2)) for trials in reversed(chosen.values())
    }
    first = next(trials for trials in chosen.values() if trials.missing)
    assert simulate_block(first, 0, range(2)) == blocks["cells missing"]
    counts = {
        trials.name: {
            name: (count, blocks[trials.group]["width"][name])
            for name, count in blocks[trials.group]["covered"].items()
        }
        for trials in all_trials()
    }
    bound = {"best": 9.0, "ours": 10.0, "ours covers": 0.95, "satterthwaite": 8.0}
    errors = {"0.05": 1.0, "0.01": 1.0, "residual": 1.0, "mean": 1.0}
    bounds = {3: bound | {"satterthwaite covers": 0.9}}
    text = page(counts, 2, [{"spread of seeds": 1.0}], bounds, {5: {"ours": errors}})
    assert "0.90 to 0.90 times" in " ".join(text.split())
    # A row per interval of a group, spread, bound, rule and condition, and the headings of seven tables.
    assert text.count("\n| ") == (4 + 4 + 2 + 2) + 1 + 1 + 1 + len(all_trials()) + 7


@pytest.mark.parametrize("wrong", [{"num_trials": BLOCK - 1}, {"simulation_seed": -1}])
def test_refuses_numbers(wrong, tmp_path):
    with pytest.raises(UserError, match="num_trials"):
        rivals(run_dir=str(tmp_path / "run"), **wrong)
    assert not (tmp_path / "run").exists()
