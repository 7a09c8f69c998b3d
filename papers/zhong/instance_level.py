"""Differences between two model sizes on single examples, compared with a random baseline.

Zhong, Ghosh, Klein and Steinhardt, "Are Larger Pretrained Language Models Uniformly Better?
Comparing Performance at the Instance Level" (Findings of ACL 2021), sections 3 and 4.

The instance accuracy of an example is the probability that a run of a size is right on it. Estimates use few
seeds; some examples therefore seem worse under the larger size by chance. The random baseline estimates their
number: it computes the difference after exchanging seeds of the two sizes, so that neither arm is larger.
`fisher_tests` tests each example separately instead. `papers.zhong.size_momentum` tests whether improvement
continues from size to size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.papers.zhong.ensembles import Runs, aligned, as_runs, refuse_fractions
from multiberts.runs.errors import counted
from multiberts.stats.errors import DataError, check_choice
from multiberts.stats.runs_table import RunsTable
from multiberts.stats.significance import adjusted_p_values, check_n_resamples
from multiberts.stats.variance.crossing import VarianceParts

Array = NDArray[np.float64]
Direction = Literal["decay", "improvement"]
T = TypeVar("T")
# Number of cells per block, which limits the memory for any number of examples.
_BLOCK_CELLS = 1 << 21
_MAX_LATTICE = 1 << 22
_LEVEL = 0.95  # level of the interval of the corrected bound


@dataclass(frozen=True)
class Distribution:
    """A distribution on a finite set of values.

    Attributes:
      support: values, ascending.
      probability: probabilities of the values, with sum 1.
    """

    support: Array
    probability: Array

    def cdf(self, values: ArrayLike) -> Array:
        """Computes P(X <= value) for each value, with a tolerance for rounding errors."""
        shares = np.append(0.0, np.cumsum(self.probability))
        indices = np.searchsorted(self.support, np.asarray(values, float) + 1e-12, side="right")
        return np.asarray(np.minimum(shares[indices], 1.0))

    def mirrored(self) -> Distribution:
        return Distribution(-self.support[::-1], self.probability[::-1])


@dataclass(frozen=True)
class InstanceBound:
    """A lower bound on the share of examples on which the larger size is worse (or better).

    Attributes:
      direction: decay or improvement.
      bound: share of examples with a difference beyond the threshold, minus that of the random baseline.
      threshold: given threshold, or the one with the largest bound; -inf (inf for improvement) if no bound is
        above 0.
      difference: distribution over examples of the observed difference, larger minus smaller size.
      baseline: distribution of the difference under the random baseline, exact over all exchanges of seeds.
      adaptive: whether the threshold was chosen on the same data, so that the bound is slightly too large;
        see `threshold_bias`.
      standard_error: standard error of the bound over examples, for fixed seeds and threshold.
      num_seeds: numbers of pre-training seeds of the smaller and the larger size.
      runs: runs of both arms, the hypothetically better arm first.
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
    runs: tuple[RunsTable, RunsTable] = field(repr=False, compare=False)

    def __str__(self) -> str:
        """Returns a text with the lower confidence limit and the bound."""
        worse = "worse" if self.direction == "decay" else "better"
        return (
            f"At least {self.lower:.2%} of {self.num_examples} examples are {worse} under the larger size "
            f"(95% lower confidence limit; the bound itself is {self.bound:.2%})."
        )

    @cached_property
    def lower(self) -> float:
        """Returns the lower 95 % confidence limit of the share of such examples."""
        return self.lower_limit()

    def lower_limit(self, confidence_level: float = 0.95) -> float:
        """Computes a one-sided lower confidence limit of the share of such examples.

        The bound holds only in expectation and often exceeds the true share. For the limit, the threshold is
        chosen on one half of the examples and applied to the other. The limit accounts for the sampling of
        examples and, by a jackknife, of seeds.

        Args:
          confidence_level: probability that the true share is above the limit, in (0, 1).

        Returns:
          The limit, from 0 to 1; 0 if a size has one seed or a half has fewer than two examples.
        """
        from scipy.special import stdtrit

        if not 0 < confidence_level < 1:
            raise DataError(
                f"found confidence_level {confidence_level}, expected a number between 0 and 1"
            )
        if 1 in self.num_seeds or self.num_examples < 4:
            return 0.0
        order = np.random.Generator(np.random.Philox(key=0)).permutation(self.num_examples)
        halves = [order[: self.num_examples // 2], order[self.num_examples // 2 :]]
        chosen = [-abs(self.threshold)] * 2
        if self.adaptive:
            lattice = _lattice(*self.runs)
            units = np.unique(lattice.differences[lattice.differences < 0])
            excess = np.hstack([np.zeros((len(lattice.counts), 1)), _excess(lattice, units)])
            values = np.append(-np.inf, units / lattice.unit)
            chosen = [
                float(values[excess[lattice.pattern[half]].mean(axis=0).argmax()])
                for half in halves[::-1]
            ]
        excesses = self._of_halves(self.runs, halves, chosen)
        value = np.mean([excess.mean() for excess in excesses])
        of_examples = sum(excess.var(ddof=1) / len(excess) for excess in excesses) / 4
        of_seeds = []
        for number, runs in enumerate(self.runs):
            left_out = []
            for seed in runs.seeds:
                fewer = list(self.runs)
                fewer[number] = runs.with_seeds([left for left in runs.seeds if left != seed])
                of_seed = self._of_halves((fewer[0], fewer[1]), halves, chosen)
                left_out.append(np.mean([part.mean() for part in of_seed]))
            freedom = len(left_out) - 1
            of_seeds.append((float(np.var(left_out)) * freedom, freedom))  # jackknife
        examples = ((float(of_examples), self.num_examples - 2),)
        spread = VarianceParts(tuple(of_seeds), examples, ()).scaled(1, 1)
        reach = stdtrit(spread.cautious_degrees_of_freedom, confidence_level) * math.sqrt(
            spread.variance
        )
        return max(0.0, float(value - reach))

    @staticmethod
    def _of_halves(
        runs: tuple[RunsTable, RunsTable], halves: list[NDArray], thresholds: list[float]
    ) -> list[Array]:
        """Computes the excess of each example over the baseline, for each half."""
        lattice = _lattice(*runs)
        excess = _excess(lattice, _in_units(thresholds, lattice.unit))
        excess[:, np.isneginf(thresholds)] = 0.0
        return [excess[lattice.pattern[half], column] for column, half in enumerate(halves)]


@dataclass(frozen=True)
class ThresholdBias:
    """The bias of a bound whose threshold was chosen on the same examples.

    Attributes:
      bias: mean over bootstrap samples of (bound of the sample) - (the full data's value at the
        sample's threshold).
      corrected: bound - bias.
      cross_fitted: mean of two bounds with the threshold chosen on one half of the examples and applied to
        the other, which avoids this bias.
      standard_error: standard error of the adaptive bound over bootstrap samples of examples.
      low, high: 95 % interval of the corrected bound, from the distribution of the samples' bounds.
    """

    bound: float
    bias: float
    corrected: float
    cross_fitted: float
    standard_error: float
    low: float
    high: float
    n_resamples: int
    rng: int


def instance_accuracy(runs: Runs) -> Array:
    """Averages the scores of each example over the fine-tuning runs of each seed, and then over seeds.

    Args:
      runs: `RunsTable`, or an array [pretrain_seeds, ..., examples].

    Returns:
      float64 [examples].

    Examples:
      >>> from multiberts import stats
      >>> runs = [[[1, 0, 1], [1, 0, 0], [1, 1, 0]], [[0, 0, 1], [1, 0, 1], [1, 0, 1]]]  # by seed and run
      >>> stats.zhong.instance_accuracy(runs).round(2).tolist()
      [0.83, 0.17, 0.67]

    See also: `decay_bound`, `decompose`.

    Reference: Zhong et al. (2021), "Are Larger Pretrained Language Models Uniformly Better?", section 3.
    """
    return as_runs(runs).mean()


@dataclass(frozen=True)
class _Lattice:
    """Sums over the seeds of two sizes, in integer units, for each distinct pattern of examples.

    Differences are integer multiples of 1 / `unit`, so that thresholds are compared exactly.
    """

    small: NDArray[np.int64]  # [patterns, small seeds], each seed's mean score, in units
    large: NDArray[np.int64]  # [patterns, large seeds]
    pattern: NDArray[np.intp]  # [examples]
    counts: NDArray[np.int64]  # [patterns]
    scale: int  # units of a seed's mean

    @property
    def unit(self) -> int:
        return int(self.scale * self.small.shape[1] * self.large.shape[1])

    @property
    def differences(self) -> NDArray[np.int64]:
        """[patterns], in 1 / unit."""
        (_, few), (_, many) = self.small.shape, self.large.shape
        return np.asarray(self.large.sum(axis=1) * few - self.small.sum(axis=1) * many)

    @property
    def shares(self) -> Array:
        return np.asarray(self.counts / self.counts.sum())


def _lattice(small: RunsTable, large: RunsTable) -> _Lattice:
    for runs in (small, large):
        refuse_fractions(runs.predictions)
    scale = math.lcm(*_path_products(small), *_path_products(large))
    if scale * len(small.seeds) * len(large.seeds) > _MAX_LATTICE:
        raise DataError(
            f"found runs whose means need a denominator of {scale} per seed, too fine for exact "
            "sums; ensemble the runs of each seed first"
        )
    # Seeds are exchangeable, so sorting them leaves few distinct patterns.
    tables = [np.sort(_whole_sums(runs, scale), axis=0) for runs in (small, large)]
    rows = np.concatenate(tables).T  # [examples, seeds of both]
    patterns, pattern, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    few = len(tables[0])
    return _Lattice(patterns[:, :few], patterns[:, few:], pattern.ravel(), counts, scale)


def _path_products(runs: RunsTable) -> list[int]:
    """Multiplies the numbers of siblings on the path to each run [runs]."""
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


def _whole_sums(runs: RunsTable, scale: int) -> NDArray[np.int64]:
    """Computes the mean of each seed in units of 1 / scale [seeds, examples]."""
    weights = [scale // product for product in _path_products(runs)]
    sums = np.zeros((len(runs.seeds), runs.num_examples), np.int64)
    for number, rows in enumerate(runs.groups(1).values()):
        for row in rows:
            sums[number] += weights[row] * runs.predictions[row].astype(np.int64)
    return sums


def _exchanges(few: int, many: int) -> list[tuple[int, float]]:
    """Returns possible numbers of seeds per size that change arms, with probabilities.

    Their mean is few * many / (few + many), so that both arms have the two sizes in the same proportion; with
    equal numbers of seeds, half of them change arms.
    """
    whole, remainder = divmod(few * many, few + many)
    share = remainder / (few + many)
    return [(whole, 1 - share)] + ([(whole + 1, share)] if remainder else [])


def _subset_sums(values: NDArray[np.int64], size: int) -> Array:
    """Computes the distribution of the sum of `size` seeds drawn without replacement.

    Args:
      values: integers of 0 or more [patterns, seeds].
      size: number of drawn seeds.

    Returns:
      Probabilities [patterns, sums from 0 to the largest possible].
    """
    patterns, number = values.shape
    top = int(np.sort(values, axis=1)[:, number - size :].sum(axis=1).max()) if size else 0
    ways = np.zeros((size + 1, patterns, top + 1))
    ways[0, :, 0] = 1
    sums = np.arange(top + 1)
    for seed in range(number):
        before = sums - values[:, seed, None]  # [patterns, sums]
        inside = before >= 0
        source = np.where(inside, before, 0)
        for taken in range(min(seed + 1, size), 0, -1):
            moved = np.take_along_axis(ways[taken - 1], source, axis=1)
            ways[taken] += np.where(inside, moved, 0)
    return np.asarray(ways[size] / math.comb(number, size))


def _baseline_blocks(lattice: _Lattice) -> Iterator[tuple[slice, Array, NDArray[np.int64]]]:
    """Yields the distribution of the baseline's difference by pattern, in blocks.

    The sum of the first arm is that of seeds drawn from the larger size plus that of seeds drawn from the
    smaller, so its distribution over all splits is a convolution (of hypergeometric distributions if scores
    are 0 or 1).

    Yields:
      Patterns, probabilities [patterns, sums] and differences in units [patterns, sums].
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
    """Computes for each row the distribution of the sum of two independent draws."""
    result = np.zeros((len(first), length))
    for shift in range(second.shape[1]):
        weight = second[:, shift, None]
        if weight.any():
            width = min(first.shape[1], length - shift)
            result[:, shift : shift + width] += weight * first[:, :width]
    return result


def _distribution(mass: Array, unit: int) -> Distribution:
    """Returns the distribution with probabilities `mass` for -unit to unit units."""
    possible = np.flatnonzero(mass > 0)
    return Distribution((possible - unit) / float(unit), mass[possible])


def _mixed_baseline(lattice: _Lattice) -> Distribution:
    """Computes the random baseline exactly over all splits and examples.

    The baseline is the difference between two arms that mix both sizes. The first arm has the larger size's
    number of seeds, the second the smaller's, and k seeds of each size have changed arms: half of them if
    both numbers are equal and even; otherwise k is the integer below or above few * many / (few + many), with
    probabilities for which this is the mean. Both arms then have the same expected accuracy. If both sizes
    are equally good on an example, the baseline's difference has the distribution of the observed one. Seeds
    change arms with all their runs.
    """
    unit, mass = lattice.unit, np.zeros(2 * lattice.unit + 1)
    for rows, chances, units in _baseline_blocks(lattice):
        # Drop impossible sums, which have probability 0 and possibly differences outside the range.
        reached = chances > 0
        weights = (lattice.shares[rows, None] * chances)[reached]
        mass += np.bincount(units[reached] + unit, weights, minlength=len(mass))
    return _distribution(mass, unit)


def decay_bound(small: Runs, large: Runs, threshold: float | None = None) -> InstanceBound:
    """Computes a lower bound on the share of examples on which the larger size is worse.

    The bound is the maximum over thresholds t < 0 of P(difference <= t) - P(baseline's difference <= t). If
    the larger size is not worse on an example, exchanging seeds of the two sizes can only decrease the
    difference, so the example's expected contribution is at most 0. The value at a fixed t therefore does not
    exceed the true share in expectation over seeds, provided that each pre-training seed has one right or
    wrong answer per example: one run per seed, or `ensemble`d runs. It is not a bound for means of several
    runs per seed. Report mainly the lower confidence limit `lower`: if no example is worse, the bound is
    still 1 % or more on average.

    Args:
      small: 0/1 correctness of the smaller size, as a `RunsTable` or an array [pretrain_seeds, ...,
        examples].
      large: the same of the larger size.
      threshold: threshold t < 0, fixed in advance; by default the best one.

    Raises:
      DataError: a score is not 0 or 1, the examples differ, only one arm has example ids, or the threshold is
        not negative.

    Examples:
      >>> from multiberts import stats
      >>> import numpy as np
      >>> random, chance = np.random.default_rng(0), np.linspace(0.1, 0.9, 500)
      >>> small, large = random.random((10, 500)) < chance, random.random((10, 500)) < chance[::-1]
      >>> found = stats.zhong.decay_bound(small, large)
      >>> 0 < found.lower < found.bound < 0.5  # half of the examples are worse
      True

    See also: `improvement_bound`, `fisher_tests`, `single_runs`.

    Reference: Zhong et al. (2021), "Are Larger Pretrained Language Models Uniformly Better?", section 4.
    """
    if threshold is not None and not threshold < 0:
        raise DataError(f"found a threshold of {threshold}, expected one below 0")
    first, second = aligned(small, large)
    lattice = _lattice(first, second)
    unit = lattice.unit
    difference = _distribution(
        np.bincount(lattice.differences + unit, lattice.shares, minlength=2 * unit + 1).astype(
            float
        ),
        unit,
    )
    baseline = _mixed_baseline(lattice)
    if threshold is None:
        candidates = np.append(-np.inf, difference.support[difference.support < 0])
        gaps = difference.cdf(candidates) - baseline.cdf(candidates)
        chosen = float(candidates[gaps.argmax()])
    else:
        chosen = threshold
    values = _excess(lattice, _in_units([chosen], unit))[:, 0]  # [patterns]
    bound = float(lattice.shares @ values)
    spread = float(lattice.shares @ (values - bound) ** 2)
    number = first.num_examples
    return InstanceBound(
        "decay", bound, chosen, difference, baseline, threshold is None,
        math.sqrt(spread / max(number - 1, 1)), (len(first.seeds), len(second.seeds)), number,
        (first, second),
    )  # fmt: skip


def improvement_bound(small: Runs, large: Runs, threshold: float | None = None) -> InstanceBound:
    """Computes a lower bound on the share of examples on which the larger size is better.

    Args:
      small: as in `decay_bound`; this bound is its mirror image.
      large: as for `decay_bound`.
      threshold: threshold t > 0, fixed in advance; by default the best one. Differences of at least t are
        counted.

    Examples:
      >>> from multiberts import stats
      >>> import numpy as np
      >>> random, chance = np.random.default_rng(0), np.linspace(0.1, 0.9, 500)
      >>> small, large = random.random((10, 500)) < chance, random.random((10, 500)) < chance[::-1]
      >>> 0 < stats.zhong.improvement_bound(small, large).lower < 0.5
      True

    See also: `decay_bound`.

    Reference: Zhong et al. (2021), "Are Larger Pretrained Language Models Uniformly Better?", appendix C.
    """
    if threshold is not None and not threshold > 0:
        raise DataError(f"found a threshold of {threshold}, expected one above 0")
    mirror = decay_bound(large, small, None if threshold is None else -threshold)
    return replace(
        mirror, direction="improvement", threshold=-mirror.threshold,
        difference=mirror.difference.mirrored(), baseline=mirror.baseline.mirrored(),
        num_seeds=mirror.num_seeds[::-1],
    )  # fmt: skip


def _better_first(small: T, large: T, direction: Direction) -> tuple[T, T]:
    """Returns the size that is better by hypothesis, and the other."""
    check_choice("direction", direction, Direction)
    return (small, large) if direction == "decay" else (large, small)


def _in_units(thresholds: list[float], unit: int) -> NDArray[np.int64]:
    """Returns the largest integer number of units up to each threshold."""
    return np.floor(np.maximum(thresholds, -2.0) * unit + 1e-6).astype(np.int64)


def _excess(lattice: _Lattice, thresholds: NDArray[np.int64]) -> Array:
    """Computes 1(difference <= t) - P(baseline <= t) [patterns, thresholds]."""
    result = (lattice.differences[:, None] <= thresholds).astype(float)
    few, many = lattice.small.shape[1], lattice.large.shape[1]
    for rows, chances, units in _baseline_blocks(lattice):
        shares = np.cumsum(np.pad(chances, ((0, 0), (1, 0))), axis=1)
        # Differences are linear in the sum, so the number of sums below t follows by division.
        below = (thresholds[None, :] - units[:, :1]) // (few + many) + 1
        below = np.clip(below, 0, chances.shape[1])
        result[rows] -= np.take_along_axis(shares, below, axis=1)
    return result


def threshold_bias(
    small: Runs, large: Runs, direction: Direction = "decay", n_resamples: int = 1000, rng: int = 0
) -> ThresholdBias:
    """Estimates the upward bias of a bound from choosing its threshold on the same examples.

    Examples are resampled; seeds are held fixed.

    Args:
      small: as for `decay_bound`.
      large: as for `decay_bound`.
      direction: decay or improvement.
      n_resamples: bootstrap samples of examples.
      rng: seed for the samples and the halves of cross-fitting.

    Raises:
      DataError: `n_resamples` is too small for the interval.

    Examples:
      >>> from multiberts import stats
      >>> import numpy as np
      >>> random, chance = np.random.default_rng(0), np.linspace(0.1, 0.9, 500)
      >>> small, large = random.random((10, 500)) < chance, random.random((10, 500)) < chance[::-1]
      >>> found = stats.zhong.threshold_bias(small, large, n_resamples=100)
      >>> found.low <= found.high
      True

    See also: `decay_bound`.

    Reference: Zhong et al. (2021), "Are Larger Pretrained Language Models Uniformly Better?".
    """
    check_n_resamples(n_resamples, _LEVEL)
    pair = _better_first(small, large, direction)
    lattice = _lattice(*aligned(*pair))
    units = np.unique(lattice.differences[lattice.differences < 0])
    # The first column stands for a threshold below everything, where the bound is 0.
    excess = np.hstack([np.zeros((len(lattice.counts), 1)), _excess(lattice, units)])
    number = int(lattice.counts.sum())
    random = np.random.Generator(np.random.Philox(key=rng))
    half = random.permutation(number)[: number // 2]
    gaps = lattice.shares @ excess  # [thresholds]
    biases, gains = np.empty(n_resamples), np.empty(n_resamples)
    block = max(1, _BLOCK_CELLS // len(lattice.counts))
    for start in range(0, n_resamples, block):
        draws = min(block, n_resamples - start)
        samples = random.multinomial(number, lattice.shares, size=draws) @ excess / number
        best = samples.argmax(axis=1)
        rows = slice(start, start + draws)
        biases[rows] = samples[np.arange(draws), best]
        gains[rows] = biases[rows] - gaps[best]
    bias, tails = float(gains.mean()), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]
    corrected = float(gaps.max()) - bias
    low, high = (corrected + np.quantile(biases - biases.mean(), tails)).tolist()
    return ThresholdBias(
        float(gaps.max()), bias, corrected, _cross_fitted(lattice, excess, half),
        float(biases.std(ddof=1)), low, high, n_resamples, rng,
    )  # fmt: skip


def relative_threshold_bias(
    small: Runs, large: Runs, direction: Direction = "decay", n_resamples: int = 1000, rng: int = 0
) -> float:
    """Estimates the upward bias of an adaptive threshold over new seeds, relative to the bound.

    The method is that of the paper's appendix E (table 10). Seeds are drawn with replacement from the trained
    seeds, once to choose the threshold and once more to compute the bound L with it. If L* is the bound on
    the first draw, the bias is E[L* - L] / E[L]. Examples are held fixed, whereas `threshold_bias` draws
    examples and holds seeds fixed.

    Args:
      small: one 0/1 run per pre-training seed; `ensemble` further runs first.
      large: the same of the larger size.
      direction: decay or improvement.
      n_resamples: number of pairs of draws.
      rng: seed of the draws.

    Returns:
      Relative bias, such as 0.1 for a bound that is a tenth too large; NaN if the mean L is not above 0.

    Raises:
      DataError: there are several runs per seed, a score is not 0 or 1, or the direction is unknown.

    Examples:
      >>> from multiberts import stats
      >>> import numpy as np
      >>> random, chance = np.random.default_rng(0), np.linspace(0.1, 0.9, 500)
      >>> small, large = random.random((10, 500)) < chance, random.random((10, 500)) < chance[::-1]
      >>> 0 < stats.zhong.relative_threshold_bias(small, large, n_resamples=100) < 0.1
      True

    See also: `threshold_bias`, `decay_bound`.

    Reference: Zhong et al. (2021), "Are Larger Pretrained Language Models Uniformly Better?", appendix E.
    """
    pair = _better_first(small, large, direction)
    arms = _one_run_each(*pair)
    numbers = [len(runs.keys) for runs in arms]
    # All patterns: 0 to all of the drawn seeds are right on an example.
    right = np.indices([number + 1 for number in numbers]).reshape(2, -1)
    first, second = (
        (np.arange(number) >= number - counts[:, None]).astype(np.int64)
        for number, counts in zip(numbers, right, strict=True)
    )
    lattice = _Lattice(first, second, np.arange(len(first)), np.ones(len(first), np.int64), 1)
    units = np.unique(lattice.differences[lattice.differences < 0])
    # The first column stands for a threshold below everything, where the bound is 0.
    excess = np.hstack([np.zeros((len(first), 1)), _excess(lattice, units)])
    random = np.random.Generator(np.random.Philox(key=rng))
    tables = [runs.predictions.astype(float) for runs in arms]

    def bounds() -> Array:
        """Computes the bound of new draws of seeds at each threshold [thresholds]."""
        few, many = (
            random.multinomial(number, np.full(number, 1 / number)) @ table
            for number, table in zip(numbers, tables, strict=True)
        )
        indices = (few * (numbers[1] + 1) + many).astype(np.intp)
        return np.asarray(np.bincount(indices, minlength=len(excess)) @ excess / len(indices))

    biases = np.empty((n_resamples, 2))
    for row in biases:
        tuned, fresh = bounds(), bounds()
        best = tuned.argmax()
        row[:] = tuned[best], fresh[best]
    adaptive, honest = biases.mean(axis=0).tolist()
    return float((adaptive - honest) / honest) if honest > 0 else math.nan


def _one_run_each(small: Runs, large: Runs) -> tuple[RunsTable, RunsTable]:
    """Aligns the examples of both arms; refuses arms without exactly one 0/1 run per seed."""
    first, second = aligned(small, large)
    for runs in (first, second):
        refuse_fractions(runs.predictions)
        if len(runs.seeds) != len(runs.keys):
            raise DataError(
                f"found {counted(len(runs.keys), 'run')} of "
                f"{counted(len(runs.seeds), 'pre-training seed')}, expected one "
                "per seed; combine them with stats.zhong.ensemble"
            )
    return first, second


def _cross_fitted(lattice: _Lattice, excess: Array, half: NDArray[np.intp]) -> float:
    first = np.bincount(lattice.pattern[half], minlength=len(lattice.counts))
    second = lattice.counts - first
    values = [counts @ excess / max(counts.sum(), 1) for counts in (first, second)]
    return float((values[1][values[0].argmax()] + values[0][values[1].argmax()]) / 2)


# --- Tests of single examples -------------------------------------------------------------------


@dataclass(frozen=True)
class FisherTests:
    """One-sided Fisher exact tests, one per example.

    Attributes:
      p_values: p-values of the examples [examples].
      adjusted: p-values adjusted after Benjamini and Hochberg [examples].
      level: requested false discovery rate.
      direction: decay or improvement.
    """

    p_values: Array
    adjusted: Array
    level: float
    direction: Direction

    @property
    def discovered(self) -> NDArray[np.bool_]:
        """Returns whether each example is discovered [examples]."""
        return self.adjusted <= self.level

    @property
    def num_discoveries(self) -> int:
        return int(self.discovered.sum())

    @property
    def share(self) -> float:
        """Returns the discovered share of the examples, minus the expected false discoveries."""
        return self.num_discoveries * (1 - self.level) / len(self.p_values)


def fisher_tests(
    small: Runs, large: Runs, direction: Direction = "decay", level: float = 0.05
) -> FisherTests:
    """Tests each example by Fisher's exact test, with Benjamini and Hochberg's correction.

    The paper compares these tests with the bound: with 10 seeds per arm few examples can be significant,
    whereas the bound pools all examples. There are few distinct tables of right and wrong seeds, and each is
    tested once.

    Args:
      small: one 0/1 run per pre-training seed; `ensemble` further runs first.
      large: the same of the larger size.
      direction: `decay` to test whether the larger size is worse; `improvement`, whether it is better.
      level: false discovery rate.

    Raises:
      DataError: there are several runs per seed, a score is not 0 or 1, or the direction is unknown.

    Examples:
      >>> from multiberts import stats
      >>> import numpy as np
      >>> random, chance = np.random.default_rng(0), np.linspace(0.1, 0.9, 500)
      >>> small, large = random.random((10, 500)) < chance, random.random((10, 500)) < chance[::-1]
      >>> found = stats.zhong.fisher_tests(small, large)
      >>> found.p_values.shape, bool((found.p_values < 0.05).mean() > 0.1)
      ((500,), True)

    See also: `decay_bound`.

    Reference: Zhong et al. (2021), "Are Larger Pretrained Language Models Uniformly Better?", section 4.1.
    """
    from scipy.stats import hypergeom

    if not 0 < level < 1:
        raise DataError(f"found level {level}, expected a false discovery rate between 0 and 1")
    better, worse = _better_first(*_one_run_each(small, large), direction)
    right = [runs.predictions.sum(axis=0, dtype=np.int64) for runs in (better, worse)]
    # Distribution of the better arm's right answers (by hypothesis), given those of both arms.
    tables, index = np.unique(
        np.stack([right[0] + right[1], right[0]]), axis=1, return_inverse=True
    )
    tails = hypergeom.sf(
        tables[1] - 1, len(better.keys) + len(worse.keys), tables[0], len(better.keys)
    )
    p_values = np.minimum(tails, 1.0)[index.ravel()]
    adjusted = np.asarray(adjusted_p_values(p_values, "bh"), dtype=np.float64)
    return FisherTests(p_values, adjusted, level, direction)
