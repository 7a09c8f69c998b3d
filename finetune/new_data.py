"""Data that a model has not seen, for `multiberts predict`: rows of a table in any usual form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike
from multiberts.runs.tables import TABLE_SUFFIXES, TableRow, is_columnar, read_rows

# Lines of text, and not a table.
LINES_SUFFIX = ".txt"


def read_new_rows(
    path: PathLike,
    columns: Sequence[str],
    *,
    values: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> list[TableRow]:
    r"""Reads a table with named columns in any form of `runs.tables`.

    Args:
      path: the file.
      columns: those with text that must be there.
      values: further ones that must be there, which may hold numbers or lists.
      optional: further ones, which need not be there.

    Raises:
      UserError: the file is missing, empty, of another form, or lacks a column.

    Example:
      >>> path = getfixture("tmp_path") / "new.jsonl"
      >>> _ = path.write_text('{"text": "A cake.", "stars": 4}\n')
      >>> [(row["text"], row["stars"]) for row in read_new_rows(path, ["text"], optional=["stars"])]
      [('A cake.', '4')]
    """
    check_form(path)
    cure = "correct the file"
    return list(read_rows(path, columns, values=values, optional=optional, cure=cure))


def check_form(path: PathLike) -> None:
    """Refuses a file whose name is not that of a table.

    Raises:
      UserError: it is not.
    """
    name = Path(path).name.removesuffix(".gz")
    if not (is_columnar(path) or name.endswith(TABLE_SUFFIXES)):
        raise UserError(
            f"{path} is of no known form; give a file whose name ends in .tsv, .csv, .jsonl or .parquet, "
            f"or {LINES_SUFFIX} with one text per line"
        )
