"""Momentum: no correlation where noise alone could make one, the known one where there is one."""

import numpy as np
import pytest
import scipy.stats

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.instances.momentum_test import momentum

LEVELS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])


def draws(random, accuracy, shape=(9, 4)):
    return (random.random((*shape, len(accuracy))) < accuracy).astype(np.uint8)


def test_noise_of_the_middle_size_makes_no_correlation():
    """Equal sizes: all that moves is luck. One estimate of the middle size for everything gives a
    correlation, and so do halves for the differences with buckets from all seeds."""
    random = np.random.default_rng(0)
    accuracy = random.choice(LEVELS, 20000)
    small, middle, large = (draws(random, accuracy, (9,)) for _ in range(3))
    found = momentum(small, middle, large, num_bootstrap=200)
    # Three seeds tell the bucket: accuracies of 0, 1/3, 2/3 and 1, and none in the middle bucket.
    known = found.counts > 0
    assert known.tolist() == [True, True, False, True, True]
    assert (np.abs(found.correlation[known]) < 4 / np.sqrt(found.counts[known])).all()
    assert np.isnan(found.correlation[2])
    assert found.pooled_low < 0 < found.pooled_high
    s, m, t = (runs.mean(axis=0) for runs in (small, middle, large))
    inside = (m > 0.4) & (m < 0.6)
    everything = np.corrcoef((m - s)[inside], (t - m)[inside])[0, 1]
    ends, begins = middle[:4].mean(axis=0), middle[4:].mean(axis=0)
    halves = np.corrcoef((ends - s)[inside], (t - begins)[inside])[0, 1]
    overall = np.corrcoef(m - s, t - m)[0, 1]
    assert overall < -0.3
    assert halves > 6 / np.sqrt(inside.sum())
    assert abs(everything) > 4 / np.sqrt(inside.sum())


def test_correlation_of_true_improvements_is_found():
    random = np.random.default_rng(1)
    accuracy = random.choice(LEVELS[1:-1], 6000)
    step = random.choice([-0.2, 0.2], 6000)
    shape = (30, 20)  # so many runs that little luck is left
    found = momentum(
        draws(random, accuracy - step, shape), draws(random, accuracy, shape),
        draws(random, accuracy + step, shape), num_bootstrap=50, num_splits=3,
    )  # fmt: skip
    assert (found.correlation[1:-1] > 0.9).all()
    opposite = momentum(
        draws(random, accuracy - step, shape), draws(random, accuracy, shape),
        draws(random, accuracy - step, shape), num_bootstrap=50, num_splits=3,
    )  # fmt: skip
    assert (opposite.correlation[1:-1] < -0.9).all()


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
def test_one_parting_and_one_bucket_equal_scipy(kind):
    """Three seeds with different averages, so that the parting drawn can be told from the answer."""
    random = np.random.default_rng(2)
    small, middle, large = (random.random((3, 50)) for _ in range(3))
    found = momentum(small, middle, large, kind=kind, edges=[-1, 2], num_splits=1, num_bootstrap=20)
    correlate = {"pearson": scipy.stats.pearsonr, "spearman": scipy.stats.spearmanr}[kind]
    possible = [
        correlate(middle[i] - small.mean(axis=0), large.mean(axis=0) - middle[j]).statistic
        for i in range(3)
        for j in range(3)
        if i != j
    ]
    assert min(abs(np.array(possible) - found.correlation[0])) < 1e-12
    assert found.pooled == found.correlation[0]


def test_interval_covers_the_error_of_examples():
    """The bootstrap's spread against that over new test sets."""
    random = np.random.default_rng(3)
    pooled, widths = [], []
    for _ in range(40):
        accuracy = random.choice(LEVELS, 600)
        found = momentum(
            *(draws(random, accuracy, (6,)) for _ in range(3)), num_splits=3, num_bootstrap=100
        )
        pooled.append(found.pooled)
        widths.append((found.pooled_high - found.pooled_low) / 3.92)
    assert np.mean(widths) / np.std(pooled) == pytest.approx(1, abs=0.35)


def test_buckets_without_examples_or_spread_are_unknown():
    found = momentum(np.ones((1, 10)), np.ones((3, 10)), np.ones((1, 10)), num_bootstrap=10)
    assert np.isnan(found.correlation).all()
    assert found.counts.tolist() == [0, 0, 0, 0, 10]


def test_the_same_seeds_give_the_same_answer_and_others_another():
    random = np.random.default_rng(4)
    sizes = [draws(random, random.choice(LEVELS, 300), (6,)) for _ in range(3)]
    first, second = (momentum(*sizes, num_bootstrap=20) for _ in range(2))
    np.testing.assert_array_equal(first.correlation, second.correlation)
    np.testing.assert_array_equal(first.low, second.low)
    assert momentum(*sizes, num_bootstrap=20, split_seed=1).pooled != first.pooled


def test_what_is_refused():
    runs = np.ones((3, 10))
    with pytest.raises(DataError, match="3 or more"):
        momentum(runs, runs[:2], runs)
    with pytest.raises(DataError, match="rising"):
        momentum(runs, runs, runs, edges=[0, 0.5, 0.5])


def uniform_sizes(related: bool, seeds: int = 5):
    """Three sizes of 4,000 examples: each equally hard for all, or the sizes unrelated."""
    random = np.random.default_rng(0)
    chances = [random.random(4000) for _ in range(1 if related else 3)] * (3 if related else 1)
    return [(random.random((seeds, 4000)) < chance).astype(int) for chance in chances]


def test_a_shared_estimate_pulls_down_where_only_luck_moves():
    """Its noise enters the two differences with opposite signs; with parts of the seeds r is 0."""
    sizes = uniform_sizes(related=True)
    shared = momentum(*sizes, shared=True, num_bootstrap=40)
    apart = momentum(*sizes, num_bootstrap=40)
    assert (shared.high < 0).all() and (shared.correlation < -0.35).all()
    assert apart.pooled_low < 0 < apart.pooled_high
    assert shared.num_splits == 1 and apart.num_splits == 10


def test_a_shared_estimate_pulls_down_less_where_examples_are_equally_hard():
    random = np.random.default_rng(3)
    hard = random.beta(20, 20, 4000)
    sizes = [(random.random((5, 4000)) < hard).astype(float) for _ in range(3)]
    found = momentum(*sizes, shared=True, num_bootstrap=40)
    assert (found.correlation < 0).all() and -0.2 < found.pooled < -0.05


@pytest.mark.parametrize("seeds", [5, 10])
def test_parts_pull_down_where_sizes_are_unrelated_and_neither_way_makes_momentum(seeds):
    """Coarse buckets leave some of the middle size's true spread, which moves both differences."""
    sizes = uniform_sizes(related=False, seeds=seeds)
    shared = momentum(*sizes, shared=True, num_bootstrap=40)
    apart = momentum(*sizes, num_bootstrap=40)
    assert apart.pooled < -0.1 < shared.pooled
    assert apart.pooled_high < 0 and shared.pooled < 0.03
