"""Detects slices that may have been made from one arm's answers, so that their differences are artefacts.

An arm gets some examples wrong by chance. On these the other arm is better even if both are equally good, by
regression to the mean (Galton 1886). The data do not show how slices were made, but slices made from the
answers of an arm, or of one of its runs, are predicted better by these than by the other arm's answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.stats.bootstrap.replicates import Columns
from multiberts.stats.metrics import MetricLike
from multiberts.stats.runs_table import Arm
from multiberts.stats.variance.score_tables import Array

# Warn if one arm's answers predict the slices with at least this accuracy (see `_share_told`),
_TELLS = 0.95
# and with at least this advantage over the other arm's.
_LESS = 0.1
# Number of groups of equal size for scores with more distinct values.
_MOST_VALUES = 12


def arm_behind(arms: Sequence[Arm], metric: MetricLike, names: NDArray) -> int | None:
    """Returns the index of the arm that alone predicts the slices [examples] by its answers, or None.

    Examples:
      >>> from multiberts.evaluate.metrics.register import METRICS
      >>> from multiberts.stats.runs_table import make_arm
      >>> random = np.random.default_rng(0)
      >>> runs = (random.random((2, 2, 400)) < 0.7).astype(int)
      >>> base, experiment = (make_arm("arm", table, np.ones(400), [0, 1]) for table in runs)
      >>> hard = np.where(base.predictions[0] == 0, "hard", "easy")
      >>> arm_behind([base, experiment], METRICS["accuracy"], hard)
      0
    """
    slices = np.unique(names, return_inverse=True)[1]
    told = [_share_told(_answers(arm, metric), slices) for arm in arms]
    if len(told) < 2 or max(told) < _TELLS or max(told) - min(told) < _LESS:
        return None
    return int(np.argmax(told))


def _answers(arm: Arm, metric: MetricLike) -> Array:
    """Returns the score of each run on each example, and the mean over runs [runs + 1, examples]."""
    if isinstance(metric, Metric) and metric.mean_of is not None:
        blocks = [block[metric.mean_of] for block in Columns(arm, metric).example_columns()]
        scores = np.concatenate(blocks, axis=1).astype(np.float64)
    elif metric.uses_labels and arm.predictions.ndim == 2:
        scores = (arm.predictions == arm.labels).astype(np.float64)
    else:
        return np.zeros((0, arm.num_examples))
    return np.concatenate([scores, arm.seed_weights.mean(axis=1)[None] @ scores])


def _share_told(answers: Array, slices: NDArray[np.int64]) -> float:
    """Returns the accuracy of the best row as a predictor of slices, from 0 (largest slice) to 1."""
    largest = np.bincount(slices).max() / len(slices)
    best = 0.0
    for row in answers:
        values, codes = np.unique(row.round(9), return_inverse=True)  # means of runs are rounded
        if len(values) > _MOST_VALUES:
            codes = row.argsort().argsort() * _MOST_VALUES // len(row)
        table = np.zeros((codes.max() + 1, slices.max() + 1))
        np.add.at(table, (codes, slices), 1)
        best = max(best, float(table.max(axis=1).sum()) / len(slices))
    return float((best - largest) / (1 - largest))
