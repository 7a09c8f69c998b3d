"""Bounds where predictions are missing hold whatever the missing ones are."""

import itertools

import numpy as np
import pytest
from scipy import stats as distributions

from multiberts.evaluate.metrics.register import METRICS
from multiberts.stats import TaskData, compare, compare_tasks
from multiberts.stats.compare.missing_bounds import extreme_arms, imbens_manski
from multiberts.stats.errors import DataError
from multiberts.stats.intervals import Interval
from multiberts.stats.runs_table import make_arm

FAST = {"n_resamples": 40}


def trial(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Right answers of two models by a probit; three in ten of the new one's wrong answers are missing."""
    hard, seeds = random.normal(size=120), random.normal(0, 0.2, (5, 1))
    base, new = (
        1.0 * (random.normal(size=(5, 120)) + seeds + hard < skill) for skill in (0.5, 0.9)
    )
    new[(new == 0) & (random.random(new.shape) < 0.3)] = np.nan
    return base, new


def test_the_interval_covers_where_leaving_out_does_not() -> None:
    random, trials = np.random.default_rng(1), 50
    scale = np.sqrt(1 + 1 + 0.2**2)
    truth = np.diff(distributions.norm.cdf(np.array([0.5, 0.9]) / scale))[0]
    covered = {"omit": 0, "bound": 0}
    for _ in range(trials):
        base, new = trial(random)
        for missing in covered:
            found = compare(base, new, missing=missing, **FAST)
            covered[missing] += found.ci.low <= truth <= found.ci.high
    assert covered["bound"] >= 0.95 * trials
    assert covered["omit"] < 0.8 * trials


def test_the_bounds_are_those_of_all_ways_to_fill_the_gaps() -> None:
    random = np.random.default_rng(0)
    labels, gaps = np.arange(6) % 2, [(0, 1), (2, 3), (1, 4)]
    base, new = (1.0 * random.integers(0, 2, (3, 6)) for _ in range(2))
    differences = []
    for values in itertools.product((0.0, 1.0), repeat=2 * len(gaps)):
        sides = [base.copy(), new.copy()]
        for (side, gap), value in zip(itertools.product(sides, gaps), values, strict=True):
            side[gap] = value
        rates = [(side == labels).mean() for side in sides]
        differences.append(rates[1] - rates[0])
    for side, gap in itertools.product((base, new), gaps):
        side[gap] = np.nan
    arms = [make_arm("side", side, labels, range(3), missing="omit") for side in (base, new)]
    ends = [
        float(end[1].predictions.mean() - end[0].predictions.mean())
        for end in extreme_arms(arms, METRICS["accuracy"])
    ]
    assert ends == pytest.approx([min(differences), max(differences)])


def test_where_nothing_is_missing_the_answer_is_the_usual_one() -> None:
    random = np.random.default_rng(0)
    base, new = (1.0 * (random.random((4, 30)) < rate) for rate in (0.5, 0.8))
    bound, usual = (compare(base, new, missing=kind, **FAST) for kind in ("bound", "refuse"))
    assert (bound.ci, bound.p_values["t"], bound.notes) == (usual.ci, usual.p_values["t"], ())


@pytest.mark.parametrize("freedom", [4.0, float("inf")])
def test_one_point_gives_students_t_and_a_wide_range_one_sided_ends(freedom: float) -> None:
    student = distributions.t(freedom)
    point, p = imbens_manski(Interval(0.2, 0.2), (0.1, 0.1), freedom, 0.95)
    half = 0.1 * student.ppf(0.975)
    assert point == pytest.approx((0.2 - half, 0.2 + half))
    assert p.two_sided == pytest.approx(2 * student.sf(2))
    wide, _ = imbens_manski(Interval(0.2, 20.0), (0.1, 0.1), freedom, 0.95)
    half = 0.1 * student.ppf(0.95)
    assert wide == pytest.approx((0.2 - half, 20 + half), abs=1e-3)


def test_an_interval_excludes_zero_where_p_is_below_its_level() -> None:
    for low in np.linspace(0.01, 0.4, 30):
        interval, p = imbens_manski(Interval(low, low + 0.1), (0.1, 0.08), 6.0, 0.95)
        assert (interval.low > 0) == (p.two_sided < 0.05)
        mirrored, q = imbens_manski(Interval(-low - 0.1, -low), (0.08, 0.1), 6.0, 0.95)
        assert mirrored == pytest.approx((-interval.high, -interval.low))
        assert q.two_sided == pytest.approx(p.two_sided)


def test_readers_learn_what_is_assumed() -> None:
    base, new = trial(np.random.default_rng(0))
    notes = " ".join(compare(base, new, missing="bound", **FAST).notes)
    assert (
        "Whatever the missing predictions are, the difference on these examples is between" in notes
    )
    assert "of 600 predictions of experiment are missing." in notes and "at random" not in notes


def test_what_has_no_bounds_is_refused() -> None:
    base, new = trial(np.random.default_rng(0))
    with pytest.raises(DataError, match="needs scores from 0 to 1"):
        compare(base * 7, new * 7, missing="bound")
    labels = np.arange(120) % 2
    with pytest.raises(DataError, match="needs a metric that is a mean over examples"):
        compare(base, new, "f1", labels=labels, missing="bound")
    with pytest.raises(DataError, match="'bound' is of one comparison"):
        compare_tasks({"a": TaskData(base, new, missing="bound")})
