"""Checkpoints in the released TF1 format: the one interchange format between stages."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert.configuration import BertConfig
from runs.errors import UserError
from runs.files import PathLike, read_bytes, read_lines, replaced, sha256_of_file

PREFIX = "bert.ckpt"
INDEX = f"{PREFIX}.index"
DATA = f"{PREFIX}.data-00000-of-00001"
CONFIG = "bert_config.json"
VOCABULARY = "vocab.txt"
# Ours, beside the released files: where the weights came from and what the files hold.
PROVENANCE = "checkpoint.json"

_RELEASED_NAME = re.compile(r"multiberts-seed_(?P<seed>\d+)(-step_(?P<thousands>\d+)k)?$")
_RELEASED_STEPS = 2_000_000


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model read from disk.

    Attributes:
      parameters: float32 arrays by released variable name, optimiser slots left out.
      config: the model's sizes.
      vocabulary_path: its `vocab.txt`.
      provenance: `procedure`, `pretrain_seed`, `data_seed`, `step`; None where unknown.
    """

    parameters: dict[str, np.ndarray]
    config: BertConfig
    vocabulary_path: Path
    provenance: dict[str, Any]


def write_checkpoint(
    directory: PathLike,
    parameters: Mapping[str, np.ndarray],
    config: BertConfig,
    vocabulary_path: PathLike,
    provenance: Mapping[str, Any],
) -> None:
    """Writes a checkpoint directory, whole or not at all; the same arguments give the same bytes.

    Args:
      directory: to be made (an existing one is replaced).
      parameters: float32 arrays by released variable name.
      config: the model's sizes.
      vocabulary_path: copied in as `vocab.txt`.
      provenance: `procedure`, `pretrain_seed`, `data_seed`, `step`.

    Raises:
      UserError: the disk is full or the directory cannot be written.
    """
    import tensorflow as tf

    names = sorted(parameters)
    tensors = [np.asarray(parameters[name], np.float32) for name in names]
    names.append("global_step")
    tensors.append(np.asarray(provenance.get("step") or 0, np.int64))
    with replaced(directory) as temporary:
        temporary.mkdir()
        tf.raw_ops.SaveV2(
            prefix=str(temporary / PREFIX),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=tensors,
        )
        (temporary / CONFIG).write_text(config.to_json())
        shutil.copyfile(vocabulary_path, temporary / VOCABULARY)
        files = (INDEX, DATA, CONFIG, VOCABULARY)
        content = {
            **{name: provenance.get(name) for name in ("procedure", "pretrain_seed")},
            **{name: provenance.get(name) for name in ("data_seed", "step")},
            "files": {
                name: {
                    "bytes": (temporary / name).stat().st_size,
                    "sha256": sha256_of_file(temporary / name),
                }
                for name in files
            },
        }
        (temporary / PROVENANCE).write_text(json.dumps(content, indent=1) + "\n")


def check_checkpoint(directory: PathLike) -> BertConfig:
    """Looks a checkpoint over without TensorFlow: files, sizes, vocabulary.

    Returns:
      The model's sizes.

    Raises:
      UserError: a file is missing or truncated, or the vocabulary has another size than the model.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise UserError(f"{directory} does not exist; give the directory of a checkpoint")
    for name in (INDEX, DATA, CONFIG, VOCABULARY):
        if not (directory / name).is_file():
            raise UserError(
                f"{directory} has no {name}; a checkpoint holds {INDEX}, {DATA}, {CONFIG} and "
                f"{VOCABULARY}: copy it again"
            )
    for name, entry in _read_provenance(directory).get("files", {}).items():
        size = (directory / name).stat().st_size
        if size != entry["bytes"]:
            raise UserError(
                f"{directory / name} has {size} bytes, expected {entry['bytes']}; the checkpoint is "
                "truncated or damaged: copy it again"
            )
    config = BertConfig.from_file(directory / CONFIG)
    pieces = len(read_lines(directory / VOCABULARY))
    if pieces != config.vocab_size:
        raise UserError(
            f"{directory / VOCABULARY} has {pieces} pieces, but {directory / CONFIG} says vocab_size "
            f"{config.vocab_size}; use the vocabulary the checkpoint was trained with"
        )
    return config


def read_checkpoint(directory: PathLike) -> Checkpoint:
    """Reads a checkpoint directory, ours or a released one, verifying checksums.

    Raises:
      UserError: a file is missing, truncated or damaged, a variable is missing or has another
        shape than the configuration says, or the vocabulary has another size.
    """
    import tensorflow as tf

    directory = Path(directory)
    config = check_checkpoint(directory)
    provenance = _read_provenance(directory)
    for name, entry in provenance.pop("files", {}).items():
        if sha256_of_file(directory / name) != entry["sha256"]:
            raise UserError(
                f"{directory / name} does not match the checksum in {PROVENANCE}; the checkpoint is "
                "damaged: copy it again"
            )
    try:
        reader = tf.train.load_checkpoint(str(directory / PREFIX))
        shapes = reader.get_variable_to_shape_map()
        _check_shapes(directory, config, shapes)
        parameters = {
            name: np.asarray(reader.get_tensor(name), np.float32)
            for name in sorted(shapes)
            if _is_parameter(name)
        }
        if provenance["step"] is None and "global_step" in shapes:
            provenance["step"] = int(reader.get_tensor("global_step"))
    except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{directory / DATA} cannot be read ({reason}); the checkpoint is truncated or damaged: "
            "copy it again"
        ) from error
    return Checkpoint(parameters, config, directory / VOCABULARY, provenance)


def _is_parameter(name: str) -> bool:
    return name.startswith(("bert/", "cls/")) and not name.endswith(("/adam_m", "/adam_v"))


def _check_shapes(directory: Path, config: BertConfig, shapes: Mapping[str, list[int]]) -> None:
    from bert.initialization import parameter_shapes

    for name, shape in parameter_shapes(config).items():
        if name not in shapes:
            # Released encoders may come without the pre-training heads.
            if name.startswith("cls/"):
                continue
            raise UserError(
                f"{directory / INDEX} lacks the variable {name}; its {CONFIG} is of another model: "
                "restore the pair"
            )
        if tuple(shapes[name]) != shape:
            raise UserError(
                f"{directory / INDEX}: {name} has shape {tuple(shapes[name])}, but {CONFIG} says "
                f"{shape}; vocabulary or configuration are of another model: restore the set"
            )


def _read_provenance(directory: Path) -> dict[str, Any]:
    """Our record, or what the released directory name says."""
    path = directory / PROVENANCE
    if path.is_file():
        try:
            return json.loads(read_bytes(path))
        except json.JSONDecodeError as error:
            raise UserError(
                f"{path} is not JSON ({error.msg}); copy the checkpoint again"
            ) from error
    provenance: dict[str, Any] = dict.fromkeys(("procedure", "pretrain_seed", "data_seed", "step"))
    match = _RELEASED_NAME.search(directory.resolve().name)
    if match:
        thousands = match["thousands"]
        provenance["procedure"] = "multiberts"
        provenance["pretrain_seed"] = int(match["seed"])
        provenance["step"] = int(thousands) * 1000 if thousands else _RELEASED_STEPS
    return provenance
