"""Scores that are 0/0: arms that have none, and seeds whose score is the value defined for that."""

from __future__ import annotations

import numpy as np

from multiberts.evaluate.metrics.answer_checks import why_undefined
from multiberts.evaluate.metrics.classification import CLASS_METRICS
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.errors import UndefinedScore
from multiberts.stats.metric_names import metric_at_start, metric_name, score_text
from multiberts.stats.metrics import FunctionMetric
from multiberts.stats.presentation.words import seed_names

# Without a positive label these are 0 whatever is predicted, and 0/0 only where no positive is.
_OF_POSITIVES = ("f1", "f2", "f0_5", "precision")


def undefined_why(job: ScoreJob) -> str:
    """Returns why an arm has no score; nothing where some run has one."""
    arm = job.arm
    # The metric's own knowledge: a function of the caller has none.
    if isinstance(job.score, FunctionMetric):
        return ""
    if job.plain[1].all() and job.run_scores(None)[1].all():
        reason = why_undefined(arm.labels, arm.predictions, arm.observed)
        return f"it is 0/0 in every seed, as {reason}"
    if job.score.name in _OF_POSITIVES and not np.any(arm.labels == 1):
        return f"it is 0 whatever is predicted, as all {arm.num_examples} labels are 0"
    return ""


def undefined_seeds(job: ScoreJob) -> tuple:
    """Returns the seeds of which some run's score is 0/0, and so is the value defined for that."""
    return tuple(
        seed for seed, flag in zip(job.arm.seeds, job.plain[1][0].tolist(), strict=True) if flag
    )


def check_defined(name: str, job: ScoreJob) -> None:
    """Refuses an arm without a score.

    Raises:
      UndefinedScore: it has none.
    """
    why = undefined_why(job)
    if not why:
        return
    metric = job.score.name
    instead = "accuracy" if metric in CLASS_METRICS else "mae" if job.score.is_correlation else ""
    raise UndefinedScore(
        f"{metric_name(metric)} of {name} has no value: {why}; give examples "
        f"and runs that have a score{f', or another metric, such as {instead}' * bool(instead)}"
    )


def notes_of_undefined(job: ScoreJob) -> list[str]:
    """Says which seeds of an arm count with a defined value; `{arm}` stands for its name."""
    seeds = undefined_seeds(job)
    if not seeds:
        return []
    scores, flags = job.run_scores(None)
    value = score_text(float(scores[flags][0]), job.score.name)
    return [
        f"{metric_at_start(job.score.name)} of {{arm}} is 0/0 in {seed_names(seeds)} and "
        f"counts as {value} there."
    ]
