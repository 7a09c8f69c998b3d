"""The released layout: a TF1 checkpoint under `bert.ckpt`, `bert_config.json`, `vocab.txt`."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.bert.checkpoint.fine_tuned import fine_tuned_line, foreign_record
from multiberts.bert.checkpoint.tensor_bundle import (
    BundleEntry,
    parse_index,
    read_bundle,
    write_bundle,
)
from multiberts.bert.model.configuration import BertConfig, check_layers
from multiberts.bert.vocabulary import VOCABULARY, Vocabulary
from multiberts.runs import console
from multiberts.runs.errors import UserError, counted, listed
from multiberts.runs.files import PathLike

PREFIX = "bert.ckpt"
INDEX = f"{PREFIX}.index"
DATA = f"{PREFIX}.data-00000-of-00001"
CONFIG = "bert_config.json"

# The files that `write_files` writes.
FILES = (INDEX, DATA, CONFIG, VOCABULARY)

_GLOBAL_STEP = "global_step"
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_PRETRAINED = ("bert/", "cls/predictions/", "cls/seq_relationship/")
_SQUAD = "cls/squad/"
# Names of a head's two variables in the original scripts, and the head's kind.
_FOREIGN_HEADS = {
    "run_classifier": ("", "classification"),
    "run_squad": (_SQUAD, "question_answering"),
}


def holds_weights(directory: PathLike) -> bool:
    """Returns whether a directory has weights in this layout, under any prefix."""
    directory = Path(directory)
    return any(directory.glob("*.index")) or any(directory.glob("*.data-*-of-*"))


def write_files(
    directory: PathLike,
    parameters: Mapping[str, np.ndarray],
    config: BertConfig,
    vocabulary: Vocabulary,
    provenance: Mapping[str, Any],
) -> tuple[str, ...]:
    """Writes `FILES` into an existing directory; the same arguments give the same bytes.

    The arguments are those of `write_checkpoint`; a step becomes the variable `global_step`.

    Returns:
      The names of the files: `FILES`, and further files of `Vocabulary.write`.
    """
    directory = Path(directory)
    tensors = {name: np.asarray(parameters[name], np.float32) for name in sorted(parameters)}
    if (step := provenance.get("step")) is not None:
        tensors[_GLOBAL_STEP] = np.asarray(step, np.int64)
    write_bundle(directory / PREFIX, tensors)
    (directory / CONFIG).write_text(config.to_json())
    return (*FILES[:-1], *vocabulary.write(directory))


class TensorFlowFiles:
    """A checkpoint's files in this layout; each is read on first use.

    Attributes:
      config_path: the file with the model's sizes.
      weights: names of the weights' files: of `bert.ckpt`, or the only ones there, as `bert_model.ckpt`. The
        index, which ends in `.index`, is the first.
    """

    def __init__(self, directory: Path):
        self.directory, self.config_path = directory, directory / CONFIG
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
        self.weights = [f"{prefix}.index", *parts]
        self._prefix = directory / prefix

    def config(self) -> tuple[BertConfig, bool]:
        """Reads the model's sizes; the form of GELU is never ambiguous in this layout."""
        return BertConfig.from_file(self.config_path), False

    @functools.cached_property
    def _variables(self) -> tuple[dict[str, BundleEntry], int]:
        """Reads the variables of a model by name, sorted, and the number of optimiser variables."""
        with _refused_if_damaged(self._prefix):
            entries, _ = parse_index(Path(f"{self._prefix}.index").read_bytes())
        if _OBJECT_GRAPH in entries:
            name = max(entries)  # not that of the graph
            raise UserError(
                f"{self._prefix}.index is of tf.train.Checkpoint, whose names, such as {name}, are those of "
                "a program; load it with tf.train.load_checkpoint, and write its arrays under the names of "
                "BERT's release with multiberts.bert.checkpoint.tensor_bundle.write_bundle"
            )
        # An optimiser's slot is named after its variable; single numbers count its steps.
        variables = {
            name: entry
            for name, entry in sorted(entries.items())
            if entry.shape and name.rpartition("/")[0] not in entries
        }
        return variables, len(entries.keys() - variables.keys() - {_GLOBAL_STEP})

    def foreign_record(self, config: BertConfig) -> dict[str, Any] | None:
        """Makes the record of a head that run_classifier or run_squad of the original code trained.

        Returns:
          The record, see `bert/checkpoint/fine_tuned.py`; None without such a head, or with further ones.
        """
        variables, num_slots = self._variables
        others = [name for name in variables if not name.startswith(_PRETRAINED)]
        record = None
        for script, (folder, kind) in _FOREIGN_HEADS.items():
            if others != [f"{folder}output_bias", f"{folder}output_weights"]:
                continue
            num_outputs, *hidden = variables[others[1]].shape
            kind = "regression" if num_outputs == 1 else kind
            labels = [f"LABEL_{number}" for number in range(num_outputs)]
            positions = config.max_position_embeddings
            record = foreign_record(kind, labels, math.prod(hidden), positions)
            console.note_once(
                f"{self._prefix}.index has no record of its {others[1]}, which is read as {script} trains "
                f"it, {fine_tuned_line(record)}"
            )
        left_out = [listed(others)] if others and not record else []
        left_out += [f"{counted(num_slots, 'variable')} of its optimiser"] * (num_slots > 0)
        if left_out:
            console.note_once(f"{self._prefix}.index: left out are {', '.join(left_out)}")
        return record

    def read_weights(
        self, config: BertConfig, fine_tuned: Mapping[str, Any] | None
    ) -> tuple[dict[str, np.ndarray], int | None]:
        """Reads all weights of the configured layers, without checking that they are complete.

        Returns:
          float32 arrays by released variable name, and `global_step` if it is stored.
        """
        prefix, (variables, _) = self._prefix, self._variables
        head = fine_tuned["head"]["variables"] if fine_tuned else {}
        names = {
            name: name.removeprefix(_SQUAD)
            for name in variables
            if name.startswith(_PRETRAINED) or name.removeprefix(_SQUAD) in head
        }
        if parted := [name for name in names if variables[name].dtype is None]:
            raise UserError(
                f"{prefix}.index has {parted[0]} and others in pieces, as a partitioner saves them; "
                'TensorFlow joins these: python -c "import pathlib, sys, tensorflow as tf; '
                "from multiberts.bert.checkpoint.tensor_bundle import write_bundle; "
                "p = pathlib.Path(sys.argv[1]); r = tf.train.load_checkpoint(str(p)); "
                f"write_bundle(p.with_name({PREFIX!r}), "
                '{n: r.get_tensor(n) for n in r.get_variable_to_shape_map()})" '
                f"{shlex.quote(str(prefix))}"
            )
        with _refused_if_damaged(prefix):
            tensors = read_bundle(prefix, lambda name: name in names or name == _GLOBAL_STEP)
        step = tensors.pop(_GLOBAL_STEP, None)
        parameters = {names[name]: values.astype(np.float32) for name, values in tensors.items()}
        check_layers(config, parameters, self.directory)
        return dict(sorted(parameters.items())), None if step is None else int(step)


@contextlib.contextmanager
def _refused_if_damaged(prefix: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot read {prefix}.data: {error.strerror or error}; check the path"
        ) from error
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{prefix}.data cannot be read ({reason}); the checkpoint is truncated or damaged: "
            "copy it again"
        ) from error
