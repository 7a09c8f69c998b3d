"""Metrics from callers: a name, an object, or a function of labels and predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from multiberts.evaluate.metrics.classification import is_binary
from multiberts.evaluate.metrics.column_metric import UNBOUNDED, Metric, Uses
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.evaluate.metrics.register import METRICS, metric_named
from multiberts.stats.errors import DataError, as_data_errors
from multiberts.stats.runs_table import Arm

ScoreFunction = Callable[[NDArray, NDArray], Any]

# Metrics equal to functions of other libraries, by package and name of the function.
_EQUAL_FUNCTIONS = {
    ("sklearn", "accuracy_score"): "accuracy",
    ("sklearn", "zero_one_loss"): "error",
    ("sklearn", "mean_squared_error"): "mse",
    ("sklearn", "f1_score"): "f1",
    ("sklearn", "matthews_corrcoef"): "matthews",
    ("sklearn", "mean_absolute_error"): "mae",
    ("sklearn", "brier_score_loss"): "brier",
    ("sklearn", "log_loss"): "log_loss",
    ("sklearn", "roc_auc_score"): "auc",
    ("sklearn", "average_precision_score"): "average_precision",
    ("sklearn", "balanced_accuracy_score"): "balanced_accuracy",
    ("sklearn", "precision_score"): "precision",
    ("sklearn", "recall_score"): "recall",
    ("scipy", "pearsonr"): "pearson",
    ("scipy", "spearmanr"): "spearman",
}


@dataclass(frozen=True)
class FunctionMetric:
    """A plain function of (labels [examples], predictions [examples]) as a metric.

    It is called for every run of every replicate. Attributes as in `Metric`.
    """

    function: ScoreFunction
    uses: Uses = "prediction"
    is_correlation: bool = False
    uses_labels: bool = True
    bounds: tuple[float, float] = UNBOUNDED
    higher_is_better: bool | None = None

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__).strip("<>")


MetricLike = Metric | RankMetric | FunctionMetric


def named_metric(metric: str | MetricLike | ScoreFunction, arms: Sequence[Arm] = ()) -> MetricLike:
    """Returns the metric for a name, an object or a function of (labels, predictions).

    A known function of another library is replaced by our metric if both are equal on the data of `arms`.
    """
    if isinstance(metric, str):
        with as_data_errors():
            return metric_named(metric)
    if isinstance(metric, Metric | RankMetric | FunctionMetric):
        return metric
    if not callable(metric):
        raise DataError(
            f"found metric {metric!r}, expected a name, a Metric or a function of (labels, predictions)"
        )
    return _metric_of_function(metric, arms) if arms else FunctionMetric(metric)


def _metric_of_function(function: ScoreFunction, arms: Sequence[Arm]) -> MetricLike:
    package = (getattr(function, "__module__", None) or "").split(".")[0]
    name = _EQUAL_FUNCTIONS.get((package, getattr(function, "__name__", "")), "")
    labels, predictions = [arm.labels for arm in arms], [arm.predictions for arm in arms]
    # These functions equal our metric only for the classes 0 and 1.
    of_positives = name in ("f1", "precision", "recall")
    is_of_two = of_positives or name in ("auc", "average_precision", "brier", "log_loss")
    checked = [*labels, *(predictions if of_positives else ())] if is_of_two else []
    if name and all(map(is_binary, checked)):
        return METRICS[name]
    return FunctionMetric(function)
