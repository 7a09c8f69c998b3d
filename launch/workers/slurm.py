"""The Slurm jobs of a launch: as many as the remaining work needs; finished ones are replaced.

Dask workers run in them, and a worker's name has its job's number. A thread asks Slurm about all jobs of the
launch at once, by their name, because the controller may be slow or down for a while: then workers continue
and nothing is concluded.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiberts.runs.console import progress
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

if TYPE_CHECKING:
    from multiberts.launch.workers.engines import SlurmOptions

# Limit for a job's workers to find the scheduler.
SECONDS_TO_CONNECT = 300
# A job that is idle for this long is cancelled.
SECONDS_OF_IDLENESS = 60.0
# After this number of jobs in a row without a connected worker, give up.
MAX_FAILED_STARTS = 3
# Time to wait for an answer of the controller.
SECONDS_OF_PATIENCE = 3600.0
SECONDS_TO_ANSWER = 60.0

# States in which a job runs or will run. Any other state does not count unless its workers are connected.
_ALIVE = {"PENDING", "CONFIGURING", "RUNNING", "RESIZING", "SIGNALING", "REQUEUED"}
ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
}
# Our state of a held job, which Slurm may name only in its reason.
_HELD = "HELD"

# Advice on a reason of squeue, by the reason's beginning.
_START_AGAIN = (
    "; wait, or stop this launch and start it again with another {} in run.engine_options"
)
_CURES = {
    ("PartitionTimeLimit",): _START_AGAIN.format("walltime or partition"),
    ("PartitionConfig", "PartitionNodeLimit", "BadConstraints"): _START_AGAIN.format(
        "cores, gpus, memory_gb, constraint or partition"
    ),
    ("Assoc", "QOS", "Invalid", "Job's acc"): _START_AGAIN.format("account, qos or max_blocks"),
    ("PartitionDown", "PartitionInactive", "ReqNodeNotAvail", "Nodes required"): "; see sinfo -R",
}


class NoAnswerError(Exception):
    """Slurm's controller does not answer; raised by all functions here that ask it."""


def name_of_jobs(root: PathLike, owner: str = "") -> str:
    """Returns the name of a launch's jobs; without an owner, the prefix of all jobs of a root."""
    digest = hashlib.sha256(os.path.realpath(root).encode()).hexdigest()[:12]
    return f"multiberts-{digest}-{owner[:8]}"


def script_of_jobs(
    options: SlurmOptions,
    scheduler: str,
    *,
    name: str,
    workers: int,
    environment: Mapping[str, str],
    folder: str,
    security: Any,
) -> str:
    """Returns the job script of a launch.

    Args:
      workers: number per job; a worker's name is the job's number, and its rank if there are several.
      security: Dask's, with keys in files that nodes can read.
    """
    directives = {
        "output": f"{folder}/{name}-%j.out",
        "error": f"{folder}/{name}-%j.err",
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "ntasks": 1,
        "cpus-per-task": options.cores or workers,
        "gpus-per-node": options.gpus,
        "mem": f"{options.memory_gb}G" if options.memory_gb else None,
        "time": options.walltime,
    }
    lines = [f"--{option}={value}" for option, value in directives.items() if value]
    lines += ["--exclusive"] * options.exclusive
    further = (line.strip() for line in options.scheduler_options.splitlines())
    lines += [line.removeprefix("#SBATCH").strip() for line in further if line]
    exports = [f"export {key}={shlex.quote(value)}" for key, value in environment.items()]
    # `exec`: a shell would die of the signals that Slurm sends to all processes.
    worker = f"exec {shlex.quote(options.python)} -m distributed.cli.dask_worker {scheduler}"
    settings = (
        f"--name $SLURM_JOB_ID --nworkers {workers} --nthreads 1 --memory-limit 0 "
        f"--dashboard-address 127.0.0.1:0 --death-timeout {SECONDS_TO_CONNECT} "
        f"--tls-ca-file {security.tls_ca_file} --tls-cert {security.tls_worker_cert} "
        f"--tls-key {security.tls_worker_key}"
    )
    header = ["#!/bin/bash", *(f"#SBATCH {line}" for line in lines)]
    return "\n".join([*header, *exports, options.worker_init, f"{worker} {settings}\n"])


def jobs_named(prefix: str) -> dict[str, tuple[str, str]]:
    """Returns (state, reason) of this user's jobs whose name has this prefix, by job number."""
    # By user id: user names come from the environment, which su, sudo and containers may not change.
    user = f"--user={os.getuid()}"
    listed = _slurm("squeue", "--noheader", user, "--states=all", "--format=%i|%T|%j|%r")
    jobs = {}
    for line in listed.splitlines():
        job, state, name, reason = line.strip().split("|", 3)
        if name.startswith(prefix):
            is_held = "HOLD" in state or "held" in reason.lower()
            jobs[job] = (_HELD if is_held and state not in ENDED else state, reason)
    return jobs


def cancel_jobs(*jobs: str) -> None:
    if jobs:
        _slurm("scancel", *jobs)


def _slurm(*command: str, stdin: str = "") -> str:
    # A user's default filters, such as SQUEUE_PARTITION, would hide our jobs.
    filters = ("SQUEUE_", "SCANCEL_")
    try:
        done = subprocess.run(
            command,
            env={name: text for name, text in os.environ.items() if not name.startswith(filters)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS_TO_ANSWER,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"{command[0]} took longer than {SECONDS_TO_ANSWER:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise NoAnswerError(" ".join(error.stderr.split()) or f"{command[0]} failed") from error
    return done.stdout


class SlurmJobs:
    """Keeps the wanted number of jobs, in a thread."""

    def __init__(
        self,
        options: SlurmOptions,
        script: str,
        name: str,
        folder: Path,
        workers: Callable[[], Mapping[str, bool]],
    ):
        """Submits nothing yet.

        Args:
          workers: returns whether each connected worker is busy, by its name `<job>` or `<job>-<rank>`.
        """
        self._options = options
        self._script = script
        self._name = name
        self._folder = folder
        self._workers = workers
        self._wanted = 1
        self._jobs: set[str] = set()
        # All jobs that are not known to have ended, also those that no longer count.
        self._not_ended: set[str] = set()
        self._cancelled: set[str] = set()
        self._has_replaced_held = False
        # (state, reason) of the jobs that count, at the last look.
        self._listed: dict[str, tuple[str, str]] = {}
        self._has_worked: set[str] = set()
        self._idle_since: dict[str, float] = {}
        self._failed_starts = 0
        self._silent_since: float | None = None
        self._problem: BaseException | None = None
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="slurm", daemon=True)
        self._thread.start()

    def look_after(self, wanted: int) -> None:
        """Sets the number of jobs that there is work for."""
        self._wanted = min(wanted, self._options.max_blocks)
        if self._problem is not None:
            raise self._problem

    def waiting_for(self) -> str:
        """Says in one line why jobs wait, and what to do if that is known."""
        jobs: dict[str, list[str]] = {}
        for job, (state, reason) in self._listed.items():
            cure = next((cure for starts, cure in _CURES.items() if reason.startswith(starts)), "")
            if state == _HELD:
                cure = f", as was the job before it; `scontrol release {job}` lets it start"
            elif state != "PENDING":
                reason, cure = "but no worker has connected", ""
            jobs.setdefault(f"{state.lower()}, {reason}{cure}", []).append(job)
        return "; ".join(f"job {', '.join(jobs[words])}: {words}" for words in jobs) or "Slurm"

    def stop_looking(self) -> None:
        """Submits no more jobs; existing ones stay."""
        self._is_ending.set()

    def cancel(self) -> None:
        """Cancels all jobs; if Slurm does not answer, their workers exit by themselves."""
        self._thread.join(SECONDS_TO_ANSWER)  # it may be submitting one
        # Also by name: sbatch may have submitted a job without telling its number.
        for jobs in (self._not_ended, [f"--name={self._name}"]):
            with contextlib.suppress(NoAnswerError):
                cancel_jobs(*jobs)

    def _keep_looking(self) -> None:
        try:
            while not self._is_ending.is_set():
                try:
                    self._look()
                    if self._silent_since is not None:
                        progress("Slurm answers again")
                    self._silent_since = None
                except NoAnswerError as error:
                    now = time.monotonic()
                    if self._silent_since is None:
                        self._silent_since, self._listed = now, {}
                        progress(
                            f"Slurm does not answer ({error}); waiting for it up to "
                            f"{SECONDS_OF_PATIENCE:.0f} s, while workers work on"
                        )
                    elif now - self._silent_since > SECONDS_OF_PATIENCE:
                        raise UserError(
                            f"Slurm has not answered for {SECONDS_OF_PATIENCE:.0f} s ({error}); give the "
                            "same command when it does, which resumes from here"
                        ) from error
                self._is_ending.wait(self._options.poll_seconds)
        except BaseException as error:
            self._problem = error

    def _look(self) -> None:
        """Submits or cancels jobs so that the wanted number exists."""
        listed = jobs_named(self._name)
        workers: dict[str, bool] = {}
        for worker, is_busy in self._workers().items():
            job = worker.split("-")[0]
            workers[job] = workers.get(job, False) or is_busy
        if workers.keys() - self._has_worked:
            self._has_replaced_held = False
        self._has_worked |= workers.keys()
        if workers:
            self._failed_starts = 0
        # Also jobs whose number sbatch never told, because the controller fell silent.
        states = {job: state for job, (state, _) in listed.items()}
        ended = {job for job, state in states.items() if state in ENDED}
        self._not_ended = (self._not_ended | states.keys()) - ended
        held_jobs = {job for job, state in states.items() if state == _HELD} - self._cancelled
        if held_jobs and not self._has_replaced_held:
            for job in held_jobs:
                self._give_up(job)
            self._has_replaced_held = True
        alive = {
            job
            for job in states.keys() - ended - self._cancelled
            if states[job] in _ALIVE or job in held_jobs or job in workers
        }
        for job in self._jobs - alive - self._cancelled:
            if job in states.keys() - ended:
                self._give_up(job)
            if job not in self._has_worked:
                self._note_failed_start(job)
        self._jobs = alive

        # Submit more if there is work for them.
        while len(self._jobs) < self._wanted and not self._is_ending.is_set():
            try:
                # The name is a flag because SBATCH_JOB_NAME overrides the script.
                command = ("sbatch", "--parsable", f"--job-name={self._name}")
                job = _slurm(*command, stdin=self._script).strip().split(";")[0]
            except NoAnswerError as error:
                jobs_named(self._name)  # if it answers, it refused the job
                if not self._jobs:
                    self._note_failed_start(None, f" ({error})")
                break
            self._jobs.add(job)
            self._not_ended.add(job)

        # Cancel jobs that are not wanted and have been idle for long.
        now = time.monotonic()
        for job, is_busy in workers.items():
            if is_busy:
                self._idle_since.pop(job, None)
            else:
                self._idle_since.setdefault(job, now)
        idle = [
            job
            for job in sorted(self._jobs & workers.keys())
            if now - self._idle_since.get(job, now) > SECONDS_OF_IDLENESS
        ]
        for job in idle[: max(0, len(self._jobs) - self._wanted)]:
            self._give_up(job)
        self._listed = {job: listed[job] for job in sorted(self._jobs & listed.keys())}

    def _note_failed_start(self, job: str | None, why: str = "") -> None:
        """Records a job that was refused (None) or ended before a worker connected."""
        self._failed_starts += 1
        with contextlib.suppress(OSError, IndexError):  # its last line of output, if any
            text = (self._folder / f"{self._name}-{job}.err").read_text(errors="replace")
            why = why or f" ({text.strip().splitlines()[-1].strip()})"
        problem = "ended its workers before they connected"
        if job is None:
            problem = "refuses to start workers"
        if self._failed_starts >= MAX_FAILED_STARTS or (job is None and not self._has_worked):
            raise UserError(
                f"engine 'slurm' {problem}{why} ({self._failed_starts} in a row); "
                "correct run.engine_options"
            )

    def _give_up(self, job: str) -> None:
        cancel_jobs(job)
        self._cancelled.add(job)
        self._jobs.discard(job)
