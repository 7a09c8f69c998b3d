"""The part of a calibration error that is chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from multiberts.evaluate.metrics.probability import calibrated_ece
from multiberts.stats.metric_names import difference_text, score_text
from multiberts.stats.metrics import MetricLike
from multiberts.stats.runs_table import Arm

_DECIMALS = 3


def notes_of_calibration(
    metric: MetricLike, arms: Sequence[Arm], names: Sequence[str]
) -> list[str]:
    """Notes of an expected calibration error what calibrated models would show; nothing of other metrics.

    Args:
      arms: one, base and experiment, or many.
      names: of the arms, for readers.
    """
    if metric.name != "ece":
        return []
    by_chance = [_by_chance(arm) for arm in arms]
    shown = " and ".join(score_text(value, metric.name, _DECIMALS) for value in by_chance)
    models = "a perfectly calibrated model" if len(arms) == 1 else "perfectly calibrated models"
    text = (
        f"The calibration error (ECE) counts chance, too: on these examples {models} with the confidences of "
        f"{' and '.join(names)} would show {shown} on average."
    )
    if len(arms) == 1:
        return [
            f"{text} The interval is of such a biased score: {names[0]} is shown to be miscalibrated only "
            f"where all of it lies above {shown}."
        ]
    of_difference = ""
    if len(arms) == 2:
        bias = difference_text(by_chance[1] - by_chance[0], metric.name, _DECIMALS)
        of_difference = f", and of the difference {bias} is there without any miscalibration"
    return [
        f"{text} Intervals are of such biased scores: an arm is shown to be miscalibrated only where all of "
        f"its own lies above its number{of_difference}."
    ]


def _by_chance(arm: Arm) -> float:
    """Returns the error of calibrated models with the confidences of an arm, over its runs and seeds."""
    seen = arm.observed
    runs = np.array(
        [
            calibrated_ece(arm.labels, values)
            if seen is None
            else calibrated_ece(arm.labels[seen[run]], values[seen[run]])
            for run, values in enumerate(arm.predictions)
        ]
    )
    return float((arm.seed_weights.T @ runs).mean())
