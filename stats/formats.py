"""Numbers as readers see them, in tables, sentences and on axes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from multiberts.stats.intervals import Interval

Cell = str | int | float | bool | Interval | None
# Shown where there is no value.
NONE = "-"
# Formats of scores that are shares: readers see a hundred times the number. CSV holds the number itself.
PERCENT, POINTS = "percent", "points"


def format_cell(cell: Cell, number_format: str = "") -> str:
    """Formats a cell as readers see it.

    Args:
      cell: text stays; None and NaN become a dash; an interval becomes `low to high`, as a dash
        between negative numbers misleads, or `no interval` where it has no ends.
      number_format: a Python format for numbers such as `.1%`, `p` for p-values, or `PERCENT` or
        `POINTS` for shares, written without the unit. By default whole numbers are written out, and
        others have three decimals, four below 0.1, fewer where they are large; both ends of an interval
        have those of the larger.
    """
    if cell is None or cell != cell:
        return NONE
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Interval):
        if math.isinf(cell.low) and math.isinf(cell.high):
            return "no interval"
        if number_format in ("", PERCENT, POINTS) and not any(isinstance(end, int) for end in cell):
            unit = 100 if number_format else 1
            return " to ".join(_alike([unit * float(end) for end in cell]))
        return " to ".join(format_cell(end, number_format) for end in cell)
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if number_format == "p":
        return "< 0.0001" if cell < 1e-4 else f"{cell:.2g}"
    if number_format in (PERCENT, POINTS):
        return _three_digits(100 * float(cell))
    if number_format:
        text = format(cell, number_format)
        return text[1:] if re.fullmatch(r"-0(\.0*)?%?", text) else text
    if isinstance(cell, int):
        return str(cell)
    return _three_digits(float(cell))


def heading(name: str, number_format: str = "") -> str:
    """Returns the name of a column or axis with the unit that a format of `format_cell` gives it."""
    unit = {PERCENT: " (%)", POINTS: " (points)"}.get(number_format, "")
    return name + unit


def _three_digits(value: float) -> str:
    size = abs(value)
    if size == 0:
        return "0"
    if size < 5e-4:
        return f"{value:.1e}"
    return f"{value:.{_decimals(size)}f}"


def _decimals(size: float) -> int:
    return 4 if size < 0.1 else 3 if size < 10 else 2 if size < 100 else 1


def _alike(ends: Sequence[float]) -> list[str]:
    """Returns the ends of an interval with the decimals of the larger; 0 has none."""
    size = max(map(abs, ends))
    if size < 5e-4 or math.isinf(size):
        return [_three_digits(end) for end in ends]
    texts = [f"{end:.{_decimals(size)}f}" if end else "0" for end in ends]
    return [re.sub(r"^-(?=0\.0*$)", "", text) for text in texts]


def with_minus(text: str) -> str:
    """Puts a true minus sign before negative numbers; a hyphen breaks at the end of a line."""
    return re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)
