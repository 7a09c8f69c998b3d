"""Hedges' g against its definition, SciPy's t and an integral."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from multiberts.stats.compare.result import bias_factor, hedges_g


def sized(base, experiment, paired):
    return hedges_g(np.asarray(base, float), np.asarray(experiment, float), paired)


def test_it_is_t_without_the_number_of_seeds():
    random = np.random.default_rng(1)
    base, experiment = random.normal(size=7), random.normal(1, 1, size=9)
    t = scipy.stats.ttest_ind(experiment, base).statistic
    expected = t * np.sqrt(1 / 7 + 1 / 9) * bias_factor(14)
    assert sized(base, experiment, paired=False) == pytest.approx(expected)
    t = scipy.stats.ttest_rel(experiment[:7], base).statistic
    expected = t / np.sqrt(7) * bias_factor(6)
    assert sized(base, experiment[:7], paired=True) == pytest.approx(expected)


@pytest.mark.parametrize("freedom", [2, 3, 8, 60])
def test_the_correction_takes_away_the_bias_of_normal_scores(freedom):
    """E[1 / s] of s^2 = chi^2_m / m by integration: the factor is its inverse."""

    def integrand(x):
        return np.sqrt(freedom / x) * scipy.stats.chi2.pdf(x, freedom)

    mean = sum(
        scipy.integrate.quad(integrand, low, high)[0]
        for low, high in ((0, freedom), (freedom, np.inf))
    )
    assert bias_factor(freedom) == pytest.approx(1 / mean, rel=1e-6)
    # And nearly the well-known 1 - 3 / (4 m - 1).
    assert bias_factor(freedom) == pytest.approx(1 - 3 / (4 * freedom - 1), abs=0.02 / freedom)


def test_without_spread_there_is_none():
    assert sized([0.1, 0.1, 0.1], [0.3, 0.3, 0.3], paired=False) is None
    # A constant difference of scores that vary: no spread but rounding.
    base = np.array([0.1, 0.2, 0.7])
    assert sized(base, base + 0.1, paired=True) is None
    assert sized([0.1], [0.4], paired=False) is None
    assert sized([0.1, 0.2], [0.4, 0.3], paired=True) is None  # one degree of freedom
