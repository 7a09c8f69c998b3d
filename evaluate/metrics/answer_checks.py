"""Looks at answers against labels before they are scored, and says where a score is none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import shown


def why_undefined(labels: NDArray, predictions: NDArray, observed: NDArray | None = None) -> str:
    """Returns why a score of all runs is 0/0, in words: one value stands for all labels or answers.

    Args:
      labels: [examples].
      predictions: [runs, examples].
      observed: bool [runs, examples], False where a prediction is missing; None if none is.

    Example:
      >>> why_undefined(np.array([0, 0, 0]), np.array([[0, 0, 0], [0, 0, 0]]))
      'all 3 labels and all predictions are 0'
      >>> why_undefined(np.array([0, 1]), np.array([[0, 0], [1, 1]]))
      'each run predicts one value throughout'
    """
    seen = np.ones(predictions.shape, dtype=bool) if observed is None else observed
    of_labels = {*labels[seen.any(axis=0)].tolist()}
    of_runs = [{*row[own].tolist()} for row, own in zip(predictions, seen, strict=True)]
    every = set().union(*of_runs)
    number = f"all {int(seen.any(axis=0).sum())} labels"
    if len(of_labels) == 1 and of_labels == every:
        return f"{number} and all predictions are {shown(every.pop())}"
    found = [f"{number} are {shown(of_labels.pop())}"] if len(of_labels) == 1 else []
    if len(every) == 1:
        found.append(f"all predictions are {shown(every.pop())}")
    elif max(map(len, of_runs)) == 1:
        found.append("each run predicts one value throughout")
    return " and ".join(found) or "there is nothing to divide by"
