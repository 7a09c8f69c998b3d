"""Seeds whose training seems to have failed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.classification import CLASS_METRICS
from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.interval_rule import clopper_pearson_interval
from multiberts.stats.intervals import Interval
from multiberts.stats.score import Score
from multiberts.stats.variance.crossing import Crossing
from multiberts.stats.variance.score_tables import Array

# Distances from chance in standard errors of a seed's score: above the first a seed is far from chance, below
# the second it is at chance.
_FAR_FROM_CHANCE, _AT_CHANCE = 10, 4
# Usual standard deviation of logits between seeds that train, and its degrees of freedom.
_USUAL_SPREAD, _USUAL_WEIGHT = 0.25, 2
# Minimum gap without a known chance level, in standard deviations of the other seeds.
_FAR_APART = 25
# A seed is constant only if a seed like the others would give equal scores with a lower probability.
_RARE = 1e-3
_SHARE = Score("", ends=(0.0, 1.0))


def failures_of(
    job: ScoreJob, crossing: Crossing, scores: Array, confidence_level: float
) -> tuple[tuple, Interval | None, tuple]:
    """Returns the seeds whose training seems to have failed, the failure rate, and the constant seeds."""
    chance, constant = _chance(job), _constant_seeds(job)
    known = Score.of(job.score)
    flags = failed_seeds(crossing, scores, chance, constant, known)
    failed, alike = (
        tuple(seed for seed, flag in zip(job.arm.seeds, flagged, strict=True) if flag)
        for flagged in (flags, constant)
    )
    # If every seed is constant, none is an outlier and none is known to have trained.
    shown = job.pool is not None and not alike and failures_show(crossing, scores, chance)
    if not failed and not shown:
        return failed, None, alike
    return failed, clopper_pearson_interval(len(failed), len(scores), confidence_level), alike


def _chance(job: ScoreJob) -> Interval | None:
    """Returns the scores of two guesses: each class equally often, and always the most frequent class."""
    metric = job.score
    if metric.name == "auc":
        return Interval(0.5, 0.5)
    if metric.is_correlation:
        return Interval(0.0, 0.0)
    if metric.name not in CLASS_METRICS or not isinstance(metric, Metric):
        return None
    labels = np.sort(job.arm.labels)
    classes, counts = np.unique(labels, return_counts=True)
    in_turn = classes[np.arange(len(labels)) % len(classes)]
    most_frequent = np.full(len(labels), classes[np.argmax(counts)])
    return Interval(
        *sorted(float(metric.score(labels, guess)) for guess in (in_turn, most_frequent))
    )


def _constant_seeds(job: ScoreJob) -> NDArray[np.bool_]:
    """Finds the seeds whose runs all give every example the same answer [R]; see `ArmSummary`."""
    arm, metric = job.arm, job.score
    is_score = not metric.uses_labels and math.isfinite(
        Score.of(metric).ends[1]
    )  # scores of answers
    of_class = metric.name in CLASS_METRICS and isinstance(metric, Metric)
    if not (is_score or of_class or metric.is_correlation or metric.name == "auc"):
        return np.zeros(len(arm.seeds), dtype=bool)
    of_seeds, predictions = arm.seed_weights > 0, arm.predictions  # [runs, seeds], [runs, examples]
    alike = (predictions == predictions[:, :1]).reshape(len(predictions), -1).all(axis=1)  # [runs]
    # Runs with only right answers have not failed.
    if is_score:
        low, high = min(0, predictions.min()), max(1, predictions.max())
        right = {True: (high,), False: (low,), None: (low, high)}[Score.of(metric).more_is_better]
        alike &= ~np.isin(predictions[:, 0], right)
    elif of_class and (arm.labels == arm.labels[0]).all():
        alike &= predictions[:, 0] != arm.labels[0]
    constant: NDArray[np.bool_] = ~(of_seeds & ~alike[:, None]).any(axis=0)
    if is_score and constant.all():
        # Scores that differ only between seeds, such as one score per seed, are not answers to examples.
        return constant if (predictions == predictions[0, 0]).all() else ~constant
    if is_score:
        # A seed can answer a few hard examples all wrong by chance, unless the other seeds are often right.
        others = predictions[of_seeds[:, ~constant].any(axis=1)]
        for column in np.flatnonzero(constant):
            value = predictions[np.flatnonzero(of_seeds[:, column])[0], 0]
            constant[column] = np.mean(others == value) ** arm.num_units < _RARE
    return constant


def failed_seeds(
    crossing: Crossing,
    scores: NDArray[np.float64],
    chance: Interval | None,
    constant: NDArray[np.bool_] | None = None,
    known: Score = _SHARE,
) -> NDArray[np.bool_]:
    """Finds seeds whose training seems to have failed [R].

    A seed is flagged by any of three rules:

    - The seed gives every example the same answer, and other seeds do not.
    - The seed is at chance (within four standard errors of a seed's score), as are fewer than half of the
      seeds; the median is ten or more standard errors from chance; and the gap to the m other seeds exceeds
      1.5 + 13 / m of their standard deviations. Gaps are on the logit scale of the score's range. The
      standard deviation is pooled with a usual one (0.25, 2 degrees of freedom), because two or three seeds
      are often close by chance.
    - No chance level is known, and the seed is among fewer than half of at least five seeds, beyond a gap of
      more than 25 standard deviations of the other seeds, on the worse side if one is known.

    A standard deviation is never below a seed's standard error from examples (from the residual).

    Args:
      scores: score of each seed [R].
      chance: range of the scores of guessing; None if unknown.
      constant: whether a seed gives every example the same answer, bool [R].
    """
    flagged = np.zeros(len(scores), dtype=bool)
    if constant is not None and not constant.all():
        flagged |= constant
    noise, others = _seed_noise(crossing), ~flagged
    if noise is None or others.sum() < 3:
        return flagged
    if chance is None:
        if others.sum() >= 5:
            flagged[others] = _beyond_a_gap(scores[others], noise, known.more_is_better)
        return flagged
    at_chance = np.maximum(chance.low - scores, scores - chance.high) <= _AT_CHANCE * noise
    failed, trained = others & at_chance, others & ~at_chance
    middle, number = float(np.median(scores[others])), int(trained.sum())
    far = max(chance.low - middle, middle - chance.high) > _FAR_FROM_CHANCE * noise
    if far and failed.any() and failed.sum() < number:
        logits, slope = _logits(scores, known.ends, len(crossing.deviations[0].example))
        variance = float(logits[trained].var(ddof=1))
        pooled = _USUAL_WEIGHT * _USUAL_SPREAD**2 + (number - 1) * variance
        spread = math.sqrt(pooled / (_USUAL_WEIGHT + number - 1))
        spread = max(spread, noise * float(np.median(slope[trained])))
        gap = np.abs(logits[trained][:, None] - logits[failed]).min()
        if gap > (1.5 + 13 / number) * spread:
            flagged |= failed
    return flagged


def _beyond_a_gap(
    scores: NDArray[np.float64], noise: float, more_is_better: bool | None
) -> NDArray[np.bool_]:
    """Finds the seeds on the smaller side of the widest gap between scores, if it is wide enough [R]."""
    order = np.argsort(scores)
    below = 1 + int(np.argmax(np.diff(scores[order])))
    sides = order[:below], order[below:]
    few, many = sorted(sides, key=len)
    beyond = np.zeros(len(scores), dtype=bool)
    if more_is_better is (few is sides[1]):  # better than the others
        return beyond
    gap = scores[order[below]] - scores[order[below - 1]]
    # Rounding errors between equal scores are not a gap.
    least = _FAR_APART * max(float(scores[many].std(ddof=1)), noise) + 1e-12 * np.abs(scores).max()
    beyond[few] = gap > least
    return beyond


def _logits(
    scores: NDArray[np.float64], bounds: tuple[float, float], number: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns logits of scores (as shares, clipped half an example from the bounds), and slopes."""
    low, high = bounds
    share = np.clip((scores - low) / (high - low), 0.5 / number, 1 - 0.5 / number)
    return np.log(share / (1 - share)), 1 / ((high - low) * share * (1 - share))


def failures_show(crossing: Crossing, scores: NDArray[np.float64], chance: Interval | None) -> bool:
    """Returns whether all seeds are so far from chance that none can have failed."""
    noise = _seed_noise(crossing)
    if noise is None or chance is None:
        return False
    off = np.maximum(chance.low - scores, scores - chance.high)
    return bool((off > _FAR_FROM_CHANCE * noise).all())


def _seed_noise(crossing: Crossing) -> float | None:
    """Returns a seed's standard error from examples; None with one seed or one example."""
    parts = crossing.deviations[0]
    degrees = (len(parts.seed) - 1) * (len(parts.example) - 1)
    if not degrees:
        return None
    return math.sqrt(parts.residual_squares / degrees / len(parts.example))
