"""The score of a comparison: which way it is better, where it ends, and what its examples are called.

Whatever says better, ranks, plans, looks for failed seeds, chooses a best, or draws an interval near an end
asks a `Score`, and no metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from multiberts.evaluate.metrics.classification import is_binary
from multiberts.evaluate.metrics.column_metric import UNBOUNDED, Metric
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.evaluate.metrics.register import METRICS, known_name
from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.evaluate.readers.rows import more_is_better
from multiberts.stats.errors import DataError

UNKNOWN_DIRECTION = (
    "it is unknown whether higher or lower scores are better; give --less_is_better or --more_is_better (in "
    "Python, less_is_better of compare, True or False)"
)


@dataclass(frozen=True)
class Score:
    """A score, as far as it is known.

    Attributes:
      metric: name of the metric.
      is_correlation: whether it is a correlation.
      ends: smallest and largest possible score; infinite if there is none.
      is_mean: whether it is a mean of the examples' own scores.
      more_is_better: True if higher is better, False if lower is; None if unknown, or if neither is.
    """

    metric: str
    is_correlation: bool = False
    ends: tuple[float, float] = UNBOUNDED
    is_mean: bool = False
    more_is_better: bool | None = None

    @classmethod
    def of(cls, metric: Any) -> Score:
        """Returns the score of a metric, or of the name of one."""
        entry = metric_entry(metric) if isinstance(metric, str) else metric
        if entry is None or isinstance(entry, _MeanOfMetrics):
            return cls(metric, more_is_better=entry.higher_is_better if entry else None)
        is_mean = isinstance(entry, Metric) and entry.mean_of is not None
        return cls(entry.name, entry.is_correlation, entry.bounds, is_mean, entry.higher_is_better)

    @property
    def width(self) -> float:
        return self.ends[1] - self.ends[0]

    @property
    def sign(self) -> int:
        """Returns -1 if lower is better, else 1."""
        return -1 if self.more_is_better is False else 1

    @property
    def is_unknown(self) -> bool:
        """Returns whether one way may be better, and nothing says which."""
        entry = metric_entry(self.metric)
        return self.more_is_better is None and (entry is None or entry.higher_is_better is not None)

    @property
    def examples(self) -> str:
        """Returns what one row is, in the plural."""
        return "occupations" if self.metric in OCCUPATION_MEASURES else "examples"


def as_read(metric: Any, arms: Sequence[Any], less: bool | None = None) -> Any:
    """Returns a metric with the direction and the ends of its scores.

    The direction of a mean of scores is the one given by the user or the log, else that of the column's
    name; 0 and 1 without a name are wrong and right answers. Its ends are those of the metric of this name,
    if no score exceeds them; such scores in per cent end at 0 and 100.

    Args:
      arms: arms as `stats.runs_table.Arm`.
      less: the user's `less_is_better`, if given.
    """
    told = {arm.read.more_is_better for arm in arms} - {None} if less is None else {not less}
    sense = told.pop() if len(told) == 1 else None
    known = Score.of(metric).more_is_better
    if metric is not METRICS["mean"]:
        if isinstance(metric, Metric | RankMetric):
            if None not in (sense, known) and sense != known:
                raise DataError(
                    f"found {'more' if sense else 'less'}_is_better, but for {metric.name} "
                    f"{'lower' if sense else 'higher'} is better; leave less_is_better or more_is_better out"
                )
            return metric
        sense = more_is_better(metric.name) if sense is None else sense
        return replace(metric, higher_is_better=sense)
    columns = {arm.read.columns.get("score", "") for arm in arms}
    values = [arm.predictions for arm in arms]
    are_answers = all(map(is_binary, values))
    if sense is None:  # "seed_0 ... seed_4" may name models, "scores" is our own name of arrays
        senses = {more_is_better(name, every_word=" ... " in name) for name in columns}
        sense = senses.pop() if len(senses) == 1 else None
        no_name = all(" ... " in name or name in ("", "scores") for name in columns)
        sense = True if sense is None and are_answers and no_name else sense
    metric = METRICS["share" if are_answers else "mean"]
    of_name = METRICS.get(known_name(columns.pop())) if len(columns) == 1 else None
    if of_name is not None and not are_answers:
        low, high = min(map(np.nanmin, values)), max(map(np.nanmax, values))
        per_cent = (0.0, 100.0) if of_name.bounds == (0.0, 1.0) else UNBOUNDED
        within = [ends for ends in (of_name.bounds, per_cent) if ends[0] <= low and high <= ends[1]]
        metric = replace(metric, bounds=(*within, UNBOUNDED)[0])
    return metric if sense else replace(metric, higher_is_better=sense)


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


def may_be_averaged(metric: str) -> bool:
    """Returns whether a metric may be averaged with others, which requires a best score of 1."""
    entry = metric_entry(f"{metric}+{metric}")
    return entry is not None and entry.unit == "%" and entry.higher_is_better is True
