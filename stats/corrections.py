"""p-values of a family of hypotheses, corrected for their number."""

from __future__ import annotations

import math
from typing import Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.errors import DataError, check_choice

Array = NDArray[np.float64]
Method = Literal["bonferroni", "holm", "bh", "by"]
Alternative = Literal["two_sided", "greater", "less"]


def adjusted_p_values(p_values: ArrayLike, method: Method) -> Array:
    """Adjusts p-values: rejecting those at most alpha keeps level alpha for the whole family.

    Args:
      p_values: [m].
      method: `bonferroni` or `holm` (the chance of any false rejection, under any dependence;
        Holm rejects at least as many), `bh` (the expected share of false ones among the
        rejected, for independent or positively dependent p-values) or `by` (the same share,
        under any dependence).

    Returns:
      float64 [m], in the order given.

    Raises:
      DataError: an unknown method, or a value outside [0, 1].

    Example:
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


def max_t_p_values(
    estimates: ArrayLike,
    standard_errors: ArrayLike,
    samples: ArrayLike,
    sample_standard_errors: ArrayLike,
    alternative: Alternative = "two_sided",
) -> Array:
    """Adjusts p-values by step-down max-T, which uses the dependence between hypotheses.

    Each estimate over its standard error is compared with the largest of the hypotheses not yet
    rejected in the same replicates, where estimates of tasks with common seeds rise and fall
    together. The replicates are centred at the estimates, which puts them under the null, and
    divided by standard errors of their own: by the estimates' errors, p would be far too small with
    few seeds.

    Args:
      estimates: [m], 0 under the null.
      standard_errors: [m]. A hypothesis with standard error 0 is rejected first where its estimate
        is not 0, and has p = 1 where it is.
      samples: bootstrap samples of the estimates [B, m], each row from one draw of the seeds.
      sample_standard_errors: the standard error of each, from its own replicate [B, m]. Where it is 0
        the sample is infinitely far from an estimate that it differs from.
      alternative: the side that is tested.

    Returns:
      (k + 1) / (B + 1), made monotone down the steps; float64 [m].

    Raises:
      DataError: the shapes do not fit.

    Reference: Westfall & Young (1993), algorithm 4.1; Romano & Wolf (2005).
    """
    centres, drawn = np.asarray(estimates, dtype=np.float64), np.asarray(samples, dtype=np.float64)
    errors = np.asarray(standard_errors, dtype=np.float64)
    own_errors = np.asarray(sample_standard_errors, dtype=np.float64)
    check_choice("alternative", alternative, Alternative)
    shapes_fit = (
        errors.shape == centres.shape == drawn.shape[1:] and own_errors.shape == drawn.shape
    )
    if centres.ndim != 1 or not shapes_fit:
        raise DataError(
            f"found estimates {centres.shape}, standard errors {errors.shape}, samples {drawn.shape} "
            f"and their standard errors {own_errors.shape}, expected [m], [m], [replicates, m] and "
            "[replicates, m]"
        )
    seen = _statistics(centres, errors, alternative)
    null = _statistics(drawn - centres, own_errors, alternative)
    # Step-down: each hypothesis competes only with those that are no more extreme than it.
    order = np.argsort(-seen, kind="stable")
    # The largest statistic of the hypotheses from each step onwards [B, m].
    largest = np.maximum.accumulate(null[:, order[::-1]], axis=1)[:, ::-1]
    # Statistics that tie up to rounding count as ties.
    slack = 1e-12 * np.abs(np.where(np.isfinite(seen), seen, 0.0))
    reached = (largest >= (seen - slack)[order]).sum(axis=0)
    adjusted = np.empty(len(centres))
    # A hypothesis cannot have a smaller p than one that is more extreme.
    adjusted[order] = np.maximum.accumulate((reached + 1) / (len(drawn) + 1))
    return adjusted


def _statistics(differences: Array, errors: Array, alternative: Alternative) -> Array:
    """Scales differences [..., m] by standard errors [..., m]; large values support the alternative."""
    no_error = np.where(differences == 0, 0.0, np.copysign(np.inf, differences))
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(errors > 0, differences / errors, no_error)
    return {"two_sided": np.abs(values), "greater": values, "less": -values}[alternative]


def check_level(alpha: float, sides: int) -> None:
    """Refuses an impossible level or number of sides of a test.

    Raises:
      DataError: the level is not between 0 and 1, or the number of sides is not 1 or 2.
    """
    if not 0 < alpha < 1 or sides not in (1, 2):
        raise DataError(
            f"found alpha {alpha} and {sides} sides, expected a level between 0 and 1, and 1 or 2"
        )


def required_replicates(num_hypotheses: int, alpha: float, sides: int = 1) -> int:
    """Computes the smallest number B of replicates at which a corrected p-value can reach alpha.

    The smallest p of B replicates is sides / (B + 1), and a correction multiplies the smallest p by
    the number of hypotheses m: B + 1 >= sides m / alpha. (`max_t_p_values` needs only m = 1.)
    """
    check_level(alpha, sides)
    if num_hypotheses < 1:
        raise DataError(f"found {num_hypotheses} hypotheses, expected at least one")
    return math.ceil(sides * num_hypotheses / alpha * (1 - 1e-12)) - 1


def check_n_resamples(n_resamples: int, confidence_level: float) -> None:
    """Refuses fewer bootstrap samples than an interval needs.

    Raises:
      DataError: not a whole number, or so few that both ends would be the extreme samples.
    """
    least = math.ceil(2 / (1 - confidence_level) - 1 - 1e-9)
    check_whole("n_resamples", n_resamples)
    if n_resamples < least:
        raise DataError(
            f"found n_resamples {n_resamples}, expected at least {least} for intervals "
            f"at {confidence_level:g}, and 1000 or more for results"
        )


def check_whole(name: str, value: object) -> None:
    """Refuses what is not a whole number of 0 or more.

    Raises:
      DataError: it is a text, a fraction, True or False, or below 0.
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or cast("int", value) < 0:
        raise DataError(f"found {name} {value!r}, expected a whole number of 0 or more")


def check_replicates(n_resamples: int, num_hypotheses: int, alpha: float, sides: int = 1) -> None:
    """Refuses a correction that no p-value could pass.

    Raises:
      DataError: fewer replicates than `required_replicates`.
    """
    required = required_replicates(num_hypotheses, alpha, sides)
    if n_resamples < required:
        raise DataError(
            f"found {n_resamples} bootstrap replicates for {num_hypotheses} hypotheses, expected "
            f"at least {required}: with fewer no corrected p-value can reach {alpha:g}"
        )
