"""Corrected p-values against statsmodels, hand examples, and simulated families."""

import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.multitest import multipletests

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.corrections import (
    adjusted_p_values,
    check_replicates,
    max_t_p_values,
    required_replicates,
)


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


def test_examples_by_hand():
    values = [0.04, 0.01, 0.03]
    assert adjusted_p_values(values, "holm") == pytest.approx([0.06, 0.03, 0.06])
    assert adjusted_p_values(values, "bh") == pytest.approx([0.04, 0.03, 0.04])
    assert adjusted_p_values(values, "bonferroni") == pytest.approx([0.12, 0.03, 0.09])
    assert adjusted_p_values(values, "by") == pytest.approx(np.array([4, 3, 4]) * 11 / 600)
    assert adjusted_p_values([], "holm").shape == (0,)


def test_values_that_are_no_p():
    for wrong in ([0.1, 1.2], [np.nan], [-0.1]):
        with pytest.raises(DataError, match="expected .m. numbers from 0 to 1"):
            adjusted_p_values(wrong, "bh")
    with pytest.raises(DataError, match="found method 'fdr', expected one of bonferroni"):
        adjusted_p_values([0.1], "fdr")


def plain_max_t(estimates, errors, samples):
    """Westfall and Young's steps one after the other."""
    seen = np.abs(estimates) / errors
    null = np.abs(samples - estimates) / errors
    left, adjusted, last = list(np.argsort(-seen)), np.empty(len(seen)), 0.0
    while left:
        count = sum(row[left].max() >= seen[left[0]] for row in null)
        last = max(last, (count + 1) / (len(samples) + 1))
        adjusted[left[0]] = last
        left = left[1:]
    return adjusted


def test_max_t_equals_its_steps_written_out():
    random = np.random.default_rng(1)
    for number in (1, 2, 6):
        estimates, errors = random.normal(0, 2, size=number), random.uniform(0.5, 2, size=number)
        samples = estimates + errors * random.normal(size=(199, number))
        ours = max_t_p_values(estimates, errors, samples)
        np.testing.assert_allclose(ours, plain_max_t(estimates, errors, samples), rtol=1e-12)


def test_max_t_by_hand():
    estimates, errors = np.array([3.0, 1.0]), np.array([1.0, 0.5])
    # Distances in standard errors: seen 3 and 2; replicates (1, 4), (2, 1), (3.5, 0), (0, 1).
    distances = np.array([[1, 4], [-2, 1], [3.5, 0], [0, -1]])
    samples = estimates + distances * errors
    # Largest 4, 2, 3.5, 1 against 3: two. Then 4, 1, 0, 1 against 2: one; made monotone.
    assert max_t_p_values(estimates, errors, samples) == pytest.approx([3 / 5, 3 / 5])
    assert max_t_p_values(estimates[1:], errors[1:], samples[:, 1:]) == pytest.approx([2 / 5])
    greater = max_t_p_values(estimates, errors, samples, "greater")
    assert greater == pytest.approx([3 / 5, 3 / 5])
    less = max_t_p_values(-estimates, errors, -samples, "less")
    assert less == pytest.approx(greater)
    assert max_t_p_values(estimates, errors, samples, "less") == pytest.approx([1, 1])


def test_max_t_of_one_task_many_times_costs_nothing_and_of_independent_ones_what_sidak_says():
    random = np.random.default_rng(2)
    one = random.normal(size=(20_000, 1))
    same = max_t_p_values(np.full(10, 2.4), np.ones(10), 2.4 + np.repeat(one, 10, axis=1))
    single = max_t_p_values([2.4], [1.0], 2.4 + one)
    np.testing.assert_allclose(same, single[0])
    apart = max_t_p_values(np.full(10, 2.4), np.ones(10), 2.4 + random.normal(size=(20_000, 10)))
    sidak = 1 - (1 - 2 * scipy.stats.norm.sf(2.4)) ** 10
    assert apart.max() == pytest.approx(sidak, abs=4 * np.sqrt(sidak / 20_000))
    assert (same < apart.max()).all()


def test_max_t_keeps_the_level_of_the_family():
    """Five correlated tasks of 20 seeds, none with an effect: any rejection at .1 is false."""
    random = np.random.default_rng(3)
    trials, rejected = 400, 0
    for _ in range(trials):
        scores = random.normal(size=(20, 1)) + random.normal(size=(20, 5))
        counts = random.multinomial(20, np.full(20, 1 / 20), size=199)
        errors = scores.std(axis=0, ddof=1) / np.sqrt(20)
        p_values = max_t_p_values(scores.mean(axis=0), errors, counts @ scores / 20)
        rejected += bool((p_values <= 0.1).any())
    # The bootstrap of 20 seeds is a little too narrow, so a little above the level is right.
    assert rejected / trials == pytest.approx(0.12, abs=0.06)


def test_max_t_without_spread():
    samples = np.array([[0.0, 1.0, 0.1], [0.0, 1.0, 0.4], [0.0, 1.0, 0.2]])
    p_values = max_t_p_values([0.0, 1.0, 0.2], [0.0, 0.0, 0.1], samples)
    # The third is 2 standard errors off; its replicates lie 1, 2 and 0 away.
    assert p_values == pytest.approx([1.0, 0.25, 0.5])
    with pytest.raises(DataError, match=r"expected \[m\], \[m\] and \[replicates, m\]"):
        max_t_p_values([0.0, 1.0], [1.0], samples)
    with pytest.raises(DataError, match="found alternative 'two-sided'"):
        max_t_p_values([0.0], [1.0], samples[:, :1], "two-sided")


def test_replicates_that_a_correction_needs():
    assert required_replicates(1, 0.05) == 19
    assert required_replicates(10, 0.05) == 199
    assert required_replicates(3, 0.1) == 29  # 3 / .1 is a little above 30 in binary
    assert required_replicates(10, 0.05, sides=2) == 399
    # With one fewer the least p, corrected, stays above alpha.
    for number, sides in ((10, 1), (7, 2)):
        least = required_replicates(number, 0.05, sides)
        assert number * sides / (least + 1) <= 0.05 < number * sides / least
    check_replicates(199, 10, 0.05)
    with pytest.raises(DataError, match="198 bootstrap replicates"):
        check_replicates(198, 10, 0.05)
    check_replicates(1000, 50, 0.05)
    with pytest.raises(DataError, match="1000 bootstrap replicates for 60 hyp.* at least 1199"):
        check_replicates(1000, 60, 0.05)
    with pytest.raises(DataError, match="expected at least one"):
        required_replicates(0, 0.05)
