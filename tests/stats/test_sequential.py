"""Boundaries of repeated looks against published tables, quadrature-free cases and simulation."""

import math

import numpy as np
import pytest
import scipy.stats

from multiberts.stats.errors import DataError
from multiberts.stats.sequential import (
    sequential_decision,
    spending_boundaries,
    spent_level,
)

FIVE_LOOKS = [0.2, 0.4, 0.6, 0.8, 1.0]


def test_published_obrien_fleming_boundaries():
    """Lan & DeMets' function at five equal looks, two-sided .05."""
    boundaries = spending_boundaries(FIVE_LOOKS)
    assert boundaries.z == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=0.0006)
    assert boundaries.spent[-1] == pytest.approx(0.05)
    assert boundaries.nominal_p == pytest.approx(2 * scipy.stats.norm.sf(boundaries.z))


def test_spending_function_by_hand():
    for t in (0.1, 0.5, 1.0):
        z = scipy.stats.norm.ppf(1 - 0.05 / 2)
        expected = 2 - 2 * scipy.stats.norm.cdf(z / math.sqrt(t))
        assert spent_level(t, 0.05) == pytest.approx(expected)
    assert spent_level(0.0, 0.05) == 0
    assert spent_level(1.0, 0.05) == pytest.approx(0.05)


def test_one_look_is_the_plain_test():
    assert spending_boundaries([1.0]).z == pytest.approx([scipy.stats.norm.ppf(0.975)])


@pytest.mark.parametrize("alpha", [0.05, 0.6])
@pytest.mark.parametrize("first", [0.3, 0.7])
def test_two_looks_equal_the_bivariate_normal(alpha, first):
    """No crossing at either look is a rectangle of the normal plane."""
    covariance = [[1, math.sqrt(first)], [math.sqrt(first), 1]]
    plane = scipy.stats.multivariate_normal(cov=covariance)
    # Each side spends half; large alphas also cross one side first, then the other.
    high = spending_boundaries([first, 1.0], alpha).z
    assert 1 - plane.cdf(high, lower_limit=-high) == pytest.approx(alpha, abs=5e-6)


def test_a_brownian_motion_crosses_with_the_level():
    """Looks at uneven times; the share that has crossed by each is what may be spent by then."""
    looks = np.array([0.15, 0.4, 0.45, 0.8, 1.0])
    boundaries = spending_boundaries(looks, 0.1)
    trials = 200_000
    steps = np.random.default_rng(2).normal(size=(trials, 5)) * np.sqrt(np.diff(looks, prepend=0))
    z = steps.cumsum(axis=1) / np.sqrt(looks)
    crossed = np.abs(z) >= boundaries.z
    by_look = np.maximum.accumulate(crossed, axis=1).mean(axis=0)
    error = np.sqrt(boundaries.spent * (1 - boundaries.spent) / trials)
    assert (np.abs(by_look - boundaries.spent) < 4 * error + 1e-9).all()


def test_a_boundary_does_not_know_of_later_looks():
    many = spending_boundaries(np.arange(1, 41) / 40).z
    few = spending_boundaries(np.arange(1, 21) / 40).z
    assert many[:20] == pytest.approx(few, abs=1e-8)
    # More looks cost a higher last boundary, still below that of sharing the level out evenly.
    assert spending_boundaries(FIVE_LOOKS).z[-1] < many[-1]
    assert many[-1] < scipy.stats.norm.ppf(1 - 0.05 / 2 / 40)


def test_very_early_looks_spend_nothing():
    boundaries = spending_boundaries([0.01, 0.02, 1.0])
    assert boundaries.z[0] == np.inf and boundaries.nominal_p[0] == 0
    assert boundaries.z[-1] == pytest.approx(scipy.stats.norm.ppf(0.975), abs=1e-3)
    assert np.isfinite(boundaries.spent).all()


def test_a_trial_of_seeds_stops_when_it_may():
    looks = [5, 10, 15, 20, 25]
    levels = spending_boundaries(FIVE_LOOKS).nominal_p
    waiting = sequential_decision([0.01, 0.02], looks[:2], 25)
    assert not waiting.stop and not waiting.shown and waiting.look is None
    assert waiting.boundaries.nominal_p == pytest.approx(levels[:2])
    shown = sequential_decision([0.01, 0.0007], looks[:2], 25)
    assert shown.stop and shown.shown and shown.look == 2
    # Once crossed, a later look does not take it back.
    assert sequential_decision([0.01, 0.0007, 0.4], looks[:3], 25).look == 2
    unshown = sequential_decision([0.5, 0.4, 0.3, 0.2, 0.05], looks, 25)
    assert unshown.stop and not unshown.shown
    assert sequential_decision([0.5, 0.4, 0.3, 0.2, 0.04], looks, 25).shown


def test_repeated_t_tests_of_seeds_keep_the_level():
    """Plain p <= .05 at five looks would err in 14 % of trials."""
    random = np.random.default_rng(3)
    trials, looks = 20_000, [5, 10, 15, 20, 25]
    scores = random.normal(size=(trials, 25))
    p_values = np.stack(
        [scipy.stats.ttest_1samp(scores[:, :n], 0, axis=1).pvalue for n in looks], axis=1
    )
    plain = (p_values <= 0.05).any(axis=1).mean()
    levels = sequential_decision(p_values[0], looks, 25).boundaries.nominal_p
    kept = (p_values <= levels).any(axis=1).mean()
    assert plain == pytest.approx(0.14, abs=0.01)
    assert kept == pytest.approx(0.05, abs=4 * math.sqrt(0.05 / trials))


def test_looks_that_make_no_sense():
    for wrong in ([], [0.0, 1.0], [0.5, 0.5], [0.6, 0.3], [0.5, 1.1]):
        with pytest.raises(DataError, match="expected growing shares"):
            spending_boundaries(wrong)
    with pytest.raises(DataError, match="alpha 1.5"):
        spending_boundaries([1.0], 1.5)
    with pytest.raises(DataError, match="30 seeds, .*25 planned"):
        sequential_decision([0.1], [30], 25)
    with pytest.raises(DataError, match="0 planned seeds"):
        sequential_decision([0.5], [0], 0)
    with pytest.raises(DataError, match="from 0 to 1 per look"):
        sequential_decision([0.1, 0.2], [10], 25)
    with pytest.raises(DataError, match="expected growing shares"):
        sequential_decision([], [], 25)
