"""Formats numbers and metrics for readers in tables, sentences and axes.

Results contain scores in the metric's unit (shares from 0 to 1). Readers see per cent and points.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from multiberts.stats.intervals import Interval
from multiberts.stats.score import metric_entry, metric_name

Cell = str | int | float | bool | Interval | None
# Text for a missing value.
NONE = "-"
# Formats of shares, which are shown multiplied by 100, but not in CSV.
PERCENT, POINTS = "percent", "points"
# Smaller numbers are rounding errors of 0.
_NOISE = 1e-12
# Range of half widths of intervals that determine the number of decimals.
_NARROWEST, _WIDEST = 1e-5, 1e6


def format_cell(cell: Cell, number_format: str = "") -> str:
    """Formats a cell for readers.

    Args:
      cell: text is unchanged; None and NaN become a dash; an interval becomes `low to high`, because a dash
        between negative numbers misleads, or `no interval` if its limits are infinite.
      number_format: a Python format for numbers such as `.1%`, `p` for p-values, or `PERCENT` or
        `POINTS` for shares, written without the unit. By default integers are written out, and others have
        three decimals, four below 0.1, fewer if large; both limits of an interval have the decimals of the
        larger. `with_decimals` sets the decimals. Numbers below 1e-12 are 0.

    Examples:
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
    """Adds a number of decimals to a format of scores for `format_cell`; None: unchanged."""
    return number_format if decimals is None else f"{number_format or 'number'}:{decimals}"


def _read(number_format: str) -> tuple[int, int | None]:
    """Returns the factor of a format of scores (0 for other formats), and its decimals."""
    kind, _, decimals = number_format.partition(":")
    unit = {"": 1, "number": 1, PERCENT: 100, POINTS: 100}.get(kind, 0)
    return unit, int(decimals) if unit and decimals else None


def decimals_for(interval: Interval, number_format: str = "") -> int | None:
    """Returns the decimals that show two digits of an interval's half width; None if it is extreme.

    Args:
      interval: interval of a score or difference.

    Examples:
      >>> decimals_for(Interval(0.92, 1.09)), decimals_for(Interval(0.047, 0.071), POINTS)
      (3, 1)
    """
    unit, _ = _read(number_format)
    half = unit * abs(interval.high - interval.low) / 2
    if not _NARROWEST <= half <= _WIDEST:
        return None
    return max(int(unit > 1), math.ceil(1 - math.log10(half)))


def heading(name: str, number_format: str = "") -> str:
    """Adds the unit of a `format_cell` format to the name of a column or axis."""
    unit = {PERCENT: " (%)", POINTS: " (points)"}.get(number_format.partition(":")[0], "")
    return name + unit


def _number(value: float, decimals: int | None = None) -> str:
    size = abs(value)
    if size < _NOISE:
        return "0"
    if decimals is None and size < 5e-4:
        return f"{value:.1e}"
    text = f"{value:.{_decimals(size) if decimals is None else decimals}f}"
    # Do not round to 0: the sign of an interval's limit is the answer.
    return text if text.strip("-0.") else f"{value:.1g}"


def _decimals(size: float) -> int:
    return 4 if size < 0.1 else 3 if size < 10 else 2 if size < 100 else 1


def _alike(ends: Sequence[float], decimals: int | None) -> list[str]:
    """Formats the limits of an interval with equal decimals, by default those of the larger limit."""
    size = max(map(abs, ends))
    if decimals is None and 5e-4 <= size < math.inf:
        decimals = _decimals(size)
    return [_number(end, decimals) for end in ends]


def with_minus(text: str) -> str:
    """Replaces the hyphen of negative numbers by a minus sign, at which no line breaks."""
    return re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)


# --- Metrics ---


def metric_at_start(metric: str) -> str:
    """Returns `metric_name` at the beginning of a sentence, such as `Exact match`."""
    name = metric_name(metric)
    return name[:1].upper() + name[1:]


def metric_label(metric: str, difference: bool = False) -> str:
    """Returns the name of a metric with its display unit.

    Args:
      difference: whether the numbers are differences, which are in points for shares.

    Examples:
      >>> from multiberts.report.presentation.formats import metric_label
      >>> metric_label("squad_exact_match"), metric_label("accuracy", True), metric_label("auc")
      ('exact match (%)', 'accuracy (points)', 'AUC')
    """
    return heading(metric_name(metric), score_format(metric, difference))


def score_format(metric: str, difference: bool = False) -> str:
    """Returns the `format_cell` format of a metric's scores or differences."""
    entry = metric_entry(metric)
    if entry is None or entry.unit != "%":
        return ""
    return POINTS if difference else PERCENT


def printed_unit(metric: str) -> float:
    """Returns the size of a printed unit: 0.01 for shares, printed in per cent, else 1."""
    return 0.01 if score_format(metric) else 1.0


def interval_decimals(interval: Interval, metric: str) -> int | None:
    """Returns the number of decimals for a score and its interval (`decimals_for`)."""
    return decimals_for(interval, score_format(metric))


def score_text(score: float | Interval, metric: str, decimals: int | None = None) -> str:
    """Formats a score with its unit for a sentence: `72.30 %`, or `0.723` for a correlation."""
    text = format_cell(score, with_decimals(score_format(metric), decimals))
    return f"{text} %" if score_format(metric) else text


def difference_text(difference: float | Interval, metric: str, decimals: int | None = None) -> str:
    """Formats a difference of scores with its unit for a sentence: `5.900 points`."""
    text = format_cell(difference, with_decimals(score_format(metric, True), decimals))
    points = " point" if text == "1" else " points"
    return text + points * bool(score_format(metric))


def metric_meaning(metric: str) -> str:
    """Returns a sentence on the meaning of a metric; empty if unknown."""
    entry = metric_entry(metric)
    return entry.meaning if entry else ""


def zero_means_no(metric: str) -> str:
    """Returns the name of what a score of 0 means the absence of, such as `bias`; empty for other metrics."""
    return getattr(metric_entry(metric), "zero_means_no", "")
