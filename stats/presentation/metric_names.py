"""Metrics as readers know them: their name with its unit, their meaning, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from multiberts.evaluate.metrics.register import METRICS
from multiberts.stats.intervals import Interval

if TYPE_CHECKING:
    from multiberts.stats.bootstrap.conclusion import ArmSummary, Comparison, Remainder
    from multiberts.stats.bootstrap.ranking import ArmComparisons, ArmDifference, RankedArm

_Shown = TypeVar("_Shown", "ArmSummary", "Comparison", "Remainder", "RankedArm", "ArmDifference")

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
    "slope": ("slope", False, "Slope of the predictions on the labels."),
    "brier": ("Brier score", False, "Mean squared error of the class probabilities."),
    "log_loss": ("log loss", False, "Mean negative log-probability of the right class."),
    "span_f1": ("F1 of spans", True, "F1 of tagged spans, right in type and both ends."),
    "bleu": ("BLEU", False, "Overlap of n-grams with the references."),
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


def metric_label(metric: str) -> str:
    """Returns the name of a metric with its unit, such as `exact match (%)`."""
    name, percent, _ = _KNOWN.get(metric, (metric.replace("_", " "), False, ""))
    return f"{name} (%)" if percent else name


def metric_factor(metric: str) -> float:
    """Returns by what scores are multiplied to be shown: 100 for per cent."""
    return 100.0 if _KNOWN.get(metric, ("", False, ""))[1] else 1.0


def metric_meaning(metric: str) -> str:
    """Returns one sentence on what a metric measures; empty where none is known."""
    return _KNOWN.get(metric, ("", False, ""))[2]


def higher_is_better(metric: str) -> bool | None:
    """Returns which way a metric points; None where neither way is better, as for bias."""
    return METRICS[metric].higher_is_better if metric in METRICS else None


def as_shown(item: Comparison) -> Comparison:
    """Returns a comparison in the units and with the metric's name that readers see.

    Shares are shown in per cent, so that scores, differences and intervals are 100 times as large;
    p-values, effect sizes and degrees of freedom are the same.
    """
    label = metric_label(item.metric)
    if metric_factor(item.metric) == 1:
        return replace(item, metric=label)
    numbers = (
        "estimate", "bootstrap_mean", "bias", "standard_error", "bootstrap_standard_error", "samples",
    )  # fmt: skip
    of_side = "estimate", "seed_scores", "standard_error"
    return replace(
        _in_percent(item, *numbers),
        metric=label,
        base=_in_percent(item.base, *of_side),
        experiment=item.experiment and _in_percent(item.experiment, *of_side),
        variance_parts=item.variance_parts and item.variance_parts.times(100**2),
        without_failed=item.without_failed and _in_percent(item.without_failed, "estimate"),
    )


def ranking_as_shown(result: ArmComparisons) -> ArmComparisons:
    """Returns a ranking in the units and with the metric's name that readers see, as `as_shown`."""
    label = metric_label(result.metric)
    if metric_factor(result.metric) == 1:
        return replace(result, metric=label)
    of_arm = "estimate", "seed_scores", "standard_error"
    arms = tuple(_in_percent(arm, *of_arm) for arm in result.arms)
    found = tuple(_in_percent(item, "estimate", "standard_error") for item in result.differences)
    samples = 100 * result.samples
    return replace(result, metric=label, arms=arms, differences=found, samples=samples)


def _in_percent(item: _Shown, *numbers: str) -> _Shown:
    """Returns a summary with these numbers, and with all intervals of scores, 100 times as large."""
    values: dict[str, Any] = {name: 100 * getattr(item, name) for name in numbers}
    values |= {
        field.name: Interval(*(100 * end for end in value))
        for field in fields(item)
        if isinstance(value := getattr(item, field.name), Interval) and field.name != "failure_rate"
    }
    return replace(item, **values)
