"""Several tasks at once: the same seeds drawn for all, their macro-average, corrected p-values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.stats.bootstrap.arms import Arm, DataError, Missing, sorted_seeds
from multiberts.stats.bootstrap.comparison import (
    Question,
    check_seeds,
    named_metric,
    prepare_arms,
    run_bootstrap,
    summaries,
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
from multiberts.stats.bootstrap.corrections import (
    adjusted_p_values,
    check_replicates,
    max_t_p_values,
)
from multiberts.stats.bootstrap.crossing import Crossing
from multiberts.stats.bootstrap.intervals import percentile_interval
from multiberts.stats.bootstrap.variance import Resample

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Task:
    """One task of a family; see `stats.compare` for its arguments.

    Attributes:
      base, experiment: predictions with labels; no experiment in a `single` design.
      metric: the task's own score.
      labels, clusters, missing: as in `stats.compare`.
      examples_of: tasks that name the same examples share their draws (as one evaluation set
        under two metrics does); the task's own name unless given.
    """

    base: xarray.Dataset | xarray.DataArray
    experiment: xarray.Dataset | xarray.DataArray | None
    metric: str | Metric | RankMetric
    labels: xarray.DataArray | None = None
    clusters: str | ArrayLike | None = None
    missing: Missing = "refuse"
    examples_of: str | None = None


@dataclass(frozen=True)
class TaskComparisons:
    """Comparisons of a family of tasks over one set of seeds.

    Attributes:
      comparisons: by task.
      macro_average: of the mean over tasks of their scores, each task weighing the same.
      adjusted: two-sided p-values of the tasks corrected for their number, by method:
        `bonferroni`, `holm`, `bh`, `by` from the recommended p; `max_t` from the shared draws,
        never below the recommended p, and with few seeds still too small: trust `holm` there.
        Each [tasks], in the order of `comparisons`. Empty in a `single` design.
      left_out: seeds of each task that other tasks lack, and which no task therefore uses.
    """

    comparisons: dict[str, Comparison]
    macro_average: Comparison
    adjusted: dict[str, NDArray[np.float64]]
    left_out: dict[str, tuple]


def compare_tasks(
    tasks: Mapping[str, Task],
    design: Design = "paired",
    *,
    examples: Examples = "shared",
    resample: Resample = "both",
    num_bootstrap: int = 1000,
    bootstrap_seed: int = 42,
    confidence: float = 0.95,
    draws: DrawOrder = "keyed",
    studentised: bool = False,
    base_name: str = "base",
    experiment_name: str = "experiment",
) -> TaskComparisons:
    """Compares two procedures on several tasks with shared draws of seeds.

    A seed that does well on one task may do well on another; one draw of seeds for all tasks keeps
    that in the macro-average and in the max-T correction.

    Args:
      tasks: by name.
      design, examples, resample, num_bootstrap, bootstrap_seed, confidence, draws, studentised:
        as in `stats.compare`.
      base_name, experiment_name: for tables and texts.

    Raises:
      DataError: a task's arrays do not fit together, tasks have no seeds in common, tasks that
        share examples differ in their number, or there are too few replicates for the
        correction.
    """
    settings = Settings(
        design, resample, examples, num_bootstrap, bootstrap_seed, confidence, draws, studentised
    )
    settings.check()
    if not tasks:
        raise DataError("found no tasks, expected at least one")
    if design != "single":
        check_replicates(num_bootstrap, len(tasks), 1 - confidence)
    arms, left_out = _common_seeds(
        {name: _arms(name, task, settings) for name, task in tasks.items()}
    )
    questions = {}
    for name, task in tasks.items():
        check_seeds(arms[name], settings)
        metric = named_metric(task.metric)
        questions[name] = Question(arms[name], metric, settings, task.examples_of or name)
    _check_shared_sets(questions)
    average = _average_crossing(list(questions.values()))
    samples, undefined, variances = run_bootstrap(
        list(questions.values()),
        [*(question.crossing for question in questions.values()), average],
        settings,
    )
    num_sides = len(next(iter(questions.values())).arms)
    comparisons = {}
    for position, (name, question) in enumerate(questions.items()):
        columns = slice(position * num_sides, (position + 1) * num_sides)
        names = Names(name, name, base_name, experiment_name)
        comparisons[name] = conclude(
            summaries(question, samples[:, columns], names, confidence),
            question.crossing,
            samples[:, columns],
            undefined[:, columns],
            variances[position],
            settings,
            names,
            question.metric.name,
            question.metric.is_correlation,
        )
    macro_average = _macro_average(
        average, list(comparisons.values()), undefined, variances[-1], settings
    )
    return TaskComparisons(comparisons, macro_average, _adjusted(comparisons), left_out)


def _arms(name: str, task: Task, settings: Settings) -> list[Arm]:
    try:
        return prepare_arms(
            task.base,
            task.experiment,
            named_metric(task.metric),
            settings,
            task.labels,
            task.clusters,
            task.missing,
        )
    except ValueError as error:
        raise DataError(f"task {name!r}: {error}") from error


def _common_seeds(
    arms: Mapping[str, list[Arm]],
) -> tuple[dict[str, list[Arm]], dict[str, tuple]]:
    """Keeps, side by side, the seeds that every task has."""
    num_sides = len(next(iter(arms.values())))
    common = []
    for side in range(num_sides):
        of_tasks = [set(sides[side].seeds) for sides in arms.values()]
        kept = sorted_seeds(list(set.intersection(*of_tasks)))
        if not kept:
            raise DataError(
                f"tasks {', '.join(arms)} have no seed of the {('base', 'experiment')[side]} in "
                "common; compare them one by one"
            )
        common.append(kept)
    left_out = {
        name: sorted_seeds(
            [
                seed
                for side, arm in enumerate(sides)
                for seed in arm.seeds
                if seed not in common[side]
            ]
        )
        for name, sides in arms.items()
    }
    kept_arms = {
        name: [arm.with_seeds(seeds) for arm, seeds in zip(sides, common, strict=True)]
        for name, sides in arms.items()
    }
    return kept_arms, {name: seeds for name, seeds in left_out.items() if seeds}


def _check_shared_sets(questions: Mapping[str, Question]) -> None:
    seen: dict[str, tuple[str, int]] = {}
    for name, question in questions.items():
        for key, arm in zip(question.sets, question.arms, strict=True):
            other, number = seen.setdefault(key or "", (name, arm.num_units))
            if key is not None and number != arm.num_units:
                raise DataError(
                    f"tasks {other!r} and {name!r} are said to share their examples and have "
                    f"{number} and {arm.num_units}; name different examples_of"
                )


def _average_crossing(questions: list[Question]) -> Crossing:
    return Crossing(
        [
            replace(part, weight=part.weight / len(questions))
            for question in questions
            for part in question.crossing.parts
        ]
    )


def _macro_average(
    crossing: Crossing,
    comparisons: list[Comparison],
    undefined: NDArray[np.bool_],
    variances: NDArray[np.float64] | None,
    settings: Settings,
) -> Comparison:
    samples = np.mean([item.samples for item in comparisons], axis=0)
    sides = [_mean_side([item.base for item in comparisons], samples[:, 0], settings)]
    experiments = [item.experiment for item in comparisons if item.experiment is not None]
    if experiments:
        sides.append(_mean_side(experiments, samples[:, 1], settings))
    names = Names(
        "macro-average", f"mean of {len(comparisons)} tasks", sides[0].name, sides[-1].name
    )
    return conclude(
        sides, crossing, samples, undefined, variances, settings, names, "mean of scores"
    )


def _mean_side(
    sides: list[ArmSummary], samples: NDArray[np.float64], settings: Settings
) -> ArmSummary:
    scores = np.mean([side.seed_scores for side in sides], axis=0)
    return ArmSummary(
        sides[0].name,
        float(scores.mean()),
        percentile_interval(samples, settings.confidence),
        sides[0].seeds,
        scores,
        sum(side.num_runs for side in sides),
        sum(side.num_examples for side in sides),
    )


def _adjusted(comparisons: Mapping[str, Comparison]) -> dict[str, NDArray[np.float64]]:
    items = list(comparisons.values())
    p_values = [item.p_t.two_sided for item in items if item.p_t is not None]
    if not p_values:
        return {}
    adjusted = {
        method: adjusted_p_values(p_values, method) for method in ("bonferroni", "holm", "bh", "by")
    }
    shared = max_t_p_values(
        np.array([item.estimate for item in items]),
        np.array([item.standard_error for item in items]),
        np.stack([item.differences for item in items], axis=1),
    )
    # Bootstrap samples are too narrow with few seeds: a correction must not undo the t's caution.
    adjusted["max_t"] = np.maximum(shared, p_values)
    return adjusted
