"""Paired answers of two arms to the same examples: number of differing examples, shares gained and lost.

Only answers of both arms are compared, so missing cells and weights of clusters do not change the number of
differing examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.stats.bootstrap.replicates import Columns, ScoreJob
from multiberts.stats.interval_rule import FEW_DISCORDANT, AnswerPairs
from multiberts.stats.runs_table import Arm
from multiberts.stats.variance.score_tables import (
    Array,
    ScoreTable,
    TablePart,
    aligned_blocks,
    clustered_table,
    score_table,
)

# Tolerance for rounding errors from averaging runs, relative.
_ROUNDING = 1e-12


def paired_answers(base: ScoreJob, experiment: ScoreJob) -> AnswerPairs | None:
    """Pairs the answers of two arms; None if they cannot be paired.

    Seeds that are drawn together are paired; if an arm's seeds are held fixed, its mean answer counts.
    There are no pairs if the arms draw seeds separately, if examples are held fixed, or if a seed's arms
    have no common example because of missing cells.
    """
    if base.examples is None or base.examples != experiment.examples:
        return None
    if None not in (base.pool, experiment.pool) and base.pool != experiment.pool:
        return None
    metric = experiment.score
    if not isinstance(metric, Metric) or metric.mean_of is None:
        return AnswerPairs(_number_unlike(base.arm, experiment.arm), None)
    differences = _differences(base, experiment)
    if any(job.arm.observed is not None for job in (base, experiment)):
        paired = [(~np.isnan(block)).any(axis=1) for block in differences.blocks()]  # [seeds] each
        if not np.any(paired, axis=0).all():
            return None
    return AnswerPairs(
        _number_unequal(differences, experiment.arm),
        partial(_gained_and_lost, differences, experiment),
    )


def _differences(base: ScoreJob, experiment: ScoreJob) -> ScoreTable:
    """Returns the differences of example scores [seeds, examples]; NaN if an arm lacks one."""
    first, second = _example_scores(base), _example_scores(experiment)

    def blocks() -> Iterator[Array]:
        for left, right in aligned_blocks(first, second):
            difference = right - left
            size = np.abs(left) + np.abs(right)
            yield np.where(np.abs(difference) <= _ROUNDING * size, 0.0, difference)

    return ScoreTable((max(first.shape[0], second.shape[0]), first.shape[1]), blocks)


def _example_scores(job: ScoreJob) -> ScoreTable:
    """Returns the scores of examples [seeds, examples], or [1, examples] if the seeds are held fixed.

    Observed runs are averaged; NaN if there are none.
    """
    arm, metric = job.arm, cast("Metric", job.score)
    weights = arm.seed_weights.T  # [seeds, runs]
    if job.pool is None:
        weights = weights.mean(axis=0, keepdims=True)
    columns = cast("Columns", job.run_scores)

    def blocks() -> Iterator[Array]:
        start = 0
        for block in columns.example_columns():
            sums = weights @ block[cast("int", metric.mean_of)]
            if arm.observed is not None:
                seen = weights @ arm.observed[:, start : start + sums.shape[1]]
                sums = np.where(seen > 0, sums / np.where(seen > 0, seen, 1.0), np.nan)
            start += sums.shape[1]
            yield sums

    return ScoreTable((len(weights), arm.num_examples), blocks)


def _number_unequal(differences: ScoreTable, arm: Arm) -> int:
    """Counts units that differ in any row, up to `FEW_DISCORDANT`."""
    units: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    start = 0
    for block in differences.blocks():
        unequal = start + np.flatnonzero((np.nan_to_num(block) != 0).any(axis=0))
        units = np.union1d(units, unequal if arm.clusters is None else arm.clusters[unequal])
        start += block.shape[1]
        if len(units) >= FEW_DISCORDANT:
            break
    return min(len(units), FEW_DISCORDANT)


def _number_unlike(base: Arm, experiment: Arm) -> int:
    """Counts units with different answers of the arms' runs, up to `FEW_DISCORDANT`.

    Used for scores that are not a mean over examples.
    """
    groups = [{*base.seeds, *experiment.seeds}]
    if base.seeds == experiment.seeds:
        groups = [{seed} for seed in base.seeds]
    unlike = np.zeros(base.num_examples, dtype=bool)
    for group in groups:
        answers, seen = (
            np.concatenate(rows)
            for rows in zip(*(_runs_of(arm, group) for arm in (base, experiment)), strict=True)
        )
        first = answers[seen.argmax(axis=0), np.arange(answers.shape[1])]
        different = answers != first
        if different.ndim == 3:
            different = different.any(axis=2)
        unlike |= (different & seen).any(axis=0)
    number = int(unlike.sum())
    if base.clusters is not None:
        number = len(np.unique(base.clusters[unlike]))
    return min(number, FEW_DISCORDANT)


def _runs_of(arm: Arm, seeds: set) -> tuple[NDArray, NDArray[np.bool_]]:
    """Returns the answers of runs of some seeds, and whether they exist, both [runs, examples]."""
    rows = [row for row, seed in enumerate(arm.run_seeds) if seed in seeds]
    answers = arm.predictions[rows]
    observed = np.ones(answers.shape[:2], bool) if arm.observed is None else arm.observed[rows]
    return answers, observed


def _gained_and_lost(differences: ScoreTable, job: ScoreJob) -> tuple[TablePart, TablePart]:
    """Makes the tables of answers gained and lost [seeds, units], as parts of the job's crossing."""
    arm = job.arm
    rows = np.concatenate(list(differences.blocks()), axis=1)
    seen = ~np.isnan(rows)
    numbers = seen.sum(axis=1, keepdims=True)
    parts = []
    for sign in (1.0, -1.0):
        values = np.where(seen, np.maximum(sign * rows, 0.0), 0.0)
        if not seen.all():
            # Set missing cells to the seed's mean and scale the other deviations, so that the mean is
            # unchanged.
            means = values.sum(axis=1, keepdims=True) / numbers
            values = np.where(seen, means + (values - means) * rows.shape[1] / numbers, means)
        if arm.clusters is not None:
            values = clustered_table(values, arm.clusters)
        parts.append(
            TablePart(score_table(values), 1.0, job.pool, job.examples, sizes=arm.cluster_sizes)
        )
    gained, lost = parts
    return gained, lost
