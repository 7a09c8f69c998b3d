"""Metrics of class probabilities: calibration error, Brier score, log loss, top-k accuracy.

Probabilities are [..., examples, classes], labels the index of the right class; or, for classes 0 and 1,
P(class 1) as [..., examples]. The last axis is classes if the axis before it has the length of the labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.evaluate.metrics.column_metric import (
    Array,
    BoundColumns,
    Columns,
    Metric,
    by_class,
    mean_metric,
    ratio,
    shown,
    stack,
)

# As Guo et al. (2017), section 2: equal widths, each bin without its lower edge.
NUM_BINS = 15
BIN_EDGES = np.linspace(0, 1, NUM_BINS + 1)

# Tolerance for the sum of an example's probabilities, which half precision needs.
_SUM_TOLERANCE = 2e-3


def softmax(logits: ArrayLike) -> Array:
    """Computes probabilities of classes from logits [..., classes], float64 of the same shape."""
    values = np.asarray(logits, dtype=np.float64)
    shifted = np.exp(values - values.max(axis=-1, keepdims=True))
    probabilities: Array = shifted / shifted.sum(axis=-1, keepdims=True)
    return probabilities


def _check_probabilities(name: str, labels: NDArray, predictions: NDArray, classes: bool) -> None:
    if predictions.dtype.kind not in "biuf" or labels.dtype.kind not in "biuf":
        odd = (predictions if predictions.dtype.kind not in "biuf" else labels).flat[0]
        raise ValueError(
            f"{name} is for class numbers and their probabilities, found {shown(odd)}; number the "
            "classes from 0"
        )
    outside = ~((predictions >= 0) & (predictions <= 1))
    if outside.any():
        raise ValueError(
            f"{name} is for probabilities, found {shown(predictions[outside][0])}, expected 0 to 1; "
            "take the softmax of logits"
        )
    if classes:
        sums = predictions.sum(axis=-1, dtype=np.float64)
        wrong = np.abs(sums - 1) > _SUM_TOLERANCE
        if wrong.any():
            raise ValueError(
                f"{name}: found probabilities of the classes that sum to {sums[wrong][0]:.6g}, "
                "expected 1; give [..., examples, classes], or P(class 1) as [..., examples]"
            )
    num_classes = predictions.shape[-1] if classes else 2
    is_class = np.isin(labels, np.arange(num_classes))
    if not is_class.all():
        raise ValueError(
            f"{name}: found label {shown(labels[~is_class][0])}, expected 0 to {num_classes - 1}, the "
            "index of the right class"
        )


def _probability_columns(
    name: str, make: Callable[[NDArray, NDArray, bool], Array]
) -> BoundColumns:
    """Makes columns with a function of (integer labels, probabilities, whether these are per class)."""

    def bind(labels: NDArray, predictions: NDArray) -> Columns:
        classes = by_class(labels, predictions)
        _check_probabilities(name, labels, predictions, classes)
        return lambda labels, predictions: make(labels.astype(np.int64), predictions, classes)

    return BoundColumns(bind)


def _of_label(labels: NDArray, probabilities: NDArray, classes: bool) -> NDArray:
    """Returns the probability of the right class [..., examples]."""
    if not classes:
        return np.where(labels == 1, probabilities, 1 - probabilities)
    index = np.broadcast_to(labels[:, None], (*probabilities.shape[:-1], 1))
    return np.take_along_axis(probabilities, index, axis=-1)[..., 0]


def _log_loss(labels: NDArray, probabilities: NDArray, classes: bool) -> Array:
    """Clips by the precision of the probabilities, as scikit-learn."""
    if probabilities.dtype.kind != "f":
        probabilities = probabilities.astype(np.float64)
    right = _of_label(labels, probabilities, classes)
    epsilon = np.finfo(right.dtype).eps
    clipped = np.clip(right, epsilon, right.dtype.type(1) - epsilon)
    return stack(right.shape, 1.0, -np.log(clipped.astype(np.float64)))


def _brier(labels: NDArray, probabilities: NDArray, classes: bool) -> Array:
    """Computes (1 - P(right class))^2 for two classes, and the sum over classes of squares for more."""
    probabilities = probabilities.astype(np.float64)
    right = _of_label(labels, probabilities, classes)
    if not classes:
        return stack(right.shape, 1.0, (1 - right) ** 2)
    squares = np.einsum("...c,...c->...", probabilities, probabilities)
    squares += (1 - right) ** 2 - right**2
    return stack(right.shape, 1.0, squares / 2 if probabilities.shape[-1] == 2 else squares)


def _guesses(probabilities: NDArray, classes: bool) -> tuple[NDArray, NDArray, NDArray]:
    """Returns each example's predicted class, its probability (confidence), and the confidence's bin."""
    probabilities = probabilities.astype(np.float64)
    if classes:
        guess, confidence = probabilities.argmax(axis=-1), probabilities.max(axis=-1)
    else:
        guess = 1 * (probabilities > 0.5)
        confidence = np.maximum(probabilities, 1 - probabilities)
    return guess, confidence, np.searchsorted(BIN_EDGES, confidence, side="left") - 1


def _calibration(labels: NDArray, probabilities: NDArray, classes: bool) -> Array:
    """Makes columns: 1, and per bin the confidence minus whether the guess was right."""
    guess, confidence, bins = _guesses(probabilities, classes)
    gap = confidence - (guess == labels)
    return stack(gap.shape, 1.0, *(np.where(bins == index, gap, 0.0) for index in range(NUM_BINS)))


def calibrated_ece(labels: NDArray, probabilities: NDArray) -> float:
    """Returns the expected `ece` of a perfectly calibrated model with these confidences.

    It is above 0, as each bin's accuracy deviates from its confidence by chance, and absolute values add up.
    The accuracy is taken as binomial, with De Moivre's closed form for the mean absolute deviation.

    Args:
      probabilities: probabilities of one run, in the metric's form.

    Examples:
      >>> round(calibrated_ece(np.ones(100), np.full(100, 0.8)), 3)
      0.032

    Reference: Diaconis & Zabell (1991), Closed Form Summation for Classical Distributions: Variations on a
    Theme of De Moivre.
    """
    from scipy.stats import binom

    _, confidence, bins = _guesses(probabilities, by_class(labels, probabilities))
    numbers = np.bincount(bins, minlength=NUM_BINS)
    sums = np.bincount(bins, confidence, minlength=NUM_BINS)
    means = np.minimum(sums / np.maximum(numbers, 1), 1.0)
    above = np.floor(sums) + 1
    deviations = 2 * above * (1 - means) * binom.pmf(above, numbers, means)
    return float(deviations.sum() / len(labels))


def _top(number: int, labels: NDArray, probabilities: NDArray, classes: bool) -> Array:
    """Returns whether the right class is among the first; the last class wins ties, as in scikit-learn."""
    if not classes:
        probabilities = np.stack([1 - probabilities, probabilities], axis=-1)
    right = _of_label(labels, probabilities, True)[..., None]
    later = np.arange(probabilities.shape[-1]) > labels[:, None]
    before = (probabilities > right) | ((probabilities == right) & later)
    return stack(right.shape[:-1], 1.0, before.sum(axis=-1) < number)


PROBABILITY_METRICS = (
    Metric(
        "ece",
        _probability_columns("ece", _calibration),
        lambda sums: ratio(np.abs(sums[..., 1:]).sum(axis=-1), sums[..., 0]),
        label="calibration error",
        meaning="Gap between confidence and accuracy.",
        higher_is_better=False,
        num_label_columns=1,
        uses="scores",
        bounds=(0.0, 1.0),
    ),
    mean_metric(
        "brier",
        _probability_columns("brier", _brier),
        label="Brier score",
        meaning="Mean squared error of the class probabilities.",
        higher_is_better=False,
        uses="scores",
        bounds=(0.0, 2.0),
    ),
    mean_metric(
        "log_loss",
        _probability_columns("log_loss", _log_loss),
        meaning="Mean negative log-probability of the right class.",
        higher_is_better=False,
        uses="scores",
        bounds=(0.0, float("inf")),
    ),
    *(
        mean_metric(
            f"top_{number}_accuracy",
            _probability_columns(f"top_{number}_accuracy", partial(_top, number)),
            label=f"top-{number} accuracy",
            unit="%",
            meaning=f"Share whose right class is among the {number} likeliest.",
            whole=True,
            uses="scores",
            bounds=(0.0, 1.0),
        )
        for number in (2, 3, 5)
    ),
)


@dataclass(frozen=True)
class ReliabilityBin:
    """Answers with a confidence in (low, high].

    Attributes:
      low: lower limit of the confidence, the probability of the predicted class.
      confidence: mean confidence; NaN without answers.
      accuracy: share of right answers; NaN without answers.
    """

    low: float
    high: float
    examples: int
    confidence: float
    accuracy: float


def reliability(labels: ArrayLike, logits: ArrayLike) -> list[ReliabilityBin]:
    """Computes the reliability table of one run, in the bins of `ece` (Guo et al., 2017, section 2).

    The mean over examples of their bins' |accuracy - confidence| is `ece`.

    Args:
      labels: index of the right class [examples].
    """
    probabilities = softmax(logits)
    confidence: NDArray = probabilities.max(axis=-1)
    right = probabilities.argmax(axis=-1) == np.asarray(labels)
    bins = np.searchsorted(BIN_EDGES, confidence, side="left") - 1
    number = len(BIN_EDGES) - 1
    examples = np.bincount(bins, minlength=number)
    with np.errstate(invalid="ignore"):
        means = np.bincount(bins, confidence, minlength=number) / examples
        accuracies = np.bincount(bins, right, minlength=number) / examples
    return [
        ReliabilityBin(
            float(BIN_EDGES[index]),
            float(BIN_EDGES[index + 1]),
            int(examples[index]),
            float(means[index]),
            float(accuracies[index]),
        )
        for index in range(number)
    ]


def is_calibratable(labels: NDArray, predictions: NDArray, scores: NDArray) -> bool:
    """Returns whether scores [examples, classes] are logits of the classes of labels and answers."""
    return (
        scores.shape[-1] > 1
        and bool(np.isfinite(scores).all())
        and bool(np.isin(labels, np.arange(scores.shape[-1])).all())
        and bool((scores.argmax(axis=-1) == predictions).all())
    )
