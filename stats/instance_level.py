"""Is a larger model better on every single example? Differences example by example, against what
randomness alone would give.

Zhong, Ghosh, Klein and Steinhardt, "Are Larger Pretrained Language Models Uniformly Better?
Comparing Performance at the Instance Level" (Findings of ACL 2021).

An example's instance accuracy is the probability that a run of a size is right on it. It is known
from few seeds only, so that many examples look worse under the larger size by luck. The random
baseline shows how many: it exchanges seeds of the two sizes, so that neither side is larger, and
looks at the difference again. Whether improvement continues from size to size is in
`stats.momentum`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stats.arms import DataError
from stats.nested_runs import NestedRuns, Runs, aligned, as_nested_runs, make_nested_runs

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


@dataclass(frozen=True)
class FisherTests:
    """One-sided Fisher exact tests, one an example.

    Attributes:
        p_values: [examples].
        adjusted: after Benjamini and Hochberg [examples].
        level: the false discovery rate that was asked for.
        direction: decay or improvement.
    """

    p_values: Array
    adjusted: Array
    level: float
    direction: Direction

    @property
    def discovered(self) -> NDArray[np.bool_]:
        return self.adjusted <= self.level

    @property
    def num_discoveries(self) -> int:
        return int(self.discovered.sum())

    @property
    def share(self) -> float:
        """Discovered share of the examples, less the share of false ones that the level allows."""
        return self.num_discoveries * (1 - self.level) / len(self.p_values)


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


def ensemble(runs: Runs, labels: ArrayLike | None = None, depth: int = 1) -> NestedRuns:
    """Lets the runs of a seed vote: one run a seed, right (1) or wrong (0).

    The theorem behind `decay_bound` asks for one right-or-wrong outcome a pre-training seed. The
    mean of a seed's fine-tuning runs is none, and the bound can then exceed the truth.

    With labels the most frequent answer counts. Without, a seed is right where more than half of
    its runs are, which is the same for two classes. A tie is decided by the first tied run in the
    order of keys, so that it favours neither right nor wrong.

    Args:
        runs: predicted classes, with labels; else 0/1 correctness.
        labels: right classes [examples], or None.
        depth: number of outer levels kept; 1 leaves pre-training seeds.

    Raises:
        DataError: without labels, scores other than 0 and 1.
    """
    nested = as_nested_runs(runs)
    if labels is None:
        _refuse_fractions(nested.scores)
        answers, right = nested.scores.astype(np.int64), np.ones(nested.num_examples, np.int64)
    else:
        classes, codes = np.unique(nested.scores, return_inverse=True)
        answers = codes.reshape(nested.scores.shape)
        wanted = np.asarray(labels)
        if wanted.shape != (nested.num_examples,):
            raise DataError(
                f"found labels of shape {wanted.shape}, expected [{nested.num_examples} examples]"
            )
        # A label that no run ever gave is nobody's answer.
        place = np.minimum(np.searchsorted(classes, wanted), len(classes) - 1)
        right = np.where(classes[place] == wanted, place, -1)
    groups = nested.groups(depth)
    voted = np.stack([_vote(answers[rows]) == right for rows in groups.values()])
    return replace(
        nested, scores=voted.astype(np.uint8), keys=tuple(groups), levels=nested.levels[:depth]
    )


def ensemble_probabilities(
    probabilities: ArrayLike,
    keys: Sequence[Hashable],
    labels: ArrayLike,
    depth: int = 1,
    example_ids: ArrayLike | None = None,
) -> NestedRuns:
    """Averages the class probabilities of a seed's runs: one run a seed, right (1) or wrong (0).

    The other way to `ensemble`. Of classes with the same mean probability the first one counts.

    Args:
        probabilities: [runs, examples, classes].
        keys: [runs], as `make_nested_runs` takes them.
        labels: right classes [examples], whole numbers from 0.
        depth: number of outer levels kept.
        example_ids: [examples] or None.

    Raises:
        DataError: shapes do not fit, or a label is no class.
    """
    table, right = np.asarray(probabilities), np.asarray(labels)
    if table.ndim != 3 or right.shape != table.shape[1:2]:
        raise DataError(
            f"found probabilities of shape {table.shape} and labels of shape {right.shape}, "
            "expected [runs, examples, classes] and [examples]"
        )
    if not ((right >= 0) & (right < table.shape[2]) & (right == np.floor(right))).all():
        raise DataError(f"found labels that are no whole numbers below {table.shape[2]}")
    classes = [
        make_nested_runs(table[:, :, number], keys, example_ids=example_ids).averaged(depth)
        for number in range(table.shape[2])
    ]
    chosen = np.stack([each.scores for each in classes]).argmax(axis=0)  # [seeds, examples]
    return replace(classes[0], scores=(chosen == right).astype(np.uint8))


def single_runs(runs: Runs) -> NestedRuns:
    """The first run of every pre-training seed, in the order of keys: one outcome a seed, as the
    bound needs it, with the noise of fine-tuning left in."""
    nested = as_nested_runs(runs)
    rows = [members[0] for members in nested.groups(1).values()]
    return replace(
        nested, scores=nested.scores[rows], keys=tuple(nested.groups(1)), levels=nested.levels[:1]
    )


def runs_of_seed(runs: Runs, seed: Hashable) -> NestedRuns:
    """The runs below one pre-training seed, its fine-tuning seeds now the outermost level.

    What is found of these is true of two pre-trained models, and not of two sizes.

    Raises:
        DataError: there is no level below.
    """
    nested = as_nested_runs(runs).with_seeds([seed])
    if len(nested.levels) < 2 or not nested.keys:
        raise DataError(f"found no runs below {nested.levels[0]} {seed!r}; give fine-tuning runs")
    return replace(nested, keys=tuple(key[1:] for key in nested.keys), levels=nested.levels[1:])


def _vote(answers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most frequent answer of [runs, examples], of tied ones the one given first."""
    votes = np.stack([(answers == answer).sum(axis=0) for answer in answers])  # [runs, examples]
    first = votes.argmax(axis=0)  # argmax takes the first of equals
    return np.take_along_axis(answers, first[None], axis=0)[0]


def _refuse_fractions(scores: NDArray) -> None:
    wrong = (scores != 0) & (scores != 1)
    if wrong.any():
        raise DataError(
            f"found a score of {scores[wrong][0]}, expected 0 (wrong) or 1 (right); give "
            "correctness, not losses or probabilities"
        )


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
        _refuse_fractions(runs.scores)
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


def fisher_tests(
    small: Runs, large: Runs, direction: Direction = "decay", level: float = 0.05
) -> FisherTests:
    """Fisher's exact test of every example by itself, with Benjamini and Hochberg's correction.

    The comparison in the paper: with 10 seeds a side few examples can pass it, where the bound
    pools all of them. The tables of right and wrong seeds are few, so each is tested once.

    Args:
        small, large: one 0/1 run a pre-training seed; `ensemble` further runs first.
        direction: decay tests whether the larger size is worse; improvement, whether it is better.
        level: the false discovery rate.

    Raises:
        DataError: several runs a seed, or scores other than 0 and 1.
    """
    from scipy.stats import hypergeom

    from stats.corrections import adjusted_p_values

    sides = aligned(small, large)
    for runs in sides:
        _refuse_fractions(runs.scores)
        if len(runs.seeds) != len(runs.keys):
            raise DataError(
                f"found {len(runs.keys)} runs of {len(runs.seeds)} pre-training seeds, which are "
                "not independent; give stats.instance_level.ensemble of them"
            )
    right = [runs.scores.sum(axis=0, dtype=np.int64) for runs in sides]  # [examples] each
    few, many = (len(runs.keys) for runs in sides)
    # Given all right answers, those of the side that is better by hypothesis.
    better, size = (right[0], few) if direction == "decay" else (right[1], many)
    tables, place = np.unique(np.stack([right[0] + right[1], better]), axis=1, return_inverse=True)
    tails = hypergeom.sf(tables[1] - 1, few + many, tables[0], size)
    p_values = np.minimum(tails, 1.0)[place.ravel()]
    adjusted = np.asarray(adjusted_p_values(p_values, "bh"), dtype=np.float64)
    return FisherTests(p_values, adjusted, level, direction)
