"""The recommended interval and test: the first matching case of one rule.

All intervals use this module, so that comparisons, slices, many arms and tasks follow the same rule. The
module also contains the formulas; variances are in `stats.variance.crossing`.

One score (`interval_of_score`):

1. The score is a correlation: the t interval on Fisher's z. 2. The score is near its bounds: Wilson's
interval; if all units have the score of a bound, Clopper and Pearson's. 3. Otherwise: the t interval, cut at
the bounds; the whole range if nothing varies.

A difference of two arms (`interval_of_difference`):

1. Paired answers differ on fewer than thirty examples: the difference is that of two small shares, of answers
   gained and of answers lost, and its interval is Newcombe's of these. Answers are paired by their example,
   and by their seed where the seeds of an arm are drawn.
2. Both arms are near their bounds, and not known to differ on many examples: Newcombe's interval of the arms.
3. Otherwise: the t interval, or the range.

Any other sum of means (`interval_of_sum`): the t interval, or the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from multiberts.evaluate.metrics.column_metric import UNBOUNDED
from multiberts.stats.intervals import ConfidenceInterval, Interval, PValues
from multiberts.stats.score import Score
from multiberts.stats.settings import Resample
from multiberts.stats.variance.crossing import Crossing, VarianceEstimate
from multiberts.stats.variance.score_tables import TablePart, summed_table

# A smaller standard error, relative to the scores, is rounding error of equal differences.
_ROUNDING = 1e-12
# If two arms differ on fewer examples, their difference is not close to normal.
FEW_DISCORDANT = 30


class ScoredArm(Protocol):
    """Attributes of an arm for the rule; see `stats.results.ArmSummary`."""

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
      number: number of examples (or clusters) on which any pair differs, counted up to `FEW_DISCORDANT`.
        Cells missing in either arm are not paired.
      tables: function that makes the tables of answers gained and lost [seeds, units] from common cells; the
        difference of their means is that of the arms. None if the score is not a mean of answers.
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
    """A score for the rule, see `ScoredArm`."""

    estimate: float
    standard_error: float
    df: float
    num_scored: float
    example_error: float


def interval_of_score(
    crossing: Crossing, estimate: float, level: float, score: Score, units: float = 1
) -> ConfidenceInterval:
    """Computes the recommended interval of one arm's score, the mean of the crossing.

    Args:
      units: number of drawn examples, clusters or seeds.
    """
    error, freedom = spread_of(crossing)
    tails = crossing.tail_freedom() if error else math.inf
    drawn = bool(crossing.seeds or crossing.examples)
    return interval_of_mean((estimate, error, freedom), level, score, units, tails, drawn)


def interval_of_mean(
    spread: tuple[float, float, float],
    level: float,
    score: Score,
    units: float,
    tail_freedom: float = math.inf,
    drawn: bool = True,
) -> ConfidenceInterval:
    """Computes `interval_of_score` from a score, its standard error and degrees of freedom.

    Args:
      units: number of independent examples, clusters or seeds.
      tail_freedom: degrees of freedom as in `score_interval`.
      drawn: whether any units are drawn; otherwise the score is exact and its interval a point.
    """
    estimate, error, freedom = spread
    at_bound = estimate in score.ends and math.isfinite(score.width)
    if drawn and error == 0 and (score.is_correlation or not at_bound):
        return _range(score.ends, level)
    if score.is_correlation:
        ends, method = fisher_t_interval(estimate, error, freedom, level), "Fisher z"
    elif is_near_bounds(estimate, error, freedom, level, score.ends):
        ends = score_interval(estimate, error, freedom, level, score.ends, units, tail_freedom)
        method = "Wilson" if error else "Clopper-Pearson"
    else:
        ends, method = t_interval(estimate, error, freedom, level), "t"
    return ConfidenceInterval(*clipped_interval(ends, score.ends), level, method)


def interval_of_difference(
    arms: Sequence[ScoredArm],
    crossing: Crossing,
    pairs: AnswerPairs | None,
    score: Score,
    resample: Resample,
    level: float,
    null: float = 0.0,
) -> tuple[ConfidenceInterval, PValues]:
    """Computes the recommended interval and test of a difference.

    Args:
      crossing: tables whose sum is the difference.
      pairs: paired answers of the arms to the same examples; None if they are not paired.
    """
    base, experiment = arms
    variance = crossing.unbiased_variance()
    estimate = experiment.estimate - base.estimate
    error = math.sqrt(variance.variance)
    if error <= _ROUNDING * max(abs(base.estimate), abs(experiment.estimate)):
        variance, error = VarianceEstimate(0.0, math.inf, math.inf), 0.0
    if math.isfinite(score.width) and not score.is_correlation and resample != "seeds":
        units = min(arm.num_scored for arm in arms)
        if pairs is not None and (score.is_mean or estimate == error == 0):
            # Use gained and lost answers, because the arms' intervals include the variance common to paired
            # seeds, which made paired intervals up to fifteen times too wide.
            if shares := _few_gained_and_lost(pairs, error, units, score.width, level):
                return _near_bounds(shares, estimate, variance, (0.0, score.width), level, null)
        # Use the error from examples with fixed seeds: true for about sixteen wrong answers or fewer.
        elif (pairs is None or pairs.few) and all(
            is_near_bounds(arm.estimate, arm.example_error, math.inf, level, score.ends)
            for arm in arms
        ):
            return _near_bounds(arms, estimate, variance, score.ends, level, null)
    return interval_of_sum(estimate, variance, level, (-score.width, score.width), null)


def interval_of_sum(
    estimate: float,
    variance: VarianceEstimate,
    level: float,
    span: tuple[float, float] = UNBOUNDED,
    null: float = 0.0,
) -> tuple[ConfidenceInterval, PValues]:
    """Computes the t interval and test of a sum of means; the range and p = 1 if nothing varies."""
    if variance.variance == 0:
        return _range(span, level), PValues(1.0, 1.0, 1.0)
    error, freedom = math.sqrt(variance.variance), variance.cautious_degrees_of_freedom
    ends = clipped_interval(t_interval(estimate, error, freedom, level), span)
    return ConfidenceInterval(*ends, level, "t"), t_p_values(estimate - null, error, freedom)


def spread_of(crossing: Crossing) -> tuple[float, float]:
    """Returns a standard error and its degrees of freedom: 0 and infinity if nothing is drawn."""
    if not crossing.seeds and not crossing.examples:
        return 0.0, math.inf
    variance = crossing.unbiased_variance()
    return math.sqrt(variance.variance), variance.cautious_degrees_of_freedom


def scored(crossing: Crossing, units: float) -> Scored:
    """Returns the mean of a crossing as a score for `interval_of_difference`."""
    return Scored(crossing.mean, *spread_of(crossing), units, crossing.example_error)


def is_near_bounds(
    estimate: float,
    standard_error: float,
    degrees_of_freedom: float,
    confidence_level: float,
    bounds: tuple[float, float],
) -> bool:
    """Returns whether a score's t interval, made twice as wide, leaves the bounds."""
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
    """Returns the shares of lost and gained answers if both are near 0, else an empty list."""
    if error == 0 and pairs.number == 0:
        return [Scored(0.0, 0.0, math.inf, units, 0.0)] * 2
    if pairs.tables is None or not (pairs.few or error == 0):
        return []
    gained, lost = pairs.gained_and_lost
    together = summed_table([gained.table, lost.table], [1.0, 1.0])
    either = Crossing([replace(gained, table=together)])
    near = either.mean, 0.0 if error == 0 else either.example_error, math.inf, level, (0.0, width)
    if not is_near_bounds(*near):
        return []
    return [scored(Crossing([part]), units) for part in (lost, gained)]


def _near_bounds(
    arms: Sequence[ScoredArm],
    estimate: float,
    variance: VarianceEstimate,
    bounds: tuple[float, float],
    level: float,
    null: float,
) -> tuple[ConfidenceInterval, PValues]:
    (first, second), width = arms, bounds[1] - bounds[0]
    product = first.standard_error * second.standard_error
    shared = first.standard_error**2 + second.standard_error**2 - variance.variance
    correlation = min(max(shared / (2 * product), -1.0), 1.0) if product else 0.0
    # Use the largest df, because with few seeds smaller ones are over-conservative near a bound.
    freedom = max(variance.cautious_degrees_of_freedom, first.df, second.df)
    # If only one arm lacks cells, the difference of the arms differs from that of the pairs.
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
    """Returns the whole range: equal seeds and examples give no information about the variance."""
    return ConfidenceInterval(*span, level, "range")


# Formulas of intervals and of the test by t.


def t_interval(
    estimate: float, standard_error: float, degrees_of_freedom: float, confidence_level: float
) -> Interval:
    """Computes estimate -+ t x standard error.

    Reference: Student (1908), The probable error of a mean.
    """
    from scipy.special import stdtrit

    reach = float(stdtrit(degrees_of_freedom, 1 - _tail(confidence_level))) * standard_error
    return Interval(estimate - reach, estimate + reach)


def fisher_t_interval(
    estimate: float, standard_error: float, degrees_of_freedom: float, confidence_level: float
) -> Interval:
    """Computes `t_interval` of a correlation on Fisher's scale, z = atanh r, and transforms it back.

    Without spread, or at -1 or 1 (z is infinite), it returns the plain interval.

    Args:
      standard_error: standard error of the correlation; that of z is larger by the factor 1 / (1 - r^2).

    Reference: Fisher (1921), On the "probable error" of a coefficient of correlation.
    """
    if standard_error == 0 or abs(estimate) >= 1:
        return t_interval(estimate, standard_error, degrees_of_freedom, confidence_level)
    error = standard_error / (1 - estimate**2)
    low, high = t_interval(math.atanh(estimate), error, degrees_of_freedom, confidence_level)
    return Interval(math.tanh(low), math.tanh(high))


def score_interval(
    estimate: float,
    standard_error: float,
    degrees_of_freedom: float,
    confidence_level: float,
    bounds: tuple[float, float],
    num_units: float,
    tail_freedom: float = math.inf,
) -> Interval:
    """Computes Wilson's interval with an effective sample size (from the standard error) and a t quantile.

    The effective size is the number of independent answers with this standard error. It can exceed the number
    of examples, because several seeds answer each example. If a few examples have all errors, the standard
    error is noisy; the interval then uses `tail_freedom`, but is at most as wide as with one answer per
    example. If every unit has the score of a bound, such as all answers right, the interval is Clopper and
    Pearson's.

    Args:
      bounds: smallest and largest possible score.
      num_units: number of independent examples, clusters or seeds.
      tail_freedom: degrees of freedom lowered for heavy tails of the examples; see
        `stats.variance.crossing.Crossing.tail_freedom`.

    Reference: Wilson (1927), Probable inference, the law of succession, and statistical inference; Korn
    & Graubard (1998), Confidence intervals for proportions with small expected number of positive
    counts estimated from survey data, for the effective sample size.
    """
    (low, high), width = bounds, bounds[1] - bounds[0]
    if standard_error == 0 or estimate in bounds:
        reach = width * clopper_pearson_interval(0, num_units, confidence_level).high
        # All answers of one seed can be right although other seeds add a spread.
        spread = t_interval(0.0, standard_error, degrees_of_freedom, confidence_level).high
        reach = min(max(reach, spread), width)
        return Interval(low, low + reach) if estimate == low else Interval(high - reach, high)
    share = (estimate - low) / width
    size = share * (1 - share) * (width / standard_error) ** 2

    def half(freedom: float, answers: float) -> float:
        return t_interval(0.0, 1.0, freedom, confidence_level).high ** 2 / (2 * answers)

    shift = half(degrees_of_freedom, size)
    if tail_freedom < degrees_of_freedom and size > num_units:
        shift = min(half(tail_freedom, size), half(degrees_of_freedom, num_units))
    reach = math.sqrt(2 * shift * share * (1 - share) + shift**2)
    ends = ((share + shift + sign * reach) / (1 + 2 * shift) for sign in (-1, 1))
    return clipped_interval(Interval(*(low + width * end for end in ends)), bounds)


def clopper_pearson_interval(number: int, trials: float, confidence_level: float) -> Interval:
    """Computes Clopper and Pearson's interval of a rate.

    Args:
      trials: number of trials, 1 or more; fractional if it is a mean over runs.

    Reference: Clopper & Pearson (1934), The use of confidence or fiducial limits.
    """
    from scipy.special import betaincinv

    tail = _tail(confidence_level)
    if number == 0:
        return Interval(0.0, 1 - tail ** (1 / trials))
    if number == trials:
        return Interval(tail ** (1 / trials), 1.0)
    low = betaincinv(number, trials - number + 1, tail)
    high = betaincinv(number + 1, trials - number, 1 - tail)
    return Interval(float(low), float(high))


def near_bounds_difference(
    base: tuple[float, float],
    experiment: tuple[float, float],
    degrees_of_freedom: float,
    correlation: float,
    bounds: tuple[float, float],
    num_units: tuple[float, float],
    confidence_level: float,
    null: float = 0.0,
) -> tuple[Interval, PValues]:
    """Computes interval and test of a difference of two scores near their bounds.

    The interval is Newcombe's, from the arms' score intervals, which are skewed. The limit facing the bound
    can be too tight if the standard error is underestimated, so neither limit is tighter than the normal
    one. The interval is cut at the possible differences. p is 1 minus the lowest level whose interval
    contains the tested difference.

    Args:
      base: estimate and standard error of the base.
      bounds: smallest and largest possible score.
      num_units: number of independent examples (or clusters) of each arm.
      confidence_level: level of the interval, in (0, 1).

    Reference: Newcombe (1998), Improved confidence intervals for the difference between binomial
    proportions based on paired data.
    """
    width, errors = bounds[1] - bounds[0], (base[1], experiment[1])
    squares = errors[0] ** 2 + errors[1] ** 2 - 2 * correlation * errors[0] * errors[1]
    error = math.sqrt(max(squares, 0.0))

    def interval(level: float) -> Interval:
        first, second = (
            (arm[0], score_interval(*arm, degrees_of_freedom, level, bounds, units))
            for arm, units in zip((base, experiment), num_units, strict=True)
        )
        low, high = difference_of_intervals(first, second, correlation)
        normal = t_interval(experiment[0] - base[0], error, math.inf, level)
        ends = Interval(min(low, normal.low), max(high, normal.high))
        return clipped_interval(ends, (-width, width))

    def holds_null(level: float) -> bool:
        low, high = interval(level)
        return low <= null <= high

    low, high = 0.0, 1 - 1e-12  # levels whose interval excludes and contains the null
    if holds_null(1e-9):
        high = 0.0
    # 50 bisections find p to 2^-50, about the precision of 1 - p in float64.
    for _ in range(50 if high else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if holds_null(middle) else (middle, high)
    p = 1 - high
    small, large = p / 2, 1 - p / 2
    above = experiment[0] - base[0] > null
    return interval(confidence_level), PValues(
        small if above else large, large if above else small, p
    )


def difference_of_intervals(
    base: tuple[float, Interval], experiment: tuple[float, Interval], correlation: float = 0.0
) -> Interval:
    """Computes the interval of a difference from the arms' estimates and intervals.

    Args:
      correlation: correlation of the two estimates, from common seeds or examples.

    Reference: Zou & Donner (2008), Construction of confidence limits about effect measures; Newcombe
    (1998), Improved confidence intervals for the difference between binomial proportions based on
    paired data, for the correlation.
    """
    (first, of_first), (second, of_second) = base, experiment
    difference = second - first

    def reach(x: float, y: float) -> float:
        return math.sqrt(max(x**2 + y**2 - 2 * correlation * x * y, 0.0))

    return Interval(
        difference - reach(second - of_second.low, of_first.high - first),
        difference + reach(of_second.high - second, first - of_first.low),
    )


def t_p_values(estimate: float, standard_error: float, degrees_of_freedom: float) -> PValues:
    """Tests a difference by Student's t; without spread p is 0 or 1 (1 for no difference).

    Args:
      estimate: difference between estimate and hypothesis.

    Reference: Student (1908), The probable error of a mean.
    """
    from scipy.special import stdtr

    if standard_error == 0:
        if estimate == 0:
            return PValues(1.0, 1.0, 1.0)
        return PValues(float(estimate < 0), float(estimate > 0), 0.0)
    statistic = estimate / standard_error
    less = float(stdtr(degrees_of_freedom, statistic))
    greater = float(stdtr(degrees_of_freedom, -statistic))
    return PValues(greater, less, min(1.0, 2 * min(greater, less)))


def percentile_interval(samples: ArrayLike, confidence_level: float) -> Interval:
    """Returns the middle `confidence_level` of bootstrap samples.

    Args:
      samples: bootstrap samples in the score's unit [replicates].

    Reference: Davison & Hinkley (1997), Bootstrap Methods and their Application, chapter 5.
    """
    tail = _tail(confidence_level)
    low, high = np.quantile(np.asarray(samples), [tail, 1 - tail])
    return Interval(float(low), float(high))


def clipped_interval(interval: Interval, bounds: tuple[float, float]) -> Interval:
    """Cuts an interval at the bounds of a score; infinite limits are unchanged."""
    ends = [min(max(end, bounds[0]), bounds[1]) if math.isfinite(end) else end for end in interval]
    return Interval(*ends)


def _tail(confidence_level: float) -> float:
    if not 0 < confidence_level < 1:
        raise ValueError(
            f"found confidence_level {confidence_level}, expected a number between 0 and 1"
        )
    return (1 - confidence_level) / 2
