"""Compares several tasks at once: common draws of seeds, a macro-average, corrected p-values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.compare.checks import settings_of
from multiberts.stats.compare.conclude import (
    Names,
    concluded,
    percentile_of,
)
from multiberts.stats.compare.question import (
    ComparisonSpec,
    PreparedArms,
    TaskData,
    compare_specs,
    prepare_arms,
)
from multiberts.stats.compare.result import Comparison, Readable
from multiberts.stats.errors import DataError
from multiberts.stats.guessed import knows_guesses
from multiberts.stats.interval_rule import ScoreKind, interval_of_score, spread_of
from multiberts.stats.results import ArmSummary, EqualByContent
from multiberts.stats.runs_table import Arm, sorted_seeds
from multiberts.stats.settings import (
    ComparisonSettings,
    Design,
    Resample,
    whole_number,
)
from multiberts.stats.significance import adjusted_p_values
from multiberts.stats.variance.crossing import Crossing

_MEAN_OF_SCORES = ScoreKind("mean of scores")


@dataclass(frozen=True, eq=False, repr=False)
class TaskComparisons(EqualByContent, Readable):
    """Comparisons of a family of tasks over one set of seeds.

    Attributes:
      comparisons: by task.
      macro_average: of the mean over tasks of their scores, each task with the same weight.
      adjusted: two-sided p-values of the tasks corrected for their number, by method:
        `holm` (recommended), `bonferroni`, `bh`, `by` from the recommended p. Each [tasks], in the
        order of `comparisons`. Empty in a `single` design.
      left_out: seeds of each task that other tasks lack, and which no task therefore uses.

    Example:
      >>> from xarray import DataArray
      >>> from multiberts import stats
      >>> rows, dims = [[1, 0, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1]], ("pretrain_seed", "example")
      >>> labels = DataArray([1, 1, 1, 1], dims="example")
      >>> full = DataArray(rows, {"pretrain_seed": [0, 1, 2]}, dims)
      >>> arms = {"A": full, "B": full[:2]}
      >>> tasks = {name: stats.TaskData(arm, None, "accuracy", labels) for name, arm in arms.items()}
      >>> family = stats.compare_tasks(tasks, design="single")
      >>> family.comparisons["A"].base.seeds, family.left_out, family.adjusted
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


@knows_guesses
def compare_tasks(
    tasks: Mapping[str, TaskData],
    *,
    design: Design = "paired",
    resample: Resample | None = None,
    confidence_level: float = 0.95,
    n_resamples: int = 1000,
    rng: int | np.random.Generator = 42,
    base_name: str = "base",
    experiment_name: str = "experiment",
) -> TaskComparisons:
    """Compares two arms on several tasks with common draws of seeds.

    A seed that does well on one task may do well on another. One draw of seeds for all tasks keeps
    that dependence in the macro-average.

    Args:
      tasks: by name.
      design: as in `stats.compare`.
      resample: as in `stats.compare`.
      confidence_level: as in `stats.compare`.
      n_resamples: as in `stats.compare`.
      rng: as in `stats.compare`.
      base_name: name of the base in tables and texts.
      experiment_name: name of the experiment there.

    Raises:
      DataError: a task's arrays do not fit together, tasks have no seeds in common, or tasks
        that share examples differ in their number.

    Example:
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
    return compare_family(tasks, settings, (base_name, experiment_name))


def compare_family(
    tasks: Mapping[str, TaskData], settings: ComparisonSettings, names: tuple[str, str]
) -> TaskComparisons:
    """Compares the two arms of several tasks; see `compare_tasks`.

    Args:
      tasks: by name.
    """
    design = settings.design
    if not tasks:
        raise DataError("found no tasks, expected at least one")
    prepared = {name: _arms(name, task, settings) for name, task in tasks.items()}
    arms, left_out = _common_seeds({name: list(one.arms) for name, one in prepared.items()})
    specs = {
        name: ComparisonSpec(
            prepared[name]._replace(arms=tuple(arms[name])),
            settings_of(prepared[name].arms, settings),
            task.examples_of or name,
        )
        for name, task in tasks.items()
    }
    _check_shared_sets(specs)
    average = _mean_crossing([spec.crossing for spec in specs.values()])
    found, replicates = compare_specs(
        list(specs.values()), settings, [Names(name, name, *names) for name in tasks]
    )
    shares = [
        _mean_crossing([spec.crossings[place] for spec in specs.values()])
        for place in range(1 if design == "single" else 2)
    ]
    drawn = {item.resample for item in found}
    resample = found[0].resample if len(drawn) == 1 else "both"
    settings = replace(settings, design=found[0].design, resample=resample)
    macro_average = _macro_average(average, shares, found, replicates.undefined, settings)
    comparisons = dict(zip(tasks, found, strict=True))
    return TaskComparisons(comparisons, macro_average, _adjusted(found), left_out)


def _mean_crossing(crossings: Sequence[Crossing]) -> Crossing:
    parts = [part for crossing in crossings for part in crossing.parts]
    return Crossing([replace(part, weight=part.weight / len(crossings)) for part in parts])


def _arms(name: str, task: TaskData, settings: ComparisonSettings) -> PreparedArms:
    try:
        return prepare_arms(task, settings)
    except ValueError as error:
        raise DataError(f"task {name!r}: {error}") from error


def _common_seeds(
    arms: Mapping[str, list[Arm]],
) -> tuple[dict[str, list[Arm]], dict[str, tuple]]:
    """Keeps, for each arm, the seeds that every task has."""
    num_arms = len(next(iter(arms.values())))
    common = []
    for place in range(num_arms):
        of_tasks = [set(own[place].seeds) for own in arms.values()]
        kept = sorted_seeds(list(set.intersection(*of_tasks)))
        if not kept:
            raise DataError(
                f"tasks {', '.join(arms)} have no seed of the {('base', 'experiment')[place]} in "
                "common; compare them separately"
            )
        common.append(kept)
    kept_arms, left_out = {}, {}
    for name, own in arms.items():
        kept_arms[name] = [arm.with_seeds(seeds) for arm, seeds in zip(own, common, strict=True)]
        pairs = zip(own, common, strict=True)
        if lost := [seed for arm, seeds in pairs for seed in arm.seeds if seed not in seeds]:
            left_out[name] = sorted_seeds(lost)
    return kept_arms, left_out


def _check_shared_sets(specs: Mapping[str, ComparisonSpec]) -> None:
    seen: dict[str, tuple[str, int]] = {}
    for name, spec in specs.items():
        for key, arm in zip(spec.sets, spec.arms, strict=True):
            other, number = seen.setdefault(key or "", (name, arm.num_units))
            if key is not None and number != arm.num_units:
                raise DataError(
                    f"tasks {other!r} and {name!r} share their examples by examples_of and have "
                    f"{number} and {arm.num_units}; give them different names in examples_of"
                )


def _macro_average(
    crossing: Crossing,
    shares: list[Crossing],
    comparisons: list[Comparison],
    undefined: NDArray[np.bool_],
    settings: ComparisonSettings,
) -> Comparison:
    samples = np.mean([item.samples for item in comparisons], axis=0)
    arms = [_mean_arm([item.base for item in comparisons], samples[:, 0], shares[0], settings)]
    experiments = [item.experiment for item in comparisons if item.experiment is not None]
    if experiments:
        arms.append(_mean_arm(experiments, samples[:, 1], shares[1], settings))
    names = Names("macro-average", f"mean of {len(comparisons)} tasks", arms[0].name, arms[-1].name)
    return concluded(
        arms,
        crossing,
        samples,
        undefined,
        settings,
        names,
        _MEAN_OF_SCORES,
    )


def _mean_arm(
    arms: list[ArmSummary],
    samples: NDArray[np.float64],
    crossing: Crossing,
    settings: ComparisonSettings,
) -> ArmSummary:
    scores = np.mean([arm.seed_scores for arm in arms], axis=0)
    estimate = float(np.mean([arm.estimate for arm in arms]))
    error, freedom = spread_of(crossing)
    return ArmSummary(
        arms[0].name,
        estimate,
        interval_of_score(crossing, estimate, settings.confidence_level, _MEAN_OF_SCORES),
        percentile_of(samples, settings.confidence_level),
        arms[0].seeds,
        scores,
        sum(arm.num_runs for arm in arms),
        1 if {arm.num_examples for arm in arms} == {1} else sum(arm.num_examples for arm in arms),
        standard_error=error,
        df=freedom,
    )


def _adjusted(items: list[Comparison]) -> dict[str, NDArray[np.float64]]:
    p_values = [item.p_value for item in items if item.p_value is not None]
    if not p_values:
        return {}
    return {
        method: adjusted_p_values(p_values, method) for method in ("bonferroni", "holm", "bh", "by")
    }
