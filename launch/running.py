"""Carries out a plan of runs: starts what can start, tries again what failed, resumes where it stopped.

`multiberts launch run --reap` ends processes and jobs that a dead launcher left behind.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.launch.estimate.quantities import duration
from multiberts.launch.markers.attempts import EngineName
from multiberts.launch.markers.failures import FailedRun
from multiberts.launch.markers.lease import launcher_at_a_glance, launching
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.status.page import PAGE, write_status_page
from multiberts.launch.status.snapshot import collect_status
from multiberts.launch.workers.engines import make_engine, options_of
from multiberts.launch.workers.launcher import Outcomes, carry_out
from multiberts.launch.workers.leftovers import close_attempts, end_processes, end_slurm_jobs
from multiberts.launch.workers.worker import LaunchContext
from multiberts.runs.bucket.lease import LeaseHeldError
from multiberts.runs.bucket.objects import BucketUnreachableError
from multiberts.runs.console import progress, report
from multiberts.runs.environment import machine
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike, write_atomically
from multiberts.runs.parameters import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    annotations_of,
    check_types,
)
from multiberts.runs.processes import available_cores

# Time of the last launch with anything to do, where it ran on one machine.
TIME = "launch/time.json"
_SECONDS_TO_EXIT = 2.0


def run_plan(
    *,
    plan: list[PlannedRun],
    root: str,
    engine: EngineName = "local",
    engine_options: Mapping[str, Any] | None = None,
    workers: PositiveInt | None = None,
    workers_per_accelerator: PositiveInt = 1,
    attempts: PositiveInt = 3,
    budget: NonNegativeFloat | None = None,
    reap: bool = False,
    silent_seconds: PositiveFloat = 90.0,
    dashboard: bool = False,
) -> list[FailedRun]:
    """Carries out the runs of a plan that are not done yet.

    The same call after a kill or a failure resumes where it stopped. On SIGTERM or SIGHUP the workers are
    asked to save and exit. When this process dies, however it dies, its workers exit.

    Args:
      plan: every run after its parents.
      root: directory of the experiment; every run lies below it.
      engine: `local` (this machine), `slurm`, `dask` (any cluster of Dask, by its address) or `skypilot`
        (pre-training by managed jobs; one look, status 75 while they train).
      engine_options: of the engine; see `launch.workers.engines` and `launch.managed_jobs`.
      workers: processes on a machine, each with its share of the cores; None: one per GPU (times
        workers_per_accelerator) where there are any, else one per core.
      workers_per_accelerator: number of workers that share a GPU.
      attempts: number of attempts at a run that fails for a reason other than its input.
      budget: refuse a plan with a higher estimate in dollars; None: any.
      reap: start nothing; end and list processes and jobs that a dead launcher of this experiment left
        behind. With engine `skypilot`, cancel its jobs.
      silent_seconds: kill a worker or trainer that has sent no heartbeat for this many seconds (stopped, or
        hung), and try its run again; engine `dask` uses the cluster's own limit.
      dashboard: serve Dask's live pages at 127.0.0.1 (engines `local` and `slurm`; the extra `dashboard`).

    Returns:
      The runs that failed, empty if all is done. The others were carried out all the same.

    Raises:
      UserError: an unknown engine or option, another launcher has the root, a plan above the budget;
        nothing has been started.
      PreemptedError: SIGTERM or SIGHUP came; no worker is left.
    """
    check_types("run", locals(), annotations_of(run_plan))
    if reap:
        reap_experiment(root, engine, engine_options)
        return []
    if engine == "skypilot":
        from multiberts.launch.managed_jobs import SkyPilotOptions, submit_plan

        unused = {"workers": workers, "budget": budget, "dashboard": dashboard or None}
        for name, value in unused.items():
            if value is not None:
                raise UserError(
                    f"run.{name} is set, but run.engine is 'skypilot', which has none; leave it out"
                )
        return submit_plan(
            plan=plan,
            root=root,
            options=options_of(SkyPilotOptions, engine, engine_options or {}),
            attempts=attempts,
            carry_out=lambda runs: run_plan(plan=runs, root=root) if runs else [],
        )
    if dashboard and engine == "dask":
        raise UserError(
            "run.dashboard is set, but run.engine is 'dask', whose scheduler has pages of its own; leave "
            "it out"
        )
    settings = make_engine(engine, engine_options or {}, workers, workers_per_accelerator)
    try:
        with launching(root) as lease:
            end_processes(root, None)
            end_slurm_jobs(root)
            context = LaunchContext(root, engine, lease.owner, workers_per_accelerator)
            outcomes = Outcomes(plan, Path(root), attempts, settings.is_local)
            num_before = len(outcomes.done)
            started = os.times()
            carry_out(
                outcomes,
                settings,
                context,
                lease,
                budget=budget,
                silent_seconds=silent_seconds,
                dashboard=dashboard,
            )
            had_work = num_before < len(plan)
            if had_work and settings.is_local:
                _record_time(Path(root), len(outcomes.done) - num_before, started)

            # `report`, `scores` and `paper` link to this plan's directories, whose names end in hashes.
            for run in plan:
                link = Path(root) / run.path.rsplit("-", 1)[0]
                if run.stage not in ("report", "score", "paper") or not run.done(root):
                    continue
                if link.exists() and not link.is_symlink():
                    raise UserError(
                        f"{link} is not a link, expected one to {run.path}; move it away and give the same "
                        "command, which has nothing else left to do"
                    )
                if not link.is_symlink() or os.readlink(link) != run.path:
                    fresh = link.with_name(link.name + ".unfinished")
                    fresh.unlink(missing_ok=True)
                    fresh.symlink_to(run.path)
                    os.replace(fresh, link)
        page = Path(root, PAGE)
        if had_work or not page.exists():
            status = collect_status(root, done=outcomes.done, attempts=outcomes.attempts or None)
            write_status_page(status, page)
    except KeyboardInterrupt:
        progress("stopped; the same command resumes from here")
        # Libraries' exit handlers take longer than people wait.
        os._exit(130)
    return [outcomes.failures[run.path] for run in plan if run.path in outcomes.failures]


def _record_time(root: Path, num_runs: int, started: os.times_result) -> None:
    """Prints and keeps the time that a launch on this machine took, with its workers' start."""
    for child in multiprocessing.active_children():
        child.join(_SECONDS_TO_EXIT)  # the system counts a process once its end was waited for
    *of_cpu, wall = (now - before for now, before in zip(os.times(), started, strict=True))
    cpu = sum(of_cpu)  # of this process and of those that it has waited for
    taken = {
        "runs": num_runs,
        "wall_seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "cores": available_cores(),
        "processor": machine()["processor"],
    }
    write_atomically(root / TIME, json.dumps(taken) + "\n")
    report(f"{counted(num_runs, 'run')} in {duration(wall)}, {duration(cpu)} of CPU time")


def reap_experiment(
    root: PathLike,
    engine: EngineName = "local",
    engine_options: Mapping[str, Any] | None = None,
) -> None:
    """Ends processes and jobs of an experiment that a dead launcher left behind, and reports them.

    A launcher on another machine is alive if it renews its lease while this function watches, for up to
    90 s.

    Args:
      engine: `skypilot` also cancels its jobs.
    """
    if not Path(root).is_dir():
        raise UserError(f"{root} is not a directory; check launch.root")
    try:
        with launching(root):
            ended = end_processes(root, None)
            closed = close_attempts(root)
            if closed:
                report(f"{counted(closed, 'attempt')} of processes that are gone marked as lost")
            ended += closed + end_slurm_jobs(root)
    except LeaseHeldError as refusal:
        ended = end_processes(root, refusal.holder)
    except BucketUnreachableError:  # the disk is full or read-only
        holder = launcher_at_a_glance(root)
        ended = end_processes(root, holder)
        if holder is None:
            ended += end_slurm_jobs(root)
    if engine == "skypilot":
        from multiberts.launch.managed_jobs import SkyPilotOptions, cancel_jobs

        cancelled = cancel_jobs(root, options_of(SkyPilotOptions, engine, engine_options or {}))
        report("\n".join(cancelled) or "no job of SkyPilot is under way")
    elif not ended:
        report(f"nothing to end: all that runs for {root} has its launcher, or nothing runs")
