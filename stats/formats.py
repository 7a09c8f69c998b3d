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
# Numbers below this are what rounding leaves of 0.
_NOISE = 1e-12
# Half an interval between these has decimals of its own.
_NARROWEST, _WIDEST = 1e-5, 1e6


def format_cell(cell: Cell, number_format: str = "") -> str:
    """Formats a cell as readers see it.

    Args:
      cell: text stays; None and NaN become a dash; an interval becomes `low to high`, as a dash
        between negative numbers misleads, or `no interval` where it has no ends.
      number_format: a Python format for numbers such as `.1%`, `p` for p-values, or `PERCENT` or
        `POINTS` for shares, written without the unit. By default whole numbers are written out, and
        others have three decimals, four below 0.1, fewer where they are large; both ends of an interval
        have those of the larger. `with_decimals` gives a number of decimals. Less than 1e-12 is 0.

    Example:
      >>> format_cell(0.4567, PERCENT), format_cell(0.4567, with_decimals(PERCENT, 1))
      ('45.67', '45.7')
      >>> format_cell(5.6e-16)
      '0'
    """
    if cell is None or cell != cell:
        return NONE
    if isinstance(cell, str):
        return cell
    unit, decimals = _read(number_format)
    if isinstance(cell, Interval):
        if math.isinf(cell.low) and math.isinf(cell.high):
            return "no interval"
        if unit and not any(isinstance(end, int) for end in cell):
            return " to ".join(_alike([unit * float(end) for end in cell], decimals))
        return " to ".join(format_cell(end, number_format) for end in cell)
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if number_format == "p":
        return "< 0.0001" if cell < 1e-4 else f"{cell:.2g}"
    if not unit:
        text = format(cell, number_format)
        return text[1:] if re.fullmatch(r"-0(\.0*)?%?", text) else text
    if isinstance(cell, int) and unit == 1:
        return str(cell)
    return _number(unit * float(cell), decimals)


def with_decimals(number_format: str, decimals: int | None) -> str:
    """Returns a format of scores for `format_cell` with a number of decimals; None: as it is."""
    return number_format if decimals is None else f"{number_format or 'number'}:{decimals}"


def _read(number_format: str) -> tuple[int, int | None]:
    """Returns what a format of scores multiplies by (0 of other formats), and its decimals."""
    kind, _, decimals = number_format.partition(":")
    unit = {"": 1, "number": 1, PERCENT: 100, POINTS: 100}.get(kind, 0)
    return unit, int(decimals) if unit and decimals else None


def decimals_for(interval: Interval, number_format: str = "") -> int | None:
    """Returns the decimals that show two digits of half an interval; None of one too narrow or wide.

    Args:
      interval: of a score or difference.

    Example:
      >>> decimals_for(Interval(0.92, 1.09)), decimals_for(Interval(0.047, 0.071), POINTS)
      (3, 1)
    """
    unit, _ = _read(number_format)
    half = unit * abs(interval.high - interval.low) / 2
    if not _NARROWEST <= half <= _WIDEST:
        return None
    return max(int(unit > 1), math.ceil(1 - math.log10(half)))


def heading(name: str, number_format: str = "") -> str:
    """Returns the name of a column or axis with the unit that a format of `format_cell` gives it."""
    unit = {PERCENT: " (%)", POINTS: " (points)"}.get(number_format.partition(":")[0], "")
    return name + unit


def _number(value: float, decimals: int | None = None) -> str:
    size = abs(value)
    if size < _NOISE:
        return "0"
    if decimals is None and size < 5e-4:
        return f"{value:.1e}"
    text = f"{value:.{_decimals(size) if decimals is None else decimals}f}"
    # The sign of an interval's end is the answer, so a small number is not written as 0.
    return text if text.strip("-0.") else f"{value:.1g}"


def _decimals(size: float) -> int:
    return 4 if size < 0.1 else 3 if size < 10 else 2 if size < 100 else 1


def _alike(ends: Sequence[float], decimals: int | None) -> list[str]:
    """Returns the ends of an interval with as many decimals, those of the larger by default; 0 has none."""
    size = max(map(abs, ends))
    if decimals is None and 5e-4 <= size < math.inf:
        decimals = _decimals(size)
    return [_number(end, decimals) for end in ends]


def with_minus(text: str) -> str:
    """Puts a true minus sign before negative numbers; a hyphen breaks at the end of a line."""
    return re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)
