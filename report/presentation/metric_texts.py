"""Metrics and scores for readers: labels with units, and numbers in per cent and points.

Results contain scores in the metric's unit (shares from 0 to 1).
"""

from __future__ import annotations

from multiberts.report.presentation.formats import (
    PERCENT,
    POINTS,
    decimals_for,
    format_cell,
    heading,
    with_decimals,
)
from multiberts.stats.intervals import Interval
from multiberts.stats.metric_names import metric_entry, metric_name


def metric_at_start(metric: str) -> str:
    """Returns `metric_name` at the beginning of a sentence, such as `Exact match`."""
    name = metric_name(metric)
    return name[:1].upper() + name[1:]


def metric_label(metric: str, difference: bool = False) -> str:
    """Returns the name of a metric with its display unit.

    Args:
      difference: whether the numbers are differences, which are in points for shares.

    Examples:
      >>> from multiberts.report.presentation.metric_texts import metric_label
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
