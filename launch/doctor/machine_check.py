"""Resources of this machine: cores, memory, disk, clock, schedulers, and what was left running."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from multiberts.launch.doctor.findings import OK, PROBLEM, WARNING, CheckResult
from multiberts.launch.estimate.quantities import moment
from multiberts.launch.markers.lease import Lease
from multiberts.launch.reaping import left_processes
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike
from multiberts.runs.plan_marker import done_paths, read_plan

# A base-size run keeps moments and a few checkpoints.
BYTES_FREE_AT_LEAST = 10e9
MEMORY_AT_LEAST = 4e9
# Heartbeats are times of files: above this the living look dead.
SECONDS_OF_CLOCK = 10.0
SECONDS_FOR_COMMAND = 15.0

# A command that talks to no cluster, and the one that does.
_SCHEDULERS: dict[str, tuple[Sequence[str], Sequence[str] | None]] = {
    "Slurm": (("sbatch", "--version"), ("sinfo", "--noheader", "--format=%P %a %D nodes")),
    "Kubernetes": (("kubectl", "version", "--client"), None),
}


def check_machine() -> CheckResult:
    """Cores and memory that a process here may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = psutil.virtual_memory()
    limit = min(memory.total, _memory_limit())
    found = f"{cores} cores, {limit / 2**30:.0f} GiB of memory, {memory.available / 2**30:.0f} free"
    if memory.available < MEMORY_AT_LEAST:
        cure = "end other programs, or start fewer workers at once (run.workers = 1)"
        return CheckResult(WARNING, "machine", found, cure)
    return CheckResult(OK, "machine", found)


def _memory_limit() -> float:
    """Returns what a container may use; infinite without a limit."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return float(Path(path).read_text())
        except (OSError, ValueError):
            continue
    return float("inf")


def check_disk(root: PathLike | None) -> CheckResult:
    """Free space where the experiment lies, against what its runs that are not done need.

    What a run needs is the mean of those of its stage that are done, so that a plan whose stages have
    begun is judged by its own numbers.
    """
    place = _existing(root)
    free = shutil.disk_usage(place).free
    found = f"{free / 1e9:,.0f} GB free at {place}"
    if not os.access(place, os.W_OK):
        cure = "choose another launch.root, or get the permission"
        return CheckResult(PROBLEM, "disk", f"{place} may not be written", cure)
    needed = None if root is None else bytes_needed(root)
    if needed is not None:
        found += f"; the plan needs some {needed / 1e9:,.2g} GB more, by its runs that are done"
        if needed > free:
            cure = "free some, choose another launch.root, or keep fewer pretrain.checkpoint_steps"
            return CheckResult(PROBLEM, "disk", found, cure)
    if free < BYTES_FREE_AT_LEAST:
        cure = (
            "free some: a base-size pre-training needs 5 GB and 0.4 more for each checkpoint kept"
        )
        return CheckResult(WARNING, "disk", found, cure)
    return CheckResult(OK, "disk", found)


def bytes_needed(root: PathLike) -> float | None:
    """Returns what runs that are not done will need; None where no plan is, or no run of such a
    stage is done.
    """
    try:
        plan = read_plan(root)
    except UserError:
        return None
    done = done_paths(root, (run.path for run in plan))
    needed = 0.0
    for stage in {run.stage for run in plan if run.path not in done}:
        # A few are enough for a mean.
        sizes = [
            _size(Path(root) / run.path) for run in plan if run.stage == stage and run.path in done
        ][:10]
        if not sizes and stage in ("pretrain", "finetune"):
            return None
        left = sum(run.stage == stage and run.path not in done for run in plan)
        needed += left * sum(sizes) / max(1, len(sizes))
    return needed


def _size(folder: Path) -> int:
    return sum(
        os.lstat(os.path.join(place, name)).st_size
        for place, _, names in os.walk(folder)
        for name in names
    )


def check_clock(root: PathLike | None) -> CheckResult:
    """Returns whether this machine's clock agrees with that of the disk, which may be another
    machine's.
    """
    place = _existing(root)
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".clock-") as file:
            before = time.time()
            os.utime(file.name)
            behind = os.stat(file.name).st_mtime - before
    except OSError as error:
        cure = "choose another launch.root, or get the permission"
        return CheckResult(PROBLEM, "clock", f"{place} may not be written: {error.strerror}", cure)
    found = f"{moment(time.time())}, as the disk at {place} has it"
    if abs(behind) > SECONDS_OF_CLOCK:
        found = f"{moment(time.time())}, but the disk at {place} is {behind:+.0f} s off"
        cure = "have both machines keep time (chrony, ntpd): signs of life are times of files"
        return CheckResult(PROBLEM, "clock", found, cure)
    return CheckResult(OK, "clock", found)


def check_schedulers() -> list[CheckResult]:
    """Returns which schedulers' commands are here. A cluster is asked only for its
    partitions.
    """
    findings = []
    absent = []
    for name, (version, question) in _SCHEDULERS.items():
        if shutil.which(version[0]) is None:
            absent.append(f"{name} ({version[0]})")
            continue
        is_good, said = _ask(version)
        if is_good and question is not None:
            is_good, answer = _ask(question)
            said += f"; partitions: {answer}" if is_good else f", but {question[0]}: {answer}"
        if is_good:
            findings.append(CheckResult(OK, name, said))
        else:
            cure = (
                f"nothing, if you do not use run.engine = '{name.lower()}'; else ask its operators"
            )
            findings.append(CheckResult(WARNING, name, said, cure))
    if absent:
        found = f"no commands of {', '.join(absent)}; run.engine = 'local' needs none"
        findings.append(CheckResult(OK, "schedulers", found))
    return findings


def _ask(command: Sequence[str]) -> tuple[bool, str]:
    """Returns whether a command succeeded, and what it said in a line."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS_FOR_COMMAND, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"no answer within {SECONDS_FOR_COMMAND:.0f} s"
    except OSError as error:
        return False, str(error.strerror)
    said = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip()
    # The last line of an error is the one that counts.
    lines = said.splitlines()[:3] if done.returncode == 0 else said.splitlines()[-1:]
    return done.returncode == 0, ", ".join(lines)[:200] or "no answer"


def check_root(root: PathLike) -> CheckResult:
    """Who launches an experiment, and whether something was left running."""
    holder = Lease.held(root)
    left = left_processes(root, holder)
    if left:
        found = f"{len(left)} processes of a launcher that is gone still run for {root}"
        return CheckResult(PROBLEM, "launcher", found, "`multiberts launch reap` ends them")
    if holder is not None:
        found = (
            f"process {holder.pid} on {holder.host} launches {root} since {moment(holder.started)}"
        )
        return CheckResult(OK, "launcher", found)
    return CheckResult(
        OK, "launcher", f"no launcher is running for {root}, and nothing is left of one"
    )


def _existing(root: PathLike | None) -> Path:
    """Returns the root, or the folder above it that is there already."""
    place = Path(root or ".").absolute()
    while not place.is_dir():
        place = place.parent
    return place
