"""Reads the user's own predictions: files, folders and finished runs, as arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiberts.evaluate.metrics.register import METRICS, default_metric, known_name
from multiberts.evaluate.prediction_files.run_file import find_runs
from multiberts.evaluate.readers.columns import SliceNames
from multiberts.evaluate.readers.layout import are_seeds_of_arms, name_of_all
from multiberts.evaluate.readers.reading import NoTaskError, read_arms
from multiberts.evaluate.readers.rows import ArmTable
from multiberts.runs.errors import UserError, counted, in_keywords
from multiberts.stats.errors import DataError
from multiberts.stats.guessed import refuse_unknown
from multiberts.stats.metrics import named_metric
from multiberts.stats.reading import arms_in, table_of
from multiberts.stats.report.prediction_sets import PredictionSet
from multiberts.stats.report.selection import (
    PredictionSetReader,
    SeedKind,
    at_steps,
    by_checkpoint,
    choose_learning_rate,
    finished_runs,
    make_groups,
    prediction_sets_of_runs,
)

if TYPE_CHECKING:
    import xarray


def read(data: Any, *, task: str | None = None, **columns: str | None) -> dict[str, xarray.Dataset]:
    r"""Reads predictions or scores of many runs for `compare`, recognised by their content.

    Args:
      data: the path of a table (CSV, TSV, JSON lines, JSON, Parquet), long or with one column per run; of
        arrays (`.npz`, `.npy`); of a folder of such files, one per seed, or of finished fine-tuning runs; of
        outputs of lm-evaluation-harness, Inspect, HELM or Hugging Face `datasets`, one folder per seed (see
        `evaluate.readers.reading.read_arms`). Or a list of such paths, whose names say seed and arm. Or a
        table in memory: a data frame (pandas, polars), a `datasets.Dataset`, a dict of columns, or of arrays
        as a `.npz` file holds them.
      task: one of several tasks in files, or in a column `task`; of finished runs,
        "<task>/<evaluation set>" or either.
      **columns: names of columns that do not have their usual names: any of `arm`, `seed`, `run`,
        `example`, `prediction`, `score`, `label`, `cluster`, `by` (slices of the examples);
        `seed="columns"` where each seed has a column, whose name ends in its number (`base_0`).

    Returns:
      By arm (model, method or condition; "" where the data name none), in the order of the data, a
      Dataset with dims (run, example) as `compare` takes it. A row that is missing is a cell that is NaN
      (see `missing` of `compare`). Texts of the examples (`text`, `question`, `premise`, ...) are
      coordinates; `attrs["columns"]` says which column was read as what.

    Raises:
      DataError: the data cannot be read as predictions; the line shows what was found and what to give.

    Example:
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
    what = str(data) if isinstance(data, str | Path) else "data"
    refuse_unknown("read", columns, _ROLES)
    try:
        if _holds_runs(data):
            return {own.name: own.data for own in _own_prediction_sets(what, task)}
    except UserError as error:
        raise DataError(in_keywords(str(error))) from error
    arms = arms_in(data, what, task=task, columns=columns)
    if arms is None or not all(isinstance(arm, ArmTable) for arm in arms.values()):
        raise DataError(
            f"found {type(data).__name__}, expected a path or a table with columns; stats.compare takes "
            "arrays, DataArrays and Datasets as they are"
        )
    return {name: arm.dataset() for name, arm in arms.items()}


_ROLES = [field.name for field in fields(SliceNames)]


def _holds_runs(data: Any) -> bool:
    """Returns whether data are the folder of finished runs."""
    is_folder = isinstance(data, str | Path) and Path(data).is_dir()
    return is_folder and next(iter(find_runs(data)), None) is not None


def _arms_at(
    paths: Sequence[str],
    task: str | None,
    columns: Mapping[str, str | None],
    steps: Sequence[int] = (),
) -> dict[str, Any]:
    """Reads a path, or seeds of arms, for the commands, whose messages name flags."""
    if _holds_runs(paths[0]):
        return _arms_of_runs(paths[0], task, steps)
    if steps:
        raise UserError(
            f"{paths[0]} holds no finished runs, which alone have steps; leave --step out"
        )
    return dict(read_arms(paths, SliceNames(**columns), task))


def _arms_of_each(
    groups: Sequence[Sequence[str]],
    task: str | None,
    columns: Sequence[Mapping[str, str | None]],
    steps: Sequence[int],
) -> list[dict[str, Any]]:
    """Reads groups of paths; those that name no task are of the wanted one where another names it."""
    arms: list[dict[str, Any]] = []
    refusals: list[NoTaskError] = []
    for paths, own in zip(groups, columns, strict=True):
        try:
            arms.append(_arms_at(paths, task, own, steps))
        except NoTaskError as error:
            refusals.append(error)
            if len(refusals) == len(groups):
                raise
            arms.append(_arms_at(paths, None, own, steps))
    return arms


def _arms_of_runs(
    path: str,
    task: str | None,
    steps: Sequence[int] = (),
    seeds: SeedKind = "pretrain",
    is_alone: bool = True,
) -> dict[str, xarray.Dataset]:
    """Reads finished runs as arms: of procedures, or with fine-tuning seeds of checkpoints, at one rate each.

    Args:
      steps: of pre-training; none: the last of each procedure.
      is_alone: whether the rates of one checkpoint are arms, with no other path to compare it with.
    """
    runs = finished_runs(path)
    of_task = [run for run in runs if run.facts["task"] == (task or "").partition("/")[0]]
    runs = at_steps(of_task or runs, steps, path)
    groups = make_groups(by_checkpoint(runs) if seeds == "finetune" else runs)
    if seeds == "finetune" and len({group.procedure for group in groups}) == 1:
        groups = [replace(group, procedure="") for group in groups]
        if is_alone:
            groups = [own for group in groups for own in group.by_learning_rate()]
    reader, every = PredictionSetReader(), []
    for group, choice in [choose_learning_rate(group, reader) for group in groups]:
        rates = ", ".join(f"learning rate {rate:g}" for rate in group.learning_rates if rate)
        words = [group.runs[0].steps, choice.in_words() if choice else rates]
        chosen = ", ".join(filter(None, words))
        every += [(reader(group, name), chosen) for name in group.evaluation_sets()]
    wanted = _one_set([predictions for predictions, _ in every], path, task)
    found = [(own, chosen) for own, chosen in every if own.set_name == wanted]
    has_steps = len({own.procedure for own, _ in found}) < len(found)
    return {
        own.name if has_steps else own.procedure: own.data.assign_attrs(chosen=chosen)
        for own, chosen in found
    }


def _own_prediction_sets(path: str, task: str | None) -> list[PredictionSet]:
    """Reads finished fine-tuning runs on one evaluation set, one prediction set per procedure and step."""
    prediction_sets, _ = prediction_sets_of_runs(finished_runs(path))
    chosen = _one_set(prediction_sets, path, task)
    return [predictions for predictions in prediction_sets if predictions.set_name == chosen]


def _one_set(prediction_sets: Sequence[PredictionSet], path: str, task: str | None) -> str:
    """Returns the name of the one evaluation set that the task stands for, or refuses."""
    known = {predictions.set_name for predictions in prediction_sets}
    sets = {
        predictions.set_name
        for predictions in prediction_sets
        if task in (None, predictions.set_name, predictions.evaluation_set, predictions.task)
    }
    if len(sets) != 1:
        found = "no such task" if not sets else f"{len(sets)} evaluation sets"
        raise UserError(
            f"{path}: found {found} ({', '.join(sorted(known)[:20])}); choose one, such as "
            f"--task={min(known)}"
        )
    return sets.pop()


def arms_of(
    paths: Sequence[str],
    task: str | None,
    columns: Mapping[str, str | None],
    seeds: SeedKind = "pretrain",
    steps: Sequence[int] = (),
) -> dict[str, Any]:
    """Returns the arms of all paths as `stats.compare` takes them, the base first.

    Args:
      paths: files or folders, an arm each; or the seeds of one arm or several, whose names differ in the
        seed (`base_seed0.csv base_seed1.csv`), as a shell's glob gives them.
      seeds: of which training of finished runs the seeds are; files of others name them in a column.
      columns: names of columns by role; one for all paths, or one for each, separated by commas.
      steps: of pre-training, of finished runs; none: the last of each procedure.
    """
    if len(set(paths)) < len(paths):
        raise UserError(f"found a path twice among {', '.join(paths)}; give each once")
    groups = [[path] for path in paths]
    if are_seeds_of_arms(paths) and not any(map(_holds_runs, paths)):
        groups = [[*paths]]
    each = columns_of_each([names[0] for names in groups], columns)
    if seeds == "finetune":
        found = [_arms_of_runs(path, task, steps, seeds, len(paths) == 1) for path in paths]
    else:
        found = _arms_of_each(groups, task, each, steps)
    if len(groups) == 1:
        return {name or name_of_all(paths): data for name, data in found[0].items()}
    arms: dict[str, Any] = {}
    for path, own, names in zip(paths, found, each, strict=True):
        if len(own) != 1:
            raise UserError(
                f"{path} holds {counted(len(own), 'arm')} ({', '.join(own)}), expected one where "
                "several paths are given; give this path alone, or one arm per path"
            )
        [(name, data)] = own.items()
        name = name or name_of_all([path])
        if (by := each[0].get("by")) != names.get("by"):
            data = data.rename({names["by"]: by})
        arms[name if name not in arms else path] = data
    return arms


def _default_metric(name: str, data: Any, table: ArmTable) -> str:
    of_task = [
        *getattr(data, "attrs", {}).get("metrics", ())
    ]  # of finished runs, its main one first
    if of_task and of_task[0] in METRICS:
        return str(of_task[0])
    predictions = table.values if table.kind == "prediction" else None
    try:
        return default_metric(predictions, table.labels, table.read.logged_metric)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from error


def metric_of(arms: Mapping[str, Any], given: str | None) -> str:
    """Returns the metric that is asked for, a task's or log's, or `mean` of scores, `accuracy` of classes."""
    tables = [table_of(name, data) for name, data in arms.items()]
    scores = {table.read.columns.get("score", "") for table in tables}
    if given is None or {known_name(given)} == {*map(known_name, scores)}:  # such as a log's acc
        # The mean where there are both kinds.
        return max(starmap(_default_metric, zip(arms, arms.values(), tables, strict=True)))
    return named_metric(given).name


def columns_of_each(
    paths: Sequence[str], columns: Mapping[str, str | None]
) -> list[dict[str, str | None]]:
    """Returns the names of columns for each path; where none is named, the usual ones are looked for.

    Example:
      >>> columns_of_each(["a.csv", "b.csv"], {"label": "gold,y", "seed": "s", "run": None})
      [{'label': 'gold', 'seed': 's', 'run': None}, {'label': 'y', 'seed': 's', 'run': None}]
    """
    # lm-evaluation-harness takes `--score=METRIC,FILTER`, which is one name.
    has_filters = any(next(Path(path).rglob("samples_*.jsonl"), None) for path in paths)
    each: list[dict[str, str | None]] = [{} for _ in paths]
    for role, given in columns.items():
        parts = (given or "").split(",")
        if given is None or len(parts) == 1 or len(paths) == 1 or (role == "score" and has_filters):
            parts = [given or ""] * len(paths)
        if len(parts) != len(paths):
            raise UserError(
                f"--{role}={given} names {len(parts)} columns, but {len(paths)} paths are given; name one "
                "for all, or one for each"
            )
        for own, name in zip(each, parts, strict=True):
            own[role] = name.strip() or None
        # `label` and `length` are made from other columns and have no name that files may differ in.
        names = {own[role] for own in each}
        if role == "by" and len(names) > 1 and names & {None, "label", "length"}:
            raise UserError(
                f"--by={given} needs one column of slices for each path, or label or length for all"
            )
    return each
