"""Records of a fine-tuning run: early predictions that are written, and the origin of its numbers."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.bert.checkpoint.checkpoint import INITIALISED, Checkpoint
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED
from multiberts.bert.checkpoint.hub import origin_of
from multiberts.evaluate.prediction_files.run_file import problem_of_entries, set_at
from multiberts.runs.environment import JAX, TENSORFLOW, engine
from multiberts.runs.errors import UserError
from multiberts.runs.files import read_json_fields, write_atomically
from multiberts.runs.parameters import leaves
from multiberts.runs.processes import code_digest

STATE = "state"
_VERSIONS_OF = ("keras", "numpy", "tokenizers")
_VERSIONS_OF_ENGINES = {TENSORFLOW: ("tensorflow", "tensorflow-cpu"), JAX: ("jax", "jaxlib")}

Entries = dict[str, dict[str, Any]]


def written_early(run_dir: Path, epochs: float) -> Entries | None:
    """Returns the entries of early predictions that this run wrote before it was stopped, or None."""
    path = _early_file(run_dir, epochs)
    if not path.is_file():
        return None
    cure = "remove it, and the same command starts the run's predictions again"
    entries = read_json_fields(path, cure=cure)
    if problem := problem_of_entries(entries):
        raise UserError(f"{path}: {problem}; {cure}")
    return entries


def note_early(run_dir: Path, epochs: float, entries: Entries) -> None:
    write_atomically(_early_file(run_dir, epochs), json.dumps(entries))


def _early_file(run_dir: Path, epochs: float) -> Path:
    # Beside the states: with them it goes when the run is done, and run.json has the entries.
    return run_dir / STATE / f"{set_at('predictions', epochs)}.json"


def provenance(
    start: Checkpoint,
    facts: Mapping[str, Any],
    parameters: Mapping[str, Any],
    **files: Any,
) -> dict[str, Any]:
    """Returns the origin of numbers, for a run.json.

    Args:
      start: the checkpoint that was fine-tuned, or the kept model that predicts.
      parameters: of the run that fine-tuned it.
      files: further entries, the files that were read.
    """
    return {
        **facts,
        "vocabulary_sha256": start.vocabulary.checksum,
        **({} if start.vocabulary.lower_case else {"do_lower_case": False}),
        "parameters": dict(parameters),
        **files,
        "engine": engine(),
        "versions": _versions(),
    }


def facts_of_start(start: Checkpoint) -> dict[str, Any]:
    """Returns the run.json fields about the fine-tuned checkpoint."""
    known, training = start.provenance, start.provenance.get("training") or {}
    # Seeds of single sources of randomness in pre-training.
    names = ("initialisation_seed", "mask_seed", "dropout_seed")
    seeds = {name: training[name] for name in names if training.get(name) is not None}
    further = {"parent": known.get("parent"), INITIALISED: known.get(INITIALISED), "seeds": seeds}
    return {
        **{name: known.get(name) for name in ("procedure", "pretrain_seed", "data_seed", "step")},
        "checkpoint": {"name": origin_of(start.directory), "sha256": start.identity},
        **{name: value for name, value in further.items() if value},
    }


def facts_of_model(model: Checkpoint) -> dict[str, Any]:
    """Returns what a run.json says of a kept model that predicts: what the run that kept it says."""
    known, record = model.provenance, model.provenance[FINE_TUNED]
    parent = known.get("parent") or known
    further = {"parent": parent.get("parent")}
    if "sha256" in parent:
        further["checkpoint"] = {"name": origin_of(model.directory), "sha256": parent["sha256"]}
    return {
        **{name: parent.get(name) for name in ("procedure", "pretrain_seed", "step")},
        "data_seed": known.get("data_seed"),
        "learning_rate": record["learning_rate"],
        "finetune_seed": record["finetune_seed"],
        **{name: value for name, value in further.items() if value},
    }


def recorded(inputs: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    """Returns names and identities of opened inputs, for a run.json."""
    return {
        name: [{"name": origin_of(each.where), "sha256": each.identity} for each in leaves(several)]
        for name, several in inputs.items()
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "code": code_digest()}
    for distribution in sorted((*_VERSIONS_OF, *_VERSIONS_OF_ENGINES[engine()])):
        try:
            found[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
