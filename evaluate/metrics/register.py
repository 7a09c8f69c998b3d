"""All metrics by name: one definition for evaluation and for the bootstrap.

A metric is columns and a finish (`Metric`) or a function of ranks (`RankMetric`); both score runs with
and without weights, and a bootstrap replicate is the weights that count the drawn examples.

Values for 0/0 are defined, so that no replicate is lost, and can be counted with `degenerate`:

- `f1` is 0 without positive labels and predictions (scikit-learn's `zero_division` default); `f1_macro`
  skips such a class;
- `matthews` is 0 for constant labels or predictions (as scikit-learn);
- `pearson` and `spearman` are 0 for constant labels or predictions (SciPy: NaN);
- `slope` is 0 for constant labels;
- `precision`, `recall` and `average_precision` are 0 if their denominator is 0;
- `auc` is 1/2 if all labels are equal (scikit-learn: NaN);
- `multilabel_` metrics are 0 if their denominator is 0 (as scikit-learn's `zero_division=0`);
- `span_f1` is 0 without spans in labels and predictions (as seqeval).
"""

from __future__ import annotations

import re
from collections.abc import Container, Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.evaluate.metrics.classification import CLASSIFICATION_METRICS
from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.continuous import CONTINUOUS_METRICS
from multiberts.evaluate.metrics.label_sets import (
    LABEL_SET_METRICS,
    SEPARATOR,
    separator_in,
    write_them,
)
from multiberts.evaluate.metrics.probability import PROBABILITY_METRICS, softmax
from multiberts.evaluate.metrics.ranks import RANK_METRICS, RankMetric
from multiberts.evaluate.metrics.squad import SQUAD_METRICS
from multiberts.evaluate.metrics.tagged_spans import SPAN_F1
from multiberts.runs.errors import nearest
from multiberts.runs.parameters import shortened

_ALL: tuple[Metric | RankMetric, ...] = (
    *CLASSIFICATION_METRICS,
    *CONTINUOUS_METRICS,
    *RANK_METRICS,
    *PROBABILITY_METRICS,
    *SQUAD_METRICS,
    SPAN_F1,
    *LABEL_SET_METRICS,
)
METRICS = {metric.name: metric for metric in _ALL}

# Tags of one sentence, for `span_f1`.
_TAGS = re.compile(r"(?:O|[BI]-\S+)(?: +(?:O|[BI]-\S+))*")

# Names of metrics in scikit-learn, `evaluate`, GLUE and harnesses.
USUAL_NAMES = {
    "acc": "accuracy", "mcc": "matthews", "matthews_correlation": "matthews",
    "matthews_corrcoef": "matthews", "macro_f1": "f1_macro", "micro_f1": "f1_micro",
    "weighted_f1": "f1_weighted", "f1_score": "f1", "macro_precision": "precision_macro",
    "macro_recall": "recall_macro", "roc_auc": "auc", "auroc": "auc", "ap": "average_precision",
    "mean_squared_error": "mse", "mean_absolute_error": "mae", "pearsonr": "pearson",
    "spearmanr": "spearman", "brier_score": "brier", "nll": "log_loss", "balanced_acc": "balanced_accuracy",
}  # fmt: skip


def known_name(name: str) -> str:
    """Returns our name of a metric, ignoring capitals and hyphens; unknown names are returned unchanged.

    Examples:
      >>> known_name("Accuracy"), known_name("macro-F1"), known_name("matthews_correlation")
      ('accuracy', 'f1_macro', 'matthews')
    """
    plain = re.sub(r"[ -]+", "_", name.strip().lower())
    plain = USUAL_NAMES.get(plain, plain)
    return plain if plain in METRICS else name


def metric_named(name: str) -> Metric | RankMetric:
    """Returns the metric of a name or usual name.

    Raises:
      ValueError: an unknown name; the message has the nearest name, or lists all.

    Examples:
      >>> float(metric_named("accuracy").score(labels=[1, 0, 1, 1], predictions=[1, 0, 0, 1]))
      0.75
    """
    our_name = known_name(name)
    if our_name not in METRICS:
        cure = nearest(name.lower(), [*METRICS, *USUAL_NAMES])
        raise ValueError(f"found metric {name!r}; {cure}")
    return METRICS[our_name]


# GLUE's score of each task, the mean of two metrics (Wang et al. 2019, table 1). Other tasks: accuracy.
_OF_GLUE = {
    "cola": "matthews", "mrpc": "accuracy+f1", "qqp": "accuracy+f1", "stsb": "pearson+spearman",
}  # fmt: skip
_GLUE = {*_OF_GLUE, "sst", "mnli", "qnli", "rte", "wnli", "ax"}


def counted_metrics(task: str, metrics: Sequence[str]) -> tuple[str, ...]:
    """Returns the metrics for a task's score: GLUE's choice, or the first metric.

    Examples:
      >>> counted_metrics("MRPC", ["accuracy", "f1"]), counted_metrics("HANS", ["accuracy", "f1"])
      (('accuracy', 'f1'), ('accuracy',))
    """
    names = _OF_GLUE.get(_glue_name(task), "").split("+")
    return tuple(names) if {*names} <= {*metrics} else tuple(metrics[:1])


def _glue_name(task: str) -> str:
    """Returns the letters of a GLUE task's name, such as `stsb` for `STS-B/dev`; empty for other tasks."""
    names = [re.sub("[^a-z]|glue|(mis)?matched|mm", "", part) for part in task.lower().split("/")]
    return next((name for name in names if name in _GLUE), "")


def metrics_by_task(requested: Any, tasks: Sequence[str]) -> dict[str, Any]:
    """Returns each task's metric, a tuple of metrics to average, or None.

    Args:
      requested: a metric for all tasks; metrics by task; or a text `MRPC:accuracy+f1,accuracy`, where `+`
        joins the metrics of a task, and `glue` means GLUE's metrics.
      tasks: names of all tasks.

    Raises:
      ValueError: an unknown task or metric.

    Examples:
      >>> metrics_by_task("RTE:f1,glue", ["RTE", "MRPC"])
      {'RTE': 'f1', 'MRPC': ('accuracy', 'f1')}
    """
    if not isinstance(requested, str | Mapping):
        return dict.fromkeys(tasks, requested)
    parts: Mapping[str, Any] = {} if isinstance(requested, str) else requested
    if isinstance(requested, str):
        pairs = [part.strip().rpartition(":") for part in requested.split(",")]
        parts = {task: metric for task, _, metric in pairs}
        if len(parts) < len(pairs):
            raise ValueError(
                f"found metric {requested!r}, expected one metric, or for each task its own: TASK:METRIC,..."
            )
    unknown = sorted({*parts} - {"", *tasks})
    if unknown:
        cure = f"expected one of {', '.join(tasks)}; correct its name"
        if [*tasks] == [""]:
            cure = f"and one task; name its metric alone, --metric={parts[unknown[0]]}"
        raise ValueError(f"found a metric of the task {unknown[0]!r}, {cure}")
    return {task: _metrics_of(task, parts.get(task, parts.get(""))) for task in tasks}


def _metrics_of(task: str, requested: Any) -> Any:
    if requested == "glue":
        if not _glue_name(task):
            raise ValueError(
                f"found metric 'glue', which has no task {task}; name its own with "
                f"--metric={task}:accuracy,glue"
            )
        requested = _OF_GLUE.get(_glue_name(task), "accuracy")
    names = requested.split("+") if isinstance(requested, str) else requested
    if not isinstance(names, list | tuple):
        return requested
    metrics = tuple(metric_named(name).name if isinstance(name, str) else name for name in names)
    return metrics if len(metrics) > 1 else metrics[0]


def metric_variables(
    metric: Metric | RankMetric, variables: Container[Hashable]
) -> tuple[Literal["label", "answers"], Literal["prediction", "prediction_text", "loss"]]:
    """Returns the variables of labelled predictions that a metric compares, such as of `read_predictions`.

    Returns:
      The names of labels and predictions. Text metrics use `answers` and `prediction_text` if available,
      as label and prediction of question answering only say whether there is an answer. Loss metrics use
      `loss`, or the prediction if it is the set's metric, as for imported losses.

    Raises:
      ValueError: no losses.

    Examples:
      >>> metric_variables(metric_named("accuracy"), {"label", "prediction"})
      ('label', 'prediction')
      >>> metric_variables(metric_named("squad_f1"), {"answers", "prediction_text"})
      ('answers', 'prediction_text')
    """
    if metric.uses == "loss" and "loss" in variables:
        return "label", "loss"
    if metric.uses == "loss" and metric.name not in getattr(variables, "attrs", {}).get(
        "metrics", ()
    ):
        raise ValueError(
            "found no loss of each example, which runs of the task masked_words have; take a metric of "
            "predictions"
        )
    if metric.uses != "text":
        return "label", "prediction"
    return (
        "answers" if "answers" in variables else "label",
        "prediction_text" if "prediction_text" in variables else "prediction",
    )


_METRICS_OF_LISTS = {
    "prediction": "multilabel_f1_micro if they are sets of labels",
    "label": "squad_f1 if they are right answers to a question",
}


def default_metric(
    predictions: NDArray | None, labels: NDArray | None = None, logged: str = ""
) -> str:
    """Returns the default metric of scores, or of predictions that are classes.

    Predictions of any shape, or None for scores; a log's name of the metric has precedence.

    Raises:
      ValueError: predictions or labels are fractions, sets, tags or answers instead of classes.

    Examples:
      >>> default_metric(None), default_metric(np.array([1.0, 0.0]))
      ('mean', 'accuracy')
    """
    if logged or predictions is None:
        return known_name(logged or "mean")
    if predictions.dtype.kind == "f" and np.any(predictions[~np.isnan(predictions)] % 1):
        raise ValueError(
            "the predictions are fractions, which accuracy does not take; name a metric with "
            "--metric=NAME, or give each example's score with --score=COLUMN"
        )
    texts: set[str] = set()
    if labels is not None and labels.dtype.kind in "OU":
        values_of_cells(METRICS["accuracy"], predictions, "prediction")
        values_of_cells(METRICS["accuracy"], labels, "label")
        texts = {label for label in labels.tolist() if isinstance(label, str)}
    if all(map(_TAGS.fullmatch, texts)) and any(" " in text for text in texts):
        raise ValueError(
            f"the labels are tags, such as {shortened(max(texts))}; give --metric=span_f1, or "
            "--metric=accuracy, which counts whole sentences"
        )
    if sign := separator_in(texts, f"{SEPARATOR},;"):
        text, cure = write_them(texts, sign)
        raise ValueError(f"the labels seem to be sets, such as {text!r}; {cure}")
    return "accuracy"


def values_of_cells(
    metric: object, cells: NDArray, role: Literal["prediction", "label"]
) -> NDArray:
    """Returns a metric's input from cells of a table's predictions or labels.

    In cells [...] an empty cell is NaN, a list of texts a tuple, a missing row None.

    Raises:
      ValueError: the metric takes no predictions or no lists, or label names have an unexpected separator.

    Examples:
      >>> cells = np.array(["joy", float("nan")], dtype=object)
      >>> values_of_cells(metric_named("multilabel_f1_micro"), cells, "label").tolist()
      ['joy', '']
      >>> values_of_cells(metric_named("accuracy"), cells, "label").tolist()
      ['joy', nan]
    """
    if not isinstance(metric, Metric | RankMetric):
        return cells
    if metric.uses == "loss" and role == "prediction":
        raise ValueError(
            "found predictions and no loss of each example; name its column with --score=COLUMN, or take "
            "another metric"
        )
    if isinstance(metric, Metric) and metric.of_cells is not None:
        return metric.of_cells(cells)
    # Readers convert all cells of a column to lists, or none.
    first = next((cell for cell in cells.flat if cell == cell and cell is not None), None)
    if isinstance(first, tuple):
        raise ValueError(
            f"found lists as {role}s, which {metric.name} does not take; give "
            f"--metric={_METRICS_OF_LISTS[role]}"
        )
    return cells


def metric_input(
    metric: Metric | RankMetric, prediction: ArrayLike, scores: ArrayLike | None = None
) -> NDArray:
    """Returns a metric's input from a run's predictions.

    Args:
      metric: the metric, whose `uses` decides.
      prediction: predictions [..., examples]; without scores, fractions are probabilities of class 1.
      scores: logits [..., examples, classes], or None.

    Returns:
      The prediction; or class probabilities [..., examples, classes]; or the logit of class 1 minus that of
      class 0, or its probability [..., examples].

    Raises:
      ValueError: the metric needs scores, or scores of two classes.

    Examples:
      >>> metric_input(metric_named("auc"), prediction=[1, 0], scores=[[0.5, 2.0], [1.0, 0.0]])
      array([ 1.5, -1. ])
    """
    if metric.uses in ("prediction", "text", "loss"):
        return np.asarray(prediction)
    if scores is None:
        first = np.asarray(prediction)
        if first.dtype.kind == "f" and np.any(first[np.isfinite(first)] % 1):
            return np.stack([1 - first, first], axis=-1) if metric.uses == "scores" else first
    logits = np.empty((0, 0)) if scores is None else np.asarray(scores, dtype=np.float64)
    if logits.shape[-1] < 2 or np.isnan(logits).any():
        raise ValueError(
            f"{metric.name} needs the scores of all classes for every example, or class 1's probability "
            "as the prediction, found neither; write the predictions with their scores"
        )
    if metric.uses == "scores":
        return softmax(logits)
    if logits.shape[-1] != 2:
        raise ValueError(
            f"{metric.name} is for two classes, found scores of {logits.shape[-1]}; use brier, "
            "log_loss or ece"
        )
    return logits[..., 1] - logits[..., 0]
