"""How often answers given with some confidence are right: the table behind a reliability diagram."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.evaluate.metrics.probability import BIN_EDGES, softmax


@dataclass(frozen=True)
class ReliabilityBin:
    """Answers whose confidence lies in (low, high].

    Attributes:
      low, high: of the confidence, the probability of the answer given.
      examples: how many.
      confidence: their mean confidence; NaN where there are none.
      accuracy: the share that is right; NaN where there are none.
    """

    low: float
    high: float
    examples: int
    confidence: float
    accuracy: float


def reliability(labels: ArrayLike, logits: ArrayLike) -> list[ReliabilityBin]:
    """The bins of one run, those that the metric `ece` uses (Guo et al., 2017, section 2).

    The mean over examples of |accuracy - confidence| of their bins is `ece`.

    Args:
      labels: index of the right class [examples].
      logits: [examples, classes].
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
            float(BIN_EDGES[place]),
            float(BIN_EDGES[place + 1]),
            int(examples[place]),
            float(means[place]),
            float(accuracies[place]),
        )
        for place in range(number)
    ]


def is_calibratable(labels: NDArray, predictions: NDArray, scores: NDArray) -> bool:
    """Whether scores [examples, classes] are logits of the classes that labels and answers are of."""
    return (
        scores.shape[-1] > 1
        and bool(np.isfinite(scores).all())
        and bool(np.isin(labels, np.arange(scores.shape[-1])).all())
        and bool((scores.argmax(axis=-1) == predictions).all())
    )
