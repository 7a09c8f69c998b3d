"""Status of an experiment: an immutable picture, collected from its markers alone.

It needs neither the launcher nor its machine, only the files below the root, and imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiberts.launch.markers.attempts import Attempt, attempts_of, orphaned
from multiberts.launch.markers.failures import last_lines
from multiberts.launch.markers.lease import launcher_at_a_glance, time_of_disk
from multiberts.launch.plan.planned_run import STAGES, command_of
from multiberts.launch.status.progress import (
    Pretraining,
    pretraining_of,
    seconds_of,
)
from multiberts.runs.console import printable
from multiberts.runs.files import PathLike
from multiberts.runs.lease_holder import Holder
from multiberts.runs.plan_marker import MarkedRun, done_paths, read_plan

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
FAILURES_WITH_LOG = 20

_NO_MESSAGE = {
    "failed": "no message",
    "lost": "no sign of life: its process or its machine is gone",
}


@dataclass(frozen=True)
class Stage:
    """The runs of a stage.

    Attributes:
      counts: how many are in which state; every state is there.
      hours: of all attempts.
    """

    stage: str
    total: int
    counts: Mapping[str, int]
    hours: float

    @property
    def command(self) -> str:
        return command_of(self.stage)


@dataclass(frozen=True)
class Failure:
    """A run whose last attempt ended with an error, or without a word.

    Attributes:
      state: `failed` or `lost`.
      ended: Unix seconds; of a lost one the last sign of life.
      log: the log file, relative to the root, or None.
      log_lines: its last lines; none where it cannot be read here, and after the first
        `FAILURES_WITH_LOG` failures.
    """

    path: str
    name: str
    stage: str
    state: str
    attempts: int
    ended: float
    message: str
    log: str | None
    log_lines: tuple[str, ...]


@dataclass(frozen=True)
class Status:
    """An experiment at one moment.

    Attributes:
      time: Unix seconds.
      launcher: who launches it now; None if nobody does.
      stages: in the order of the pipeline.
      pretraining: in the order of the plan.
      failures: failed and lost runs, in the order of the plan.
      orphans: living attempts whose launcher is gone, or that no plan names.
      hours: of all attempts.
      reports: done reports, directories relative to the root, in the order of the plan.
    """

    root: str
    time: float
    launcher: Holder | None
    stages: tuple[Stage, ...]
    pretraining: tuple[Pretraining, ...]
    failures: tuple[Failure, ...]
    orphans: tuple[Attempt, ...]
    hours: float
    reports: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        return {state: sum(stage.counts[state] for stage in self.stages) for state in STATES}

    @property
    def total(self) -> int:
        return sum(stage.total for stage in self.stages)


def collect_status(
    root: PathLike,
    now: float | None = None,
    done: Collection[str] | None = None,
    attempts: Mapping[str, Sequence[Attempt]] | None = None,
) -> Status:
    """Looks at an experiment.

    Args:
      now: Unix seconds; None: by the clock of the root's disk, as heartbeats are.
      done: paths of the runs that are; None: those with a DONE marker.
      attempts: by the path of the run, in order; None: as their markers have them.
    """
    now = time_of_disk(root) if now is None else now
    plan = read_plan(root)
    paths = {run.path for run in plan}
    attempts = attempts_of(root) if attempts is None else attempts
    done = done_paths(root, paths) if done is None else done
    holder = launcher_at_a_glance(root)
    alive = {
        path: of_run[-1]
        for path, of_run in attempts.items()
        if path not in done and of_run[-1].is_alive(now)
    }
    states = {
        run.path: _state(run, done, alive, attempts.get(run.path, ()), holder is not None)
        for run in plan
    }
    for run in plan:
        if states[run.path] == "waiting":
            before = {states.get(path) for path in run.parents}
            states[run.path] = "blocked" if before & {"failed", "blocked"} else "waiting"
    every = [attempt for of_run in attempts.values() for attempt in of_run]
    status = Status(
        root=str(root),
        time=now,
        launcher=holder,
        stages=_stages(plan, states, attempts, now),
        pretraining=tuple(
            pretraining_of(root, run, states[run.path], attempts.get(run.path, ()), now)
            for run in plan
            if run.stage == "pretrain"
        ),
        failures=_failures(root, plan, states, attempts),
        orphans=tuple(orphaned(alive.values(), paths, holder)),
        hours=sum(seconds_of(attempt, now) for attempt in every) / 3600,
        reports=tuple(run.path for run in plan if run.stage == "report" and run.path in done),
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
    done: Collection[str],
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
    if last.outcome == "failed":
        return "failed"
    if is_launched and last.needs_launcher:
        return "retrying"
    # The others were given up by a launcher, fell silent, or have lost their outputs.
    return "waiting" if last.outcome == "preempted" else "lost"


def _stages(
    plan: Sequence[MarkedRun],
    states: Mapping[str, str],
    attempts: Mapping[str, Sequence[Attempt]],
    now: float,
) -> tuple[Stage, ...]:
    paths: dict[str, list[str]] = {stage: [] for stage in STAGES}
    for run in plan:
        paths.setdefault(run.stage, []).append(run.path)
    stages = []
    for stage, members in paths.items():
        in_state = [states[path] for path in members]
        tried = [attempt for path in members for attempt in attempts.get(path, ())]
        counts = {state: in_state.count(state) for state in STATES}
        hours = sum(seconds_of(attempt, now) for attempt in tried) / 3600
        if members:
            stages.append(Stage(stage, len(members), counts, hours))
    return tuple(stages)


def _failures(
    root: PathLike,
    plan: Sequence[MarkedRun],
    states: Mapping[str, str],
    attempts: Mapping[str, Sequence[Attempt]],
) -> tuple[Failure, ...]:
    failures: list[Failure] = []
    for run in plan:
        if states[run.path] not in ("failed", "lost"):
            continue
        last = attempts[run.path][-1]
        error = last.error or {}
        log_lines: tuple[str, ...] = ()
        if last.log and len(failures) < FAILURES_WITH_LOG:
            # None of a link to a file outside the root.
            path = Path(os.path.realpath(Path(root, last.log)))
            if path.is_relative_to(os.path.realpath(root)):
                log_lines = last_lines(path, LINES_OF_LOG)
        failures.append(
            Failure(
                path=run.path,
                name=run.name,
                stage=run.stage,
                state=states[run.path],
                attempts=len(attempts[run.path]),
                ended=last.ended or last.heartbeat,
                message=error.get("message") or error.get("kind") or _NO_MESSAGE[states[run.path]],
                log=last.log,
                log_lines=log_lines,
            )
        )
    return tuple(failures)
