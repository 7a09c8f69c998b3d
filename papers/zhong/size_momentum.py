"""Momentum: whether examples that improve from a small to a middle size improve further to a large one.

Zhong, Ghosh, Klein and Steinhardt, "Are Larger Pretrained Language Models Uniformly Better?"
(Findings of ACL 2021), section 5. `momentum` estimates the correlation of the true improvements;
`momentum_index` is the paper's number (tables 6 and 12).

**Why the paper's number is only an index.** It correlates improvements as estimated from few seeds, in
buckets of the middle size's estimate. Noise shrinks the correlation towards 0, the middle size's noise
enters both improvements with opposite signs and pulls it below 0, and a bucket of a noisy estimate holds
examples of other accuracies. Where the true correlation was .54, the index was -.14 with 5 seeds per
size, -.06 with 10 and .13 with 25 (docs/statistics.md). An interval around it would not cover the truth,
so it has none. Compare it only between tasks with equal numbers of seeds.

**The estimate.** An example's true accuracy under a size is its mean over all possible seeds. The product
of two different seeds' scores is an unbiased estimate of its square, which gives the covariances S of the
three true accuracies over examples: disattenuation by independent halves of the seeds (Spearman, 1904),
averaged over all halves. Where the middle size is held equal, by linear regression on its true accuracy,
improvements correlate as

    r = -c / sqrt(v_small v_large),  c = S_small,large - S_small,middle S_middle,large / S_middle,middle,

where v is the variance of a size's true accuracies that the middle one's do not explain. In the worlds of
the benchmark this differs by .01 from the true correlation within buckets of .2.

**The interval** contains each r in [-1, 1] for which c + r sqrt(v_small v_large) does not differ from 0 by a
t test (Fieller, 1954), with the standard error over the seeds of all sizes and the examples. With too few
seeds it is wide instead of wrong. It covered the true r in .955 to 1 of the samples of each of these worlds,
with 5 to 25 seeds. Seeds of different sizes are taken to be independent, and so are examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multiberts.papers.zhong.ensembles import Runs, aligned
from multiberts.runs.errors import counted
from multiberts.stats.errors import DataError
from multiberts.stats.variance.crossing import Crossing, Term, VarianceParts
from multiberts.stats.variance.score_tables import TablePart, score_table

Array = NDArray[np.float64]
# Variances below this share of the mean square score are rounding errors.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Momentum:
    """Correlation of two successive improvements, given the middle size's accuracy.

    Attributes:
      r: estimate, in [-1, 1]; NaN if noise of seeds hides the differences between examples.
      low, high: interval over seeds and examples; -1 and 1 if r is NaN.
      num_seeds: numbers of pre-training seeds of the small, the middle and the large size.
    """

    r: float
    low: float
    high: float
    confidence_level: float
    num_seeds: tuple[int, ...]
    num_examples: int


@dataclass(frozen=True)
class MomentumIndex:
    """Correlations of estimated improvements in buckets of the middle size's estimated accuracy.

    Attributes:
      edges: limits of the buckets of the middle size's accuracy [buckets + 1]; a bucket includes its
        lower limit, the last bucket both limits.
      correlation: correlation in each bucket [buckets]; NaN if it has no spread or fewer than 3 examples.
      counts: numbers of examples [buckets].
      pooled: mean over buckets, weighted by their numbers of examples.
      without_buckets: correlation over all examples; NaN if a gain is the same for all.
    """

    edges: Array
    correlation: Array
    counts: NDArray[np.int64]
    pooled: float
    without_buckets: float


def momentum(small: Runs, middle: Runs, large: Runs, *, confidence_level: float = 0.95) -> Momentum:
    """Estimates the correlation of true improvements (middle - small) and (large - middle).

    Args:
      small: scores of the small size, a `RunsTable` or an array [pretrain_seeds, ..., examples] with 2 or
        more pre-training seeds. The runs of a seed are averaged.
      middle: the same.
      large: the same.
      confidence_level: level of the interval, in (0, 1).

    Raises:
      DataError: a size has one seed, or the examples differ or cannot be matched.

    Examples:
      >>> import numpy as np
      >>> random = np.random.default_rng(0)
      >>> middle, step = random.uniform(0.3, 0.7, 2000), random.choice([-0.2, 0.2], 2000)
      >>> sizes = [random.random((10, 2000)) < middle + k * step for k in (-1, 0, 1)]
      >>> found = momentum(*sizes)
      >>> found.r > 0.9, found.low > 0.7
      (True, True)

    See also: `decay_bound`, `instance_accuracy`.

    Reference: Zhong et al. (2021), "Are Larger Pretrained Language Models Uniformly Better?", section 5.
    """
    if not 0 < confidence_level < 1:
        raise DataError(
            f"found confidence_level {confidence_level}, expected a number between 0 and 1"
        )
    sizes = [
        runs.averaged(1).predictions.astype(np.float64) for runs in aligned(small, middle, large)
    ]
    for name, scores in zip(("small", "middle", "large"), sizes, strict=True):
        if len(scores) < 2:
            raise DataError(
                f"found {counted(len(scores), 'pre-training seed')} of the {name} size, expected 2 or "
                "more: one seed cannot be separated from its noise; add seeds or leave the size out"
            )
    number = sizes[0].shape[1]
    # Centre the scores of each seed, to remove shifts of all examples.
    centred = [scores - scores.mean(axis=1, keepdims=True) for scores in sizes]
    means = np.stack([scores.mean(axis=0) for scores in centred])  # [sizes, examples]
    noise = [scores.var(axis=0, ddof=1).mean() / len(scores) for scores in centred]
    covariances = means @ means.T / number - np.diag(noise)
    floor = [_ROUNDING * float((scores**2).mean()) for scores in sizes]

    def result(r: float, low: float, high: float) -> Momentum:
        return Momentum(r, low, high, confidence_level, tuple(map(len, sizes)), number)

    unknown = result(np.nan, -1.0, 1.0)
    if covariances[1, 1] <= floor[1]:
        return unknown
    # Coefficients of the small and the large size minus their regression on the middle one.
    slopes = covariances[[0, 2], 1] / covariances[1, 1]
    contrasts = np.array([[1, -slopes[0], 0], [0, -slopes[1], 1]])
    (v_small, c), (_, v_large) = contrasts @ covariances @ contrasts.T
    if v_small <= floor[0] or v_large <= floor[2]:
        return unknown
    scale = float(np.sqrt(v_small * v_large))
    r = float(np.clip(-c / scale, -1, 1))

    def products(value: float) -> Crossing:
        """Returns c + value x scale as a crossing of seeds and examples."""
        slope = value / (2 * scale)
        weights = contrasts.T @ [[slope * v_large, 0.5], [0.5, slope * v_small]] @ contrasts
        return _sum_of_products(centred, means, weights)

    # Mean squares are quadratic in r, so three values of r determine them.
    at_three = [products(value).variance_parts() for value in (-1.0, 0.0, 1.0)]

    def excess(value: float) -> float:
        """Computes the excess of |c + value x scale| over the critical value of the t test."""
        from scipy.special import stdtrit

        lagrange = ((value**2 - value) / 2, 1 - value**2, (value**2 + value) / 2)
        variance = _mixed(at_three, lagrange).scaled(1, 1)
        reach = stdtrit(variance.cautious_degrees_of_freedom, (1 + confidence_level) / 2)
        return float(abs(c + value * scale) - reach * np.sqrt(variance.variance))

    if abs(c) > scale and excess(r) > 0:
        return unknown  # no consistent correlation, because seeds of two sizes are not independent
    low, high = (_limit(excess, r, end) for end in (-1.0, 1.0))
    return result(r, low, high)


def _sum_of_products(centred: Sequence[Array], means: Array, weights: Array) -> Crossing:
    """Returns the mean over examples of sum_kl weights_kl p_k p_l as a crossing of seeds and examples.

    p_k is an example's true accuracy under size k; its square is the mean product of two different seeds.

    Args:
      centred: centred scores by size [seeds, examples].
      means: mean scores over seeds [sizes, examples].
      weights: symmetric weights [sizes, sizes].
    """
    tables = []
    for size, scores in enumerate(centred):
        seeds, weight = len(scores), weights[size, size]
        other_seeds = (seeds * means[size] - scores) / (seeds - 1)
        other_sizes = weights[size] @ means - weight * means[size]
        tables.append(2 * scores * (weight * other_seeds + other_sizes))
    # Every product is in the tables of both its factors: half of their means is taken off again,
    # example by example, while a seed moves all products that it is in.
    twice = sum(table.mean(axis=0) for table in tables)
    parts = [
        TablePart(score_table(table), 1.0, f"seeds {size}", "examples")
        for size, table in enumerate(tables)
    ]
    return Crossing([*parts, TablePart(score_table([twice]), -0.5, None, "examples")])


def _mixed(parts: Sequence[VarianceParts], weights: Sequence[float]) -> VarianceParts:
    """Returns a weighted sum of mean squares with the same degrees of freedom."""

    def of(kinds: Sequence[tuple[Term, ...]]) -> tuple[Term, ...]:
        return tuple(
            (max(0.0, float(np.dot(weights, [value for value, _ in terms]))), terms[0][1])
            for terms in zip(*kinds, strict=True)
        )

    return VarianceParts(
        of([part.seeds for part in parts]),
        of([part.examples for part in parts]),
        of([part.residual for part in parts]),
    )


def _limit(excess: Callable[[float], float], r: float, end: float) -> float:
    from scipy.optimize import brentq

    if excess(r) >= 0:  # nothing varies
        return r
    return end if excess(end) <= 0 else float(brentq(excess, r, end, xtol=1e-4))


def momentum_index(small: Runs, middle: Runs, large: Runs) -> MomentumIndex:
    """Correlates estimates of (middle - small) and (large - middle) in ten buckets of the middle size.

    Args:
      small: a `RunsTable` or an array [pretrain_seeds, ..., examples].
    """
    limits = np.linspace(0, 1, 11)
    before, between, after = (runs.mean() for runs in aligned(small, middle, large))
    # Add a little, because rounding can turn a mean of .6 into .59999.
    bucket = np.searchsorted(limits, between + 1e-9, side="right") - 1
    bucket[np.isclose(between, limits[-1])] = len(limits) - 2
    counts = np.array([(bucket == number).sum() for number in range(len(limits) - 1)])
    gains = np.stack([between - before, after - between])
    correlation = np.array([_correlation(gains[:, bucket == row]) for row in range(len(counts))])
    defined = np.isfinite(correlation)
    pooled = np.average(correlation[defined], weights=counts[defined]) if defined.any() else np.nan
    return MomentumIndex(limits, correlation, counts, float(pooled), _correlation(gains))


def _correlation(gains: Array) -> float:
    """Computes the correlation of two rows; NaN with fewer than 3 examples or without spread."""
    if gains.shape[1] < 3 or (gains.std(axis=1) <= 1e-9).any():
        return np.nan
    return float(np.corrcoef(*gains)[0, 1])
