"""Metrics as readers know them: their name with its unit, their meaning, and which way is better.

Results hold scores in the metric's own unit, shares from 0 to 1. Per cent and points are made where a
number is written for readers, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from multiberts.evaluate.metrics.register import METRICS
from multiberts.stats.formats import (
    PERCENT,
    POINTS,
    decimals_for,
    format_cell,
    heading,
    with_decimals,
)
from multiberts.stats.intervals import Interval

# Name, whether it is shown in per cent, and what it means. Others keep their name.
_KNOWN: Mapping[str, tuple[str, bool, str]] = {
    "accuracy": ("accuracy", True, "Share of examples whose prediction is right."),
    "error": ("error", True, "Share of examples whose prediction is wrong."),
    "f1": ("F1", True, "Harmonic mean of precision and recall of the positive class."),
    "f1_macro": ("macro F1", True, "F1 of every class, averaged over classes."),
    "squad_exact_match": ("exact match", True, "Share of answers equal to a reference answer."),
    "squad_f1": ("F1 of words", True, "Overlap of the words of answer and reference, averaged."),
    "matthews": ("Matthews' correlation", False, "Correlation of two binary variables."),
    "pearson": ("Pearson's correlation", False, "Correlation of predictions and labels."),
    "spearman": ("Spearman's correlation", False, "Correlation of their ranks."),
    "auc": ("AUC", False, "Chance that a positive example scores above a negative one."),
    "mse": ("mean squared error", False, "Mean of squared differences from the labels."),
    "mae": ("mean absolute error", False, "Mean of absolute differences from the labels."),
    "ece": ("calibration error", False, "Gap between confidence and accuracy."),
    "f1_micro": ("micro F1", True, "F1 of all classes counted together."),
    "precision": ("precision", True, "Share of positive answers that are right."),
    "recall": ("recall", True, "Share of the positive class that is found."),
    "f2": ("F2", True, "F of the positive class that counts recall twice as much as precision."),
    "f0_5": ("F0.5", True, "F of the positive class that counts precision twice as much as recall."),
    "precision_macro": ("macro precision", True, "Precision of every class, averaged over classes."),
    "recall_macro": ("macro recall", True, "Recall of every class, averaged over classes."),
    "f1_weighted": ("weighted F1", True, "F1 of every class, averaged by its number of examples."),
    "balanced_accuracy": ("balanced accuracy", True, "Recall of every labelled class, averaged."),
    "average_precision": ("average precision", False, "Area under precision over recall."),
    **{
        f"top_{number}_accuracy": (
            f"top-{number} accuracy", True, f"Share whose right class is among the {number} likeliest.",
        )
        for number in (2, 3, 5)
    },
    **{
        f"multilabel_{measure}_{average}": (
            f"{average} {label}", True, f"{label[0].upper()}{label[1:]} of sets of labels, {meaning}.",
        )
        for measure, label in (("f1", "F1"), ("precision", "precision"), ("recall", "recall"))
        for average, meaning in (
            ("micro", "all labels counted together"), ("macro", "averaged over labels"),
            ("weighted", "averaged over labels by their numbers"), ("samples", "averaged over examples"),
        )
    },
    "multilabel_accuracy": ("exact sets", True, "Share of examples with all labels right, and no others."),
    "mean": ("mean", False, "Mean of the examples' own scores."),
    "share": ("mean", True, "Share of the examples whose own score is 1."),
    "slope": ("slope", False, "Slope of the predictions on the labels."),
    "brier": ("Brier score", False, "Mean squared error of the class probabilities."),
    "log_loss": ("log loss", False, "Mean negative log-probability of the right class."),
    "span_f1": ("F1 of spans", True, "F1 of tagged spans, right in type and both ends."),
    "bias_correlation": (
        "bias correlation", False,
        "Correlation of the bias score of an occupation with its share of women.",
    ),
    "bias_slope": (
        "bias slope", False, "Slope of the bias score of an occupation on its share of women.",
    ),
    "probe_correlation": (
        "probe correlation", False,
        "Correlation of P(feminine pronoun) with the occupation's share of women.",
    ),
    "probe_slope": (
        "probe slope", False, "Slope of P(feminine pronoun) on the occupation's share of women.",
    ),
}  # fmt: skip


def metric_name(metric: str) -> str:
    """Returns the name of a metric without a unit, such as `exact match`."""
    return _KNOWN.get(metric, (metric.replace("_", " "), False, ""))[0]


def metric_at_start(metric: str) -> str:
    """Returns `metric_name` at the beginning of a sentence, such as `Exact match`."""
    name = metric_name(metric)
    return name[:1].upper() + name[1:]


def metric_label(metric: str, difference: bool = False) -> str:
    """Returns the name of a metric with the unit in which numbers are shown.

    Args:
      difference: whether the numbers are differences, those of shares in points.

    Example:
      >>> from multiberts.stats.presentation.metric_names import metric_label
      >>> metric_label("squad_exact_match"), metric_label("accuracy", True), metric_label("auc")
      ('exact match (%)', 'accuracy (points)', 'AUC')
    """
    return heading(metric_name(metric), score_format(metric, difference))


def score_format(metric: str, difference: bool = False) -> str:
    """Returns how readers see scores of a metric, or differences of them: a format of `format_cell`."""
    if not _KNOWN.get(metric, ("", False, ""))[1]:
        return ""
    return POINTS if difference else PERCENT


def printed_unit(metric: str) -> float:
    """Returns one printed unit in the metric's own: 0.01 for shares, which are printed in per cent."""
    return 0.01 if score_format(metric) else 1.0


def interval_decimals(interval: Interval, metric: str) -> int | None:
    """Returns the decimals with which a score and its interval are shown (`decimals_for`)."""
    return decimals_for(interval, score_format(metric))


def score_text(score: float | Interval, metric: str, decimals: int | None = None) -> str:
    """Returns a score for a sentence, with its unit: `72.30 %`, or `0.723` of a correlation."""
    text = format_cell(score, with_decimals(score_format(metric), decimals))
    return f"{text} %" if score_format(metric) else text


def difference_text(difference: float | Interval, metric: str, decimals: int | None = None) -> str:
    """Returns a difference of scores for a sentence, with its unit: `5.900 points`."""
    text = format_cell(difference, with_decimals(score_format(metric, True), decimals))
    return f"{text} points" if score_format(metric) else text


def metric_meaning(metric: str) -> str:
    """Returns one sentence on what a metric measures; empty where none is known."""
    return _KNOWN.get(metric, ("", False, ""))[2]


def higher_is_better(metric: str) -> bool | None:
    """Returns which way a metric points; None where neither way is better, as for bias."""
    return METRICS[metric].higher_is_better if metric in METRICS else None
