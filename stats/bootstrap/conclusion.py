"""What a comparison found, and how it is concluded from samples, exact variances and seed scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.crossing import Crossing
from multiberts.stats.bootstrap.effect_size import EffectSizes, effect_sizes
from multiberts.stats.bootstrap.intervals import (
    Interval,
    PValues,
    acceleration,
    basic_interval,
    bca_interval,
    bootstrap_p_values,
    compatible_p_value,
    fisher_t_interval,
    percentile_interval,
    permutation_p_values,
    sign_flip_p_values,
    studentised_interval,
    t_interval,
    t_p_values,
)
from multiberts.stats.bootstrap.resampling import Draws, KeyedDraws, PublishedDraws
from multiberts.stats.bootstrap.score_tables import Resample

Design = Literal["paired", "unpaired", "fixed_baseline", "single"]
Examples = Literal["shared", "separate"]
DrawOrder = Literal["keyed", "published"]


@dataclass(frozen=True)
class ArmSummary:
    """One side of a comparison.

    Attributes:
      name: the procedure.
      estimate: mean over seeds of the mean over runs of the score on all examples.
      percentile: the bootstrap's percentile interval of it.
      seeds: the pre-training seeds [R].
      seed_scores: the score of each seed, its runs averaged [R].
      num_runs: fine-tuning runs.
      num_examples: examples.
      num_clusters: clusters of examples, or None where they are drawn one by one.
    """

    name: str
    estimate: float
    percentile: Interval
    seeds: tuple
    seed_scores: NDArray[np.float64]
    num_runs: int
    num_examples: int
    num_clusters: int | None = None


@dataclass(frozen=True)
class Comparison:
    """What is known about the difference experiment - base, or about one procedure (`single`).

    Attributes:
      name, evaluation_set, metric: what is compared, on what, by which score.
      design: `paired` (the same seeds, drawn together), `unpaired` (own seeds),
        `fixed_baseline` (the base is that very set of runs, such as one published checkpoint)
        or `single` (base alone).
      resample: what the intervals speak about: `both` new seeds and new examples, or one of them.
      base, experiment: the two sides; `experiment` is None in a `single` design.
      num_examples: examples of the base; shared by both sides unless `examples` is `separate`.
      estimate: the plug-in estimate: the difference of the two sides' own; the base's in a
        `single` design.
      bootstrap_mean: mean of the bootstrap samples of it.
      bias: the bootstrap's estimate of the bias of `estimate`: bootstrap_mean - estimate.
      standard_error: unbiased (see `stats.bootstrap.variance`), of `estimate`.
      degrees_of_freedom: of the t (see `stats.bootstrap.crossing.VarianceEstimate`, the cautious ones).
      bootstrap_standard_error: the exact standard deviation of the bootstrap distribution (of
        its linear part, where the metric is no mean).
      confidence: level of all intervals.
      t: the recommended interval: estimate -+ t x standard error. For the correlation of one
        procedure it is made on Fisher's z and so stays within -1 and 1.
      percentile: the published interval. Too narrow with few seeds.
      basic, bca: other intervals from the same samples. Too narrow with few seeds too.
      studentised: from each replicate's own standard error. Wide with few seeds. None where it
        was not asked for.
      p_t: the recommended p-values, of the same t; None in a `single` design, as all p-values.
      p_percentile: (k + 1) / (B + 1) from the samples.
      p_published: k / B with a floor of 1 / B, the published form.
      p_sign_flip: randomisation of the signs of paired seeds, on these very examples: it does
        not ask whether new examples would agree. None in other designs, or where seeds are not
        resampled.
      p_permutation: of the seeds of unpaired sides; None likewise.
      effect: effect sizes over seeds; None in a `single` design or with one seed a side.
      seed_floor: the least one-sided p that the order of the seeds alone can give: 2**-R paired
        or against a fixed baseline, else one over the number of ways to deal the seeds to the
        two sides; None where seeds are not resampled.
      below_seed_floor: a bootstrap or t p lies under that floor and so leans on its assumptions.
      num_bootstrap, bootstrap_seed: replicates and the seed of their draws.
      samples: bootstrap scores [replicates, 2] of (base, experiment), or [replicates, 1].
      degenerate_replicates: replicates where a score was 0/0 and took its defined value.
      examples: whether the two sides share their examples.
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

    @property
    def differences(self) -> NDArray[np.float64]:
        """Bootstrap samples of `estimate` [replicates]."""
        return self.samples[:, -1] - self.samples[:, 0] if self.experiment else self.samples[:, 0]

    @property
    def significant(self) -> bool:
        """Whether the recommended two-sided p lies under 1 - confidence."""
        return self.p_t is not None and self.p_t.two_sided < 1 - self.confidence


@dataclass(frozen=True)
class Settings:
    """What all comparisons of a family have in common; see `compare`."""

    design: Design
    resample: Resample
    examples: Examples
    num_bootstrap: int
    bootstrap_seed: int
    confidence: float
    draws: DrawOrder
    studentised: bool

    def check(self) -> None:
        """Refuses unknown words and impossible numbers.

        Raises:
          DataError: a setting is none of its choices.
        """
        for what, value, choices in (
            ("design", self.design, Design),
            ("resample", self.resample, Resample),
            ("examples", self.examples, Examples),
            ("draws", self.draws, DrawOrder),
        ):
            if value not in get_args(choices):
                raise DataError(
                    f"found {what} {value!r}, expected one of {', '.join(get_args(choices))}"
                )
        if self.num_bootstrap < 1 or not 0 < self.confidence < 1:
            raise DataError(
                f"found num_bootstrap {self.num_bootstrap} and confidence {self.confidence}, "
                "expected at least 1 and a number between 0 and 1"
            )
        if self.examples == "separate" and self.design in ("single", "fixed_baseline"):
            raise DataError(
                f"found separate examples in a {self.design} design; it is paired and unpaired "
                "designs whose two sides may have examples of their own"
            )

    def make_draws(self) -> Draws:
        if self.draws == "keyed":
            return KeyedDraws(self.bootstrap_seed)
        return PublishedDraws(np.random.RandomState(self.bootstrap_seed))


@dataclass(frozen=True)
class Names:
    """What tables and texts call a comparison."""

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
    settings: Settings,
    names: Names,
    metric: str,
    correlation: bool = False,
) -> Comparison:
    """Intervals and tests from the samples, the exact variances and the scores of seeds.

    Args:
      sides: base, and the experiment unless the design is single.
      crossing: the tables whose sum is the estimate.
      samples: [replicates, sides].
      undefined: where a score was 0/0 [replicates, jobs].
      replicate_variances: [replicates], or None for no studentised interval.
      settings: how the comparison is made.
      names: what it is called.
      metric: name of the score.
      correlation: whether it is one.
    """
    base = sides[0]
    experiment = sides[1] if len(sides) > 1 else None
    differences = samples[:, 0] if experiment is None else samples[:, 1] - samples[:, 0]
    estimate = base.estimate if experiment is None else experiment.estimate - base.estimate
    unbiased = crossing.unbiased_variance()
    standard_error = math.sqrt(unbiased.variance)
    level = settings.confidence
    studentised = None
    if replicate_variances is not None:
        studentised = studentised_interval(
            differences, np.sqrt(replicate_variances), estimate, standard_error, level
        )
    p_t = p_percentile = p_published = None
    if experiment is not None:
        p_t = t_p_values(estimate, standard_error, unbiased.cautious_degrees_of_freedom)
        p_percentile = bootstrap_p_values(differences)
        p_published = _published_p_values(differences)
    sign_flip, permutation = _seed_tests(sides, settings)
    floor = _seed_floor(settings, [len(side.seeds) for side in sides])
    mean = float(differences.mean())
    # The spread of a correlation depends on its size; that of a difference of two hardly does.
    make_t_interval = fisher_t_interval if correlation and experiment is None else t_interval
    return Comparison(
        name=names.name,
        evaluation_set=names.evaluation_set,
        metric=metric,
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
        t=make_t_interval(estimate, standard_error, unbiased.cautious_degrees_of_freedom, level),
        percentile=percentile_interval(differences, level),
        basic=basic_interval(differences, estimate, level),
        bca=bca_interval(differences, estimate, acceleration(crossing.influences()), level),
        studentised=studentised,
        p_t=p_t,
        p_percentile=p_percentile,
        p_published=p_published,
        p_sign_flip=sign_flip,
        p_permutation=permutation,
        effect=_effect(sides, settings),
        seed_floor=floor,
        below_seed_floor=_below(floor, p_percentile, p_t),
        num_bootstrap=settings.num_bootstrap,
        bootstrap_seed=settings.bootstrap_seed,
        samples=samples,
        degenerate_replicates=int(undefined.any(axis=1).sum()),
        examples=settings.examples,
    )


def _published_p_values(differences: NDArray[np.float64]) -> PValues:
    greater = compatible_p_value(differences)
    less = compatible_p_value(differences, expect_negative_effect=True)
    return PValues(greater, less, min(1.0, 2 * min(greater, less)))


def _seed_tests(
    sides: Sequence[ArmSummary], settings: Settings
) -> tuple[PValues | None, PValues | None]:
    """Sign flips and permutations of seeds, where the design has them."""
    if len(sides) < 2 or settings.resample == "examples":
        return None, None
    first, second = sides[0].seed_scores, sides[1].seed_scores
    if settings.design == "paired":
        return sign_flip_p_values(second - first), None
    if settings.design == "unpaired":
        return None, permutation_p_values(first, second)
    return None, None


def _effect(sides: Sequence[ArmSummary], settings: Settings) -> EffectSizes | None:
    if len(sides) < 2 or min(len(side.seeds) for side in sides) < 2:
        return None
    paired = settings.design == "paired"
    return effect_sizes(sides[0].seed_scores, sides[1].seed_scores, paired)


def _seed_floor(settings: Settings, numbers: Sequence[int]) -> float | None:
    if settings.design == "single" or settings.resample == "examples":
        return None
    if settings.design == "unpaired":
        return 1 / math.comb(sum(numbers), numbers[0])
    return 2.0 ** -numbers[-1]


def _below(floor: float | None, *tests: PValues | None) -> bool:
    if floor is None:
        return False
    return any(min(test.greater, test.less) < floor for test in tests if test is not None)
