"""Is a larger model better on every single example? Differences example by example, against what
randomness alone would give.

Zhong, Ghosh, Klein and Steinhardt, "Are Larger Pretrained Language Models Uniformly Better?
Comparing Performance at the Instance Level" (Findings of ACL 2021).

An example's instance accuracy is the probability that a run of a size is right on it. It is known
from few seeds only, so that many examples look worse under the larger size by luck. The random
baseline shows how many: it exchanges seeds of the two sizes, so that neither side is larger, and
looks at the difference again. Whether improvement continues from size to size is in
`stats.instances.momentum_test`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.instances.ensembles import refuse_fractions
from multiberts.stats.instances.nested_runs import NestedRuns, Runs, aligned, as_nested_runs

Array = NDArray[np.float64]
Direction = Literal["decay", "improvement"]
# Cells of one block of work, which bounds the memory whatever the number of examples.
_BLOCK_CELLS = 1 << 21
_MAX_LATTICE = 1 << 22


@dataclass(frozen=True)
class Distribution:
    """A distribution on finitely many values.

    Attributes:
      support: values, ascending.
      probability: of each value; the sum is 1.
    """

    support: Array
    probability: Array

    def cdf(self, values: ArrayLike) -> Array:
        """P(X <= value) for each value, a value within rounding of the support counted as there."""
        shares = np.append(0.0, np.cumsum(self.probability))
        places = np.searchsorted(self.support, np.asarray(values, float) + 1e-12, side="right")
        return np.minimum(shares[places], 1.0)

    def mirrored(self) -> Distribution:
        """The distribution of the negative."""
        return Distribution(-self.support[::-1], self.probability[::-1])


@dataclass(frozen=True)
class InstanceBound:
    """A lower bound on the share of examples that get worse (or better) with size.

    Attributes:
      direction: decay or improvement.
      bound: largest over thresholds, or at the given threshold, of the share of examples whose
        difference passes the threshold minus that of the random baseline.
      threshold: where; -inf (inf for improvement) if no threshold gives more than 0.
      difference: observed differences, larger minus smaller, over the examples.
      baseline: the random baseline's, averaged over the examples.
      adaptive: the threshold was picked on these data, which makes the bound a little too large;
        see `threshold_bias`.
      standard_error: of the bound over examples, with seeds and threshold held fixed.
      num_seeds: pre-training seeds of the smaller and the larger size.
      num_examples: examples.
    """

    direction: Direction
    bound: float
    threshold: float
    difference: Distribution
    baseline: Distribution
    adaptive: bool
    standard_error: float
    num_seeds: tuple[int, int]
    num_examples: int


@dataclass(frozen=True)
class ThresholdBias:
    """What picking the best threshold on the same examples adds to a bound.

    Attributes:
      bound: the bound with the adaptive threshold.
      bias: mean over bootstrap samples of (bound of the sample) - (the full data's value at the
        sample's threshold).
      corrected: bound - bias.
      cross_fitted: mean of two bounds, the threshold picked on one half of the examples and
        applied to the other; no such bias, by construction.
      standard_error: of the adaptive bound over bootstrap samples of examples.
      low, high: interval of the corrected bound, from the spread of the samples' bounds.
      num_bootstrap, bootstrap_seed: of the bootstrap.
    """

    bound: float
    bias: float
    corrected: float
    cross_fitted: float
    standard_error: float
    low: float
    high: float
    num_bootstrap: int
    bootstrap_seed: int


def instance_accuracy(runs: Runs) -> Array:
    """The mean score of every example: fine-tuning runs within seeds first, then seeds.

    Args:
      runs: `NestedRuns`, or an array [pretrain_seeds, ..., examples].

    Returns:
      float64 [examples].
    """
    return as_nested_runs(runs).mean()


def instance_difference(small: Runs, large: Runs) -> Array:
    """Instance accuracy of the larger size minus that of the smaller [examples]."""
    first, second = aligned(small, large)
    return second.mean() - first.mean()


@dataclass(frozen=True)
class _Lattice:
    """Sums over seeds of two sizes, in whole units, by distinct pattern of examples.

    Differences are whole multiples of 1 / `unit`, so that thresholds are compared exactly.
    """

    small: NDArray[np.int64]  # [patterns, small seeds], each seed's mean score, in units
    large: NDArray[np.int64]  # [patterns, large seeds]
    pattern: NDArray[np.intp]  # [examples]
    counts: NDArray[np.int64]  # [patterns]
    scale: int  # units of a seed's mean

    @property
    def unit(self) -> int:
        return self.scale * self.small.shape[1] * self.large.shape[1]

    @property
    def differences(self) -> NDArray[np.int64]:
        """[patterns], in 1 / unit."""
        (_, few), (_, many) = self.small.shape, self.large.shape
        return self.large.sum(axis=1) * few - self.small.sum(axis=1) * many

    @property
    def shares(self) -> Array:
        return self.counts / self.counts.sum()


def _lattice(small: NestedRuns, large: NestedRuns) -> _Lattice:
    for runs in (small, large):
        refuse_fractions(runs.scores)
    scale = math.lcm(_denominator(small), _denominator(large))
    if scale * len(small.seeds) * len(large.seeds) > _MAX_LATTICE:
        raise DataError(
            f"found trees whose means need a denominator of {scale} a seed, too fine for exact "
            "sums; ensemble the runs of a seed first"
        )
    # Seeds are exchangeable: sorting them leaves few distinct patterns.
    tables = [np.sort(_whole_sums(runs, scale), axis=0) for runs in (small, large)]
    rows = np.concatenate(tables).T  # [examples, seeds of both]
    patterns, pattern, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    few = len(tables[0])
    return _Lattice(patterns[:, :few], patterns[:, few:], pattern.ravel(), counts, scale)


def _path_products(runs: NestedRuns) -> list[int]:
    """For every run the product of the numbers of siblings on the way down to it [runs]."""
    siblings = []
    for depth in range(1, len(runs.levels)):
        children: dict[tuple, set] = {}
        for key in runs.keys:
            children.setdefault(key[:depth], set()).add(key[: depth + 1])
        siblings.append({prefix: len(below) for prefix, below in children.items()})
    return [
        math.prod(counts[key[:depth]] for depth, counts in enumerate(siblings, start=1))
        for key in runs.keys
    ]


def _denominator(runs: NestedRuns) -> int:
    return math.lcm(*_path_products(runs))


def _whole_sums(runs: NestedRuns, scale: int) -> NDArray[np.int64]:
    """The mean of every seed in units of 1 / scale [seeds, examples]."""
    weights = [scale // product for product in _path_products(runs)]
    sums = np.zeros((len(runs.seeds), runs.num_examples), np.int64)
    for place, rows in enumerate(runs.groups(1).values()):
        for row in rows:
            sums[place] += weights[row] * runs.scores[row].astype(np.int64)
    return sums


def _exchanges(few: int, many: int) -> list[tuple[int, float]]:
    """How many seeds of each size change sides, with probabilities: few * many / (few + many) on
    average, so that both sides hold the two sizes in the same proportion; with equal numbers, half.
    """
    whole, rest = divmod(few * many, few + many)
    share = rest / (few + many)
    return [(whole, 1 - share)] + ([(whole + 1, share)] if rest else [])


def _subset_sums(values: NDArray[np.int64], size: int) -> Array:
    """The distribution of the sum of `size` of the seeds drawn without replacement.

    Args:
      values: [patterns, seeds], whole and not negative.

    Returns:
      [patterns, sums from 0 to the largest possible].
    """
    patterns, number = values.shape
    top = int(np.sort(values, axis=1)[:, number - size :].sum(axis=1).max()) if size else 0
    ways = np.zeros((size + 1, patterns, top + 1))
    ways[0, :, 0] = 1
    places = np.arange(top + 1)
    for seed in range(number):
        before = places - values[:, seed, None]  # [patterns, sums]
        inside = before >= 0
        source = np.where(inside, before, 0)
        for taken in range(min(seed + 1, size), 0, -1):
            moved = np.take_along_axis(ways[taken - 1], source, axis=1)
            ways[taken] += np.where(inside, moved, 0)
    return ways[size] / math.comb(number, size)


def _baseline_blocks(lattice: _Lattice) -> Iterator[tuple[slice, Array, NDArray[np.int64]]]:
    """The baseline's difference by pattern: (patterns, probabilities [patterns, sums], differences
    in units [patterns, sums]).

    The sum of the first side is a draw of the larger size's seeds plus a draw of the smaller's, so
    its distribution over all splits is a convolution (of hypergeometric ones, where a seed is
    right or wrong).
    """
    few, many = lattice.small.shape[1], lattice.large.shape[1]
    sums = lattice.scale * many + 1
    block = max(1, _BLOCK_CELLS // (sums * (few + many)))
    for start in range(0, len(lattice.counts), block):
        rows = slice(start, start + block)
        small, large = lattice.small[rows], lattice.large[rows]
        mixed = np.zeros((len(small), sums))
        for exchanged, share in _exchanges(few, many):
            mixed += share * _convolved(
                _subset_sums(large, many - exchanged), _subset_sums(small, exchanged), sums
            )
        total = (small.sum(axis=1) + large.sum(axis=1))[:, None]
        first = np.arange(sums)[None, :]
        yield rows, mixed, first * few - (total - first) * many


def _convolved(first: Array, second: Array, length: int) -> Array:
    """Row by row, the distribution of the sum of two independent draws [patterns, length]."""
    result = np.zeros((len(first), length))
    for shift in range(second.shape[1]):
        weight = second[:, shift, None]
        if weight.any():
            width = min(first.shape[1], length - shift)
            result[:, shift : shift + width] += weight * first[:, :width]
    return result


def _distribution(units: NDArray[np.int64], weights: Array, unit: int) -> Distribution:
    mass = np.zeros(2 * unit + 1)
    np.add.at(mass, units + unit, weights)
    kept = np.flatnonzero(mass > 0)
    return Distribution((kept - unit) / float(unit), mass[kept])


def difference_distribution(small: Runs, large: Runs) -> Distribution:
    """How the observed instance differences are distributed over the examples."""
    lattice = _lattice(*aligned(small, large))
    return _distribution(lattice.differences, lattice.shares, lattice.unit)


def random_baseline(small: Runs, large: Runs) -> Distribution:
    """The difference between two sides that mix both sizes, over all splits and examples, exactly.

    The first side has as many seeds as the larger size, the second as the smaller, and k seeds of
    each size have changed sides: half of them where both have the same even number. Else k is the
    whole number below or above few * many / (few + many), with probabilities that make this the
    mean. Then both sides have the same expected accuracy; and, if an example's two sizes are
    equally good, the baseline's difference is distributed as the real one.

    Args:
      small, large: 0/1 correctness, as `NestedRuns` or arrays [pretrain_seeds, ..., examples].
        Pre-training seeds change sides with all their runs.

    Raises:
      DataError: scores other than 0 and 1, or other examples.
    """
    return _mixed_baseline(_lattice(*aligned(small, large)))


def _mixed_baseline(lattice: _Lattice) -> Distribution:
    unit, mass = lattice.unit, np.zeros(2 * lattice.unit + 1)
    for rows, chances, units in _baseline_blocks(lattice):
        # A sum out of reach has no chance, and its difference may lie outside the range.
        reached = chances > 0
        weights = (lattice.shares[rows, None] * chances)[reached]
        mass += np.bincount(units[reached] + unit, weights, minlength=len(mass))
    kept = np.flatnonzero(mass > 0)
    return Distribution((kept - unit) / float(unit), mass[kept])


def decay_bound(small: Runs, large: Runs, threshold: float | None = None) -> InstanceBound:
    """A lower bound on the share of examples on which the larger size is worse.

    The largest, over thresholds t < 0, of P(difference <= t) - P(baseline's difference <= t). For
    an example on which the larger size is no worse, exchanging seeds of the two sizes can only
    move the difference down, so it adds nothing above 0 in expectation. Therefore the value at a
    fixed t does not exceed the true share in expectation over seeds, where every pre-training seed
    is right or wrong by itself: one run a seed, or `ensemble`d runs. With the mean of several runs
    a seed it is no bound.

    Args:
      small, large: 0/1 correctness, as `NestedRuns` or arrays [pretrain_seeds, ..., examples].
      threshold: a t < 0 fixed beforehand; by default the best one.

    Raises:
      DataError: scores other than 0 and 1, other examples, or a threshold that is not negative.
    """
    if threshold is not None and not threshold < 0:
        raise DataError(f"found a threshold of {threshold}, expected one below 0")
    first, second = aligned(small, large)
    lattice = _lattice(first, second)
    difference = _distribution(lattice.differences, lattice.shares, lattice.unit)
    baseline = _mixed_baseline(lattice)
    if threshold is None:
        candidates = np.append(-np.inf, difference.support[difference.support < 0])
        gaps = difference.cdf(candidates) - baseline.cdf(candidates)
        chosen = float(candidates[gaps.argmax()])
    else:
        chosen = threshold
    values = _excess(lattice, _in_units([chosen], lattice.unit))[:, 0]  # [patterns]
    bound = float(lattice.shares @ values)
    spread = float(lattice.shares @ (values - bound) ** 2)
    number = first.num_examples
    return InstanceBound(
        "decay", bound, chosen, difference, baseline, threshold is None,
        math.sqrt(spread / max(number - 1, 1)), (len(first.seeds), len(second.seeds)), number,
    )  # fmt: skip


def improvement_bound(small: Runs, large: Runs, threshold: float | None = None) -> InstanceBound:
    """A lower bound on the share of examples on which the larger size is better: the mirror image
    of `decay_bound`.

    Args:
      small, large: as there.
      threshold: a t > 0 fixed beforehand; by default the best one. Differences of at least t
        count.
    """
    if threshold is not None and not threshold > 0:
        raise DataError(f"found a threshold of {threshold}, expected one above 0")
    mirror = decay_bound(large, small, None if threshold is None else -threshold)
    return replace(
        mirror, direction="improvement", threshold=-mirror.threshold,
        difference=mirror.difference.mirrored(), baseline=mirror.baseline.mirrored(),
        num_seeds=mirror.num_seeds[::-1],
    )  # fmt: skip


def _in_units(thresholds: list[float], unit: int) -> NDArray[np.int64]:
    """The largest whole number of units that is not above each threshold; all below -1 are one."""
    return np.floor(np.maximum(thresholds, -2.0) * unit + 1e-6).astype(np.int64)


def _excess(lattice: _Lattice, thresholds: NDArray[np.int64]) -> Array:
    """By pattern and threshold, 1(difference <= t) - P(baseline <= t) [patterns, thresholds]."""
    result = (lattice.differences[:, None] <= thresholds).astype(float)
    few, many = lattice.small.shape[1], lattice.large.shape[1]
    for rows, chances, units in _baseline_blocks(lattice):
        shares = np.cumsum(np.pad(chances, ((0, 0), (1, 0))), axis=1)
        # Differences rise evenly with the sum, so the number of sums below t is a division.
        below = (thresholds[None, :] - units[:, :1]) // (few + many) + 1
        below = np.clip(below, 0, chances.shape[1])
        result[rows] -= np.take_along_axis(shares, below, axis=1)
    return result


def threshold_bias(
    small: Runs,
    large: Runs,
    direction: Direction = "decay",
    num_bootstrap: int = 1000,
    bootstrap_seed: int = 0,
    confidence: float = 0.95,
) -> ThresholdBias:
    """How much a bound gains because its threshold was picked on the same examples.

    Examples are resampled; seeds are held fixed.

    Args:
      small, large: as for `decay_bound`.
      direction: decay or improvement.
      num_bootstrap: bootstrap samples of examples.
      bootstrap_seed: of the samples and of the halves for cross-fitting.
      confidence: of the percentile interval.
    """
    pair = (small, large) if direction == "decay" else (large, small)
    lattice = _lattice(*aligned(*pair))
    units = np.unique(lattice.differences[lattice.differences < 0])
    # The first column stands for a threshold below everything, where the bound is 0.
    excess = np.hstack([np.zeros((len(lattice.counts), 1)), _excess(lattice, units)])
    number = int(lattice.counts.sum())
    random = np.random.Generator(np.random.Philox(key=bootstrap_seed))
    half = random.permutation(number)[: number // 2]
    gaps = lattice.shares @ excess  # [thresholds]
    own, gains = np.empty(num_bootstrap), np.empty(num_bootstrap)
    block = max(1, _BLOCK_CELLS // len(lattice.counts))
    for start in range(0, num_bootstrap, block):
        draws = min(block, num_bootstrap - start)
        samples = random.multinomial(number, lattice.shares, size=draws) @ excess / number
        best = samples.argmax(axis=1)
        rows = slice(start, start + draws)
        own[rows] = samples[np.arange(draws), best]
        gains[rows] = own[rows] - gaps[best]
    bias, tails = float(gains.mean()), [(1 - confidence) / 2, (1 + confidence) / 2]
    corrected = float(gaps.max()) - bias
    low, high = (corrected + np.quantile(own - own.mean(), tails)).tolist()
    return ThresholdBias(
        float(gaps.max()), bias, corrected, _cross_fitted(lattice, excess, half),
        float(own.std(ddof=1)), low, high, num_bootstrap, bootstrap_seed,
    )  # fmt: skip


def _cross_fitted(lattice: _Lattice, excess: Array, half: NDArray[np.intp]) -> float:
    first = np.bincount(lattice.pattern[half], minlength=len(lattice.counts))
    second = lattice.counts - first
    values = [counts @ excess / max(counts.sum(), 1) for counts in (first, second)]
    return float((values[1][values[0].argmax()] + values[0][values[1].argmax()]) / 2)
