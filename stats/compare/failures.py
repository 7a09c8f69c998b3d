"""Seeds whose training seems to have failed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.classification import CLASS_METRICS
from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.intervals import Interval, clopper_pearson_interval
from multiberts.stats.variance.crossing import Crossing
from multiberts.stats.variance.score_tables import Array

# Standard errors of a seed's score from which on it is far from chance.
_FAR_FROM_CHANCE = 10
# As rarely would a seed like the others score the same on every example of a set.
_RARE = 1e-3


def failures_of(
    job: ScoreJob, crossing: Crossing, scores: Array, confidence_level: float
) -> tuple[tuple, Interval | None, tuple]:
    """Returns the seeds of a job that look as if their training had failed, the rate, and constant seeds."""
    metric, labels = job.score, job.arm.labels
    chance, constant = float("nan"), _constant_seeds(job)
    if metric.name == "auc":
        chance = 0.5
    elif metric.is_correlation:
        chance = 0.0
    elif metric.name in CLASS_METRICS and isinstance(metric, Metric):
        classes, counts = np.unique(labels, return_counts=True)
        chance = float(metric.score(labels, np.full(len(labels), classes[np.argmax(counts)])))
    flags = failed_seeds(crossing, scores, chance, constant)
    failed, alike = (
        tuple(seed for seed, flag in zip(job.arm.seeds, found, strict=True) if flag)
        for found in (flags, constant)
    )
    # Where every seed is constant none stands out, and none can be said to have trained.
    shown = job.pool is not None and not alike and failures_show(crossing, scores, chance)
    if not failed and not shown:
        return failed, None, alike
    return failed, clopper_pearson_interval(len(failed), len(scores), confidence_level), alike


def _constant_seeds(job: ScoreJob) -> NDArray[np.bool_]:
    """Finds seeds all of whose runs give every example one answer [R]; see `ArmSummary`."""
    arm, metric = job.arm, job.score
    own = not metric.uses_labels and math.isfinite(metric.bounds[1])  # scores of answers
    of_class = metric.name in CLASS_METRICS and isinstance(metric, Metric)
    if not (own or of_class or metric.is_correlation or metric.name == "auc"):
        return np.zeros(len(arm.seeds), dtype=bool)
    of_seeds, predictions = arm.seed_weights > 0, arm.predictions  # [runs, seeds], [runs, examples]
    alike = (predictions == predictions[:, :1]).reshape(len(predictions), -1).all(axis=1)  # [runs]
    # A run whose answers are all right has not failed.
    if own:
        alike &= predictions[:, 0] != max(1, predictions.max())
    elif of_class and (arm.labels == arm.labels[0]).all():
        alike &= predictions[:, 0] != arm.labels[0]
    constant: NDArray[np.bool_] = ~(of_seeds & ~alike[:, None]).any(axis=0)
    if own and constant.all():
        # Scores that differ between seeds alone, such as one per seed, do not answer examples.
        return constant if (predictions == predictions[0, 0]).all() else ~constant
    if own:
        # Few hard examples can be all wrong by chance: the others must be right too often for that.
        others = predictions[of_seeds[:, ~constant].any(axis=1)]
        for place in np.flatnonzero(constant):
            value = predictions[np.flatnonzero(of_seeds[:, place])[0], 0]
            constant[place] = np.mean(others == value) ** arm.num_units < _RARE
    return constant


def failed_seeds(
    crossing: Crossing,
    scores: NDArray[np.float64],
    chance: float,
    constant: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """Finds seeds that look as if their training had failed [R].

    A seed is flagged by any of three rules:

    - It gives every example one answer, and other seeds do not.
    - Its score is nearer to chance than to the median seed and at least three robust standard
      deviations from the median, of three or more seeds. No seed is where chance lies within ten
      standard errors of a seed's score of the median, as seeds near chance look like failed ones.
    - It is nineteen robust standard deviations from the median, of five or more seeds: of five normal
      seeds one group in a hundred has such a seed.

    A robust standard deviation is 1.4826 times the median absolute deviation, and at least the
    standard error of a seed's score, from the residual.

    Args:
      crossing: of the arm.
      scores: of its seeds [R].
      chance: the score of always predicting the most frequent class; NaN where there is none.
      constant: where a seed gives every example one answer [R].
    """
    number = len(scores)
    flagged = np.zeros(number, dtype=bool)
    if constant is not None and not constant.all():
        flagged |= constant
    noise = _seed_noise(crossing)
    if number < 3 or noise is None:
        return flagged
    median = np.median(scores)
    far = np.abs(scores - median)
    spread = max(1.4826 * float(np.median(far)), noise)
    if abs(median - chance) > _FAR_FROM_CHANCE * noise:
        flagged |= (np.abs(scores - chance) < far) & (far > 3 * spread)
    if number >= 5:
        # Rounding errors between equal scores do not count as a distance.
        flagged |= far > 19 * spread + 1e-12 * float(np.abs(scores).max())
    return flagged


def failures_show(crossing: Crossing, scores: NDArray[np.float64], chance: float) -> bool:
    """Returns whether scores are so far from chance that each seed can be seen not to have failed.

    Args:
      crossing: as in `failed_seeds`.
      scores: as in `failed_seeds`.
      chance: as in `failed_seeds`.
    """
    noise = _seed_noise(crossing)
    return noise is not None and bool((np.abs(scores - chance) > _FAR_FROM_CHANCE * noise).all())


def _seed_noise(crossing: Crossing) -> float | None:
    """Returns the standard error that examples give a seed's score; None of one seed or example."""
    parts = crossing.deviations[0]
    degrees = (len(parts.seed) - 1) * (len(parts.example) - 1)
    if not degrees:
        return None
    return math.sqrt(parts.residual_squares / degrees / len(parts.example))
