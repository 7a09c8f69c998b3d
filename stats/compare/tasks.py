"""Compares several tasks at once: common draws of seeds, a mean over tasks, corrected p-values."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.register import metrics_by_task
from multiberts.evaluate.readers.rows import ArmTable
from multiberts.runs.errors import counted
from multiberts.stats.bootstrap.replicates import Replicates
from multiberts.stats.compare.checks import settings_of
from multiberts.stats.compare.comparison_spec import ComparisonSpec, Draws
from multiberts.stats.compare.prepared_arms import PreparedArms, TaskData, prepare_arms
from multiberts.stats.compare.ranking import ArmComparisons, corrected, level_of_each, ranked
from multiberts.stats.compare.result import Comparison, Names, Origin, arms_of
from multiberts.stats.compare.shared import SharedArms
from multiberts.stats.compare.two_arms import compare_specs
from multiberts.stats.errors import DataError, as_data_errors
from multiberts.stats.interval_rule import interval_of_score, spread_of
from multiberts.stats.intervals import ConfidenceInterval
from multiberts.stats.reading import distinct_names, name_carried, tasks_in
from multiberts.stats.results import ArmDifference, ArmSummary, EqualByContent, Readable, seed_names
from multiberts.stats.runs_table import common_seeds, sorted_seeds, with_common_seeds
from multiberts.stats.score import Score, may_be_averaged, metric_name
from multiberts.stats.settings import ComparisonSettings, Design, Resample, whole_number
from multiberts.stats.significance import Method, adjusted_p_values
from multiberts.stats.variance.crossing import Crossing


@dataclass(frozen=True, eq=False, repr=False)
class TaskComparisons(EqualByContent, Readable):
    """Comparisons of a family of tasks and of their mean.

    Attributes:
      comparisons: comparison by task, or by "task, metric" for a task with several metrics.
      macro_average: comparison of the mean over tasks, with equal weights. Tasks are not drawn, so the result
        is about these tasks only.
      adjusted: recommended two-sided p-values corrected for the number of comparisons, by method: `holm`
        (recommended), `bonferroni`, `bh`, `by`. Each [comparisons], in the order of `comparisons`; empty in
        a `single` design.
      left_out: seeds of each task that the mean leaves out because other tasks lack them.

    Examples:
      >>> from xarray import DataArray
      >>> from multiberts import stats
      >>> rows, dims = [[1, 0, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1]], ("pretrain_seed", "example")
      >>> labels = DataArray([1, 1, 1, 1], dims="example")
      >>> full = DataArray(rows, {"pretrain_seed": [0, 1, 2]}, dims)
      >>> arms = {"A": full, "B": full[:2]}
      >>> tasks = {name: stats.TaskData(arm, None, "accuracy", labels) for name, arm in arms.items()}
      >>> family = stats.compare_tasks(tasks, design="single")
      >>> family.macro_average.base.seeds, family.left_out, family.adjusted
      ((0, 1), {'A': (2,)}, {})

    See also: `compare_tasks`.
    """

    comparisons: dict[str, Comparison]
    macro_average: Comparison
    adjusted: dict[str, NDArray[np.float64]]
    left_out: dict[str, tuple]

    def comparisons_shown(self) -> list[Comparison]:
        """Returns the comparisons of all tasks, then that of their mean."""
        return [*self.comparisons.values(), self.macro_average]


def compare_tasks(
    tasks: Any,
    experiment: Any = None,
    metric: Any = None,
    *,
    design: Design | None = None,
    resample: Resample | None = None,
    less_is_better: bool | None = None,
    confidence_level: float = 0.95,
    n_resamples: int = 1000,
    rng: int | np.random.Generator = 42,
    base_name: str = "base",
    experiment_name: str = "experiment",
) -> TaskComparisons:
    """Compares two arms on several tasks with common draws of seeds.

    Seeds that are good on one task may be good on another. Common draws of seeds for all tasks preserve this
    dependence in the mean.

    Args:
      tasks: `TaskData` by name; or a table, file or folder of one or two arms on several tasks, as
        `stats.compare` takes it, such as a data frame with a column `task`.
      experiment: table, file or folder of the other arm.
      metric: metric for tables: one for all tasks, or a mapping from task to metric such as `{"CoLA":
        "matthews", "MRPC": "accuracy+f1"}`; several metrics of a task are averaged. `glue`: GLUE's metrics.
        By default as in `stats.compare`.
      design: as in `stats.compare`.
      resample: as in `stats.compare`.
      less_is_better: as in `stats.compare`, for tables.
      confidence_level: as in `stats.compare`.
      n_resamples: as in `stats.compare`.
      rng: as in `stats.compare`.
      base_name: name of the base in tables and texts, if the data contain none.
      experiment_name: name of the experiment in tables and texts, if the data contain none.

    Raises:
      DataError: incompatible arrays of a task, tasks without common seeds, or tasks with the same set of
        examples but different numbers of them.

    Examples:
      >>> from xarray import DataArray
      >>> from multiberts import stats
      >>> seeds, dims = {"pretrain_seed": [0, 1, 2]}, ("pretrain_seed", "example")
      >>> labels = DataArray([1, 0, 1, 0], dims="example")
      >>> base = DataArray([[1, 1, 1, 1], [0, 0, 1, 0], [1, 0, 0, 0]], seeds, dims)
      >>> experiment = DataArray([[1, 0, 1, 1], [1, 0, 1, 0], [1, 0, 1, 0]], seeds, dims)
      >>> names = ("accuracy", "matthews")
      >>> tasks = {name: stats.TaskData(base, experiment, name, labels) for name in names}
      >>> family = stats.compare_tasks(tasks)
      >>> family.comparisons["accuracy"].estimate, len(family.adjusted["holm"])
      (0.25, 2)

    See also: `compare`, `adjusted_p_values`.

    Reference: Holm (1979), A simple sequentially rejective multiple test procedure.
    """
    settings = ComparisonSettings(
        design, resample, n_resamples, whole_number(rng), confidence_level
    )
    names = (base_name, experiment_name)
    are_by_name = isinstance(tasks, Mapping) and all(
        isinstance(task, TaskData) for task in tasks.values()
    )
    if not are_by_name:
        tasks, names = _tasks_of(tasks, experiment, metric, names)
        if all(task.experiment is None for task in tasks.values()) and design in (None, "paired"):
            settings = replace(settings, design="single")
    elif experiment is not None or metric is not None:
        raise DataError("found tasks by name; give each its experiment and metric in its TaskData")
    if less_is_better is not None:
        tasks = {name: replace(task, less_is_better=less_is_better) for name, task in tasks.items()}
    return compare_family(tasks, settings, names, SharedArms(copies=True))


def _tasks_of(
    base: Any, experiment: Any, metric: Any, roles: tuple[str, str]
) -> tuple[dict[str, TaskData], tuple[str, str]]:
    """Returns the arms of one or two tables as tasks, and the names of the arms."""
    tables: list[dict[str, dict[str, ArmTable]]] = []
    names: list[str] = []
    inputs = [base] if experiment is None else [base, experiment]
    for role, data in zip(roles, inputs, strict=False):
        tasks_read = tasks_in(data, role)
        if tasks_read is None:
            raise DataError(
                f"{role}: found {type(data).__name__}, expected tasks by name, {{'RTE': stats.TaskData(base, "
                "experiment)}, or a table, file or folder with a column or names of tasks"
            )
        of_table = [*dict.fromkeys(name for arms in tasks_read.values() for name in arms if name)]
        has_several = len(of_table) > 1 or max(map(len, tasks_read.values())) > 1
        if len(inputs) > 1 and has_several:
            raise DataError(
                f"{role}: found the arms {', '.join(of_table)}, expected one in each of two tables; give one "
                "table with both"
            )
        tables.append(tasks_read)
        names.append("" if has_several else name_carried(data, of_table) or role)
    by_task: dict[str, dict[str, ArmTable]] = {}
    for tasks_read, role, of_one in zip(tables, roles, distinct_names(names, roles), strict=False):
        for task, arms in tasks_read.items():
            by_name = {of_one or name or role: arm for name, arm in arms.items()}
            by_task.setdefault(task, {}).update(by_name)
    called = [*dict.fromkeys(name for arms in by_task.values() for name in arms)]
    if len(called) > 2:
        raise DataError(
            f"found {len(called)} arms ({', '.join(called[:9])}), expected two; leave the rows of others out"
        )
    lacking = [
        f"{name} on {task}" for task, arms in by_task.items() for name in called if name not in arms
    ]
    if lacking:
        raise DataError(f"found nothing of {', '.join(lacking)}; leave these tasks out")
    with as_data_errors():
        metrics = metrics_by_task(metric, [*by_task])
    tasks = {
        task: TaskData(arms[called[0]], arms.get(called[-1]) if called[1:] else None, metrics[task])
        for task, arms in by_task.items()
    }
    return tasks, (called[0], called[-1])


class CountedArms(NamedTuple):
    """Arms of one task, set of examples and metric, for the mean over tasks.

    Attributes:
      examples: name of the set of examples; equal names share draws.
    """

    task: str
    examples: str
    prepared: PreparedArms


def compare_family(
    tasks: Mapping[str, TaskData],
    settings: ComparisonSettings,
    names: tuple[str, str],
    shared: SharedArms | None = None,
) -> TaskComparisons:
    """Compares the two arms of several tasks; see `compare_tasks`."""
    if not tasks:
        raise DataError("found no tasks, expected at least one")
    cells: dict[str, CountedArms] = {}
    for name, task in tasks.items():
        metrics = task.metric if isinstance(task.metric, list | tuple) else [task.metric]
        for metric in metrics:
            with as_data_errors(f"task {name!r}"):
                prepared = prepare_arms(replace(task, metric=metric), settings, shared)
            key = f"{name}, {metric_name(str(metric))}" if len(metrics) > 1 else name
            cells[key] = CountedArms(name, task.examples_of or name, prepared)
    specs = [_spec(cell, settings) for cell in cells.values()]
    _check_shared_sets(dict(zip(cells, specs, strict=True)))
    called = [Names(name, name, *names) for name in cells]
    _, left_out = _common_seeds([*cells.values()])
    if left_out:  # each with all of its seeds
        pairs = zip(specs, called, strict=True)
        items = [compare_specs([spec], settings, [named])[0] for spec, named in pairs]
        mean = mean_over_tasks([*cells.values()], settings, names)
    else:
        items = compare_specs(specs, settings, called)
        mean = _mean([*zip(cells.values(), specs, strict=True)], items)
    return TaskComparisons(dict(zip(cells, items, strict=True)), mean, _adjusted(items), left_out)


def mean_over_tasks(
    cells: Sequence[CountedArms], settings: ComparisonSettings, names: tuple[str, str]
) -> Comparison:
    """Returns the comparison of the mean over tasks, with the seeds common to all tasks."""
    common, left_out = _common_seeds(cells)
    drawn = [cell.prepared.arms[settings.design == "fixed_baseline" :] for cell in common]
    fewest = min(len(arm.seeds) for arms in drawn for arm in arms)
    has_seeds = any(settings_of(arms, settings).resample != "examples" for arms in drawn)
    if left_out and fewest < 2 and has_seeds:
        raise DataError(
            "found one seed that all tasks have, expected two or more to estimate how seeds vary; add "
            "seeds, or give resample='examples' and claim nothing beyond these runs"
        )
    specs = [_spec(cell, settings) for cell in common]
    comparisons = compare_specs(specs, settings, [Names("", "", *names)] * len(specs))
    tasks_of: dict[tuple, list[str]] = {}
    for task, seeds in left_out.items():
        tasks_of.setdefault(seeds, []).append(task)
    notes = [
        f"The mean over tasks leaves out {seed_names(seeds)} of {', '.join(tasks)}, which another task lacks."
        for seeds, tasks in tasks_of.items()
    ]
    return _mean([*zip(common, specs, strict=True)], comparisons, tuple(notes))


def rank_means(
    means: Sequence[Comparison],
    cells_of: Callable[[str, str], Sequence[CountedArms]],
    settings: ComparisonSettings,
) -> ArmComparisons:
    """Ranks arms by their means over tasks, with intervals that hold for all pairs together (Bonferroni).

    Args:
      means: mean over tasks of each arm, in a `single` design.
      cells_of: returns two arms, (base, experiment), on each task.
      settings: settings of the pairs; `design` is `paired` or `unpaired`.
    """
    first, score = means[0], means[0].score
    arms = sorted((item.base for item in means), key=lambda arm: -score.sign * arm.estimate)
    pairs = [(worse.name, better.name) for better, worse in itertools.combinations(arms, 2)]
    level = level_of_each(settings.confidence_level, len(pairs))
    # The fewest replicates that intervals at this level may have; the ranks do not use them.
    how = replace(settings, confidence_level=level, n_resamples=math.ceil(2 / (1 - level)))
    family = []
    for names in pairs:
        item = mean_over_tasks(cells_of(*names), how, names)
        assert item.p_value is not None
        ci = ConfidenceInterval(*item.ci, settings.confidence_level, item.ci.method)
        family.append(
            ArmDifference(*names, item.estimate, item.standard_error, item.df, ci, item.p_value, {})
        )
    differences = corrected(family)
    return ArmComparisons(
        first.evaluation_set, first.evaluation_set, first.metric, score.more_is_better,
        settings.design or item.design,
        first.resample, None, ranked(arms, differences, score.sign), differences,
        settings.confidence_level, 0.0, first.pairing, settings.n_resamples, settings.rng,
        score=score,
    )  # fmt: skip


def _spec(cell: CountedArms, settings: ComparisonSettings) -> ComparisonSpec:
    return ComparisonSpec.of(cell.prepared, settings, cell.examples)


def _common_seeds(cells: Sequence[CountedArms]) -> tuple[list[CountedArms], dict[str, tuple]]:
    """Keeps the seeds of each arm that are common to all tasks; also returns the left-out seeds by task."""
    common = []
    for arm_number, role in enumerate(("base", "experiment")[: len(cells[0].prepared.arms)]):
        seeds = common_seeds(cell.prepared.arms[arm_number] for cell in cells)
        if not seeds:
            tasks = dict.fromkeys(cell.task for cell in cells)
            raise DataError(
                f"tasks {', '.join(tasks)} have no seed of the {role} in common; compare them separately"
            )
        common.append(seeds)
    left_out, with_common = {}, []
    for cell in cells:
        pairs = [*zip(cell.prepared.arms, common, strict=True)]
        if lost := [seed for arm, seeds in pairs for seed in arm.seeds if seed not in seeds]:
            left_out[cell.task] = sorted_seeds(lost)
        arms = tuple(with_common_seeds(arm, seeds) for arm, seeds in pairs)
        with_common.append(cell._replace(prepared=cell.prepared._replace(arms=arms)))
    return with_common, left_out


def _check_shared_sets(specs: Mapping[str, ComparisonSpec]) -> None:
    seen: dict[str, tuple[str, int]] = {}
    for name, spec in specs.items():
        for arm in spec.arms:
            first_task, number = seen.setdefault(spec.examples or "", (name, arm.num_units))
            if spec.examples is not None and number != arm.num_units:
                raise DataError(
                    f"tasks {first_task!r} and {name!r} share their examples by examples_of and have "
                    f"{number} and {arm.num_units}; give them different names in examples_of"
                )


def _mean(
    cells: Sequence[tuple[CountedArms, ComparisonSpec]],
    comparisons: Sequence[Comparison],
    notes: tuple[str, ...] = (),
) -> Comparison:
    """Averages the metrics of each task, and then the tasks.

    Args:
      cells: arms and tables of each comparison, all with the same seeds.
    """
    of_task = Counter(cell.task for cell, _ in cells)
    weights = np.array([1 / len(of_task) / of_task[cell.task] for cell, _ in cells])
    specs = [spec for _, spec in cells]
    settings = specs[0].settings
    if len(drawn := {spec.settings.resample for spec in specs}) > 1:
        raise DataError(
            f"found tasks whose data show {' and '.join(sorted(map(str, drawn)))} (resample), expected the "
            "same of all; give tasks of as many seeds, or resample='examples'"
        )
    draws = _mean_of_draws([item.computed_from().draws for item in comparisons], weights)
    # Metrics of one task share their examples, so count these once.
    once = [*{cell.examples: number for number, (cell, _) in enumerate(cells)}.values()]
    arms = [
        _mean_arm(
            [arms_of(item)[column] for item in comparisons],
            weights,
            draws,
            column,
            _mean_crossing([spec.crossings[column] for spec in specs], weights),
            settings,
            once,
        )
        for column in range(len(specs[0].jobs))
    ]
    metric = "+".join(dict.fromkeys(item.metric for item in comparisons))
    if "+" in metric and not may_be_averaged(metric):
        raise DataError(
            f"found the metrics {metric.replace('+', ', ')}, whose mean has no meaning; expected metrics "
            "whose best value is 1"
        )
    senses = {item.score.more_is_better for item in comparisons}
    if {True, False} <= senses:
        raise DataError(
            "found tasks where higher scores are better and tasks where lower ones are, so their mean has "
            "no meaning; compare them one by one"
        )
    tasks = counted(len(of_task), "task") if len(of_task) > 1 else next(iter(of_task))
    unpaired = [spec.unpaired for spec in specs if spec.unpaired is not None]
    origin = Origin(
        arms,
        settings,
        Score(metric, more_is_better=senses.pop() if len(senses) == 1 else None),
        _mean_crossing([spec.crossing for spec in specs], weights),
        draws,
        unpaired=_mean_crossing(unpaired, weights) if len(unpaired) == len(specs) else None,
        pairing=min((spec.pairing for spec in specs), key=lambda pairing: pairing != "seed number"),
        notes=notes,
        tasks=(*of_task,),
        is_defined=all(spec.is_defined for spec in specs),
    )
    return Comparison("macro-average", f"mean of {tasks}", origin)


def _mean_of_draws(of_tasks: Sequence[Draws], weights: NDArray[np.float64]) -> Draws:
    """Returns the bootstrap of the mean [replicates, arms]; undefined where a task is [replicates, jobs]."""

    @cache
    def draw() -> Replicates:
        drawn = [draws() for draws in of_tasks]
        scores = np.tensordot(weights, [each.scores for each in drawn], 1)
        return Replicates(scores, np.concatenate([each.undefined for each in drawn], axis=1))

    return draw


def _mean_crossing(crossings: Sequence[Crossing], weights: NDArray[np.float64]) -> Crossing:
    return Crossing(
        [
            replace(part, weight=part.weight * weight)
            for crossing, weight in zip(crossings, weights.tolist(), strict=True)
            for part in crossing.parts
        ]
    )


def _mean_arm(
    arms: Sequence[ArmSummary],
    weights: NDArray[np.float64],
    draws: Draws,
    column: int,
    crossing: Crossing,
    settings: ComparisonSettings,
    once: Sequence[int],
) -> ArmSummary:
    """Averages one arm over tasks.

    Args:
      once: indices of the comparisons with counted examples.
    """
    estimate = float(weights @ [arm.estimate for arm in arms])
    error, freedom = spread_of(crossing)
    return ArmSummary(
        arms[0].name,
        estimate,
        interval_of_score(crossing, estimate, settings.confidence_level, Score("")),
        arms[0].seeds,
        weights @ [arm.seed_scores for arm in arms],
        max(arm.num_runs for arm in arms),
        1
        if all(arm.num_examples == 1 for arm in arms)
        else sum(arms[number].num_examples for number in once),
        standard_error=error,
        df=freedom,
        repeats=any(arm.repeats for arm in arms),
        draw=lambda: draws().scores[:, column],
    )


def _adjusted(items: list[Comparison]) -> dict[str, NDArray[np.float64]]:
    p_values = [item.p_value for item in items if item.p_value is not None]
    methods = get_args(Method) if p_values else ()
    return {method: adjusted_p_values(p_values, method) for method in methods}
