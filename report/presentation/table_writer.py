"""Tables that can be written as Markdown, LaTeX, HTML or CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from multiberts.report.presentation.formats import (
    NONE,
    Cell,
    format_cell,
    heading,
    metric_label,
    score_format,
    with_decimals,
    with_minus,
)
from multiberts.runs.files import as_cell
from multiberts.runs.web_page.rendering import render
from multiberts.stats.intervals import Interval

# Formats of numbers in the unit of the metric that the row's column `Metric` names.
SCORE, DIFFERENCE = "score", "difference"


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns.

    A cell is text, a number, an `Interval` or None (no value). Numbers are rounded for readers, but not in
    CSV, where an interval has two columns, `<name> low` and `<name> high`.

    Attributes:
      rows: rows with one cell per column.
      formats: number format by column (see `format_cell`); `PERCENT` and `POINTS` add their unit to the
        heading, and with `SCORE` or `DIFFERENCE` the metric has its unit.
      title: line above the table, or empty.
      note: line below the table, or empty.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    formats: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if len(set(self.columns)) != len(self.columns):
            raise ValueError(f"two columns of {tuple(self.columns)} have the same name")
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {number} has {len(row)} cells, expected {len(self.columns)}: {row}"
                )
        unknown = set(self.formats) - set(self.columns)
        if unknown:
            raise ValueError(
                f"found formats for {sorted(unknown)}, expected columns: {', '.join(self.columns)}"
            )

    @classmethod
    def from_records(
        cls, records: Sequence[Mapping[str, Cell]], formats: Mapping[str, str], title: str = ""
    ) -> Table:
        """Makes a table from records with equal keys; the keys become the columns.

        Args:
          records: cells by column, one record per row.
          formats: number format by column; unknown columns are ignored.
          title: see the class.
        """
        columns = list(records[0]) if records else []
        used = {name: text for name, text in formats.items() if name in columns}
        return cls(columns, [tuple(record.values()) for record in records], used, title)

    @property
    def headings(self) -> list[str]:
        """Returns the headings of columns with units."""
        return [heading(name, self.formats.get(name, "")) for name in self.columns]

    def texts(self) -> list[tuple[str, ...]]:
        """Returns the formatted cells, without headings."""
        return [
            tuple(self._text(cells, name) for name in self.columns)
            for cells in (dict(zip(self.columns, row, strict=True)) for row in self.rows)
        ]

    def _text(self, cells: Mapping[str, Cell], name: str) -> str:
        number_format = self.formats.get(name, "")
        if number_format in (SCORE, DIFFERENCE):
            unit = score_format(str(cells["Metric"]), number_format == DIFFERENCE)
            number_format = with_decimals(unit, 2 if unit else 3)
        elif name == "Metric" and SCORE in self.formats.values():
            return metric_label(str(cells[name]))
        return format_cell(cells[name], number_format)

    def markdown(self) -> str:
        """Writes a Markdown table with padded columns."""
        lines = [
            tuple(cell.replace("|", "\\|") for cell in row)
            for row in (tuple(self.headings), *self.texts())
        ]
        widths = [max(3, *(len(row[index]) for row in lines)) for index in range(len(self.columns))]
        texts = [
            "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
            for row in lines
        ]
        ends = [":" if right else "-" for right in self._numeric()]
        rule = "|".join("-" * (w + 1) + end for w, end in zip(widths, ends, strict=True))
        texts.insert(1, f"|{rule}|")
        title = [f"**{self.title}**", ""] if self.title else []
        note = ["", self.note] if self.note else []
        return "\n".join([*title, *texts, *note]) + "\n"

    def aligned(self) -> str:
        """Writes the table as aligned text for the terminal."""
        rows = [tuple(self.headings), *self.texts()]
        widths = [max(len(row[index]) for row in rows) for index in range(len(self.columns))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )

    def latex(self) -> str:
        """Writes a LaTeX tabular with booktabs rules."""
        layout = "".join("r" if right else "l" for right in self._numeric())
        lines = [f"% {self.title}"] if self.title else []
        lines += [rf"\begin{{tabular}}{{{layout}}}", r"\toprule"]
        lines += [" & ".join(map(latex_text, self.headings)) + r" \\", r"\midrule"]
        lines += [" & ".join(map(latex_text, row)) + r" \\" for row in self.texts()]
        note = (
            [rf"\par\smallskip {{\footnotesize {latex_text(self.note)}\par}}"] if self.note else []
        )
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *note]) + "\n"

    def html(self, identity: str = "", on_side: bool = False) -> str:
        """Writes an HTML table; cells of numeric columns have the class `n`.

        Args:
          identity: id of the table for sorting by the page's script; empty: not sortable.
          on_side: whether rows become columns, named by the text in their first cells.
        """
        numeric = self._numeric()
        rows = [
            [
                (text, _sorted_by(cell) if identity else None, right)
                for text, cell, right in zip(texts, row, numeric, strict=True)
            ]
            for texts, row in zip(self.texts(), self.rows, strict=True)
        ]
        headings = list(zip(self.headings, numeric, strict=True))
        if on_side:
            names = numeric.index(True) if True in numeric else 1
            columns = [tuple(self.headings), *self.texts()]
            headings = [(", ".join(each[:names]), place > 0) for place, each in enumerate(columns)]
            rows = [
                [(text, None, place > 0) for place, text in enumerate(row)]
                for row in zip(*(each[names:] for each in columns), strict=True)
            ]
        return render(
            Path(__file__).with_name("table.html.j2"),
            {"minus": with_minus},
            identity=identity,
            headings=headings,
            rows=rows,
        )

    def csv(self) -> str:
        """Writes comma-separated values with a header and unrounded numbers."""
        columns: dict[str, list[Cell]] = {}
        for column, name in enumerate(self.columns):
            cells = [row[column] for row in self.rows]
            if any(isinstance(cell, Interval) for cell in cells):
                for end in ("low", "high"):
                    columns[f"{name} {end}"] = [getattr(cell, end, None) for cell in cells]
            else:
                columns[name] = cells
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        rows = (map(as_cell, row) for row in zip(*columns.values(), strict=True))
        writer.writerows([list(columns), *rows])
        return stream.getvalue()

    def _numeric(self) -> list[bool]:
        """Returns whether each column is right-aligned because it has no text."""
        return [
            bool(self.rows) and not any(isinstance(row[index], str) for row in self.rows)
            for index in range(len(self.columns))
        ]


def _sorted_by(cell: Cell) -> str | None:
    """Returns the sort key of a cell for the page's script; None for text."""
    value = cell.low if isinstance(cell, Interval) else cell
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(value) if isinstance(value, (int, float)) else None


_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
}


def latex_text(text: str) -> str:
    """Escapes text for LaTeX, with typographic minus signs and dashes."""
    if text == NONE:
        return "--"
    escaped = "".join(_LATEX_ESCAPES.get(character, character) for character in text)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)
