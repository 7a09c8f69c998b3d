"""Reads text tables by the names of their columns: TSV, CSV and JSON lines, plain or `.gz`."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_lines


class TableRow(dict[str, str]):
    """One row: its cells by column.

    Attributes:
      path: the file.
      line: the number of its (first) line there, from 1.
    """

    __slots__ = ("line", "path")

    def __init__(self, path: PathLike, line: int, cells: dict[str, str]):
        super().__init__(cells)
        self.path = path
        self.line = line

    @property
    def where(self) -> str:
        """Returns the file and the line, for messages."""
        return f"{self.path} line {self.line}"

    def one_of(self, column: str, choices: Collection[str]) -> str:
        """Returns a cell that must be one of the choices.

        Raises:
          UserError: it is something else.
        """
        if self[column] not in choices:
            *others, last = choices
            raise self.refused(column, f"{', '.join(others)} or {last}" if others else last)
        return self[column]

    def number(self, column: str, low: float = -math.inf, high: float = math.inf) -> float:
        """Returns a cell that must be a finite number from `low` to `high`.

        Raises:
          UserError: it is something else.
        """
        try:
            value = float(self[column])
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and low <= value <= high):
            bounds = [f" from {low:g}"] if low > -math.inf else []
            bounds += [f" to {high:g}"] if high < math.inf else []
            raise self.refused(column, "a number" + "".join(bounds))
        return value

    def integer(self, column: str) -> int:
        """Returns a cell that must be a whole number.

        Raises:
          UserError: it is something else.
        """
        try:
            return int(self[column])
        except ValueError:
            raise self.refused(column, "a whole number") from None

    def refused(self, column: str, expected: str) -> UserError:
        """Returns the error that reports a cell and what was expected in its place."""
        return UserError(
            f"{self.where}: found {column} {self[column]!r}, expected {expected}; correct the line"
        )


def read_rows(
    path: PathLike,
    columns: Sequence[str],
    *,
    header: Sequence[str] | None = None,
    separator: str | None = None,
    unique: Sequence[str] = (),
    short_rows: list[int] | None = None,
    cure: str = "fetch the file again",
) -> Iterator[TableRow]:
    r"""Reads a table row by row.

    A name in `.jsonl` means JSON lines, one in `.csv` commas, any other tabs (each also before
    `.gz`). Between tabs a quote is text and only a line feed ends a row; CSV cells may be quoted.
    A byte order mark may come first.

    Args:
      path: the file.
      columns: those that must be there, each once, in any order; further ones are read along. In
        JSON lines they are the fields that must be texts, and other fields are left out.
      header: the names of all columns, for a file whose first line is a row already.
      separator: the tab or the comma, where the file's name does not show which.
      unique: the columns that must differ, taken together, between any two rows.
      short_rows: where given, rows with fewer cells than the header are passed over and their line
        numbers are appended to it (blank lines are only passed over). Otherwise they are refused.
      cure: what to do about a file of another layout, for messages.

    Yields:
      The rows, in the order of the file.

    Raises:
      UserError: the file is missing, empty or not UTF-8, has no rows, lacks a column or has it twice,
        or has a row with another number of cells, or one that should be unique and is not.

    Example:
      >>> path = getfixture("tmp_path") / "pairs.tsv"
      >>> _ = path.write_text('id\tlabel\tsentence\na\t1\tThe "end.\n')
      >>> [(row.line, row["sentence"], row.integer("label")) for row in read_rows(path, ["label"])]
      [(2, 'The "end.', 1)]
    """
    name = Path(path).name.removesuffix(".gz")
    lines = enumerate(read_lines(path), start=1)
    if name.endswith(".jsonl"):
        rows = _json_rows(path, lines, columns, cure)
    else:
        comma = name.endswith(".csv") if separator is None else separator == ","
        cells = _comma_cells(path, lines, cure) if comma else _tab_cells(lines)
        rows = _rows(path, cells, columns, header, short_rows, cure)
    line_of: dict[tuple[str, ...], int] = {}
    row = None
    for row in rows:
        if unique:
            key = tuple(row[column] for column in unique)
            first = line_of.setdefault(key, row.line)
            if first != row.line:
                raise UserError(
                    f"{row.where}: {', '.join(unique)} {', '.join(map(repr, key))} is in line {first} "
                    "already, expected each once; remove one of them"
                )
        yield row
    if row is None:
        raise UserError(f"{path} has {'no' if header else 'a header and no'} rows; {cure}")


def _tab_cells(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    # Not `csv`: it refuses a carriage return within a line, which raw text may have.
    return ((number, line.split("\t")) for number, line in lines)


def _comma_cells(
    path: PathLike, lines: Iterator[tuple[int, str]], cure: str
) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line + "\n" for _, line in lines), strict=True)
    number = 1
    try:
        for cells in reader:
            yield number, cells or [""]
            number = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path} line {number}: is not CSV ({error}); {cure}") from error


def _rows(
    path: PathLike,
    lines: Iterator[tuple[int, list[str]]],
    columns: Sequence[str],
    header: Sequence[str] | None,
    short_rows: list[int] | None,
    cure: str,
) -> Iterator[TableRow]:
    names = next(lines, (1, [""]))[1] if header is None else list(header)
    for number, kind in ((0, "lacking"), (2, "repeated:")):
        wrong = [name for name in columns if min(names.count(name), 2) == number]
        if wrong:
            raise UserError(
                f"{path} line 1: found the columns {', '.join(names)}, expected {', '.join(columns)} "
                f"({kind} {', '.join(wrong)}); {cure}"
            )
    for number, cells in lines:
        if short_rows is not None and len(cells) < len(names):
            if cells != [""]:
                short_rows.append(number)
            continue
        if len(cells) != len(names):
            raise UserError(
                f"{path} line {number}: found {len(cells)} columns, expected {len(names)} "
                f"({', '.join(names)}); {cure}"
            )
        yield TableRow(path, number, dict(zip(names, cells, strict=True)))


def _json_rows(
    path: PathLike, lines: Iterator[tuple[int, str]], columns: Sequence[str], cure: str
) -> Iterator[TableRow]:
    for number, line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} line {number}: is not JSON ({error}); {cure}") from error
        fields = entry if isinstance(entry, dict) else {}
        texts = {name: value for name, value in fields.items() if isinstance(value, str)}
        if any(name not in texts for name in columns):
            raise UserError(
                f"{path} line {number}: expected an object with the texts {', '.join(columns)}, found "
                f"{', '.join(fields) or 'none'}; {cure}"
            )
        yield TableRow(path, number, texts)
