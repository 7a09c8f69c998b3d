"""`multiberts launch reap`: ends what a launcher that is gone has left running, and nothing else.

Normally there is nothing to end, as every process of a launch leaves with its launcher. Ours have marks
that others do not have: on this machine an environment variable with root and lease
(`launch.workers.mark.VARIABLE`), on Slurm the jobs' name, on Cloud TPU labels. A cluster of Dask that
others started is theirs: its workers stop the runs of a launcher that is gone, and stay.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from multiberts.launch.markers.attempts import EngineName, attempts_of, end_attempt
from multiberts.launch.markers.lease import Lease
from multiberts.launch.workers.mark import VARIABLE, Mark
from multiberts.launch.workers.pool import FOLDER, KEYS
from multiberts.launch.workers.slurm import (
    ENDED,
    NoAnswerError,
    cancel_jobs,
    jobs_named,
    name_of_jobs,
)
from multiberts.launch.workers.worker import SECONDS_TO_SAVE
from multiberts.runs.console import report
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike
from multiberts.runs.lease_holder import Holder
from multiberts.runs.processes import creation_time, process_is_alive


def reap(
    *,
    root: PathLike,
    engine: EngineName = "local",
    engine_options: Mapping[str, Any] | None = None,
    everything: bool = False,
) -> int:
    """Ends what belongs to no running launcher of an experiment, and reports what it ended.

    On this machine always; also on the engine that is given, or that the experiment was launched on. A
    launcher on another machine runs if its lease is renewed while this command watches, which takes up
    to 90 s.

    Args:
      root: the experiment's root.
      engine: as it was launched: `local`, `slurm`, `dask` or `tpu`.
      engine_options: as it was launched.
      everything: with engine `tpu`, delete also the queued resources of runs that `run` would resume.

    Returns:
      0, or 1 where something of Cloud TPU is left that cannot be deleted now.

    Raises:
      UserError: the root does not exist, or the engine does not answer; what could be ended without it
        was ended.
    """
    if not Path(root).is_dir():
        raise UserError(f"{root} is not a directory; check launch.root")
    holder = Lease.awaited(root)
    has_ended = False
    for left, how in end_processes(root, holder):
        has_ended = True
        report(f"{left.describe()}: {how}")
    closed = 0 if holder is not None else close_attempts(root)
    if closed:
        report(f"{counted(closed, 'attempt')} of processes that are gone marked as lost")
    jobs = []
    if holder is None:
        folder = Path(root) / FOLDER
        if engine == "slurm" or (folder / KEYS).exists():
            jobs += _end_slurm_jobs(root)
        shutil.rmtree(folder, ignore_errors=True)
    undeleted: list[str] = []
    if engine == "tpu":
        from multiberts.launch.tpu.reaping import delete_resources

        deleted, undeleted = delete_resources(root, engine_options or {}, everything=everything)
        jobs += deleted
    for line in (*jobs, *undeleted):
        report(line)
    if not (jobs or undeleted or has_ended):
        report(f"nothing to end: all that runs for {root} has its launcher, or nothing runs")
    return 1 if undeleted else 0


@dataclass(frozen=True)
class Leftover:
    """A process that a launcher left.

    Attributes:
      process: of this machine.
      created: its `runs.processes.creation_time`.
      command: its command line, shortened.
    """

    process: psutil.Process
    created: float
    command: str

    def describe(self) -> str:
        """Returns a name for people."""
        return f"process {self.process.pid} ({self.command})"

    def is_alive(self) -> bool:
        """Returns whether it still runs."""
        return process_is_alive(self.process.pid, self.created)


def left_processes(root: PathLike, holder: Holder | None) -> list[Leftover]:
    """Returns the processes on this machine of launchers of an experiment that are gone.

    This process and those it descends from are never among them, nor are those of other users.

    Args:
      root: the experiment's root.
      holder: of the lease now, or None.
    """
    place = os.path.realpath(root)
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    if holder is not None and holder.is_here:
        spared.add(holder.pid)
    found = []
    for process in psutil.process_iter():
        if process.pid in spared:
            continue
        # Others' processes cannot be looked into; some end meanwhile.
        with contextlib.suppress(psutil.Error, OSError):
            mark = _mark_in(process.environ().get(VARIABLE))
            if mark is None or os.path.realpath(mark.root) != place:
                continue
            created = creation_time(process.pid)
            if created is not None and not _has_launcher(mark, holder):
                command = " ".join(process.cmdline()).strip()
                found.append(Leftover(process, created, command[:80]))
    return found


def _has_launcher(mark: Mark, holder: Holder | None) -> bool:
    """Returns whether the launcher of a process has the lease, or where nobody has it, runs here."""
    if holder is not None:
        return holder.owner == mark.owner
    return process_is_alive(mark.pid, mark.created)


def _mark_in(value: str | None) -> Mark | None:
    if value is None:
        return None
    try:
        return Mark(**json.loads(value))
    except (ValueError, TypeError):
        return None  # of another version, or another program's


def end_processes(
    root: PathLike, holder: Holder | None, seconds_to_save: float = SECONDS_TO_SAVE
) -> list[tuple[Leftover, str]]:
    """Asks left processes to save and leave, and ends those that do not within `seconds_to_save`.

    Returns:
      The processes that were ended, and how.
    """
    found = left_processes(root, holder)
    for left in found:
        # psutil compares the creation time first, so another process with the same id is safe.
        with contextlib.suppress(psutil.NoSuchProcess):
            left.process.terminate()
            # A stopped one hears nothing.
            left.process.resume()
    end = time.monotonic() + seconds_to_save
    while time.monotonic() < end and any(left.is_alive() for left in found):
        time.sleep(0.05)
    ended = []
    for left in found:
        if not left.is_alive():
            ended.append((left, "asked to leave, and left"))
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            left.process.kill()
        ended.append((left, f"did not leave within {seconds_to_save:.0f} s, killed"))
    return ended


def close_attempts(root: PathLike) -> int:
    """Marks as lost the open attempts on this machine whose process is gone; returns how many."""
    closed = 0
    for attempts in attempts_of(root).values():
        for attempt in attempts:
            is_here = attempt.host == socket.gethostname()
            if attempt.ended is None and is_here and not attempt.has_process():
                error = {"kind": "WorkerLost", "message": "its process was gone"}
                end_attempt(root, attempt, "lost", error, ended=attempt.heartbeat)
                closed += 1
    return closed


def _end_slurm_jobs(root: PathLike) -> list[str]:
    """Cancels the jobs of a launcher that is gone."""
    if shutil.which("squeue") is None or shutil.which("scancel") is None:
        raise UserError(
            f"{root} was launched on Slurm, but the commands squeue and scancel are not found; start where "
            "Slurm's commands are, such as a login node"
        )
    try:
        jobs = jobs_named(name_of_jobs(root))
        left = {job: state for job, state in jobs.items() if state not in ENDED}
        cancel_jobs(*left)
    except NoAnswerError as error:
        raise UserError(f"Slurm does not answer: {error}; try again when it does") from error
    return [f"Slurm job {job} ({state.lower()}): cancelled" for job, state in left.items()]
