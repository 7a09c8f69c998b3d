"""Readers of GLUE tasks, and of tasks of the user's own: tables by columns, and TensorFlow Datasets.

TSV files are raw tab-separated lines: quotes are text, balanced or not, and a byte order mark may come
first. A file is read by the names in its header, so MNLI may have the 12 columns of train, the 16 of
dev, or just those that are needed.

The examples of TensorFlow Datasets, their order and their ids are those of the TSV files: rows are put
in the order of `idx`, and classes are matched by their names, as the numbers differ (MNLI's class 0 is
entailment there).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.finetune.data_files import SPLITS, DatasetSplit, open_split
from multiberts.finetune.text.labels import label_array, label_of, words_of
from multiberts.finetune.text.task import TOKENS, TextExamples, TextTask
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike
from multiberts.runs.tables import TableRow, column_names, read_rows


@dataclasses.dataclass(frozen=True)
class TableReader:
    """Reads one table of a task: the release's TSV, or for the user's own any form of `runs.tables`.

    Attributes:
      task: its columns.
      split: the split's name in example ids, such as `train` or `dev_mismatched`.
    """

    task: TextTask
    split: str

    def __call__(self, files: tuple[Path, ...], _name: str) -> TextExamples:
        """Reads the file; its ids name the split, whatever the set is called."""
        return read_examples(table_of_files(files), self.task, self.split)


def table_of_files(files: tuple[Path, ...]) -> Path:
    """Returns the table that `runs.tables.table_files` found these files of."""
    return files[0].parent if files[0].suffix == ".arrow" else files[0]


def read_examples(path: PathLike, task: TextTask, split: str) -> TextExamples:
    """Reads one table; a file of a test split may have no labels.

    Returns:
      The examples; ids are `<task>/<split>/<row>`, rows counted from 0 without the header.

    Raises:
      UserError: missing or empty file, other columns, an unknown label, a repeated id, or a test
        file whose first column does not number its rows.
    """
    label_column: str | None = task.label_column
    if split in task.files.test_splits and label_column not in column_names(path):
        label_column = None
    id_column = task.files.id_column
    if label_column is None:
        id_column = task.files.test_id_column
    short_rows: list[int] = []
    rows: list[int] = []
    texts: list[list[str]] = [[] for _ in task.text_columns]
    words: list[list[str]] = []
    labels: list[float | list[float]] = []
    # Words may be lists, where cells have types.
    typed = [*(task.text_columns if task.kind == TOKENS else ())]
    for count, row in enumerate(
        read_rows(
            path,
            [*([id_column] if id_column else []), *([] if typed else task.text_columns)],
            values=[*typed, *([label_column] if label_column else [])],
            header=task.files.header if label_column else None,
            unique=[id_column] if id_column else (),
            short_rows=short_rows if task.files.drops_incomplete_rows else None,
            cure=f"export the file again in the layout of task {task.name}",
        )
    ):
        # Rows that are left out keep their numbers.
        rows.append(count + len(short_rows))
        for column, text in zip(task.text_columns, texts, strict=True):
            text.append(row[column])
        if typed:
            words.append(words_of(row, typed[0]))
        if label_column:
            labels.append(
                label_of(
                    row, task, "; correct the line, or give finetune.labels for a task of your own"
                )
            )
        elif id_column and row[id_column] != str(rows[-1]):
            raise row.refused(
                id_column, f"{rows[-1]}, as a test file without labels numbers its rows from 0"
            )
    remark = f"{path}: left out {counted(len(short_rows), 'row')} with fewer columns than the header (line "
    remark += f"{', '.join(map(str, short_rows[:5]))}{', ...' if len(short_rows) > 5 else ''})"
    return TextExamples(
        example_ids=[f"{task.name}/{split}/{row}" for row in rows],
        first_texts=texts[0],
        second_texts=texts[1] if len(texts) == 2 else None,
        labels=label_array(labels, task) if label_column else None,
        words=words or None,
        remarks=(remark,) if short_rows else (),
    )


_ROW = "idx"


@dataclasses.dataclass(frozen=True)
class DatasetReader:
    """Reads one split of a dataset.

    Attributes:
      dataset: its name, such as `glue/rte`.
      datasets_dir: the folder of prepared datasets; None: the default of TensorFlow Datasets.
      task: its texts and labels.
      split: our name of the split, as in example ids.
      there: the library's name of the split; None: the usual one.
    """

    dataset: str
    datasets_dir: str | None
    task: TextTask
    split: str
    there: str | None = None

    def open(self) -> DatasetSplit:
        """Finds the split, and prepares the dataset if necessary.

        Raises:
          UserError: there is no such dataset or split, or it is another GLUE task's.
        """
        _check_name(self.dataset, self.task)
        splits = SPLITS[self.split] if self.there is None else (self.there,)
        return open_split(self.dataset, splits, self.datasets_dir)

    def __call__(self, _files: tuple[Path, ...], _name: str) -> TextExamples:
        """Reads the split; it is opened by the dataset's name, and its ids name the split."""
        return read_dataset(self.open(), self.task, self.split)


def read_dataset(source: DatasetSplit, task: TextTask, split: str) -> TextExamples:
    """Reads one split.

    Returns:
      The examples in the order of `idx`, or as stored if there is no `idx`; labels are None for a test
      split that has -1 throughout.

    Raises:
      UserError: missing features, other label names, or an example without a label.
    """
    texts = task.dataset_texts
    label = _label_feature(source, task)
    source.require((*texts, label), f"choose the dataset of task {task.name}")
    has_rows = _ROW in source.features
    examples = list(source.examples([*texts, label, *([_ROW] if has_rows else [])]))
    rows = list(range(len(examples)))
    if has_rows:
        examples.sort(key=lambda example: int(example[_ROW]))
        if not task.dataset.rows_are_ranks:
            rows = [int(example[_ROW]) for example in examples]
    repeated = next((row for row, after in itertools.pairwise(rows) if row == after), None)
    if repeated is not None:
        raise UserError(
            f"dataset {source.name} has {_ROW} {repeated} twice, expected each once; prepare it again"
        )
    numbered = list(zip(rows, examples, strict=True))
    if task.has_texts:
        cells = [dataset_row(source, row, example, label) for row, example in numbered]
        return _of_sets_or_tags(cells, task, split)
    columns = [[_text(source, row, example[text]) for row, example in numbered] for text in texts]
    return TextExamples(
        example_ids=[f"{task.name}/{split}/{row}" for row in rows],
        first_texts=columns[0],
        second_texts=columns[1] if len(columns) == 2 else None,
        labels=_labels(source, task, split, rows, [example[label] for example in examples]),
    )


def _of_sets_or_tags(rows: Sequence[TableRow], task: TextTask, split: str) -> TextExamples:
    """Returns examples whose labels are sets of names, or tags for words."""
    texts = [[row[column] for row in rows] for column in task.text_columns]
    is_known = split not in task.files.test_splits or any(row[task.label_column] for row in rows)
    cure = "; correct finetune.labels"
    return TextExamples(
        example_ids=[f"{task.name}/{split}/{row.line}" for row in rows],
        first_texts=texts[0],
        second_texts=texts[1] if len(texts) == 2 else None,
        labels=label_array([label_of(row, task, cure) for row in rows], task) if is_known else None,
        words=[words_of(row, task.text_columns[0]) for row in rows]
        if task.kind == TOKENS
        else None,
    )


class DatasetRow(TableRow):
    """An example of a dataset as the row of a table, numbered from 0."""

    @property
    def where(self) -> str:
        """Returns the dataset and the row, for messages."""
        return f"dataset {self.path} row {self.line}"


def dataset_row(
    source: DatasetSplit, row: int, example: Mapping[str, Any], label: str
) -> DatasetRow:
    """Returns an example as the row of a table; class numbers are names, and sequences are lists.

    Args:
      source: the split.
      row: the example's number.
      example: values by feature, as `DatasetSplit.examples` yields them.
      label: the feature with the labels, where -1 is none.

    Raises:
      UserError: a text is not UTF-8.
    """
    cells: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    for name, value in example.items():
        is_list = isinstance(value, np.ndarray)
        texts = [
            _text(source, row, each)
            if isinstance(each, bytes)
            else label_texts(source, name, [each])[0]
            for each in (value.tolist() if is_list else [value])
        ]
        given = [text for text in texts if text]
        cells[name] = " ".join(given)
        if is_list:
            lists[name] = given if name == label else texts
    return DatasetRow(source.name, row, cells, lists)


def _label_feature(source: DatasetSplit, task: TextTask) -> str:
    """Returns the feature with the label: `label` in the library's GLUE, a column's name in others."""
    return "label" if task.dataset.name and "label" in source.features else task.label_column


def label_texts(source: DatasetSplit, feature: str, values: list[Any]) -> list[str]:
    """Returns labels as text: the names of classes, or what is stored; "" where there is none."""
    names = source.label_names(feature)
    if names is not None:
        return ["" if value < 0 else names[value] for value in values]
    return [value.decode() if isinstance(value, bytes) else f"{value}" for value in values]


def _check_name(dataset: str, task: TextTask) -> None:
    """Refuses the GLUE data of another task, which might have the same features."""
    family, _, rest = dataset.partition("/")
    config = rest.partition(":")[0].partition("/")[0]
    name = task.dataset.name
    known = {name, *(f"{name}_{kind}" for kind in ("matched", "mismatched"))}
    if family.partition(":")[0] == "glue" and config not in known:
        expected = f"glue/{name}" if name else "another dataset"
        raise UserError(
            f"dataset {dataset} is not the one of task {task.name}, expected {expected}; correct "
            "finetune.dataset or finetune.task"
        )


def _text(source: DatasetSplit, row: int, value: Any) -> str:
    try:
        return bytes(value).decode()
    except (TypeError, ValueError) as error:
        raise UserError(
            f"dataset {source.name} row {row}: found {value!r}, expected UTF-8 text; correct the "
            "dataset"
        ) from error


def _labels(
    source: DatasetSplit, task: TextTask, split: str, rows: list[int], values: list[Any]
) -> np.ndarray | None:
    """Returns class numbers of the task, or scores; None for a test split without labels."""
    feature = _label_feature(source, task)
    if (
        source.label_names(feature) is None
        and task.labels is not None
        and task.dataset.name is None
    ):
        texts = label_texts(source, feature, values)
        if split in task.files.test_splits and set(texts) <= {"", "-1"}:
            return None
        for row, text in zip(rows, texts, strict=True):
            if text not in task.labels:
                raise UserError(
                    f"dataset {source.name} row {row}: found {feature} {text!r}, expected one of "
                    f"{', '.join(task.labels)}; correct finetune.labels"
                )
        return np.array([task.labels.index(text) for text in texts], np.float32)
    numbers = np.array(values, np.float32)
    if split in task.files.test_splits and (numbers == -1).all():
        return None
    unknown = np.flatnonzero(~np.isfinite(numbers) if task.labels is None else numbers == -1)
    if len(unknown):
        raise UserError(
            f"dataset {source.name} row {rows[unknown[0]]}: found label {numbers[unknown[0]]:g}, "
            "which means that there is none; choose another split or correct the dataset"
        )
    if task.labels is None:
        return numbers
    names = source.label_names(feature)
    expected = task.dataset.labels or task.labels
    if names is None or set(names) not in (set(expected), set(task.labels)):
        raise UserError(
            f"dataset {source.name} has the labels {', '.join(names or ['(no names)'])}, expected "
            f"{', '.join(expected)}; choose the dataset of task {task.name}, or give finetune.labels"
        )
    ours = expected if set(names) == set(expected) else task.labels
    class_of = np.array([ours.index(name) for name in names], np.float32)
    return class_of[numbers.astype(np.int64)]
