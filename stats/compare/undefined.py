"""Scores that are 0/0: arms that have none, and seeds whose score is the value defined for that."""

from __future__ import annotations

from multiberts.evaluate.metrics.answer_checks import why_undefined
from multiberts.evaluate.metrics.classification import CLASS_METRICS
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.errors import UndefinedScore
from multiberts.stats.metrics import FunctionMetric
from multiberts.stats.presentation.metric_names import metric_at_start, metric_name, score_text
from multiberts.stats.presentation.wording import seed_names


def undefined_why(job: ScoreJob) -> str:
    """Returns why the score of an arm is 0/0 in every run; nothing where some run has a score."""
    # The metric's own knowledge: a function of the caller has none.
    if isinstance(job.score, FunctionMetric) or not job.plain[1].all():
        return ""
    if not job.run_scores(None)[1].all():
        return ""
    return why_undefined(job.arm.labels, job.arm.predictions, job.arm.observed)


def undefined_seeds(job: ScoreJob) -> tuple:
    """Returns the seeds of which some run's score is 0/0, and so is the value defined for that."""
    return tuple(
        seed for seed, flag in zip(job.arm.seeds, job.plain[1][0].tolist(), strict=True) if flag
    )


def check_defined(name: str, job: ScoreJob) -> None:
    """Refuses an arm without a score.

    Args:
      name: of the arm.
      job: the bootstrap of its score.

    Raises:
      UndefinedScore: the score of every run is 0/0.
    """
    why = undefined_why(job)
    if not why:
        return
    metric = job.score.name
    instead = "accuracy" if metric in CLASS_METRICS else "mae" if job.score.is_correlation else ""
    raise UndefinedScore(
        f"{metric_name(metric)} of {name} is 0/0 in every seed ({why}); give examples "
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
