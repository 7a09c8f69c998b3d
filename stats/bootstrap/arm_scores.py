"""The table of scores [seeds, examples] of an arm under a metric, computed block by block.

For a metric that is a mean, a cell is the score of the example. For any other metric it is a
pseudo-value: the run's score plus the influence of the example on it (the infinitesimal jackknife),
so that the same variance formulas give the delta method's variance.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.stats.bootstrap.arms import Arm
from multiberts.stats.bootstrap.resampling import Columns
from multiberts.stats.bootstrap.score_tables import Array, ScoreTable, clustered_table, score_table

# The step of a numerical derivative, relative to the spread of the variable.
_RELATIVE_STEP = float(np.finfo(np.float64).eps) ** (1 / 3)


def arm_table(arm: Arm, metric: Metric | RankMetric, columns: Columns | None = None) -> ScoreTable:
    """Computes pseudo-values of an arm, averaged over the runs of each seed.

    Args:
      arm: runs of one procedure.
      metric: their score.
      columns: of the metric, where they have been computed already.

    Returns:
      A table [seeds, examples], or [seeds, clusters] where examples are drawn in clusters. The
      mean of a row is the seed's score.
    """
    if isinstance(metric, RankMetric):
        table = score_table(arm.seed_weights.T @ _rank_pseudo_values(arm, metric))
    else:
        table = _ColumnTable(arm, metric, columns or Columns(arm, metric))
    if arm.clusters is None:
        return table
    return score_table(clustered_table(table, arm.clusters))


def _rank_pseudo_values(arm: Arm, metric: RankMetric) -> Array:
    """Computes pseudo-values [runs, examples]; missing cells have no influence, others more."""
    if arm.observed is None:
        scores = metric.score(arm.labels, arm.predictions)
        return scores[:, None] + metric.influence(arm.labels, arm.predictions)
    values = np.empty(arm.predictions.shape)
    for row, (predictions, seen) in enumerate(zip(arm.predictions, arm.observed, strict=True)):
        values[row] = metric.score(arm.labels[seen], predictions[seen])
        influence = metric.influence(arm.labels[seen], predictions[seen])
        values[row, seen] += influence * (len(seen) / int(seen.sum()))
    return values


class _ColumnTable:
    """`ScoreTable` of a metric of columns."""

    def __init__(self, arm: Arm, metric: Metric, columns: Columns):
        self._columns = columns
        self._weights = arm.seed_weights.T  # [seeds, runs]
        self._num_examples = arm.num_examples
        self._mean_of = metric.mean_of if arm.observed is None else None
        if self._mean_of is None:
            self._linearise()

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._weights), self._num_examples

    def _linearise(self) -> None:
        """Computes the scores [runs] and the derivative of the score by each sum [runs, K]."""
        bound, number = self._columns.bound, self._num_examples
        totals = self._columns.totals()  # [runs, K]
        squares = np.zeros_like(totals)
        for block in self._columns.example_columns():
            for column, values in enumerate(block):
                squares[:, column] += np.einsum("rc,rc->r", values, values, dtype=np.float64)
        spreads = np.sqrt(np.maximum(squares / number - (totals / number) ** 2, 0.0))
        self._score = bound.finish(totals)
        self._means = totals / number
        self._gradient = np.zeros_like(totals)
        for column in range(totals.shape[-1]):
            step = _RELATIVE_STEP * spreads[:, column] * number
            above, below = totals.copy(), totals.copy()
            above[:, column] += step
            below[:, column] -= step
            width = above[:, column] - below[:, column]
            # A column without spread has no influence, whatever its derivative.
            moved = width > 0
            difference = bound.finish(above) - bound.finish(below)
            self._gradient[:, column] = np.where(moved, difference / np.where(moved, width, 1), 0)

    def blocks(self) -> Iterator[Array]:
        for block in self._columns.example_columns():
            if self._mean_of is not None:
                yield self._weights @ block[self._mean_of]
                continue
            values = np.repeat(self._score[:, None], block[0].shape[1], axis=1)  # [runs, block]
            for column, found in enumerate(block):
                centred = found - self._means[:, column, None]
                values += centred * (self._gradient[:, column, None] * self._num_examples)
            yield self._weights @ values
