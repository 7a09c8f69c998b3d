"""Pre-trains the seeds of a plan as managed jobs of SkyPilot, in any cloud, on Kubernetes or on Slurm.

Each call takes one look: it fetches seeds that are done, submits those that have no job, and shows the others. SkyPilot
moves its jobs from machine to machine meanwhile, and the bucket has all that a seed needs to resume. It is called as the
program `sky`, from an environment of its own, as it wants an older click than this one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiberts.bert.training.log import METRICS
from multiberts.launch.estimate import quantities
from multiberts.launch.markers.attempts import attempts_of, beat, begin_attempt, end_attempt
from multiberts.launch.markers.failures import FailedRun
from multiberts.launch.markers.lease import Lease
from multiberts.launch.markers.planned import write_plan
from multiberts.launch.plan.planned_run import PlannedRun, with_leaves
from multiberts.launch.running import run_plan
from multiberts.runs.bucket.copies import fetch_run, push_finished
from multiberts.runs.bucket.mirror import MANIFEST
from multiberts.runs.bucket.objects import Bucket, is_url
from multiberts.runs.command_line.gin_files import located
from multiberts.runs.console import progress, report, warn
from multiberts.runs.directory import CONFIG, DONE, fingerprint
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike, write_atomically
from multiberts.runs.preemption import PreemptedError

ENGINE = "skypilot"
STAGE = "pretrain"
# Its `workdir: .` is this folder, which SkyPilot copies to each machine.
PROJECT = Path(__file__).resolve().parent.parent
_INSTALL = "uv tool install --python 3.11 'skypilot[gcp,kubernetes]==0.14.1'"
# The error of a `sky jobs queue` before the first job, where jobs are controlled by a machine of their own.
_NO_CONTROLLER = "No in-progress managed jobs"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_STATE = re.compile(r"state/step_(\d+)")
# Arguments of pre-training that name directories of finished runs.
_INPUTS = ("corpus", "evaluation_corpus", "initial_checkpoint")
# Stands for the experiment's root where its runs' arguments are asked for.
_ROOT = "/the-root-of-the-experiment"


@dataclass(frozen=True, kw_only=True)
class SkyPilotOptions:
    """Options of managed jobs; `run.engine_options` in Gin.

    Attributes:
      bucket: URL of a folder of this experiment alone, such as `gs://my-bucket/multiberts`.
      task: SkyPilot's file of a seed; it trains with `multiberts pretrain` and the flags in `FLAGS`.
    """

    bucket: str
    task: str = "configs/launch/skypilot/pretrain.yaml"


@dataclass(frozen=True)
class ManagedJob:
    """A managed job as `sky jobs queue` has it."""

    id: int
    name: str
    status: str
    recoveries: int
    machine: str
    zone: str
    reason: str

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> ManagedJob:
        def text(name: str) -> str:
            return " ".join(_COLOURS.sub("", str(row.get(name) or "-")).split())

        reason = text("failure_reason")
        return cls(
            int(row["job_id"]),
            text("job_name"),
            text("status"),
            int(row.get("recovery_count") or 0),
            text("cluster_resources"),
            text("infra"),
            reason if reason != "-" else text("details"),
        )

    @property
    def is_live(self) -> bool:
        """Returns whether it has not ended; states that later versions may bring count as live."""
        return not self.status.startswith("FAILED") and self.status not in (
            "SUCCEEDED",
            "CANCELLED",
        )

    @property
    def end(self) -> str:
        """Returns how it failed, for people."""
        reason = self.reason
        if self.status == "SUCCEEDED":
            reason = "the bucket has no DONE of this run all the same"
        return (
            f"job {self.id} is {self.status}: {reason} (`sky jobs logs {self.id}` shows its output)"
        )


def submit_plan(
    *, plan: list[PlannedRun], root: str, options: SkyPilotOptions, attempts: int
) -> list[FailedRun]:
    """Takes one look at the pre-training of a plan: fetches, submits, and shows what trains.

    Runs that pre-training needs are carried out on this machine before; those that need it are left to
    another engine.

    Args:
      plan: every run after its parents.
      root: directory of the experiment here: markers, and in the end what was trained.
      options: where the runs are kept, and how a machine trains.
      attempts: how many jobs of a run may fail.

    Returns:
      The runs that failed, once nothing trains any more.

    Raises:
      PreemptedError: jobs train on; the same call looks again.
    """
    bucket, task = Bucket(options.bucket), _task_file(options.task)
    bucket.check_conditional()
    bucket.check_writable()
    failures = _carry_out_before(plan, root)
    if failures:
        return failures
    with Lease(root):
        write_plan(root, plan)
        return _Look(plan, Path(root), bucket, task, attempts).take()


def cancel_jobs(root: PathLike, options: SkyPilotOptions) -> list[str]:
    """Cancels the live jobs of an experiment, and returns a line about each."""
    jobs = _queue(_prefix(Bucket(options.bucket)))
    live = [job for of_run in jobs.values() for job in of_run if job.is_live]
    if live:
        _sky("jobs", "cancel", "-y", *(str(job.id) for job in live))
    for of_run in attempts_of(root).values():
        if of_run[-1].engine == ENGINE and of_run[-1].ended is None:
            end_attempt(root, of_run[-1], "preempted")
    return [f"job {job.id}, {job.name} ({job.status}): cancelled" for job in live]


class _Look:
    """One look at the pre-training of a plan; see `submit_plan` for the arguments."""

    def __init__(
        self, plan: Sequence[PlannedRun], root: Path, bucket: Bucket, task: Path, attempts: int
    ):
        self._plan, self._root, self._bucket, self._task = plan, root, bucket, task
        self._attempts = attempts
        self._pretraining = [run for run in plan if run.stage == STAGE]
        self._names = {
            run.path: f"{_prefix(bucket)}{re.sub(r'[^A-Za-z0-9._-]+', '-', run.path)[-60:]}"
            for run in self._pretraining
        }
        self._jobs: dict[str, list[ManagedJob]] = {}

    def take(self) -> list[FailedRun]:
        if self._left():
            # Before the bucket is read, so that a job that has succeeded has left its DONE there.
            self._jobs = _queue(_prefix(self._bucket))
        for run in self._left():
            place = Bucket(f"{self._bucket.url}/{run.path}")
            if place.read(DONE) is not None:
                progress(f"{run.name} is done: fetching it from {place.url}")
                fetch_run(place, self._root / run.path)
        failed = self._failed()
        due = [run for run in self._left() if self._is_due(run) and run.path not in failed]
        if due:
            self._submit(due)
            self._jobs = _queue(_prefix(self._bucket))
        self._mark(failed)
        left = self._left()
        self._show(left, failed)
        num_done, num_live = len(self._pretraining) - len(left), sum(map(self._is_live, left))
        done = (
            f"{num_done} of {counted(len(self._pretraining), 'pre-training run')} of {self._root}"
        )
        if len(left) > len(failed):
            raise PreemptedError(
                f"{done} done, {counted(num_live, 'job')} of SkyPilot under way; the same command looks "
                "again, and fetches what is done"
            )
        report(f"{done} done")
        later = sum(run.stage != STAGE and not run.done(self._root) for run in self._plan)
        if later and not left:
            report(f"{counted(later, 'run')} left: --engine=local carries them out here")
        return list(failed.values())

    def _left(self) -> list[PlannedRun]:
        return [run for run in self._pretraining if not run.done(self._root)]

    def _of(self, run: PlannedRun) -> list[ManagedJob]:
        return self._jobs.get(self._names[run.path], [])

    def _is_live(self, run: PlannedRun) -> bool:
        return any(job.is_live for job in self._of(run))

    def _is_due(self, run: PlannedRun) -> bool:
        return not self._is_live(run) and all(parent.done(self._root) for parent in run.parents)

    def _failed(self) -> dict[str, FailedRun]:
        """Returns the runs that get no further job, and those that build on them."""
        failed: dict[str, FailedRun] = {}
        for run in self._left():
            lost = [parent.name for parent in run.parents if parent.path in failed]
            ends = [job for job in self._of(run) if job.status != "CANCELLED"]
            if lost:
                failed[run.path] = FailedRun(
                    run, f"not started, for {lost[0]} failed", is_user_error=False, log=None
                )
            elif ends and not self._is_live(run) and len(ends) >= self._attempts:
                message = f"{ends[-1].end}; --attempts={len(ends) + 1} submits it again"
                failed[run.path] = FailedRun(run, message, False, None, len(ends))
            elif ends and not self._is_live(run):
                warn(f"{run.name}: {ends[-1].end}; it is submitted again")
        return failed

    def _submit(self, runs: Sequence[PlannedRun]) -> None:
        # Jobs that no cloud can take would fail later, and one by one.
        where = ["--env", f"BUCKET={self._bucket.url}"]
        _sky("launch", "--dryrun", "-y", *where, str(self._task))
        for run in runs:
            arguments = self._put_inputs(run)
            flags = [f"--gin_param=pretrain.{name} = {arguments[name]!r}" for name in arguments]
            name = self._names[run.path]
            flagged = ["--env", f"FLAGS={shlex.join(flags)}"]
            _sky("jobs", "launch", "-y", "-d", "-n", name, *where, *flagged, str(self._task))
            progress(f"{run.name}: submitted as {name}")

    def _put_inputs(self, run: PlannedRun) -> dict[str, Any]:
        """Puts what a run reads into the bucket, and returns its arguments with URLs for paths."""
        for parent in run.parents:
            push_finished(self._root / parent.path, f"{self._bucket.url}/{parent.path}")

        def with_url(leaf: Any) -> Any:
            is_inside = isinstance(leaf, str) and leaf.startswith(f"{_ROOT}/")
            return self._bucket.url + leaf.removeprefix(_ROOT) if is_inside else leaf

        arguments: dict[str, Any] = with_leaves(run.arguments(_ROOT), with_url)
        for name in _INPUTS:
            path = arguments.get(name)
            if path is not None and not is_url(path):
                arguments[name] = f"{self._bucket.url}/inputs/{fingerprint(path)[:16]}"
                push_finished(Path(path), arguments[name])
        return arguments

    def _mark(self, failed: Mapping[str, FailedRun]) -> None:
        """Writes for `launch status` which runs have a job, and how the others' last job ended."""
        known = attempts_of(self._root)
        for run in self._pretraining:
            jobs = {str(job.id): job for job in self._of(run)}
            live = [job for job in jobs.values() if job.is_live]
            of_run = known.get(run.path, [])
            for attempt in of_run:
                if attempt.engine != ENGINE or attempt.ended is not None:
                    continue
                job = jobs.get(attempt.job or "")
                if job is not None and job.is_live and not run.done(self._root):
                    beat(self._root, attempt)
                    live = []
                elif run.done(self._root):
                    end_attempt(self._root, attempt, "done")
                elif job is None or job.status == "CANCELLED":
                    end_attempt(self._root, attempt, "preempted")
                else:
                    kind = UserError.__name__ if run.path in failed else "JobFailed"
                    error = {"kind": kind, "message": job.end}
                    end_attempt(self._root, attempt, "failed", error)
            for job in live[:1] if not run.done(self._root) else ():
                facts = {"host": job.name, "pid": 0, "job": str(job.id), "attempt": len(of_run) + 1}
                begin_attempt(self._root, run.path, engine=ENGINE, **facts)

    def _show(self, runs: Sequence[PlannedRun], failed: Mapping[str, FailedRun]) -> None:
        """Prints a row per run that is not done."""
        rows = [("run", "job", "state", "recoveries", "machine", "zone", "step in the bucket")]
        for run in runs:
            job = next(reversed(self._of(run)), None)
            state = "failed" if run.path in failed else "waits for its parent"
            ours = ("-", state, "-", "-", "-")
            if job is not None and run.path not in failed:
                ours = (str(job.id), job.status, str(job.recoveries), job.machine, job.zone)
            rows.append((run.name, *ours, self._progress(run)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows if runs else ():
            report(
                "  ".join(
                    text.ljust(width) for text, width in zip(row, widths, strict=True)
                ).rstrip()
            )

    def _progress(self, run: PlannedRun) -> str:
        """Returns how far a run in the bucket has come; its log is copied here, where status looks."""
        place = Bucket(f"{self._bucket.url}/{run.path}")
        content = place.read(MANIFEST)
        if content is None:
            return "-"
        manifest = json.loads(content)
        for name in (CONFIG, METRICS):  # with its configuration the folder counts as a run
            entry = manifest["files"].get(name)
            data = place.read(entry["object"]) if entry else None
            if data is not None:
                write_atomically(self._root / run.path / name, data)
        steps = [int(state[1]) for name in manifest["files"] if (state := _STATE.match(name))]
        ago = quantities.duration(max(0.0, time.time() - manifest["time"]))
        return f"{max(steps, default=0):,} of {run.parameters['num_steps']:,}, pushed {ago} ago"


def _carry_out_before(plan: Sequence[PlannedRun], root: str) -> list[FailedRun]:
    """Carries out on this machine what pre-training needs."""
    needed: set[str] = set()
    for run in reversed(plan):
        if run.path in needed or (run.stage == STAGE and not run.done(root)):
            needed |= {parent.path for parent in run.parents if parent.stage != STAGE}
    before = [run for run in plan if run.path in needed]
    if all(run.done(root) for run in before):
        return []
    return run_plan(plan=before, root=root)


def _task_file(name: str) -> Path:
    task = located(name).absolute()
    if not task.is_file():
        raise UserError(f"run.engine_options['task'] is {name!r}, which is not a file; correct it")
    if "$FLAGS" not in task.read_text(errors="replace"):
        raise UserError(
            f"{task} does not use $FLAGS, which says what to train; copy "
            "configs/launch/skypilot/pretrain.yaml and change its resources"
        )
    if not (PROJECT / "pyproject.toml").is_file():
        raise UserError(
            f"run.engine is 'skypilot', which installs the project's folder on its machines, but {PROJECT} "
            "is only the package; clone the project, and `pip install -e .` there"
        )
    return task


def _prefix(bucket: Bucket) -> str:
    """Returns how the names of an experiment's jobs begin."""
    return f"mb-{hashlib.sha256(bucket.url.encode()).hexdigest()[:8]}-"


def _queue(prefix: str) -> dict[str, list[ManagedJob]]:
    """Returns the jobs whose names begin so, by name, the oldest first."""
    # All, as it has 50 else; the last reason of each; with a controller that was stopped, started again.
    arguments = ("jobs", "queue", "--all", "--verbose", "--refresh", "-o", "json")
    try:
        printed = _sky(*arguments)
    except UserError as error:
        if _NO_CONTROLLER in str(error):
            return {}
        raise
    try:
        # Before it there may be a line about a server that is started, which begins with a colour.
        rows = json.JSONDecoder().raw_decode(printed, re.search(r"^\[", printed, re.M).start())[0]  # type: ignore[union-attr]
        jobs = sorted(map(ManagedJob.of_row, rows), key=lambda job: job.id)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"`sky {' '.join(arguments)}` printed {_last_line(printed)!r}, expected a list of jobs as "
            f"SkyPilot 0.14.1 prints it; install that: {_INSTALL}"
        ) from error
    by_name: dict[str, list[ManagedJob]] = {}
    for job in jobs:
        if job.name.startswith(prefix):
            by_name.setdefault(job.name, []).append(job)
    return by_name


def _sky(*arguments: str) -> str:
    """Returns what `sky` prints; its last line is the error where it fails."""
    program = shutil.which("sky")
    if program is None:
        raise UserError(
            f"run.engine is 'skypilot' but the command sky is not found; install it: {_INSTALL}"
        )
    environment = {"SKYPILOT_DISABLE_USAGE_COLLECTION": "1", **os.environ}
    ended = subprocess.run(
        [program, *arguments],
        cwd=PROJECT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        said = _last_line(ended.stderr) or _last_line(ended.stdout) or "no output"
        raise UserError(
            f"`sky {' '.join(arguments[:2])}` failed: {said} (mend that, then give the same command)"
        )
    return ended.stdout


def _last_line(text: str) -> str:
    lines = [line.strip() for line in _COLOURS.sub("", text).splitlines()]
    return next((line for line in reversed(lines) if line), "")
