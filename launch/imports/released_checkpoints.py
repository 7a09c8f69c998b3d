"""Finds checkpoints below a folder, as others released them or as `pretrain` left them.

A folder of the MultiBERTs in either of their layouts (`multiberts-seed_0-step_20k`, the archives'
`seed_0/step_20k`, the hub's local cache), of other checkpoints with one directory each, or of our
own pre-training runs. Directories that look like a download which has not ended are not checkpoints
to leave out in silence: they are refused.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from multiberts.bert.checkpoint.checkpoint import check_checkpoint, layout_of, read_provenance
from multiberts.bert.checkpoint.release_names import RELEASED_PROCEDURE, parse_release_name
from multiberts.runs.directory import CONFIG, DONE
from multiberts.runs.errors import UserError
from multiberts.runs.files import UNFINISHED_SUFFIX, PathLike

# How the published procedure is called in predictions, tables and configurations.
PROCEDURES = {RELEASED_PROCEDURE: "base"}

# What downloaders call a file that is not whole yet.
_PARTIAL = (".part", ".partial", ".incomplete", ".crdownload", ".download", ".gstmp", ".aria2")
# Folders that hold no checkpoints: the hub cache's own, and our state of training.
_SKIPPED = {"blobs", "refs", ".no_exist", ".locks", "state", "logs"}
_MODEL_FILES = ("bert_config.json", "config.json")


@dataclass(frozen=True)
class Found:
    """A checkpoint on disk.

    Attributes:
      directory: its files.
      procedure, pretrain_seed: whose it is.
      step: finished updates, or None where its name and record do not say.
    """

    directory: Path
    procedure: str
    pretrain_seed: int
    step: int | None


def find_checkpoints(folder: PathLike, procedure: str | None = None) -> list[Found]:
    """Every checkpoint below a folder, looked over for missing and truncated files.

    Args:
      folder: of checkpoints at any depth; or one checkpoint's own.
      procedure: what all of them shall be called; None: as their records or names say.

    Returns:
      In the order of procedure, seed and step.

    Raises:
      UserError: there is none, one is not whole, one does not tell whose it is, or two are the same.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the folder that holds the checkpoints")
    directories, problems = [], []
    for directory in _candidates(folder):
        try:
            _refuse_unfinished(directory)
            check_checkpoint(directory)
            directories.append(directory)
        except UserError as error:
            problems.append((directory, str(error)))
    if problems:
        others = [str(place.relative_to(folder)) for place, _ in problems[1:]]
        shown = f"; likewise {', '.join(others[:3])}" if others else ""
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise UserError(f"{problems[0][1]}{shown}{more}")
    if not directories:
        raise UserError(
            f"{folder} holds no checkpoint; give the folder of directories such as multiberts-seed_0"
        )
    found = [_found(directory, procedure, len(directories) == 1) for directory in directories]
    return _without_doubles(found)


def _candidates(folder: Path) -> Iterator[Path]:
    """Directories that are, or were going to be, checkpoints or runs of pre-training."""
    seen = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(set(folders) - _SKIPPED)
        directory = Path(place)
        if (real := directory.resolve()) in seen:  # a link back would never end
            folders.clear()
            continue
        seen.add(real)
        if place.endswith(UNFINISHED_SUFFIX):  # left over from a kill; its run has not finished
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


def _found(directory: Path, procedure: str | None, is_only_one: bool) -> Found:
    known = read_provenance(directory)
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
    return Found(directory, PROCEDURES.get(name, name), 0 if seed is None else seed, known["step"])


def _without_doubles(found: list[Found]) -> list[Found]:
    """Sorted; refuses two checkpoints of one name and step, which may be two layouts of one."""
    at: dict[tuple[str, int, int], Found] = {}
    for item in found:
        key = (item.procedure, item.pretrain_seed, -1 if item.step is None else item.step)
        if key in at:
            raise UserError(
                f"{item.directory} ({layout_of(item.directory)}) and {at[key].directory} "
                f"({layout_of(at[key].directory)}) are both {item.procedure}, seed "
                f"{item.pretrain_seed}, step {item.step}; keep one of them in the folder"
            )
        at[key] = item
    return [at[key] for key in sorted(at)]
