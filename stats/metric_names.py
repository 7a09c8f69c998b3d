"""Metrics for readers: name, unit, meaning and direction.

Results contain scores in the metric's unit (shares from 0 to 1). Numbers for readers are converted to per
cent and points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.stats.formats import (
    PERCENT,
    POINTS,
    decimals_for,
    format_cell,
    heading,
    with_decimals,
)
from multiberts.stats.intervals import Interval


@dataclass(frozen=True)
class _MeanOfMetrics:
    """A mean of several metrics, with their names joined by `+`.

    Means of shares and correlations (maximum 1) are shown in per cent, as in GLUE's tables.
    """

    metrics: Sequence[Metric | RankMetric]

    label = "mean score"

    @property
    def unit(self) -> str:
        return "%" if all(metric.bounds[1] == 1 for metric in self.metrics) else ""

    @property
    def meaning(self) -> str:
        names = [metric.label or metric.name.replace("_", " ") for metric in self.metrics]
        return f"Mean over tasks of {', '.join(names)}; 1 is 100 %, of correlations, too."

    @property
    def higher_is_better(self) -> bool | None:
        ways = {metric.higher_is_better for metric in self.metrics}
        return ways.pop() if len(ways) == 1 else None


def _entry(metric: str) -> Metric | RankMetric | _MeanOfMetrics | None:
    if metric in OCCUPATION_MEASURES:
        return OCCUPATION_MEASURES[metric].metric
    if "+" in metric and all(name in METRICS for name in metric.split("+")):
        return _MeanOfMetrics([METRICS[name] for name in metric.split("+")])
    return METRICS.get(metric)


def metric_name(metric: str) -> str:
    """Returns the name of a metric without a unit, such as `exact match`."""
    entry = _entry(metric)
    return (entry.label if entry else "") or metric.replace("_", " ")


def metric_at_start(metric: str) -> str:
    """Returns `metric_name` at the beginning of a sentence, such as `Exact match`."""
    name = metric_name(metric)
    return name[:1].upper() + name[1:]


def metric_label(metric: str, difference: bool = False) -> str:
    """Returns the name of a metric with its display unit.

    Args:
      difference: whether the numbers are differences, which are in points for shares.

    Examples:
      >>> from multiberts.stats.metric_names import metric_label
      >>> metric_label("squad_exact_match"), metric_label("accuracy", True), metric_label("auc")
      ('exact match (%)', 'accuracy (points)', 'AUC')
    """
    return heading(metric_name(metric), score_format(metric, difference))


def score_format(metric: str, difference: bool = False) -> str:
    """Returns the `format_cell` format of a metric's scores or differences."""
    entry = _entry(metric)
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
    entry = _entry(metric)
    return entry.meaning if entry else ""


def higher_is_better(metric: str) -> bool | None:
    """Returns whether higher scores are better; None if neither are, as for bias."""
    entry = _entry(metric)
    return entry.higher_is_better if entry else None


def zero_means_no(metric: str) -> str:
    """Returns the name of what a score of 0 means the absence of, such as `bias`; empty for other metrics."""
    return getattr(_entry(metric), "zero_means_no", "")


def may_be_averaged(metric: str) -> bool:
    """Returns whether a metric may be averaged with others, which requires a best score of 1."""
    entry = _entry(f"{metric}+{metric}")
    return entry is not None and entry.unit == "%" and entry.higher_is_better is True
