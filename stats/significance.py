"""Tests from bootstrap samples or seeds, and corrections for several hypotheses."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.errors import DataError, check_choice
from multiberts.stats.intervals import PValues

Array = NDArray[np.float64]
Method = Literal["bonferroni", "holm", "bh", "by"]

# Largest R for which all 2**R sign patterns are enumerated: 32,768, a few more than the random samples.
_MAX_EXACT_SIGN_FLIP_SEEDS = 15
# Largest number of enumerated assignments of seeds to two arms: 10 against 10 seeds have 184,756.
_MAX_EXACT_PERMUTATIONS = 200_000
_RANDOM_SAMPLES = 19_999  # 20,000 with the observed one, so that p is a multiple of .00005
# Largest number of replicates; with four seeds and 120 examples it takes half a minute.
_MAX_RESAMPLES = 1_000_000


def bootstrap_p_values(differences: Array) -> PValues:
    """Computes (k + 1) / (B + 1) from bootstrap samples of a difference [replicates].

    k counts the samples at zero or with the opposite sign, up to rounding. The two-sided p is twice the
    smaller one-sided p, at most 1.
    """
    slack = 1e-12 * float(np.abs(differences).max(initial=0.0))
    greater = (int((differences <= slack).sum()) + 1) / (len(differences) + 1)
    less = (int((differences >= -slack).sum()) + 1) / (len(differences) + 1)
    return PValues(greater, less, min(1.0, 2 * min(greater, less)))


def published_p_values(differences: Array) -> PValues:
    """Computes the one-sided p of the published library: the share k / B of contradicting samples.

    This p is too small with few seeds, and at least 1 / B. The two-sided p is twice the smaller one-sided p,
    at most 1.
    """
    least = 1.0 / len(differences)
    greater, less = (float(share.mean()) or least for share in (differences <= 0, differences >= 0))
    return PValues(greater, less, min(1.0, 2 * min(greater, less)))


def sign_flip_p_values(differences: Array) -> PValues:
    """Tests paired seeds [R] by sign flips: under the null both signs of a difference are equally likely.

    The test is exact (all 2**R patterns) with few seeds, and its one-sided p is at least 2**-R. With more
    seeds it uses random patterns and (k + 1) / (B + 1).

    Reference: Fisher (1935), The Design of Experiments, section 21.
    """
    number = len(differences)
    if number <= _MAX_EXACT_SIGN_FLIP_SEEDS:
        bits = (np.arange(2**number)[:, None] >> np.arange(number)) & 1  # [2**R, R]
        signs, extra = 1.0 - 2 * bits, 0
    else:
        signs, extra = _random_signs(number), 1  # count the observed signs, too
    sums = signs @ differences
    return _counted_p_values(sums, differences.sum(), 1e-12 * np.abs(differences).sum(), extra)


def permutation_p_values(base_scores: Array, experiment_scores: Array) -> PValues:
    """Tests unpaired seeds [R], [R'] by permutations: under the null any seed may be in either arm.

    The statistic is the difference of the two means; the two-sided p counts absolute values. The test is
    exact if there are few assignments of seeds to arms; otherwise it uses random permutations and (k + 1) /
    (B + 1).

    Reference: Pitman (1937), Significance tests which may be applied to samples from any populations.
    """
    size = len(base_scores)
    pooled = np.concatenate([base_scores, experiment_scores])
    pooled -= pooled.mean()  # centring changes no difference, but improves precision
    if math.comb(len(pooled), size) <= _MAX_EXACT_PERMUTATIONS:
        chosen, extra = _all_permutations(len(pooled), size), 0
    else:
        chosen, extra = _random_permutations(len(pooled), size), 1  # the observed permutation
    sums = pooled[chosen].sum(axis=1)
    # The sums of both arms add up to zero, so the difference of means is a multiple of the base's sum.
    slack = 1e-12 * float(np.abs(pooled).sum())
    return _counted_p_values(-sums, -float(pooled[:size].sum()), slack, extra)


def _counted_p_values(statistics: NDArray, seen: float, slack: float, extra: int) -> PValues:
    """Counts the statistics that reach the observed one; differences within `slack` are ties."""
    # Equal sums can differ by rounding, because of the order of summation.
    reached = (
        statistics >= seen - slack,
        statistics <= seen + slack,
        np.abs(statistics) >= abs(seen) - slack,
    )
    number = len(statistics) + extra
    return PValues(*((int(which.sum()) + extra) / number for which in reached))


@functools.lru_cache(maxsize=2)
def _random_signs(number: int) -> NDArray[np.float64]:
    """Returns random signs [samples, number]; cached for repeated tests."""
    # The key here and below is fixed, so that equal data give equal p.
    generator = np.random.Generator(np.random.Philox(key=0))
    bits = generator.integers(0, 2, (_RANDOM_SAMPLES, number))
    return np.asarray(1.0 - 2 * bits, dtype=np.float64)


@functools.lru_cache(maxsize=2)
def _random_permutations(number: int, size: int) -> NDArray[np.int64]:
    """Returns random choices of `size` out of `number` [samples, size]; cached for repeated tests."""
    generator = np.random.Generator(np.random.Philox(key=0))
    order = generator.permuted(np.tile(np.arange(number), (_RANDOM_SAMPLES, 1)), axis=1)
    return order[:, :size].copy()


@functools.lru_cache(maxsize=2)
def _all_permutations(number: int, size: int) -> NDArray[np.int64]:
    """Returns every choice of `size` out of `number` [choices, size]; cached for repeated tests."""
    chosen = itertools.combinations(range(number), size)
    return np.fromiter(itertools.chain.from_iterable(chosen), np.int64).reshape(-1, size)


def adjusted_p_values(p_values: ArrayLike, method: Method) -> Array:
    """Adjusts p-values, so that rejecting values up to alpha controls the error rate of the family at alpha.

    Args:
      p_values: unadjusted p-values [m].
      method: `bonferroni` or `holm` (family-wise error rate, under any dependence; Holm rejects at least as
        many), `bh` (false discovery rate, for independent or positively dependent p-values) or `by` (false
        discovery rate, under any dependence).

    Returns:
      Adjusted p-values, float64 [m], in the same order.

    Raises:
      DataError: an unknown method, or a value outside [0, 1].

    Examples:
      >>> from multiberts import stats
      >>> stats.adjusted_p_values([0.04, 0.01, 0.03], "holm").round(2).tolist()
      [0.06, 0.03, 0.06]

    See also: `compare_tasks`.

    Reference: Holm (1979); Benjamini & Hochberg (1995); Benjamini & Yekutieli (2001).
    """
    values = np.asarray(p_values, dtype=np.float64)
    check_choice("method", method, Method)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise DataError(
            f"found p-values {np.array2string(values, threshold=6)}, expected [m] numbers from 0 to 1"
        )
    number = len(values)
    if method == "bonferroni":
        return np.minimum(1.0, number * values)
    order = np.argsort(values, kind="stable")
    ranks = np.arange(1, number + 1)
    if method == "holm":
        steps = np.maximum.accumulate((number - ranks + 1) * values[order])
    else:
        factor = float((1 / ranks).sum()) if method == "by" else 1.0
        steps = np.minimum.accumulate((factor * number / ranks * values[order])[::-1])[::-1]
    adjusted = np.empty(number)
    adjusted[order] = np.minimum(1.0, steps)
    return adjusted


def check_level(alpha: float, sides: int) -> None:
    """Refuses an invalid level of a test or number of sides."""
    if not 0 < alpha < 1 or sides not in (1, 2):
        raise DataError(
            f"found alpha {alpha} and {sides} sides, expected a level between 0 and 1, and 1 or 2"
        )


def check_n_resamples(n_resamples: int, confidence_level: float) -> None:
    """Refuses fewer bootstrap samples than an interval needs, and more than are practical."""
    least = math.ceil(2 / (1 - confidence_level) - 1 - 1e-9)
    check_whole("n_resamples", n_resamples)
    if not least <= n_resamples <= _MAX_RESAMPLES:
        raise DataError(
            f"found n_resamples {n_resamples}, expected at least {least} for intervals "
            f"at {confidence_level:g}, 1000 or more for results, and at most {_MAX_RESAMPLES:,}"
        )


def check_whole(name: str, value: object) -> None:
    """Refuses values that are not integers of 0 or more."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or cast("int", value) < 0:
        raise DataError(f"found {name} {value!r}, expected a whole number of 0 or more")
