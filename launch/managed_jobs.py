"""Pre-trains the seeds of a plan as managed jobs of SkyPilot, in any cloud, on Kubernetes or on Slurm.

Each call takes one look: it fetches seeds that are done, submits those that have no job, and shows the
others. SkyPilot moves its jobs from machine to machine meanwhile, and the bucket has all that a seed needs to
resume. SkyPilot is run as the program `sky` from another environment, because it needs an older click.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiberts.bert.checkpoint.hub import is_name
from multiberts.bert.training.log import METRICS
from multiberts.launch.estimate import quantities
from multiberts.launch.markers.attempts import (
    Attempt,
    attempts_of,
    begin_attempt,
    end_attempt,
    write_attempt,
)
from multiberts.launch.markers.failures import FailedRun
from multiberts.launch.markers.lease import launching
from multiberts.launch.markers.planned import write_plan
from multiberts.launch.plan.planned_run import PlannedRun, stage_identity
from multiberts.runs.bucket.copies import fetch_run, push_finished, push_input
from multiberts.runs.bucket.mirror import last_push
from multiberts.runs.bucket.objects import Bucket, is_url
from multiberts.runs.command_line.gin_files import located
from multiberts.runs.console import progress, report, warn
from multiberts.runs.directory import CONFIG, DONE
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike, write_atomically
from multiberts.runs.preemption import PreemptedError

ENGINE = "skypilot"
STAGE = "pretrain"
# Its `workdir: .` is this folder, which SkyPilot copies to each machine.
PROJECT = Path(__file__).resolve().parent.parent
_INSTALL = "uv tool install --python 3.11 'skypilot[gcp,kubernetes]==0.14.1'"
# Everybody's jobs and all of them (50 otherwise), with reasons; starts a controller that was stopped.
_QUEUE = ("jobs", "queue", "--all", "--all-users", "--verbose", "--refresh", "-o", "json")
_COLOURS = re.compile(r"(?:\x1b|\\u001b)\[[0-9;]*m")  # as they are, and in JSON
_STATE = re.compile(r"state/step_(\d+)")


@dataclass(frozen=True, kw_only=True)
class SkyPilotOptions:
    """Options of managed jobs; `run.engine_options` in Gin.

    Attributes:
      bucket: URL of a folder of this experiment alone, such as `gs://my-bucket/multiberts`.
      task: SkyPilot's file of a seed; it gives `multiberts pretrain` the flags in `$FLAGS`.
    """

    bucket: str
    task: str = "configs/launch/skypilot/pretrain.yaml"


@dataclass(frozen=True)
class ManagedJob:
    """A managed job as `sky jobs queue` lists it; texts are one line, and `-` means none."""

    id: int
    recoveries: int
    name: str
    status: str
    machine: str
    zone: str
    reason: str

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> ManagedJob:
        reason = row.get("failure_reason") or row.get("details")
        texts = (
            row["job_name"],
            row["status"],
            row.get("cluster_resources"),
            row.get("infra"),
            reason,
        )
        in_one_line = (" ".join(str(text or "-").split()) for text in texts)
        return cls(int(row["job_id"]), int(row.get("recovery_count") or 0), *in_one_line)

    @property
    def is_live(self) -> bool:
        # States that later versions may bring count as live.
        return not self.status.startswith(("FAILED", "SUCCEEDED", "CANCELLED"))

    @property
    def device(self) -> str | None:
        """Returns the accelerator's name in `launch/estimate/prices.toml`; None without accelerators."""
        match = re.search(r"gpus=(?:tpu-)?(?P<name>[^:]+):(?P<count>\d+)", self.machine)
        return match and f"{match['count']}x{match['name']}".removeprefix("1x")

    @property
    def end(self) -> str:
        has_no_done = self.status == "SUCCEEDED"
        reason = "but the bucket has no DONE of this run" if has_no_done else self.reason
        return (
            f"job {self.id} is {self.status}: {reason} (`sky jobs logs {self.id}` shows its output)"
        )


def submit_plan(
    *,
    plan: list[PlannedRun],
    root: str,
    options: SkyPilotOptions,
    attempts: int,
    carry_out: Callable[[list[PlannedRun]], list[FailedRun]],
) -> list[FailedRun]:
    """Takes one look at the pre-training of a plan: fetches, submits, and shows what trains.

    Runs that need pre-training are left to another engine.

    Args:
      plan: every run after its parents.
      root: directory of the experiment here: markers, and in the end what was trained.
      options: the bucket of the runs, and the task that trains one.
      attempts: number of jobs of a run that may fail.
      carry_out: called first with the runs that pre-training needs, to carry them out on this machine.

    Returns:
      The runs that failed, once nothing trains any more.
    """
    bucket, task = Bucket(options.bucket), _task_file(options.task)
    bucket.check_writable()
    needed: set[str] = set()
    for run in reversed(plan):
        if run.path in needed or (run.stage == STAGE and not run.done(root)):
            needed |= {parent.path for parent in run.parents if parent.stage != STAGE}
    before = [run for run in plan if run.path in needed]
    if not all(run.done(root) for run in before):
        _program()  # is asked for before hours of preparation
        if failures := carry_out(before):
            return failures
    with launching(root):
        write_plan(root, plan)
        return _Look(plan, Path(root), bucket, task, attempts).take()


def cancel_jobs(root: PathLike, options: SkyPilotOptions) -> list[str]:
    """Cancels the live jobs of an experiment, and returns a line about each."""
    live = [job for job in _queue(_prefix(Bucket(options.bucket))) if job.is_live]
    if live:
        _sky("jobs", "cancel", "-y", *(str(job.id) for job in live))
    for attempt in _open_attempts(root):
        end_attempt(root, attempt, "preempted")
    return [f"job {job.id}, {job.name} ({job.status}): cancelled" for job in live]


class _Look:
    """One look at the pre-training of a plan; see `submit_plan` for the arguments."""

    def __init__(
        self, plan: Sequence[PlannedRun], root: Path, bucket: Bucket, task: Path, attempts: int
    ):
        self._plan, self._root, self._bucket, self._task = plan, root, bucket, task
        self._attempts = attempts
        self._pretraining = [run for run in plan if run.stage == STAGE]
        self._jobs: list[ManagedJob] = []
        self._failed: dict[str, FailedRun] = {}

    def take(self) -> list[FailedRun]:
        left = needed = [run for run in self._pretraining if not run.done(self._root)]
        if left or _open_attempts(self._root):
            # Asked before the bucket is read: a job that has succeeded by now has written DONE.
            progress(f"asking SkyPilot for the jobs of {counted(len(left), 'run')}")
            self._jobs = _queue(_prefix(self._bucket))
        for run in left:
            if self._bucket_of(run).read(DONE) is not None:
                progress(f"{run.name} is done: fetching it from {self._bucket_of(run).url}")
                fetch_run(self._bucket_of(run), self._root / run.path)
        left = [run for run in left if not run.done(self._root)]

        # Submit the runs that are due.
        due = [run for run in left if self._is_due(run)]
        if due:
            self._submit(due)
            self._jobs = _queue(_prefix(self._bucket))

        # Write markers for `launch status`, print a table, and name live jobs of other plans.
        self._write_markers()
        self._show(left)
        ours = {job.id for job in map(self._live, needed) if job is not None}
        others = [
            job
            for job in self._jobs
            if job.is_live and job.status != "CANCELLING" and job.id not in ours
        ]
        if others:
            ids = " ".join(str(job.id) for job in others)
            named = ", ".join(f"{job.id} ({job.name}, {job.status})" for job in others)
            warn(
                f"{counted(len(others), 'job')} of SkyPilot train into this bucket what this plan does not "
                f"need (changed, done, or twice): {named}; `sky jobs cancel -y {ids}` cancels them"
            )
        num_runs = counted(len(self._pretraining), "pre-training run")
        done = f"{len(self._pretraining) - len(left)} of {num_runs} of {self._root} done"
        if len(left) > len(self._failed):
            for failed in self._failed.values():
                warn(f"{failed.run.name}: {failed.message}")
            num_live = sum(self._live(run) is not None for run in left)
            raise PreemptedError(
                f"{done}, {counted(num_live, 'job')} of SkyPilot under way; the same command looks again, "
                "and fetches what is done"
            )
        report(done)
        later = sum(run.stage != STAGE and not run.done(self._root) for run in self._plan)
        if later and not left:
            report(
                f"{counted(later, 'run')} left: --engine=local --engine_options={{}} carries them out here"
            )
        return list(self._failed.values())

    def _bucket_of(self, run: PlannedRun) -> Bucket:
        return Bucket(f"{self._bucket.url}/{run.path}")

    def _name(self, run: PlannedRun) -> str:
        # SkyPilot allows these characters only; the path ends in the run's hash, so names differ.
        return _prefix(self._bucket) + re.sub(r"[^A-Za-z0-9._-]+", "-", run.path)[-60:]

    def _of(self, run: PlannedRun) -> list[ManagedJob]:
        name = self._name(run)
        return [job for job in self._jobs if job.name == name]

    def _live(self, run: PlannedRun) -> ManagedJob | None:
        return next((job for job in self._of(run) if job.is_live), None)

    def _is_due(self, run: PlannedRun) -> bool:
        """Returns whether an unfinished run gets a job now; records a failure if it gets no other one."""
        lost = [parent.name for parent in run.parents if parent.path in self._failed]
        ends = [job for job in self._of(run) if job.status != "CANCELLED"]
        if lost:
            self._failed[run.path] = FailedRun(
                run, f"not started, for {lost[0]} failed", False, None
            )
        elif self._live(run) is None and len(ends) >= self._attempts:
            message = f"{ends[-1].end}; --attempts={len(ends) + 1} submits it again"
            self._failed[run.path] = FailedRun(run, message, False, None, len(ends))
        elif self._live(run) is None and all(parent.done(self._root) for parent in run.parents):
            if ends:
                warn(f"{run.name}: {ends[-1].end}; it is submitted again")
            return True
        return False

    def _submit(self, runs: Sequence[PlannedRun]) -> None:
        where = ["--env", f"BUCKET={self._bucket.url}"]
        progress(f"submitting {counted(len(runs), 'job')}, about 15 s each")
        # Otherwise jobs that no cloud can run would fail later, one by one.
        _sky("launch", "--dryrun", "-y", *where, str(self._task))
        for run in runs:
            # Upload the inputs; the arguments have URLs in place of paths.
            for parent in run.parents:
                push_finished(self._root / parent.path, f"{self._bucket.url}/{parent.path}")
            arguments = run.arguments(self._bucket.url)
            for name, open_input in stage_identity("pretrain").inputs.items():
                path = arguments.get(name)
                if path is not None and not is_url(path) and not is_name(path):
                    arguments[name] = f"{self._bucket.url}/inputs/{open_input(path).identity[:16]}"
                    push_input(Path(path), arguments[name])
            flags = [f"--gin_param=pretrain.{name} = {arguments[name]!r}" for name in arguments]
            name, flagged = self._name(run), ["--env", f"FLAGS={shlex.join(flags)}"]
            _sky("jobs", "launch", "-y", "-d", "-n", name, *where, *flagged, str(self._task))
            progress(f"{run.name}: submitted as {name}")

    def _write_markers(self) -> None:
        """Writes the runs' jobs and outcomes for `launch status`."""
        attempts_by_run = attempts_of(self._root)
        for run in self._pretraining:
            attempts, is_done = attempts_by_run.get(run.path, []), run.done(self._root)
            jobs = {str(job.id): job for job in self._of(run)}
            under_way = [a for a in attempts if a.engine == ENGINE and a.ended is None]
            for attempt in under_way:
                job = jobs.get(attempt.job or "")
                if is_done:
                    end_attempt(self._root, attempt, "done")
                elif job is None or job.status == "CANCELLED":
                    end_attempt(self._root, attempt, "preempted")
                elif job.is_live:
                    # The journal's time of change is the heartbeat.
                    device = job.device or attempt.device
                    write_attempt(self._root, dataclasses.replace(attempt, device=device))
                else:
                    error = {"kind": "JobFailed", "message": job.end}
                    end_attempt(self._root, attempt, "failed", error)
            live = self._live(run)
            if live is None or is_done or str(live.id) in {a.job for a in under_way}:
                continue
            facts = {"host": live.name, "pid": 0, "job": str(live.id)}
            number = len(attempts) + 1
            begin_attempt(self._root, run.path, engine=ENGINE, attempt=number, **facts)

        planned = {run.path for run in self._pretraining}
        live_jobs = {str(job.id) for job in self._jobs if job.is_live}
        for attempt in _open_attempts(self._root):
            if attempt.path not in planned and attempt.job not in live_jobs:
                end_attempt(self._root, attempt, "preempted")

    def _show(self, runs: Sequence[PlannedRun]) -> None:
        rows = [("run", "job", "state", "recoveries", "machine", "zone", "step in the bucket")]
        for run in runs:
            job, state = self._live(run), "failed" if run.path in self._failed else "waits"
            ours = ("-", state, "-", "-", "-")
            if job is not None:
                ours = (str(job.id), job.status, str(job.recoveries), job.machine, job.zone)
            # Copy its log here: status reads the step from it.
            step = "-"
            if (pushed := last_push(self._bucket_of(run))) is not None:
                files, when = pushed
                for name in (
                    CONFIG,
                    METRICS,
                ):  # status takes a folder with a configuration for a run
                    data = (
                        self._bucket_of(run).read(files[name]["object"]) if name in files else None
                    )
                    if data is not None:
                        write_atomically(self._root / run.path / name, data)
                steps = [int(match[1]) for name in files if (match := _STATE.match(name))]
                ago = quantities.duration(max(0.0, time.time() - when))
                step = f"{max(steps, default=0):,} of {run.parameters['num_steps']:,}, pushed {ago} ago"
            rows.append((run.name, *ours, step))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows if runs else ():
            report("  ".join(map(str.ljust, row, widths)).rstrip())
        for job in filter(None, map(self._live, runs)):
            if job.status != "RUNNING" and job.reason != "-":
                report(f"job {job.id}: {job.reason}")


def _open_attempts(root: PathLike) -> list[Attempt]:
    of_root = (attempt for of_run in attempts_of(root).values() for attempt in of_run)
    return [attempt for attempt in of_root if attempt.engine == ENGINE and attempt.ended is None]


def _task_file(name: str) -> Path:
    if not (PROJECT / "README.md").is_file():  # which the project is not installed without
        raise UserError(
            f"run.engine is 'skypilot', which installs the project's folder on its machines, but {PROJECT} "
            "is only the package; clone the project, and run `pip install -e .` there"
        )
    task = located(name).absolute()
    if not task.is_file():
        raise UserError(f"run.engine_options['task'] is {name!r}, which is not a file; correct it")
    if "$FLAGS" not in task.read_text(errors="replace"):
        raise UserError(
            f"{task} does not use $FLAGS, which says what to train; copy "
            "configs/launch/skypilot/pretrain.yaml and change its resources"
        )
    return task


def _prefix(bucket: Bucket) -> str:
    """Returns the prefix of the names of an experiment's jobs."""
    return f"mb-{hashlib.sha256(bucket.url.encode()).hexdigest()[:8]}-"


def _queue(prefix: str) -> list[ManagedJob]:
    """Returns the jobs whose names have this prefix, oldest first."""
    try:
        printed = _sky(*_QUEUE)
    except UserError as error:
        # Before the first job there may be no machine that controls jobs.
        if "No in-progress managed jobs" in str(error):
            return []
        raise
    try:
        # Starting a server prints a line before the JSON.
        rows, _ = json.JSONDecoder().raw_decode("[" + f"\n{printed}".partition("\n[")[2])
        ours = [row for row in rows if str(row["job_name"]).startswith(prefix)]
        return sorted(map(ManagedJob.of_row, ours), key=lambda job: job.id)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"`sky {' '.join(_QUEUE)}` printed {_last_line(printed)!r}, expected a list of jobs as "
            f"SkyPilot 0.14.1 prints it; install that: {_INSTALL}"
        ) from error


def _program() -> str:
    program = shutil.which("sky")
    if program is None:
        raise UserError(
            f"run.engine is 'skypilot' but the command sky is not found; install it: {_INSTALL}"
        )
    return program


def _sky(*arguments: str) -> str:
    """Runs `sky` and returns its output; a failure raises its last line."""
    ended = subprocess.run(
        [_program(), *arguments],
        cwd=PROJECT,
        env={"SKYPILOT_DISABLE_USAGE_COLLECTION": "1", **os.environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        said = _last_line(f"{ended.stdout}\n{ended.stderr}")
        said = said.replace("'", '"')  # or absl would take name='value' for a flag
        raise UserError(
            f"`sky {' '.join(arguments[:2])}` failed: {said} (mend that, then give the same command)"
        )
    return _COLOURS.sub("", ended.stdout)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in _COLOURS.sub("", text).splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
