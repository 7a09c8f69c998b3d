"""Printing of rows in the sections of the worked example."""

from __future__ import annotations

from typing import Any

from multiberts.stats.intervals import Interval
from multiberts.stats.presentation.table_writer import Table


def table(rows: list[dict[str, Any]], numbers: str = "", **formats: str) -> str:
    """Markdown: `numbers` is the format of all columns of fractions but those in `formats`."""
    columns = list(rows[0])
    fractions = [
        name
        for name in columns
        if any(isinstance(row[name], float | Interval) for row in rows)
        and not any(isinstance(row[name], int) for row in rows)
    ]
    kept = {name: text for name, text in formats.items() if name in columns}
    cells = [tuple(row[name] for name in columns) for row in rows]
    return Table(columns, cells, dict.fromkeys(fractions, numbers) | kept).markdown()
