"""Compare two procedures over seeds and examples: estimate, intervals and tests in one object."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from evaluate.metrics import Metric, metric_named
from stats.arms import Arm, DataError, align, arm_from_arrays, pair
from stats.intervals import (
    Interval,
    PValues,
    bootstrap_p_values,
    percentile_interval,
    sign_flip_p_values,
    t_interval,
    t_p_values,
)
from stats.resampling import resample as bootstrap
from stats.variance import (
    Resample,
    VarianceEstimate,
    bootstrap_variance,
    bootstrap_variance_unpaired,
    seed_table,
    unbiased_variance,
    unbiased_variance_unpaired,
)

if TYPE_CHECKING:
    import xarray

Design = Literal["paired", "unpaired", "single"]


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
    """

    name: str
    estimate: float
    percentile: Interval
    seeds: tuple
    seed_scores: NDArray[np.float64]
    num_runs: int


@dataclass(frozen=True)
class Comparison:
    """What is known about the difference experiment - base, or about one procedure (`single`).

    Attributes:
        name, evaluation_set, metric: what is compared, on what, by which score.
        design: `paired` (the same seeds, drawn together), `unpaired` (own seeds) or `single` (base
            alone).
        resample: what the intervals speak about: `both` new seeds and new examples, or one of them.
        base, experiment: the two sides; `experiment` is None in a `single` design.
        num_examples: examples, shared by both sides.
        estimate: the difference of the two estimates; the base's own in a `single` design.
        bootstrap_mean: mean of the bootstrap samples of it.
        standard_error, degrees_of_freedom: unbiased (see `stats.variance`), of `estimate`.
        bootstrap_standard_error: the exact standard deviation of the bootstrap distribution (linear
            part).
        confidence: level of all intervals.
        percentile: the published interval. Too narrow with few seeds.
        t: the recommended interval: estimate -+ t x standard error, Satterthwaite's degrees of
            freedom.
        p_percentile, p_t, p_sign_flip: p-values of the difference; None in a `single` design, and
            the sign-flip test is for paired designs that resample seeds.
        seed_floor: the least one-sided p that the order of the seeds alone can give: 2**-R paired,
            else one over the number of ways to deal the seeds to the two sides; None where seeds
            are not resampled.
        below_seed_floor: a bootstrap or t p lies under that floor and so leans on its assumptions.
        num_bootstrap, bootstrap_seed: replicates and the seed of their draws.
        samples: bootstrap scores [replicates, 2] of (base, experiment), or [replicates, 1].
        degenerate_replicates: replicates where a score was 0/0 and took its defined value.
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
    standard_error: float
    degrees_of_freedom: float
    bootstrap_standard_error: float
    confidence: float
    percentile: Interval
    t: Interval
    p_percentile: PValues | None
    p_t: PValues | None
    p_sign_flip: PValues | None
    seed_floor: float | None
    below_seed_floor: bool
    num_bootstrap: int
    bootstrap_seed: int
    samples: NDArray[np.float64]
    degenerate_replicates: int

    @property
    def differences(self) -> NDArray[np.float64]:
        """Bootstrap samples of `estimate` [replicates]."""
        return self.samples[:, -1] - self.samples[:, 0] if self.experiment else self.samples[:, 0]


def compare(
    base: xarray.Dataset | xarray.DataArray,
    experiment: xarray.Dataset | xarray.DataArray | None,
    metric: str | Metric,
    design: Design = "paired",
    *,
    labels: xarray.DataArray | None = None,
    resample: Resample = "both",
    num_bootstrap: int = 1000,
    bootstrap_seed: int = 42,
    confidence: float = 0.95,
    name: str = "",
    evaluation_set: str = "",
    base_name: str = "base",
    experiment_name: str = "experiment",
) -> Comparison:
    """Compares two procedures, or describes one.

    Args:
        base: predictions with labels, as `evaluate.predictions.read_predictions` gives them (see
            `stats.arms.arm_from_arrays`). Runs of one pre-training seed are averaged; seeds may
            have different numbers of runs.
        experiment: the same for the other side, aligned by example id; None in a `single` design.
        metric: a key of `evaluate.metrics.METRICS`, or a `Metric`.
        design: `paired` uses the seeds that both sides have; `unpaired` lets each side vary apart;
            examples are shared in both.
        labels: dims (example,), where `base` and `experiment` are DataArrays of predictions.
        resample: `both`, or `seeds` or `examples` alone, with the other held fixed.
        num_bootstrap: replicates.
        bootstrap_seed: seed of the published stream of draws.
        confidence: level of the intervals, in (0, 1).
        name, evaluation_set, base_name, experiment_name: for tables and texts.

    Raises:
        DataError: the arrays do not fit together, or an arm has too few seeds to say how seeds
            vary.
    """
    arms = _prepared(base, experiment, design, labels, resample)
    score = metric if isinstance(metric, Metric) else metric_named(metric)
    seed_scores = [score.score(arm.labels, arm.predictions) @ arm.seed_weights for arm in arms]
    means = [float(scores.mean()) for scores in seed_scores]
    replicates = bootstrap(
        arms,
        score,
        paired=design == "paired",
        sample_seeds=resample != "examples",
        sample_examples=resample != "seeds",
        num_bootstrap=num_bootstrap,
        rng=np.random.RandomState(bootstrap_seed),
    )
    samples = replicates.scores
    summaries = [
        ArmSummary(
            arm_name,
            mean,
            percentile_interval(drawn, confidence),
            arm.seeds,
            scores,
            len(arm.run_seeds),
        )
        for arm_name, mean, drawn, arm, scores in zip(
            (base_name, experiment_name), means, samples.T, arms, seed_scores, strict=False
        )
    ]
    differences = samples[:, -1] - samples[:, 0] if experiment is not None else samples[:, 0]
    estimate = means[-1] - means[0] if experiment is not None else means[0]
    exact, unbiased = _variances([seed_table(score, arm) for arm in arms], design, resample)
    standard_error = math.sqrt(unbiased.variance)
    tests = _tests(design, resample, differences, estimate, unbiased, seed_scores)
    floor = _seed_floor(design, resample, [len(arm.seeds) for arm in arms])
    return Comparison(
        name=name,
        evaluation_set=evaluation_set,
        metric=score.name,
        design=design,
        resample=resample,
        base=summaries[0],
        experiment=summaries[1] if len(summaries) > 1 else None,
        num_examples=arms[0].num_examples,
        estimate=estimate,
        bootstrap_mean=float(differences.mean()),
        standard_error=standard_error,
        degrees_of_freedom=unbiased.degrees_of_freedom,
        bootstrap_standard_error=math.sqrt(exact),
        confidence=confidence,
        percentile=percentile_interval(differences, confidence),
        t=t_interval(estimate, standard_error, unbiased.degrees_of_freedom, confidence),
        p_percentile=tests[0],
        p_t=tests[1],
        p_sign_flip=tests[2],
        seed_floor=floor,
        below_seed_floor=_below(floor, tests[0], tests[1]),
        num_bootstrap=num_bootstrap,
        bootstrap_seed=bootstrap_seed,
        samples=samples,
        degenerate_replicates=replicates.degenerate,
    )


def _prepared(
    base: xarray.Dataset | xarray.DataArray,
    experiment: xarray.Dataset | xarray.DataArray | None,
    design: Design,
    labels: xarray.DataArray | None,
    resample: Resample,
) -> list[Arm]:
    """Checked arms in one order of examples, with seeds paired where the design says so."""
    for what, value, choices in (("design", design, Design), ("resample", resample, Resample)):
        if value not in get_args(choices):
            raise DataError(
                f"found {what} {value!r}, expected one of {', '.join(get_args(choices))}"
            )
    if (experiment is None) != (design == "single"):
        raise DataError(
            f"found design {design!r} {'without' if experiment is None else 'with'} an "
            "experiment; a single "
            "design has none, the others have one"
        )
    arms = [arm_from_arrays("base", base, labels)]
    if experiment is not None:
        arms = list(align(arms[0], arm_from_arrays("experiment", experiment, labels)))
    if design == "paired":
        before = arms
        arms = list(pair(*arms))
        if not arms[0].seeds:
            raise DataError(
                f"base has seeds {list(before[0].seeds)} and experiment {list(before[1].seeds)}, "
                "none in "
                "common; use the unpaired design"
            )
    if resample != "examples":
        for name, arm in zip(("base", "experiment"), arms, strict=False):
            if len(arm.seeds) < 2:
                raise DataError(
                    f"{name} has one seed "
                    f"({arm.seeds[0]!r}){' to pair' if design == 'paired' else ''}, and "
                    "one cannot show how seeds vary; add seeds, or use resample='examples' and "
                    "claim "
                    "nothing beyond this seed"
                )
    return arms


def _variances(
    tables: list[NDArray[np.float64]], design: Design, resample: Resample
) -> tuple[float, VarianceEstimate]:
    if design == "unpaired":
        return (
            bootstrap_variance_unpaired(tables[0], tables[1], resample),
            unbiased_variance_unpaired(tables[0], tables[1], resample),
        )
    table = tables[1] - tables[0] if design == "paired" else tables[0]
    return bootstrap_variance(table, resample), unbiased_variance(table, resample)


def _tests(
    design: Design,
    resample: Resample,
    differences: NDArray[np.float64],
    estimate: float,
    unbiased: VarianceEstimate,
    seed_scores: list[NDArray[np.float64]],
) -> tuple[PValues | None, PValues | None, PValues | None]:
    if design == "single":
        return None, None, None
    flips = None
    if design == "paired" and resample != "examples":
        flips = sign_flip_p_values(seed_scores[1] - seed_scores[0])
    return (
        bootstrap_p_values(differences),
        t_p_values(estimate, math.sqrt(unbiased.variance), unbiased.degrees_of_freedom),
        flips,
    )


def _seed_floor(design: Design, resample: Resample, numbers: list[int]) -> float | None:
    if design == "single" or resample == "examples":
        return None
    return 2.0 ** -numbers[0] if design == "paired" else 1 / math.comb(sum(numbers), numbers[0])


def _below(floor: float | None, *tests: PValues | None) -> bool:
    if floor is None:
        return False
    return any(min(test.greater, test.less) < floor for test in tests if test is not None)
