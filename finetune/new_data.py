"""Data that a model has not seen, for `multiberts predict`: rows of a table in any usual form."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.evaluate.readers.columns import TEXT_NAMES
from multiberts.finetune.text_examples import TextExamples
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_lines
from multiberts.runs.tables import read_rows

# Lines of text, and not a table.
LINES_SUFFIX = ".txt"
# What stands for "there is no label"; the number is that of `datasets`.
_NO_LABEL = (None, "", "-1")
_USUAL_PAIRS: tuple[tuple[str, ...], ...] = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
)


@dataclasses.dataclass(frozen=True)
class NewRow:
    """One row.

    Attributes:
      where: the file and the row, for messages.
      cells: by column; None where a cell is empty in a form that distinguishes that.
    """

    where: str
    cells: Mapping[str, Any]

    def text(self, column: str) -> str:
        """Returns a cell that must be a text.

        Raises:
          UserError: it is something else.
        """
        value = self.cells.get(column)
        if not isinstance(value, str):
            found = "nothing" if value is None else repr(value)
            raise UserError(
                f"{self.where}: found {found} under {column!r}, expected text; correct it"
            )
        return value


def read_new_rows(path: PathLike) -> list[NewRow]:
    r"""Reads a table with named columns: TSV, CSV, JSON lines (each also `.gz`) or Parquet.

    Raises:
      UserError: the file is missing, empty, of another form, or Parquet without pyarrow.

    Example:
      >>> path = getfixture("tmp_path") / "new.jsonl"
      >>> _ = path.write_text('{"text": "A cake.", "stars": 4}\n')
      >>> [(row.text("text"), row.cells["stars"]) for row in read_new_rows(path)]
      [('A cake.', 4)]
    """
    name = Path(path).name
    if name.endswith(".parquet"):
        rows = list(_parquet_rows(Path(path)))
    elif name.removesuffix(".gz").endswith(".jsonl"):
        rows = list(_json_rows(Path(path)))
    elif name.removesuffix(".gz").endswith((".tsv", ".csv")):
        rows = [NewRow(row.where, row) for row in read_rows(path, (), cure="give a file with rows")]
    else:
        raise UserError(
            f"{path} is of no known form; give a file whose name ends in .tsv, .csv, .jsonl or .parquet, "
            f"or {LINES_SUFFIX} with one text per line"
        )
    if not rows:
        raise UserError(f"{path} has no rows; give a file with some")
    return rows


def _json_rows(path: Path) -> Iterator[NewRow]:
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path} line {number}"
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: is not JSON ({error}); correct it") from error
        if not isinstance(cells, dict):
            raise UserError(f"{where}: found {line[:40]!r}, expected an object; correct it")
        yield NewRow(where, cells)


def _parquet_rows(path: Path) -> Iterator[NewRow]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(
            f"{path} needs pyarrow, which is not installed; pip install 'multiberts[parquet]'"
        ) from error
    try:
        cells = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} cannot be read as Parquet ({reason}); write it again") from error
    for number, row in enumerate(cells):
        yield NewRow(f"{path} row {number}", row)


def column_of(path: PathLike, rows: Sequence[NewRow], column: str, flag: str) -> str:
    """Returns a column that must be there.

    Args:
      path: for messages.
      rows: of the file.
      column: its name.
      flag: the parameter that names it.

    Raises:
      UserError: it is not there.
    """
    if column not in rows[0].cells:
        raise _lacking(path, rows, repr(column), flag)
    return column


def _lacking(path: PathLike, rows: Sequence[NewRow], wanted: str, flag: str) -> UserError:
    found = ", ".join(map(repr, rows[0].cells)) or "no column"
    return UserError(f"{path}: found the columns {found}, expected {wanted}; name it with --{flag}")


@dataclasses.dataclass(frozen=True)
class NewTextReader:
    """Reads texts or pairs by the names of their columns; ids are `<task>/<set>/<row>`, from 0.

    Attributes:
      task: the task's name.
      labels: of the model; None for a regression.
      pairs: whether there are two texts.
      text_columns: the names to look for, by preference.
      given: whether the user named the columns, so that no others are looked for.
      label_column: the name to look for; labels need not be there unless the user named it.
      label_given: whether the user named it.
    """

    task: str
    labels: tuple[str, ...] | None
    pairs: bool
    text_columns: tuple[tuple[str, ...], ...]
    label_column: str
    given: bool = False
    label_given: bool = False

    def __call__(self, files: tuple[Path, ...], name: str) -> TextExamples:
        """Reads the file of the set `name`."""
        (path,) = files
        if path.name.removesuffix(".gz").endswith(LINES_SUFFIX):
            texts, labels = self._lines(path), None
        else:
            rows = read_new_rows(path)
            columns = self._columns(path, rows)
            texts = [[row.text(column) for row in rows] for column in columns]
            labels = self._labels(path, rows)
        return TextExamples(
            example_ids=[f"{self.task}/{name}/{row}" for row in range(len(texts[0]))],
            first_texts=texts[0],
            second_texts=texts[1] if self.pairs else None,
            labels=labels,
        )

    def _lines(self, path: Path) -> list[list[str]]:
        """Returns the texts of a file with an example per line; a tab parts the texts of a pair."""
        rows = [line.split("\t") for line in read_lines(path)]
        wanted = 2 if self.pairs else 1
        for number, row in enumerate(rows, start=1):
            if len(row) != wanted:
                form = (
                    "two texts with a tab between them" if self.pairs else "one text without a tab"
                )
                raise UserError(
                    f"{path} line {number}: found {len(row)} parts between tabs, expected {form}, as "
                    f"task {self.task} has; correct the line"
                )
        return [[row[place] for row in rows] for place in range(wanted)]

    def _columns(self, path: Path, rows: Sequence[NewRow]) -> tuple[str, ...]:
        usual = _USUAL_PAIRS if self.pairs else tuple((name,) for name in TEXT_NAMES)
        columns: tuple[str, ...]
        for columns in (*self.text_columns, *(() if self.given else usual)):
            if all(column in rows[0].cells for column in columns):
                return columns
        raise _lacking(path, rows, " and ".join(map(repr, self.text_columns[0])), "text_columns")

    def _labels(self, path: Path, rows: Sequence[NewRow]) -> np.ndarray | None:
        """Returns class numbers or values, float32 [rows]; None where the file has none."""
        if self.label_given:
            column_of(path, rows, self.label_column, "label_column")
        found = [row.cells.get(self.label_column) for row in rows]
        texts = [None if value is None else str(value) for value in found]
        if all(text in _NO_LABEL for text in texts):
            return None
        return np.array(
            [self._label(row, text) for row, text in zip(rows, texts, strict=True)], np.float32
        )

    def _label(self, row: NewRow, text: str | None) -> float:
        if self.labels is None:
            try:
                value = float(text or "nothing")
            except ValueError:
                value = float("nan")
            if np.isfinite(value):
                return value
            expected = "a number"
        elif text in self.labels:
            return float(self.labels.index(text))
        else:
            expected = f"one of {', '.join(self.labels)}, as the model has"
        raise UserError(
            f"{row.where}: found {self.label_column} {text!r}, expected {expected}; correct it, or leave "
            "the column out"
        )
