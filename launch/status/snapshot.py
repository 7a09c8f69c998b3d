"""The status of an experiment at one moment, collected from its markers.

Needs only the files below the root, neither the launcher nor its machine, and imports nothing heavy.
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
from multiberts.launch.plan.planned_run import STAGES
from multiberts.launch.status.progress import (
    Pretraining,
    pretraining_of,
    seconds_of,
)
from multiberts.runs.command_line.commands import command_of
from multiberts.runs.console import printable
from multiberts.runs.files import PathLike
from multiberts.runs.lease_holder import Holder
from multiberts.runs.plan_marker import done_paths, read_plan

# States of a run:
#   done      its DONE marker is there
#   running   an attempt is under way
#   retrying  the last attempt was preempted or lost, and a running launcher will start another
#   lost      the last attempt stopped without an exit status, and no launcher is running to retry it
#   failed    the last attempt ended with an error; a running launcher may try again
#   waiting   waits for its parents, for a free worker, or for the next launch
#   blocked   one of its parents has failed
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
      counts: number of runs in every state.
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
    """A run whose last attempt failed or was lost.

    Attributes:
      state: `failed` or `lost`.
      ended: Unix seconds; for a lost run its last sign of life.
      log: the log file, relative to the root, or None.
      log_lines: last lines of the log; empty if it cannot be read here, and after the first
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
      time: when it was collected, Unix seconds.
      launcher: the running launcher, or None.
      stages: stages in the order of the pipeline.
      pretraining: pre-training runs in the order of the plan.
      failures: failed and lost runs, in the order of the plan.
      orphans: living attempts whose launcher is gone or which are in no plan.
      reports: directories of finished reports relative to the root, in the order of the plan.
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
    """Collects the status of an experiment.

    Args:
      now: Unix seconds; None: by the clock of the root's disk, which dates the heartbeats.
      done: paths of finished runs; None: those with a DONE marker.
      attempts: attempts by the path of the run, in order; None: read from their markers.
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

    # One of `STATES` for each run.
    states: dict[str, str] = {}
    for run in plan:
        of_run = attempts.get(run.path, ())
        last = of_run[-1] if of_run else None
        if run.path in done:
            states[run.path] = "done"
        elif last is None:
            states[run.path] = "waiting"
        elif run.path in alive:
            states[run.path] = "running"
        elif last.outcome == "failed":
            states[run.path] = "failed"
        elif holder is not None and last.needs_launcher:
            states[run.path] = "retrying"
        else:
            # Given up, silent, or finished without outputs: retried only if a launcher is running.
            states[run.path] = "waiting" if last.outcome == "preempted" else "lost"
    for run in plan:
        if states[run.path] == "waiting":
            before = {states.get(path) for path in run.parents}
            states[run.path] = "blocked" if before & {"failed", "blocked"} else "waiting"

    # The runs by stage.
    paths_of: dict[str, list[str]] = {stage: [] for stage in STAGES}
    for run in plan:
        paths_of.setdefault(run.stage, []).append(run.path)
    stages = []
    for stage, members in paths_of.items():
        in_state = [states[path] for path in members]
        counts = {state: in_state.count(state) for state in STATES}
        tried = [attempt for path in members for attempt in attempts.get(path, ())]
        hours = sum(seconds_of(attempt, now) for attempt in tried) / 3600
        if members:
            stages.append(Stage(stage, len(members), counts, hours))

    # Runs whose last attempt failed or was lost.
    failures: list[Failure] = []
    for run in plan:
        state = states[run.path]
        if state not in ("failed", "lost"):
            continue
        last = attempts[run.path][-1]
        error = last.error or {}
        log_lines: tuple[str, ...] = ()
        if last.log and len(failures) < FAILURES_WITH_LOG:
            # Not of a log that is a link to a file outside the root.
            log = Path(os.path.realpath(Path(root, last.log)))
            if log.is_relative_to(os.path.realpath(root)):
                log_lines = last_lines(log, LINES_OF_LOG)
        failures.append(
            Failure(
                path=run.path,
                name=run.name,
                stage=run.stage,
                state=state,
                attempts=len(attempts[run.path]),
                ended=last.ended or last.heartbeat,
                message=error.get("message") or error.get("kind") or _NO_MESSAGE[state],
                log=last.log,
                log_lines=log_lines,
            )
        )

    every = [attempt for of_run in attempts.values() for attempt in of_run]
    status = Status(
        root=str(root),
        time=now,
        launcher=holder,
        stages=tuple(stages),
        pretraining=tuple(
            pretraining_of(root, run, states[run.path], attempts.get(run.path, ()), now)
            for run in plan
            if run.stage == "pretrain"
        ),
        failures=tuple(failures),
        orphans=tuple(orphaned(alive.values(), paths, holder)),
        hours=sum(seconds_of(attempt, now) for attempt in every) / 3600,
        reports=tuple(run.path for run in plan if run.stage == "report" and run.path in done),
    )
    shown: Status = _printable(status)
    return shown


def _printable(value: Any) -> Any:
    """Returns a value whose texts are single lines without control characters of a terminal.

    Markers may hold other people's names.
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
