"""`multiberts launch import`: released checkpoints and predictions as done runs of an experiment.

    multiberts launch import --root=paper --gin_param='import_released.checkpoints = "multiberts"'

Plans of the same root then resume from them: fine-tuning from the checkpoints, scores, tables and
figures from the predictions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.checkpoint.hub import checkpoint_directory
from multiberts.bert.checkpoint.release_names import (
    OWN_NAME_OF_RELEASED_PROCEDURE,
    RELEASED_PROCEDURE,
    parse_release_name,
)
from multiberts.launch.imports.register import (
    Placing,
    checkpoint_run,
    content_of,
    entry_of,
    import_checkpoint,
    predictions_run,
    read_entries,
    record_of,
    write_entries,
)
from multiberts.launch.markers.lease import launching
from multiberts.launch.plan.planned_run import CHECKPOINT_STAGE, with_leaves
from multiberts.runs import console
from multiberts.runs.console import ProgressBar
from multiberts.runs.directory import CONFIG, DONE, fingerprint
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import UNFINISHED_SUFFIX, PathLike

# The folder of imported fine-tuning runs, as of a plan's own.
PREDICTIONS_PLACE = "finetune"
_IN_DATA = "data:"
# Endings of files that are still being downloaded.
_PARTIAL = (".part", ".partial", ".incomplete", ".crdownload", ".download", ".gstmp", ".aria2")
# Folders that hold no checkpoints: the hub cache's own, and our state of training.
_SKIPPED = {"blobs", "refs", ".no_exist", ".locks", "state", "logs"}
_MODEL_FILES = ("bert_config.json", "config.json")


@dataclass(frozen=True)
class CheckpointOnDisk:
    """A checkpoint on disk.

    Attributes:
      step: finished updates, or None where its name and record lack them.
    """

    directory: Path
    layout: str
    procedure: str
    pretrain_seed: int
    step: int | None


def import_released(
    *,
    root: str,
    checkpoints: str | Mapping[str, str] | None = None,
    predictions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    pretrain_seeds: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    placing: Placing = "link",
    data: str | None = None,
) -> None:
    """Imports checkpoints and predictions of others, or of another experiment of ours, as done runs.

    All checkpoints are checked before the first is written, and each is read in full before it is.
    The same call again imports what is missing; a known file is read again only if it changed.

    Args:
      root: the experiment's directory.
      checkpoints: a folder with checkpoints at any depth: the released MultiBERTs in either layout, or
        runs of `pretrain`; or such folders by procedure, e.g.
        {"base": "multiberts", "original": "uncased_L-12_H-768_A-12"}. Unless given, the procedure is
        that of the checkpoints' records; the MultiBERTs are `base`.
      predictions: arguments of `evaluate.imports.importing` but run_dir, once or several times, e.g.
        {"layout": "multiberts", "source": "GLUE"}.
      pretrain_seeds: imports checkpoints of these seeds only; may be given by procedure.
      placing: `link` (hard links), `symlink` or `copy`.
      data: folder that paths `data:<file>` among these arguments lie in.
    """
    if not checkpoints and not predictions:
        raise UserError(
            "nothing to import; give import_released.checkpoints (a folder) or "
            "import_released.predictions"
        )
    checkpoints, predictions = _located(checkpoints, data), _located(predictions, data)
    chosen = _chosen(checkpoints, pretrain_seeds) if checkpoints else []
    layouts = [predictions] if isinstance(predictions, Mapping) else list(predictions or [])
    for arguments in layouts:
        if "layout" not in arguments or "source" not in arguments or "run_dir" in arguments:
            raise UserError(
                f"import_released.predictions holds {dict(arguments)!r}, expected layout, source and "
                "other arguments of evaluate.imports.importing, without run_dir; correct it"
            )
    with launching(root):
        if chosen:
            _import_checkpoints(Path(root), chosen, placing)
        for arguments in layouts:
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
) -> list[CheckpointOnDisk]:
    """Returns the checkpoints below the folders, of the wanted seeds."""
    by_procedure = checkpoints if isinstance(checkpoints, Mapping) else {None: checkpoints}
    chosen: list[CheckpointOnDisk] = []
    others: set[int] = set()
    for name, folder in by_procedure.items():
        for checkpoint in find_checkpoints(checkpoint_directory(folder), name):
            seeds = pretrain_seeds
            if isinstance(seeds, Mapping):
                seeds = seeds.get(checkpoint.procedure)
            if seeds is None or checkpoint.pretrain_seed in seeds:
                chosen.append(checkpoint)
            else:
                others.add(checkpoint.pretrain_seed)
    if not chosen:
        raise UserError(
            f"import_released.pretrain_seeds is {pretrain_seeds!r}, but the folder has other seeds "
            f"({sorted(others)}); correct it"
        )
    return chosen


def _import_checkpoints(root: Path, chosen: Sequence[CheckpointOnDisk], placing: Placing) -> None:
    entries = {entry["path"]: entry for entry in read_entries(root)}
    known = {
        (json.dumps(entry.get("source"), sort_keys=True), entry["parameters"]["procedure"]): entry
        for entry in entries.values()
        if entry["stage"] == CHECKPOINT_STAGE
    }
    new = 0
    for item in ProgressBar(chosen, desc="importing", unit="checkpoint"):
        source = _stamp(item.directory)
        entry = known.get((json.dumps(source, sort_keys=True), item.procedure))
        if entry is not None and (root / entry["path"] / "DONE").is_file():
            continue
        record = record_of(item.directory, item.procedure, item.pretrain_seed, item.step)
        procedure, seed, content = item.procedure, item.pretrain_seed, content_of(record)
        run = checkpoint_run(procedure, seed, record["step"], content, item.directory)
        new += import_checkpoint(root / run.path, item.directory, record, placing)
        fresh = entry_of(run, source=source)
        # A plan takes one checkpoint of a seed and step: a later import replaces an earlier one.
        entries = {path: entry for path, entry in entries.items() if _key(entry) != _key(fresh)}
        entries[run.path] = fresh
        # After each: a call that is killed resumes where it stopped.
        write_entries(root, list(entries.values()))
    by_procedure: dict[str, set[int]] = {}
    for item in chosen:
        by_procedure.setdefault(item.procedure, set()).add(item.pretrain_seed)
    seeds = ", ".join(f"{name} (seeds: {len(numbers)})" for name, numbers in by_procedure.items())
    console.report(f"{root}: {counted(len(chosen), 'checkpoint')} of {seeds}; {new} new")


def _key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    facts = entry["parameters"]
    names = ("procedure", "pretrain_seed", "num_steps")
    return entry["stage"], *(facts.get(name) for name in names)


def _stamp(directory: Path) -> dict[str, Any]:
    """Returns place, sizes and times of a checkpoint's files, which show whether it changed."""
    files = {path.name: path.stat() for path in sorted(directory.iterdir()) if path.is_file()}
    return {
        "directory": str(directory.resolve()),
        "files": {name: [stat.st_size, stat.st_mtime_ns] for name, stat in files.items()},
    }


def _import_predictions(root: Path, arguments: Mapping[str, Any]) -> None:
    from multiberts.evaluate.imports.importing import import_predictions
    from multiberts.evaluate.prediction_files.run_file import read_run

    before = {entry["path"] for entry in read_entries(root)}
    directories = import_predictions(run_dir=str(root / PREDICTIONS_PLACE), **arguments)
    entries = {entry["path"]: entry for entry in read_entries(root)}
    for directory in directories:
        path = directory.relative_to(root).as_posix()
        run = predictions_run(path, read_run(directory), fingerprint(directory))
        entries[path] = entry_of(run)
    write_entries(root, list(entries.values()))
    new = len(entries.keys() - before)
    console.report(
        f"{root}: {counted(len(directories), 'run')} of predictions from "
        f"{arguments['source']} ({arguments['layout']}); {new} new"
    )


def find_checkpoints(folder: PathLike, procedure: str | None = None) -> list[CheckpointOnDisk]:
    """Returns every checkpoint below a folder, checked for missing and truncated files.

    For the MultiBERTs in either of their layouts (`multiberts-seed_0-step_20k`, the archives'
    `seed_0/step_20k`, the hub's local cache), of other checkpoints with one directory each, or of our
    own pre-training runs. A directory that looks like an unfinished download is refused, not skipped.

    Args:
      procedure: the name for all of them; None: as in their records or names.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the folder that holds the checkpoints")
    found, problems = [], []
    for directory in _candidates(folder):
        try:
            _refuse_unfinished(directory)
            found.append(Checkpoint.open(directory))
        except UserError as error:
            problems.append((directory, str(error)))
    if problems:
        others = [str(place.relative_to(folder)) for place, _ in problems[1:]]
        shown = f"; likewise {', '.join(others[:3])}" if others else ""
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise UserError(f"{problems[0][1]}{shown}{more}")
    if not found:
        raise UserError(
            f"{folder} holds no checkpoint; give the folder of directories such as multiberts-seed_0"
        )
    is_only_one = len(found) == 1
    return _without_doubles([_identified(each, procedure, is_only_one) for each in found])


def _candidates(folder: Path) -> Iterator[Path]:
    """Yields directories that are checkpoints, unfinished ones, or unfinished runs of pre-training."""
    seen = set()
    for path, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(set(folders) - _SKIPPED)
        directory = Path(path)
        if (real := directory.resolve()) in seen:  # a link back would never end
            folders.clear()
            continue
        seen.add(real)
        if path.endswith(UNFINISHED_SUFFIX):  # left over from a kill; its run has not finished
            folders.clear()
            continue
        is_checkpoint = any(
            name.endswith((".index", ".safetensors", "pytorch_model.bin")) or ".data-" in name
            for name in files
        )
        is_partial = any(name.endswith(_PARTIAL) for name in files)
        was_to_be = not folders and (
            any(name in files for name in _MODEL_FILES) or parse_release_name(directory) is not None
        )
        if is_checkpoint or is_partial or was_to_be or _is_unfinished_run(files, folders):
            yield directory


def _is_unfinished_run(files: Collection[str], folders: Collection[str]) -> bool:
    return CONFIG in files and "checkpoints" in folders and DONE not in files


def _refuse_unfinished(directory: Path) -> None:
    names = {path.name for path in directory.iterdir()}
    if _is_unfinished_run(names, names):
        raise UserError(f"{directory} is a run that has not finished; run it to its end first")
    partial = sorted(name for name in names if name.endswith(_PARTIAL))
    if partial:
        raise UserError(
            f"{directory} holds {partial[0]}, a download that has not finished; finish it, or remove "
            "the file if it is left over"
        )


def _identified(
    checkpoint: Checkpoint, procedure: str | None, is_only_one: bool
) -> CheckpointOnDisk:
    directory, known = checkpoint.directory, checkpoint.provenance
    name = procedure or known["procedure"]
    if name is None:
        raise UserError(
            f"{directory} does not say which procedure it is of; give the folders by procedure, such as "
            f"import_released.checkpoints = {{'base': '{directory.parent}'}}"
        )
    seed = known["pretrain_seed"]
    if seed is None and not is_only_one:
        raise UserError(
            f"{directory} does not say its pre-training seed; call it seed_<number>, or "
            "multiberts-seed_<number>-step_<thousands>k"
        )
    if name == RELEASED_PROCEDURE:
        name = OWN_NAME_OF_RELEASED_PROCEDURE
    seed = 0 if seed is None else seed
    return CheckpointOnDisk(directory, checkpoint.layout, name, seed, known["step"])


def _without_doubles(checkpoints: list[CheckpointOnDisk]) -> list[CheckpointOnDisk]:
    """Sorts checkpoints; refuses two of one name and step, which may be two layouts of one."""
    at: dict[tuple[str, int, int], CheckpointOnDisk] = {}
    for item in checkpoints:
        key = (item.procedure, item.pretrain_seed, -1 if item.step is None else item.step)
        if key in at:
            raise UserError(
                f"{item.directory} ({item.layout}) and {at[key].directory} ({at[key].layout}) are both "
                f"{item.procedure}, seed {item.pretrain_seed}, step {item.step}; keep one of them in the "
                "folder"
            )
        at[key] = item
    return [at[key] for key in sorted(at)]
