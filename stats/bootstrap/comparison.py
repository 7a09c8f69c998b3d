"""Compare two procedures over seeds and examples: estimate, intervals and tests in one object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.evaluate.metrics.register import metric_named
from multiberts.stats.bootstrap.arm_scores import arm_table
from multiberts.stats.bootstrap.arms import (
    Arm,
    DataError,
    Missing,
    align,
    arm_from_arrays,
    clustered,
    pair,
)
from multiberts.stats.bootstrap.conclusion import (
    ArmSummary,
    Comparison,
    Design,
    DrawOrder,
    Examples,
    Names,
    Settings,
    conclude,
)
from multiberts.stats.bootstrap.crossing import Crossing
from multiberts.stats.bootstrap.intervals import percentile_interval
from multiberts.stats.bootstrap.resampling import Chunk, Columns, Job, bootstrap, seed_scores
from multiberts.stats.bootstrap.score_tables import Part
from multiberts.stats.bootstrap.variance import Resample

if TYPE_CHECKING:
    import xarray


def compare(
    base: xarray.Dataset | xarray.DataArray,
    experiment: xarray.Dataset | xarray.DataArray | None,
    metric: str | Metric | RankMetric,
    design: Design = "paired",
    *,
    labels: xarray.DataArray | None = None,
    clusters: str | ArrayLike | None = None,
    examples: Examples = "shared",
    missing: Missing = "refuse",
    resample: Resample = "both",
    num_bootstrap: int = 1000,
    bootstrap_seed: int = 42,
    confidence: float = 0.95,
    draws: DrawOrder = "keyed",
    studentised: bool = True,
    name: str = "",
    evaluation_set: str = "",
    base_name: str = "base",
    experiment_name: str = "experiment",
) -> Comparison:
    """Compares two procedures, or describes one.

    Args:
      base: predictions with labels, as `evaluate.dumps.predictions.read_predictions` gives them (see
        `stats.bootstrap.arms.arm_from_arrays`). Runs of one pre-training seed are averaged, level by
        level; seeds may have different numbers of runs.
      experiment: the same for the other side, aligned by example id; None in a `single` design.
      metric: a key of `evaluate.metrics.register.METRICS`, or a metric.
      design: `paired` uses the seeds that both sides have; `unpaired` lets each side vary apart;
        `fixed_baseline` takes the base's runs as they are; `single` has no experiment.
      labels: dims (example,), where `base` and `experiment` are DataArrays of predictions.
      clusters: examples that belong together (such as sentences of one template) and are drawn
        together: the name of a coordinate or variable along `example`, or one value an example
        of the base.
      examples: `separate` where the two sides were scored on different test sets, which are then
        drawn apart.
      missing: `omit` takes a NaN prediction as a missing cell, which its run's score leaves out.
      resample: `both`, or `seeds` or `examples` alone, with the other held fixed.
      num_bootstrap: replicates.
      bootstrap_seed: names the draws.
      confidence: level of the intervals, in (0, 1).
      draws: `keyed` streams (see `stats.bootstrap.resampling.KeyedDraws`), or the `published` library's one
        stream, whose samples `stats.multibootstrap` gives too.
      studentised: whether to make the studentised interval, which takes about as long as all
        the rest.
      name, evaluation_set, base_name, experiment_name: for tables and texts.

    Raises:
      DataError: the arrays do not fit together, or an arm has too few seeds to say how seeds
        vary.
    """
    settings = Settings(
        design, resample, examples, num_bootstrap, bootstrap_seed, confidence, draws, studentised
    )
    settings.check()
    score = named_metric(metric)
    arms = prepare_arms(base, experiment, score, settings, labels, clusters, missing)
    check_seeds(arms, settings)
    question = Question(arms, score, settings, "")
    samples, undefined, variances = run_bootstrap([question], [question.crossing], settings)
    names = Names(name, evaluation_set, base_name, experiment_name)
    sides = summaries(question, samples, names, confidence)
    return conclude(
        sides,
        question.crossing,
        samples,
        undefined,
        variances[0],
        settings,
        names,
        score.name,
        score.is_correlation,
    )


def named_metric(metric: str | Metric | RankMetric) -> Metric | RankMetric:
    """A metric, by name or as it is.

    Raises:
      ValueError: there is no such name, or it is something else.
    """
    if isinstance(metric, str):
        return metric_named(metric)
    if not isinstance(metric, Metric | RankMetric):
        raise DataError(
            f"found metric {metric!r}, expected a name or a Metric; for a plain function use "
            "stats.multibootstrap"
        )
    return metric


def prepare_arms(
    base: xarray.Dataset | xarray.DataArray,
    experiment: xarray.Dataset | xarray.DataArray | None,
    metric: Metric | RankMetric,
    settings: Settings,
    labels: xarray.DataArray | None,
    clusters: str | ArrayLike | None,
    missing: Missing,
) -> list[Arm]:
    """Checked arms in one order of examples, with seeds paired where the design says so.

    Raises:
      DataError: the sides do not fit the design or each other.
    """
    design = settings.design
    if (experiment is None) != (design == "single"):
        raise DataError(
            f"found design {design!r} {'without' if experiment is None else 'with'} an "
            "experiment; a single "
            "design has none, the others have one"
        )
    sources = [("base", base)]
    if experiment is not None:
        sources.append(("experiment", experiment))
    arms = [
        arm_from_arrays(name, data, labels, metric=metric, missing=missing)
        for name, data in sources
    ]
    groups = [_clusters_of(name, data, clusters, settings) for name, data in sources]
    if experiment is not None and settings.examples == "shared":
        arms = list(align(arms[0], arms[1]))
        groups[1] = groups[0]  # the experiment's examples are in the base's order now
    arms = [
        arm if codes is None else clustered(arm, codes, name)
        for arm, codes, (name, _) in zip(arms, groups, sources, strict=True)
    ]
    if design != "paired":
        return arms
    paired = list(pair(*arms))
    if not paired[0].seeds:
        raise DataError(
            f"base has seeds {list(arms[0].seeds)} and experiment {list(arms[1].seeds)}, "
            "none in common; use the unpaired design"
        )
    return paired


def _clusters_of(
    name: str,
    data: xarray.Dataset | xarray.DataArray,
    clusters: str | ArrayLike | None,
    settings: Settings,
) -> NDArray | None:
    if clusters is None:
        return None
    if not isinstance(clusters, str):
        if settings.examples == "separate":
            raise DataError(
                "found clusters as values for separate examples; name a coordinate of both sides"
            )
        return np.asarray(clusters)
    # A coordinate of either kind of array, or a variable of a Dataset.
    if clusters not in data.coords and clusters not in getattr(data, "data_vars", ()):
        raise DataError(
            f"{name}: found no coordinate {clusters!r} to cluster by, only "
            f"{', '.join(map(str, data.coords))}"
        )
    found = data[clusters]
    if found.dims != ("example",):
        raise DataError(
            f"{name}: clusters {clusters!r} have dims {found.dims}, expected (example,)"
        )
    return found.to_numpy()


def check_seeds(arms: Sequence[Arm], settings: Settings) -> None:
    """Refuses an arm whose single seed was to be resampled.

    Raises:
      DataError: an arm that draws seeds has one.
    """
    if settings.resample == "examples":
        return
    for position, (name, arm) in enumerate(zip(("base", "experiment"), arms, strict=False)):
        if settings.design == "fixed_baseline" and position == 0:
            continue
        if len(arm.seeds) < 2:
            raise DataError(
                f"{name} has one seed "
                f"({arm.seeds[0]!r}){' to pair' if settings.design == 'paired' else ''}, and "
                "one cannot show how seeds vary; add seeds, or use resample='examples' and "
                "claim "
                "nothing beyond this seed"
                + (" (or design='fixed_baseline')" if name == "base" and len(arms) > 1 else "")
            )


class Question:
    """Arms, a metric and a design, as jobs for the bootstrap and as a crossing of tables.

    Args:
      arms: prepared.
      metric: their score.
      settings: design and what is resampled.
      examples: name of the set of examples; questions with one name share its draws.
    """

    def __init__(
        self, arms: Sequence[Arm], metric: Metric | RankMetric, settings: Settings, examples: str
    ):
        self.arms = tuple(arms)
        self.metric = metric
        pools_of: dict[Design, list[str | None]] = {
            "single": ["seeds"],
            "paired": ["seeds", "seeds"],
            "unpaired": ["seeds of base", "seeds of experiment"],
            "fixed_baseline": [None, "seeds"],
        }
        pools = pools_of[settings.design]
        sets: list[str | None] = [f"{examples} examples", f"{examples} examples"]
        if settings.examples == "separate":
            sets = [f"{examples} examples of base", f"{examples} examples of experiment"]
        if settings.resample == "examples":
            pools = [None, None]
        if settings.resample == "seeds":
            sets = [None, None]
        self.pools, self.sets = pools[: len(arms)], sets[: len(arms)]
        # Made once, for the bootstrap, the tables and the plain scores alike.
        self.columns = [
            Columns(arm, metric) if isinstance(metric, Metric) else None for arm in arms
        ]
        self.jobs = [
            Job(arm, metric, pool, name, columns)
            for arm, pool, name, columns in zip(
                self.arms, self.pools, self.sets, self.columns, strict=True
            )
        ]
        self.crossing = Crossing(self._parts())

    def _parts(self) -> list[Part]:
        weights = [1.0] if len(self.arms) == 1 else [-1.0, 1.0]
        return [
            Part(arm_table(job.arm, self.metric, job.columns), weight, job.pool, job.examples)
            for job, weight in zip(self.jobs, weights, strict=True)
        ]


def run_bootstrap(
    questions: Sequence[Question], crossings: Sequence[Crossing], settings: Settings
) -> tuple[NDArray[np.float64], NDArray[np.bool_], list[NDArray[np.float64] | None]]:
    """Bootstraps all questions with shared draws.

    Args:
      questions: what to score.
      crossings: sums of their tables whose replicates' variances may be wanted.
      settings: how.

    Returns:
      Scores and where they were 0/0, [replicates, jobs of all questions], and for each crossing
      the unbiased variance of each replicate [replicates] (None unless it was asked for).
    """
    variances: list[list[NDArray[np.float64]]] = [[] for _ in crossings]

    def observe(chunk: Chunk) -> None:
        seed_counts = {pool: chunk.seed_counts(pool) for pool in chunk.seeds}
        for crossing, found in zip(crossings, variances, strict=True):
            found.append(crossing.replicate_variances(seed_counts, chunk.counts))

    replicates = bootstrap(
        [job for question in questions for job in question.jobs],
        settings.make_draws(),
        settings.num_bootstrap,
        on_chunk=observe if settings.studentised else None,
    )
    joined = [np.concatenate(found) if found else None for found in variances]
    return replicates.scores, replicates.undefined, joined


def summaries(
    question: Question, samples: NDArray[np.float64], names: Names, confidence: float
) -> list[ArmSummary]:
    """One summary an arm of a question, from its samples [replicates, arms]."""
    found = []
    for job, drawn, name in zip(
        question.jobs, samples.T, (names.base, names.experiment), strict=False
    ):
        arm, scores = job.arm, seed_scores(job.arm, question.metric, job.columns)
        found.append(
            ArmSummary(
                name,
                float(scores.mean()),
                percentile_interval(drawn, confidence),
                arm.seeds,
                scores,
                len(arm.run_seeds),
                arm.num_examples,
                None if arm.clusters is None else arm.num_units,
            )
        )
    return found
