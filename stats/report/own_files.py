"""Reads the user's own predictions: files, folders and finished runs, as arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiberts.evaluate.dumps.run_file import find_runs
from multiberts.evaluate.readers.columns import TEXT_NAMES, ColumnNames
from multiberts.evaluate.readers.reading import name_of, read_frame
from multiberts.runs.errors import UserError, counted
from multiberts.stats.errors import DataError
from multiberts.stats.reading import from_frame
from multiberts.stats.report.dumps import Dump
from multiberts.stats.report.selection import dumps_of_runs, finished_runs

if TYPE_CHECKING:
    import pandas
    import xarray


def read_predictions(
    path: str, *, task: str | None = None, **columns: str | None
) -> dict[str, xarray.Dataset]:
    r"""Reads predictions or scores of many runs for `compare`, recognised by their content.

    Args:
      path: a table (CSV, TSV, JSON lines, JSON, Parquet), long or with one column per run; a `.npz`
        file; a folder of such files, one per seed; a folder of finished fine-tuning runs; outputs
        of lm-evaluation-harness, Inspect, HELM or Hugging Face `datasets`, one folder per seed (see
        `evaluate.readers.reading.read_frame`).
      task: one of several tasks in there; of finished runs, "<task>/<evaluation set>" or either.
      **columns: names of columns that do not have their usual names: any of `arm`, `seed`, `run`,
        `example`, `prediction`, `score`, `label`, `cluster`.

    Returns:
      By arm (model, method or condition; "" where the file names none), in the order of the file, a
      Dataset with dims (run, example) as `compare` takes it; texts of the examples (`text`,
      `question`, `premise`, ...) are coordinates.

    Raises:
      UserError: the files cannot be read as predictions; the line shows what was found and what to
        give.

    Example:
      >>> from multiberts import stats
      >>> path = getfixture("tmp_path") / "scores.csv"
      >>> _ = path.write_text("id,old_0,old_1,new_0,new_1\na,0,1,1,1\nb,1,0,1,1\n")
      >>> arms = stats.read_predictions(str(path))
      >>> {name: data["score"].values.tolist() for name, data in arms.items()}
      {'old': [[0, 1], [1, 0]], 'new': [[1, 1], [1, 1]]}
    """
    if Path(path).is_dir() and next(iter(find_runs(path)), None) is not None:
        return {dump.name: dump.data for dump in _own_dumps(path, task)}
    names = ColumnNames(**columns)
    frame = read_frame(path, names, task)
    given = {name: name if name in frame else None for name in ("run", "label", "cluster")}
    value = "prediction" if "prediction" in frame else "score"
    options: dict[str, Any] = {"seed": "seed", "example": "example", value: value, **given}
    try:
        if "arm" not in frame:
            return {"": _with_facts(from_frame(frame, **options), frame)}
        arms = from_frame(frame, arm="arm", **options)
        return {
            str(arm): _with_facts(data, frame[frame["arm"] == arm]) for arm, data in arms.items()
        }
    except DataError as error:
        raise UserError(f"{path}: {error}") from error


def _with_facts(data: xarray.Dataset, frame: pandas.DataFrame) -> xarray.Dataset:
    """Returns runs with the texts and facts of their examples as coordinates, and what was read."""
    facts = frame.attrs["identifying"]
    texts = [name for name in frame.columns if str(name).lower() in TEXT_NAMES]
    names = [*dict.fromkeys([*texts, *facts])]
    of_examples = frame.drop_duplicates("example").set_index("example")[names]
    ids = data["example_id"].to_numpy()
    data = data.assign_coords(
        {name: ("example", of_examples.loc[ids, name].to_numpy(object)) for name in names}
    )
    identifying = [*facts, *(["cluster"] if "cluster" in frame else [])]
    return data.assign_attrs({**frame.attrs, "identifying": identifying})


def _own_dumps(path: str, task: str | None) -> list[Dump]:
    """Reads finished fine-tuning runs on one evaluation set, one dump per procedure and step."""
    dumps, _ = dumps_of_runs(finished_runs(path))
    known = {dump.set_name for dump in dumps}
    chosen = [
        dump
        for dump in dumps
        if task is None or task in (dump.set_name, dump.evaluation_set, dump.task)
    ]
    sets = sorted({dump.set_name for dump in chosen})
    if len(sets) != 1:
        found = "no such task" if not sets else f"{len(sets)} evaluation sets"
        raise UserError(
            f"{path}: found {found} ({', '.join(sorted(known)[:20])}); choose one with --task=NAME"
        )
    return chosen


def arms_of(
    paths: Sequence[str], task: str | None, columns: Mapping[str, str | None]
) -> dict[str, xarray.Dataset]:
    """Returns the arms of all paths, the base first.

    Raises:
      UserError: a path is given twice, or one of several holds more than one arm.
    """
    if len(set(paths)) < len(paths):
        raise UserError(f"found a path twice among {', '.join(paths)}; give each once")
    found = [read_predictions(path, task=task, **columns) for path in paths]
    if len(paths) == 1:
        return {name or name_of(paths[0]): data for name, data in found[0].items()}
    arms: dict[str, xarray.Dataset] = {}
    for path, own in zip(paths, found, strict=True):
        if len(own) != 1:
            raise UserError(
                f"{path} holds {counted(len(own), 'arm')} ({', '.join(own)}), expected one where "
                "several paths are given; give this path alone, or one arm per path"
            )
        [(name, data)] = own.items()
        name = name or name_of(path)
        arms[name if name not in arms else path] = data
    return arms
