"""The result of a comparison, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.borrowed import SeedSpread
from multiberts.stats.errors import DataError
from multiberts.stats.guessed import knows_guesses
from multiberts.stats.intervals import ConfidenceInterval, Interval, PValues
from multiberts.stats.results.content import EqualByContent
from multiberts.stats.results.slices import Slices
from multiberts.stats.settings import Design, Resample
from multiberts.stats.variance.answers import ShortAnswers, opposite_chance, short_answers
from multiberts.stats.variance.crossing import VarianceParts
from multiberts.stats.variance.effect_size import EffectSizes
from multiberts.stats.variance.plan import TARGET_POWER, Plan, estimated_plan, too_few_to_plan

Pairing = Literal["parent", "seed number"]


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

    @property
    def num_units(self) -> int:
        return self.num_clusters or self.num_examples


@dataclass(frozen=True)
class WithoutFailed:
    """The result of the seeds that did not fail; see `Comparison`."""

    estimate: float
    ci: ConfidenceInterval
    p_value: float


@dataclass(frozen=True, eq=False)
class Sameness(EqualByContent):
    """Equality of two arms within a margin: two one-sided tests on the recommended interval.

    Attributes:
      margin: the largest difference that does not matter, in the metric's own unit (.005 is half a
        point of accuracy).
      ci: the recommended interval at one less twice the level of the tests: at 90 % for tests at .05.
      p_lower: one-sided, against a difference of -margin or less.
      p_upper: one-sided, against a difference of margin or more.
      higher_is_better: which way the metric points; None where neither way is better.
      refused: whether a seed of either arm may have failed to train (`ArmSummary.failed_seeds`), so that
        nothing is claimed of new seeds, whatever p is.

    Reference: Schuirmann (1987), A comparison of the two one-sided tests procedure and the power approach
    for assessing the equivalence of average bioavailability.
    """

    margin: float
    ci: ConfidenceInterval
    p_lower: float
    p_upper: float
    higher_is_better: bool | None = None
    refused: bool = False

    @property
    def p_same(self) -> float:
        """Returns p against a difference of the margin or more, either way."""
        return max(self.p_lower, self.p_upper)

    @property
    def p_not_worse(self) -> float | None:
        """Returns p against being worse by the margin or more; None where neither way is better."""
        if self.higher_is_better is None:
            return None
        return self.p_lower if self.higher_is_better else self.p_upper

    @property
    def alpha(self) -> float:
        return round((1 - self.ci.level) / 2, 12)

    @property
    def same(self) -> bool:
        """Returns whether the arms are shown to be equal within the margin."""
        return not self.refused and self.p_same < self.alpha

    @property
    def not_worse(self) -> bool:
        return not self.refused and self.p_not_worse is not None and self.p_not_worse < self.alpha

    @property
    def claims(self) -> bool:
        """Returns whether the arms are shown to be equal, or the experiment not to be worse."""
        return self.same or self.not_worse


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
    effect: EffectSizes | None
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
    sameness: Sameness | None = None
    slices: Slices | None = None
    borrowed: SeedSpread | None = None
    over_labels: tuple[float, ...] = ()

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
        if self.borrowed is not None:
            raise DataError(
                "found a comparison with a borrowed spread of seeds, from which nothing is planned; add seeds"
            )
        if self.variance_parts is None:
            raise DataError("found a result without mean squares, expected one of stats.compare")
        drawn = self._drawn_arms()
        found = estimated_plan(
            self.variance_parts,
            min(len(arm.seeds) for arm in drawn),
            self.num_examples,
            self.design,
            1 - self.ci.level,
            self.estimate,
            round(sum(arm.num_runs for arm in drawn) / sum(len(arm.seeds) for arm in drawn)),
        )
        return replace(
            found.at(num_seeds, num_examples),
            sides=sides,
            target_power=target_power,
            effect=found.effect if effect is None else effect,
        )

    @knows_guesses
    def sameness_plan(
        self,
        num_seeds: int | None = None,
        num_examples: int | None = None,
        true_difference: float = 0.0,
        target_power: float = TARGET_POWER,
    ) -> Plan:
        """Plans a study like this one that shows the experiment not to be worse by the margin.

        Its `seeds_needed()` is how many seeds show that, with probability `target_power`. To show that the
        arms are equal within the margin, plan with (1 + target_power) / 2: both one-sided tests then pass
        with `target_power` or more.

        Args:
          num_seeds: as in `plan`.
          num_examples: as in `plan`.
          true_difference: how much better the experiment truly is, in the metric's own unit; negative
            where it is worse.
          target_power: as in `plan`.

        Raises:
          DataError: the comparison has no margin, the true difference is worse than it, or as `plan`.

        Example:
          >>> import numpy as np
          >>> from multiberts import stats
          >>> base, experiment = np.random.default_rng(0).normal(0, 1, (2, 5, 100))
          >>> result = stats.compare(base, experiment, "mean", margin=0.5)
          >>> result.sameness.p_same < 0.05, result.sameness_plan().seeds_needed()
          (True, 3)

        See also: `plan`.
        """
        if self.sameness is None:
            raise DataError("found a comparison without a margin; give margin to stats.compare")
        return self.plan(
            num_seeds, num_examples, self.sameness.margin + true_difference, target_power, sides=1
        )

    def _drawn_arms(self) -> list[ArmSummary]:
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
            fewest = min(len(arm.seeds) for arm in self._drawn_arms())
            return ShortAnswers(opposite, fewest, self.num_examples)
        return short_answers(self.plan(), opposite, self.significant)

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
