"""GAP: ambiguous pronouns in Wikipedia text, each with two candidate names (Webster et al. 2018)."""

from __future__ import annotations

import dataclasses

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_lines
from multiberts.runs.parameters import shortened
from multiberts.runs.tables import TableRow, read_rows

COLUMNS = (
    *("ID", "Text", "Pronoun", "Pronoun-offset"),
    *("A", "A-offset", "A-coref", "B", "B-offset", "B-coref", "URL"),
)
_LABELS = ("A-coref", "B-coref")
_TRUTH = {"TRUE": True, "FALSE": False}


@dataclasses.dataclass(frozen=True)
class GapExample:
    """One example.

    Attributes:
      identity: its ID, such as `development-1`.
      pronoun, names: first and last + 1 character of the pronoun, and of the names A and B.
      corefers: whether the pronoun refers to A, and whether to B; None where unknown.
    """

    identity: str
    text: str
    pronoun: tuple[int, int]
    names: tuple[tuple[int, int], tuple[int, int]]
    corefers: tuple[bool, bool] | None


def read_gap(path: PathLike, *, need_labels: bool = True) -> list[GapExample]:
    """Reads a GAP file.

    Args:
      need_labels: whether to require the columns `A-coref` and `B-coref`.
    """
    cure = "restore the file from the GAP release"
    columns: tuple[str, ...] = COLUMNS
    if not need_labels and not set(_LABELS) & set(read_lines(path)[0].split("\t")):
        columns = tuple(name for name in COLUMNS if name not in (*_LABELS, "URL"))
    return [
        GapExample(
            identity=row["ID"],
            text=row["Text"],
            pronoun=_span(row, "Pronoun"),
            names=(_span(row, "A"), _span(row, "B")),
            corefers=(_truth(row, "A-coref"), _truth(row, "B-coref"))
            if _LABELS[0] in columns
            else None,
        )
        for row in read_rows(path, columns, unique=["ID"], cure=cure)
    ]


def _span(row: TableRow, name: str) -> tuple[int, int]:
    offset, wanted = row[f"{name}-offset"], row[name]
    start = int(offset) if offset.isdecimal() else -1
    if start < 0 or not wanted or row["Text"][start : start + len(wanted)] != wanted:
        raise UserError(
            f"{row.where}: {name}-offset is {offset!r}, where the text does not have {shortened(wanted)}; "
            "restore the line from the GAP release"
        )
    return start, start + len(wanted)


def _truth(row: TableRow, column: str) -> bool:
    row[column] = row[column].upper()
    return _TRUTH[row.one_of(column, _TRUTH)]
