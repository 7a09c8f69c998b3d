"""Types of confidence intervals and p-values; `stats.interval_rule` computes them."""

from __future__ import annotations

import math
from typing import NamedTuple


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class ConfidenceInterval(Interval):
    """A confidence interval with its level and method.

    Intervals unpack into (low, high), as in SciPy.

    Attributes:
      low, high: limits in the unit of the score (shares from 0 to 1).
      level: confidence level, in (0, 1).
      method: method of the interval: `t` (Student's t), `Wilson`, `Clopper-Pearson`, `Fisher z` or
        `Newcombe` for the recommended one; `range` (all possible values) if nothing varies; `percentile`
        for the bootstrap.

    Examples:
      >>> from multiberts import stats
      >>> ci = stats.ConfidenceInterval(0.1, 0.3, 0.95, "t")
      >>> low, high = ci
      >>> high, ci.level, ci.method
      (0.3, 0.95, 't')

    See also: `Comparison`.
    """

    level: float
    method: str

    def __new__(
        cls, low: float, high: float, level: float = math.nan, method: str = ""
    ) -> ConfidenceInterval:
        """Makes the interval; level and method have defaults for pickle."""
        interval = super().__new__(cls, low, high)
        interval.level, interval.method = level, method
        return interval

    def __repr__(self) -> str:
        """Returns limits, level and method."""
        ends = f"low={self.low}, high={self.high}"
        return f"ConfidenceInterval({ends}, level={self.level}, method={self.method!r})"


class PValues(NamedTuple):
    """p-values against a difference of zero.

    Attributes:
      greater: one-sided p, small if the difference is positive.
      less: one-sided p, small if it is negative.
      two_sided: two-sided p, small in either case.

    Examples:
      >>> from multiberts import stats
      >>> result = stats.compare([[0, 1, 0], [1, 0, 0]], [[1, 1, 0], [1, 0, 1]])
      >>> result.p_values["sign flip"].greater
      0.25

    See also: `Comparison`.
    """

    greater: float
    less: float
    two_sided: float
