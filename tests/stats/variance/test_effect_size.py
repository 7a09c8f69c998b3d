"""Effect sizes against their definitions, SciPy's U statistic and simulation."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from multiberts.stats.variance.effect_size import bias_factor, effect_sizes


def test_unpaired_by_hand():
    sizes = effect_sizes([2.0, 4.0, 6.0], [6.0, 8.0], paired=False)
    assert sizes.relative_difference == pytest.approx(0.75)
    pooled = np.sqrt((8 + 2) / 3)
    assert sizes.cohens_d == pytest.approx(3 / pooled)
    # Gamma(3/2) / (sqrt(3/2) Gamma(1)) = sqrt(pi) / 2 / sqrt(3/2).
    assert sizes.hedges_g == pytest.approx(3 / pooled * np.sqrt(np.pi) / 2 / np.sqrt(1.5))
    # Of six pairs five are above and one ties.
    assert sizes.probability_of_superiority == pytest.approx(5.5 / 6)
    assert sizes.cliffs_delta == pytest.approx(5 / 6)


def test_paired_by_hand():
    sizes = effect_sizes([1.0, 2.0, 3.0, 4.0], [1.5, 2.0, 4.0, 3.5], paired=True)
    differences = np.array([0.5, 0.0, 1.0, -0.5])
    assert sizes.cohens_d == pytest.approx(0.25 / differences.std(ddof=1))
    assert sizes.hedges_g == pytest.approx(sizes.cohens_d * bias_factor(3))
    assert sizes.probability_of_superiority == pytest.approx((2 + 0.5) / 4)
    assert sizes.cliffs_delta == pytest.approx(0.25)


def test_superiority_is_the_u_statistic():
    random = np.random.default_rng(0)
    base, experiment = random.integers(0, 9, size=12), random.integers(2, 11, size=8)
    u = scipy.stats.mannwhitneyu(experiment, base).statistic
    sizes = effect_sizes(base, experiment, paired=False)
    assert sizes.probability_of_superiority == pytest.approx(u / (12 * 8))
    assert sizes.cliffs_delta == pytest.approx(2 * u / (12 * 8) - 1)


def test_d_is_t_without_the_number_of_seeds():
    random = np.random.default_rng(1)
    base, experiment = random.normal(size=7), random.normal(1, 1, size=9)
    t = scipy.stats.ttest_ind(experiment, base).statistic
    d = effect_sizes(base, experiment, paired=False).cohens_d
    assert d == pytest.approx(t * np.sqrt(1 / 7 + 1 / 9))
    pairs = effect_sizes(base, experiment[:7], paired=True)
    t = scipy.stats.ttest_rel(experiment[:7], base).statistic
    assert pairs.cohens_d == pytest.approx(t / np.sqrt(7))


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


def test_without_spread_or_base_the_ratio_is_none():
    same = effect_sizes([0.1, 0.1, 0.1], [0.3, 0.3, 0.3], paired=False)
    assert same.cohens_d is None and same.hedges_g is None
    assert same.relative_difference == pytest.approx(2) and same.cliffs_delta == 1
    # A constant difference of scores that vary: no spread but rounding.
    base = np.array([0.1, 0.2, 0.7])
    assert effect_sizes(base, base + 0.1, paired=True).cohens_d is None
    assert effect_sizes([0.0, 0.0], [1.0, 2.0], paired=False).relative_difference is None
    assert effect_sizes([-2.0, -2.0], [-1.0, -1.0], paired=False).relative_difference == 0.5
    one = effect_sizes([0.1], [0.4], paired=False)
    assert one.cohens_d is None and one.cliffs_delta == 1
    two = effect_sizes([0.1, 0.2], [0.4, 0.3], paired=True)  # one degree of freedom
    assert two.cohens_d is not None and two.hedges_g is None
