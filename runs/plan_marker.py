"""The marker of an experiment's plan, `<root>/launch/plan.json`: which runs there are, and which are done.

The launcher writes it (`launch.markers.planned`); status and reports read it.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, check_fields, is_name_inside, read_json_fields

FILE = "launch/plan.json"
VERSION = 1


@dataclass(frozen=True)
class MarkedRun:
    """A run as the marker of the plan has it.

    Attributes:
      path: its directory, relative to the root.
      stage, name, identity: as in `launch.plan.planned_run.PlannedRun`.
      facts: facts of the run, named as in `facts_of`.
    """

    path: str
    stage: str
    name: str
    identity: str
    parents: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


_KINDS = get_type_hints(MarkedRun) | {"parents": list[str]}
# Facts of runs, as far as a stage has them.
FACTS = {
    **dict.fromkeys(("procedure", "task", "checkpoint_run"), str | None),
    **dict.fromkeys(
        ("pretrain_seed", "num_steps", "finetune_seed", "checkpoint_step", "step"), int | None
    ),
    "checkpoint_steps": list[int] | None,
    "learning_rate": float | None,
}


def read_plan(root: PathLike) -> list[MarkedRun]:
    path = Path(root) / FILE
    if not os.path.lexists(path):
        raise UserError(
            f"{path} does not exist: nothing was launched in {root}; check launch.root, or start "
            "`multiberts launch run`"
        )
    if not path.is_file():
        raise UserError(f"{path} is not a file; move it away, and start `multiberts launch run`")
    return [
        MarkedRun(**{**{name: run[name] for name in _KINDS}, "parents": tuple(run["parents"])})
        for run in plan_entries(path)
    ]


def plan_entries(path: Path) -> list[dict[str, Any]]:
    """Reads and checks the runs that the marker lists, each after its parents."""
    cure = "the next `multiberts launch run` writes it anew"
    marker = read_json_fields(path, {"version": int, "runs": list[Mapping[str, Any]]}, cure)
    if marker["version"] != VERSION:
        raise UserError(f"{path} has version {marker['version']}, expected {VERSION}; {cure}")
    runs: list[dict[str, Any]] = marker["runs"]
    for run in runs:
        check_fields(run, _KINDS, f"{path}, a run", cure)
        if not is_name_inside(run["path"]):
            raise UserError(f"{path} lists {run['path']!r}, which is outside of the root; {cure}")
        check_fields(run["facts"], FACTS, f"{path}, {run['path']}", cure)
    return runs


def is_done(directory: PathLike) -> bool:
    """Returns whether a run's directory has a DONE marker that is not empty."""
    try:
        facts = os.stat(os.path.join(directory, "DONE"))
        return stat.S_ISREG(facts.st_mode) and facts.st_size > 0
    except OSError:
        return False


def done_paths(root: PathLike, paths: Iterable[str]) -> set[str]:
    """Returns which of the runs at `paths`, relative to the root, have a DONE marker that is not empty.

    One call of the file system for each folder, and one for each run in those that exist.
    """
    is_folder = functools.cache(os.path.isdir)
    runs = {path: os.path.join(root, path) for path in paths}
    return {path for path, run in runs.items() if is_folder(os.path.dirname(run)) and is_done(run)}
