"""GAP: ambiguous pronouns in Wikipedia text, each with two candidate names (Webster et al. 2018)."""

from __future__ import annotations

import dataclasses

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_lines

COLUMNS = (
    "ID",
    "Text",
    "Pronoun",
    "Pronoun-offset",
    "A",
    "A-offset",
    "A-coref",
    "B",
    "B-offset",
    "B-coref",
    "URL",
)
_TRUTH = {"TRUE": True, "FALSE": False}


@dataclasses.dataclass(frozen=True)
class GapExample:
    """One example.

    Attributes:
      identity: its ID, such as `development-1`.
      text: the passage.
      pronoun: first and last + 1 character of the pronoun.
      names: the same of the names A and B.
      corefers: whether the pronoun means A, and whether it means B.
    """

    identity: str
    text: str
    pronoun: tuple[int, int]
    names: tuple[tuple[int, int], tuple[int, int]]
    corefers: tuple[bool, bool]


def read_gap(path: PathLike) -> list[GapExample]:
    """Reads a GAP file.

    Args:
      path: plain or `.gz`.

    Raises:
      UserError: missing or empty file, other columns, an offset at which the text has something
        else, a truth value other than TRUE and FALSE, or a repeated ID; with the line.
    """
    lines = read_lines(path)
    if tuple(lines[0].split("\t")) != COLUMNS:
        raise UserError(
            f"{path} line 1: found {lines[0][:80]!r}, expected the columns {', '.join(COLUMNS)}; give "
            "a file of the GAP release"
        )
    examples: list[GapExample] = []
    line_of_id: dict[str, int] = {}
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split("\t")
        if len(fields) != len(COLUMNS):
            raise UserError(
                f"{path} line {number}: found {len(fields)} columns, expected {len(COLUMNS)} "
                f"({', '.join(COLUMNS)}); restore the line from the GAP release"
            )
        row = dict(zip(COLUMNS, fields, strict=True))
        if row["ID"] in line_of_id:
            raise UserError(
                f"{path} line {number}: ID {row['ID']!r} stands in line {line_of_id[row['ID']]} "
                "already, expected each once; remove one of them"
            )
        line_of_id[row["ID"]] = number
        examples.append(
            GapExample(
                identity=row["ID"],
                text=row["Text"],
                pronoun=_span(path, number, row, "Pronoun"),
                names=(_span(path, number, row, "A"), _span(path, number, row, "B")),
                corefers=(_truth(path, number, row, "A"), _truth(path, number, row, "B")),
            )
        )
    if not examples:
        raise UserError(f"{path} has a header and no examples; give a file with examples")
    return examples


def _span(path: PathLike, number: int, row: dict[str, str], name: str) -> tuple[int, int]:
    offset, wanted = row[f"{name}-offset"], row[name]
    start = int(offset) if offset.isdecimal() else -1
    if start < 0 or not wanted or row["Text"][start : start + len(wanted)] != wanted:
        raise UserError(
            f"{path} line {number}: {name}-offset is {offset!r}, where the text does not have "
            f"{wanted!r}; restore the line from the GAP release"
        )
    return start, start + len(wanted)


def _truth(path: PathLike, number: int, row: dict[str, str], name: str) -> bool:
    value = row[f"{name}-coref"].upper()
    if value not in _TRUTH:
        raise UserError(
            f"{path} line {number}: {name}-coref is {row[f'{name}-coref']!r}, expected TRUE or FALSE; "
            "correct it"
        )
    return _TRUTH[value]
