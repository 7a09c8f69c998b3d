"""p-values of a family of hypotheses, corrected for their number."""

from __future__ import annotations

import math
from typing import Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.errors import DataError, check_choice

Array = NDArray[np.float64]
Method = Literal["bonferroni", "holm", "bh", "by"]


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


def check_level(alpha: float, sides: int) -> None:
    """Refuses an impossible level or number of sides of a test."""
    if not 0 < alpha < 1 or sides not in (1, 2):
        raise DataError(
            f"found alpha {alpha} and {sides} sides, expected a level between 0 and 1, and 1 or 2"
        )


def check_n_resamples(n_resamples: int, confidence_level: float) -> None:
    """Refuses fewer bootstrap samples than an interval needs."""
    least = math.ceil(2 / (1 - confidence_level) - 1 - 1e-9)
    check_whole("n_resamples", n_resamples)
    if n_resamples < least:
        raise DataError(
            f"found n_resamples {n_resamples}, expected at least {least} for intervals "
            f"at {confidence_level:g}, and 1000 or more for results"
        )


def check_whole(name: str, value: object) -> None:
    """Refuses what is not a whole number of 0 or more."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or cast("int", value) < 0:
        raise DataError(f"found {name} {value!r}, expected a whole number of 0 or more")
