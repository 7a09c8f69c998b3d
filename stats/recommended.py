"""The recommended interval and test: one rule for all, from top to bottom.

Everything that prints an interval asks here, so that a rule is the same for whole comparisons, slices, many
arms and tasks. The formulas are in `stats.intervals`, the variances in `stats.variance.crossing`.

One score (`interval_of_score`):

1. It is a correlation: the t on Fisher's z.
2. It is near its bounds: Wilson's interval; where all units have the score of a bound, Clopper and Pearson's.
3. Else: the t, cut off at the bounds. Where nothing varies nothing is known of others, and it is the range.

A difference of two arms (`interval_of_difference`):

1. Paired answers differ on fewer than thirty examples: the difference is that of two small shares, of answers
   gained and of answers lost, and its interval is Newcombe's of these. Answers are paired by their example,
   and by their seed where the seeds of an arm are drawn.
2. Both arms are near their bounds, and not known to differ on many examples: Newcombe's, of the arms.
3. Else: the t, or the range.

Any other sum of means (`interval_of_sum`): the t, or the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from multiberts.stats.intervals import (
    ConfidenceInterval,
    Interval,
    PValues,
    clipped_interval,
    fisher_t_interval,
    near_bounds_difference,
    score_interval,
    t_interval,
    t_p_values,
)
from multiberts.stats.settings import Resample
from multiberts.stats.variance.crossing import Crossing, VarianceEstimate
from multiberts.stats.variance.score_tables import TablePart, summed_table

# A standard error that is smaller relative to the scores is what rounding leaves of equal differences.
_ROUNDING = 1e-12
# With fewer examples on which two arms differ, their difference is not near enough to normal.
FEW_DISCORDANT = 30
_UNBOUNDED = (-math.inf, math.inf)


@dataclass(frozen=True)
class ScoreKind:
    """Knowledge about a score besides its value.

    Attributes:
      is_correlation: whether it is a correlation.
      is_mean: whether it is the mean of the examples' own scores.
      higher_is_better: which way it points; None where neither way is better, or nothing is known.
    """

    metric: str
    is_correlation: bool = False
    bounds: tuple[float, float] = _UNBOUNDED
    is_mean: bool = False
    higher_is_better: bool | None = None

    @property
    def width(self) -> float:
        return self.bounds[1] - self.bounds[0]


class ScoredArm(Protocol):
    """Attributes of an arm that the rule reads; see `stats.results.comparison.ArmSummary`."""

    @property
    def estimate(self) -> float: ...
    @property
    def standard_error(self) -> float: ...
    @property
    def df(self) -> float: ...
    @property
    def example_error(self) -> float: ...
    @property
    def num_scored(self) -> float: ...


@dataclass(frozen=True)
class AnswerPairs:
    """Answers of two arms to the same examples.

    Attributes:
      number: examples (or clusters) on which some pair differs, counted up to `FEW_DISCORDANT`. A cell that
        either arm lacks makes no pair.
      tables: makes the tables of answers gained and lost [seeds, units] from the cells that both have; their
        means differ by the difference of the arms. None where the score is not a mean of answers.
    """

    number: int
    tables: Callable[[], tuple[TablePart, TablePart]] | None

    @property
    def few(self) -> bool:
        return self.number < FEW_DISCORDANT

    @cached_property
    def gained_and_lost(self) -> tuple[TablePart, TablePart]:
        assert self.tables is not None
        return self.tables()


class Scored(NamedTuple):
    """A score as the rule reads it, see `ScoredArm`."""

    estimate: float
    standard_error: float
    df: float
    num_scored: float
    example_error: float


def interval_of_score(
    crossing: Crossing, estimate: float, level: float, kind: ScoreKind, units: float = 1
) -> ConfidenceInterval:
    """Computes the recommended interval of one arm's score, whose table is the crossing's.

    Args:
      level: of the interval, in (0, 1).
      units: the number of its examples, clusters or seeds, whichever are drawn.
    """
    error, freedom = spread_of(crossing)
    tails = crossing.tail_freedom() if error else math.inf
    drawn = bool(crossing.seeds or crossing.examples)
    return interval_of_mean((estimate, error, freedom), level, kind, units, tails, drawn)


def interval_of_mean(
    spread: tuple[float, float, float],
    level: float,
    kind: ScoreKind,
    units: float,
    tail_freedom: float = math.inf,
    drawn: bool = True,
) -> ConfidenceInterval:
    """Computes `interval_of_score` from a score, its standard error and the degrees of freedom of that.

    Args:
      level: of the interval, in (0, 1).
      units: independent examples (or clusters, or seeds) behind it.
      tail_freedom: as in `stats.intervals.score_interval`.
      drawn: whether anything is drawn: else the score is known, and its interval is one point.
    """
    estimate, error, freedom = spread
    at_bound = estimate in kind.bounds and math.isfinite(kind.width)
    if drawn and error == 0 and (kind.is_correlation or not at_bound):
        return _range(kind.bounds, level)
    if kind.is_correlation:
        ends, method = fisher_t_interval(estimate, error, freedom, level), "Fisher z"
    elif is_near_bounds(estimate, error, freedom, level, kind.bounds):
        ends = score_interval(estimate, error, freedom, level, kind.bounds, units, tail_freedom)
        method = "Wilson" if error else "Clopper-Pearson"
    else:
        ends, method = t_interval(estimate, error, freedom, level), "t"
    return ConfidenceInterval(*clipped_interval(ends, kind.bounds), level, method)


def interval_of_difference(
    arms: Sequence[ScoredArm],
    crossing: Crossing,
    pairs: AnswerPairs | None,
    kind: ScoreKind,
    resample: Resample,
    level: float,
    null: float = 0.0,
) -> tuple[ConfidenceInterval, PValues]:
    """Computes the recommended interval and test of a difference.

    Args:
      crossing: the tables whose sum is the difference.
      pairs: their answers to the same examples; None where these are not paired.
      level: of the interval, in (0, 1).
    """
    base, experiment = arms
    variance = crossing.unbiased_variance()
    estimate = experiment.estimate - base.estimate
    error = math.sqrt(variance.variance)
    if error <= _ROUNDING * max(abs(base.estimate), abs(experiment.estimate)):
        variance, error = VarianceEstimate(0.0, math.inf, math.inf), 0.0
    if math.isfinite(kind.width) and not kind.is_correlation and resample != "seeds":
        units = min(arm.num_scored for arm in arms)
        if pairs is not None and (kind.is_mean or estimate == error == 0):
            if shares := _few_gained_and_lost(pairs, error, units, kind.width, level):
                return _near_bounds(
                    shares, estimate, variance, (0.0, kind.width), kind.width, level, null
                )
        elif (pairs is None or pairs.few) and all(
            is_near_bounds(arm.estimate, arm.example_error, math.inf, level, kind.bounds)
            for arm in arms
        ):
            return _near_bounds(arms, estimate, variance, kind.bounds, kind.width, level, null)
    return interval_of_sum(estimate, variance, level, (-kind.width, kind.width), null)


def interval_of_sum(
    estimate: float,
    variance: VarianceEstimate,
    level: float,
    span: tuple[float, float] = _UNBOUNDED,
    null: float = 0.0,
) -> tuple[ConfidenceInterval, PValues]:
    """Computes the t interval and test of a sum of means, or what is known where nothing varies.

    Args:
      level: of the interval, in (0, 1).
    """
    if variance.variance == 0:
        return _range(span, level), PValues(1.0, 1.0, 1.0)
    error, freedom = math.sqrt(variance.variance), variance.cautious_degrees_of_freedom
    ends = clipped_interval(t_interval(estimate, error, freedom, level), span)
    return ConfidenceInterval(*ends, level, "t"), t_p_values(estimate - null, error, freedom)


def spread_of(crossing: Crossing) -> tuple[float, float]:
    """Returns a standard error and its degrees of freedom: 0 and infinity where nothing is drawn."""
    if not crossing.seeds and not crossing.examples:
        return 0.0, math.inf
    variance = crossing.unbiased_variance()
    return math.sqrt(variance.variance), variance.cautious_degrees_of_freedom


def scored(crossing: Crossing, units: float) -> Scored:
    """Returns the score that is a crossing's mean, for `interval_of_difference`."""
    return Scored(crossing.mean, *spread_of(crossing), units, crossing.example_error)


def is_near_bounds(
    estimate: float,
    standard_error: float,
    degrees_of_freedom: float,
    confidence_level: float,
    bounds: tuple[float, float],
) -> bool:
    """Returns whether a score lies so near its bounds that its t interval, twice as wide, leaves them."""
    low, high = bounds
    if not math.isfinite(high - low):
        return False
    if standard_error == 0:
        return estimate in bounds
    plain = t_interval(estimate, standard_error, degrees_of_freedom, confidence_level)
    twice = 2 * (plain.high - estimate)
    inside = estimate - twice >= low and estimate + twice <= high
    return low <= estimate <= high and not inside


def _few_gained_and_lost(
    pairs: AnswerPairs, error: float, units: float, width: float, level: float
) -> list[Scored]:
    """Returns the shares of answers lost and gained where so few differ that both are near 0."""
    if error == 0 and pairs.number == 0:
        return [Scored(0.0, 0.0, math.inf, units, 0.0)] * 2
    if pairs.tables is None or not (pairs.few or error == 0):
        return []
    gained, lost = pairs.gained_and_lost
    either = Crossing([_sum_of(gained, lost)])
    near = either.mean, 0.0 if error == 0 else either.example_error, math.inf, level, (0.0, width)
    if not is_near_bounds(*near):
        return []
    shares = []
    for part in (lost, gained):
        crossing = Crossing([part])
        shares.append(scored(crossing, units))
    return shares


def _sum_of(first: TablePart, second: TablePart) -> TablePart:
    table = summed_table([first.table, second.table], [1.0, 1.0])
    return TablePart(table, 1.0, first.pool, first.examples, first.scored, sizes=first.sizes)


def _near_bounds(
    arms: Sequence[ScoredArm],
    estimate: float,
    variance: VarianceEstimate,
    bounds: tuple[float, float],
    width: float,
    level: float,
    null: float,
) -> tuple[ConfidenceInterval, PValues]:
    first, second = arms
    product = first.standard_error * second.standard_error
    shared = first.standard_error**2 + second.standard_error**2 - variance.variance
    correlation = min(max(shared / (2 * product), -1.0), 1.0) if product else 0.0
    # The largest: with few seeds the smaller ones are over-conservative near a bound.
    freedom = max(variance.cautious_degrees_of_freedom, first.df, second.df)
    # Cells that one arm alone lacks make the difference of the arms another than that of the pairs.
    shift = estimate - (second.estimate - first.estimate)
    ends, p_values = near_bounds_difference(
        (first.estimate, first.standard_error),
        (second.estimate, second.standard_error),
        freedom,
        correlation,
        bounds,
        (first.num_scored, second.num_scored),
        level,
        null - shift,
    )
    shifted = clipped_interval(Interval(ends.low + shift, ends.high + shift), (-width, width))
    return ConfidenceInterval(*shifted, level, "Newcombe"), p_values


def _range(span: tuple[float, float], level: float) -> ConfidenceInterval:
    """Returns what is known where all seeds and examples are alike: nothing about others."""
    return ConfidenceInterval(*span, level, "range")
