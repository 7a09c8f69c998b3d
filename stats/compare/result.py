"""The result of comparing two arms: every number is computed when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.compare.comparison_spec import Draws
from multiberts.stats.errors import DataError
from multiberts.stats.interval_rule import (
    AnswerPairs,
    interval_of_difference,
    interval_of_score,
    interval_of_sum,
)
from multiberts.stats.intervals import ConfidenceInterval, PValues
from multiberts.stats.results import (
    ArmSummary,
    EqualByContent,
    Readable,
    WithoutFailed,
    percentile_interval_of,
    with_values,
)
from multiberts.stats.score import Score
from multiberts.stats.settings import ComparisonSettings, Design, Pairing, Resample
from multiberts.stats.significance import (
    bootstrap_p_values,
    permutation_p_values,
    published_p_values,
    sign_flip_p_values,
)
from multiberts.stats.variance.crossing import Crossing, VarianceEstimate, VarianceParts
from multiberts.stats.variance.needs import Needs, needs_of, opposite_chance
from multiberts.stats.variance.plan import TARGET_POWER, Plan, estimated_plan, too_few_to_plan


@dataclass(frozen=True)
class Names:
    """Names of a comparison and its arms in tables and texts."""

    name: str = ""
    evaluation_set: str = ""
    base: str = "base"
    experiment: str = "experiment"

    @property
    def arms(self) -> tuple[str, str]:
        return self.base, self.experiment


@dataclass(frozen=True, eq=False)
class Origin:
    """The arms, tables and draws behind a comparison, from which its numbers are computed.

    Attributes:
      arms: base and, unless the design is single, experiment.
      settings: settings of the comparison; design and resampled units are known.
      crossing: tables whose sum is the estimate.
      draws: bootstrap scores.
      pairs: paired answers of the arms to the same examples; None if they are not paired.
      unpaired: crossing of the same tables with one pool of seeds per arm, for a paired design.
      not_failed: crossing without the failed seeds; None if no seed failed.
      spec: `ComparisonSpec` of two arms on one task; None for a mean over tasks.
      data: data of the base, with the columns for slices.
      is_borrowed: whether the spread of seeds is of other data (`one_seed`): it has no number of seeds to
        plan from, and the bootstrap redraws the one seed.
      is_defined: whether no score of a replicate can be 0/0.
      pairing, notes, tasks: see `Comparison`; notes are only given without a spec.
    """

    arms: Sequence[ArmSummary]
    settings: ComparisonSettings
    score: Score
    crossing: Crossing
    draws: Draws
    pairs: AnswerPairs | None = None
    unpaired: Crossing | None = None
    not_failed: Crossing | None = None
    pairing: Pairing | None = None
    notes: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    spec: Any = None
    data: Any = None
    is_borrowed: bool = False
    is_defined: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(EqualByContent, Readable):
    """The estimated difference experiment - base, or one arm's score (`single`), with tests.

    `print(result)` gives the finding in words and a small table; `to_frame()`, `to_dict()` (for JSON),
    `latex()`, `plot()`, `to_html(path)` and `methods()` (a paragraph for a paper) give the rest. Numbers are
    computed when they are asked for: the bootstrap is only drawn for `samples` and what is made from them.

    Attributes:
      name, evaluation_set: names of the comparison and the evaluation set.
      origin: tables and data of the comparison, for `same`, `slices` and other further answers.
      score: what is known of the score: which way it is better, and where it ends.

    Examples:
      >>> from xarray import DataArray
      >>> from multiberts import stats
      >>> rows, dims = [[1, 0, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1]], ("pretrain_seed", "example")
      >>> right = DataArray(rows, {"pretrain_seed": [0, 1, 2]}, dims)
      >>> labels = DataArray([1, 1, 1, 1], dims="example")
      >>> result = stats.compare(right, None, "accuracy", design="single", labels=labels)
      >>> round(result.estimate, 3), result.base.seeds, result.p_value
      (0.667, (0, 1, 2), None)
      >>> print(result)
      Across 3 seeds and 4 examples, accuracy of base is 66.7 % (95 % CI 17.4 to 95.0 %).
      <BLANKLINE>
      |      | accuracy (%) | 95% CI (Wilson) (%) | seeds |
      |------|-------------:|--------------------:|------:|
      | base | 66.7         | 17.4 to 95.0        | 3     |

    See also: `compare`, `ConfidenceInterval`, `PValues`.
    """

    name: str
    evaluation_set: str
    origin: Origin | None = field(repr=False, compare=False)
    score: Score = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "score", self.computed_from().score)

    _not_pickled = ("origin",)

    @cached_property
    def metric(self) -> str:
        """Name of the metric."""
        return self.score.metric

    @cached_property
    def design(self) -> Design:
        """Design: `paired` (the same seeds, drawn together), `unpaired` (own seeds), `fixed_baseline` (the
        base is exactly that set of runs, such as one published checkpoint) or `single` (base alone).
        """
        return self.computed_from().settings.laid_out

    @cached_property
    def resample(self) -> Resample:
        """Units that the intervals generalise to: `both` new seeds and new examples, or one of them."""
        return self.computed_from().settings.drawn

    @cached_property
    def base(self) -> ArmSummary:
        """Summary of the base."""
        return self.computed_from().arms[0]

    @cached_property
    def experiment(self) -> ArmSummary | None:
        """Summary of the experiment; None in a `single` design."""
        _, *others = self.computed_from().arms
        return others[0] if others else None

    @cached_property
    def num_examples(self) -> int:
        """Number of examples, the same in both arms."""
        return self.base.num_examples

    @cached_property
    def estimate(self) -> float:
        """Difference of the two arms' scores; the base's score in a `single` design."""
        if self.experiment is None:
            return self.base.estimate
        return self.experiment.estimate - self.base.estimate

    @cached_property
    def ci(self) -> ConfidenceInterval:
        """Recommended interval with level and method.

        It is estimate -+ t x standard error, within the metric's bounds. For one arm: on Fisher's z for
        correlations; Wilson's score interval near the bounds; Clopper and Pearson's if all answers are right
        or all wrong. For a difference: Newcombe's, from score intervals, if so few answers are wrong in both
        arms, or differ between paired arms, that it is far from normal. The whole range if nothing varies.
        """
        return self._recommended[0]

    @cached_property
    def standard_error(self) -> float:
        """Root of an unbiased estimate of the crossed design's variance."""
        return math.sqrt(self._variance.variance)

    @cached_property
    def df(self) -> float:
        """Degrees of freedom of t: Satterthwaite's, with mean squares at the upper end of their range."""
        return self._variance.cautious_degrees_of_freedom

    @cached_property
    def intervals(self) -> dict[str, ConfidenceInterval]:
        """Other intervals by name.

        `percentile`: as published, too narrow with few seeds; in a paired design also `unpaired`, the
        interval if the seeds were unrelated.
        """
        if self.computed_from().is_borrowed:
            return {}
        found = {"percentile": percentile_interval_of(self.differences, self._level)}
        return found | ({} if self._unpaired is None else {"unpaired": self._unpaired[0]})

    @cached_property
    def p_values(self) -> dict[str, PValues]:
        """p-values by name, each with `greater`, `less` and `two_sided`; empty in a `single` design.

        `t`: recommended; `percentile`: (k + 1) / (B + 1) from the samples; `published`: k / B, at least 1 /
        B; `sign flip` (paired) or `permutation` (unpaired): randomisation tests of seeds, on these examples
        only; `unpaired` (paired designs): test of that interval.
        """
        origin, recommended = self.computed_from(), self._recommended[1]
        found = {} if recommended is None else {"t": recommended}
        if recommended is None or origin.is_borrowed:
            return found
        found["percentile"] = bootstrap_p_values(self.differences)
        found["published"] = published_p_values(self.differences)
        found |= _seed_tests(origin.arms, origin.settings)
        return found | ({} if self._unpaired is None else {"unpaired": self._unpaired[1]})

    @cached_property
    def bootstrap_mean(self) -> float:
        """Mean of the bootstrap samples of `estimate`."""
        return float(self.differences.mean())

    @cached_property
    def bias(self) -> float:
        """Bootstrap estimate of the bias: bootstrap_mean - estimate."""
        return self.bootstrap_mean - self.estimate

    @cached_property
    def bootstrap_standard_error(self) -> float:
        """Exact standard deviation of the bootstrap distribution (of its linear part if the metric is not a
        mean).
        """
        return math.sqrt(self.computed_from().crossing.bootstrap_variance())

    @cached_property
    def hedges_g(self) -> float | None:
        """Difference relative to the spread of seeds; None in a `single` design or with one seed."""
        arms = self.computed_from().arms
        if len(arms) < 2 or min(len(arm.seeds) for arm in arms) < 2:
            return None
        base, experiment = (arm.seed_scores for arm in arms)
        return hedges_g(base, experiment, self.design == "paired")

    @cached_property
    def seed_floor(self) -> float | None:
        """Smallest one-sided p of a randomisation test of the seeds.

        2**-R if paired or with a fixed baseline, else 1 / the number of assignments of seeds to arms; None
        if seeds are not resampled.
        """
        origin = self.computed_from()
        numbers = [len(arm.seeds) for arm in origin.arms]
        return None if origin.is_borrowed else _seed_floor(origin.settings, numbers)

    @cached_property
    def below_seed_floor(self) -> bool:
        """True if the result relies on normally distributed seeds.

        The difference is then significant, more than half of the variance comes from seeds, and p of t is
        below `seed_floor`.
        """
        p_values, parts = self._recommended[1], self.computed_from().crossing.variance_parts()
        return (
            self.seed_floor is not None
            and p_values is not None
            and parts.seed_share > 0.5
            and p_values.two_sided < 1 - self._level
            and min(p_values[:2]) < self.seed_floor
        )

    @cached_property
    def n_resamples(self) -> int:
        """Number of bootstrap replicates."""
        return self.computed_from().settings.n_resamples

    @cached_property
    def rng(self) -> int:
        """Number that identifies the bootstrap draws."""
        return self.computed_from().settings.rng

    @cached_property
    def samples(self) -> NDArray[np.float64]:
        """Bootstrap scores [replicates, 2] of (base, experiment), or [replicates, 1]."""
        return self.computed_from().draws().scores

    @cached_property
    def degenerate_replicates(self) -> int:
        """Number of replicates in which a score was 0/0 and took its defined value."""
        origin = self.computed_from()
        return 0 if origin.is_defined else int(origin.draws().undefined.any(axis=1).sum())

    @cached_property
    def pairing(self) -> Pairing | None:
        """Basis on which seeds are paired.

        `parent` if the data show that runs of one seed descend from one checkpoint (a common coordinate
        `parent`, `procedure` or `lineage`), else `seed number`, which may be arbitrary. None in other designs
        and if seeds are held fixed.
        """
        return self.computed_from().pairing

    @cached_property
    def variance_parts(self) -> VarianceParts | None:
        """Mean squares of the standard error; None with a borrowed spread of seeds (`one_seed`)."""
        origin = self.computed_from()
        return None if origin.is_borrowed else origin.crossing.variance_parts()

    @cached_property
    def without_failed(self) -> WithoutFailed | None:
        """Estimate, `ci` and `p_value` of the difference without seeds whose training seems to have failed.

        Pairs of seeds are left out if paired. None if none failed, if too few seeds are left, or in a
        `single` design.
        """
        origin = self.computed_from()
        crossing, width = origin.not_failed, self.score.width
        if crossing is None:
            return None
        ci, p_values = interval_of_sum(
            crossing.mean, crossing.unbiased_variance(), self._level, (-width, width)
        )
        return WithoutFailed(crossing.mean, ci, p_values.two_sided)

    @cached_property
    def pooled_seeds(self) -> bool:
        """True if the mean squares of unpaired arms' seeds were similar enough to be pooled.

        They then have 2R - 2 degrees of freedom, where Welch's formula gives fewer.
        """
        parts = self.computed_from().crossing.variance_parts()
        return self._variance.pooled and len(parts.seeds) == 2

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes on the data for readers, such as copies of one run under two seeds."""
        return tuple(self._printing.notes(self))

    @cached_property
    def over_labels(self) -> tuple[float, ...]:
        """Scores of base and experiment over the labels' classes alone, for a macro average to which answers
        outside the labels add classes; otherwise empty.
        """
        spec = self.computed_from().spec
        return () if spec is None else spec.over_labels()

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks of a mean over tasks; otherwise empty."""
        return self.computed_from().tasks

    @cached_property
    def statistic(self) -> float | None:
        """Ratio of estimate and standard_error, Student's t if `ci.method` is `t`; None if nothing varies."""
        return self.estimate / self.standard_error if self.standard_error else None

    @cached_property
    def p_value(self) -> float | None:
        """Recommended two-sided p, which matches `ci`; None in a `single` design."""
        p_values = self._recommended[1]
        return None if p_values is None else p_values.two_sided

    @cached_property
    def needs(self) -> Needs | None:
        """Power of these data and the seeds or examples needed, as printed; None for one arm."""
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
    def significant(self) -> bool:
        """Returns whether the recommended two-sided p is below 1 - confidence level."""
        return self.p_value is not None and self.p_value < 1 - self.confidence_level

    @property
    def unpaired_interval(self) -> ConfidenceInterval | None:
        """Returns the interval of a paired design if its seeds were unrelated; None in other designs."""
        return None if self._unpaired is None else self._unpaired[0]

    @cached_property
    def _unpaired(self) -> tuple[ConfidenceInterval, PValues] | None:
        crossing = self.computed_from().unpaired
        return None if crossing is None else self._of_difference(crossing)

    @cached_property
    def _recommended(self) -> tuple[ConfidenceInterval, PValues | None]:
        origin, base, level = self.computed_from(), self.base, self._level
        if self.experiment is not None:
            return self._of_difference(origin.crossing, origin.pairs)
        ends = origin.crossing, base.estimate, level, self.score, base.num_scored
        return interval_of_score(*ends), None

    def _of_difference(
        self, crossing: Crossing, pairs: AnswerPairs | None = None
    ) -> tuple[ConfidenceInterval, PValues]:
        origin = self.computed_from()
        drawn = origin.settings.drawn
        return interval_of_difference(origin.arms, crossing, pairs, self.score, drawn, self._level)

    @cached_property
    def _variance(self) -> VarianceEstimate:
        return self.computed_from().crossing.unbiased_variance()

    @property
    def _level(self) -> float:
        return self.computed_from().settings.confidence_level

    def computed_from(self) -> Origin:
        """Returns the origin, for further answers."""
        if self.origin is None:
            raise DataError(
                "found a result that was unpickled, which no longer has its data; compare the arms again"
            )
        return self.origin

    def named(
        self,
        base: str | None = None,
        experiment: str | None = None,
        *,
        name: str | None = None,
        evaluation_set: str | None = None,
    ) -> Self:
        """Returns the result with other names in tables and texts; None keeps a name.

        Args:
          base: name of the base.
          experiment: name of the experiment.
          name: name of the comparison.
          evaluation_set: name of the evaluation set.

        Examples:
          >>> from multiberts import stats
          >>> result = stats.compare([[1, 0, 1, 1], [1, 1, 1, 0]], design="single")
          >>> result.named("RoBERTa").base.name
          'RoBERTa'
        """
        given = {"name": name, "evaluation_set": evaluation_set}
        result = with_values(self, **{key: text for key, text in given.items() if text is not None})
        for role, called in (("base", base), ("experiment", experiment)):
            arm = getattr(self, role)
            if called is not None and arm is not None:
                vars(result)[role] = with_values(arm, name=called)
        if self.origin is not None:
            vars(result).pop("notes", None)  # they name the arms
        return result

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
        return arms_of(self)[self.design == "fixed_baseline" :]


def arms_of(*items: Comparison) -> list[ArmSummary]:
    """Returns the arms of comparisons: base and, if any, experiment."""
    arms = (arm for item in items for arm in (item.base, item.experiment))
    return [arm for arm in arms if arm is not None]


def _seed_tests(arms: Sequence[ArmSummary], settings: ComparisonSettings) -> dict[str, PValues]:
    """Tests paired seeds by sign flips and unpaired seeds by permutations."""
    first, second = (arm.seed_scores for arm in arms)
    if settings.resample == "examples":
        return {}
    if settings.design == "paired":
        return {"sign flip": sign_flip_p_values(second - first)}
    if settings.design == "unpaired":
        return {"permutation": permutation_p_values(first, second)}
    return {}


def _seed_floor(settings: ComparisonSettings, numbers: Sequence[int]) -> float | None:
    if settings.design == "single" or settings.resample == "examples":
        return None
    if settings.design == "unpaired":
        return 1 / math.comb(sum(numbers), numbers[0])
    return 2.0 ** -numbers[-1]


# A smaller spread, relative to the scores, is rounding error.
_RELATIVE_ROUNDING = 1e-14


def hedges_g(
    base: NDArray[np.float64], experiment: NDArray[np.float64], paired: bool
) -> float | None:
    """Returns Hedges' g: the difference in pooled standard deviations of seeds (of pairs, if paired).

    g includes the correction for the bias of few seeds, which is exact for normal scores.

    Args:
      base: scores of the base's seeds, averaged over the runs of each seed [R].
      experiment: scores of the experiment's seeds [R'], in the same order of seeds if paired.

    Returns:
      g; None if there is no spread, or only one degree of freedom, for which there is no correction.
    """
    samples = [experiment - base] if paired else [base, experiment]
    freedom = sum(len(sample) - 1 for sample in samples)
    if freedom < 2:
        return None
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in samples)
    spread = float(np.sqrt(squares / freedom))
    if spread <= _RELATIVE_ROUNDING * float(np.abs([*base, *experiment]).max()):
        return None
    return float(experiment.mean() - base.mean()) / spread * bias_factor(freedom)


def bias_factor(degrees_of_freedom: float) -> float:
    """Computes the exact correction Gamma(m / 2) / (sqrt(m / 2) Gamma((m - 1) / 2))."""
    from scipy.special import gammaln

    half = degrees_of_freedom / 2
    return float(np.exp(gammaln(half) - gammaln(half - 0.5)) / np.sqrt(half))
