"""Averages of seeds' scores: the mean, and the median and interquartile mean that outliers hardly move.

Every average is the mean of a table of pseudo-values, so that the formulas of `stats.variance.crossing`
give its variance. Scores of seeds are winsorised: the quarter of the seeds at either end gets the score
of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.settings import Aggregate
from multiberts.stats.variance.score_tables import (
    Array,
    ScoreTable,
    aligned_blocks,
    deviations,
    residual_table,
)

# The standard error of the median of normal scores over that of the interquartile mean is at most this.
_MEDIAN_ERROR = 1.16


def over_seeds(scores: NDArray[np.float64], aggregate: Aggregate) -> NDArray[np.float64]:
    """Averages scores over the last axis.

    Args:
      scores: [..., R].
      aggregate: `mean`, `median`, or `iqm`: the mean without the R // 4 lowest and highest, which of
        two or three seeds is the mean.

    Returns:
      float64 [...].

    Example:
      >>> import numpy as np
      >>> from multiberts.stats.variance.aggregation import over_seeds
      >>> scores = np.array([0.1, 0.8, 0.8, 0.9, 0.9])
      >>> [round(float(over_seeds(scores, name)), 3) for name in ("mean", "median", "iqm")]
      [0.7, 0.8, 0.833]
    """
    if aggregate == "median":
        return np.asarray(np.median(scores, axis=-1))
    if aggregate == "iqm":
        number = scores.shape[-1]
        trimmed = number // 4
        scores = np.sort(scores, axis=-1)[..., trimmed : number - trimmed]
    return np.asarray(scores.mean(axis=-1))


def seed_freedom(num_seeds: int, aggregate: Aggregate) -> int:
    """Returns the degrees of freedom of the spread of seeds: those that are not winsorised, less one."""
    return num_seeds - 1 - (0 if aggregate == "mean" else 2 * (num_seeds // 4))


def aggregated_table(table: ScoreTable, aggregate: Aggregate) -> ScoreTable:
    """Returns pseudo-values [R, C] whose mean is the aggregate over seeds of their mean scores.

    Their seeds deviate as the winsorised scores do, in the scale of Yuen's standard error (times
    1.16 for the median); their examples as the seeds that the aggregate is the mean of.

    Args:
      table: [R, C].
      aggregate: see `over_seeds`; a table is returned as it is for `mean`.

    Reference: Yuen (1974), The two-sample trimmed t for unequal population variances.
    """
    if aggregate == "mean":
        return table
    found = deviations(table)
    scores = found.mean + found.seed
    number = len(scores)
    order, trimmed = np.argsort(scores, kind="stable"), number // 4
    ends = scores[order[trimmed]], scores[order[number - 1 - trimmed]]
    winsorised = np.clip(scores, *ends)
    kept = number - 2 * trimmed
    scale = np.sqrt(number * (number - 1) / (kept * (kept - 1)))
    if aggregate == "median" and number > 2:
        scale *= _MEDIAN_ERROR
    of_seeds = (winsorised - winsorised.mean()) * scale
    weights = np.zeros(number)
    middle = (number - 1) // 2 if aggregate == "median" else trimmed
    weights[order[middle : number - middle]] = 1 / (number - 2 * middle)
    centre = float(over_seeds(scores, aggregate)) + of_seeds[:, None]
    spread = np.sqrt(number * (weights @ weights))

    def blocks() -> Iterator[Array]:
        for block, residual in aligned_blocks(table, residual_table(table, found)):
            of_examples = weights @ (block - scores[:, None])
            yield centre + of_examples + spread * residual

    return ScoreTable(table.shape, blocks)
