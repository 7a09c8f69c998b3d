"""Status of an experiment: an immutable picture, collected from its markers alone.

It needs neither the launcher nor its machine, only the files below the root, and imports nothing heavy.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiberts.launch.markers.attempts import (
    ENGINES_WITHOUT_LAUNCHER,
    Attempt,
    attempts_of,
    orphaned,
)
from multiberts.launch.markers.failures import last_lines
from multiberts.launch.markers.lease import Lease
from multiberts.launch.plan.planned_run import STAGES
from multiberts.launch.status.progress import (
    Pretraining,
    dollars_of,
    pretraining_of,
    seconds_of,
    steps_before,
)
from multiberts.launch.status.task_scores import TaskScores, score_tasks
from multiberts.runs.command_line.command import gin_name_of
from multiberts.runs.console import printable
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike
from multiberts.runs.lease_holder import Holder
from multiberts.runs.plan_marker import MarkedRun, done_paths, read_plan, unplanned_directories

# States of a run:
#   done      its DONE marker is there
#   running   an attempt goes on
#   retrying  the last attempt was preempted, or lost under a launcher that is there: there will be another
#   lost      the last attempt stopped without an exit status, and no launcher is running to retry it
#   failed    the last attempt ended with an error; a launcher that is there may yet try again
#   waiting   for runs before it, for a free worker, or for the next launch
#   blocked   a run before it has failed
STATES = ("done", "running", "retrying", "waiting", "blocked", "lost", "failed")

LINES_OF_LOG = 12
FAILURES_WITH_LOG = 200

# Stages that write a page, `index.html`.
REPORT_STAGES = ("report",)
# Stages that are made again as runs are added; each time in a directory with another digest.
_RENEWED_STAGES = ("score", *REPORT_STAGES)


@dataclass(frozen=True)
class StageCount:
    """Numbers of a stage's runs by state; `counts` has every state."""

    stage: str
    total: int
    counts: Mapping[str, int]

    @property
    def command(self) -> str:
        """Name of the stage's command."""
        return gin_name_of(self.stage).replace("_", "-")


@dataclass(frozen=True)
class Cell:
    """One checkpoint on one task: how many of its fine-tuning runs are in which state."""

    total: int
    counts: Mapping[str, int]

    @property
    def done(self) -> int:
        """Runs that are done."""
        return self.counts["done"]

    @property
    def words(self) -> str:
        """Returns all that is known: `12 done, 3 running, 5 waiting`."""
        return ", ".join(f"{self.counts[state]} {state}" for state in STATES if self.counts[state])


@dataclass(frozen=True)
class SweepRow:
    """All fine-tuning of one checkpoint.

    Attributes:
      name: for people.
      procedure, pretrain_seed, step: which checkpoint; None where the plan does not know.
      cells: by task.
    """

    name: str
    procedure: str | None
    pretrain_seed: int | None
    step: int | None
    cells: Mapping[str, Cell]

    @property
    def label(self) -> str:
        """Returns the checkpoint without its step, for people."""
        return (
            self.name if self.procedure is None else f"{self.procedure} seed {self.pretrain_seed}"
        )


@dataclass(frozen=True)
class FailureRow:
    """A run whose last attempt ended with an error.

    Attributes:
      path, name, stage: of the run.
      attempts: how many there were.
      ended: Unix seconds.
      kind, message: of the error.
      log: the log file, relative to the root, or None.
      log_lines: its last lines; none where it cannot be read here, and after the first
        `FAILURES_WITH_LOG` failures.
    """

    path: str
    name: str
    stage: str
    attempts: int
    ended: float
    kind: str
    message: str
    log: str | None
    log_lines: tuple[str, ...]


@dataclass(frozen=True)
class Status:
    """An experiment at one moment.

    Attributes:
      root: as it was given.
      time: Unix seconds.
      planned: when the plan was written, Unix seconds.
      launcher: who launches it now; None if nobody does.
      stages: counts, in the order of the pipeline.
      pretraining: one row a run, in the order of the plan.
      tasks: columns of the sweep.
      sweep: one row a checkpoint, in the order of the plan.
      failures: in the order of the plan.
      interrupted: attempts that ended otherwise than done, or fell silent, the newest first.
      orphans: living attempts whose launcher is gone, or that no plan names.
      unplanned: run directories that no plan names, relative to the root.
      hours, dollars: of all attempts; dollars are None where no price is known.
      reports: done reports, directories relative to the root, in the order of the plan.
      scores: of fine-tuning so far, by task and procedure; None where they were not asked for.
    """

    root: str
    time: float
    planned: float
    launcher: Holder | None
    stages: tuple[StageCount, ...]
    pretraining: tuple[Pretraining, ...]
    tasks: tuple[str, ...]
    sweep: tuple[SweepRow, ...]
    failures: tuple[FailureRow, ...]
    interrupted: tuple[Attempt, ...]
    orphans: tuple[Attempt, ...]
    unplanned: tuple[str, ...]
    hours: float
    dollars: float | None
    reports: tuple[str, ...]
    scores: tuple[TaskScores, ...] | None

    @property
    def counts(self) -> dict[str, int]:
        """Runs of all stages by state."""
        return {state: sum(stage.counts[state] for stage in self.stages) for state in STATES}

    @property
    def total(self) -> int:
        """Planned runs."""
        return sum(stage.total for stage in self.stages)


def collect_status(
    root: PathLike, now: float | None = None, *, with_scores: bool = False
) -> Status:
    """Looks at an experiment.

    Args:
      root: the experiment's root.
      now: Unix seconds; None: the clock's.
      with_scores: whether to score fine-tuning so far, for which predictions are read.

    Raises:
      UserError: nothing was launched there, or the marker of the plan is damaged.
    """
    now = time.time() if now is None else now
    plan = read_plan(root)
    paths = {run.path for run in plan}
    attempts = attempts_of(root)
    done = done_paths(root, paths)
    holder = Lease.held(root)
    alive = {
        path: found[-1]
        for path, found in attempts.items()
        if path not in done and found[-1].is_alive(now)
    }
    states = {
        run.path: _state(run, done, alive, attempts.get(run.path, ()), holder is not None)
        for run in plan
    }
    for run in plan:
        if states[run.path] == "waiting":
            before = {states.get(path) for path in run.parents}
            states[run.path] = "blocked" if before & {"failed", "blocked"} else "waiting"
    every = [attempt for found in attempts.values() for attempt in found]
    tasks, sweep = _sweep(plan, states)
    by_path = {run.path: run for run in plan}
    pretraining = tuple(
        pretraining_of(
            root,
            run,
            states[run.path],
            attempts.get(run.path, ()),
            now,
            steps_before(run, by_path),
        )
        for run in plan
        if run.stage == "pretrain"
    )
    status = Status(
        root=str(root),
        time=now,
        planned=os.stat(Path(root) / "launch" / "plan.json").st_mtime,
        launcher=holder,
        stages=_stage_counts(plan, states),
        pretraining=pretraining,
        tasks=tasks,
        sweep=sweep,
        failures=_failures(root, plan, states, attempts),
        interrupted=tuple(_interrupted(every, now)),
        orphans=tuple(orphaned(alive.values(), paths, holder)),
        unplanned=tuple(
            path for path in unplanned_directories(root, paths) if not _is_earlier(path, plan)
        ),
        hours=sum(seconds_of(attempt, now) for attempt in every) / 3600,
        dollars=dollars_of(every, now),
        reports=tuple(run.path for run in plan if run.stage in REPORT_STAGES and run.path in done),
        scores=score_tasks(root, plan, done) if with_scores else None,
    )
    shown: Status = _printable(status)
    return shown


def _printable(value: Any) -> Any:
    """Returns a value with all texts in one line, without characters that would steer a terminal.

    Names in markers come from others.
    """
    if isinstance(value, str):
        return value if value.isprintable() else printable(value).replace("\n", "\\n")
    if isinstance(value, (tuple, list)):
        return tuple(map(_printable, value))
    if isinstance(value, Mapping):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return dataclasses.replace(value, **{n: _printable(getattr(value, n)) for n in names})
    return value


def _state(
    run: MarkedRun,
    done: set[str],
    alive: Mapping[str, Attempt],
    attempts: Sequence[Attempt],
    is_launched: bool,
) -> str:
    """Returns one of `STATES`."""
    if run.path in done:
        return "done"
    if not attempts:
        return "waiting"
    if run.path in alive:
        return "running"
    last = attempts[-1]
    needs_launcher = last.engine not in ENGINES_WITHOUT_LAUNCHER
    if last.outcome == "failed":
        # A zone without machines fails an attempt, not the run.
        is_final = needs_launcher or (last.error or {}).get("kind") == UserError.__name__
        return "failed" if is_final else "retrying"
    if last.outcome == "preempted":
        return "retrying" if is_launched or not needs_launcher else "waiting"
    # Given up by a launcher, fallen silent, or done without its outputs: who tries again?
    has_looked = last.outcome is not None
    is_looked_after = is_launched if needs_launcher else has_looked
    return "retrying" if is_looked_after else "lost"


def _interrupted(attempts: Sequence[Attempt], now: float) -> list[Attempt]:
    """Returns the attempts that ended otherwise than done, the newest first."""
    ended = [
        attempt for attempt in attempts if not attempt.is_alive(now) and attempt.outcome != "done"
    ]
    return sorted(ended, key=lambda attempt: attempt.started, reverse=True)


def _count(states: Sequence[str]) -> dict[str, int]:
    found = collections.Counter(states)
    return {state: found[state] for state in STATES}


def _is_earlier(path: str, plan: Sequence[MarkedRun]) -> bool:
    """Returns whether a directory holds the scores or report of fewer runs than a planned one does."""
    stem = path.rpartition("-")[0]
    planned = {run.path.rpartition("-")[0] for run in plan if run.stage in _RENEWED_STAGES}
    return bool(stem) and stem in planned


def _stage_counts(plan: Sequence[MarkedRun], states: Mapping[str, str]) -> tuple[StageCount, ...]:
    by_stage: dict[str, list[str]] = {stage: [] for stage in STAGES}
    for run in plan:
        by_stage.setdefault(run.stage, []).append(states[run.path])
    return tuple(
        StageCount(stage, len(found), _count(found)) for stage, found in by_stage.items() if found
    )


def _sweep(
    plan: Sequence[MarkedRun], states: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[SweepRow, ...]]:
    """Returns the tasks, and the rows of checkpoints."""
    cells: dict[str, dict[str, list[str]]] = {}
    facts: dict[str, MarkedRun] = {}
    tasks: dict[str, None] = {}
    for run in plan:
        if run.stage != "finetune":
            continue
        # finetune/<task>/<checkpoint>/<trial>
        checkpoint = run.path.split("/")[-2] if run.path.count("/") else run.path
        task = str(run.facts.get("task") or "?")
        tasks.setdefault(task)
        facts.setdefault(checkpoint, run)
        cells.setdefault(checkpoint, {}).setdefault(task, []).append(states[run.path])
    rows = tuple(
        SweepRow(
            name=checkpoint,
            procedure=facts[checkpoint].facts.get("procedure"),
            pretrain_seed=facts[checkpoint].facts.get("pretrain_seed"),
            step=facts[checkpoint].facts.get("checkpoint_step"),
            cells={task: Cell(len(found), _count(found)) for task, found in by_task.items()},
        )
        for checkpoint, by_task in cells.items()
    )
    return tuple(tasks), rows


def _failures(
    root: PathLike,
    plan: Sequence[MarkedRun],
    states: Mapping[str, str],
    attempts: Mapping[str, Sequence[Attempt]],
) -> tuple[FailureRow, ...]:
    found: list[FailureRow] = []
    for run in plan:
        if states[run.path] != "failed":
            continue
        last = attempts[run.path][-1]
        error = last.error or {}
        reads = len(found) < FAILURES_WITH_LOG
        found.append(
            FailureRow(
                path=run.path,
                name=run.name,
                stage=run.stage,
                attempts=len(attempts[run.path]),
                ended=last.ended or last.heartbeat,
                kind=str(error.get("kind", "")),
                message=str(error.get("message", "")),
                log=last.log,
                log_lines=_log_lines(root, last.log) if reads and last.log else (),
            )
        )
    return tuple(found)


def _log_lines(root: PathLike, log: str) -> tuple[str, ...]:
    """Returns the last lines of a log; none of a link to a file outside the root."""
    path = Path(root, log).resolve()
    inside = path.is_relative_to(Path(root).resolve())
    return last_lines(path, LINES_OF_LOG) if inside else ()
