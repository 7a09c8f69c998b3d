"""The result of a comparison, concluded from samples, exact variances and seed scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import UNBOUNDED
from multiberts.stats.compare.result import Comparison
from multiberts.stats.errors import DataError
from multiberts.stats.intervals import (
    ConfidenceInterval,
    PValues,
    bootstrap_p_values,
    bounded_t_interval,
    clipped_interval,
    fisher_t_interval,
    is_near_bounds,
    near_bounds_difference,
    percentile_interval,
    permutation_p_values,
    published_p_values,
    sign_flip_p_values,
    t_interval,
    t_p_values,
)
from multiberts.stats.presentation.metric_names import printed_unit
from multiberts.stats.results.comparison import ArmSummary, Pairing, Sameness, WithoutFailed
from multiberts.stats.settings import ComparisonSettings, Resample
from multiberts.stats.variance.crossing import Crossing, Term, VarianceEstimate
from multiberts.stats.variance.effect_size import EffectSizes, effect_sizes
from multiberts.stats.variance.score_tables import Array, ScoreTable

# A standard error that is smaller relative to the scores is what rounding leaves of equal differences.
_ROUNDING = 1e-12
# With fewer examples on which two arms differ, their difference is not near enough to normal.
_FEW_DISCORDANT = 30


@dataclass(frozen=True)
class ScoreKind:
    """Knowledge about a score besides its value.

    Attributes:
      metric: its name.
      is_correlation: whether it is a correlation.
      bounds: the smallest and the largest score there can be.
      is_mean: whether it is the mean of the examples' own scores.
      higher_is_better: which way it points; None where neither way is better, or nothing is known.
    """

    metric: str
    is_correlation: bool = False
    bounds: tuple[float, float] = UNBOUNDED
    is_mean: bool = False
    higher_is_better: bool | None = None


@dataclass(frozen=True)
class Names:
    """Names of a comparison and its arms in tables and texts."""

    name: str = ""
    evaluation_set: str = ""
    base: str = "base"
    experiment: str = "experiment"


def concluded(
    arms: Sequence[ArmSummary],
    crossing: Crossing,
    samples: NDArray[np.float64],
    undefined: NDArray[np.bool_],
    settings: ComparisonSettings,
    names: Names,
    kind: ScoreKind,
    unpaired: Crossing | None = None,
    pairing: Pairing | None = None,
    rest: Crossing | None = None,
) -> Comparison:
    """Computes intervals and tests from samples, exact variances and the scores of seeds.

    Args:
      arms: base, and the experiment unless the design is single.
      crossing: the tables whose sum is the estimate.
      samples: [replicates, arms].
      undefined: where a score was 0/0 [replicates, jobs].
      settings: of the comparison.
      names: of the comparison and its arms.
      kind: of the score.
      unpaired: of a paired design, the tables with the seeds of each arm in a pool of its own.
      pairing: see `Comparison`.
      rest: where seeds failed, the tables of the others.
    """
    base = arms[0]
    experiment = arms[1] if len(arms) > 1 else None
    differences = samples[:, 0] if experiment is None else samples[:, 1] - samples[:, 0]
    estimate = base.estimate if experiment is None else experiment.estimate - base.estimate
    unbiased, parts = crossing.unbiased_variance(), crossing.variance_parts()
    standard_error = math.sqrt(unbiased.variance)
    level = settings.confidence_level
    bounds = kind.bounds
    width = bounds[1] - bounds[0]
    span = bounds if experiment is None else (-width, width)
    # With a borrowed spread the bootstrap draws the one seed again and again.
    intervals = {} if settings.seed_sd is not None else percentile_of(differences, level)
    p_values: dict[str, PValues] = {}
    if experiment is None:
        ci = arm_interval(
            crossing, estimate, level, correlation=kind.is_correlation, bounds=bounds,
            units=base.num_scored,
        )  # fmt: skip
    else:
        ci, p_values["t"] = interval_and_test(arms, crossing, kind, settings.resample, level)
        if settings.seed_sd is None:
            p_values["percentile"] = bootstrap_p_values(differences)
            p_values["published"] = published_p_values(differences)
            p_values |= _seed_tests(arms, settings)
    if unpaired is not None:
        intervals["unpaired"], p_values["unpaired"] = interval_and_test(
            arms, unpaired, kind, settings.resample, level
        )
    same = None
    if settings.margin is not None:
        same = sameness(arms, crossing, kind, settings)
    floor = _seed_floor(settings, [len(arm.seeds) for arm in arms])
    mean = float(differences.mean())
    return Comparison(
        name=names.name,
        evaluation_set=names.evaluation_set,
        metric=kind.metric,
        design=settings.design,
        resample=settings.resample,
        base=base,
        experiment=experiment,
        num_examples=base.num_examples,
        estimate=estimate,
        ci=ci,
        standard_error=standard_error,
        df=unbiased.cautious_degrees_of_freedom,
        intervals=intervals,
        p_values=p_values,
        bootstrap_mean=mean,
        bias=mean - estimate,
        bootstrap_standard_error=math.sqrt(crossing.bootstrap_variance()),
        effect=_effect(arms, settings),
        seed_floor=floor,
        below_seed_floor=(
            floor is not None
            and "t" in p_values
            and parts.seed_share > 0.5
            and p_values["t"].two_sided < 1 - level
            and min(p_values["t"][:2]) < floor
        ),
        n_resamples=settings.n_resamples,
        rng=settings.rng,
        samples=samples,
        degenerate_replicates=int(undefined.any(axis=1).sum()),
        pairing=pairing,
        # Mean squares that are borrowed do not say of how many seeds they are shares, as plans need.
        variance_parts=parts if settings.seed_sd is None else None,
        borrowed=next((part.borrowed for part in crossing.parts if part.borrowed), None),
        pooled_seeds=unbiased.pooled and len(parts.seeds) == 2,
        without_failed=None if rest is None else without_failed(rest, level, span, len(arms) > 1),
        sameness=same,
    )


def interval_and_test(
    arms: Sequence[ArmSummary],
    crossing: Crossing,
    kind: ScoreKind,
    resample: Resample,
    level: float,
    prior: Term = (0.0, 0.0),
    null: float = 0.0,
) -> tuple[ConfidenceInterval, PValues]:
    """Computes the recommended interval and test of a difference.

    It is the t interval unless the scores are bounded and few examples decide:

    - Where seeds and examples are paired, and the arms differ on fewer than thirty examples, the
      difference is that of two small shares: of answers gained and of answers lost. What all seeds have
      in common plays no part in them. For a score that is not a mean, both arms must be near the bounds.
    - Elsewhere where both arms are near their bounds, judged by what examples add to their standard
      errors with the seeds held fixed.

    Then it comes from the score intervals of the two (`stats.intervals.near_bounds_difference`).

    Args:
      arms: base and experiment.
      crossing: the tables whose sum is the difference.
      kind: of the score.
      resample: what is resampled.
      level: of the interval, in (0, 1).
      prior: as in `Crossing.unbiased_variance`.
      null: the difference that is tested.
    """
    base, experiment = arms
    variance = crossing.unbiased_variance(prior)
    estimate = experiment.estimate - base.estimate
    error, freedom = math.sqrt(variance.variance), variance.cautious_degrees_of_freedom
    if error <= _ROUNDING * max(abs(base.estimate), abs(experiment.estimate)):
        error = 0.0
    width = kind.bounds[1] - kind.bounds[0]
    if math.isfinite(width) and not kind.is_correlation and resample != "seeds":
        paired = len(crossing.parts) == 1
        if paired and (kind.is_mean or estimate == error == 0):
            if error == 0 or _differ_seldom(crossing, width, level):
                two = _lost_and_gained(crossing, min(arm.num_scored for arm in arms))
                return _of_near_bounds(two, variance, (0.0, width), level, null)
        elif all(
            is_near_bounds(arm.estimate, arm.example_error, math.inf, level, kind.bounds)
            for arm in arms
        ) and not (paired and _num_discordant(crossing.parts[0].table) >= _FEW_DISCORDANT):
            return _of_near_bounds(arms, variance, kind.bounds, level, null)
    if error == 0:
        return _nothing_varies((-width, width), level)
    plain = clipped_interval(t_interval(estimate, error, freedom, level), (-width, width))
    return ConfidenceInterval(*plain, level, "t"), t_p_values(estimate - null, error, freedom)


def sameness(
    arms: Sequence[ArmSummary],
    crossing: Crossing,
    kind: ScoreKind,
    settings: ComparisonSettings,
) -> Sameness:
    """Tests whether two arms are equal within the settings' margin, by two one-sided tests.

    Both are at one less the confidence level, so that they find what the recommended interval at
    one less twice that shows.

    Args:
      arms: base and experiment.
      crossing: the tables whose sum is the difference.
      kind: of the score.
      settings: of the comparison, with a margin in the unit that readers see.

    Raises:
      DataError: the margin is half of the metric's range or more.

    Reference: Schuirmann (1987), A comparison of the two one-sided tests procedure and the power approach
    for assessing the equivalence of average bioavailability.
    """
    assert settings.margin is not None
    unit, width = printed_unit(kind.metric), kind.bounds[1] - kind.bounds[0]
    margin = settings.margin * unit
    if margin >= width / 2:
        of_unit = "points" if unit != 1 else f"the unit of {kind.metric}, not in points"
        raise DataError(
            f"found margin {settings.margin:g}, half of the range of {kind.metric} or more; it is in "
            f"{of_unit}, expected below {width / 2 / unit:g}"
        )
    level = 2 * settings.confidence_level - 1
    (ci, below), (_, above) = (
        interval_and_test(arms, crossing, kind, settings.resample, level, null=null)
        for null in (-margin, margin)
    )
    refused = settings.resample != "examples" and any(arm.failed_seeds for arm in arms)
    return Sameness(margin, ci, below.greater, above.less, kind.higher_is_better, refused)


class _Share(NamedTuple):
    """Inputs of `_of_near_bounds` for one arm."""

    estimate: float
    standard_error: float
    df: float
    num_scored: float


def _of_near_bounds(
    arms: Sequence[ArmSummary | _Share],
    variance: VarianceEstimate,
    bounds: tuple[float, float],
    level: float,
    null: float,
) -> tuple[ConfidenceInterval, PValues]:
    first, second = arms
    product = first.standard_error * second.standard_error
    shared = first.standard_error**2 + second.standard_error**2 - variance.variance
    correlation = min(max(shared / (2 * product), -1.0), 1.0) if product else 0.0
    # The largest: with few seeds the smaller ones are over-conservative near a bound.
    freedom = max(variance.cautious_degrees_of_freedom, first.df, second.df)
    ends, p_values = near_bounds_difference(
        (first.estimate, first.standard_error),
        (second.estimate, second.standard_error),
        freedom,
        correlation,
        bounds,
        (first.num_scored, second.num_scored),
        level,
        null,
    )
    return ConfidenceInterval(*ends, level, "Newcombe"), p_values


def _differ_seldom(crossing: Crossing, width: float, level: float) -> bool:
    """Returns whether arms differ on so few examples that the share of these is near 0."""
    (part,) = crossing.parts
    if _num_discordant(part.table) >= _FEW_DISCORDANT:
        return False
    share = _mapped(crossing, np.abs)
    return is_near_bounds(share.mean, share.example_error, math.inf, level, (0.0, width))


def _mapped(crossing: Crossing, function: Callable[[Array], Array]) -> Crossing:
    """Returns the crossing of a function of the cells of one table."""
    (part,) = crossing.parts
    table = ScoreTable(part.table.shape, lambda: map(function, part.table.blocks()))
    return Crossing([replace(part, table=table)])


def _num_discordant(differences: ScoreTable) -> int:
    """Counts examples on which the arms of any seed differ; stops once they are not few."""
    number = 0
    for block in differences.blocks():
        number += int(block.any(axis=0).sum())
        if number >= _FEW_DISCORDANT:
            break
    return number


def _lost_and_gained(crossing: Crossing, units: float) -> list[_Share]:
    """Splits a table of differences into answers lost and gained; gained less lost is the difference."""
    found = []
    for part_of in (lambda cells: np.maximum(-cells, 0.0), lambda cells: np.maximum(cells, 0.0)):
        own = _mapped(crossing, part_of)
        spread = own.unbiased_variance()
        error = math.sqrt(spread.variance)
        found.append(_Share(own.mean, error, spread.cautious_degrees_of_freedom, units))
    return found


def _nothing_varies(span: tuple[float, float], level: float) -> tuple[ConfidenceInterval, PValues]:
    """Returns what is known where all seeds and examples have one difference: nothing about others."""
    return ConfidenceInterval(*span, level, "range"), PValues(1.0, 1.0, 1.0)


def without_failed(
    rest: Crossing, confidence_level: float, span: tuple[float, float], tested: bool
) -> WithoutFailed:
    """Returns the result of the seeds that did not fail.

    Args:
      rest: the crossing without failed seeds.
      confidence_level: level of the interval.
      span: the smallest and the largest estimate there can be.
      tested: whether the estimate is a difference, which has a p-value.
    """
    found = rest.unbiased_variance()
    t_of = rest.mean, math.sqrt(found.variance), found.cautious_degrees_of_freedom
    plain, p_values = clipped_interval(t_interval(*t_of, confidence_level), span), t_p_values(*t_of)
    ci = ConfidenceInterval(*plain, confidence_level, "t")
    if found.variance == 0:
        ci, p_values = _nothing_varies(span, confidence_level)
    return WithoutFailed(rest.mean, ci, p_values.two_sided if tested else None)


def arm_interval(
    crossing: Crossing,
    estimate: float,
    confidence_level: float,
    *,
    correlation: bool = False,
    bounds: tuple[float, float] = UNBOUNDED,
    units: float = 1,
) -> ConfidenceInterval:
    """Computes the recommended interval of one arm's score, whose table is the crossing's.

    The spread of a correlation depends on its size (that of a difference of two hardly does), so it
    is computed on Fisher's z; see `stats.intervals.bounded_t_interval` for other scores.

    Args:
      crossing: of the arm.
      estimate: its score.
      confidence_level: level, in (0, 1).
      correlation: whether the score is a correlation.
      bounds: the smallest and the largest score there can be.
      units: the number of its examples, clusters or seeds, whichever are drawn.
    """
    error, freedom = arm_spread(crossing)
    drawn = bool(crossing.seeds or crossing.examples)
    at_bound = estimate in bounds and math.isfinite(bounds[1] - bounds[0])
    if drawn and error == 0 and (correlation or not at_bound):
        return _nothing_varies(bounds, confidence_level)[0]
    spread = estimate, error, freedom, confidence_level
    if correlation:
        return ConfidenceInterval(*fisher_t_interval(*spread), confidence_level, "Fisher z")
    tails = crossing.tail_freedom() if error else math.inf
    ends = bounded_t_interval(*spread, bounds, units, tails)
    method = "t"
    if is_near_bounds(*spread, bounds):
        method = "Wilson" if error else "Clopper-Pearson"
    return ConfidenceInterval(*ends, confidence_level, method)


def percentile_of(
    samples: NDArray[np.float64], confidence_level: float
) -> dict[str, ConfidenceInterval]:
    """Returns the bootstrap's interval, by its name."""
    ends = percentile_interval(samples, confidence_level)
    return {"percentile": ConfidenceInterval(*ends, confidence_level, "percentile")}


def arm_spread(crossing: Crossing) -> tuple[float, float]:
    """Returns an arm's standard error and degrees of freedom: 0 and infinity where nothing is drawn."""
    if not crossing.seeds and not crossing.examples:
        return 0.0, math.inf
    found = crossing.unbiased_variance()
    return math.sqrt(found.variance), found.cautious_degrees_of_freedom


def _seed_tests(arms: Sequence[ArmSummary], settings: ComparisonSettings) -> dict[str, PValues]:
    """Tests by sign flips or permutations of seeds, where the design has them."""
    first, second = (arm.seed_scores for arm in arms)
    if settings.resample == "examples":
        return {}
    if settings.design == "paired":
        return {"sign flip": sign_flip_p_values(second - first)}
    if settings.design == "unpaired":
        return {"permutation": permutation_p_values(first, second)}
    return {}


def _effect(arms: Sequence[ArmSummary], settings: ComparisonSettings) -> EffectSizes | None:
    if len(arms) < 2 or min(len(arm.seeds) for arm in arms) < 2:
        return None
    paired = settings.design == "paired"
    return effect_sizes(arms[0].seed_scores, arms[1].seed_scores, paired)


def _seed_floor(settings: ComparisonSettings, numbers: Sequence[int]) -> float | None:
    if settings.design == "single" or settings.resample == "examples" or settings.seed_sd:
        return None
    if settings.design == "unpaired":
        return 1 / math.comb(sum(numbers), numbers[0])
    return 2.0 ** -numbers[-1]
