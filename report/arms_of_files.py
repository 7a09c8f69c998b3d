"""Reads a user's predictions from files, folders and finished runs, as arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiberts.evaluate.readers.columns import RowNames, SliceNames
from multiberts.evaluate.readers.layout import are_seeds_of_arms, name_of_all
from multiberts.evaluate.readers.log_folders import only_task
from multiberts.evaluate.readers.reading import (
    NoTaskError,
    check_names_of_tasks,
    described_paths,
    labels_by_id,
    read_arms_by_task,
    refuse_where,
)
from multiberts.evaluate.readers.rows import ArmTable
from multiberts.report.prediction_sets import PredictionSet
from multiberts.report.selection import (
    PredictionSetReader,
    SeedKind,
    at_steps,
    by_checkpoint,
    choose_learning_rate,
    finished_runs,
    make_groups,
    prediction_sets_of_runs,
)
from multiberts.runs.console import printable
from multiberts.runs.errors import UserError, counted, listed
from multiberts.stats.errors import DataError, as_data_errors, check_keywords
from multiberts.stats.metrics import named_metric
from multiberts.stats.reading import (
    arms_in,
    holds_runs,
    labelled,
    metric_of,
    name_carried,
    named_arms,
    table_of,
)

if TYPE_CHECKING:
    import xarray


def read(data: Any, *, task: str | None = None, **columns: str | None) -> dict[str, xarray.Dataset]:
    r"""Reads predictions or scores of many runs for `compare`; formats are recognised by content.

    Args:
      data: path of a table (CSV, TSV, JSON lines, JSON, Parquet), long or with one column per run; of arrays
        (`.npz`, `.npy`); of a folder of such files, one per seed, or of finished fine-tuning runs; or of
        outputs of lm-evaluation-harness, Inspect, HELM or Hugging Face `datasets`, one folder per seed. Or a
        list of such paths with seed and arm in their names. Or a table in memory: a data frame (pandas,
        polars), a list or dict of frames with one arm each, a `datasets.Dataset`, a list of rows, a dict of
        columns, or a dict of arrays as in a `.npz`
        file.
      task: task to read, if files or a column `task` have several; for finished runs "<task>/<evaluation
        set>", or only one of the two.
      **columns: names of columns with unusual names, for any of `arm`, `seed`, `run`, `example`,
        `prediction`, `score`, `label`, `cluster`, `by` (slices of the examples); `seed="columns"` if there is
        one column per seed with the seed's number at the end of its name (`base_0`); `where="split=test"`
        chooses rows (`where="split=test,epoch=last"`).

    Returns:
      A Dataset with dims (run, example) for `compare` by arm (model, method or condition; "" if the data name
      none), in the order of the data. Missing rows become NaN (see `missing` of `compare`). Texts of the
      examples (`text`, `question`, `premise`, ...) are coordinates; `attrs["columns"]` gives the column read
      for each role.

    Raises:
      DataError: the data cannot be read as predictions; the message suggests a correction.

    Examples:
      >>> from multiberts import stats
      >>> path = getfixture("tmp_path") / "scores.csv"
      >>> _ = path.write_text("id,old_seed0,old_seed1,new_seed0,new_seed1\na,0,1,1,1\nb,1,0,1,1\n")
      >>> arms = stats.read(path)
      >>> {name: data["score"].values.tolist() for name, data in arms.items()}
      {'old': [[0, 1], [1, 0]], 'new': [[1, 1], [1, 1]]}
      >>> table = {"by": [0, 0, 1, 1], "item": ["a", "b", "a", "b"], "right": [1, 0, 1, 1]}
      >>> stats.read(table, seed="by", example="item")[""].attrs["columns"]
      {'seed': 'by', 'example': 'item', 'score': 'right'}

    See also: `compare`, `compare_arms`.
    """
    label = str(data) if isinstance(data, str | Path) else "data"
    check_keywords("read", columns, _ROLES)
    with as_data_errors():
        if holds_runs(data):  # one arm per procedure and step
            refuse_where(label, columns.get("where"))
            every, _ = prediction_sets_of_runs(finished_runs(label))
            sets = _wanted_sets(every, label, task)
            only_task(sorted({each.set_name for each in sets}), label)
            return {each.name: each.data for each in sets}
    arms = arms_in(data, label, task=task, columns=columns)
    if arms is not None:
        arms = {
            name: next(iter(named_arms({name: arm}, columns=columns).values()))
            for name, arm in arms.items()
        }
    if arms is None or not all(isinstance(arm, ArmTable) for arm in arms.values()):
        raise DataError(
            f"found {type(data).__name__}, expected a path or a table with columns; stats.compare takes "
            "arrays, DataArrays and Datasets as they are"
        )
    return {
        name: arm.dataset().assign_attrs({"name": name} if name else {})
        for name, arm in arms.items()
    }


_ROLES = [field.name for field in fields(SliceNames)]


def _tasks_of_each(
    groups: Sequence[Sequence[str]],
    task: str | None,
    columns: Sequence[Mapping[str, str | None]],
    seeds: SeedKind,
    steps: Sequence[int],
) -> list[dict[str, dict[str, Any]]]:
    """Reads groups of paths and returns the data by task and arm.

    A group without a task is assigned to the wanted task if another group has that task.
    """

    def tasks_at(paths: Sequence[str], names: Mapping[str, str | None], task: str | None) -> Any:
        if seeds == "finetune" or holds_runs(paths[0]):
            refuse_where(paths[0], names.get("where"))
            return _tasks_of_runs(paths[0], task, steps, seeds, len(groups) == 1)
        if steps:
            raise UserError(
                f"{paths[0]} holds no finished runs, which alone have steps; leave --step out"
            )
        by_task = read_arms_by_task(paths, SliceNames(**names), task)
        check_names_of_tasks(by_task, described_paths(paths))
        return by_task

    each: list[dict[str, dict[str, Any]]] = []
    num_refused = 0
    for paths, names in zip(groups, columns, strict=True):
        try:
            each.append(tasks_at(paths, names, task))
        except NoTaskError:
            num_refused += 1
            if num_refused == len(groups):
                raise
            each.append(tasks_at(paths, names, None))
    return each


def _tasks_of_runs(
    path: str, task: str | None, steps: Sequence[int], seeds: SeedKind, is_alone: bool
) -> dict[str, dict[str, xarray.Dataset]]:
    """Reads finished runs by task; arms are procedures, or checkpoints if seeds are fine-tuning seeds.

    Each arm is read at one learning rate.

    Args:
      steps: pre-training steps to read; empty: the last step of each procedure.
      is_alone: whether no other path is read; if so, learning rates of a single checkpoint become arms.
    """
    runs = finished_runs(path)
    of_task = [run for run in runs if run.facts["task"] == (task or "").partition("/")[0]]
    runs = at_steps(of_task or runs, steps, path)
    groups = make_groups(by_checkpoint(runs) if seeds == "finetune" else runs)
    if seeds == "finetune" and len({group.procedure for group in groups}) == 1:
        groups = [replace(group, procedure="") for group in groups]
        if is_alone:
            groups = [of_rate for group in groups for of_rate in group.by_learning_rate()]
    reader = PredictionSetReader()
    every: list[PredictionSet] = []
    for group, choice in [choose_learning_rate(group, reader) for group in groups]:
        rates = ", ".join(f"learning rate {rate:g}" for rate in group.learning_rates if rate)
        words = [group.runs[0].steps, choice.in_words() if choice else rates]
        chosen = ", ".join(filter(None, words))
        sets = [reader(group, name) for name in group.evaluation_sets()]
        every += [replace(each, data=each.data.assign_attrs(chosen=chosen)) for each in sets]
    tasks: dict[str, dict[str, xarray.Dataset]] = {}
    for name in dict.fromkeys(each.set_name for each in _wanted_sets(every, path, task)):
        of_name = [each for each in every if each.set_name == name]
        has_steps = len({each.procedure for each in of_name}) < len(of_name)
        tasks[name] = {each.name if has_steps else each.procedure: each.data for each in of_name}
    return tasks


def _wanted_sets(
    prediction_sets: Sequence[PredictionSet], path: str, task: str | None
) -> list[PredictionSet]:
    """Returns all prediction sets, or those of one task or evaluation set; refuses an unknown name."""
    sets = [
        item
        for item in prediction_sets
        if task in (None, item.set_name, item.evaluation_set, item.task)
    ]
    if not sets:
        names = sorted({item.set_name for item in prediction_sets})
        raise UserError(
            f"{path}: found no task {task!r}, only {listed(names)}; give one of these, such as "
            f"--task={names[0]}"
        )
    return sets


@dataclass(frozen=True, kw_only=True)
class ToldSense:
    """Flags for scores whose name does not say whether higher is better."""

    less_is_better: bool = False
    more_is_better: bool = False

    @property
    def sense(self) -> bool | None:
        """Returns True if higher is better, False if lower is; None without a flag."""
        if self.less_is_better and self.more_is_better:
            raise UserError("found --less_is_better and --more_is_better; give one of them")
        return self.more_is_better if self.more_is_better or self.less_is_better else None


def tasks_of(
    paths: Sequence[str],
    task: str | None,
    columns: Mapping[str, str | None],
    seeds: SeedKind = "pretrain",
    steps: Sequence[int] = (),
    told: ToldSense | None = None,
) -> dict[str, dict[str, Any]]:
    """Returns the arms of all paths by task ("" for a single one), as for `stats.compare`, the base first.

    Args:
      paths: files or folders, one per arm; or one per seed with the seed in its name, such as from a shell's
        glob (`base_seed0.csv base_seed1.csv`).
      task: task to read; None: all.
      seeds: training stage whose seeds count, for finished runs; other files have a column of seeds.
      columns: names of columns by role, one for all paths or one per path, separated by commas.
      steps: pre-training steps of finished runs; empty: the last step of each procedure.
      told: flags for the direction of scores, if any.
    """
    if len(set(paths)) < len(paths):
        raise UserError(f"found a path twice among {', '.join(paths)}; give each once")
    sense = told.sense if told else None
    groups = [[path] for path in paths]
    if are_seeds_of_arms(paths) and not any(map(holds_runs, paths)):
        groups = [[*paths]]
    each = columns_of_each([names[0] for names in groups], columns)
    by_group = _tasks_of_each(groups, task, each, seeds, steps)
    if max(map(len, by_group)) == 1:
        by_group = [{"": next(iter(by_task.values()))} for by_task in by_group]
    of_all = name_of_all(paths) if len(groups) == 1 else ""
    by_group = [
        {
            printable(task_name, ""): {
                printable(arm or of_all, ""): _with_sense(data, sense) for arm, data in arms.items()
            }
            for task_name, arms in by_task.items()
        }
        for by_task in by_group
    ]
    if len(groups) == 1:
        return by_group[0]
    tasks: dict[str, dict[str, Any]] = {}
    for path, tasks_of_path, names in zip(paths, by_group, each, strict=True):
        called = [*dict.fromkeys(name for arms in tasks_of_path.values() for name in arms)]
        if len(called) != 1:
            raise UserError(
                f"{path} holds {counted(len(called), 'arm')} ({', '.join(called)}), expected one where "
                "several paths are given; give this path alone, or one arm per path"
            )
        name = printable(name_carried(path, called), "")
        if any(name in arms for arms in tasks.values()):
            name = printable(path, "")
        for task_name, arms in tasks_of_path.items():
            [data] = arms.values()
            if (by := each[0].get("by")) != names.get("by"):
                data = data.rename({names["by"]: by})
            tasks.setdefault(task_name, {})[name] = data
    return tasks


def _with_sense(data: Any, sense: bool | None) -> Any:
    if sense is None:
        return data
    if isinstance(data, ArmTable):
        return replace(data, read=replace(data.read, more_is_better=sense))
    return data.assign_attrs(more_is_better=sense)


def with_labels(
    arms: Mapping[str, Any], path: str, names: RowNames, *, has_metric: bool
) -> dict[str, Any]:
    """Replaces the labels of arms by labels from a table, joined by id.

    Args:
      names: unusual names of the table's columns.
      has_metric: see `stats.reading.labelled`.
    """
    relabelled: dict[str, Any] = {}
    for name, data in arms.items():
        table = table_of(name, data)
        labels, called = labels_by_id(path, names, path, table.read.columns.get("example", ""))
        table = labelled(name, table, labels, called, has_metric=has_metric)
        # Keep the other variables, such as the probabilities of finished runs.
        is_table = isinstance(data, ArmTable)
        relabelled[name] = table if is_table else data.assign(label=("example", table.labels))
    return relabelled


def metric_of_arms(arms: Mapping[str, Any], metric: str | None) -> str:
    """Returns the name of the requested or inferred metric (see `stats.reading.metric_of`)."""
    return named_metric(
        metric_of({name: table_of(name, data) for name, data in arms.items()}, metric)
    ).name


def columns_of_each(
    paths: Sequence[str], columns: Mapping[str, str | None]
) -> list[dict[str, str | None]]:
    """Returns the column names for each path; None: the usual names.

    Examples:
      >>> columns_of_each(["a.csv", "b.csv"], {"label": "gold,y", "seed": "s", "run": None})
      [{'label': 'gold', 'seed': 's', 'run': None}, {'label': 'y', 'seed': 's', 'run': None}]
    """
    # In lm-evaluation-harness, `METRIC,FILTER` of `--score=METRIC,FILTER` is one name.
    has_filters = any(next(Path(path).rglob("samples_*.jsonl"), None) for path in paths)
    each: list[dict[str, str | None]] = [{} for _ in paths]
    for role, named in columns.items():
        parts = [named or ""] if role == "where" else (named or "").split(",")
        if named is None or len(parts) == 1 or len(paths) == 1 or (role == "score" and has_filters):
            parts = [named or ""] * len(paths)
        if len(parts) != len(paths):
            raise UserError(
                f"--{role}={named} names {len(parts)} columns, but {len(paths)} paths are given; name one "
                "for all, or one for each"
            )
        for of_path, name in zip(each, parts, strict=True):
            of_path[role] = name.strip() or None
        # `label` and `length` are derived from other columns, so their name is the same in all files.
        names = {of_path[role] for of_path in each}
        if role == "by" and len(names) > 1 and names & {None, "label", "length"}:
            raise UserError(
                f"--by={named} needs one column of slices for each path, or label or length for all"
            )
    return each
