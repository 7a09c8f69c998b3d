"""The arms of a comparison, checked and brought into one order of examples and seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from multiberts.runs.errors import counted
from multiberts.stats.compare.checks import (
    are_repeats,
    check_aligned,
    check_labels,
    check_named,
    check_scales,
    check_tables,
    notes_of,
    notes_of_clusters,
    settings_of,
)
from multiberts.stats.compare.shared import SharedArms
from multiberts.stats.errors import DataError
from multiberts.stats.metrics import MetricLike, ScoreFunction, named_metric
from multiberts.stats.reading import metric_as_read, metric_of, values_of_clusters
from multiberts.stats.runs_table import Arm, align, pair
from multiberts.stats.score import as_read
from multiberts.stats.settings import ComparisonSettings, Missing


@dataclass(frozen=True)
class TaskData:
    """The predictions of two arms on one task, for `compare_tasks`.

    Attributes:
      base, experiment: predictions or scores, as in `stats.compare`; experiment is None in a `single`
        design.
      metric, labels, clusters, missing, less_is_better: as in `stats.compare`.
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
    less_is_better: bool | None = None


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
    design, experiment, cache = settings.laid_out, task.experiment, shared or SharedArms()
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
        name: cache.table(name, data, read_for, task.labels, settings.resample)
        for name, data in by_role.items()
    }
    chosen = metric_of(tables, task.metric)
    metric = named_metric(chosen)
    design = settings_of([*tables.values()], settings).laid_out
    check_tables(tables, design)
    arms = [cache.read(name, table, metric, task.missing) for name, table in tables.items()]
    if len(arms) > 1:
        if any(table.labels is None for table in tables.values()):
            # Scores need no labels. If only one arm has labels, they cannot be checked.
            arms = [replace(arm, labels=np.zeros(arm.num_examples)) for arm in arms]
        arms = list(align(arms[0], arms[1]))
        check_aligned(arms)
    check_scales(arms, metric)
    clusters = task.clusters
    notes = [notes_of(arm, design, has_no_clusters=clusters is None) for arm in arms]
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
    used: MetricLike = as_read(named_metric(chosen, arms), arms, task.less_is_better)
    notes = [
        [*of_answers, *more]
        for of_answers, more in zip(check_labels(arms, used), notes, strict=True)
    ]
    return PreparedArms(tuple(arms), used, tuple(map(tuple, notes)))


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


def named_notes(notes: Sequence[Iterable[str]], names: Sequence[str]) -> tuple[str, ...]:
    """Inserts the names of the arms into their notes; see `PreparedArms`."""
    texts_of_arms = (
        text.replace("{arm}", name).replace("{base}", names[0]).replace("{experiment}", names[-1])
        for texts, name in zip(notes, names, strict=False)
        for text in texts
    )
    return tuple(dict.fromkeys(texts_of_arms))


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
