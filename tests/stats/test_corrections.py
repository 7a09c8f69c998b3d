"""Corrected p-values against statsmodels, hand examples, and simulated families."""

import gc

import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.multitest import multipletests

from multiberts.stats.corrections import (
    adjusted_p_values,
    check_replicates,
    max_t_p_values,
    required_replicates,
)
from multiberts.stats.errors import DataError


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


def plain_max_t(estimates, errors, samples, own_errors):
    """Westfall and Young's steps one after the other."""
    seen = np.abs(estimates) / errors
    null = np.abs(samples - estimates) / own_errors
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
        own_errors = errors * random.uniform(0.5, 2, size=(199, number))
        ours = max_t_p_values(estimates, errors, samples, own_errors)
        expected = plain_max_t(estimates, errors, samples, own_errors)
        np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_max_t_by_hand():
    estimates, errors = np.array([3.0, 1.0]), np.array([1.0, 0.5])
    # Distances in standard errors: seen 3 and 2; replicates (1, 4), (2, 1), (3.5, 0), (0, 1).
    distances = np.array([[1, 4], [-2, 1], [3.5, 0], [0, -1]])
    samples = estimates + distances * errors
    own_errors = np.tile(errors, (4, 1))
    # Largest 4, 2, 3.5, 1 against 3: two. Then 4, 1, 0, 1 against 2: one; made monotone.
    assert max_t_p_values(estimates, errors, samples, own_errors) == pytest.approx([3 / 5, 3 / 5])
    one = max_t_p_values(estimates[1:], errors[1:], samples[:, 1:], own_errors[:, 1:])
    assert one == pytest.approx([2 / 5])
    # Replicates of half the spread lie twice as far away: 4, 1, 0, 1 become 8, 2, 0, 2.
    narrow = max_t_p_values(estimates[1:], errors[1:], samples[:, 1:], own_errors[:, 1:] / 2)
    assert narrow == pytest.approx([4 / 5])
    greater = max_t_p_values(estimates, errors, samples, own_errors, "greater")
    assert greater == pytest.approx([3 / 5, 3 / 5])
    less = max_t_p_values(-estimates, errors, -samples, own_errors, "less")
    assert less == pytest.approx(greater)
    less = max_t_p_values(estimates, errors, samples, own_errors, "less")
    assert less == pytest.approx([1, 1])


def test_max_t_of_one_task_many_times_costs_nothing_and_of_independent_ones_what_sidak_says():
    random = np.random.default_rng(2)
    one = random.normal(size=(20_000, 1))
    ones = np.ones((20_000, 10))
    same = max_t_p_values(np.full(10, 2.4), ones[0], 2.4 + np.repeat(one, 10, axis=1), ones)
    single = max_t_p_values([2.4], [1.0], 2.4 + one, ones[:, :1])
    np.testing.assert_allclose(same, single[0])
    apart = max_t_p_values(np.full(10, 2.4), ones[0], 2.4 + random.normal(size=(20_000, 10)), ones)
    sidak = 1 - (1 - 2 * scipy.stats.norm.sf(2.4)) ** 10
    assert apart.max() == pytest.approx(sidak, abs=4 * np.sqrt(sidak / 20_000))
    assert (same < apart.max()).all()


def draws_of(random, num_seeds, num_replicates=199):
    """How often each seed was drawn [B, R], and where it was one seed alone [B, 1]."""
    counts = random.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), num_replicates)
    return counts, (counts == num_seeds).any(axis=1, keepdims=True)


@pytest.mark.parametrize("num_seeds", [2, 3, 5, 20])
def test_max_t_keeps_the_level_of_the_family(num_seeds):
    """Five correlated tasks without an effect: any rejection at .05 is false.

    Divided by the estimates' standard errors, replicates of 2, 3 and 5 seeds reject in .2 to .3.
    """
    random = np.random.default_rng(3)
    trials, rejected, with_one_error = 200, 0, 0
    for _ in range(trials):
        scores = random.normal(size=(num_seeds, 1)) + random.normal(size=(num_seeds, 5))
        counts, one = draws_of(random, num_seeds)
        samples = counts @ scores / num_seeds
        spread = np.maximum(counts @ scores**2 / num_seeds - samples**2, 0) / (num_seeds - 1)
        own_errors = np.sqrt(np.where(one, 0, spread))
        errors = scores.std(axis=0, ddof=1) / np.sqrt(num_seeds)
        p_values = max_t_p_values(scores.mean(axis=0), errors, samples, own_errors)
        rejected += bool((p_values <= 0.05).any())
        fixed = np.tile(errors, (len(samples), 1))
        too_small = max_t_p_values(scores.mean(axis=0), errors, samples, fixed)
        with_one_error += bool((too_small <= 0.05).any())
    assert rejected / trials <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)
    if num_seeds <= 5:
        assert with_one_error / trials > 0.15
    else:
        assert rejected / trials > 0.01


def test_max_t_without_spread():
    samples = np.array([[0.0, 1.0, 0.1], [0.0, 1.0, 0.4], [0.0, 1.0, 0.2]])
    own_errors = np.tile([0.0, 0.0, 0.1], (3, 1))
    p_values = max_t_p_values([0.0, 1.0, 0.2], [0.0, 0.0, 0.1], samples, own_errors)
    # The third is 2 standard errors off; its replicates lie 1, 2 and 0 away.
    assert p_values == pytest.approx([1.0, 0.25, 0.5])
    with pytest.raises(DataError, match=r"expected \[m\], \[m\], \[replicates, m\]"):
        max_t_p_values([0.0, 1.0], [1.0], samples, own_errors)
    with pytest.raises(DataError, match="found alternative 'two-sided'"):
        max_t_p_values([0.0], [1.0], samples[:, :1], own_errors[:, :1], "two-sided")


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
