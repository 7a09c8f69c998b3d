"""Scores of fine-tuning so far: per task and procedure their mean, their spread and seeds that collapsed."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike
from multiberts.runs.plan_marker import MarkedRun

if TYPE_CHECKING:
    from multiberts.stats.results.comparison import ArmSummary


@dataclass(frozen=True)
class TaskScores:
    """The last planned step of a procedure on a task.

    Attributes:
      task, procedure, step: as the plan has them; step and procedure are None where it does not know them.
      seeds, planned_seeds: pre-training seeds with a done run, and planned ones.
      evaluation_set: the first one with labels; empty where nothing is done.
      metric: its first metric; empty likewise. Scores are in its own unit, shares from 0 to 1.
      mean: over seeds of the means over their runs, of the learning rate that is best so far; None
        where nothing is done.
      spread: standard deviation over seeds; None of fewer than two.
      low, high: the lowest and the highest seed; None likewise.
      collapsed: seeds that look as if their training had failed (see
        `stats.compare.failures.failed_seeds`), or that give every example one answer.
      problem: why there is no score, in one line; empty where there is one.
    """

    task: str
    procedure: str | None
    step: int | None
    seeds: int
    planned_seeds: int
    evaluation_set: str = ""
    metric: str = ""
    mean: float | None = None
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    collapsed: tuple[str, ...] = ()
    problem: str = ""


def score_tasks(
    root: PathLike, plan: Sequence[MarkedRun], done: set[str]
) -> tuple[TaskScores, ...]:
    """Scores what is done of fine-tuning, from the predictions of done runs.

    Args:
      root: the experiment's root.
      plan: every run.
      done: paths of those that are done.
    """
    groups: dict[tuple[str, str | None], list[MarkedRun]] = {}
    for run in plan:
        if run.stage == "finetune":
            key = str(run.facts.get("task") or "?"), run.facts.get("procedure")
            groups.setdefault(key, []).append(run)
    return tuple(_scores(root, *key, members, done) for key, members in groups.items())


def _scores(
    root: PathLike, task: str, procedure: str | None, runs: Sequence[MarkedRun], done: set[str]
) -> TaskScores:
    steps = [run.facts.get("checkpoint_step") for run in runs]
    step = max((step for step in steps if step is not None), default=None)
    last = [run for run, at in zip(runs, steps, strict=True) if at == step]
    finished = [run for run in last if run.path in done]
    seeds, planned = (
        {run.facts.get("pretrain_seed") for run in found} for found in (finished, last)
    )
    row = functools.partial(TaskScores, task, procedure, step, len(seeds), len(planned))
    if not finished:
        return row()
    try:
        found = _summary(tuple(str(Path(root, run.path)) for run in finished))
    except UserError as error:
        return row(problem=str(error))
    if found is None:
        return row(problem="no evaluation set has labels")
    evaluation_set, metric, arm = found
    scores = [float(score) for score in arm.seed_scores]
    return row(
        evaluation_set,
        metric,
        statistics.fmean(scores),
        statistics.stdev(scores) if len(scores) > 1 else None,
        min(scores),
        max(scores),
        tuple(str(seed) for seed in arm.seeds if seed in {*arm.failed_seeds, *arm.constant_seeds}),
    )


@functools.lru_cache(maxsize=256)
def _summary(directories: tuple[str, ...]) -> tuple[str, str, ArmSummary] | None:
    """Returns the evaluation set, the metric and the scores of done runs, which never change.

    Raises:
      UserError: a file is damaged, or runs do not belong together.
    """
    from multiberts.evaluate.prediction_files.run_file import read_run
    from multiberts.stats.report.prediction_sets import compare_prediction_sets
    from multiberts.stats.report.selection import (
        FinishedRun,
        PredictionSetReader,
        choose_learning_rate,
        make_groups,
    )
    from multiberts.stats.settings import ComparisonSettings

    reader = PredictionSetReader()
    runs = [FinishedRun(Path(path), read_run(path)) for path in directories]
    group, _ = choose_learning_rate(make_groups(runs)[0], reader)
    for name, metrics in group.evaluation_sets().items():
        settings = ComparisonSettings(design="single", n_resamples=40)
        item = compare_prediction_sets(
            reader(group, name), None, metrics[0], settings, (group.name, ""), group.task
        )
        return name, item.metric, item.base
    return None
