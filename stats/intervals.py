"""Values of inference: confidence intervals and p-values; `stats.interval_rule` computes the intervals."""

from __future__ import annotations

import math
from typing import NamedTuple


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class ConfidenceInterval(Interval):
    """A confidence interval with its level and the method that made it.

    It unpacks into (low, high), as SciPy's does.

    Attributes:
      low, high: its ends, in the unit of the score (shares from 0 to 1).
      level: the confidence level, in (0, 1).
      method: what made it: `t` (Student's t), `Wilson`, `Clopper-Pearson`, `Fisher z` or `Newcombe`
        for the recommended one; `range` where nothing varies, so that it is all that
        the score can be; `percentile` for that of the bootstrap.

    Example:
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
        """Makes it; without level and method only to unpickle."""
        interval = super().__new__(cls, low, high)
        interval.level, interval.method = level, method
        return interval

    def __repr__(self) -> str:
        """Returns all four."""
        ends = f"low={self.low}, high={self.high}"
        return f"ConfidenceInterval({ends}, level={self.level}, method={self.method!r})"


class PValues(NamedTuple):
    """p-values against a difference of zero.

    Attributes:
      greater: one-sided, small where the difference is positive.
      less: one-sided, small where it is negative.
      two_sided: small in either case.

    Example:
      >>> from multiberts import stats
      >>> result = stats.compare([[0, 1, 0], [1, 0, 0]], [[1, 1, 0], [1, 0, 1]])
      >>> result.p_values["sign flip"].greater
      0.25

    See also: `Comparison`.
    """

    greater: float
    less: float
    two_sided: float
