"""Deletes the queued resources of Cloud TPU that an experiment has left, and only its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.launch.tpu.client import EXPERIMENT, Provisioner, TpuError
from multiberts.launch.tpu.places import Places
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike
from multiberts.runs.plan_marker import MarkedRun, done_paths, read_plan

_OPTIONS = ("project", "zones", "bucket")


def delete_resources(
    root: PathLike,
    options: Mapping[str, Any],
    *,
    everything: bool,
    provisioner: Provisioner | None = None,
) -> tuple[list[str], list[str]]:
    """Deletes resources that carry the experiment's labels and that nobody will use again.

    One that cannot be deleted now (its node is just being made, its zone does not answer) keeps no other.

    Args:
      options: as it was launched; `project`, `zones` and `bucket` are needed.
      everything: also those of runs that are not done, with which the next `run` would continue.
      provisioner: None: of the project.

    Returns:
      Two lists for people: what was deleted and what continues; and what could not be deleted.
    """
    for option in _OPTIONS:
        if not options.get(option):
            raise UserError(
                f"run.engine_options lacks {option!r}; give the options that the launch had"
            )
    places = Places(options["bucket"])
    provisioner = provisioner or Provisioner(options["project"])
    wanted = {} if everything else _unfinished(root)
    names = {places.name(run): run for run in wanted.values()}  # type: ignore[arg-type]
    lines: list[str] = []
    left: list[str] = []
    for zone in options["zones"]:
        try:
            found = provisioner.resources(zone)
        except TpuError as error:
            left.append(f"{zone} of project {options['project']} cannot be looked into: {error}")
            continue
        for resource in found:
            if resource.labels.get(EXPERIMENT) != places.experiment:
                continue
            described = f"queued resource {resource.name} in {zone} ({resource.state.lower()})"
            if resource.name in names:
                lines.append(
                    f"{described}: spared, as {names[resource.name].name} trains on without a "
                    "launcher; --reap=everything deletes it, too"
                )
            elif not resource.is_deleting:
                try:
                    provisioner.delete(resource)
                    lines.append(f"{described}: deleted")
                except TpuError as error:
                    left.append(
                        f"{described}: not deleted: {error}; give the same command in some minutes"
                    )
    return lines, left


def _unfinished(root: PathLike) -> dict[str, MarkedRun]:
    """Planned runs that are not done; none where nothing was launched."""
    if not (Path(root) / "launch" / "plan.json").is_file():
        return {}
    plan = {run.path: run for run in read_plan(root) if run.stage == "pretrain"}
    done = done_paths(root, plan)
    return {path: run for path, run in plan.items() if path not in done}
