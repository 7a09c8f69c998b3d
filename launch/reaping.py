"""`multiberts launch reap`: ends what a launcher that is gone has left running, and nothing else.

Normally there is nothing to end, as every process of a launch watches its launcher and leaves with it.
Ours have marks that others do not have: on this machine an environment variable with root and lease
(`launch.workers.guardian.VARIABLE`), on Slurm the job's script below `<root>/launch/parsl/`, on Cloud
TPU labels. Pods of Kubernetes leave by themselves soon after the lease has ended.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from multiberts.launch.markers.attempts import EngineName, attempts_of, end_attempt
from multiberts.launch.markers.lease import Lease
from multiberts.launch.workers.guardian import VARIABLE, Watch
from multiberts.runs.console import report
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike
from multiberts.runs.lease_holder import Holder
from multiberts.runs.processes import creation_time, process_is_alive

# For processes to save and exit after they were asked to; then they are killed.
SECONDS_TO_SAVE = 100.0
SECONDS_FOR_SLURM = 30.0
# Names of launchers' temporary folders begin so; no other folder is ever removed.
PREFIX = "launch-"


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
      engine: as it was launched: `local`, `slurm`, `kubernetes` or `tpu`.
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
    jobs = [] if holder is not None else _end_slurm_jobs(root, is_needed=engine == "slurm")
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
class Left:
    """A process that a launcher left.

    Attributes:
      process: of this machine.
      created: its `runs.processes.creation_time`.
      command: its command line, shortened.
      folder: of its launcher's temporary files on this machine, or None.
    """

    process: psutil.Process
    created: float
    command: str
    folder: str | None

    def describe(self) -> str:
        """Returns a name for people."""
        return f"process {self.process.pid} ({self.command})"

    def is_alive(self) -> bool:
        """Returns whether it still runs."""
        return process_is_alive(self.process.pid, self.created)


def left_processes(root: PathLike, holder: Holder | None) -> list[Left]:
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
            watch = _watch_of(process.environ().get(VARIABLE))
            if watch is None or os.path.realpath(watch.root) != place:
                continue
            created = creation_time(process.pid)
            if created is not None and not _has_launcher(watch, holder):
                command = " ".join(process.cmdline()).strip()
                found.append(Left(process, created, command[:80], watch.folder))
    return found


def _has_launcher(watch: Watch, holder: Holder | None) -> bool:
    """Returns whether the launcher of a process has the lease, or where nobody has it, runs here."""
    if holder is not None:
        return holder.owner == watch.owner
    return process_is_alive(watch.pid, watch.born)


def _watch_of(value: str | None) -> Watch | None:
    if value is None:
        return None
    try:
        return Watch(**json.loads(value))
    except (ValueError, TypeError):
        return None  # of another version, or another program's


def end_processes(
    root: PathLike, holder: Holder | None, seconds_to_save: float = SECONDS_TO_SAVE
) -> list[tuple[Left, str]]:
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
    for folder in {left.folder for left in found if left.folder is not None}:
        if os.path.basename(folder).startswith(PREFIX):
            shutil.rmtree(folder, ignore_errors=True)
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


def _end_slurm_jobs(root: PathLike, *, is_needed: bool) -> list[str]:
    """Cancels the blocks of a launcher that is gone; those of one that is there are spared."""
    scripts = Path(root).resolve() / "launch" / "parsl"
    if not is_needed and not scripts.is_dir():
        return []
    if shutil.which("squeue") is None or shutil.which("scancel") is None:
        if is_needed:
            raise UserError(
                "run.engine is 'slurm' but the commands squeue and scancel are not found; start where "
                "Slurm's commands are, such as a login node"
            )
        return []
    listed = _slurm("squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%i|%T|%o")
    ended = []
    for line in listed.splitlines():
        job, state, command = line.strip().split("|", 2)
        # A job belongs to the root that its script lies below.
        if scripts in Path(command.strip()).resolve().parents:
            _slurm("scancel", job)
            ended.append(f"Slurm job {job} ({state.lower()}): cancelled")
    return ended


def _slurm(*command: str) -> str:
    """Returns the output of a command of Slurm; refuses one that fails or does not answer."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS_FOR_SLURM, check=True
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"{command[0]} did not answer within {SECONDS_FOR_SLURM:.0f} s; try again when Slurm does"
        ) from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip() or "no message").splitlines()[-1]
        raise UserError(f"{command[0]} failed: {said}; try again when Slurm works") from error
    return done.stdout
