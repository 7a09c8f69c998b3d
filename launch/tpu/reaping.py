"""Deletes the queued resources of Cloud TPU that an experiment has left, and only its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.launch.tpu.client import DELETING, EXPERIMENT, Provisioner, TpuError
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
) -> list[str]:
    """Deletes resources that carry the experiment's labels and that nobody will use again.

    Args:
      root: the experiment's root.
      options: as it was launched; `project`, `zones` and `bucket` are needed.
      everything: also those of runs that are not done, with which the next `run` would continue.
      provisioner: None: of the project.

    Returns:
      What was deleted and what continues, for people.

    Raises:
      UserError: an option is missing, nobody is signed in, or a zone does not answer.
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
    lines = []
    for zone in options["zones"]:
        try:
            for resource in provisioner.resources(zone):
                if resource.labels.get(EXPERIMENT) != places.experiment:
                    continue
                described = f"queued resource {resource.name} in {zone} ({resource.state.lower()})"
                if resource.name in names:
                    run = names[resource.name]
                    lines.append(
                        f"{described}: spared, as {run.name} trains on without a launcher; "
                        "reap.everything = True deletes it too"
                    )
                elif resource.state != DELETING:
                    provisioner.delete(resource)
                    lines.append(f"{described}: deleted")
        except TpuError as error:
            raise UserError(
                f"Cloud TPU in {zone} of project {options['project']}: {error}; what was deleted "
                "before: " + ("; ".join(lines) or "nothing")
            ) from error
    return lines


def _unfinished(root: PathLike) -> dict[str, MarkedRun]:
    """Planned runs that are not done; none where nothing was launched."""
    if not (Path(root) / "launch" / "plan.json").is_file():
        return {}
    plan = {run.path: run for run in read_plan(root) if run.stage == "pretrain"}
    done = done_paths(root, plan)
    return {path: run for path, run in plan.items() if path not in done}
