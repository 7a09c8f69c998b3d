"""Variances of a mean over seeds and examples: the bootstrap's, in closed form, and an unbiased
one.

X[i, j] is the score of seed i on example j, its runs averaged (see `stats.bootstrap.arm_scores` for metrics
that are no plain mean). These are the designs on arrays that a notebook has at hand;
`stats.bootstrap.crossing` has the general case.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.bootstrap.crossing import Crossing
from multiberts.stats.bootstrap.crossing import VarianceEstimate as VarianceEstimate
from multiberts.stats.bootstrap.score_tables import Part, Scores, score_table
from multiberts.stats.bootstrap.score_tables import Resample as Resample
from multiberts.stats.bootstrap.score_tables import ScoreTable as ScoreTable
from multiberts.stats.bootstrap.score_tables import clustered_table as clustered_table
from multiberts.stats.bootstrap.score_tables import deviations as deviations
from multiberts.stats.bootstrap.score_tables import difference_table as difference_table

Array = NDArray[np.float64]


def bootstrap_variance(scores: Scores, resample: Resample = "both") -> float:
    """The exact variance of the Multi-Bootstrap distribution of the mean of scores [R, C].

    For a paired comparison give the difference of the two tables.
    """
    return _crossing([scores], resample).bootstrap_variance()


def bootstrap_variance_unpaired(
    base: Scores,
    experiment: Scores,
    resample: Resample = "both",
    shared_examples: bool = True,
) -> float:
    """The exact variance of the bootstrap distribution of a difference whose arms draw their own
    seeds.

    Args:
      base: [R, C].
      experiment: [R', C]; [R', C'] without shared examples.
      resample: what is resampled.
      shared_examples: one draw of examples for both arms.
    """
    return _crossing([base, experiment], resample, shared_examples).bootstrap_variance()


def bootstrap_third_moment(scores: Scores, resample: Resample = "both") -> float:
    """The exact third central moment of the Multi-Bootstrap distribution of the mean of scores.

    Divided by the variance to the power 3/2 it is the skewness.

    Args:
      scores: [R, C]; for a paired comparison the difference of the two tables.
      resample: what is resampled.
    """
    return _crossing([scores], resample).bootstrap_third_moment()


def bootstrap_third_moment_unpaired(
    base: Scores,
    experiment: Scores,
    resample: Resample = "both",
    shared_examples: bool = True,
) -> float:
    """The same of a difference whose arms draw their own seeds.

    Args:
      base: [R, C].
      experiment: [R', C]; [R', C'] without shared examples.
      resample: what is resampled.
      shared_examples: one draw of examples for both arms.
    """
    return _crossing([base, experiment], resample, shared_examples).bootstrap_third_moment()


def influences(
    tables: Sequence[Scores], resample: Resample = "both", shared_examples: bool = True
) -> list[Array]:
    """How much each seed and each example moves the estimate, for `stats.bootstrap.intervals.acceleration`.

    Args:
      tables: one table [R, C] (of the difference where seeds are paired), or base and experiment.
      resample: what is resampled.
      shared_examples: base and experiment were scored on the same examples.

    Returns:
      One array for each independent sample: the seeds of each arm, then the examples.
    """
    return _crossing(tables, resample, shared_examples).influences()


def unbiased_variance(scores: Scores, resample: Resample = "both") -> VarianceEstimate:
    """An unbiased estimate of the true variance of the mean of scores [R, C].

    Seeds and examples are random samples, or one of them is held fixed. With mean squares A of
    seeds, B of examples and E of residuals, the estimate is (A + B - E) / (R C), never below A's or
    B's share alone. For a paired comparison give the difference of the two tables.

    Raises:
      DataError: what is resampled has one level only.
    """
    return _crossing([scores], resample).unbiased_variance()


def unbiased_variance_unpaired(
    base: Scores,
    experiment: Scores,
    resample: Resample = "both",
    shared_examples: bool = True,
) -> VarianceEstimate:
    """An unbiased estimate of the true variance of a difference whose arms have seeds of their own.

    Args:
      base: [R, C].
      experiment: [R', C]; [R', C'] without shared examples.
      resample: what varies; the other is held fixed.
      shared_examples: both arms were scored on the same examples.

    Raises:
      DataError: what is resampled has one level only.
    """
    return _crossing([base, experiment], resample, shared_examples).unbiased_variance()


def _crossing(
    tables: Sequence[Scores], resample: Resample, shared_examples: bool = True
) -> Crossing:
    """One table as it is, or the difference of two whose seeds are drawn apart."""
    signs = [1.0] if len(tables) == 1 else [-1.0, 1.0]
    return Crossing(
        [
            Part(
                score_table(table),
                sign,
                None if resample == "examples" else f"seeds {position}",
                None
                if resample == "seeds"
                else ("examples" if shared_examples else f"examples {position}"),
            )
            for position, (table, sign) in enumerate(zip(tables, signs, strict=True))
        ]
    )
