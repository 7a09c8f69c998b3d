"""The result of a comparison, concluded from samples, exact variances and seed scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import UNBOUNDED
from multiberts.stats.bootstrap.aggregation import Aggregate
from multiberts.stats.bootstrap.answers import ShortAnswers, opposite_chance, short_answers
from multiberts.stats.bootstrap.corrections import check_num_bootstrap, check_whole
from multiberts.stats.bootstrap.crossing import Crossing, Term, VarianceEstimate, VarianceParts
from multiberts.stats.bootstrap.effect_size import EffectSizes, effect_sizes
from multiberts.stats.bootstrap.plan import TARGET_POWER, Plan, estimated_plan, too_few_to_plan
from multiberts.stats.bootstrap.resampling import DrawSource, KeyedDraws, PublishedDraws
from multiberts.stats.bootstrap.score_tables import Array, Resample, ScoreTable
from multiberts.stats.errors import DataError, check_choice
from multiberts.stats.intervals import (
    Interval,
    PValues,
    acceleration,
    basic_interval,
    bca_interval,
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
    studentised_interval,
    t_interval,
    t_p_values,
)
from multiberts.stats.readable import EqualByContent, Readable

Design = Literal["paired", "unpaired", "fixed_baseline", "single"]
Examples = Literal["shared", "separate"]
DrawOrder = Literal["keyed", "published"]
Pairing = Literal["parent", "seed number"]
# Standard errors of a seed's score from which on it is far from chance.
_FAR_FROM_CHANCE = 10
# A standard error that is smaller relative to the scores is what rounding leaves of equal differences.
_ROUNDING = 1e-12
# With fewer examples on which two sides differ, their difference is not near enough to normal.
_FEW_DISCORDANT = 30


@dataclass(frozen=True, eq=False)
class ArmSummary(EqualByContent):
    """One side of a comparison.

    Attributes:
      name: the procedure.
      estimate: mean over seeds of the mean over runs of the score on all examples.
      percentile: the bootstrap's percentile interval of it.
      t: the recommended interval of it, for new seeds and examples as far as the comparison draws
        them.
      seeds: pre-training seeds [R].
      seed_scores: score of each seed, its runs averaged [R].
      num_runs: fine-tuning runs.
      num_examples: examples.
      num_clusters: clusters of examples, or None where examples are drawn one by one.
      cluster_name: what the clusters are called, or nothing.
      left_out: seeds that pairing left out, because the other side lacks them.
      failed_seeds: seeds that look as if their training had failed, see `failed_seeds`.
      failure_rate: Clopper and Pearson's interval of the share of seeds that fail. None where none
        failed and nothing follows from that: a failed seed could not be told from others
        (`failures_show`), every seed is constant, seeds are not drawn, or their average is one that
        failures hardly move.
      constant_seeds: seeds all of whose runs give every example one answer: they predict one class (of
        correlations and the AUC, one value), or score the same below 1 on every example where scores
        are given. Where others do not, they are failed seeds, too.
      standard_error, degrees_of_freedom: of the estimate, as in `Comparison`.
      example_error: the standard error that examples alone give, with the seeds held fixed.
      num_scored: examples (or clusters) that the score rests on near its bounds: all of them for an
        accuracy, the positives for a recall (`evaluate.metrics.column_metric.Metric.scored`).
    """

    name: str
    estimate: float
    percentile: Interval
    t: Interval
    seeds: tuple
    seed_scores: NDArray[np.float64]
    num_runs: int
    num_examples: int
    num_clusters: int | None = None
    cluster_name: str = ""
    left_out: tuple = ()
    failed_seeds: tuple = ()
    failure_rate: Interval | None = None
    constant_seeds: tuple = ()
    standard_error: float = 0.0
    degrees_of_freedom: float = math.inf
    example_error: float = 0.0
    num_scored: float = math.inf

    @property
    def num_units(self) -> int:
        """Returns the number of clusters, or of examples where these are drawn one by one."""
        return self.num_clusters or self.num_examples


@dataclass(frozen=True)
class ScoreKind:
    """What is known of a score beside its value.

    Attributes:
      metric: its name.
      is_correlation: whether it is a correlation.
      bounds: the smallest and the largest score there can be.
      is_mean: whether it is the mean of the examples' own scores.
    """

    metric: str
    is_correlation: bool = False
    bounds: tuple[float, float] = UNBOUNDED
    is_mean: bool = False


@dataclass(frozen=True)
class Remainder:
    """The result of the seeds that did not fail; see `Comparison`."""

    estimate: float
    t: Interval
    p_t: PValues | None


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Readable):
    """The estimated difference experiment - base, or one procedure's score (`single`), with tests.

    `print(result)` gives the finding in words and a small table; `to_frame()`, `to_dict()` (for JSON),
    `latex()`, `plot()` and `methods()` (a paragraph for a paper) give the rest.

    Attributes:
      name, evaluation_set, metric: what is compared, on what, by which score.
      design: `paired` (the same seeds, drawn together), `unpaired` (own seeds),
        `fixed_baseline` (the base is exactly that set of runs, such as one published checkpoint)
        or `single` (base alone).
      resample: what the intervals generalise to: `both` new seeds and new examples, or one of them.
      base, experiment: the two sides; `experiment` is None in a `single` design.
      num_examples: examples of the base; shared by both sides unless `examples` is `separate`.
      estimate: the plug-in estimate: the difference of the two sides' scores; the base's score in a
        `single` design.
      bootstrap_mean: mean of its bootstrap samples.
      bias: the bootstrap's estimate of the bias of `estimate`: bootstrap_mean - estimate.
      standard_error: of `estimate`, the root of an unbiased variance (see
        `stats.bootstrap.crossing`).
      degrees_of_freedom: of the t: the cautious ones of
        `stats.bootstrap.crossing.VarianceEstimate`.
      bootstrap_standard_error: the exact standard deviation of the bootstrap distribution (of
        its linear part, where the metric is not a mean).
      confidence: level of all intervals.
      t: the recommended interval: estimate -+ t x standard error, within the metric's bounds. For
        one procedure it is computed on Fisher's z (correlations) or, near the bounds, is Wilson's
        score interval (`stats.intervals.score_interval`); where all answers are right, or wrong, it
        is Clopper and Pearson's on the examples. Where so few examples are wrong on both sides of a
        difference, or so few differ between paired sides, that it is far from normal, it comes from
        score intervals, see `interval_and_test`. It reaches from one end of the range to the other
        where nothing varies and nothing follows from that.
      percentile: the published interval. Too narrow with few seeds.
      basic, bca: other intervals from the same samples. Also too narrow with few seeds.
      studentised: from each replicate's own standard error. Wide with few seeds. None where it
        was not requested.
      p_t: the recommended p-values, of the same interval; None in a `single` design, as all p-values.
      p_percentile: (k + 1) / (B + 1) from the samples.
      p_published: k / B, at least 1 / B: the published form.
      p_sign_flip: randomisation test of the signs of paired seeds, on these examples only: it does
        not ask whether new examples would agree. None in other designs, or where seeds are not
        resampled.
      p_permutation: the same of the seeds of unpaired sides; None likewise.
      effect: effect sizes over seeds; None in a `single` design or with one seed per side.
      seed_floor: the smallest one-sided p that the order of the seeds alone can give: 2**-R paired
        or against a fixed baseline, else one over the number of ways to assign the seeds to the
        two sides; None where seeds are not resampled.
      below_seed_floor: whether the difference is significant, seeds carry it (more than half of
        the variance) and the t's p lies under that floor, so that it relies on seeds being normally
        distributed.
      num_bootstrap, bootstrap_seed: replicates and the seed of their draws.
      samples: bootstrap scores [replicates, 2] of (base, experiment), or [replicates, 1].
      degenerate_replicates: replicates where a score was 0/0 and took its defined value.
      examples: whether the two sides share their examples.
      pairing: what pairs the seeds of a paired design: `parent` where the data say that runs of one
        seed descend from one checkpoint (by a coordinate `parent`, `procedure` or `lineage` that
        both sides have in common), else `seed number`, which may be chance. None in other designs.
      without_failed: estimate, `t` and `p_t` without the seeds that look as if their training had
        failed (of a paired design, without their pairs); None where there are none, or too few
        others.
      notes: what readers must know of the data, such as copies of one run under two seeds.
      variance_parts: the mean squares behind the standard error.
      pooled_seeds: whether the seeds of unpaired sides were alike enough for their mean squares to be
        pooled, which gives 2R - 2 degrees of freedom where Welch's formula gives fewer.
      unpaired_t, p_unpaired_t: what `t` and `p_t` would be, were the seeds unrelated. None in
        other designs, and for a macro-average.

    Example:
      >>> from xarray import DataArray
      >>> from multiberts import stats
      >>> rows, dims = [[1, 0, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1]], ("pretrain_seed", "example")
      >>> right = DataArray(rows, {"pretrain_seed": [0, 1, 2]}, dims)
      >>> labels = DataArray([1, 1, 1, 1], dims="example")
      >>> result = stats.compare(right, None, "accuracy", "single", labels=labels)
      >>> round(result.estimate, 3), result.base.seeds, result.p_t
      (0.667, (0, 1, 2), None)
      >>> print(result)
      Across 3 seeds (3 runs) and 4 examples, accuracy of base is 66.67 % (95 % CI 17.39 to 95.00 %).
      <BLANKLINE>
      |      | accuracy (%) | 95% t interval (%) | seeds |
      |------|-------------:|-------------------:|------:|
      | base | 66.67        | 17.39 to 95.00     | 3     |
    """

    name: str
    evaluation_set: str
    metric: str
    design: Design
    resample: Resample
    base: ArmSummary
    experiment: ArmSummary | None
    num_examples: int
    estimate: float
    bootstrap_mean: float
    bias: float
    standard_error: float
    degrees_of_freedom: float
    bootstrap_standard_error: float
    confidence: float
    t: Interval
    percentile: Interval
    basic: Interval
    bca: Interval
    studentised: Interval | None
    p_t: PValues | None
    p_percentile: PValues | None
    p_published: PValues | None
    p_sign_flip: PValues | None
    p_permutation: PValues | None
    effect: EffectSizes | None
    seed_floor: float | None
    below_seed_floor: bool
    num_bootstrap: int
    bootstrap_seed: int
    samples: NDArray[np.float64]
    degenerate_replicates: int
    examples: Examples = "shared"
    pairing: Pairing | None = None
    unpaired_t: Interval | None = None
    p_unpaired_t: PValues | None = None
    variance_parts: VarianceParts | None = None
    without_failed: Remainder | None = None
    pooled_seeds: bool = False
    notes: tuple[str, ...] = ()

    def plan(
        self,
        num_seeds: int | None = None,
        num_examples: int | None = None,
        effect: float | None = None,
        target_power: float = TARGET_POWER,
        sides: int = 2,
    ) -> Plan:
        """Plans a study like this one: its power, what it can detect, the seeds or examples it needs.

        Args:
          num_seeds: of each arm (of the one with fewer); None: as here.
          num_examples: None: as here.
          effect: the true difference to be found; None: the estimate, unless it is within one standard
            error of 0, where not even its sign is known.
          target_power: the probability with which it is to be found.
          sides: of the test.

        Raises:
          DataError: an arm whose seeds are drawn has fewer than three, which are too few to plan from;
            or a number is not valid.

        Example:
          >>> import numpy as np
          >>> from multiberts import stats
          >>> base, experiment = np.random.default_rng(0).normal(0, 1, (2, 5, 100))
          >>> plan = stats.compare(base, experiment, "mean").plan(num_seeds=10, effect=0.2)
          >>> 0 < plan.power() < 1
          True
        """
        if self.variance_parts is None:
            raise DataError("found a result without mean squares, expected one of stats.compare")
        drawn = self._drawn_arms()
        found = estimated_plan(
            self.variance_parts,
            min(len(side.seeds) for side in drawn),
            self.num_examples,
            self.design,
            1 - self.confidence,
            self.estimate,
            round(sum(side.num_runs for side in drawn) / sum(len(side.seeds) for side in drawn)),
        )
        return replace(
            found.at(num_seeds, num_examples),
            sides=sides,
            target_power=target_power,
            effect=found.effect if effect is None else effect,
        )

    def _drawn_arms(self) -> list[ArmSummary]:
        """Returns the arms whose seeds the design draws."""
        if self.experiment is None:
            return [self.base]
        return (
            [self.experiment] if self.design == "fixed_baseline" else [self.base, self.experiment]
        )

    @cached_property
    def answers(self) -> ShortAnswers | None:
        """Returns short answers, which `print` gives in words; None in a `single` design."""
        if self.experiment is None or self.variance_parts is None:
            return None
        base, scores = self.base.seed_scores, self.experiment.seed_scores
        by_design = {
            "paired": [scores - base] if len(scores) == len(base) else [],
            "unpaired": [base, scores],
            "fixed_baseline": [scores],
        }
        opposite = opposite_chance(self.estimate, by_design[self.design])
        if too_few_to_plan(self.variance_parts):
            fewest = min(len(side.seeds) for side in self._drawn_arms())
            return ShortAnswers(opposite, fewest, self.num_examples)
        return short_answers(self.plan(), opposite, self.significant)

    @property
    def differences(self) -> NDArray[np.float64]:
        """Bootstrap samples of `estimate` [replicates]."""
        return self.samples[:, -1] - self.samples[:, 0] if self.experiment else self.samples[:, 0]

    @property
    def significant(self) -> bool:
        """Returns whether the recommended two-sided p is below 1 - confidence."""
        return self.p_t is not None and self.p_t.two_sided < 1 - self.confidence


class ComparisonOptions(TypedDict, total=False):
    """Keyword arguments that `compare` and `compare_tasks` share: fields of their settings."""

    examples: Examples
    resample: Resample
    num_bootstrap: int
    bootstrap_seed: int
    confidence: float
    draws: DrawOrder
    studentised: bool
    aggregate: Aggregate


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings that all comparisons of a family share; see `stats.compare`.

    Raises:
      DataError: a setting is not one of its choices, or out of range.
    """

    design: Design = "paired"
    examples: Examples = "shared"
    resample: Resample = "both"
    num_bootstrap: int = 1000
    bootstrap_seed: int = 42
    confidence: float = 0.95
    draws: DrawOrder = "keyed"
    studentised: bool = True
    aggregate: Aggregate = "mean"

    def __post_init__(self) -> None:
        check_choice("design", self.design, Design)
        check_choice("resample", self.resample, Resample)
        check_choice("examples", self.examples, Examples)
        check_choice("draws", self.draws, DrawOrder)
        check_choice("aggregate", self.aggregate, Aggregate)
        number = isinstance(self.confidence, int | float | np.floating)
        if not number or not 0 < self.confidence < 1:
            raise DataError(
                f"found confidence {self.confidence!r}, expected a number between 0 and 1"
            )
        check_num_bootstrap(self.num_bootstrap, self.confidence)
        check_whole("bootstrap_seed", self.bootstrap_seed)
        if self.examples == "separate" and self.design in ("single", "fixed_baseline"):
            raise DataError(
                f"found separate examples in a {self.design} design, expected a paired or unpaired "
                "one; use examples='shared'"
            )

    def make_draws(self) -> DrawSource:
        """Returns the source of the draws."""
        if self.draws == "keyed":
            return KeyedDraws(self.bootstrap_seed)
        return PublishedDraws(np.random.RandomState(self.bootstrap_seed))


@dataclass(frozen=True)
class Names:
    """Names of a comparison and its sides in tables and texts."""

    name: str = ""
    evaluation_set: str = ""
    base: str = "base"
    experiment: str = "experiment"


def conclude(
    sides: Sequence[ArmSummary],
    crossing: Crossing,
    samples: NDArray[np.float64],
    undefined: NDArray[np.bool_],
    replicate_variances: NDArray[np.float64] | None,
    settings: ComparisonSettings,
    names: Names,
    kind: ScoreKind,
    unpaired: Crossing | None = None,
    pairing: Pairing | None = None,
    rest: Crossing | None = None,
) -> Comparison:
    """Computes intervals and tests from samples, exact variances and the scores of seeds.

    Args:
      sides: base, and the experiment unless the design is single.
      crossing: the tables whose sum is the estimate.
      samples: [replicates, sides].
      undefined: where a score was 0/0 [replicates, jobs].
      replicate_variances: [replicates], or None for no studentised interval.
      settings: of the comparison.
      names: of the comparison and its sides.
      kind: of the score.
      unpaired: of a paired design, the tables with the seeds of each side in a pool of its own.
      pairing: see `Comparison`.
      rest: where seeds failed, the tables of the others.
    """
    base = sides[0]
    experiment = sides[1] if len(sides) > 1 else None
    differences = samples[:, 0] if experiment is None else samples[:, 1] - samples[:, 0]
    estimate = base.estimate if experiment is None else experiment.estimate - base.estimate
    unbiased, parts = crossing.unbiased_variance(), crossing.variance_parts()
    standard_error = math.sqrt(unbiased.variance)
    level = settings.confidence
    bounds = kind.bounds
    width = bounds[1] - bounds[0]
    span = bounds if experiment is None else (-width, width)
    studentised = None
    if replicate_variances is not None:
        studentised = studentised_interval(
            differences, np.sqrt(replicate_variances), estimate, standard_error, level
        )
        studentised = clipped_interval(studentised, span)
    p_t = p_percentile = p_published = None
    if experiment is not None:
        p_percentile = bootstrap_p_values(differences)
        p_published = published_p_values(differences)
    unpaired_t = p_unpaired_t = None
    if unpaired is not None:
        unpaired_t, p_unpaired_t = interval_and_test(
            sides, unpaired, kind, settings.resample, level
        )
    sign_flip, permutation = _seed_tests(sides, settings)
    floor = _seed_floor(settings, [len(side.seeds) for side in sides])
    mean = float(differences.mean())
    if experiment is None:
        t = side_interval(
            crossing, estimate, level, correlation=kind.is_correlation, bounds=bounds,
            units=base.num_scored,
        )  # fmt: skip
    else:
        t, p_t = interval_and_test(sides, crossing, kind, settings.resample, level)
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
        bootstrap_mean=mean,
        bias=mean - estimate,
        standard_error=standard_error,
        degrees_of_freedom=unbiased.cautious_degrees_of_freedom,
        bootstrap_standard_error=math.sqrt(crossing.bootstrap_variance()),
        confidence=level,
        t=t,
        percentile=percentile_interval(differences, level),
        basic=clipped_interval(basic_interval(differences, estimate, level), span),
        bca=bca_interval(differences, estimate, acceleration(crossing.influences()), level),
        studentised=studentised,
        p_t=p_t,
        p_percentile=p_percentile,
        p_published=p_published,
        p_sign_flip=sign_flip,
        p_permutation=permutation,
        effect=_effect(sides, settings),
        seed_floor=floor,
        below_seed_floor=(
            floor is not None
            and p_t is not None
            and parts.seed_share > 0.5
            and p_t.two_sided < 1 - level
            and min(p_t.greater, p_t.less) < floor
        ),
        num_bootstrap=settings.num_bootstrap,
        bootstrap_seed=settings.bootstrap_seed,
        samples=samples,
        degenerate_replicates=int(undefined.any(axis=1).sum()),
        examples=settings.examples,
        pairing=pairing,
        unpaired_t=unpaired_t,
        p_unpaired_t=p_unpaired_t,
        variance_parts=parts,
        pooled_seeds=unbiased.pooled and len(parts.seeds) == 2,
        without_failed=None if rest is None else remainder(rest, level, span, len(sides) > 1),
    )


def interval_and_test(
    sides: Sequence[ArmSummary],
    crossing: Crossing,
    kind: ScoreKind,
    resample: Resample,
    level: float,
    prior: Term = (0.0, 0.0),
) -> tuple[Interval, PValues]:
    """Computes the recommended interval and test of a difference.

    It is the t interval unless the scores are bounded and few examples decide:

    - Where seeds and examples are paired, and the sides differ on fewer than thirty examples, the
      difference is that of two small shares: of answers gained and of answers lost. What all seeds have
      in common plays no part in them. For a score that is not a mean, both sides must be near the bounds.
    - Elsewhere where both sides are near their bounds, judged by what examples add to their standard
      errors with the seeds held fixed.

    Then it comes from the score intervals of the two (`stats.intervals.near_bounds_difference`).

    Args:
      sides: base and experiment.
      crossing: the tables whose sum is the difference.
      kind: of the score.
      resample: what is resampled.
      level: of the interval, in (0, 1).
      prior: as in `Crossing.unbiased_variance`.
    """
    base, experiment = sides
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
                two = _lost_and_gained(crossing, min(side.num_scored for side in sides))
                return _of_near_bounds(two, variance, (0.0, width), level)
        elif all(
            is_near_bounds(side.estimate, side.example_error, math.inf, level, kind.bounds)
            for side in sides
        ) and not (paired and _num_discordant(crossing.parts[0].table) >= _FEW_DISCORDANT):
            return _of_near_bounds(sides, variance, kind.bounds, level)
    if error == 0:
        return _nothing_varies((-width, width))
    plain = t_interval(estimate, error, freedom, level)
    return clipped_interval(plain, (-width, width)), t_p_values(estimate, error, freedom)


class _Share(NamedTuple):
    """What `_of_near_bounds` reads of a side."""

    estimate: float
    standard_error: float
    degrees_of_freedom: float
    num_scored: float


def _of_near_bounds(
    sides: Sequence[ArmSummary | _Share],
    variance: VarianceEstimate,
    bounds: tuple[float, float],
    level: float,
) -> tuple[Interval, PValues]:
    first, second = sides
    product = first.standard_error * second.standard_error
    shared = first.standard_error**2 + second.standard_error**2 - variance.variance
    correlation = min(max(shared / (2 * product), -1.0), 1.0) if product else 0.0
    # The largest: with few seeds the smaller ones are over-conservative near a bound.
    freedom = max(
        variance.cautious_degrees_of_freedom, first.degrees_of_freedom, second.degrees_of_freedom
    )
    return near_bounds_difference(
        (first.estimate, first.standard_error),
        (second.estimate, second.standard_error),
        freedom,
        correlation,
        bounds,
        (first.num_scored, second.num_scored),
        level,
    )


def _differ_seldom(crossing: Crossing, width: float, level: float) -> bool:
    """Returns whether sides differ on so few examples that the share of these is near 0."""
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
    """Counts examples on which the sides of any seed differ; stops once they are not few."""
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


def _nothing_varies(span: tuple[float, float]) -> tuple[Interval, PValues]:
    """Returns what is known where all seeds and examples have one difference: nothing about others."""
    return Interval(*span), PValues(1.0, 1.0, 1.0)


def remainder(
    rest: Crossing, confidence: float, span: tuple[float, float], tested: bool
) -> Remainder:
    """Returns the result of the seeds that did not fail.

    Args:
      rest: the crossing without failed seeds.
      confidence: level of the interval.
      span: the smallest and the largest estimate there can be.
      tested: whether the estimate is a difference, which has a p-value.
    """
    found = rest.unbiased_variance()
    t_of = rest.mean, math.sqrt(found.variance), found.cautious_degrees_of_freedom
    interval, p_values = clipped_interval(t_interval(*t_of, confidence), span), t_p_values(*t_of)
    if found.variance == 0:
        interval, p_values = _nothing_varies(span)
    return Remainder(rest.mean, interval, p_values if tested else None)


def side_interval(
    crossing: Crossing,
    estimate: float,
    confidence: float,
    *,
    correlation: bool = False,
    bounds: tuple[float, float] = UNBOUNDED,
    units: float = 1,
) -> Interval:
    """Computes the recommended interval of one side's score, whose table is the crossing's.

    The spread of a correlation depends on its size (that of a difference of two hardly does), so it
    is computed on Fisher's z; see `stats.intervals.bounded_t_interval` for other scores.

    Args:
      crossing: of the side.
      estimate: its score.
      confidence: level, in (0, 1).
      correlation: whether the score is a correlation.
      bounds: the smallest and the largest score there can be.
      units: the number of its examples, clusters or seeds, whichever are drawn.
    """
    error, freedom = side_spread(crossing)
    drawn = bool(crossing.seeds or crossing.examples)
    at_bound = estimate in bounds and math.isfinite(bounds[1] - bounds[0])
    if drawn and error == 0 and (correlation or not at_bound):
        return Interval(*bounds)  # nothing varies, and nothing follows from that
    if correlation:
        return fisher_t_interval(estimate, error, freedom, confidence)
    tails = crossing.tail_freedom() if error else math.inf
    return bounded_t_interval(estimate, error, freedom, confidence, bounds, units, tails)


def side_spread(crossing: Crossing) -> tuple[float, float]:
    """Returns a side's standard error and degrees of freedom: 0 and infinity where nothing is drawn."""
    if not crossing.seeds and not crossing.examples:
        return 0.0, math.inf
    found = crossing.unbiased_variance()
    return math.sqrt(found.variance), found.cautious_degrees_of_freedom


def failed_seeds(
    crossing: Crossing,
    scores: NDArray[np.float64],
    chance: float,
    constant: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """Finds seeds that look as if their training had failed [R].

    A seed is flagged by any of three rules:

    - It gives every example one answer, and other seeds do not.
    - Its score is nearer to chance than to the median seed and at least three robust standard
      deviations from the median, of three or more seeds. No seed is where chance lies within ten
      standard errors of a seed's score of the median, as seeds near chance cannot be told from failed
      ones.
    - It is nineteen robust standard deviations from the median, of five or more seeds: of five normal
      seeds one group in a hundred has such a seed.

    A robust standard deviation is 1.4826 times the median absolute deviation, and at least the
    standard error of a seed's score, from the residual.

    Args:
      crossing: of the side.
      scores: of its seeds [R].
      chance: the score of always predicting the most frequent class; NaN where there is none.
      constant: where a seed gives every example one answer [R].
    """
    number = len(scores)
    flagged = np.zeros(number, dtype=bool)
    if constant is not None and not constant.all():
        flagged |= constant
    noise = _seed_noise(crossing)
    if number < 3 or noise is None:
        return flagged
    median = np.median(scores)
    far = np.abs(scores - median)
    spread = max(1.4826 * float(np.median(far)), noise)
    if abs(median - chance) > _FAR_FROM_CHANCE * noise:
        flagged |= (np.abs(scores - chance) < far) & (far > 3 * spread)
    if number >= 5:
        # What rounding leaves of equal scores does not count as a distance.
        flagged |= far > 19 * spread + 1e-12 * float(np.abs(scores).max())
    return flagged


def failures_show(crossing: Crossing, scores: NDArray[np.float64], chance: float) -> bool:
    """Returns whether scores are so far from chance that each seed can be seen not to have failed.

    Args:
      crossing: as in `failed_seeds`.
      scores: as in `failed_seeds`.
      chance: as in `failed_seeds`.
    """
    noise = _seed_noise(crossing)
    return noise is not None and bool((np.abs(scores - chance) > _FAR_FROM_CHANCE * noise).all())


def _seed_noise(crossing: Crossing) -> float | None:
    """Returns the standard error that examples give a seed's score; None of one seed or example."""
    parts = crossing.deviations[0]
    degrees = (len(parts.seed) - 1) * (len(parts.example) - 1)
    if not degrees:
        return None
    return math.sqrt(parts.residual_squares / degrees / len(parts.example))


def _seed_tests(
    sides: Sequence[ArmSummary], settings: ComparisonSettings
) -> tuple[PValues | None, PValues | None]:
    """Tests by sign flips and by permutations of seeds, where the design has them."""
    if len(sides) < 2 or settings.resample == "examples":
        return None, None
    first, second = sides[0].seed_scores, sides[1].seed_scores
    if settings.design == "paired":
        return sign_flip_p_values(second - first), None
    if settings.design == "unpaired":
        return None, permutation_p_values(first, second)
    return None, None


def _effect(sides: Sequence[ArmSummary], settings: ComparisonSettings) -> EffectSizes | None:
    if len(sides) < 2 or min(len(side.seeds) for side in sides) < 2:
        return None
    paired = settings.design == "paired"
    return effect_sizes(sides[0].seed_scores, sides[1].seed_scores, paired)


def _seed_floor(settings: ComparisonSettings, numbers: Sequence[int]) -> float | None:
    if settings.design == "single" or settings.resample == "examples":
        return None
    if settings.design == "unpaired":
        return 1 / math.comb(sum(numbers), numbers[0])
    return 2.0 ** -numbers[-1]
