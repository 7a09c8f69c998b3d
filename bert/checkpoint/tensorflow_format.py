"""The released layout: a TF1 checkpoint under `bert.ckpt`, `bert_config.json`, `vocab.txt`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from multiberts.bert.checkpoint.tensor_bundle import read_bundle, write_bundle
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.tokenization import write_lower_case
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

PREFIX = "bert.ckpt"
INDEX = f"{PREFIX}.index"
DATA = f"{PREFIX}.data-00000-of-00001"
CONFIG = "bert_config.json"
VOCABULARY = "vocab.txt"

# All that `write_files` makes.
FILES = (INDEX, DATA, CONFIG, VOCABULARY)

_GLOBAL_STEP = "global_step"


def is_tensorflow(directory: PathLike) -> bool:
    """Returns whether a directory has weights in this layout, under any prefix."""
    directory = Path(directory)
    return any(directory.glob("*.index")) or any(directory.glob("*.data-*-of-*"))


def write_files(
    directory: PathLike,
    parameters: Mapping[str, np.ndarray],
    config: BertConfig,
    vocabulary_path: PathLike,
    step: int | None,
) -> tuple[str, ...]:
    """Writes `FILES` into an existing directory; the same arguments give the same bytes.

    Args:
      parameters: float32 arrays by released variable name.
      vocabulary_path: copied in as `vocab.txt`.
      step: the variable `global_step`; None leaves it out.

    Returns:
      The names of the files: `FILES`, and what `write_lower_case` writes.
    """
    directory = Path(directory)
    tensors = {name: np.asarray(parameters[name], np.float32) for name in sorted(parameters)}
    if step is not None:
        tensors[_GLOBAL_STEP] = np.asarray(step, np.int64)
    write_bundle(directory / PREFIX, tensors)
    (directory / CONFIG).write_text(config.to_json())
    shutil.copyfile(vocabulary_path, directory / VOCABULARY)
    return (*FILES, *write_lower_case(vocabulary_path, directory))


def find_prefix(directory: PathLike) -> Path:
    """Finds the prefix of the weights: `bert.ckpt`, or the only one there, as `bert_model.ckpt`."""
    directory = Path(directory)
    prefixes = sorted(path.name.removesuffix(".index") for path in directory.glob("*.index"))
    if not prefixes:
        raise UserError(
            f"{directory} has no {INDEX}; a checkpoint holds {', '.join(FILES)}: copy it again"
        )
    if len(prefixes) > 1 and PREFIX not in prefixes:
        raise UserError(
            f"{directory} holds several checkpoints ({', '.join(prefixes)}); put the files of one "
            "into a directory of its own, with its configuration and vocabulary"
        )
    prefix = PREFIX if PREFIX in prefixes else prefixes[0]
    parts = [path.name for path in directory.glob(f"{prefix}.data-*-of-*")]
    counts = {int(match[1]) for name in parts if (match := re.search(r"-of-(\d+)$", name))}
    # One more than there are is missing, whatever number a name states.
    count = max(counts, default=1)
    for part in range(min(count, len(parts) + 1)):
        name = f"{prefix}.data-{part:05d}-of-{count:05d}"
        if name not in parts:
            raise UserError(
                f"{directory} has no {name}, which belongs to {prefix}.index; copy it again"
            )
    return directory / prefix


def read_weights(
    directory: PathLike, head: Collection[str] = ()
) -> tuple[dict[str, np.ndarray], int | None]:
    """Reads all weights, without looking whether they are complete.

    Optimiser slots (`<name>/adam_m`, `<name>/adam_v`) and other variables of tasks are left out.

    Args:
      head: names of a fine-tuned head's variables.

    Returns:
      float32 arrays by released variable name, and `global_step` where it is stored.
    """
    prefix = find_prefix(directory)
    try:
        tensors = read_bundle(
            prefix, lambda name: _is_parameter(name) or name in head or name == _GLOBAL_STEP
        )
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{prefix}.data cannot be read ({reason}); the checkpoint is truncated or damaged: "
            "copy it again"
        ) from error
    step = tensors.pop(_GLOBAL_STEP, None)
    parameters = {name: tensors[name].astype(np.float32) for name in sorted(tensors)}
    return parameters, None if step is None else int(step)


def _is_parameter(name: str) -> bool:
    places = ("bert/", "cls/predictions/", "cls/seq_relationship/")
    return name.startswith(places) and not name.endswith(("/adam_m", "/adam_v"))
