"""Reads tables, arrays and logs of other programs as runs, in every format of `multiberts compare`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.imports.imported_runs import (
    ImportedRun,
    ImportedSet,
    facts_of,
    predictions_of,
)
from multiberts.evaluate.metrics.answer_checks import Answers, check_answers
from multiberts.evaluate.metrics.register import METRICS, default_metric, values_of_cells
from multiberts.evaluate.prediction_files.prediction_file import ANSWERS, PREDICTION_TEXT, RESERVED
from multiberts.evaluate.readers.columns import ColumnNames
from multiberts.evaluate.readers.layout import name_of
from multiberts.evaluate.readers.reading import read_tasks
from multiberts.evaluate.readers.rows import (
    BY_TIME,
    check_examples,
    described,
    line_of_repeats,
    number_of,
)
from multiberts.runs.console import warn
from multiberts.runs.errors import UserError, counted
from multiberts.runs.parameters import Seed, fits

if TYPE_CHECKING:
    import pandas

# Columns of runs that only `multiberts export` writes.
_FACTS = ("step", "learning_rate", "data_seed")
_OF_RUNS = ("arm", "seed", "run", *_FACTS)


def read_other_programs(
    source: str,
    names: ColumnNames,
    task: str | None,
    metric: str | None,
    procedure: str | None,
) -> Iterator[ImportedRun]:
    """Reads runs from files, see `evaluate.readers.reading.read_tasks`.

    Args:
      task: one of several tasks, by default all; for files without a task's name, its name, by default
        the source's.
      metric: metric of predictions, by default a log's metric, the mean of scores, or the accuracy.
      procedure: the runs' procedure if no column names the arm, by default the source's name.

    Returns:
      One run per task, arm, seed and run of the seed, with the task's evaluation sets and the examples'
      texts. Text classes become their indices in the sorted list `classes` of run.json.
    """
    if metric is not None and metric not in METRICS:
        raise UserError(
            f"import_predictions.metric is {metric!r}, expected one of {', '.join(sorted(METRICS))}"
        )
    path = Path(source)
    by_task: dict[str, list[_Set]] = {}
    for task_name, rows in read_tasks(source, names, task, may_name=True).items():
        where = f"{path.name}, {task_name}"
        read, frame = described(rows.read.columns), rows.frame()
        read += f", {rows.read.chosen}" * bool(rows.read.chosen)
        check_examples(rows, f"{where}: ")
        if rows.read.columns.get("seed") == BY_TIME:
            warn(
                f"{where}: repeats of an evaluation are written as pre-training seeds, as runs have no "
                "field for repeats: comparisons of these runs say nothing about new training"
            )
        frame = frame.assign(
            arm=frame["arm"] if "arm" in frame else procedure or name_of(path),
            example=frame["example"].astype(str),
        )
        value = "prediction" if "prediction" in frame else "score"
        roles: tuple[Literal["prediction", "label"], ...] = ("prediction", "label")
        cells = {role: frame[role].to_numpy() for role in roles if role in frame}
        predictions, labels = map(cells.get, roles)
        try:
            chosen = metric or default_metric(predictions, labels, rows.read.logged_metric)
            taken = {
                role: values_of_cells(METRICS[chosen], column, role)
                for role, column in cells.items()
            }
        except ValueError as error:
            raise UserError(f"{where}: {error}") from error
        if METRICS[chosen].uses == "text" and "label" in cells and frame["label"].isna().all():
            raise UserError(
                f"{where}: all labels are empty, with which {chosen} compares the predictions; name their "
                "column with --label=COLUMN"
            )
        frame = frame.assign(**taken)
        if frame[value].map(type).eq(tuple).any():
            raise UserError(
                f"{where}: found lists as predictions, expected one text for each example"
            )
        if frame[value].isna().any():
            raise UserError(
                f"{where}: {counted(int(frame[value].isna().sum()), value)} missing; fill them in, or "
                "leave their examples out"
            )
        if {"prediction", "label"} <= {*frame.columns}:
            _check_answers(frame[frame["label"].notna()], where, chosen)
        keys = [name for name in (*_OF_RUNS, "example") if name in frame]
        twice = frame[frame.duplicated(keys)]
        if len(twice):
            cells_of_row = {key: _plain(twice[key].iloc[0]) for key in keys}
            cells_of_row["example"] = _plain(rows.roles["example"].iloc[twice.index[0]])
            raise UserError(f"{where}: {line_of_repeats(rows, cells_of_row)}")
        frame = frame.rename(columns={value: "prediction"})
        run_task, _, evaluation_set = task_name.partition("/")
        by_task.setdefault(run_task, []).append(
            _Set(frame, where, (evaluation_set or run_task).replace("/", "-"), chosen, read)
        )
    for run_task, sets in by_task.items():
        classes = _encode(sets)
        parts: dict[str, list[ImportedRun]] = {}
        for task_set in sets:
            for run in _runs_of(task_set, run_task, classes):
                parts.setdefault(run.name, []).append(run)
        yield from map(_joined, parts.values())


def _check_answers(frame: pandas.DataFrame, where: str, metric: str) -> None:
    """Checks each arm's answers against the labels, and warns about problems that scores do not show."""
    for arm, rows in frame.groupby("arm", sort=False):
        answers = Answers(
            rows["prediction"].to_numpy()[None], num_units=rows["example"].nunique()
        )  # concatenates all runs to match the labels
        try:
            notes = check_answers(metric, rows["label"].to_numpy(), [answers])[0]
        except ValueError as error:
            raise UserError(f"{where}: {error}") from error
        if notes:
            warn(f"{where}: {' '.join(notes).replace('{arm}', str(arm))}")


@dataclass(frozen=True)
class _Set:
    """The rows of one evaluation set: their source, their metric, and the columns that were read."""

    frame: pandas.DataFrame
    where: str
    name: str
    metric: str
    read: str


def _encode(sets: Sequence[_Set]) -> list[str]:
    """Replaces text classes by numbers, in place, and returns the classes; answers stay texts."""
    columns = []
    for task_set in sets:
        names = [name for name in ("prediction", "label") if name in task_set.frame]
        is_number = all(task_set.frame[name].dtype.kind in "biuf" for name in names)
        if not is_number and METRICS[task_set.metric].uses != "text":
            columns += [(task_set.frame, name) for name in names]
    classes = sorted({str(item) for frame, name in columns for item in frame[name].unique()})
    code_of_class = {name: code for code, name in enumerate(classes)}
    for frame, name in columns:
        frame[name] = frame[name].astype(str).map(code_of_class)
    return classes


def _joined(parts: Sequence[ImportedRun]) -> ImportedRun:
    first = parts[0]
    facts = {**first.facts, "source": "; ".join(part.facts["source"] for part in parts)}
    files = tuple(dict.fromkeys(file for part in parts for file in part.files))
    return ImportedRun(
        first.name, facts, files, lambda: [imported for part in parts for imported in part.read()]
    )


def _runs_of(task_set: _Set, task: str, classes: list[str]) -> Iterator[ImportedRun]:
    frame, where = task_set.frame, task_set.where
    keys = [name for name in _OF_RUNS if name in frame]
    read_set = partial(_set_of, task_set.name, task_set.metric, *_further(frame))
    for key, rows in frame.groupby(keys, sort=False, dropna=False):
        coordinates = {name: _plain(item) for name, item in zip(keys, key, strict=True)}
        facts = facts_of(
            task, str(coordinates["arm"]), _whole(where, "seed", number_of(coordinates["seed"])),
            _whole(where, "run", coordinates.get("run") or 0), f"{where}: {task_set.read}",
            **{name: coordinates[name] for name in _FACTS if name in coordinates},
            **({"classes": classes} if classes else {}),
        )  # fmt: skip
        parts = [f"{name}={item}" for name, item in coordinates.items() if item is not None]
        name = "/".join(re.sub(r"[^\w.=,@+-]+", "-", part) for part in (task, ",".join(parts)))
        files = tuple(
            file for source in rows["source_file"].unique() for file in _files(Path(source))
        )
        yield ImportedRun(name, facts, files, partial(read_set, rows))


def _files(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


def _plain(value: Any) -> Any:
    """Returns a cell as a Python value; None if it is empty."""
    import pandas

    return None if pandas.isna(value) else getattr(value, "item", lambda: value)()


def _whole(where: str, role: str, value: Any) -> int:
    """Returns a seed or run as a whole number."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        whole = int(value)
        if fits(whole, Seed) and not (isinstance(value, float) and whole != value):
            return whole
    raise UserError(
        f"{where}: found the {role} {value!r}, expected whole numbers from 0 to 2**63 - 1; number "
        f"them, or name another column with --{role}"
    )


def _further(frame: pandas.DataFrame) -> tuple[list[str], list[str]]:
    """Returns the further columns of examples, and those of runs."""
    extras: list[str] = []
    outputs: list[str] = []
    for column in frame.columns:
        if column in _NOT_FURTHER or not _NAME.fullmatch(str(column)) or frame[column].isna().any():
            continue
        values = frame[column].map(lambda item: tuple(item) if np.ndim(item) else item)
        varies = (values.groupby(frame["example"]).nunique() > 1).any()
        (outputs if varies or column == PREDICTION_TEXT else extras).append(column)
    return extras, outputs


_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_NOT_FURTHER = RESERVED | {"arm", "seed", "source_file", *_FACTS}


def _set_of(
    name: str, metric: str, extras: list[str], outputs: list[str], rows: pandas.DataFrame
) -> list[ImportedSet]:
    described, further = (
        {column: _array(rows[column]) for column in names} for names in (extras, outputs)
    )
    label = rows["label"].to_numpy() if "label" in rows else None
    prediction = rows["prediction"].to_numpy()
    if METRICS[metric].uses == "text" and PREDICTION_TEXT not in further and label is not None:
        answers = rows["label"].map(
            lambda text: text if isinstance(text, tuple) else (str(text),) * (text != "")
        )
        described[ANSWERS] = _array(answers)
        further[PREDICTION_TEXT] = np.array([str(text) for text in prediction], dtype=object)
        label, prediction = answers.map(bool).to_numpy(np.float64), further[PREDICTION_TEXT] != ""
    scores = np.stack(rows["scores"].tolist()) if "scores" in rows else None
    predictions = predictions_of(
        rows["example"].tolist(), label, prediction, scores, described, further
    )
    return [ImportedSet(name, predictions, (metric,))]


def _array(column: pandas.Series) -> NDArray:
    values = column.tolist()
    if any(np.ndim(item) for item in values):
        lists = np.empty(len(values), dtype=object)
        lists[:] = [tuple(map(str, item)) for item in values]
        return lists
    return np.asarray(values)
