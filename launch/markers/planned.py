"""Writes the marker of the plan, `<root>/launch/plan.json`, which `runs.plan_marker` reads."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multiberts.launch.plan.planned_run import Output, PlannedRun, kept_steps
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, write_atomically
from multiberts.runs.plan_marker import FILE, VERSION, plan_entries


def write_plan(root: PathLike, plan: Sequence[PlannedRun]) -> None:
    """Writes the marker of the plan, unless it says the same already."""
    path = Path(root) / FILE
    before: list[dict[str, Any]] | None = None
    if path.is_file():
        with contextlib.suppress(UserError):  # a damaged marker is written again
            before = plan_entries(path)
    runs = [
        {
            "path": run.path,
            "stage": run.stage,
            "name": run.name,
            "identity": run.identity,
            "parents": [parent.path for parent in run.parents],
            "facts": facts_of(run),
        }
        for run in plan
    ]
    # Through JSON, so that tuples and lists compare equal.
    content = json.loads(json.dumps(runs))
    if before == content:
        return
    marker = {"version": VERSION, "written": time.time(), "runs": content}
    write_atomically(path, json.dumps(marker) + "\n")


def facts_of(run: PlannedRun) -> dict[str, Any]:
    """Returns facts about a run for tables.

    Pre-training: `procedure`, `pretrain_seed`, `num_steps` and all `checkpoint_steps`. Fine-tuning: `task`,
    `learning_rate`, `finetune_seed`, and of its checkpoint `procedure`, `pretrain_seed`, `checkpoint_step`
    and, if the plan trains it, `checkpoint_run`.
    """
    parameters = run.parameters
    if run.stage == "pretrain":
        names = ("procedure", "pretrain_seed", "num_steps")
        facts = {name: parameters.get(name) for name in names}
        return {**facts, "checkpoint_steps": kept_steps(run)}
    if run.stage != "finetune":
        return {}
    facts = {name: parameters.get(name) for name in ("task", "learning_rate", "finetune_seed")}
    checkpoint = parameters.get("checkpoint")
    if isinstance(checkpoint, Output):
        facts["checkpoint_run"] = checkpoint.run.path
    return {**facts, **run.facts}
