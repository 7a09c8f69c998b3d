"""Records of a fine-tuning run: early predictions that are written, and the origin of its numbers."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.bert.checkpoint.checkpoint import INITIALISED
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED
from multiberts.bert.checkpoint.hub import origin_of
from multiberts.bert.vocabulary import VOCABULARY, Vocabulary
from multiberts.evaluate.prediction_files.run_file import problem_of_entries, set_at
from multiberts.runs.directory import fingerprint
from multiberts.runs.environment import JAX, TENSORFLOW, engine
from multiberts.runs.errors import UserError
from multiberts.runs.files import read_json_fields, write_atomically
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
    checkpoint: Path,
    checkpoint_provenance: Mapping[str, Any],
    vocabulary: Vocabulary,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, Path | list[Path]],
) -> dict[str, Any]:
    """Returns the origin of a run's numbers, for its run.json."""
    known = ("procedure", "pretrain_seed", "data_seed", "step")
    parent = checkpoint_provenance.get("parent")
    return {
        **{name: checkpoint_provenance.get(name) for name in known},
        "checkpoint": _fingerprint(checkpoint),
        **({"parent": parent} if parent else {}),
        **({INITIALISED: drawn} if (drawn := checkpoint_provenance.get(INITIALISED)) else {}),
        **({"seeds": seeds} if (seeds := _own_seeds(checkpoint_provenance)) else {}),
        "vocabulary_sha256": vocabulary.checksum,
        **({} if vocabulary.lower_case else {"do_lower_case": False}),
        "parameters": dict(parameters),
        "inputs": _fingerprints(inputs),
        "engine": engine(),
        "versions": _versions(),
    }


def _own_seeds(checkpoint_provenance: Mapping[str, Any]) -> dict[str, int]:
    """Returns the seeds that single sources of randomness in pre-training had."""
    training = checkpoint_provenance.get("training") or {}
    names = ("initialisation_seed", "mask_seed", "dropout_seed")
    return {name: training[name] for name in names if name in training}


def provenance_of_prediction(
    model: Path, known: Mapping[str, Any], inputs: Mapping[str, Path | list[Path]]
) -> dict[str, Any]:
    """Returns the origin of predictions of a kept model, for a run.json: that of the run that kept it.

    Args:
      inputs: data files, by the argument that names them.
    """
    record, parent = known[FINE_TUNED], known.get("parent") or known
    start = {"name": origin_of(model), "sha256": parent["sha256"]} if "sha256" in parent else None
    return {
        **{name: parent.get(name) for name in ("procedure", "pretrain_seed", "step")},
        "data_seed": known.get("data_seed"),
        "learning_rate": record["learning_rate"],
        "finetune_seed": record["finetune_seed"],
        **({"checkpoint": start} if start else {}),
        **({"parent": parent["parent"]} if parent.get("parent") else {}),
        "vocabulary_sha256": Vocabulary.open(model / VOCABULARY).checksum,
        **({} if record["do_lower_case"] else {"do_lower_case": False}),
        "parameters": {"sequence_length": record["sequence_length"], **record["arguments"]},
        "model": _fingerprint(model),
        "files": _fingerprints(inputs),
        "engine": engine(),
        "versions": _versions(),
    }


def _fingerprints(inputs: Mapping[str, Path | list[Path]]) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [_fingerprint(path) for path in (paths if isinstance(paths, list) else [paths])]
        for name, paths in inputs.items()
    }


def _fingerprint(path: Path) -> dict[str, str]:
    return {"name": origin_of(path), "sha256": fingerprint(path)}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "code": code_digest()}
    for distribution in sorted((*_VERSIONS_OF, *_VERSIONS_OF_ENGINES[engine()])):
        try:
            found[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
