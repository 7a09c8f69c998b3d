"""Intervals and p-values, from bootstrap samples, from Student's t, and from sign flips of
seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

# All 2**R sign patterns are gone through up to this R.
MAX_EXACT_SIGN_FLIP_SEEDS = 15
_SIGN_FLIP_SAMPLES = 19_999


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
    contradicting = delta >= 0 if expect_negative_effect else delta <= 0
    report["delta"]["p"] = float(contradicting.mean()) or 1.0 / len(delta)
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


def _tail(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"found confidence {confidence}, expected a number between 0 and 1")
    return (1 - confidence) / 2


def bootstrap_p_values(differences: ArrayLike) -> PValues:
    """(k + 1) / (B + 1) from bootstrap samples of a difference [replicates].

    k counts the samples on the other side of zero or on it; the two-sided p is twice the smaller,
    at most 1.
    """
    differences = np.asarray(differences)
    greater = (int((differences <= 0).sum()) + 1) / (len(differences) + 1)
    less = (int((differences >= 0).sum()) + 1) / (len(differences) + 1)
    return PValues(greater, less, min(1.0, 2 * min(greater, less)))


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
        patterns = generator.integers(0, 2, (_SIGN_FLIP_SAMPLES, number))
        extra = 1  # the pattern that was seen
    means = (1 - 2 * patterns) @ differences
    seen = differences.sum()
    # Patterns that tie but for rounding count as ties.
    slack = 1e-12 * np.abs(differences).sum()
    greater = (int((means >= seen - slack).sum()) + extra) / (len(means) + extra)
    less = (int((means <= seen + slack).sum()) + extra) / (len(means) + extra)
    both = (int((np.abs(means) >= abs(seen) - slack).sum()) + extra) / (len(means) + extra)
    return PValues(greater, less, both)
