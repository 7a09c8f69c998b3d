"""Ends processes and jobs that a dead launcher left behind, and nothing else.

Normally there is nothing to end, because every process of a launch exits with its launcher. Our processes
have marks: on this machine the environment variable `LAUNCH_WATCH`, which they inherit from the launcher,
on Slurm the jobs' name. Workers of somebody else's Dask cluster stop the runs of a dead launcher, and stay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from multiberts.launch.markers.attempts import attempts_of, end_attempt
from multiberts.launch.workers.slurm import (
    ENDED,
    NoAnswerError,
    cancel_jobs,
    jobs_named,
    name_of_jobs,
)
from multiberts.launch.workers.worker import SECONDS_TO_SAVE
from multiberts.runs.console import progress, report
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, remove
from multiberts.runs.lease_holder import Holder
from multiberts.runs.processes import creation_time, process_is_alive

if TYPE_CHECKING:
    import psutil

VARIABLE = "LAUNCH_WATCH"
# The pool's folder below the root exists as long as the pool; on Slurm it holds the workers' keys.
FOLDER = "launch/dask"
KEYS = "tls_ca_file"


@dataclass(frozen=True)
class Mark:
    """The launcher that a process belongs to.

    Attributes:
      root: the experiment's root, an absolute path.
      created: the process's `runs.processes.creation_time`; a later process with its id has another.
    """

    root: str
    owner: str
    pid: int
    created: float

    def to_string(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def mark_of_this_process(root: str, owner: str) -> Mark:
    pid = os.getpid()
    return Mark(root, owner, pid, creation_time(pid) or 0.0)


@dataclass(frozen=True)
class Leftover:
    """A process that a launcher left behind.

    Attributes:
      created: the process's `runs.processes.creation_time`.
    """

    process: psutil.Process
    created: float
    command: str

    def is_alive(self) -> bool:
        return process_is_alive(self.process.pid, self.created)


def left_processes(root: PathLike, holder: Holder | None) -> list[Leftover]:
    """Returns processes on this machine whose launcher of this experiment is gone.

    Excludes this process, its ancestors, and other users' processes.

    Args:
      holder: who holds the lease now, or None.
    """
    import psutil

    real_root = os.path.realpath(root)
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    if holder is not None and holder.is_here:
        spared.add(holder.pid)
    leftovers = []
    for process in psutil.process_iter():
        if process.pid in spared:
            continue
        # Other users' processes cannot be read, and some end meanwhile.
        with contextlib.suppress(psutil.Error, OSError):
            try:
                mark = Mark(**json.loads(process.environ().get(VARIABLE, "")))
            except (ValueError, TypeError):
                continue  # no mark, or that of another version or program
            if os.path.realpath(mark.root) != real_root:
                continue
            created = creation_time(process.pid)
            # A Python that launches twice keeps helpers of the first launch, such as its resource tracker.
            has_lease = holder is not None and holder.owner == mark.owner
            has_launcher = has_lease or process_is_alive(mark.pid, mark.created)
            if created is not None and not has_launcher:
                command = " ".join(process.cmdline()).strip()
                leftovers.append(Leftover(process, created, command[:80]))
    return leftovers


def end_processes(root: PathLike, holder: Holder | None) -> int:
    """Asks processes to save and exit, kills those that do not; returns their number."""
    import psutil

    leftovers = left_processes(root, holder)
    if leftovers:
        progress(
            f"a launcher of {root} that is gone has left processes, which have {SECONDS_TO_SAVE:.0f} s to "
            "save and leave"
        )
    for left in leftovers:
        # psutil compares the creation time first, so a new process with the same id is safe.
        with contextlib.suppress(psutil.NoSuchProcess):
            left.process.terminate()
            # A stopped process receives no SIGTERM.
            left.process.resume()
    end = time.monotonic() + SECONDS_TO_SAVE
    while time.monotonic() < end and any(left.is_alive() for left in leftovers):
        time.sleep(0.05)
    for left in leftovers:
        how = "asked to leave, and left"
        if left.is_alive():
            how = f"did not leave within {SECONDS_TO_SAVE:.0f} s, killed"
            with contextlib.suppress(psutil.NoSuchProcess):
                left.process.kill()
        report(f"process {left.process.pid} ({left.command}): {how}")
    return len(leftovers)


def end_slurm_jobs(root: PathLike) -> int:
    """Cancels the Slurm jobs of a killed launcher, and returns their number.

    Call it only while holding the lease, or if nobody holds it.
    """
    folder = Path(root) / FOLDER
    left: dict[str, str] = {}
    if (folder / KEYS).exists():
        problem = f"jobs of {root} on Slurm may be left"
        cure = f"give the same command on a login node when Slurm answers, or remove {folder} if none is left"
        if shutil.which("squeue") is None or shutil.which("scancel") is None:
            raise UserError(f"{problem}, and squeue and scancel are not found; {cure}")
        try:
            jobs = jobs_named(name_of_jobs(root))
            left = {job: state for job, (state, _) in jobs.items() if state not in ENDED}
            cancel_jobs(*left)
        except NoAnswerError as error:
            raise UserError(f"{problem}, and Slurm does not answer: {error}; {cure}") from error
    for job, state in left.items():
        report(f"Slurm job {job} ({state.lower()}): cancelled")
    with contextlib.suppress(OSError):
        remove(folder)
    return len(left)


def close_attempts(root: PathLike) -> int:
    """Marks open attempts on this machine whose process is gone as lost; returns their number."""
    closed = 0
    for attempts in attempts_of(root).values():
        for attempt in attempts:
            is_here = attempt.host == socket.gethostname()
            if attempt.ended is None and is_here and not attempt.has_process():
                error = {"kind": "WorkerLost", "message": "its process was gone"}
                end_attempt(root, attempt, "lost", error, ended=attempt.heartbeat)
                closed += 1
    return closed
