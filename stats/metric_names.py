"""Names and directions of metrics, also of a mean of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES


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


def metric_entry(metric: str) -> Metric | RankMetric | _MeanOfMetrics | None:
    """Returns a metric by the name that results have, or None if it is not ours."""
    if metric in OCCUPATION_MEASURES:
        return OCCUPATION_MEASURES[metric].metric
    if "+" in metric and all(name in METRICS for name in metric.split("+")):
        return _MeanOfMetrics([METRICS[name] for name in metric.split("+")])
    return METRICS.get(metric)


def metric_name(metric: str) -> str:
    """Returns the name of a metric without a unit, such as `exact match`."""
    entry = metric_entry(metric)
    return (entry.label if entry else "") or metric.replace("_", " ")


def higher_is_better(metric: str) -> bool | None:
    """Returns whether higher scores are better; None if neither are, as for bias."""
    entry = metric_entry(metric)
    return entry.higher_is_better if entry else None


def may_be_averaged(metric: str) -> bool:
    """Returns whether a metric may be averaged with others, which requires a best score of 1."""
    entry = metric_entry(f"{metric}+{metric}")
    return entry is not None and entry.unit == "%" and entry.higher_is_better is True
