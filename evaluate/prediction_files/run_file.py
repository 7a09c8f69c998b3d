"""`run.json` describes a fine-tuning run and lists its files.

Required fields:

    task             str
    procedure        str or null    of pre-training, such as `base` or `cda_incr`
    pretrain_seed    int or null    null if the checkpoint does not record it
    data_seed        int or null
    step             int or null    of pre-training
    learning_rate    number or null
    finetune_seed    int or null
    evaluation_sets  {name: entry}

Optional (runs of `finetune` have them; imported runs may not):

    checkpoint          {"name", "sha256"}        the fine-tuned checkpoint
    vocabulary_sha256   str                       of its vocab.txt
    parent              {"procedure", "pretrain_seed", "step", "sha256", "parent"}   the checkpoint whose
                        training it continues, and so on; null or missing without one
    initialised         {"finetune_seed" or "pretrain_seed": int, "variables": [str]}   the checkpoint lacked
                        these variables
    seeds               {name: int}               of single sources of randomness in pre-training, such as
                        dropout_seed, if they had separate seeds
    parameters          {name: value}             the resolved configuration
    inputs              {argument: [{"name", "sha256"}]}   the data files
    engine              str                       `tensorflow` or `jax`
    versions            {package: version}; of this project's `code` the SHA-256 of its Python files
    num_train_examples  int
    source              str                       origin of imported predictions

An entry of `evaluation_sets`:

    file      str    relative to the run's directory
    examples  int
    sha256    str    of the file
    metrics   [str]  the main one first; empty if labels are unknown
    set       str    the evaluation set; by default the entry's name
    texts     {"file", "columns", "sha256"}   texts of the examples, see `text_file`; the
              SHA-256 is of the content before compression; missing if unknown
    epochs    number of training before these predictions; optional at the end of training

Predictions of early checkpoints have separate entries: the entry `dev@2.5` has set `dev` and
epochs 2.5, and the entry `dev` belongs to the trained model. A `run.json` may have further fields.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from multiberts.runs.console import printable
from multiberts.runs.directory import CONFIG, DONE, read_done
from multiberts.runs.errors import UserError
from multiberts.runs.files import (
    PathLike,
    is_name_inside,
    read_json_fields,
    sha256_of_file,
    write_atomically,
)
from multiberts.runs.parameters import Seed, described, fits, shortened

RUN_FILE = "run.json"
RUN_COORDINATES = (
    "procedure",
    "pretrain_seed",
    "data_seed",
    "step",
    "learning_rate",
    "finetune_seed",
)


class _InputFile(TypedDict):
    name: str
    sha256: str


class _TextFile(TypedDict):
    file: str
    columns: Sequence[str]
    sha256: str


class _Ancestor(TypedDict):
    procedure: str | None
    pretrain_seed: Seed | None
    step: int | None
    sha256: str
    parent: _Ancestor | None


# (procedure, pretrain_seed, step, SHA-256) of a checkpoint; None if unknown.
Ancestor = tuple[str | None, int | None, int | None, str | None]

_NEEDED = {
    "task": str,
    "evaluation_sets": Mapping[str, Any],
    "procedure": str | None,
    "pretrain_seed": Seed | None,
    "data_seed": Seed | None,
    "step": int | None,
    "learning_rate": float | None,
    "finetune_seed": Seed | None,
}
_OPTIONAL = {
    "checkpoint": _InputFile,
    "vocabulary_sha256": str | None,
    "parent": _Ancestor | None,
    "seeds": Mapping[str, Seed],
    "parameters": Mapping[str, Any],
    "inputs": Mapping[str, Sequence[_InputFile]],
    "engine": str | None,
    "versions": Mapping[str, Any],
    "num_train_examples": int | None,
    "source": str,
}
_ENTRY = {"file": str, "examples": int, "sha256": str, "metrics": Sequence[str]}
_ENTRY_OPTIONAL = {"set": str, "epochs": float | None, "texts": _TextFile}
_SHA256 = re.compile(r"[0-9a-f]{64}")
# With epochs, ending and the mark of an unfinished file, a file's name must have 255 bytes at most.
_SET_NAME = re.compile(r"[^/\\@.][^/\\@]*")
# Epochs like 10/3 are written 3.333, which must match.
_EPOCH_ROUNDING = 5e-4


def write_run(run_dir: PathLike, content: Mapping[str, Any]) -> None:
    """Writes a run's `run.json` atomically."""
    problem = _problem(content)
    if problem is not None:
        raise ValueError(f"{RUN_FILE}: {problem}")
    write_atomically(Path(run_dir) / RUN_FILE, json.dumps(content, indent=1) + "\n")


def evaluation_entry(
    run_dir: PathLike,
    file: str,
    *,
    examples: int,
    metrics: Sequence[str],
    evaluation_set: str | None = None,
    epochs: float | None = None,
    texts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns a prediction file's entry in `evaluation_sets`."""
    entry: dict[str, Any] = {
        "file": file,
        "examples": examples,
        "sha256": sha256_of_file(Path(run_dir) / file),
        "metrics": list(metrics),
    }
    if evaluation_set is not None:
        entry["set"] = evaluation_set
    if epochs is not None:
        entry["epochs"] = epochs
    if texts is not None:
        entry["texts"] = dict(texts)
    return entry


def files_of(entries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns the distinct files of entries of `evaluation_sets`."""
    texts = [entry["texts"]["file"] for entry in entries.values() if "texts" in entry]
    return list(dict.fromkeys([*(entry["file"] for entry in entries.values()), *texts]))


def read_run(run_dir: PathLike) -> dict[str, Any]:
    """Reads a run's `run.json`."""
    path = Path(run_dir) / RUN_FILE
    if not path.is_file():
        raise UserError(f"{path} does not exist; give the directory of a finished fine-tuning run")
    content = read_json_fields(path, cure="run the fine-tuning again")
    problem = _problem(content)
    if problem is not None:
        raise UserError(f"{path} {problem}; it is not the run.json of a fine-tuning")
    names = {name: printable(content[name], "") for name in ("task", "procedure") if content[name]}
    return content | names


def find_runs(root: PathLike) -> list[tuple[Path, dict[str, Any]]]:
    """Finds finished fine-tuning runs below a folder, sorted by path.

    Returns:
      (run directory, content of its run.json) for every `run.json` next to a `DONE` marker.
    """
    directories = run_directories(root)
    for path in directories:
        listed = read_done(path).get(RUN_FILE)
        if listed is not None and listed["sha256"] != sha256_of_file(path / RUN_FILE):
            raise UserError(
                f"{path / RUN_FILE} does not have the checksum that {path / DONE} states: it changed "
                "after it was made; put it back, or fine-tune again"
            )
    return [(path, read_run(path)) for path in directories]


def run_directories(root: PathLike, *, finished: bool = True) -> list[Path]:
    """Lists directories of fine-tuning runs below a folder, sorted.

    Args:
      finished: whether to list finished runs (`run.json` next to `DONE`) or unfinished ones.
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"{root} is not a folder; give the folder that holds the fine-tuning runs")
    directories = []
    for directory, folders, files in os.walk(root):
        folders.sort()
        if RUN_FILE in files and (DONE in files) == finished:
            directories.append(Path(directory))
        elif not finished and DONE not in files and CONFIG in files:
            with open(Path(directory, CONFIG), encoding="utf-8", errors="replace") as handle:
                if "`finetune`" in handle.readline():
                    directories.append(Path(directory))
    return sorted(directories)


def lineage_of(content: Mapping[str, Any]) -> tuple[Ancestor, ...]:
    """Returns a run's ancestor checkpoints, the fine-tuned one first.

    Examples:
      >>> base = {"procedure": "base", "pretrain_seed": 0, "step": 400, "sha256": "5f0a", "parent": None}
      >>> lineage_of({"procedure": "cda_incr", "pretrain_seed": 0, "step": 200, "parent": base})
      (('cda_incr', 0, 200, None), ('base', 0, 400, '5f0a'))
    """
    ancestors = []
    checkpoint: Mapping[str, Any] | None = {**content, **content.get("checkpoint", {})}
    while checkpoint is not None:
        procedure, seed, step, sha256 = map(
            checkpoint.get, ("procedure", "pretrain_seed", "step", "sha256")
        )
        ancestors.append((procedure, seed, step, sha256))
        checkpoint = checkpoint.get("parent")
    return tuple(ancestors)


def set_at(evaluation_set: str, epochs: float) -> str:
    """Returns the name of an early checkpoint's entry: `dev@2.5`, `dev@3.333`."""
    return f"{evaluation_set}@{epochs:.4g}"


def set_of(name: str, entry: Mapping[str, Any]) -> str:
    """Returns the evaluation set of an entry, without the epochs."""
    evaluation_set: str = entry.get("set", name)
    return evaluation_set


def is_final(name: str, entry: Mapping[str, Any]) -> bool:
    """Returns whether an entry has predictions of the trained model, not of an early checkpoint."""
    return set_of(name, entry) == name


def final_sets(content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        name: entry for name, entry in content["evaluation_sets"].items() if is_final(name, entry)
    }


def find_entry(
    run_dir: PathLike, content: Mapping[str, Any], evaluation_set: str, epochs: float | None = None
) -> tuple[str, dict[str, Any]]:
    """Finds the name and the entry of an evaluation set.

    Args:
      evaluation_set: a set (`dev`), or the name of an entry (`dev@2.5`).
      epochs: epochs of a checkpoint; None: the trained model.
    """
    sets = content["evaluation_sets"]
    if epochs is None and evaluation_set in sets:
        return evaluation_set, sets[evaluation_set]
    matching = {
        name: entry for name, entry in sets.items() if set_of(name, entry) == evaluation_set
    }
    for name, entry in matching.items():
        entry_epochs = entry.get("epochs")
        if (
            epochs is not None
            and entry_epochs is not None
            and abs(entry_epochs - epochs) <= _EPOCH_ROUNDING
        ):
            return name, entry
    wanted = f"evaluation set {evaluation_set!r}"
    if epochs is not None and matching:
        wanted += f" at {epochs:.4g} epochs"
    raise UserError(
        f"{Path(run_dir) / RUN_FILE} lists no {wanted}, but {', '.join(sorted(sets)) or 'no set'}; choose "
        "one of these, or another run"
    )


def _problem(content: Any) -> str | None:
    return _misfit(content, _NEEDED, _OPTIONAL) or problem_of_entries(content["evaluation_sets"])


def problem_of_entries(entries: Mapping[str, Any]) -> str | None:
    """Returns a problem of the entries of `evaluation_sets`, or None."""
    for name, entry in entries.items():
        problem = _misfit(entry, _ENTRY, _ENTRY_OPTIONAL) or _entry_problem(name, entry)
        if problem is not None:
            return f"evaluation set {name!r} {problem}"
    return None


def _misfit(content: Any, needed: Mapping[str, Any], optional: Mapping[str, Any]) -> str | None:
    """Returns a missing field or one of the wrong type in words, or None."""
    fields = content if isinstance(content, Mapping) else {}
    missing = sorted(set(needed) - set(fields))
    if missing:
        return f"lacks {', '.join(missing)}"
    for name, kind in {**needed, **optional}.items():
        if name in fields and not fits(fields[name], kind):
            return f"has {name} {shortened(fields[name])}, expected {described(kind)}"
    return None


def _entry_problem(name: str, entry: Mapping[str, Any]) -> str | None:
    epochs = entry.get("epochs")
    for described_file in (entry, *([entry["texts"]] if "texts" in entry else [])):
        if not is_name_inside(described_file["file"]):
            return (
                f"has file {described_file['file']!r}, expected a path inside the run's directory"
            )
        if not _SHA256.fullmatch(described_file["sha256"]):
            return f"has sha256 {described_file['sha256']!r}, expected 64 hexadecimal digits"
    if not is_final(name, entry):
        if epochs is None or name != set_at(entry["set"], epochs):
            return f"has set {entry['set']!r} and epochs {epochs}, expected those of its name"
        name = entry["set"]
    elif "@" in name:
        return "lacks set and epochs, which an early checkpoint has"
    # Imports of earlier versions have names such as `bbh/snarks`.
    return next(filter(None, map(_misnamed, name.split("/"))), None)


def _misnamed(name: str) -> str | None:
    """Returns why a set cannot have a name, which is part of names of files, or None."""
    if _SET_NAME.fullmatch(name) and name.isprintable() and len(name.encode()) <= 200:
        return None
    return (
        "has an unfit name, expected 1 to 200 bytes of printable characters without /, \\ and @, and no dot "
        "first"
    )


def check_set_names(names: Sequence[str]) -> None:
    """Refuses evaluation sets with the same name, and names that files cannot have."""
    cure = "rename it in finetune.evaluation_files, or the file to predict or import"
    for number, name in enumerate(names):
        if problem := _misnamed(name):
            raise UserError(f"evaluation set {name!r} {problem}; {cure}")
        if name in names[:number]:
            raise UserError(
                f"evaluation sets {names.index(name) + 1} and {number + 1} of {', '.join(names)} have the "
                f"same name, so that the predictions of one would replace the other's; {cure}"
            )
