"""Intervals and p-values, from bootstrap samples, from Student's t, and from sign flips and deals
of seeds."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

# All 2**R sign patterns are gone through up to this R.
MAX_EXACT_SIGN_FLIP_SEEDS = 15
# All deals of seeds to two sides are gone through up to this number: 10 against 10 are 184,756.
MAX_EXACT_DEALS = 200_000
_RANDOM_SAMPLES = 19_999


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class PValues(NamedTuple):
    """p-values against a difference of zero.

    Attributes:
      greater: one-sided, small where the difference is positive.
      less: one-sided, small where it is negative.
      two_sided: small in either case.
    """

    greater: float
    less: float
    two_sided: float


def report_ci(
    samples: Sequence[tuple[float, float]] | NDArray,
    c: float = 0.95,
    abs_threshold: float | None = None,
    rel_threshold: float | None = None,
    expect_negative_effect: bool = False,
    verbose: bool = True,
) -> dict[str, dict[str, float]]:
    """Percentile intervals and the one-sided p of the published library.

    Args:
      samples: pairs (L, L') from `multibootstrap`, [replicates, 2].
      c: confidence level.
      abs_threshold: also print the share of samples where the effect is at least this.
      rel_threshold: the same for the effect relative to L (of use only far from L = 0).
      expect_negative_effect: test for L' < L; p is then the share of samples with L' >= L.
      verbose: whether to print (the published function always does).

    Returns:
      `base`, `expt` and `delta`, each with `mean`, `low` and `high`; `delta` with `p`, which is
      1/replicates where no sample contradicts.

    Raises:
      ValueError: `samples` is not [replicates, 2] or `c` not inside (0, 1).
    """
    array = np.asarray(samples, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise ValueError(f"found samples of shape {array.shape}, expected [replicates, 2]")
    base, experiment = array.T
    delta = experiment - base
    report: dict[str, dict[str, float]] = {}
    for name, values in (("base", base), ("expt", experiment), ("delta", delta)):
        low, high = percentile_interval(values, c)
        report[name] = {"mean": float(values.mean()), "low": low, "high": high}
    report["delta"]["p"] = compatible_p_value(delta, expect_negative_effect)
    if verbose:
        print(f"{len(delta)} bootstrap samples, {c:.0%} percentile intervals:")
        for name, values in report.items():
            p = f"; p = {values['p']:.3g}" if "p" in values else ""
            print(
                f"  {name}: {values['mean']:.3g} ({values['low']:.3g} to {values['high']:.3g}){p}"
            )
        sign = -1.0 if expect_negative_effect else 1.0
        for threshold, effect, unit in (
            (abs_threshold, delta, ""),
            (rel_threshold, delta / base if rel_threshold is not None else delta, " of base"),
        ):
            if threshold is not None:
                share = float(np.mean(sign * effect >= threshold))
                direction = "below" if expect_negative_effect else "above"
                print(
                    f"  {share:.2f} of samples are {direction} base by {threshold:.3g}{unit} or "
                    "more"
                )
    return report


def percentile_interval(samples: ArrayLike, confidence: float) -> Interval:
    """The middle `confidence` of bootstrap samples [replicates].

    Raises:
      ValueError: `confidence` is not inside (0, 1).
    """
    tail = _tail(confidence)
    low, high = np.quantile(np.asarray(samples), [tail, 1 - tail])
    return Interval(float(low), float(high))


def basic_interval(samples: ArrayLike, estimate: float, confidence: float) -> Interval:
    """The percentile interval mirrored at the estimate: 2 estimate - its ends.

    Args:
      samples: bootstrap samples [replicates].
      estimate: the score of the data themselves.
      confidence: level, in (0, 1).

    Raises:
      ValueError: `confidence` is not inside (0, 1).
    """
    low, high = percentile_interval(samples, confidence)
    return Interval(2 * estimate - high, 2 * estimate - low)


def acceleration(influences: Sequence[NDArray]) -> float:
    """The acceleration of the BCa interval, for an estimate made of several independent samples.

    Args:
      influences: for each sample (the seeds of each side, the examples) how much each of its
        members moves the estimate, as `stats.bootstrap.variance.influences` gives it: the estimate is, to
        first order, a constant plus the sum of the means of these arrays.

    Returns:
      sum_j sum_i u_ji^3 / n_j^3 over 6 (sum_j sum_i u_ji^2 / n_j^2)^(3/2), as
      `scipy.stats.bootstrap` has it; 0 where nothing moves the estimate.

    Reference: Efron & Tibshirani, An Introduction to the Bootstrap (1993), eq. 15.36.
    """
    cubes = squares = 0.0
    for sample in influences:
        centred = (sample - sample.mean()) / len(sample)
        cubes += float((centred**3).sum())
        squares += float((centred**2).sum())
    return cubes / (6 * squares**1.5) if squares > 0 else 0.0


def bca_interval(
    samples: ArrayLike, estimate: float, acceleration: float, confidence: float
) -> Interval:
    """The bias-corrected and accelerated interval: percentiles of the samples at other levels.

    The correction of bias is the normal quantile of the share of samples below the estimate, ties
    counted half. Where all samples lie on one side of the estimate that quantile is infinite, and
    the interval would be one point; the share is then taken as half a sample, the least that this
    number of samples could have shown. So the ends are always samples or between two of them.

    Args:
      samples: bootstrap samples [replicates].
      estimate: the score of the data themselves.
      acceleration: see `acceleration`.
      confidence: level, in (0, 1).

    Raises:
      ValueError: `confidence` is not inside (0, 1).
    """
    from scipy.special import ndtr, ndtri

    values = np.asarray(samples, dtype=np.float64)
    tail = _tail(confidence)
    slack = _slack(values - estimate)
    below = int((values < estimate - slack).sum()) + int((values <= estimate + slack).sum())
    half = 1 / (2 * len(values))
    bias = ndtri(min(max(below * half, half), 1 - half))
    levels = []
    for level in (tail, 1 - tail):
        moved = bias + ndtri(level)
        stretch = 1 - acceleration * moved
        # At the pole and beyond it the level is the end that it tends to.
        shifted = bias + moved / stretch if stretch > 0 else np.copysign(np.inf, moved)
        levels.append(float(ndtr(shifted)))
    low, high = np.quantile(values, levels)
    return Interval(float(low), float(high))


def studentised_interval(
    samples: ArrayLike,
    sample_standard_errors: ArrayLike,
    estimate: float,
    standard_error: float,
    confidence: float,
) -> Interval:
    """The bootstrap-t interval: each sample's distance from the estimate in its own standard errors.

    A replicate without spread of its own (one seed drawn R times) lies infinitely many standard
    errors away, on the side of its sample; at no distance where it equals the estimate. Where such
    replicates make more than a tail the interval has no end on that side: so few seeds cannot give
    one.

    Args:
      samples: bootstrap samples [replicates].
      sample_standard_errors: the standard error of each, from its own replicate [replicates], as
        the root of `stats.bootstrap.replicate_variance.replicate_variances`.
      estimate: the score of the data themselves.
      standard_error: its standard error, estimated the same way.
      confidence: level, in (0, 1).

    Raises:
      ValueError: `confidence` is not inside (0, 1).
    """
    tail = _tail(confidence)
    if standard_error == 0:
        return Interval(estimate, estimate)
    distances = np.asarray(samples, dtype=np.float64) - estimate
    errors = np.asarray(sample_standard_errors, dtype=np.float64)
    slack = _slack(distances)
    spread = errors > 0
    statistics = np.where(np.abs(distances) <= slack, 0.0, np.copysign(np.inf, distances))
    statistics[spread] = distances[spread] / errors[spread]
    if np.isfinite(statistics).all():
        low, high = np.quantile(statistics, [tail, 1 - tail])
    else:  # no value lies between a finite and an infinite one: the outer neighbour stands
        low = np.quantile(statistics, tail, method="lower")
        high = np.quantile(statistics, 1 - tail, method="higher")
    return Interval(float(estimate - high * standard_error), float(estimate - low * standard_error))


def t_interval(
    estimate: float, standard_error: float, degrees_of_freedom: float, confidence: float
) -> Interval:
    """estimate -+ t x standard error.

    Raises:
      ValueError: `confidence` is not inside (0, 1).
    """
    from scipy.special import stdtrit

    reach = float(stdtrit(degrees_of_freedom, 1 - _tail(confidence))) * standard_error
    return Interval(estimate - reach, estimate + reach)


def fisher_t_interval(
    estimate: float, standard_error: float, degrees_of_freedom: float, confidence: float
) -> Interval:
    """`t_interval` of a correlation on Fisher's scale, z = atanh r, turned back.

    A correlation without spread, or of -1 or 1, where z is infinite, gets the plain interval.

    Args:
      estimate: a correlation.
      standard_error: of it; of z it is that by 1 - r^2.
      degrees_of_freedom, confidence: as in `t_interval`.

    Raises:
      ValueError: `confidence` is not inside (0, 1).

    Reference: Fisher (1921), On the "probable error" of a coefficient of correlation.
    """
    if standard_error == 0 or abs(estimate) >= 1:
        return t_interval(estimate, standard_error, degrees_of_freedom, confidence)
    error = standard_error / (1 - estimate**2)
    low, high = t_interval(math.atanh(estimate), error, degrees_of_freedom, confidence)
    return Interval(math.tanh(low), math.tanh(high))


def _tail(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"found confidence {confidence}, expected a number between 0 and 1")
    return (1 - confidence) / 2


def _slack(differences: NDArray) -> float:
    """What rounding may do to differences: within it they tie."""
    return 1e-12 * float(np.abs(differences).max(initial=0.0))


def bootstrap_p_values(differences: ArrayLike) -> PValues:
    """(k + 1) / (B + 1) from bootstrap samples of a difference [replicates].

    k counts the samples on the other side of zero or on it (but for rounding); the two-sided p is
    twice the smaller, at most 1.
    """
    differences = np.asarray(differences)
    slack = _slack(differences)
    greater = (int((differences <= slack).sum()) + 1) / (len(differences) + 1)
    less = (int((differences >= -slack).sum()) + 1) / (len(differences) + 1)
    return PValues(greater, less, min(1.0, 2 * min(greater, less)))


def compatible_p_value(differences: ArrayLike, expect_negative_effect: bool = False) -> float:
    """The one-sided p of the published library: the share k / B of samples that contradict.

    Too small with few seeds, and never below 1 / B: where no sample contradicts it is that.

    Args:
      differences: bootstrap samples of experiment - base [replicates].
      expect_negative_effect: samples of 0 or more contradict, rather than of 0 or less.
    """
    differences = np.asarray(differences)
    contradicting = differences >= 0 if expect_negative_effect else differences <= 0
    return float(contradicting.mean()) or 1.0 / len(differences)


def t_p_values(estimate: float, standard_error: float, degrees_of_freedom: float) -> PValues:
    """Student's t of a difference; with no spread at all, 0 or 1 (and 1 where the difference is 0
    too)."""
    from scipy.special import stdtr

    if standard_error == 0:
        if estimate == 0:
            return PValues(1.0, 1.0, 1.0)
        return PValues(float(estimate < 0), float(estimate > 0), 0.0)
    statistic = estimate / standard_error
    less = float(stdtr(degrees_of_freedom, statistic))
    greater = float(stdtr(degrees_of_freedom, -statistic))
    return PValues(greater, less, min(1.0, 2 * min(greater, less)))


def sign_flip_p_values(differences: ArrayLike, flip_seed: int = 0) -> PValues:
    """The randomisation test of paired seeds: under the null each seed's difference may as well
    have the other sign.

    Exact (all 2**R patterns) up to `MAX_EXACT_SIGN_FLIP_SEEDS` seeds; beyond, random patterns with
    the +1 form. Its one-sided p is never below 2**-R.

    Args:
      differences: one a seed [R].
      flip_seed: names the random patterns, used where R is large.
    """
    differences = np.asarray(differences, dtype=np.float64)
    number = len(differences)
    if number <= MAX_EXACT_SIGN_FLIP_SEEDS:
        patterns = (np.arange(2**number)[:, None] >> np.arange(number)) & 1  # [2**R, R]
        extra = 0
    else:
        generator = np.random.Generator(np.random.Philox(key=flip_seed))
        patterns = generator.integers(0, 2, (_RANDOM_SAMPLES, number))
        extra = 1  # the pattern that was seen
    means = (1 - 2 * patterns) @ differences
    seen = differences.sum()
    # Patterns that tie but for rounding count as ties.
    slack = 1e-12 * np.abs(differences).sum()
    greater = (int((means >= seen - slack).sum()) + extra) / (len(means) + extra)
    less = (int((means <= seen + slack).sum()) + extra) / (len(means) + extra)
    both = (int((np.abs(means) >= abs(seen) - slack).sum()) + extra) / (len(means) + extra)
    return PValues(greater, less, both)


@functools.lru_cache(maxsize=2)
def _all_deals(number: int, side: int) -> NDArray[np.int64]:
    """Every choice of `side` out of `number`: [deals, side]. Kept, as many tests ask for one."""
    chosen = itertools.combinations(range(number), side)
    return np.fromiter(itertools.chain.from_iterable(chosen), np.int64).reshape(-1, side)


def permutation_p_values(
    base_scores: ArrayLike, experiment_scores: ArrayLike, permutation_seed: int = 0
) -> PValues:
    """The randomisation test of unpaired seeds: under the null any of them may as well have been on
    the other side.

    The statistic is the difference of the two means; two-sided counts the deals with at least its
    size. Exact while there are at most `MAX_EXACT_DEALS` deals of the seeds to the sides; beyond,
    random deals with the +1 form.

    Args:
      base_scores: one a seed [R].
      experiment_scores: one a seed [R'].
      permutation_seed: names the random deals, used where there are many.
    """
    base = np.asarray(base_scores, dtype=np.float64)
    experiment = np.asarray(experiment_scores, dtype=np.float64)
    pooled = np.concatenate([base, experiment])
    pooled -= pooled.mean()  # changes no difference, and keeps digits
    if math.comb(len(pooled), len(base)) <= MAX_EXACT_DEALS:
        sums = pooled[_all_deals(len(pooled), len(base))].sum(axis=1)
        extra = 0
    else:
        generator = np.random.Generator(np.random.Philox(key=permutation_seed))
        dealt = generator.permuted(np.tile(pooled, (_RANDOM_SAMPLES, 1)), axis=1)
        sums = dealt[:, : len(base)].sum(axis=1)
        extra = 1  # the deal that was seen
    # The sides' sums add to zero, so the difference of means falls with the base's sum alone.
    statistics = -sums
    seen = -pooled[: len(base)].sum()
    slack = 1e-12 * np.abs(pooled).sum()
    number = len(statistics) + extra
    greater = (int((statistics >= seen - slack).sum()) + extra) / number
    less = (int((statistics <= seen + slack).sum()) + extra) / number
    both = (int((np.abs(statistics) >= abs(seen) - slack).sum()) + extra) / number
    return PValues(greater, less, both)
