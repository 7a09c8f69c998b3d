"""Bounds on a score or difference where predictions are missing, whatever the missing ones are.

Leaving missing predictions out assumes that they are missing at random. Without an assumption only bounds
are known: the estimate with every missing answer wrong in one arm and right in the other, and the reverse
(Manski, 2003). The interval is that of Imbens and Manski (2004, equations 6 and 7), which covers the true
value, not the whole range between the bounds, at the level asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.stats.compare.checks import LEFT_OUT
from multiberts.stats.compare.result import Comparison
from multiberts.stats.errors import DataError
from multiberts.stats.intervals import ConfidenceInterval, Interval, PValues
from multiberts.stats.metrics import MetricLike
from multiberts.stats.results.comparison import Sameness
from multiberts.stats.runs_table import Arm


def extreme_arms(arms: Sequence[Arm], metric: MetricLike) -> tuple[list[Arm], list[Arm]]:
    """Returns the arms as they are where the estimate is lowest, and where it is highest.

    Args:
      arms: the base and the experiment, or one arm alone.
      metric: their score, a mean over examples.

    Returns:
      Twice the arms, with each example's score as predictions, for the metric `mean`.

    Raises:
      DataError: the metric is not a mean over examples, or its least and greatest value are not known.
    """
    if not isinstance(metric, Metric) or metric.mean_of is None:
        raise DataError(
            f"missing='bound' needs a metric that is a mean over examples, such as accuracy, and found "
            f"{metric.name}; use missing='omit'"
        )
    values = [
        np.asarray(metric.columns(arm.labels, arm.predictions), float)[..., metric.mean_of]
        for arm in arms
    ]  # [runs, examples] each
    low, high = metric.bounds
    if not np.isfinite([low, high]).all():
        low, high = 0.0, 1.0
        if any(own.min() < low or own.max() > high for own in values):
            raise DataError(
                "missing='bound' needs scores from 0 to 1, as nothing is known of how low and how high "
                "others can be; use missing='omit'"
            )

    def filled(signs: Sequence[int]) -> list[Arm]:
        completed = []
        for arm, own, sign in zip(arms, values, signs, strict=True):
            missing = np.zeros(own.shape, bool) if arm.observed is None else ~arm.observed
            scores = np.where(missing, high if sign > 0 else low, own)
            labels = np.zeros(len(arm.labels))
            completed.append(replace(arm, predictions=scores, labels=labels, observed=None))
        return completed

    return (filled([-1]), filled([1])) if len(arms) == 1 else (filled([1, -1]), filled([-1, 1]))


def imbens_manski(
    ends: Interval, errors: tuple[float, float], degrees_of_freedom: float, confidence_level: float
) -> tuple[Interval, PValues]:
    """Returns Imbens and Manski's interval, and p-values against 0 by its inversion.

    With Student's t in place of the normal distribution, as seeds are few. Where the two ends are one, it is
    the usual interval; where they are far apart in standard errors, its ends are one-sided.

    Args:
      ends: the lowest and the highest estimate.
      errors: their standard errors.
      degrees_of_freedom: of the t.
      confidence_level: level of the interval.

    Example:
      >>> interval, p = imbens_manski(Interval(0.1, 0.3), (0.05, 0.05), float("inf"), 0.95)
      >>> [round(end, 3) for end in interval], round(p.two_sided, 3)
      ([0.018, 0.382], 0.023)
    """
    from scipy.optimize import brentq
    from scipy.special import stdtr, stdtrit

    below, above = errors
    largest = max(below, above)
    if largest == 0:
        beyond = float(ends.low <= 0 <= ends.high)
        return ends, PValues(float(ends.low <= 0), float(ends.high >= 0), beyond)
    width = (ends.high - ends.low) / largest

    def cumulative(value: float) -> float:
        return float(stdtr(degrees_of_freedom, value))

    def level(c: float) -> float:
        return cumulative(c + width) - cumulative(-c)

    most = float(stdtrit(degrees_of_freedom, (1 + confidence_level) / 2))
    c = brentq(lambda c: level(c) - confidence_level, 0, most + 1)
    interval = Interval(ends.low - c * below, ends.high + c * above)
    # An end without error uses the other's: its own would make any distance certain.
    distance = max(ends.low / (below or largest), -ends.high / (above or largest))
    return interval, PValues(
        cumulative(-ends.low / (below or largest)),
        cumulative(ends.high / (above or largest)),
        1.0 if distance <= 0 else 1 - level(distance),
    )


def _bounded_sameness(
    observed: Comparison, lowest: Comparison, highest: Comparison
) -> Sameness | None:
    """Returns what holds whatever the missing predictions are: each one-sided test at its worst end."""
    own, low, high = observed.sameness, lowest.sameness, highest.sameness
    if own is None or low is None or high is None:
        return None
    ci = ConfidenceInterval(low.ci.low, high.ci.high, own.ci.level, "bounds")
    return replace(own, ci=ci, p_lower=low.p_lower, p_upper=high.p_upper)


def with_bounds(observed: Comparison, lowest: Comparison, highest: Comparison) -> Comparison:
    """Returns a comparison whose interval and p hold whatever the missing predictions are.

    Args:
      observed: without the missing predictions.
      lowest: with the first of `extreme_arms`.
      highest: with the second.
    """
    ends = Interval(lowest.estimate, highest.estimate)
    if ends.low == ends.high:
        return observed  # nothing is missing
    interval, p_values = imbens_manski(
        ends,
        (lowest.standard_error, highest.standard_error),
        min(lowest.df, highest.df),
        observed.confidence_level,
    )
    least, most = (0.0, 1.0) if observed.experiment is None else (-1.0, 1.0)
    what = "score" if observed.experiment is None else "difference"
    note = (
        f"Whatever the missing predictions are, the {what} on these examples is between {ends.low:.3g} and "
        f"{ends.high:.3g} (as shares of 1). The interval {'and p are' if observed.p_values else 'is'} Imbens "
        "and Manski's (2004) for the true value; the estimate, and all other intervals, leave them out."
    )
    notes = [text.replace(LEFT_OUT, "are missing") for text in observed.notes]
    return replace(
        observed,
        ci=ConfidenceInterval(
            max(least, interval.low), min(most, interval.high), observed.ci.level, "Imbens-Manski"
        ),
        # The answer of unpaired seeds leaves the missing predictions out, and so is none here.
        intervals={name: ends for name, ends in observed.intervals.items() if name != "unpaired"},
        p_values={
            name: p_values if name == "t" else found
            for name, found in observed.p_values.items()
            if name != "unpaired"
        },
        sameness=_bounded_sameness(observed, lowest, highest),
        notes=(note, *notes),
        without_failed=None,
    )
