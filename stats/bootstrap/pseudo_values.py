"""The table of scores [seeds, examples] of an arm under a metric, computed block by block.

For a metric that is a mean, a cell is the example's score. For any other metric it is a pseudo-value: the
run's score plus the example's influence on it (infinitesimal jackknife). The same variance formulas then
give the delta method's variance. For plain functions the influence is computed by leaving examples out
(jackknife).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.stats.bootstrap.replicates import Columns, FunctionScores, ScoreJob
from multiberts.stats.errors import DataError
from multiberts.stats.metrics import FunctionMetric, MetricLike
from multiberts.stats.runs_table import Arm
from multiberts.stats.variance.score_tables import Array, ScoreTable, clustered_table, score_table

# Largest number of left-out units, because a function is called once per unit and run.
_MAX_UNITS = 1000
# Bytes up to which pseudo-values are cached; larger ones are computed in each pass.
_BYTES_IN_MEMORY = 2**24
# Step of a numerical derivative, relative to the spread of the variable.
_RELATIVE_STEP = float(np.finfo(np.float64).eps) ** (1 / 3)
# Largest error of a derivative, relative to the score and its terms.
_DERIVATIVE_ERROR = 1e-7


def arm_table(arm: Arm, metric: MetricLike) -> ScoreTable:
    """Computes pseudo-values of an arm, averaged over the runs of each seed.

    Returns:
      A table [seeds, examples], or [seeds, clusters] if examples are drawn in clusters. The mean of a row
      is the seed's score.
    """
    return job_table(ScoreJob(arm, metric, None, None))


def job_table(job: ScoreJob) -> ScoreTable:
    """Computes `arm_table` of a job's arm and metric, from the job's cached columns."""
    arm = job.arm
    if isinstance(job.score, FunctionMetric):
        return score_table(arm.seed_weights.T @ _jackknife(arm, job.score))
    if isinstance(job.score, RankMetric):
        table = score_table(arm.seed_weights.T @ _rank_pseudo_values(arm, job.score))
    else:
        table = _column_table(arm, job.score, cast("Columns", job.run_scores))
    if arm.clusters is None:
        return table
    return score_table(clustered_table(table, arm.clusters))


def _rank_pseudo_values(arm: Arm, metric: RankMetric) -> Array:
    """Computes pseudo-values [runs, examples]; missing cells have no influence, and other cells more."""
    if arm.observed is None:
        scores = metric.score(arm.labels, arm.predictions)
        return scores[:, None] + metric.influence(arm.labels, arm.predictions)
    values = np.empty(arm.predictions.shape)
    for row, (predictions, seen) in enumerate(zip(arm.predictions, arm.observed, strict=True)):
        values[row] = metric.score(arm.labels[seen], predictions[seen])
        influence = metric.influence(arm.labels[seen], predictions[seen])
        values[row, seen] += influence * (len(seen) / int(seen.sum()))
    return values


def scored_counts(job: ScoreJob) -> tuple[float, ...]:
    """Counts the examples (or clusters) of each ratio in a score.

    Returns:
      Mean over runs for each non-empty ratio, such as the number of positives for recall, or one number per
      class of a macro average; empty if all examples count.
    """
    arm, metric = job.arm, job.score
    if isinstance(metric, FunctionMetric) or metric.scored is None:
        return ()
    if isinstance(metric, RankMetric):
        flags = metric.scored(arm.labels)
        if arm.clusters is not None:
            sums = np.zeros((arm.num_units, flags.shape[-1]))
            np.add.at(sums, arm.clusters, flags)
            flags = sums > 0
        counts = flags.sum(axis=0, dtype=np.float64)
    else:
        total: Array | float = 0.0  # [runs, shares]
        for block in cast("Columns", job.run_scores).example_columns():
            columns = np.stack(np.broadcast_arrays(*block), axis=-1)
            total = total + metric.scored(columns).sum(axis=-2)
        counts = np.mean(total, axis=0)
    return tuple(counts[counts > 0].tolist())


def _jackknife(arm: Arm, metric: FunctionMetric) -> Array:
    """Computes pseudo-values [runs, units] of a function by leaving out each unit in turn.

    Units are clusters or examples, or `_MAX_UNITS` random groups if there are more, because the function is
    called once per run and unit. A unit of m of n examples has the influence G (n - m) / n (score - score
    without it), which is exact for a mean.
    """
    codes = np.arange(arm.num_examples) if arm.clusters is None else arm.clusters
    if arm.num_units > _MAX_UNITS:
        shuffled = np.random.Generator(np.random.Philox(key=arm.num_units))
        codes = (shuffled.permutation(arm.num_units) % _MAX_UNITS)[codes]
    number = int(codes.max()) + 1
    scores = FunctionScores(arm, metric.function)
    values = np.empty((len(arm.run_seeds), number))
    everything = np.arange(arm.num_examples)
    for run, row in enumerate(values):
        seen = everything if arm.observed is None else np.flatnonzero(arm.observed[run])
        plain = scores.score(run, seen)
        row[:] = plain
        sizes = np.bincount(codes[seen], minlength=number)
        if sizes.max() == len(seen):
            raise DataError(
                f"{metric.name}: found all examples of a run in one group, expected two or more"
            )
        for unit in np.flatnonzero(sizes):
            without = scores.score(run, seen[codes[seen] != unit])
            row[unit] += number * (1 - sizes[unit] / len(seen)) * (plain - without)
        row += plain - row.mean()  # makes the mean of the row the score
    if not np.isfinite(values).all():
        raise DataError(
            f"{metric.name} returned {values[~np.isfinite(values)][0]} where examples were left out, "
            "expected a number; define its value where it is 0/0"
        )
    return values


def _column_table(arm: Arm, metric: Metric, columns: Columns) -> ScoreTable:
    """Makes the table of a metric of columns, block by block."""
    weights = arm.seed_weights.T  # [seeds, runs]
    shape = (len(weights), arm.num_examples)
    if metric.mean_of is not None and arm.observed is None:
        column = metric.mean_of
        return ScoreTable(
            shape, lambda: (weights @ block[column] for block in columns.example_columns())
        )
    score, means, gradient = _linearised(columns, arm.num_examples)

    def seed_values(block: list[Array]) -> Array:
        influence = np.zeros((len(score), block[0].shape[1]))  # [runs, block]
        size = np.repeat(np.abs(score)[:, None], influence.shape[1], axis=1)
        for column, values in enumerate(block):
            term = values - means[:, column, None]
            term *= gradient[:, column, None] * arm.num_examples
            influence += term
            size += np.abs(term, out=term)
        # Remove errors of the derivatives where terms cancel, such as if all answers are right.
        influence[np.abs(influence) < _DERIVATIVE_ERROR * size] = 0.0
        influence += score[:, None]
        return weights @ influence

    def blocks() -> Iterator[Array]:
        return map(seed_values, columns.example_columns())

    if 8 * shape[0] * shape[1] <= _BYTES_IN_MEMORY:
        in_memory = list(blocks())
        return ScoreTable(shape, lambda: iter(in_memory))
    return ScoreTable(shape, blocks)


def _linearised(columns: Columns, number: int) -> tuple[Array, Array, Array]:
    """Computes scores [runs], means of columns [runs, K], and derivatives by each sum [runs, K]."""
    finish, totals = columns.bound.finish, columns.totals()  # [runs, K]
    squares = np.zeros_like(totals)
    for block in columns.example_columns():
        for column, values in enumerate(block):
            squares[:, column] += np.einsum("rc,rc->r", values, values, dtype=np.float64)
    spreads = np.sqrt(np.maximum(squares / number - (totals / number) ** 2, 0.0))
    gradient = np.zeros_like(totals)
    for column in range(totals.shape[-1]):
        step = _RELATIVE_STEP * spreads[:, column] * number
        above, below = totals.copy(), totals.copy()
        above[:, column] += step
        below[:, column] -= step
        width = above[:, column] - below[:, column]
        # A constant column has no influence, whatever its derivative.
        moved = width > 0
        gradient[:, column] = np.where(
            moved, (finish(above) - finish(below)) / np.where(moved, width, 1), 0
        )
    return finish(totals), totals / number, gradient
