"""Measures how long an experiment's runs took, in place of assumed times.

From `metrics.jsonl` of pre-training, the attempts of other runs, and `run.json`, which records the number
of examples.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiberts.bert.training.log import tail_of_metrics
from multiberts.launch.estimate.work import shape_of
from multiberts.launch.markers.attempts import Attempt
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_json_fields
from multiberts.runs.parameters import fits, shortened

Shape = tuple[Any, ...]


@dataclass(frozen=True)
class Measurements:
    """Measured facts of an experiment's runs.

    Attributes:
      seconds_per_step: pre-training's median seconds per step, by `launch.estimate.work.shape_of`.
      seconds_per_run: the other stages' median seconds per run, by the same shape.
      steps: finished updates of unfinished pre-training, by path.
      examples: numbers of training and predicted examples, by task and max_train_examples.
    """

    seconds_per_step: Mapping[Shape, float]
    seconds_per_run: Mapping[Shape, float]
    steps: Mapping[str, int]
    examples: Mapping[tuple[str, int | None], tuple[int, int]]


def measure(
    root: PathLike,
    plan: Sequence[PlannedRun],
    done: Collection[str],
    attempts: Mapping[str, Sequence[Attempt]],
    counts: Callable[[PlannedRun, str | None], bool],
) -> Measurements:
    """Collects measurements from an experiment's runs.

    Args:
      attempts: attempts by the path of the run, in order.
      counts: called with a run and its device's name (None: unknown); whether the run's time counts.
    """
    per_step: dict[Shape, list[float]] = {}
    per_run: dict[Shape, list[float]] = {}
    steps: dict[str, int] = {}
    examples: dict[tuple[Any, Any], tuple[int, int]] = {}
    for run in plan:
        of_run = attempts.get(run.path, ())
        is_counted = counts(run, of_run[-1].device if of_run else None)
        if run.stage == "pretrain":
            lines = tail_of_metrics(Path(root) / run.path / "metrics.jsonl")
            if lines and run.path not in done:
                steps[run.path] = int(lines[-1]["step"])
            rates = [line["steps_per_second"] for line in lines if line.get("steps_per_second")]
            rates = rates[1:] or rates  # the first rate includes compilation
            if rates and is_counted:
                per_step.setdefault(shape_of(run), []).append(1 / statistics.median(rates))
        elif run.path in done:
            key = (run.parameters.get("task"), run.parameters.get("max_train_examples"))
            if run.stage == "finetune" and key not in examples:
                numbers = examples_in(Path(root) / run.path / "run.json")
                if numbers is not None:
                    examples[key] = numbers
            took = [a.ended - a.started for a in of_run if a.ended and a.outcome == "done"]
            if took and is_counted:
                per_run.setdefault(shape_of(run), []).append(took[-1])
    return Measurements(
        {shape: statistics.median(seconds) for shape, seconds in per_step.items()},
        {shape: statistics.median(seconds) for shape, seconds in per_run.items()},
        steps,
        examples,
    )


def examples_in(path: Path) -> tuple[int, int] | None:
    """Returns the numbers of training and predicted examples in a run.json; None without one."""
    if not path.is_file():
        return None
    cure = "remove the run's directory, and it is made again"
    record = read_json_fields(path, {"evaluation_sets": Mapping[str, Mapping[str, Any]]}, cure)
    counts = [record.get("num_train_examples") or 0]
    counts += [entry.get("examples") for entry in record["evaluation_sets"].values()]
    if not fits(counts, list[int]):
        raise UserError(f"{path}: the numbers of examples are {shortened(counts)}; {cure}")
    return counts[0], sum(counts[1:])
