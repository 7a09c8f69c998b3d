"""Finds the checkpoints of `launch.checkpoints`, and names them by procedure, seed and step."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.checkpoint.hub import checkpoint_directory
from multiberts.bert.checkpoint.release_names import (
    OWN_NAME_OF_RELEASED_PROCEDURE,
    RELEASED_PROCEDURE,
    parse_release_name,
)
from multiberts.launch.plan.planned_run import Output, PlannedRun, kept_steps
from multiberts.runs import console
from multiberts.runs.directory import CONFIG, DONE
from multiberts.runs.errors import UserError, listed
from multiberts.runs.files import UNFINISHED_SUFFIX, PathLike

# Paths by procedure; or paths of checkpoints that record their procedure.
Checkpoints = Sequence[str] | Mapping[str, str | Sequence[str]]
# Endings of unfinished downloads.
_PARTIAL = (".part", ".partial", ".incomplete", ".crdownload", ".download", ".gstmp", ".aria2")
# Folders without checkpoints: internal ones of the Hub's cache, and our training state.
_SKIPPED = {"blobs", "refs", ".no_exist", ".locks", "state", "logs"}
_MODEL_FILES = ("bert_config.json", "config.json")


@dataclass(frozen=True)
class Start:
    """A checkpoint that fine-tuning or further pre-training starts from.

    Attributes:
      name: `<procedure>-seed_<n>-step_<n>`, or the directory's name where these are not known; the folder of
        its fine-tuning runs has this name.
      checkpoint: its directory or `hub:` name, or the output of a planned run.
      procedure: how it was pre-trained; None: not known.
      pretrain_seed: None: not known.
      step: finished updates; None: not known.
      renamed: arguments of `finetune` that replace what the checkpoint records.
    """

    name: str
    checkpoint: str | Output
    procedure: str | None
    pretrain_seed: int | None
    step: int | None
    renamed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        seed, step = self.pretrain_seed, self.step or 0
        return {"procedure": self.procedure, "pretrain_seed": seed, "checkpoint_step": step}


def starts_of(run: PlannedRun) -> list[Start]:
    """Returns the checkpoints that a planned pre-training run will save."""
    procedure, seed = run.parameters["procedure"], run.parameters["pretrain_seed"]
    return [
        Start(
            f"{procedure}-seed_{seed}-step_{step}",
            Output(run, f"checkpoints/step_{step}"),
            procedure,
            seed,
            step,
        )
        for step in kept_steps(run)
    ]


def find_starts(
    checkpoints: Checkpoints, seeds: Mapping[str, Sequence[int]] = MappingProxyType({})
) -> list[Start]:
    """Finds the checkpoints that an experiment lists, sorted by procedure, seed and step.

    Args:
      checkpoints: see `Experiment.checkpoints`.
      seeds: pre-training seeds to use, by procedure; of other procedures all are used.
    """
    by_procedure = checkpoints if isinstance(checkpoints, Mapping) else {None: checkpoints}
    listed = [
        (procedure, path)
        for procedure, paths in by_procedure.items()
        for path in ([paths] if isinstance(paths, str) else paths)
    ]
    starts: dict[str, Start] = {}
    recorded: dict[str, dict[str, str]] = {}
    for procedure, path in listed:
        if not path or procedure == "":
            raise UserError(
                "launch.checkpoints has an empty path or name; give a folder, or leave it out"
            )
        folder = checkpoint_directory(path)
        opened = find_checkpoints(folder)
        for checkpoint in opened if procedure else ():
            names = recorded.setdefault(str(procedure), {})
            if checkpoint.provenance["procedure"] is not None:
                names.setdefault(checkpoint.provenance["procedure"], path)
            if len(names) > 1:
                first, second = names
                raise UserError(
                    f"launch.checkpoints[{procedure!r}] has checkpoints of {first} and of {second}, which "
                    f"would be one procedure; give each its own folder, or list {path} without a name"
                )
        for checkpoint in opened:
            is_by_itself = checkpoint.directory == folder
            start = _start_from(
                checkpoint,
                path if is_by_itself else str(checkpoint.directory),
                procedure,
                may_lack_seed=len(opened) == 1,
                may_lack_all=is_by_itself and procedure is None,
            )
            if start.name in starts:
                raise UserError(
                    f"launch.checkpoints has {starts[start.name].checkpoint} and {start.checkpoint}, both "
                    f"{start.name}; leave one out, or, if they differ, give their folders by procedure: "
                    '{"a name": "a folder", "another name": "another folder"}'
                )
            starts[start.name] = start
    for name, wanted in seeds.items():
        present = {start.pretrain_seed or 0 for start in starts.values() if start.procedure == name}
        if present and (missing := {*wanted} - present):
            raise UserError(
                f"launch.pretrain_seeds has seed {min(missing)} of {name}, but launch.checkpoints has only "
                f"{', '.join(map(str, sorted(present)))}; correct either"
            )
    chosen = [
        start
        for start in starts.values()
        if start.pretrain_seed in seeds.get(start.procedure or "", (start.pretrain_seed,))
    ]
    chosen.sort(
        key=lambda start: (start.procedure or "", start.pretrain_seed or 0, start.step or 0)
    )
    return chosen


def _start_from(
    checkpoint: Checkpoint,
    path: str,
    procedure: str | None,
    *,
    may_lack_seed: bool,
    may_lack_all: bool,
) -> Start:
    directory, recorded = checkpoint.directory, checkpoint.provenance
    procedure = procedure or recorded["procedure"]
    seed, step = recorded["pretrain_seed"], recorded["step"]
    if procedure == RELEASED_PROCEDURE:
        procedure = OWN_NAME_OF_RELEASED_PROCEDURE
    if may_lack_all and None in (procedure, seed):
        name = path.rpartition("/")[2]
        return Start(name, path, procedure, seed, step)
    if procedure is None:
        raise UserError(
            f"{directory} does not say which procedure it is of; give the folders by procedure, such as "
            f"launch.checkpoints = {{'base': '{directory.parent}'}}"
        )
    if seed is None and not may_lack_seed:
        raise UserError(
            f"{directory} does not say its pre-training seed; call it seed_<number>, or "
            "multiberts-seed_<number>-step_<thousands>k"
        )
    if seed is None:
        console.note_once(f"{directory} does not say its pre-training seed; it counts as seed 0")
        seed = 0
    names = {"procedure": procedure, "pretrain_seed": seed}
    return Start(
        f"{procedure}-seed_{seed}-step_{step or 0}",
        path,
        procedure,
        seed,
        step,
        {key: value for key, value in names.items() if value != recorded[key]},
    )


def find_checkpoints(folder: PathLike) -> list[Checkpoint]:
    """Opens every checkpoint below a folder, checked for missing and truncated files.

    The MultiBERTs in either of their layouts (`multiberts-seed_0-step_20k`, the archives'
    `seed_0/step_20k`, the hub's local cache), other checkpoints with one directory each, or our own
    pre-training runs. A directory that looks like an unfinished download is refused, not skipped.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the folder that holds the checkpoints")
    opened, problems = [], []
    for directory in _candidates(folder):
        try:
            _refuse_unfinished(directory)
            opened.append(Checkpoint.open(directory))
        except UserError as error:
            problems.append((directory, str(error)))
    if problems:
        others = [str(directory.relative_to(folder)) for directory, _ in problems[1:]]
        raise UserError(problems[0][1] + f"; {listed(others)} failed, too" * bool(others))
    if not opened:
        raise UserError(
            f"{folder} holds no checkpoint; give the folder of directories such as multiberts-seed_0"
        )
    return opened


def _candidates(folder: Path) -> Iterator[Path]:
    """Yields directories of checkpoints, of unfinished downloads, and of unfinished pre-training runs."""
    seen = set()
    for path, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(set(folders) - _SKIPPED)
        directory = Path(path)
        # Left over from a kill, or seen: a link to a parent would never end.
        if path.endswith(UNFINISHED_SUFFIX) or (real := directory.resolve()) in seen:
            folders.clear()
            continue
        seen.add(real)
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
