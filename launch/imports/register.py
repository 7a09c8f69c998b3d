"""Imported checkpoints and predictions, as runs that are done: plans resume from them.

`<root>/launch/imported.json` lists them. An imported checkpoint is a run that makes one checkpoint,
as a pre-training run with one step does; an imported run of fine-tuning is one that makes
predictions. Their identities follow from their content and names, not from where they were found,
so what is built on them stays the same when folders move or more is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from multiberts.launch.plan.graph import identity_of
from multiberts.launch.plan.planned_run import CHECKPOINT_STAGE, PREDICTIONS_STAGE, PlannedRun
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, replaced, write_atomically
from multiberts.runs.plan_marker import done_paths, read_listed_runs

FILE = "launch/imported.json"
VERSION = 1
# The parameters of a run that the list keeps, by stage.
_KEPT = {
    CHECKPOINT_STAGE: ("procedure", "pretrain_seed", "num_steps", "checkpoint_steps"),
    PREDICTIONS_STAGE: (
        "task", "procedure", "pretrain_seed", "step", "learning_rate", "finetune_seed",
    ),
}  # fmt: skip

_KINDS = {
    "stage": Literal["import_checkpoint", "import_predictions"],
    **dict.fromkeys(("name", "identity", "path"), str),
    "parameters": Mapping[str, Any],
}

Placing = Literal["link", "symlink", "copy"]


def checkpoint_run(
    procedure: str, pretrain_seed: int, step: int | None, content: str, source: PathLike
) -> PlannedRun:
    """Returns the run of an imported checkpoint; its output is `checkpoints/step_<n>`.

    Args:
      step: finished updates; None: not known, n is 0.
      content: SHA-256 of its record (`content_of`).
      source: where it was found; not part of the identity.
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
    path = f"pretrain/{procedure}/seed_{pretrain_seed}-step_{step or 0}-{identity[:8]}"
    name = f"import {procedure} seed {pretrain_seed} step {step or 0}"
    return PlannedRun(CHECKPOINT_STAGE, name, parameters, (), identity, path)


def predictions_run(path: str, facts: Mapping[str, Any], content: str) -> PlannedRun:
    """Returns the run of imported predictions; the content is the SHA-256 of its outputs."""
    parameters = {name: facts.get(name) for name in _KEPT[PREDICTIONS_STAGE]}
    identity = identity_of(PREDICTIONS_STAGE, {"content": content})
    name = f"import {parameters['task']} {Path(path).name}"
    return PlannedRun(PREDICTIONS_STAGE, name, parameters, (), identity, path)


def imported_runs(root: PathLike) -> list[PlannedRun]:
    """Returns the imported runs of an experiment, checkpoints first; none if nothing was imported."""
    runs = [
        PlannedRun(**{name: entry[name] for name in _KINDS}, parents=())
        for entry in read_entries(root)
    ]
    done = done_paths(root, [run.path for run in runs])
    gone = [run for run in runs if run.path not in done]
    if gone:
        raise UserError(
            f"{Path(root) / gone[0].path} was imported and is gone ({len(gone)} such); import it again, "
            f"or remove {Path(root) / FILE} and import what shall stay"
        )
    return runs


def read_entries(root: PathLike) -> list[dict[str, Any]]:
    """Returns the list's entries, as `write_entries` took them."""
    path = Path(root) / FILE
    if not path.is_file():
        return []
    cure = "remove it and import again, which copies nothing twice"
    return read_listed_runs(path, VERSION, _KINDS, "parameters", cure)


def write_entries(root: PathLike, entries: Sequence[Mapping[str, Any]]) -> None:
    """Writes the list, sorted, unless it holds the same entries already."""
    content = sorted(entries, key=lambda entry: (entry["stage"], entry["path"]))
    if content != read_entries(root):
        text = json.dumps({"version": VERSION, "runs": content}, indent=1) + "\n"
        write_atomically(Path(root) / FILE, text)


def entry_of(run: PlannedRun, **more: Any) -> dict[str, Any]:
    facts = {name: getattr(run, name) for name in ("stage", "name", "identity", "path")}
    parameters = {name: run.parameters[name] for name in _KEPT[run.stage]}
    return {**facts, "parameters": parameters, **more}


def record_of(
    checkpoint: PathLike, procedure: str, pretrain_seed: int, step: int | None
) -> dict[str, Any]:
    """Returns the `checkpoint.json` of an imported checkpoint, after reading all of its weights.

    Other facts of its own record (`data_seed`, facts of the training) are kept.
    """
    from multiberts.bert.checkpoint.checkpoint import described_files, read_checkpoint

    found = read_checkpoint(checkpoint)
    known = found.provenance
    facts = {
        "procedure": procedure,
        "pretrain_seed": pretrain_seed,
        "data_seed": known["data_seed"],
    }
    facts["step"] = known["step"] if step is None else step
    # The last is how older versions recorded that weights had been read, not a fact of the checkpoint.
    left_out = {*facts, "converted_from_hidden_act"}
    more = {name: value for name, value in known.items() if name not in left_out}
    return {**facts, **more, "files": described_files(found.directory, found.stored_files())}


def content_of(record: dict[str, Any]) -> str:
    """Returns the SHA-256 of a record, and so of all files that it describes."""
    return hashlib.sha256(_text(record).encode()).hexdigest()


def import_checkpoint(
    run_dir: PathLike, checkpoint: PathLike, record: dict[str, Any], placing: Placing
) -> bool:
    """Writes `run_dir/checkpoints/step_<n>/`, whole or not at all; returns whether it was new.

    Args:
      record: its new `checkpoint.json` (`record_of`).
      placing: `link` (hard links: no disk space, and they last when the source is removed), `symlink`
        (no disk space, from another file system too), or `copy`.
    """
    facts = {name: record[name] for name in ("procedure", "pretrain_seed", "step")}
    run = RunDirectory(
        run_dir,
        stage=CHECKPOINT_STAGE,
        parameters={**facts, "content": content_of(record)},
        call={**facts, "checkpoint": str(checkpoint), "placing": placing},
    )
    if run.done:
        return False
    inside = f"checkpoints/step_{record['step'] or 0}"
    with run:
        with replaced(run.path / inside) as unfinished:
            unfinished.mkdir()
            for name in record["files"]:
                _place(Path(checkpoint) / name, unfinished / name, placing)
            (unfinished / "checkpoint.json").write_text(_text(record))
        for name, entry in record["files"].items():
            if (run.path / inside / name).stat().st_size != entry["bytes"]:
                raise UserError(
                    f"{run.path / inside / name} changed while it was imported; wait until nobody "
                    "writes it and import again"
                )
        run.finish([f"{inside}/{name}" for name in (*record["files"], "checkpoint.json")])
    return True


def _place(source: Path, target: Path, placing: Placing) -> None:
    source = source.resolve()  # the hub's cache links to its files by their hashes
    if placing == "copy":
        shutil.copyfile(source, target)
    elif placing == "symlink":
        target.symlink_to(source)
    else:
        try:
            os.link(source, target)
        except OSError as error:
            raise UserError(
                f"{source} cannot be linked into {target.parent.parent} ({error.strerror}); import with "
                "placing = 'symlink' or 'copy'"
            ) from error


def _text(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=1) + "\n"
