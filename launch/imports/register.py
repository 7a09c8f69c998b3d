"""What was imported into an experiment, as runs that are done: plans resume from them.

`<root>/launch/imported.json` lists them. An imported checkpoint is a run that makes one checkpoint,
as a pre-training run with one step does; an imported run of fine-tuning is one that makes
predictions. Their identities follow from what they hold and whose they are, not from where they
were found, so what is built on them stays the same when folders move or further ones are imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.launch.plan.graph import identity_of
from multiberts.launch.plan.planned_run import CHECKPOINT_STAGE, PREDICTIONS_STAGE, PlannedRun
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, write_atomically

FILE = "launch/imported.json"
VERSION = 1


# Of a run's parameters, by stage: those that stand in the list.
_KEPT = {
    CHECKPOINT_STAGE: ("procedure", "pretrain_seed", "num_steps", "checkpoint_steps"),
    PREDICTIONS_STAGE: (
        "task", "procedure", "pretrain_seed", "step", "learning_rate", "finetune_seed",
    ),
}  # fmt: skip


def checkpoint_run(
    procedure: str, pretrain_seed: int, step: int | None, content: str, source: PathLike
) -> PlannedRun:
    """Returns the run of an imported checkpoint.

    Its output is `checkpoints/step_<n>`, where n is 0 if the step is not known.

    Args:
      procedure: whose it is.
      pretrain_seed: likewise.
      step: finished updates; None: not known.
      content: SHA-256 of what it holds.
      source: where it was found; counts for nothing.
    """
    facts = {"procedure": procedure, "pretrain_seed": pretrain_seed, "step": step}
    identity = identity_of(CHECKPOINT_STAGE, {**facts, "content": content})
    parameters = {
        "procedure": procedure,
        "pretrain_seed": pretrain_seed,
        "num_steps": step or 0,
        "checkpoint_steps": [],
        "checkpoint": str(source),
    }
    place = f"pretrain/{procedure}/seed_{pretrain_seed}-step_{step or 0}"
    name = f"import {procedure} seed {pretrain_seed} step {step or 0}"
    return PlannedRun(CHECKPOINT_STAGE, name, parameters, (), identity, f"{place}-{identity[:8]}")


def predictions_run(path: str, facts: Mapping[str, Any], content: str) -> PlannedRun:
    """Returns the run of imported predictions.

    Args:
      path: of its directory, relative to the root.
      facts: of its run.json.
      content: SHA-256 of what it holds.
    """
    parameters = {name: facts.get(name) for name in _KEPT[PREDICTIONS_STAGE]}
    identity = identity_of(PREDICTIONS_STAGE, {"content": content})
    name = f"import {parameters['task']} {Path(path).name}"
    return PlannedRun(PREDICTIONS_STAGE, name, parameters, (), identity, path)


def imported_runs(root: PathLike) -> list[PlannedRun]:
    """Returns the imported runs of an experiment, checkpoints first; none where nothing was
    imported.

    Raises:
      UserError: the list is damaged, or what it lists is gone.
    """
    from multiberts.launch.markers.planned import done_paths

    runs = [_run(entry) for entry in read_entries(root)]
    done = done_paths(root, [run.path for run in runs])
    gone = [run for run in runs if run.path not in done]
    if gone:
        raise UserError(
            f"{Path(root) / gone[0].path} was imported and is gone ({len(gone)} such); import it again, "
            f"or remove {Path(root) / FILE} and import what shall stay"
        )
    return runs


def read_entries(root: PathLike) -> list[dict[str, Any]]:
    """Returns the list's entries, as `write_entries` took them.

    Raises:
      UserError: the list is damaged or of another version.
    """
    path = Path(root) / FILE
    if not path.is_file():
        return []
    try:
        marker = json.loads(path.read_text())
        if marker["version"] == VERSION:
            return list(marker["runs"])
    except (ValueError, KeyError, TypeError):
        pass
    raise UserError(
        f"{path} is damaged or of another version of this program, expected version {VERSION}; remove "
        "it and import again, which copies nothing twice"
    )


def write_entries(root: PathLike, entries: Sequence[Mapping[str, Any]]) -> None:
    """Writes the list, sorted, unless it says the same already."""
    content = sorted(entries, key=lambda entry: (entry["stage"], entry["path"]))
    if content != read_entries(root):
        text = json.dumps({"version": VERSION, "runs": content}, indent=1) + "\n"
        write_atomically(Path(root) / FILE, text)


def entry_of(run: PlannedRun, **more: Any) -> dict[str, Any]:
    """Returns a run as the list has it."""
    parameters = {name: run.parameters[name] for name in _KEPT[run.stage]}
    return {
        "stage": run.stage,
        "name": run.name,
        "identity": run.identity,
        "path": run.path,
        "parameters": parameters,
        **more,
    }


def _run(entry: Mapping[str, Any]) -> PlannedRun:
    return PlannedRun(
        entry["stage"], entry["name"], entry["parameters"], (), entry["identity"], entry["path"]
    )
