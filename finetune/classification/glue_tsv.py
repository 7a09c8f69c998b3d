"""Reads the TSV files of the GLUE release, and files in their layout.

They are raw tab-separated lines: quotes are text, balanced or not, and a byte order mark may come
first. A file is read by the names in its header, so MNLI may have the 12 columns of train, the 16 of
dev, or just those that are needed.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from multiberts.finetune.classification.glue import GlueTask
from multiberts.finetune.text_examples import TextExamples
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_lines
from multiberts.runs.tables import TableRow, read_rows


@dataclasses.dataclass(frozen=True)
class GlueTsvReader:
    """Reads one TSV file of a task.

    Attributes:
      task: its columns.
      split: the split's name in example ids, such as `train` or `dev_mismatched`.
    """

    task: GlueTask
    split: str

    def __call__(self, files: tuple[Path, ...], _name: str) -> TextExamples:
        """Reads the file; its ids name the split, whatever the set is called."""
        (file,) = files
        return read_examples(file, self.task, self.split)


def read_examples(path: PathLike, task: GlueTask, split: str) -> TextExamples:
    """Reads one TSV file; a file of a test split may have no labels.

    Args:
      path: a `.tsv` file, plain or `.gz`.
      task: its columns; it may have further ones, in any order.
      split: `train`, `dev`, `test` ..., for the example ids.

    Returns:
      The examples; ids are `<task>/<split>/<row>`, rows counted from 0 without the header.

    Raises:
      UserError: missing or empty file, other columns, an unknown label, a repeated id, or a test
        file whose first column does not number its rows.
    """
    label_column: str | None = task.label_column
    if split in task.test_splits and label_column not in read_lines(path)[0].split("\t"):
        label_column = None
    id_column = task.id_column if label_column else task.test_columns[0]
    short_rows: list[int] = []
    rows: list[int] = []
    texts: list[list[str]] = [[] for _ in task.text_columns]
    labels: list[float] = []
    for count, row in enumerate(
        read_rows(
            path,
            [column for column in (id_column, *task.text_columns, label_column) if column],
            header=task.columns if label_column and not task.header else None,
            unique=[id_column] if id_column else (),
            short_rows=short_rows if task.drops_incomplete_rows else None,
            cure=f"export the file again in the layout of task {task.name}",
        )
    ):
        # Rows that are left out keep their numbers.
        rows.append(count + len(short_rows))
        for column, text in zip(task.text_columns, texts, strict=True):
            text.append(row[column])
        if label_column:
            labels.append(_label_number(row, task))
        elif id_column and row[id_column] != str(rows[-1]):
            raise row.refused(
                id_column, f"{rows[-1]}, as a test file without labels numbers its rows from 0"
            )
    remark = f"{path}: left out {len(short_rows)} rows with fewer columns than the header (line "
    remark += f"{', '.join(map(str, short_rows[:5]))}{', ...' if len(short_rows) > 5 else ''})"
    return TextExamples(
        example_ids=[f"{task.name}/{split}/{row}" for row in rows],
        first_texts=texts[0],
        second_texts=texts[1] if len(texts) == 2 else None,
        labels=np.array(labels, np.float32) if label_column else None,
        remarks=(remark,) if short_rows else (),
    )


def _label_number(row: TableRow, task: GlueTask) -> float:
    """Returns the class number of a row's label, or the value of its score."""
    if task.labels is None:
        return row.number(task.label_column)
    label = row[task.label_column]
    if label not in task.labels:
        raise UserError(
            f"{row.where}: found {task.label_column} {label!r}, expected one of "
            f"{', '.join(task.labels)}; correct the line, or give finetune.labels for a task of your own"
        )
    return float(task.labels.index(label))
