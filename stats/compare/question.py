"""Compares two arms over seeds and examples; the result contains the estimate, intervals and tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from multiberts.evaluate.metrics.answer_checks import labelled_averages
from multiberts.evaluate.metrics.classification import is_binary
from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.register import METRICS
from multiberts.runs.errors import counted
from multiberts.stats.bootstrap.answer_pairs import paired_answers
from multiberts.stats.bootstrap.pseudo_values import job_table, scored_counts
from multiberts.stats.bootstrap.replicates import Replicates, ScoreJob, bootstrap, draws_of
from multiberts.stats.compare.checks import (
    answers_of,
    are_repeats,
    check_aligned,
    check_defined,
    check_labels,
    check_named,
    check_scales,
    check_tables,
    notes_of,
    notes_of_calibration,
    notes_of_clusters,
    notes_of_undefined,
    settings_of,
)
from multiberts.stats.compare.conclude import Names, concluded, percentile_of
from multiberts.stats.compare.failures import failures_of
from multiberts.stats.compare.result import Comparison
from multiberts.stats.compare.shared import SharedArms
from multiberts.stats.errors import DataError
from multiberts.stats.interval_rule import AnswerPairs, ScoreKind, interval_of_score, spread_of
from multiberts.stats.metrics import FunctionMetric, MetricLike, ScoreFunction, named_metric
from multiberts.stats.reading import (
    arms_in,
    arms_of_arrays,
    metric_as_read,
    metric_of,
    named_arms,
    values_of_clusters,
)
from multiberts.stats.results import ArmSummary, Pairing
from multiberts.stats.runs_table import Arm, align, pair
from multiberts.stats.settings import ComparisonSettings, Design, Missing, Resample, whole_number
from multiberts.stats.variance.crossing import Crossing, Term
from multiberts.stats.variance.score_tables import Array, TablePart, rows_of


@dataclass(frozen=True)
class TaskData:
    """The predictions of two arms on one task, for `compare_tasks`.

    Attributes:
      base, experiment: predictions or scores, as in `stats.compare`; experiment is None in a `single`
        design.
      metric, labels, clusters, missing: as in `stats.compare`.
      examples_of: name of the set of examples, by default the task's name. Tasks with the same set share its
        draws, such as one evaluation set under two metrics.

    Examples:
      >>> from xarray import DataArray
      >>> from multiberts import stats
      >>> rows, dims = [[1, 0, 1, 1], [1, 1, 1, 0]], ("pretrain_seed", "example")
      >>> right = DataArray(rows, {"pretrain_seed": [0, 1]}, dims)
      >>> labels = DataArray([1, 1, 1, 1], dims="example")
      >>> stats.TaskData(right, None, "accuracy", labels).missing
      'refuse'

    See also: `compare_tasks`.
    """

    base: Any
    experiment: Any
    metric: str | MetricLike | ScoreFunction | None = None
    labels: Any = None
    clusters: Any = None
    missing: Missing = "refuse"
    examples_of: str | None = None


def compare(
    base: Any,
    experiment: Any = None,
    metric: str | MetricLike | ScoreFunction | None = None,
    *,
    design: Design = "paired",
    labels: Any = None,
    clusters: Any = None,
    missing: Missing = "refuse",
    resample: Resample | None = None,
    confidence_level: float = 0.95,
    n_resamples: int = 1000,
    rng: int | np.random.Generator = 42,
) -> Comparison:
    """Compares two arms, or describes one.

    Further functions take the result: `same` (equality within a margin), `slices`, `one_seed` (with a
    borrowed spread of seeds), `reproduce`. `Comparison.named` names the arms.

    Args:
      base: predictions, or example scores, in one of these forms: an array, tensor or nested list [seeds,
        examples] or [seeds, runs, examples], or [examples] of one seed (one score per seed is [seeds, 1]); a
        dict of arrays [examples] by seed; a data frame (pandas, polars) or `datasets.Dataset` with columns of
        usual names, one row per prediction or one column per run; a frame with seeds as rows and examples as
        columns; the path of any file or folder that `multiberts compare` reads; an xarray Dataset (from
        `evaluate.prediction_files.predictions.read_predictions`) or DataArray with dims run or pretrain_seed,
        and example. Runs of one pre-training seed are averaged level by level; their number may differ
        between seeds.
      experiment: data of the other arm, aligned by example id. None if `base` contains both arms, the base
        first: a table, file or dict ({"RoBERTa": ..., "Ours": ...}), or a list or tuple of two arrays or
        frames. With one arm, such as a nested list, the design is `single`.
      metric: a key of `evaluate.metrics.register.METRICS`, a metric, or a function of (labels
        [examples], predictions [examples]), which is slow: it is called for every run of every replicate,
        and once with each example left out. By default the metric of the task or log, else `accuracy` for
        predictions with labels and `mean` for scores.
      design: `paired` uses the seeds that both arms have (repeated evaluations, known as logs in order of
        time, are unpaired); `unpaired` draws the seeds of each arm separately; `fixed_baseline` holds the
        base's runs fixed; `single` has no experiment.
      labels: labels of the examples, which replace the arms' labels: a DataArray with example ids, a Series
        with an index, a mapping, a data frame of ids and labels or its path; all are sorted into the order of
        the predictions. Other values are matched by position and refused if the examples have ids.
      clusters: groups of examples that are drawn together, such as sentences of one template: the name of a
        coordinate or variable along `example`, or one value per example of the base, in the forms of
        `labels`. A table's column `cluster` or `template` is used by default.
      missing: `omit` leaves a NaN prediction out of its run's score, as if missing at random.
      resample: units that the result generalises to: new seeds and new examples (`both`), or `seeds` or
        `examples` with the other held fixed. By default `both`; `examples` for one run of each arm, and
        `seeds` for one score per run.
      confidence_level: level of the intervals, in (0, 1).
      n_resamples: bootstrap replicates, 39 or more for intervals at 95 %.
      rng: whole number that identifies the bootstrap draws: equal numbers give equal results. A NumPy
        Generator supplies one number. None is not allowed, because results must be repeatable.

    Raises:
      DataError: incompatible arrays, or an arm with too few seeds to estimate their variance.

    Examples:
      >>> from multiberts import stats
      >>> base = [[1, 1, 1, 1], [0, 0, 1, 0], [1, 0, 0, 0]]  # seeds x examples
      >>> experiment = [[1, 0, 1, 1], [1, 0, 1, 0], [1, 0, 1, 0]]
      >>> result = stats.compare(base, experiment, "accuracy", labels=[1, 0, 1, 0])
      >>> result.estimate, result.p_values["sign flip"].greater
      (0.25, 0.125)

    See also: `compare_tasks`, `compare_arms`, `read`, `Comparison`, `same`, `slices`, `one_seed`.

    Reference: Sellam et al. (2022), The MultiBERTs: BERT Reproductions for Robustness Analysis, section
    3.2; Satterthwaite (1946), An Approximate Distribution of Estimates of Variance Components.
    """
    settings = ComparisonSettings(
        design, resample, n_resamples, whole_number(rng), confidence_level
    )
    data, names = base, Names()
    arms: dict[str, Any] = {}
    if experiment is not None:
        arms = named_arms({"base": base, "experiment": experiment})
    elif design != "single":
        arms = arms_in(base, "base") or arms_of_arrays(base)
        if len(arms) > 2:
            raise DataError(
                f"found {len(arms)} arms ({', '.join([*arms][:9])}), expected two; give them to "
                "stats.compare_arms, or one as base and one as experiment"
            )
    if len(arms) == 2:
        (first, base), (second, experiment) = arms.items()
        names = Names(base=first, experiment=second)
    elif design == "paired":
        settings = replace(settings, design="single")
    task = TaskData(base, experiment, metric, labels, clusters, missing)
    result = compare_task(task, settings, names)
    return replace(result, origin=replace(result.computed_from(), data=data))


def compare_task(
    task: TaskData, settings: ComparisonSettings, names: Names, shared: SharedArms | None = None
) -> Comparison:
    """Compares the two arms of one task; see `compare`."""
    shared = shared or SharedArms()
    spec = ComparisonSpec(prepare_arms(task, settings, shared), settings, "", shared)
    [result], _ = compare_specs([spec], settings, [names])
    return result


class PreparedArms(NamedTuple):
    """The checked arms of a comparison, with their examples in one order.

    Attributes:
      notes: notes on each arm for readers; `{arm}`, `{base}` and `{experiment}` are replaced by names.
    """

    arms: tuple[Arm, ...]
    metric: MetricLike
    notes: tuple[tuple[str, ...], ...] = ((), ())


def prepare_arms(
    task: TaskData, settings: ComparisonSettings, shared: SharedArms | None = None
) -> PreparedArms:
    """Checks the arms of a task, aligns their examples and, in a paired design, pairs their seeds."""
    design, experiment, cache = settings.design, task.experiment, shared or SharedArms()
    if (experiment is None) != (design == "single"):
        raise DataError(
            f"found design {design!r} {'without' if experiment is None else 'with'} an experiment; "
            "a single design has none, the others have one"
        )
    by_role = (
        {"base": task.base} if experiment is None else {"base": task.base, "experiment": experiment}
    )
    read_for = metric_as_read(task.metric)
    tables = {
        name: cache.table(name, data, read_for, task.labels) for name, data in by_role.items()
    }
    chosen = metric_of(tables, task.metric)
    metric = named_metric(chosen)
    design = settings_of([*tables.values()], settings).design
    check_tables(tables, design)
    arms = [cache.read(name, table, metric, task.missing) for name, table in tables.items()]
    if len(arms) > 1:
        if any(table.labels is None for table in tables.values()):
            # Scores need no labels. If only one arm has labels, they cannot be checked.
            arms = [replace(arm, labels=np.zeros(arm.num_examples)) for arm in arms]
        arms = list(align(arms[0], arms[1]))
        check_aligned(arms)
    check_scales(arms, metric)
    notes = [notes_of(arm, design) for arm in arms]
    clusters = task.clusters
    if clusters is None and any("cluster" in arm.read.columns for arm in arms):
        clusters = "cluster"
    if clusters is not None:
        arms = _in_clusters(clusters, arms, cache)
        notes[0] += notes_of_clusters(arms[0])
    if design == "paired":
        unpaired, arms = arms, list(pair(*arms))
        if not arms[0].seeds:
            raise DataError(
                f"base has seeds {list(unpaired[0].seeds)} and experiment {list(unpaired[1].seeds)}, "
                "none in common; if they are unrelated, give design='unpaired'"
            )
    used = bounded_mean(named_metric(chosen, arms), arms)
    notes = [
        [*of_answers, *more]
        for of_answers, more in zip(check_labels(arms, used), notes, strict=True)
    ]
    return PreparedArms(tuple(arms), used, tuple(map(tuple, notes)))


def bounded_mean(metric: MetricLike, arms: Sequence[Arm]) -> MetricLike:
    """Returns the metric `mean` with the known bounds of its scores; other metrics unchanged.

    Scores of 0 and 1 only are right or wrong answers. Other scores have the bounds of the metric in the name
    of their column, unless a score exceeds these.
    """
    if metric is not METRICS["mean"]:
        return metric
    if all(is_binary(arm.predictions) for arm in arms):
        return METRICS["share"]
    columns = [arm.read.columns.get("score") for arm in arms]
    named = METRICS.get(columns[0] or "") if len({*columns}) == 1 else None
    if named is not None:
        low, high = named.bounds
        if all(
            low <= np.nanmin(arm.predictions) and np.nanmax(arm.predictions) <= high for arm in arms
        ):
            return replace(METRICS["mean"], bounds=named.bounds)
    return metric


def _in_clusters(clusters: Any, arms: Sequence[Arm], shared: SharedArms) -> list[Arm]:
    """Groups the aligned examples of all arms by the clusters of one arm."""
    import pandas

    names = ["base", "experiment"][: len(arms)]
    # If no arm has the column, the error is about the base.
    with_column = [
        number
        for number, arm in enumerate(arms)
        if isinstance(clusters, str) and clusters in arm.of_examples
    ] or [0]
    columns = [values_of_clusters(names[number], clusters, arms[number]) for number in with_column]
    groupings = [pandas.factorize(values)[0] for values, _ in columns]  # names may differ
    if (groupings[0] != groupings[-1]).any():
        differing = np.flatnonzero(groupings[0] != groupings[-1])
        raise DataError(
            f"base and experiment have different clusters {clusters!r} for "
            f"{counted(differing.size, 'example')}; use one column of clusters for both, or leave it out "
            "of one"
        )
    values, called = columns[0]
    check_named(
        values,
        f"a cluster (an empty {called!r})" if called else "a cluster",
        "name them, each example that belongs to no other as a cluster of its own, or leave the column out",
    )
    return [
        shared.clustered(arm, values, name, called) for arm, name in zip(arms, names, strict=True)
    ]


class ComparisonSpec:
    """Arms, metric and design as bootstrap jobs and as a crossing of tables.

    Attributes:
      prepared, settings: arms and settings of the comparison.
      examples: name of the set of drawn examples, or None.
      jobs: bootstrap jobs of the arms' scores.
      crossing: tables whose sum is the estimate.
      crossings: separate crossings of the arms' tables.
      pairs: paired answers of the arms to the same examples; None if they are not paired.
      unpaired: crossing with one pool of seeds per arm, for a paired design.
      pairing: see `Comparison`.
    """

    pairs: AnswerPairs | None
    unpaired: Crossing | None
    pairing: Pairing | None

    def __init__(
        self,
        prepared: PreparedArms,
        settings: ComparisonSettings,
        examples: str,
        shared: SharedArms | None = None,
        prior: Term = (0.0, 0.0),
    ):
        """Builds the jobs and the tables.

        Args:
          examples: name of the set of examples; specs with the same name share its draws.
          prior: variance between seeds for arms with one seed, as in `Crossing`.
        """
        arms, metric, self._notes = prepared[:3]
        settings = settings_of(arms, settings)
        self.prepared, self.settings, self.prior = prepared, settings, prior
        drawn = dict(zip(("base", "experiment"), arms, strict=False))
        if settings.design == "fixed_baseline":
            del drawn["base"]
        for name, arm in drawn.items() if not prior[1] else ():
            cures = ["borrow their spread (seed_sd='NUMBER')"] * (arm.num_examples > 1)
            if name == "base" and len((*arms[-1].seeds, *arms[-1].left_out)) > 1:
                is_one = "fixed_baseline' to ask about this model alone"
                of_others = "unpaired' if seeds of one number are unrelated"
                cures.append(f"give design='{of_others if arm.left_out else is_one}")
            check_seeds({name: arm}, settings, cures)
        self.arms, self.metric, self.kind = tuple(arms), metric, kind_of(metric)
        pools_of: dict[Design, list[str | None]] = {
            "single": ["seeds"],
            "paired": ["seeds", "seeds"],
            "unpaired": ["seeds of base", "seeds of experiment"],
            "fixed_baseline": [None, "seeds"],
        }
        pools = pools_of[settings.design]
        if settings.resample == "examples":
            pools = [None, None]
        self.examples = None if settings.resample == "seeds" else f"{examples} examples"
        job = (shared or SharedArms()).job
        self.jobs = [
            job(arm, metric, pool, self.examples) for arm, pool in zip(arms, pools, strict=False)
        ]
        for name, scored in zip(("base", "experiment"), self.jobs, strict=False):
            check_defined(name, scored)
        weights = [1.0] if len(arms) == 1 else [-1.0, 1.0]
        parts = self._parts = [
            part_of(job, weight) for job, weight in zip(self.jobs, weights, strict=True)
        ]
        self.crossing = Crossing(parts, prior)
        # An arm with several seeds needs no borrowed variance.
        priors = [prior if part.table.shape[0] == 1 else (0.0, 0.0) for part in parts]
        self.crossings = [
            Crossing([replace(part, weight=1.0)], arm_prior)
            for part, arm_prior in zip(parts, priors, strict=True)
        ]
        self.pairs = paired_answers(*self.jobs) if len(arms) > 1 else None
        self.unpaired = None
        if settings.design == "paired" and settings.resample != "examples":
            self.unpaired = Crossing(
                [
                    replace(part, pool=pool)
                    for part, pool in zip(parts, pools_of["unpaired"], strict=True)
                ]
            )
        self.pairing = pairing_of(arms, settings)

    def without(self, summaries: Sequence[ArmSummary]) -> Crossing | None:
        """Returns the crossing without failed seeds; None if no seed failed or too few are left.

        It is None for a single arm, too: if the lowest seeds did train, leaving them out biases a score
        upwards (but not a difference).
        """
        if len(self.jobs) == 1:
            return None
        failed = [set(arm.failed_seeds) for arm in summaries]
        if self.jobs[0].pool is not None and len({job.pool for job in self.jobs}) == 1:
            failed = [set().union(*failed)] * len(failed)  # pairs
        if not any(failed):
            return None
        parts = []
        for part, arm, lost in zip(self._parts, self.arms, failed, strict=True):
            rows = [row for row, seed in enumerate(arm.seeds) if seed not in lost]
            if len(rows) < (1 if part.pool is None else 2):
                return None
            parts.append(replace(part, table=rows_of(part.table, rows)))
        return Crossing(parts, self.prior)

    def over_labels(self) -> tuple[float, ...]:
        """Returns `Comparison.over_labels`."""
        answers = answers_of(self.arms, self.metric)
        return labelled_averages(self.metric.name, self.arms[0].labels, answers) if answers else ()

    def notes(self, summaries: Sequence[ArmSummary]) -> tuple[str, ...]:
        """Returns notes for readers with the names of the arms."""
        names = [arm.name for arm in summaries]
        undefined = map(notes_of_undefined, self.jobs)
        texts = named_notes(
            [(*data, *more) for data, more in zip(self._notes, undefined, strict=False)], names
        )
        return (*texts, *notes_of_calibration(self.metric, self.arms, names))

    def summaries(
        self, samples: Array, names: Names, settings: ComparisonSettings
    ) -> list[ArmSummary]:
        """Summarises each arm from its samples [replicates, arms]."""
        called = (names.base, names.experiment)
        return [
            summarise_arm(job, crossing, drawn, name, settings)
            for job, crossing, drawn, name in zip(
                self.jobs, self.crossings, samples.T, called, strict=False
            )
        ]


def part_of(job: ScoreJob, weight: float = 1.0) -> TablePart:
    """Returns an arm's table [seeds, examples] as a term of a sum."""
    pools = job.pool, job.examples
    return TablePart(job_table(job), weight, *pools, scored_counts(job), job.arm.cluster_sizes)


def named_notes(notes: Sequence[Iterable[str]], names: Sequence[str]) -> tuple[str, ...]:
    """Inserts the names of the arms into their notes; see `PreparedArms`."""
    return tuple(
        text.replace("{arm}", name).replace("{base}", names[0]).replace("{experiment}", names[-1])
        for texts, name in zip(notes, names, strict=False)
        for text in texts
    )


def summarise_arm(
    job: ScoreJob, crossing: Crossing, samples: Array, name: str, settings: ComparisonSettings
) -> ArmSummary:
    """Summarises one arm.

    Args:
      samples: bootstrap scores [replicates].
    """
    arm, scores, confidence_level = job.arm, job.plain[0][0], settings.confidence_level
    estimate = float(scores.mean())
    units = len(arm.seeds) if settings.resample == "seeds" else _num_scored(job, estimate)
    return ArmSummary(
        name,
        estimate,
        interval_of_score(crossing, estimate, confidence_level, kind_of(job.score), units),
        percentile_of(samples, confidence_level),
        arm.seeds,
        scores,
        len(arm.run_seeds),
        arm.num_examples,
        None if arm.clusters is None else arm.num_units,
        arm.cluster_name,
        arm.left_out,
        *failures_of(job, crossing, scores, confidence_level),
        *spread_of(crossing),
        crossing.example_error,
        units,
        0 if arm.observed is None else int((~arm.observed).sum()),
        are_repeats(arm),
    )


def _num_scored(job: ScoreJob, estimate: float) -> float:
    """Returns the effective number of examples of a score near its bounds.

    For an average of ratios it is the smallest denominator times the number of ratios. Near the lower bound
    F1 grows faster than the share of right answers, as if there were fewer examples.
    """
    counts = scored_counts(job)
    if not counts or isinstance(job.score, FunctionMetric):
        return job.arm.num_units
    low, high = job.score.bounds
    steepness = job.score.steepness if estimate < (low + high) / 2 else 1.0
    return max(1.0, len(counts) * min(counts) / steepness)


def check_finite(replicates: Replicates, metrics: Sequence[MetricLike]) -> None:
    """Refuses bootstrap scores that are nan or infinite."""
    if not np.isfinite(replicates.scores).all():
        names = sorted({metric.name for metric in metrics})
        raise DataError(
            f"found nan or infinite scores in bootstrap samples of {', '.join(names)}; define the "
            "score's value where it is 0/0"
        )


def pairing_of(arms: Sequence[Arm], settings: ComparisonSettings) -> Pairing | None:
    """Returns the basis of pairing: `parent` if all arms share their seeds' parents, else the seed number."""
    if settings.design != "paired" or settings.resample == "examples":
        return None
    shared = (
        first.shares_parent(second, seed)
        for first, second in itertools.combinations(arms, 2)
        for seed in first.seeds
    )
    return "parent" if all(shared) else "seed number"


def kind_of(metric: MetricLike) -> ScoreKind:
    """Returns the properties of a metric for intervals."""
    is_mean = isinstance(metric, Metric) and metric.mean_of is not None
    direction = getattr(metric, "higher_is_better", None)
    return ScoreKind(metric.name, metric.is_correlation, metric.bounds, is_mean, direction)


def check_seeds(
    arms: Mapping[str, Arm], settings: ComparisonSettings, cures: Sequence[str] = ()
) -> None:
    """Refuses an arm with one seed or example if these are resampled; `cures` are added to the advice."""
    for name, arm in arms.items():
        has_examples, has_seeds = arm.num_examples > 1, len(arm.seeds) > 1
        if not has_seeds and settings.resample != "examples":
            unit = "evaluation" if are_repeats(arm) else "seed"
            hold = f"give resample='examples' and claim nothing beyond this {unit}"
            *ways, last = [f"add {unit}s", *cures, *[hold] * has_examples]
            cure = ", ".join(ways) + ", or " * bool(ways) + last
            raise DataError(
                f"{name} has one {unit} ({arm.seeds[0]!r}){' to pair' * (settings.design == 'paired')}, "
                f"expected two or more to estimate how {unit}s vary; {cure}"
            )
        if not has_examples and settings.resample != "seeds":
            whole = (
                ", or give resample='seeds' and no seed_sd if these are scores of whole runs"
                * has_seeds
            )
            raise DataError(
                f"{name} has one example, expected two or more to estimate their spread; add some{whole}"
            )


def compare_specs(
    specs: Sequence[ComparisonSpec], settings: ComparisonSettings, names: Sequence[Names]
) -> tuple[list[Comparison], Replicates]:
    """Compares the arms of each spec with shared bootstrap draws.

    Returns:
      The comparisons, and the replicates of all jobs.
    """
    jobs = [job for spec in specs for job in spec.jobs]
    replicates = bootstrap(jobs, draws_of(settings), settings.n_resamples)
    check_finite(replicates, [spec.metric for spec in specs])
    comparisons, num_arms = [], len(specs[0].jobs)
    for number, (spec, called) in enumerate(zip(specs, names, strict=True)):
        columns = slice(num_arms * number, num_arms * (number + 1))
        samples = replicates.scores[:, columns]
        summaries = spec.summaries(samples, called, spec.settings)
        result = concluded(
            summaries,
            spec.crossing,
            samples,
            replicates.undefined[:, columns],
            spec.settings,
            called,
            spec.kind,
            spec.pairs,
            spec.unpaired,
            spec.pairing,
            spec.without(summaries),
        )
        comparisons.append(
            replace(
                result,
                notes=spec.notes(summaries),
                over_labels=spec.over_labels(),
                origin=replace(result.computed_from(), spec=spec),
            )
        )
    return comparisons, replicates
