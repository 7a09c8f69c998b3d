"""Describes a plan for people: an estimate of the rest by stage, and finished runs by folder."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from multiberts.launch.estimate.estimate import (
    PlanEstimate,
    estimate_plan,
    refuse_above,
)
from multiberts.launch.estimate.quantities import duration
from multiberts.launch.plan.planned_run import STAGES, PlannedRun
from multiberts.runs.command_line.commands import command_of
from multiberts.runs.console import report
from multiberts.runs.errors import counted
from multiberts.runs.parameters import NonNegativeFloat, PositiveInt
from multiberts.runs.plan_marker import done_paths


def show_plan(
    *,
    plan: Sequence[PlannedRun],
    root: str | Path,
    budget: NonNegativeFloat | None = None,
    device: str | None = None,
    workers: PositiveInt | None = None,
    spot: bool = False,
) -> None:
    """Prints an estimate of the unfinished part of a plan, totals first, and which runs are done.

    Args:
      plan: every run after its parents.
      root: directory of the experiment.
      budget: refuse a plan whose rest costs more dollars; None: any.
      device: device of the runs, a name in `launch/estimate/prices.toml` such as `v4-8`, `H100` or `cpu`;
        None: this machine's.
      workers: number of runs at a time, each on its own device; None: one per core or GPU of this machine,
        one for another device.
      spot: use prices of spot capacity.
    """
    done = done_paths(root, [run.path for run in plan])
    estimate = estimate_plan(
        plan=plan, root=root, device=device, workers=workers, spot=spot, done=done
    )
    report(estimate_text(plan, estimate, root))
    report(folders_text(plan, root, done))
    refuse_above(estimate, budget)


def estimate_text(plan: Sequence[PlannedRun], estimate: PlanEstimate, root: str | Path) -> str:
    """Formats an estimate: the sums, a line per stage, and the assumptions."""
    if not estimate.runs:
        return "nothing is left to do"
    device = estimate.device
    price = device.dollars_per_hour(estimate.spot)
    each = "" if price == 0 else f" at {price:,.2f} dollars per hour{' (spot)' * estimate.spot}"
    host = "" if estimate.host is device else f", and this machine ({estimate.host.name})"
    folder = Path(root).absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    room = f", MORE THAN THE {size(free)} THAT ARE FREE" if estimate.bytes > free else ""
    lines = [
        f"estimate of what is left, on {estimate.workers} x {device.name} ({device.chip.title}){each}{host}:",
        f"  {estimate.device_hours:,.2f} device-hours, {estimate.dollars:,.2f} dollars, "
        f"{size(estimate.bytes)} of disk{room}",
        f"  at least {duration(estimate.least_seconds)} from now to the end of the last run",
        f"  {'stage':<18}{'runs':>7}{'done':>7}{'device-hours':>14}{'dollars':>12}  times",
    ]
    stages: dict[str, list[str]] = {stage: [] for stage in STAGES}
    for run in plan:
        stages.setdefault(run.stage, []).append(run.path)
    for stage, paths in stages.items():
        left = [estimate.runs[path] for path in paths if path in estimate.runs]
        measured = sum(run.measured for run in left)
        times = f"measured for {measured} of {len(left)} runs" if measured else "assumed"
        if measured == len(left):
            times = "measured" if left else "done"
        if paths:
            lines.append(
                f"  {command_of(stage):<18}{len(paths):>7,}{len(paths) - len(left):>7,}"
                f"{sum(run.seconds for run in left) / 3600:>14,.3f}"
                f"{sum(run.dollars for run in left):>12,.2f}  {times}"
            )
    guessed = [run for run in estimate.runs.values() if not run.measured]
    assumed = estimate.device.assumptions(estimate.spot) if guessed else []
    assumed += dict.fromkeys(text for run in guessed for text in run.assumed)
    if assumed:
        words = "; ".join(assumed)
        lines.append(f"  assumed: {words} (launch/estimate/prices.toml has sources and dates)")
    return "\n".join(lines)


def folders_text(plan: Sequence[PlannedRun], root: str | Path, done: Collection[str]) -> str:
    """Lists runs by the folder of a corpus, procedure or task; several runs are one line with counts."""
    lines = [f"{root}: {counted(len(plan), 'run')}, {len(done)} done"]
    folders: dict[str, list[str]] = {}
    for run in plan:
        folder = "/".join(run.path.split("/")[:-1][:2]) or run.path
        folders.setdefault(folder, []).append(run.path)
    for folder, inside in folders.items():
        done_here = sum(path in done for path in inside)
        is_done = done_here == len(inside)
        if len(inside) > 1:
            state = "  (done)" if is_done else f", {done_here} done"
            lines.append(f"  {folder}/: {counted(len(inside), 'run')}{state}")
        else:
            lines.append(f"  {inside[0]}{'  (done)' if is_done else ''}")
    return "\n".join(lines)


def size(count: float) -> str:
    """Formats a number of bytes for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
