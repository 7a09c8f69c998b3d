"""Momentum: the known correlation of true accuracies, within its interval; the paper's index beside it."""

import numpy as np
import pytest
import scipy.stats

from multiberts.benchmarks.instances_world import World, sigmoid
from multiberts.papers.zhong.size_momentum import momentum, momentum_index
from multiberts.stats.runs_table import make_runs

NUM_KINDS = 20  # of examples; a seed moves all of a kind alike
WORLDS = {
    "steps alike": World(),
    "unrelated steps": World(relation=0.0),
    "kinds of examples": World(seed_spread=0.6),
}


def true_accuracies(world, logits):
    """Over all seeds [sizes, examples]."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(21)
    return sigmoid(logits[..., None] + world.seed_spread * nodes) @ (weights / weights.sum())


def runs_of(random, world, logits, seeds):
    """Right and wrong answers, by size [seeds, examples]."""
    kinds = np.arange(logits.shape[1]) % NUM_KINDS
    runs = []
    for own in logits:
        effects = world.seed_spread * random.normal(size=(seeds, NUM_KINDS))
        right = random.random((seeds, len(own))) < sigmoid(own + effects[:, kinds])
        runs.append(right.astype(np.float64))
    return runs


def drawn(random, world, number, seeds):
    return runs_of(random, world, world.logits(random, number), seeds)


def true_momentum(accuracies):
    """r where the middle size is held equal by regression, and within its tenths of [0, 1]."""
    small, middle, large = accuracies
    rest = [own - np.polyval(np.polyfit(middle, own, 1), middle) for own in (small, large)]
    index = momentum_index(*(own[None] for own in accuracies))
    return -float(np.corrcoef(rest)[0, 1]), index.pooled


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize(
    "seeds", [5, pytest.param(10, marks=pytest.mark.slow), pytest.param(25, marks=pytest.mark.slow)]
)
def test_the_interval_covers_the_true_correlation(name, seeds):
    """At a level of .95, 60 samples in which 53 or fewer cover are one case in 120."""
    random, world = np.random.default_rng(seeds), WORLDS[name]
    truth, _ = true_momentum(true_accuracies(world, world.logits(random, 100_000)))
    found = [momentum(*drawn(random, world, 1500, seeds)) for _ in range(60)]
    assert sum(item.low <= truth <= item.high for item in found) > 53
    assert np.median([item.r for item in found]) == pytest.approx(truth, abs=0.1)


def test_the_width_fits_the_spread_of_r_over_new_seeds_and_examples():
    random = np.random.default_rng(3)
    found = [momentum(*drawn(random, World(), 1500, 25)) for _ in range(60)]
    spread = np.std([item.r for item in found], ddof=1)
    width = np.mean([item.high - item.low for item in found])
    assert 0.8 < width / (2 * 1.96 * spread) < 1.5


def test_the_index_is_far_below_the_truth_and_has_no_interval():
    """It rises with the number of seeds, while the correlation of the true accuracies is one."""
    random, world = np.random.default_rng(0), World()
    logits = world.logits(random, 20_000)
    truth, inside = true_momentum(true_accuracies(world, logits))
    assert truth == pytest.approx(inside, abs=0.02) and inside > 0.5
    few, many = (momentum_index(*runs_of(random, world, logits, seeds)) for seeds in (5, 25))
    assert few.pooled < 0 < many.pooled < inside - 0.3
    assert not [name for name in vars(few) if "low" in name or "high" in name]


def test_without_noise_it_is_minus_the_partial_correlation_of_small_and_large():
    accuracies = np.random.default_rng(1).random((3, 50))
    found = momentum(*(np.stack([own] * 4) for own in accuracies))
    small, middle, large = scipy.stats.zscore(accuracies, axis=1)
    r12, r13, r23 = (
        float(np.mean(a * b)) for a, b in [(small, middle), (small, large), (middle, large)]
    )
    expected = -(r13 - r12 * r23) / np.sqrt((1 - r12**2) * (1 - r23**2))
    assert found.r == pytest.approx(expected) == true_momentum(accuracies)[0]
    assert found.low < found.r < found.high


def test_a_seed_that_is_better_everywhere_changes_nothing():
    random = np.random.default_rng(2)
    sizes = [runs.astype(float) for runs in drawn(random, World(), 300, 6)]
    shifted = [runs + random.normal(size=(6, 1)) for runs in sizes]
    assert momentum(*shifted).r == pytest.approx(momentum(*sizes).r)


def test_where_only_luck_moves_nothing_is_claimed():
    random = np.random.default_rng(4)
    for _ in range(20):  # an example is equally hard for all sizes
        found = momentum(*drawn(random, World(step=0.0), 400, 5))
        assert found.low < 0 < found.high
        assert np.isfinite(found.r) or (found.low, found.high) == (-1, 1)
    constant = momentum(*[np.ones((3, 10))] * 3)
    assert np.isnan(constant.r) and (constant.low, constant.high) == (-1, 1)


def test_runs_of_a_seed_are_averaged_and_examples_are_matched():
    random = np.random.default_rng(5)
    sizes = [random.random(40) + 0.2 * random.random((4, 3, 40)) for _ in range(3)]
    plain = momentum(*(runs.mean(axis=1) for runs in sizes))
    assert momentum(*sizes).r == pytest.approx(plain.r)
    ids, order = np.arange(40), random.permutation(40)
    matched = [make_runs(sizes[0].mean(axis=1), range(4), example_ids=ids)] + [
        make_runs(runs.mean(axis=1)[:, order], range(4), example_ids=ids[order])
        for runs in sizes[1:]
    ]
    assert momentum(*matched).r == pytest.approx(plain.r)


def test_the_index_in_one_bucket_equals_scipy():
    random = np.random.default_rng(6)
    small, middle, large = (low + random.random((3, 50)) / 20 for low in (0.2, 0.52, 0.6))
    found = momentum_index(small, middle, large)
    before, between, after = (runs.mean(axis=0) for runs in (small, middle, large))
    expected = scipy.stats.pearsonr(between - before, after - between).statistic
    assert found.correlation[5] == pytest.approx(expected) == found.pooled
    # Buckets without examples or spread are unknown.
    found = momentum_index(np.ones((1, 10)), np.ones((3, 10)), np.ones((1, 10)))
    assert np.isnan(found.correlation).all() and np.isnan(found.pooled)
    assert found.counts.tolist() == [0] * 9 + [10]
