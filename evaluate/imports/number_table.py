"""Text tables of others: named columns, and bare matrices of numbers."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_bytes, read_lines


def read_table(
    path: PathLike, columns: Sequence[str], separator: str = "\t"
) -> list[tuple[int, dict[str, str]]]:
    """Rows of a table with a header.

    Args:
      path: plain or `.gz`.
      columns: that must be there; a first column without a name counts the rows and is left out.
      separator: between cells; cells are never quoted.

    Returns:
      The number of each row's line, and its cells by column.

    Raises:
      UserError: missing, a column is missing, or a row has another number of cells.
    """
    header, *lines = read_lines(path)
    names = header.split(separator)
    missing = [name for name in columns if name not in names]
    if missing:
        raise UserError(
            f"{path} line 1: found the columns {', '.join(names)}, expected {', '.join(columns)} "
            f"(lacking {', '.join(missing)}); fetch the file again"
        )
    rows = []
    for number, line in enumerate(lines, start=2):
        cells = line.split(separator)
        if len(cells) != len(names):
            raise UserError(
                f"{path} line {number}: found {len(cells)} columns, expected {len(names)} as in line 1; "
                "fetch the file again"
            )
        rows.append((number, dict(zip(names, cells, strict=True))))
    if not rows:
        raise UserError(f"{path} has a header and no rows; fetch the file again")
    return rows


def read_numbers(path: PathLike) -> np.ndarray:
    """A matrix of numbers between blanks or tabs, without a header; float64 [rows, columns].

    Raises:
      UserError: missing, empty, not numbers, or rows of several lengths.
    """
    try:
        table = np.loadtxt(io.BytesIO(read_bytes(path)), dtype=np.float64, ndmin=2, comments=None)
    except ValueError as error:
        raise UserError(
            f"{path}: found something else than rows of numbers of one length ({error}); fetch the file "
            "again"
        ) from error
    if not table.size or not np.isfinite(table).all():
        raise UserError(f"{path}: found no numbers or nan, expected finite numbers; fetch it again")
    return table
