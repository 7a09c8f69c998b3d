"""Results of comparisons, arms and rankings as data: equal by content and convertible to JSON."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from multiberts.runs.errors import nearest
from multiberts.stats.errors import DataError
from multiberts.stats.interval_rule import AnswerPairs, ScoreKind
from multiberts.stats.intervals import ConfidenceInterval, Interval, PValues
from multiberts.stats.settings import Design, Resample
from multiberts.stats.variance.crossing import Crossing, VarianceParts
from multiberts.stats.variance.needs import Needs, needs_of, opposite_chance
from multiberts.stats.variance.plan import TARGET_POWER, Plan, estimated_plan, too_few_to_plan

Pairing = Literal["parent", "seed number"]


class EqualByContent:
    """Makes dataclasses with arrays comparable by content, hashable and convertible to JSON."""

    if not TYPE_CHECKING:  # otherwise mypy and editors accept any attribute

        def __getattr__(self, name: str) -> Any:
            line = f"{type(self).__name__} has no attribute {name}"
            if not name.startswith("_"):  # pickle, copy and notebooks ask for these
                names = [each for each in dir(self) if not each.startswith("_")]
                line += f"; {nearest(name, names, 'to_dict() has every number')}"
            raise AttributeError(line)

    def _content(self) -> tuple:
        return type(self), *(
            _hashable(getattr(self, f.name))
            for f in dataclasses.fields(cast("Any", self))
            if f.compare
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EqualByContent):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def to_dict(self) -> dict[str, Any]:
        """Returns all numbers except the bootstrap samples, in JSON types.

        Intervals have the keys low, high, level and method; infinite limits become None.
        """
        names = [each.name for each in dataclasses.fields(cast("Any", self)) if each.compare]
        names += [
            name
            for name in ("statistic", "p_value", "p_same", "p_not_worse", "needs")
            if hasattr(type(self), name)
        ]
        return {name: plain_value(getattr(self, name)) for name in names if name != "samples"}


def plain_value(value: Any) -> Any:
    """Converts a value to JSON types."""
    if isinstance(value, EqualByContent):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return {
            each.name: plain_value(getattr(value, each.name)) for each in dataclasses.fields(value)
        }
    if isinstance(value, ConfidenceInterval):
        value = {"low": value.low, "high": value.high, "level": value.level, "method": value.method}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain_value(part) for name, part in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): plain_value(part) for name, part in value.items()}
    if isinstance(value, tuple | list | np.ndarray):
        return [plain_value(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def flat_values(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Joins the names of nested values: `base_estimate`, `ci_low`; lists are unchanged."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= flat_values(value, f"{prefix}{name}_".replace(" ", "_"))
        else:
            flat[prefix + name] = value
    return flat


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, dict):
        return tuple((name, _hashable(part)) for name, part in value.items())
    if dataclasses.is_dataclass(value):
        fields = [each for each in dataclasses.fields(value) if each.compare]
        return tuple(_hashable(getattr(value, each.name)) for each in fields)
    if isinstance(value, tuple | list) and not isinstance(value, Interval):
        return tuple(_hashable(part) for part in value)
    return value


@dataclass(frozen=True, eq=False)
class ArmSummary(EqualByContent):
    """One arm of a comparison.

    Attributes:
      estimate: mean over seeds of the mean over runs of the score on all examples.
      ci: recommended interval for the drawn units of the comparison.
      intervals: other intervals by name, such as `percentile` of the bootstrap.
      seeds: pre-training seeds [R].
      seed_scores: score of each seed, averaged over its runs [R].
      num_runs: total number of runs; for a mean over tasks, the number for one task.
      num_clusters: number of clusters of examples, or None if examples are drawn one by one.
      cluster_name: name of the clusters, or empty.
      left_out: seeds left out by pairing, because the other arm lacks them.
      failed_seeds: seeds whose training seems to have failed, see `failed_seeds`.
      failure_rate: Clopper and Pearson's interval of the failure rate of seeds. None if no seed failed and
        nothing is known about the rate, because a failed seed could not be recognised (`failures_show`),
        every seed is constant, or seeds are not drawn.
      constant_seeds: seeds whose runs all give every example the same answer: one class (one value for
        correlations and the AUC), or one score below 1 if the data are scores. They are also failed seeds if
        other seeds are not constant.
      standard_error, df: standard error of the estimate and its degrees of freedom, as in `Comparison`.
      example_error: standard error from examples alone, with the seeds held fixed.
      num_scored: effective number of examples (or clusters) near the bounds: all for accuracy, the
        positives for recall (`evaluate.metrics.column_metric.Metric.scored`).
      num_missing: number of missing predictions, left out of the scores of their runs.
      repeats: whether the seeds are repeated evaluations of one model, ordered by time.
    """

    name: str
    estimate: float
    ci: ConfidenceInterval
    intervals: dict[str, ConfidenceInterval]
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
    df: float = math.inf
    example_error: float = 0.0
    num_scored: float = math.inf
    num_missing: int = 0
    repeats: bool = False

    @property
    def num_units(self) -> int:
        return self.num_clusters or self.num_examples


@dataclass(frozen=True)
class WithoutFailed:
    """The result without failed seeds; see `Comparison`."""

    estimate: float
    ci: ConfidenceInterval
    p_value: float


@dataclass(frozen=True)
class Origin:
    """The tables and data behind a comparison, for further answers.

    Attributes:
      crossing: tables whose sum is the estimate.
      pairs: paired answers of the arms to the same examples; None if they are not paired.
      spec: `ComparisonSpec` of the arms; None for a mean over tasks.
      data: data of the base, with the columns for slices.
    """

    kind: ScoreKind
    crossing: Crossing
    pairs: AnswerPairs | None = None
    spec: Any = None
    data: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonResult(EqualByContent):
    """The numbers of a `stats.Comparison`, which adds words, tables and figures. The attributes are
    described there.
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
    ci: ConfidenceInterval
    standard_error: float
    df: float
    intervals: dict[str, ConfidenceInterval]
    p_values: dict[str, PValues]
    bootstrap_mean: float
    bias: float
    bootstrap_standard_error: float
    hedges_g: float | None
    seed_floor: float | None
    below_seed_floor: bool
    n_resamples: int
    rng: int
    samples: NDArray[np.float64]
    degenerate_replicates: int
    pairing: Pairing | None = None
    variance_parts: VarianceParts | None = None
    without_failed: WithoutFailed | None = None
    pooled_seeds: bool = False
    notes: tuple[str, ...] = ()
    over_labels: tuple[float, ...] = ()
    tasks: tuple[str, ...] = ()
    origin: Origin | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state without the origin, which contains functions."""
        return {**self.__dict__, "origin": None}

    def computed_from(self) -> Origin:
        """Returns the origin for further answers."""
        if self.origin is None:
            raise DataError(
                "found a result that was unpickled, which no longer has its data; compare the arms again"
            )
        return self.origin

    def plan(
        self,
        num_seeds: int | None = None,
        num_examples: int | None = None,
        effect: float | None = None,
        target_power: float = TARGET_POWER,
        sides: int = 2,
    ) -> Plan:
        """Plans a study like this one: power, detectable difference, and seeds or examples needed.

        Args:
          num_seeds: number of seeds per arm (of the arm with fewer); None: the present number.
          num_examples: number of examples; None: the present number.
          effect: true difference to detect; None: the estimate, unless it is within one standard error of 0,
            so that even its sign is unknown.
          target_power: required probability of detection.
          sides: sides of the test, 1 or 2.

        Raises:
          DataError: fewer than three seeds in an arm whose seeds are drawn, or an invalid number.

        Examples:
          >>> import numpy as np
          >>> from multiberts import stats
          >>> base, experiment = np.random.default_rng(0).normal(0, 1, (2, 5, 100))
          >>> plan = stats.compare(base, experiment, "mean").plan(num_seeds=10, effect=0.2)
          >>> 0 < plan.power() < 1
          True
        """
        if self.variance_parts is None:
            raise DataError(
                "found a comparison with a borrowed spread of seeds, from which nothing is planned; add seeds"
            )
        drawn = self._drawn_arms()
        here = estimated_plan(
            self.variance_parts,
            min(len(arm.seeds) for arm in drawn),
            self.num_examples,
            self.design,
            1 - self.ci.level,
            self.estimate,
            round(sum(arm.num_runs for arm in drawn) / sum(len(arm.seeds) for arm in drawn)),
        )
        return replace(
            here.at(num_seeds, num_examples),
            sides=sides,
            target_power=target_power,
            effect=here.effect if effect is None else effect,
        )

    def _drawn_arms(self) -> list[ArmSummary]:
        if self.experiment is None:
            return [self.base]
        return (
            [self.experiment] if self.design == "fixed_baseline" else [self.base, self.experiment]
        )

    @cached_property
    def needs(self) -> Needs | None:
        """Returns the power of these data and the seeds or examples needed, as printed; None for one arm."""
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
            fewest = min(len(arm.seeds) for arm in self._drawn_arms())
            return Needs(opposite, fewest, self.num_examples)
        return needs_of(self.plan(), opposite, self.significant)

    @property
    def differences(self) -> NDArray[np.float64]:
        """Returns the bootstrap samples of `estimate` [replicates]."""
        return self.samples[:, -1] - self.samples[:, 0] if self.experiment else self.samples[:, 0]

    @property
    def confidence_level(self) -> float:
        """Returns the level of all intervals."""
        return self.ci.level

    @property
    def statistic(self) -> float | None:
        """Returns estimate / standard_error; None if nothing varies."""
        return self.estimate / self.standard_error if self.standard_error else None

    @property
    def p_value(self) -> float | None:
        """Returns the recommended p, two-sided; None in a `single` design."""
        return self.p_values["t"].two_sided if "t" in self.p_values else None

    @property
    def significant(self) -> bool:
        """Returns whether the recommended two-sided p is below 1 - confidence level."""
        return self.p_value is not None and self.p_value < 1 - self.confidence_level


@dataclass(frozen=True)
class ArmDifference:
    """The difference between two of many arms.

    Attributes:
      estimate: score of the experiment minus that of the base.
      standard_error: standard error from variances of seeds moderated by those of all arms.
      ci: simultaneous interval: its level is the probability that all intervals of the family contain the
        truth.
      p_value: two-sided p, corrected like the interval (Bonferroni); below 1 - level if the interval excludes
        0.
      p_values: other two-sided p: `uncorrected`, and `holm`, which is at most `p_value` and may be
        significant if the interval is not.
    """

    base: str
    experiment: str
    estimate: float
    standard_error: float
    df: float
    ci: ConfidenceInterval
    p_value: float
    p_values: dict[str, float]

    @property
    def clear(self) -> bool:
        """Returns whether the simultaneous interval excludes 0."""
        return self.ci.low > 0 or self.ci.high < 0


@dataclass(frozen=True, eq=False)
class RankedArm(ArmSummary):
    """One of many arms with its score, interval and rank.

    Attributes:
      rank: 1 plus the number of arms with a better score.
      rank_low, rank_high: simultaneous interval of the true rank, from 1 plus the number of clearly better
        arms to the number of arms that are not clearly worse.
      groups: letters of the arm's groups; two arms differ clearly if they share none. Empty if all arms are
        compared with a reference arm.
    """

    rank: int = 1
    rank_low: int = 1
    rank_high: int = 1
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class RankingResult(EqualByContent):
    """The numbers of `stats.ArmComparisons`, which adds words, tables and figures. The
    attributes are described there.
    """

    name: str
    evaluation_set: str
    metric: str
    higher_is_better: bool | None
    design: Design
    resample: Resample
    against: str | None
    arms: tuple[RankedArm, ...]
    differences: tuple[ArmDifference, ...]
    confidence_level: float
    shared_degrees_of_freedom: float
    pairing: Pairing | None
    n_resamples: int
    rng: int
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Returns the largest sets of arms without a clear difference, by name, best first."""
        letters = dict.fromkeys(letter for arm in self.arms for letter in arm.groups)
        return tuple(
            tuple(arm.name for arm in self.arms if letter in arm.groups) for letter in letters
        )
