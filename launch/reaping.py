"""`multiberts launch reap`: ends what a launcher that is gone has left running, and nothing else.

Normally there is nothing to end, as every process of a launch watches its launcher and leaves with it.
Ours are told by marks that others do not have: on this machine an environment variable that names root
and lease (`launch.workers.guardian.VARIABLE`), on Slurm the job's script below
`<root>/launch/parsl/`, on Cloud TPU labels.
Pods of Kubernetes leave by themselves soon after the lease has ended.
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

from multiberts.launch.markers.attempts import attempts_of, end_attempt
from multiberts.launch.markers.lease import Holder, Lease
from multiberts.launch.markers.orphans import has_process
from multiberts.launch.workers.guardian import VARIABLE, Watch
from multiberts.runs.console import report
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike
from multiberts.runs.processes import process_is_alive

# For processes to save and leave after they were asked to; then they are ended.
SECONDS_TO_SAVE = 100.0
SECONDS_FOR_SLURM = 30.0
# Names of launchers' temporary folders begin so; no other folder is ever removed.
PREFIX = "launch-"


def reap(
    *,
    root: PathLike,
    engine: str = "local",
    engine_options: Mapping[str, Any] | None = None,
    everything: bool = False,
) -> None:
    """Ends what belongs to no running launcher of an experiment, and says what it ended.

    On this machine always; besides, where `engine` says so or the experiment was launched there.

    Args:
      root: the experiment's root.
      engine: as it was launched: `local`, `slurm`, `kubernetes` or `tpu`.
      engine_options: as it was launched.
      everything: with engine `tpu`, delete also the queued resources of runs that `run` would go on
        with.

    Raises:
      UserError: the root does not exist, or the engine cannot be asked.
    """
    if not Path(root).is_dir():
        raise UserError(f"{root} is not a directory; check launch.root")
    ended = [f"{one.describe()}: {how}" for one, how in end_processes(root)]
    ended += _end_slurm_jobs(root, is_needed=engine == "slurm")
    if engine == "tpu":
        from multiberts.launch.tpu.reaping import delete_resources

        ended += delete_resources(root, engine_options or {}, everything=everything)
    closed = close_attempts(root)
    for line in ended:
        report(line)
    if closed:
        report(f"{closed} attempts of processes that are gone noted as lost")
    if not ended:
        report(f"nothing to end: all that runs for {root} has its launcher, or nothing runs")


@dataclass(frozen=True)
class Left:
    """A process that a launcher left.

    Attributes:
      process: of this machine.
      command: its command line, shortened.
      folder: of its launcher's temporary files on this machine, or None.
    """

    process: psutil.Process
    command: str
    folder: str | None

    def describe(self) -> str:
        """Returns a name for people."""
        return f"process {self.process.pid} ({self.command})"

    def is_alive(self) -> bool:
        """Returns whether it still runs."""
        return process_is_alive(self.process.pid, self.process.create_time())


def left_processes(root: PathLike) -> list[Left]:
    """Returns the processes on this machine of launchers of an experiment that are gone.

    This process and those it descends from are never among them, nor are those of other users.
    """
    holder = Lease.held(root)
    place = os.path.realpath(root)
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    if holder is not None and holder.host == socket.gethostname():
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
            if _has_launcher(watch, holder):
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                command = " ".join(process.cmdline()).strip()
                found.append(Left(process, command[:80], watch.folder))
    return found


def _has_launcher(watch: Watch, holder: Holder | None) -> bool:
    """Returns whether the launcher of a process has the lease; where nobody has, whether it runs on
    this machine.
    """
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
    root: PathLike, seconds_to_save: float = SECONDS_TO_SAVE
) -> list[tuple[Left, str]]:
    """Asks left processes to save and leave, and ends those that do not.

    Args:
      root: the experiment's root.
      seconds_to_save: how long they have.

    Returns:
      What was ended, and how.
    """
    found = left_processes(root)
    for left in found:
        # psutil compares the creation time first: never another process with the same number.
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
    """Notes as lost the open attempts on this machine whose process is gone; returns how many."""
    if Lease.held(root) is not None:
        return 0  # the launcher that is there does
    closed = 0
    for attempts in attempts_of(root).values():
        for attempt in attempts:
            is_here = attempt.host == socket.gethostname()
            if attempt.ended is None and is_here and not has_process(attempt):
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
    if Lease.held(root) is not None:
        return []
    listed = _slurm("squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%i|%T|%o")
    ended = []
    for line in listed.splitlines():
        job, state, command = line.strip().split("|", 2)
        # The script that a job was submitted with says whose it is.
        if scripts in Path(command.strip()).resolve().parents:
            _slurm("scancel", job)
            ended.append(f"Slurm job {job} ({state.lower()}): cancelled")
    return ended


def _slurm(*command: str) -> str:
    """Returns what a command of Slurm prints.

    Raises:
      UserError: it fails, or does not answer.
    """
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
