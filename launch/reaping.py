"""`multiberts launch run --reap`: ends what belongs to no running launcher of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.launch.markers.attempts import EngineName
from multiberts.launch.markers.lease import launcher_at_a_glance, launching
from multiberts.launch.workers.engines import options_of
from multiberts.launch.workers.leftovers import close_attempts, end_processes, end_slurm_jobs
from multiberts.runs.bucket.lease import LeaseHeldError
from multiberts.runs.bucket.objects import BucketUnreachableError
from multiberts.runs.console import report
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike


def reap_experiment(
    root: PathLike,
    engine: EngineName = "local",
    engine_options: Mapping[str, Any] | None = None,
) -> None:
    """Ends what belongs to no running launcher of an experiment, and reports what it ended.

    A launcher on another machine runs if its lease is renewed while this function watches, which takes up
    to 90 s.

    Args:
      engine: with `skypilot`, its jobs are cancelled, too.
    """
    if not Path(root).is_dir():
        raise UserError(f"{root} is not a directory; check launch.root")
    try:
        with launching(root):
            ended = end_processes(root, None)
            closed = close_attempts(root)
            if closed:
                report(f"{counted(closed, 'attempt')} of processes that are gone marked as lost")
            ended += end_slurm_jobs(root)
    except LeaseHeldError as refusal:
        ended = end_processes(root, refusal.holder)
    except BucketUnreachableError:  # the disk is full, or can only be read
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
