"""p-values of a family of hypotheses, corrected for their number."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.bootstrap.arms import DataError

Array = NDArray[np.float64]
Method = Literal["bonferroni", "holm", "bh", "by"]
Alternative = Literal["two_sided", "greater", "less"]


def adjusted_p_values(p_values: ArrayLike, method: Method) -> Array:
    """Adjusted p-values: those at most alpha are rejected at level alpha for the whole family.

    Args:
      p_values: [m].
      method: `bonferroni` or `holm` (the chance of any false rejection, under any dependence;
        Holm rejects at least as much), `bh` (the expected share of false ones among the
        rejected, for independent or positively dependent p-values) or `by` (the same share,
        under any dependence).

    Returns:
      float64 [m], in the order given.

    Raises:
      DataError: an unknown method, or a value outside [0, 1].

    Reference: Holm (1979); Benjamini & Hochberg (1995); Benjamini & Yekutieli (2001).
    """
    values = np.asarray(p_values, dtype=np.float64)
    if method not in get_args(Method):
        raise DataError(f"found method {method!r}, expected one of {', '.join(get_args(Method))}")
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise DataError(
            f"found p-values {np.array2string(values, threshold=6)}, expected numbers from 0 to 1 "
            "[hypotheses]"
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
    alternative: Alternative = "two_sided",
) -> Array:
    """Step-down max-T: adjusted p-values that know how the hypotheses depend on each other.

    Each estimate over its standard error is held against the largest of the hypotheses not yet
    rejected in the same replicates, where estimates of tasks on shared seeds rise and fall
    together. The replicates are centred at the estimates, which puts them under the null.

    Args:
      estimates: [m], 0 under the null.
      standard_errors: [m]. A hypothesis without any is rejected first where its estimate is not
        0, and has p = 1 where it is.
      samples: bootstrap samples of the estimates [B, m], a row from one draw of the seeds.
      alternative: the side that is tested.

    Returns:
      (k + 1) / (B + 1), made monotone down the steps; float64 [m].

    Raises:
      DataError: the shapes do not fit.

    Reference: Westfall & Young (1993), algorithm 4.1; Romano & Wolf (2005).
    """
    centres, drawn = np.asarray(estimates, dtype=np.float64), np.asarray(samples, dtype=np.float64)
    errors = np.asarray(standard_errors, dtype=np.float64)
    if alternative not in get_args(Alternative):
        raise DataError(
            f"found alternative {alternative!r}, expected one of {', '.join(get_args(Alternative))}"
        )
    if centres.ndim != 1 or errors.shape != centres.shape or drawn.shape[1:] != centres.shape:
        raise DataError(
            f"found estimates {centres.shape}, standard errors {errors.shape} and samples "
            f"{drawn.shape}, expected [m], [m] and [replicates, m]"
        )
    seen = _statistics(centres, errors, alternative)
    null = _statistics(drawn - centres, errors, alternative)
    order = np.argsort(-seen, kind="stable")
    # The largest statistic of the hypotheses from each step on [B, m].
    largest = np.maximum.accumulate(null[:, order[::-1]], axis=1)[:, ::-1]
    # Statistics that tie but for rounding count as ties.
    slack = 1e-12 * np.abs(np.where(np.isfinite(seen), seen, 0.0))
    reached = (largest >= (seen - slack)[order]).sum(axis=0)
    adjusted = np.empty(len(centres))
    adjusted[order] = np.maximum.accumulate((reached + 1) / (len(drawn) + 1))
    return adjusted


def _statistics(differences: Array, errors: Array, alternative: Alternative) -> Array:
    """Differences [..., m] in standard errors [m], large where they speak for the alternative."""
    no_error = np.where(differences == 0, 0.0, np.copysign(np.inf, differences))
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(errors > 0, differences / errors, no_error)
    return {"two_sided": np.abs(values), "greater": values, "less": -values}[alternative]


def required_replicates(num_hypotheses: int, alpha: float, sides: int = 1) -> int:
    """The least number B of replicates at which a corrected p-value can reach alpha.

    The least p of B replicates is sides / (B + 1), and a correction multiplies the smallest p by
    the number of hypotheses m: B + 1 >= sides m / alpha. (`max_t_p_values` needs m = 1 only.)
    """
    if not 0 < alpha < 1 or num_hypotheses < 1 or sides not in (1, 2):
        raise DataError(
            f"found {num_hypotheses} hypotheses, alpha {alpha} and {sides} sides, expected at "
            "least one, a level between 0 and 1, and 1 or 2"
        )
    return math.ceil(sides * num_hypotheses / alpha * (1 - 1e-12)) - 1


def enough_replicates(
    num_bootstrap: int, num_hypotheses: int, alpha: float, sides: int = 1
) -> bool:
    """Whether any corrected p-value of these replicates can reach alpha."""
    return num_bootstrap >= required_replicates(num_hypotheses, alpha, sides)


def check_replicates(num_bootstrap: int, num_hypotheses: int, alpha: float, sides: int = 1) -> None:
    """Refuses a correction that nothing could pass.

    Raises:
      DataError: fewer replicates than `required_replicates`.
    """
    if not enough_replicates(num_bootstrap, num_hypotheses, alpha, sides):
        raise DataError(
            f"found {num_bootstrap} bootstrap replicates for {num_hypotheses} hypotheses, and no "
            f"corrected p-value can then reach {alpha:g}; draw at least "
            f"{required_replicates(num_hypotheses, alpha, sides)}"
        )
