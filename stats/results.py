"""Results as data: of a comparison, of its arms, and of the ranking of many; equal by content, for JSON."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.errors import DataError
from multiberts.stats.guessed import knows_guesses
from multiberts.stats.interval_rule import AnswerPairs, ScoreKind
from multiberts.stats.intervals import ConfidenceInterval, Interval, PValues
from multiberts.stats.settings import Design, Resample
from multiberts.stats.variance.crossing import Crossing, VarianceParts
from multiberts.stats.variance.needs import Needs, needs_of, opposite_chance
from multiberts.stats.variance.plan import TARGET_POWER, Plan, estimated_plan, too_few_to_plan

Pairing = Literal["parent", "seed number"]


class EqualByContent:
    """Makes dataclasses that hold arrays comparable and hashable, and convertible for JSON.

    Two are equal where every number is.
    """

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
        """Returns every number but the bootstrap samples, as JSON can hold them.

        Intervals have the keys low, high, level and method; an infinite end, which JSON lacks, is None.
        """
        names = [each.name for each in dataclasses.fields(cast("Any", self)) if each.compare]
        names += [
            name
            for name in ("statistic", "p_value", "p_same", "p_not_worse", "needs")
            if hasattr(self, name)
        ]
        return {name: plain_value(getattr(self, name)) for name in names if name != "samples"}


def plain_value(value: Any) -> Any:
    """Converts a value to what JSON can hold."""
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
    """Joins the names of nested values: `base_estimate`, `ci_low`; lists are left as they are."""
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
      ci: the recommended interval of it, for new seeds and examples as far as the comparison draws
        them.
      intervals: the bootstrap's interval of it, `percentile`.
      seeds: pre-training seeds [R].
      seed_scores: score of each seed, its runs averaged [R].
      num_runs: runs of all seeds; of a mean over tasks those on one task.
      num_clusters: clusters of examples, or None where examples are drawn one by one.
      cluster_name: what the clusters are called, or nothing.
      left_out: seeds that pairing left out, because the other arm lacks them.
      failed_seeds: seeds that look as if their training had failed, see `failed_seeds`.
      failure_rate: Clopper and Pearson's interval of the share of seeds that fail. None where none
        failed and nothing follows from that: a failed seed could not be distinguished from others
        (`failures_show`), every seed is constant, or seeds are not drawn.
      constant_seeds: seeds all of whose runs give every example one answer: they predict one class (of
        correlations and the AUC, one value), or score the same below 1 on every example where scores
        are given. Where others do not, they are failed seeds, too.
      standard_error, df: of the estimate, as in `Comparison`.
      example_error: the standard error that examples alone give, with the seeds held fixed.
      num_scored: examples (or clusters) that the score rests on near its bounds: all of them for an
        accuracy, the positives for a recall (`evaluate.metrics.column_metric.Metric.scored`).
      num_missing: predictions that are missing, and that the scores of their runs leave out.
      repeats: whether the seeds are repeated evaluations of one model, known by their order in time.
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
    """The result of the seeds that did not fail; see `Comparison`."""

    estimate: float
    ci: ConfidenceInterval
    p_value: float


@dataclass(frozen=True)
class Origin:
    """The tables and data that a comparison was computed from, for further answers.

    Attributes:
      kind: of its score.
      crossing: the tables whose sum is the estimate.
      pairs: the arms' answers to the same examples; None where they are not paired.
      spec: the `ComparisonSpec` of its arms; None of a mean of tasks.
      data: what was given as base, from which slices are read.
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
        """Returns what is pickled: all but the origin, whose tables are computed when they are read."""
        return {**self.__dict__, "origin": None}

    def computed_from(self) -> Origin:
        """Returns the origin, which further answers need."""
        if self.origin is None:
            raise DataError(
                "found a result that was unpickled, which no longer has its data; compare the arms again"
            )
        return self.origin

    @knows_guesses
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
          num_seeds: of each arm (of the one with fewer); None: as here. `seeds` is understood, too, and
            `examples` for the next.
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
        """Returns what these data can show and what more would take, as `print` says; None of one arm."""
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
        """Bootstrap samples of `estimate` [replicates]."""
        return self.samples[:, -1] - self.samples[:, 0] if self.experiment else self.samples[:, 0]

    @property
    def confidence_level(self) -> float:
        """Returns the level of all intervals."""
        return self.ci.level

    @property
    def statistic(self) -> float | None:
        """Returns estimate / standard_error; None where there is no spread."""
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
    """The difference of two of many arms.

    Attributes:
      estimate: score of the experiment minus that of the base.
      standard_error: of the estimate, from variances of seeds that are moderated by those of all arms.
      ci: simultaneous: all intervals of the family hold the truth at its level.
      p_value: two-sided, corrected for the number of differences as the interval is (Bonferroni): below
        1 - level where the interval excludes 0.
      p_values: two-sided: `uncorrected`, of this difference alone; and `holm`, which is never larger than
        `p_value`, so that it may show what the interval does not.
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
    """One of many arms: its score with its own interval, and its place among the arms.

    Attributes:
      rank: 1 plus the number of arms with a better score.
      rank_low, rank_high: the ranks that it may truly have, simultaneously for all arms: 1 plus the
        number of arms that are clearly better, up to the last place but for those clearly worse.
      groups: letters of the groups that it belongs to; two arms differ clearly where they have none in
        common. Empty where all are compared with one arm only.
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
        """Returns the largest sets of arms none of which differ clearly, by name, best first."""
        letters = dict.fromkeys(letter for arm in self.arms for letter in arm.groups)
        return tuple(
            tuple(arm.name for arm in self.arms if letter in arm.groups) for letter in letters
        )
