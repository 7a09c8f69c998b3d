"""Reads the TSV files of the GLUE release, and files in their layout.

They are raw tab-separated lines: quotes are text, balanced or not, and a byte order mark may come
first. A file is read by the names in its header, so MNLI may have the 12 columns of train, the 16 of
dev, or just those that are needed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from multiberts.finetune.classification.glue import GlueTask
from multiberts.finetune.text_examples import TextExamples
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_lines


@dataclasses.dataclass(frozen=True)
class GlueTsvReader:
    """Reads one TSV file of a task.

    Attributes:
      task: what its columns are.
      split: the split's name in example ids, such as `train` or `dev_mismatched`.
    """

    task: GlueTask
    split: str

    def __call__(self, files: tuple[Path, ...], name: str) -> TextExamples:
        del name  # the ids say the split, whatever the set is called
        (file,) = files
        return read_examples(file, self.task, self.split)


def read_examples(path: PathLike, task: GlueTask, split: str) -> TextExamples:
    """Reads one TSV file; a file of a test split may lack the labels.

    Args:
      path: a `.tsv` file, plain or `.gz`.
      task: what its columns are.
      split: `train`, `dev`, `test` ..., for the example ids.

    Returns:
      The examples; ids are `<task>/<split>/<row>`, rows counted from 0 without the header.

    Raises:
      UserError: missing or empty file, other columns, an unknown label, a repeated id, or a test
        file whose first column does not number its rows.
    """
    layout = _Layout.of(path, read_lines(path), task, split)
    rows: list[int] = []
    texts: list[list[str]] = [[] for _ in task.text_columns]
    labels: list[float] = []
    line_of_id: dict[str, int] = {}
    incomplete: list[int] = []
    for row, (number, fields) in enumerate(layout.rows()):
        if len(fields) != len(layout.header):
            if task.drops_incomplete_rows and len(fields) < len(layout.header):
                incomplete.append(number)
                continue
            raise UserError(
                f"{path} line {number}: found {len(fields)} columns, expected {len(layout.header)} "
                f"({', '.join(layout.header)}); export the file again as the GLUE release has it"
            )
        if layout.id_index is not None:
            layout.check_id(fields[layout.id_index], row, number, line_of_id)
        for column, index in zip(texts, layout.text_indices, strict=True):
            column.append(fields[index])
        if layout.label_index is not None:
            labels.append(label_number(f"{path} line {number}", fields[layout.label_index], task))
        rows.append(row)
    if not rows:
        raise UserError(f"{path} has a header and no examples; give a file with examples")
    return TextExamples(
        example_ids=[f"{task.name}/{split}/{row}" for row in rows],
        first_texts=texts[0],
        second_texts=texts[1] if len(texts) == 2 else None,
        labels=None if layout.label_index is None else np.array(labels, np.float32),
        remarks=_remarks(path, layout, incomplete),
    )


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Where a file has what."""

    path: PathLike
    lines: list[str]
    first_row: int
    header: list[str]
    text_indices: list[int]
    label_index: int | None
    id_index: int | None
    ids_are_rows: bool
    skips_blank_lines: bool

    @classmethod
    def of(cls, path: PathLike, lines: list[str], task: GlueTask, split: str) -> _Layout:
        """Reads the header; a file may have more columns than the task's, in any order.

        Raises:
          UserError: the header lacks a column, or names it twice.
        """
        header = lines[0].split("\t")
        may_lack_labels = split in task.test_splits
        # A test file of one's own may have labels, and then it is read as any other.
        unlabelled = may_lack_labels and task.label_column not in header
        has_header = task.header or unlabelled
        if not has_header:
            header = list(task.columns)
        id_column = task.test_columns[0] if unlabelled else task.id_column
        needed = [*task.text_columns, *filter(None, [id_column])]
        if not unlabelled:
            needed.append(task.label_column)
        missing = [name for name in needed if header.count(name) != 1]
        if missing:
            expected = task.test_columns if unlabelled else task.columns
            raise UserError(
                f"{path} line 1: found the columns {', '.join(header)}, expected "
                f"{', '.join(expected)} (lacking {', '.join(missing)}); export the file again as the "
                "GLUE release has it"
            )
        return cls(
            path=path,
            lines=lines,
            first_row=1 if has_header else 0,
            header=header,
            text_indices=[header.index(name) for name in task.text_columns],
            label_index=None if unlabelled else header.index(task.label_column),
            id_index=None if id_column is None else header.index(id_column),
            ids_are_rows=unlabelled,
            skips_blank_lines=task.drops_incomplete_rows,
        )

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """The number of each row's line, and its fields."""
        lines = itertools.islice(self.lines, self.first_row, None)
        for number, line in enumerate(lines, start=self.first_row + 1):
            if line or not self.skips_blank_lines:
                yield number, line.split("\t")

    def check_id(self, identity: str, row: int, number: int, line_of_id: dict[str, int]) -> None:
        """Refuses an id that was there before, and one of a test file that is not its row's number.

        Raises:
          UserError: such an id.
        """
        assert self.id_index is not None
        column = self.header[self.id_index]
        if identity in line_of_id:
            raise UserError(
                f"{self.path} line {number}: {column} {identity!r} stands in line "
                f"{line_of_id[identity]} already, expected each once; remove one of them"
            )
        if self.ids_are_rows and identity != str(row):
            raise UserError(
                f"{self.path} line {number}: found {column} {identity!r}, expected {row}: a test file "
                "without labels numbers its rows from 0; export the file again as the GLUE release "
                "has it"
            )
        line_of_id[identity] = number


def label_number(where: str, text: str, task: GlueTask) -> float:
    """The class number of a label's name, or the value of a score.

    Args:
      where: file and line, for the error.
      text: what stands there.
      task: whose label it is.

    Raises:
      UserError: an unknown name, or no finite number.
    """
    if task.labels is not None:
        if text not in task.labels:
            raise UserError(
                f"{where}: found label {text!r}, expected one of {', '.join(task.labels)}; correct "
                "the line, or give finetune.labels for a task of your own"
            )
        return float(task.labels.index(text))
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{where}: found score {text!r}, expected a number; correct it")
    return value


def _remarks(path: PathLike, layout: _Layout, incomplete: list[int]) -> tuple[str, ...]:
    if not incomplete:
        return ()
    shown = ", ".join(str(number) for number in incomplete[:5])
    return (
        f"{path}: left out {len(incomplete)} rows with fewer than {len(layout.header)} columns "
        f"(line {shown}{', ...' if len(incomplete) > 5 else ''})",
    )
