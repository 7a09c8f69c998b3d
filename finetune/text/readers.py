"""Readers of texts with labels: tables by columns, and TensorFlow Datasets.

TSV files are raw tab-separated lines: quotes are text, balanced or not, and a byte order mark is allowed.
Columns are found by the names in the header, so further columns are ignored (MNLI's train has 12, dev 16).

TensorFlow Datasets gives the same examples, order and ids as the TSV files: rows are sorted by `idx`, and
classes are matched by name, as the numbers differ (MNLI's class 0 is entailment there).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.finetune.data_files import SPLITS, DatasetSplit, open_split
from multiberts.finetune.text.labels import is_label, label_array, label_of, words_of
from multiberts.finetune.text.task import TOKENS, TextExamples, TextTask
from multiberts.runs.console import note_once
from multiberts.runs.errors import UserError, counted, listed
from multiberts.runs.files import PathLike
from multiberts.runs.parameters import shortened
from multiberts.runs.tables import TableRow, column_names, read_rows, table_of_files

# Columns of the Hub's `glue`, and of TensorFlow Datasets.
_ROW, _HUB_LABEL = "idx", "label"


@dataclasses.dataclass(frozen=True)
class TableReader:
    """Reads one table of a task: the release's TSV, or for users' tasks any form of `runs.tables`.

    Attributes:
      split: the split's name in example ids, such as `train` or `dev_mismatched`.
    """

    task: TextTask
    split: str

    def __call__(self, files: tuple[Path, ...], _name: str) -> TextExamples:
        """Reads the file; its ids contain the split, not the set."""
        return read_examples(table_of_files(files), self.task, self.split)


def read_examples(path: PathLike, task: TextTask, split: str) -> TextExamples:
    """Reads one table; labels are optional in test splits.

    Returns:
      The examples; ids are `<task>/<split>/<row>`, with rows counted from 0 below the header, or numbered
      by `idx` in the Hub's files, which may be shuffled or incomplete.
    """
    columns = column_names(path)
    task = _with_columns(task, columns)
    files = task.files
    may_lack = split in files.test_splits
    is_labelled = not may_lack or task.label_column in columns
    id_column = files.id_column if is_labelled else files.test_id_column
    id_columns = [id_column] if id_column in columns else []
    short_rows: list[int] = []
    words = task.text_columns if task.kind == TOKENS else ()  # may be lists in typed tables
    rows = read_rows(
        path,
        () if words else task.text_columns,
        values=[*id_columns, *words, *([task.label_column] * (not may_lack))],
        optional=[task.label_column] * may_lack,
        header=files.header if is_labelled else None,
        unique=id_columns,
        short_rows=short_rows if files.drops_incomplete_rows else None,
        cure=f"export the file again in the layout of task {task.name}",
    )

    def numbered() -> Iterator[tuple[int, TableRow]]:
        before = -1
        for count, row in enumerate(rows):
            number = count + len(short_rows)  # dropped rows keep their numbers
            if id_columns == [_ROW]:
                index = row.integer(_ROW)
                if not task.dataset.rows_are_ranks:
                    number = index
                elif index < before:
                    raise UserError(
                        f"{row.where}: found {_ROW} {index} after {before}, expected the rows of {task.name} "
                        f"in the order of {_ROW}, which numbers them; sort them by it"
                    )
                before = index
            elif not is_labelled and id_columns and row[id_columns[0]] != str(number):
                raise row.refused(
                    id_columns[0],
                    f"{number}, as a test file without labels numbers its rows from 0",
                )
            yield number, row

    cure = "; correct the line, or give finetune.labels for a task of your own"
    read: Iterable[tuple[int, TableRow]] = [*numbered()] if may_lack else numbered()
    looked_at, numbered_rows = itertools.tee(read)
    task = with_labels(task, columns, (row for _, row in looked_at))
    del looked_at  # otherwise `tee` keeps all rows in memory
    has_labels = is_labelled and (not may_lack or any(is_label(row, task) for _, row in read))
    examples = examples_of(numbered_rows, task, split, cure, is_labelled=has_labels)
    if not short_rows:
        return examples
    remark = f"{path}: left out {counted(len(short_rows), 'row')} with fewer columns than the header (line "
    remark += f"{', '.join(map(str, short_rows[:5]))}{', ...' if len(short_rows) > 5 else ''})"
    return dataclasses.replace(examples, remarks=(remark,))


def _with_columns(task: TextTask, columns: Sequence[str]) -> TextTask:
    """Returns a task with a file's columns: those of the release, or of the Hub and `run_glue`."""
    pair = TextTask.text_columns if len(task.text_columns) == 2 else task.text_columns
    ways = (task.text_columns, task.dataset_texts, pair)
    texts = next((way for way in ways if {*way} <= {*columns}), None)
    if texts is None or task.dataset.name is None:
        return task
    is_of_hub = task.label_column not in columns and _HUB_LABEL in columns
    label = _HUB_LABEL if is_of_hub else task.label_column
    files = dataclasses.replace(task.files, header=None)
    if _ROW in columns:
        files = dataclasses.replace(files, id_column=_ROW, test_id_column=_ROW)
    return dataclasses.replace(task, text_columns=texts, label_column=label, files=files)


def with_labels(task: TextTask, columns: Sequence[str], rows: Iterable[TableRow]) -> TextTask:
    """Returns a task with its labels as a file writes them: as in the release, or as in the Hub's files."""
    dataset, names = task.dataset, task.labels
    if dataset.name is None or names is None:
        return task
    row = next((row for row in rows if row.get(task.label_column, "") not in ("", "-1")), None)
    label = None if row is None else row[task.label_column]
    if row is None or label in names:
        return task
    if dataset.labels and label in dataset.labels:
        return dataclasses.replace(task, labels=dataset.labels)
    if label not in dataset.numbers:
        return task
    order = ", ".join(map(" ".join, sorted(zip(dataset.numbers, names, strict=True))))
    if _ROW not in columns:
        raise UserError(
            f"{row.where}: found the class number {label} under {task.label_column!r}, and nothing that says "
            f"which class it is; write the names {', '.join(names)} (in the Hub's glue {order}; its files "
            f"have a column {_ROW!r}, too)"
        )
    note_once(
        f"{row.path} has the column {_ROW!r} of the Hub's glue, so class numbers are read as there: {order}"
    )
    return dataclasses.replace(task, labels=dataset.numbers)


def examples_of(
    rows: Iterable[tuple[int, TableRow]],
    task: TextTask,
    split: str,
    cure: str,
    *,
    is_labelled: bool,
) -> TextExamples:
    """Returns the examples of numbered rows with the task's columns.

    Args:
      split: the set's name in the ids `<task>/<split>/<number>`.
      cure: end of the message about an unknown label.
    """
    example_ids: list[str] = []
    texts: list[list[str]] = [[] for _ in task.text_columns]
    words: list[list[str]] = []
    labels: list[float | list[float]] = []
    for number, row in rows:
        example_ids.append(f"{task.name}/{split}/{number}")
        for column, text in zip(task.text_columns, texts, strict=True):
            text.append(row[column])
        if task.kind == TOKENS:
            words.append(words_of(row, task.text_columns[0]))
        if is_labelled:
            labels.append(label_of(row, task, cure))
    return TextExamples(
        example_ids=example_ids,
        first_texts=texts[0],
        second_texts=texts[1] if len(texts) == 2 else None,
        labels=label_array(labels, task) if is_labelled else None,
        words=words or None,
    )


@dataclasses.dataclass(frozen=True)
class DatasetReader:
    """Reads one split of a dataset.

    Attributes:
      dataset: the dataset's name, such as `glue/rte`.
      datasets_dir: folder of prepared datasets; None: the default of TensorFlow Datasets.
      split: our name of the split, as in example ids.
      there: the library's name of the split; None: the usual name.
    """

    dataset: str
    datasets_dir: str | None
    task: TextTask
    split: str
    there: str | None = None

    def open(self) -> DatasetSplit:
        """Opens the split; prepares the dataset if necessary."""
        _check_name(self.dataset, self.task)
        splits = SPLITS[self.split] if self.there is None else (self.there,)
        return open_split(self.dataset, splits, self.datasets_dir)

    def __call__(self, _files: tuple[Path, ...], _name: str) -> TextExamples:
        """Reads the split; its ids contain the split, not the set."""
        return read_dataset(self.open(), self.task, self.split)


def read_dataset(source: DatasetSplit, task: TextTask, split: str) -> TextExamples:
    """Reads one split.

    Returns:
      The examples sorted by `idx`, or as stored without `idx`; labels are None for a test split without
      any label.
    """
    # The library's GLUE has `label`, other datasets the task's column.
    label = "label" if task.dataset.name and "label" in source.features else task.label_column
    wanted = (*task.dataset_texts, label)
    source.require(wanted, f"choose the dataset of task {task.name}")
    has_rows = _ROW in source.features
    examples = list(source.examples([*wanted, *([_ROW] if has_rows else [])]))
    numbers = list(range(len(examples)))
    if has_rows:
        examples.sort(key=lambda example: int(example[_ROW]))
        if not task.dataset.rows_are_ranks:
            numbers = [int(example[_ROW]) for example in examples]
    repeated = next((row for row, after in itertools.pairwise(numbers) if row == after), None)
    if repeated is not None:
        raise UserError(
            f"dataset {source.name} has {_ROW} {repeated} twice, expected each once; prepare it again"
        )
    there = dataclasses.replace(
        task,
        text_columns=task.dataset_texts,
        label_column=label,
        labels=_labels_there(source, task, label),
    )
    rows = [
        dataset_row(source, number, example, label)
        for number, example in zip(numbers, examples, strict=True)
    ]
    lacking = [row for row in rows if not is_label(row, there)]
    is_labelled = split not in task.files.test_splits or len(lacking) < len(rows)
    if is_labelled and lacking and task.labels is not None and not task.has_texts:
        raise UserError(
            f"{lacking[0].where}: found label -1, which means no label; choose another split or "
            "correct the dataset"
        )
    cure = "; correct finetune.labels"
    numbered = zip(numbers, rows, strict=True)
    return examples_of(numbered, there, split, cure, is_labelled=is_labelled)


def _labels_there(source: DatasetSplit, task: TextTask, label: str) -> tuple[str, ...] | None:
    """Returns the dataset's label names in the order of the task's labels."""
    names = source.label_names(label)
    is_user_task = task.dataset.name is None and names is None
    if (
        task.labels is None
        or task.has_texts
        or is_user_task
        or set(names or ()) == set(task.labels)
    ):
        return task.labels
    expected = task.dataset.labels or task.labels
    if set(names or ()) != set(expected):
        raise UserError(
            f"dataset {source.name} has the labels {listed(names or ['(no names)'])}, expected "
            f"{', '.join(expected)}; choose the dataset of task {task.name}, or give finetune.labels"
        )
    return expected


def dataset_row(source: DatasetSplit, row: int, example: Mapping[str, Any], label: str) -> TableRow:
    """Returns an example as a table row, numbered from 0, with class names and with sequences as lists.

    Args:
      example: values by feature, from `DatasetSplit.examples`.
      label: the label feature, which is "" or -1 for an example without a label.
    """
    cells: dict[str, str] = {}
    lists: dict[str, list[str]] = {}

    def text(value: Any, names: Sequence[str] | None) -> str:
        if isinstance(value, bytes):
            try:
                return value.decode()
            except ValueError as error:
                raise UserError(
                    f"dataset {source.name} row {row}: found {shortened(value)}, expected UTF-8 text; "
                    "correct the dataset"
                ) from error
        if names is None:
            return str(value)
        return "" if value < 0 else names[value]

    for name, value in example.items():
        is_list, names = isinstance(value, np.ndarray), source.label_names(name)
        texts = [text(each, names) for each in (value.tolist() if is_list else [value])]
        nonempty = [text for text in texts if text]
        cells[name] = " ".join(nonempty)
        if is_list:
            lists[name] = nonempty if name == label else texts
    return TableRow(f"dataset {source.name}", row, cells, lists, unit="row")


def _check_name(dataset: str, task: TextTask) -> None:
    """Refuses GLUE data of another task, which may have the same features."""
    builder, _, config_name = dataset.partition("/")
    config = config_name.partition(":")[0].partition("/")[0]
    name = task.dataset.name
    configs = {name, *(f"{name}_{kind}" for kind in ("matched", "mismatched"))}
    if builder.partition(":")[0] == "glue" and config not in configs:
        expected = f"glue/{name}" if name else "another dataset"
        raise UserError(
            f"dataset {dataset} is not the one of task {task.name}, expected {expected}; correct "
            "finetune.dataset or finetune.task"
        )
