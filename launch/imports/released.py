"""`multiberts launch import`: released checkpoints and predictions as done runs of an experiment.

    multiberts launch import --root=paper --gin_param='import_released.checkpoints = "multiberts"'

Plans of the same root then resume from them: fine-tuning from the checkpoints, scores, tables and
figures from the predictions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from multiberts.launch.imports.checkpoint_run import (
    Placing,
    check_placing,
    content_of,
    record_of,
    write_run,
)
from multiberts.launch.imports.register import (
    checkpoint_run,
    entry_of,
    predictions_run,
    read_entries,
    write_entries,
)
from multiberts.launch.imports.released_checkpoints import Found, find_checkpoints
from multiberts.launch.markers.lease import Lease
from multiberts.launch.plan.planned_run import CHECKPOINT_STAGE, with_leaves
from multiberts.runs import console
from multiberts.runs.directory import fingerprint
from multiberts.runs.errors import UserError

# Below it lie the imported runs of fine-tuning, as a plan's own do.
PREDICTIONS_PLACE = "finetune"
_IN_DATA = "data:"


def import_released(
    *,
    root: str,
    checkpoints: str | Mapping[str, str] | None = None,
    predictions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    pretrain_seeds: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    placing: Placing = "link",
    data: str | None = None,
) -> None:
    """Takes checkpoints and predictions that others made, or another experiment of ours, as done runs.

    All checkpoints are looked over before the first is written, and each is read in full before it is.
    The same call again does what is missing; what is there is not read again unless its files changed.

    Args:
      root: the experiment's directory.
      checkpoints: a folder with checkpoints at any depth: the released MultiBERTs in either layout, or
        runs of `pretrain`; or such folders by the procedure that they shall be called, e.g.
        {"base": "multiberts", "original": "uncased_L-12_H-768_A-12"}. Unless given, the procedure is
        what the checkpoints say; the MultiBERTs are `base`.
      predictions: arguments of `evaluate.imports.importing` but run_dir, once or several times, e.g.
        {"layout": "multiberts", "source": "GLUE"}.
      pretrain_seeds: takes checkpoints of these seeds only; may be given by procedure.
      placing: `link` (hard links), `symlink` or `copy`.
      data: folder that paths `data:<file>` among these arguments lie in.

    Raises:
      UserError: nothing to import, or a file is missing, not whole or not as its layout has it.
    """
    if not checkpoints and not predictions:
        raise UserError(
            "nothing to import; give import_released.checkpoints (a folder) or "
            "import_released.predictions"
        )
    check_placing(placing)
    checkpoints, predictions = _located(checkpoints, data), _located(predictions, data)
    chosen = _chosen(checkpoints, pretrain_seeds) if checkpoints else []
    given = [predictions] if isinstance(predictions, Mapping) else list(predictions or [])
    for arguments in given:
        if "layout" not in arguments or "source" not in arguments or "run_dir" in arguments:
            raise UserError(
                f"import_released.predictions holds {dict(arguments)!r}, expected layout, source and "
                "other arguments of evaluate.imports.importing, without run_dir; correct it"
            )
    with Lease(root):
        if chosen:
            _import_checkpoints(Path(root), chosen, placing)
        for arguments in given:
            _import_predictions(Path(root), arguments)


def _located(value: Any, data: str | None) -> Any:
    """Returns the value with paths `data:<file>` put into the folder of data."""

    def put(leaf: Any) -> Any:
        if not isinstance(leaf, str) or not leaf.startswith(_IN_DATA):
            return leaf
        if data is None:
            raise UserError(
                f"{leaf!r} lies in the folder of data, but launch.data is not set; set it"
            )
        return str(Path(data) / leaf.removeprefix(_IN_DATA))

    return with_leaves(value, put)


def _chosen(
    checkpoints: str | Mapping[str, str],
    pretrain_seeds: Sequence[int] | Mapping[str, Sequence[int]] | None,
) -> list[Found]:
    """Returns the checkpoints below the folders, of the wanted seeds."""
    folders: Iterable[tuple[str | None, str]] = (
        checkpoints.items() if isinstance(checkpoints, Mapping) else [(None, checkpoints)]
    )
    found = [item for name, folder in folders for item in find_checkpoints(folder, name)]
    if pretrain_seeds is None:
        return found
    kept = []
    for item in found:
        wanted: Any = pretrain_seeds
        if isinstance(pretrain_seeds, Mapping):
            wanted = pretrain_seeds.get(item.procedure)
        if wanted is None or item.pretrain_seed in wanted:
            kept.append(item)
    if not kept:
        raise UserError(
            f"import_released.pretrain_seeds is {pretrain_seeds!r}, but the folder has other seeds "
            f"({sorted({item.pretrain_seed for item in found})}); correct it"
        )
    return kept


def _import_checkpoints(root: Path, chosen: Sequence[Found], placing: Placing) -> None:
    entries = {entry["path"]: entry for entry in read_entries(root)}
    known = {
        (json.dumps(entry["source"], sort_keys=True), entry["parameters"]["procedure"]): entry
        for entry in entries.values()
        if entry["stage"] == CHECKPOINT_STAGE
    }
    new = 0
    for item in tqdm(chosen, desc="importing", unit="checkpoint", disable=None):
        source = _stamp(item.directory)
        entry = known.get((json.dumps(source, sort_keys=True), item.procedure))
        if entry is not None and (root / entry["path"] / "DONE").is_file():
            continue
        record = record_of(item.directory, item.procedure, item.pretrain_seed, item.step)
        run = checkpoint_run(
            item.procedure,
            item.pretrain_seed,
            record["step"],
            content_of(record),
            item.directory,
        )
        new += write_run(root / run.path, item.directory, record, placing)
        entries = {
            path: entry for path, entry in entries.items() if _key(entry) != _key(entry_of(run))
        }
        entries[run.path] = entry_of(run, source=source)
        # After each: a call that is killed resumes where it stopped.
        write_entries(root, list(entries.values()))
    by_procedure: dict[str, set[int]] = {}
    for item in chosen:
        by_procedure.setdefault(item.procedure, set()).add(item.pretrain_seed)
    seeds = ", ".join(f"{name} (seeds: {len(found)})" for name, found in by_procedure.items())
    ending = "s" * (len(chosen) != 1)
    console.report(f"{root}: {len(chosen)} checkpoint{ending} of {seeds}; {new} new")


def _key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Of which a plan takes one checkpoint: a later import stands for an earlier one."""
    facts = entry["parameters"]
    return entry["stage"], *(
        facts.get(name) for name in ("procedure", "pretrain_seed", "num_steps")
    )


def _stamp(directory: Path) -> dict[str, Any]:
    """Returns what tells, without reading it, that a checkpoint is the one it was."""
    files = {path.name: path.stat() for path in sorted(directory.iterdir()) if path.is_file()}
    return {
        "directory": str(directory.resolve()),
        "files": {name: [stat.st_size, stat.st_mtime_ns] for name, stat in files.items()},
    }


def _import_predictions(root: Path, arguments: Mapping[str, Any]) -> None:
    from multiberts.evaluate.dumps.run_file import read_run
    from multiberts.evaluate.imports.importing import import_predictions

    before = {entry["path"] for entry in read_entries(root)}
    directories = import_predictions(run_dir=str(root / PREDICTIONS_PLACE), **arguments)
    entries = {entry["path"]: entry for entry in read_entries(root)}
    for directory in directories:
        path = directory.relative_to(root).as_posix()
        run = predictions_run(path, read_run(directory), fingerprint(directory))
        entries[path] = entry_of(run)
    write_entries(root, list(entries.values()))
    new = len([path for path in entries if path not in before])
    console.report(
        f"{root}: {len(directories)} run{'s' * (len(directories) != 1)} of predictions from "
        f"{arguments['source']} ({arguments['layout']}); {new} new"
    )
