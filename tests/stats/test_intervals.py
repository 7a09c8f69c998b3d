"""Intervals and p-values against SciPy and against values worked out by hand."""

import gc
import itertools
import math
import re

import numpy as np
import pytest
import scipy.special
import scipy.stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from multiberts.stats import report_ci
from multiberts.stats.interval_rule import (
    clopper_pearson_interval,
    difference_of_intervals,
    fisher_t_interval,
    interval_of_mean,
    interval_of_score,
    percentile_interval,
    score_interval,
    t_interval,
    t_p_values,
)
from multiberts.stats.intervals import Interval
from multiberts.stats.score import Score
from multiberts.stats.significance import (
    adjusted_p_values,
    bootstrap_p_values,
    permutation_p_values,
    published_p_values,
    sign_flip_p_values,
)
from multiberts.tests.stats.crossings import crossing_of_tables


def bounded_interval(estimate, error, freedom, level, bounds, units):
    kind = Score("score", ends=bounds)
    return interval_of_mean((estimate, error, freedom), level, kind, units)


def test_report_ci_by_hand():
    base = np.arange(101) / 100
    samples = list(zip(base, base + np.linspace(-0.1, 0.9, 101), strict=True))
    result = report_ci(samples, c=0.9, verbose=False)
    assert result["base"] == pytest.approx({"mean": 0.5, "low": 0.05, "high": 0.95})
    assert result["delta"]["mean"] == pytest.approx(0.4)
    assert result["delta"]["low"] == pytest.approx(-0.05)
    assert result["delta"]["p"] == pytest.approx(11 / 101, abs=1 / 101)  # -.1 to 0 of -.1 to .9
    negative = report_ci(samples, expect_negative_effect=True, verbose=False)
    assert negative["delta"]["p"] == pytest.approx(91 / 101, abs=1 / 101)


def test_report_ci_has_a_floor_and_prints(capsys):
    samples = [(0.2, 0.5), (0.3, 0.5), (0.25, 0.5), (0.2, 0.4)]
    result = report_ci(samples, abs_threshold=0.25, rel_threshold=1.2)
    assert result["delta"]["p"] == 0.25
    printed = capsys.readouterr().out
    assert "expt: 0.475 (" in printed
    assert re.search(r"0\.50 of .*above base by 0\.25 or more", printed)
    assert re.search(r"0\.25 of .*above base by 1\.2 of base", printed)
    report_ci(samples, abs_threshold=0.0, expect_negative_effect=True)
    assert re.search(r"0\.00 of .*below base by 0 ", capsys.readouterr().out)


def test_t_equals_scipy():
    values = np.random.default_rng(0).normal(0.4, 1, size=9)
    error = values.std(ddof=1) / 3
    theirs = scipy.stats.ttest_1samp(values, 0)
    assert t_p_values(values.mean(), error, 8).two_sided == pytest.approx(theirs.pvalue)
    greater = scipy.stats.ttest_1samp(values, 0, alternative="greater").pvalue
    assert t_p_values(values.mean(), error, 8).greater == pytest.approx(greater)
    low, high = theirs.confidence_interval(0.9)
    assert t_interval(values.mean(), error, 8, 0.9) == pytest.approx((low, high))


def test_t_without_spread():
    assert t_p_values(0.0, 0.0, 4) == (1.0, 1.0, 1.0)
    assert t_p_values(0.1, 0.0, 4) == (0.0, 1.0, 0.0)


def permuted(samples, statistic, kind, alternative):
    """SciPy's p over all permutations."""
    options = {"permutation_type": kind, "alternative": alternative, "n_resamples": np.inf}
    return scipy.stats.permutation_test(samples, statistic, **options).pvalue


@pytest.mark.parametrize("number", [2, 3, 5, 10])
def test_sign_flip_equals_scipy_and_has_the_floor(number):
    differences = np.random.default_rng(number).normal(0.5, 1, size=number)
    ours = sign_flip_p_values(differences)
    pairs = differences, np.zeros(number)
    for alternative in ("greater", "less"):
        theirs = permuted(pairs, lambda x, y: (x - y).mean(), "samples", alternative)
        assert getattr(ours, alternative) == pytest.approx(theirs, abs=1e-12)
    one_sign = sign_flip_p_values(np.abs(differences) + 0.1)
    assert one_sign.greater == 2.0**-number
    assert one_sign.two_sided == 2.0 ** (1 - number)


def test_sign_flip_of_many_seeds_is_near_the_t_test():
    differences = np.random.default_rng(2).normal(0.35, 1, size=30)
    ours = sign_flip_p_values(differences)
    theirs = scipy.stats.ttest_1samp(differences, 0)
    assert ours.two_sided == pytest.approx(theirs.pvalue, abs=0.01)
    assert ours == sign_flip_p_values(differences)


def mean_difference(first, second, axis=-1):
    return second.mean(axis=axis) - first.mean(axis=axis)


def test_percentile_interval_equals_scipys_on_the_same_samples():
    random = np.random.default_rng(3)
    first, second = random.exponential(size=9) ** 2, random.exponential(size=14)
    theirs = scipy.stats.bootstrap(
        (first, second), mean_difference, n_resamples=1500, method="percentile", confidence_level=0.9,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    ours = percentile_interval(theirs.bootstrap_distribution, 0.9)
    assert ours == pytest.approx(tuple(theirs.confidence_interval), rel=1e-10)


def test_compatible_p_is_the_share_with_a_floor():
    differences = np.array([-0.1, 0.0, 0.2, 0.3, 0.4])
    assert published_p_values(differences).greater == 0.4
    assert published_p_values(differences).less == 0.8
    assert published_p_values(differences[2:]).greater == pytest.approx(1 / 3)


def test_bootstrap_p_and_its_two_sides():
    """(k + 1) / (B + 1) on either side, twice the smaller, and rounding makes no winner."""
    random = np.random.default_rng(6)
    differences = np.round(random.normal(0.8, 1, size=499), 1)
    above, below = int((differences >= 0).sum()), int((differences <= 0).sum())
    expected = ((below + 1) / 500, (above + 1) / 500, min(1, 2 * min(below + 1, above + 1) / 500))
    assert bootstrap_p_values(differences) == pytest.approx(expected)
    shaken = differences + 1e-17 * random.choice([-1, 1], size=499)
    assert bootstrap_p_values(shaken) == pytest.approx(expected)
    assert bootstrap_p_values(np.ones(999)) == pytest.approx((0.001, 1.0, 0.002))
    assert bootstrap_p_values(np.array([-1.0, 0.0, 1.0])) == pytest.approx((0.75, 0.75, 1.0))


@pytest.mark.parametrize("sizes", [(2, 2), (3, 5), (5, 5), (4, 7)])
def test_permutation_equals_scipy_and_has_the_floor(sizes):
    random = np.random.default_rng(sum(sizes))
    base, experiment = random.normal(size=sizes[0]), random.normal(0.7, 1, size=sizes[1])
    ours = permutation_p_values(base, experiment)
    arms = experiment, base
    for alternative in ("greater", "less"):
        theirs = permuted(arms, lambda x, y: x.mean() - y.mean(), "independent", alternative)
        assert getattr(ours, alternative) == pytest.approx(theirs, abs=1e-12)
    absolute = permuted(arms, lambda x, y: abs(x.mean() - y.mean()), "independent", "greater")
    assert ours.two_sided == pytest.approx(absolute, abs=1e-12)
    apart = permutation_p_values(base, base.max() + np.arange(1, sizes[1] + 1))
    deals = scipy.special.comb(sum(sizes), sizes[0])
    assert apart.greater == pytest.approx(1 / deals)


def test_permutation_of_ties_counts_them():
    base, experiment = np.array([0.1, 0.2, 0.3]), np.array([0.3, 0.2, 0.1])
    ours = permutation_p_values(base, experiment)
    pooled = [0.1, 0.2, 0.3] * 2
    sums = [round(sum(pooled[i] for i in deal), 9) for deal in itertools.combinations(range(6), 3)]
    share = np.mean([value >= 0.6 for value in sums])
    assert ours == pytest.approx((share, share, 1.0))


def test_permutation_of_many_seeds_is_random_and_repeatable():
    random = np.random.default_rng(8)
    base, experiment = random.normal(size=30), random.normal(0.45, 1, size=25)
    ours = permutation_p_values(base, experiment)
    theirs = scipy.stats.ttest_ind(experiment, base)
    assert ours.two_sided == pytest.approx(theirs.pvalue, abs=0.01)
    assert ours == permutation_p_values(base, experiment)
    # The +1 form: never 0, however far the two are apart.
    assert permutation_p_values(base, experiment + 100).greater == pytest.approx(1 / 20_000)


def test_interval_of_a_correlation_is_made_on_fishers_scale():
    """n = 103 pairs have a standard error of 1 / sqrt(n - 3) = .1 on that scale."""
    low, high = fisher_t_interval(0.5, 0.1 * (1 - 0.5**2), 1e12, 0.95)
    assert (low, high) == pytest.approx(
        (np.tanh(np.arctanh(0.5) - 0.1959964), np.tanh(np.arctanh(0.5) + 0.1959964)), abs=1e-6
    )
    assert fisher_t_interval(0.9, 0.5, 4, 0.95).high < 1
    assert fisher_t_interval(1.0, 0.1, 4, 0.95) == t_interval(1.0, 0.1, 4, 0.95)
    assert fisher_t_interval(0.3, 0.0, 4, 0.95) == (0.3, 0.3)


def test_far_from_its_bounds_a_score_has_the_plain_interval():
    for estimate, error in ((0.5, 0.05), (0.84, 0.003), (0.7, 0.05)):
        plain = t_interval(estimate, error, 4, 0.95)
        assert bounded_interval(estimate, error, 4, 0.95, (0, 1), 100) == plain
    assert bounded_interval(7.0, 2.0, 4, 0.95, (-np.inf, np.inf), 9) == t_interval(7, 2, 4, 0.95)


def test_near_its_bounds_a_score_has_an_interval_within_them():
    found = bounded_interval(0.97, 0.02, 4, 0.95, (0, 1), 50)
    # Wilson's: ends whose own standard error, which grows away from the bound, is t times their distance.
    reach = scipy.stats.t.ppf(0.975, 4) * 0.02
    for end in found:
        own = reach * math.sqrt(end * (1 - end) / (0.97 * 0.03))
        assert abs(end - 0.97) == pytest.approx(own)
    mirrored = bounded_interval(0.03, 0.02, 4, 0.95, (0, 1), 50)
    assert mirrored == pytest.approx((1 - found.high, 1 - found.low))
    assert bounded_interval(97, 2, 4, 0.95, (0, 100), 50) == pytest.approx(
        (100 * found.low, 100 * found.high)
    )
    assert bounded_interval(0.2, 0.5, 4, 0.95, (0, np.inf), 50).low == 0


def test_one_wrong_answer_of_many_seeds_shows_no_more_than_its_examples():
    """Of 25 seeds on 50 examples: one wrong answer of 1,250, which one example gave."""
    right = np.ones((25, 50))
    right[0, 0] = 0
    crossing, mean = crossing_of_tables([right]), right.mean()
    found = crossing.unbiased_variance()
    spread = mean, math.sqrt(found.variance), found.cautious_degrees_of_freedom, 0.95, (0, 1), 50
    plain, tails = score_interval(*spread), score_interval(*spread, crossing.tail_freedom())
    none_wrong = bounded_interval(1.0, 0.0, 4, 0.95, (0, 1), 50)
    # As the sole bearer of a mean square it leaves two degrees of freedom for it.
    assert crossing.tail_freedom() < 8 < found.cautious_degrees_of_freedom
    assert none_wrong.low < tails.low < plain.low
    # At most one answer per example counts, however badly the standard error is known.
    least = score_interval(*spread, 1.0)
    one_each = mean, math.sqrt(mean * (1 - mean) / 50), *spread[2:]
    assert least == pytest.approx(score_interval(*one_each))
    assert interval_of_score(crossing, mean, 0.95, Score("score", ends=(0, 1)), 50) == tails


def test_light_tails_of_examples_change_no_degrees_of_freedom():
    seeds, examples = np.arange(5.0)[:, None], np.arange(40) % 2
    crossing = crossing_of_tables([seeds + examples + seeds * examples])
    assert crossing.tail_freedom() == crossing.unbiased_variance().cautious_degrees_of_freedom
    assert crossing_of_tables([np.ones((3, 4))]).tail_freedom() == 2


@pytest.mark.parametrize(("right", "number"), [(49, 50), (7, 10)])
def test_the_score_interval_of_answers_is_that_of_statsmodels(right, number):
    share = right / number
    error = math.sqrt(share * (1 - share) / number)
    expected = proportion_confint(right, number, 0.1, "wilson")
    for low, high in (-1.0, 1.0), (0.0, 1.0):
        place = low + (high - low) * share
        found = score_interval(place, (high - low) * error, 1e12, 0.9, (low, high), number)
        ends = (np.array(found) - low) / (high - low)
        assert ends == pytest.approx(np.clip(expected, 0, 1), abs=1e-9)


@pytest.mark.parametrize(("number", "trials", "level"), [(0, 5, 0.95), (2, 7, 0.9), (9, 9, 0.95)])
def test_the_interval_of_a_rate_is_scipys(number, trials, level):
    exact = scipy.stats.binomtest(number, trials).proportion_ci(level, method="exact")
    assert clopper_pearson_interval(number, trials, level) == pytest.approx(tuple(exact))


def test_the_difference_of_intervals_is_the_root_of_squares():
    found = difference_of_intervals((0.5, Interval(0.4, 0.7)), (0.9, Interval(0.6, 1.0)))
    assert found == pytest.approx((0.4 - np.hypot(0.3, 0.2), 0.4 + np.hypot(0.1, 0.1)))


@pytest.mark.parametrize("num_seeds", [2, 3, 5])
@pytest.mark.parametrize("shares", [(0.9, 0.1, 0.0), (0.5, 0.5, 0.0), (0.0, 0.1, 0.9)])
def test_the_cautious_t_covers_with_few_seeds(num_seeds, shares):
    """Two seeds, too: 400 tables of 40 examples; the true mean is 0."""
    random = np.random.default_rng(num_seeds)
    deviations = np.sqrt(np.multiply(shares, (num_seeds, 40, 40 * num_seeds)))
    covered = 0
    for _ in range(400):
        seeds, examples = random.normal(size=(num_seeds, 1)), random.normal(size=(1, 40))
        residual = random.normal(size=(num_seeds, 40))
        table = deviations[0] * seeds + deviations[1] * examples + deviations[2] * residual
        crossing, mean = crossing_of_tables([table]), float(table.mean())
        found = crossing.unbiased_variance()
        error = np.sqrt(found.variance)
        low, high = t_interval(mean, error, found.cautious_degrees_of_freedom, 0.95)
        covered += low <= 0 <= high
    assert covered / 400 >= 0.93 - 2 * np.sqrt(0.93 * 0.07 / 400)


@pytest.fixture
def cheap_collections():
    """Has garbage collections pass over what lives already: statsmodels makes a full one per Holm."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("cheap_collections")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("bonferroni", "bonferroni"), ("holm", "holm"), ("bh", "fdr_bh"), ("by", "fdr_by")],
)
def test_adjusted_equals_statsmodels(ours, theirs):
    random = np.random.default_rng(0)
    for number in (1, 2, 7, 50):
        for values in (random.random(number) ** 3, np.round(random.random(number), 1)):
            expected = multipletests(values, method=theirs)[1]
            np.testing.assert_allclose(adjusted_p_values(values, ours), expected, rtol=1e-12)
    assert adjusted_p_values([], ours).shape == (0,)
