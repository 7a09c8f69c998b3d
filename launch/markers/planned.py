"""The marker of the plan, `<root>/launch/plan.json`, and which of its runs are done.

Markers are all that status needs: this one, the lease (`launch.markers.lease`), the attempts
(`launch.markers.attempts`), and the DONE of each run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multiberts.launch.plan.planned_run import Output, PlannedRun
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, write_atomically

FILE = "launch/plan.json"
VERSION = 2


@dataclass(frozen=True)
class MarkedRun:
    """A run as the marker of the plan has it.

    Attributes:
      path: its directory, relative to the root.
      stage, name, identity: as in `launch.plan.planned_run.PlannedRun`.
      parents: paths of the runs before it.
      facts: what it is, by the names of `facts_of`.
      estimate: `device`, `seconds` and `dollars`, or None.
    """

    path: str
    stage: str
    name: str
    identity: str
    parents: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    estimate: Mapping[str, Any] | None = None


def write_plan(
    root: PathLike,
    plan: Sequence[PlannedRun],
    estimates: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Writes the marker of the plan, unless it is there and says the same.

    Args:
      root: the experiment's root.
      plan: every run.
      estimates: by a run's path `device`, `seconds` and `dollars`; None: those in the marker stay.
    """
    path = Path(root) / FILE
    before = (_content(path) if path.is_file() else None) or []
    if estimates is None:
        estimates = {run["path"]: run["estimate"] for run in before if run["estimate"]}
    runs = [
        {
            "path": run.path,
            "stage": run.stage,
            "name": run.name,
            "identity": run.identity,
            "parents": [parent.path for parent in run.parents],
            "facts": facts_of(run),
            "estimate": dict(estimates[run.path]) if run.path in estimates else None,
        }
        for run in plan
    ]
    # Through JSON, so that tuples and lists compare equal.
    content = json.loads(json.dumps(runs))
    if path.is_file() and before == content:
        return
    marker = {"version": VERSION, "written": time.time(), "runs": content}
    write_atomically(path, json.dumps(marker) + "\n")


def read_plan(root: PathLike) -> list[MarkedRun]:
    """Returns the plan that was launched last.

    Raises:
      UserError: nothing was launched there, or the marker is damaged or of another version.
    """
    path = Path(root) / FILE
    if not path.is_file():
        raise UserError(
            f"{path} does not exist: nothing was launched in {root}; check launch.root, or start "
            "`multiberts launch run`"
        )
    runs = _content(path)
    if runs is None:
        raise UserError(
            f"{path} is damaged or of another version of this program, expected version {VERSION}; "
            "the next `multiberts launch run` writes it anew"
        )
    return [MarkedRun(**{**run, "parents": tuple(run["parents"])}) for run in runs]


def _content(path: Path) -> list[dict[str, Any]] | None:
    """Returns the runs in a marker; None if it is not what this version writes.

    Raises:
      UserError: an earlier version wrote it, whose names of directories ended in other hashes.
    """
    try:
        marker = json.loads(path.read_text())
        version, runs = marker["version"], marker["runs"]
    except (ValueError, KeyError, TypeError):
        return None
    if version == 1:
        raise UserError(
            f"{path} has version 1, expected {VERSION}: it was written by multiberts 0.1, which named "
            "run directories otherwise, so every run would be made again; finish the experiment with "
            f"multiberts 0.1, choose another launch.root, or remove {path} to run everything anew"
        )
    return runs if version == VERSION else None


def done_paths(root: PathLike, paths: Iterable[str]) -> set[str]:
    """Returns which of the runs at `paths`, relative to the root, have a DONE marker.

    Each folder is listed once, and of the runs in it only those that exist are looked into.
    """
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    done = set()
    for folder, names in folders.items():
        place = os.path.join(root, folder)
        try:
            with os.scandir(place) as entries:
                present = {entry.name for entry in entries}
        except (FileNotFoundError, NotADirectoryError):
            continue
        prefix = f"{folder}/" if folder else ""
        done |= {
            prefix + name
            for name in names
            if name in present and os.path.isfile(f"{place}/{name}/DONE")
        }
    return done


def facts_of(run: PlannedRun) -> dict[str, Any]:
    """Returns what a run is, for tables: `procedure`, `pretrain_seed`, `num_steps`,
    `checkpoint_steps` (all that are
    kept) of pre-training; `task`, `learning_rate`, `finetune_seed`, `checkpoint_run`, `checkpoint_step` of
    fine-tuning, with the procedure and seed of its checkpoint.
    """
    parameters = run.parameters
    if run.stage == "pretrain":
        steps = {*(parameters.get("checkpoint_steps") or ()), parameters["num_steps"]}
        names = ("procedure", "pretrain_seed", "num_steps")
        return {
            **{name: parameters.get(name) for name in names},
            "checkpoint_steps": sorted(steps),
        }
    if run.stage != "finetune":
        return {}
    facts = {name: parameters.get(name) for name in ("task", "learning_rate", "finetune_seed")}
    checkpoint = parameters.get("checkpoint")
    if isinstance(checkpoint, Output):
        step = Path(checkpoint.inside).name.removeprefix("step_")
        facts["checkpoint_run"] = checkpoint.run.path
        facts["checkpoint_step"] = int(step) if step.isdigit() else None
        for name in ("procedure", "pretrain_seed"):
            facts[name] = checkpoint.run.parameters.get(name)
    return facts
