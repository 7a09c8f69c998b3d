"""Checkpoints on disk: the input of every stage after pre-training.

A checkpoint is a directory in the released TF1 layout (`bert/checkpoint/tensorflow_format.py`) or in the
Hugging Face layout (`bert/checkpoint/hugging_face.py`). Our checkpoints also have `checkpoint.json`: the
origin of the weights, and the size and SHA-256 of every file. `multiberts checkpoint` inspects, converts and
compares checkpoints.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.bert.checkpoint import hugging_face, tensorflow_format
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED, ON_TOKENS, check_fine_tuned
from multiberts.bert.checkpoint.hub import checkpoint_directory
from multiberts.bert.checkpoint.release_names import parse_release_name
from multiberts.bert.checkpoint.tensorflow_format import CONFIG, DATA, INDEX
from multiberts.bert.model.configuration import GELUS, BertConfig, Gelu, parameter_shapes
from multiberts.bert.vocabulary import (
    TOKENIZER,
    TOKENIZER_CONFIG,
    VOCABULARY,
    Vocabulary,
    said_to_lower_case,
    vocabulary_file,
)
from multiberts.runs import console
from multiberts.runs.errors import UserError, listed
from multiberts.runs.files import (
    PathLike,
    is_name_inside,
    read_json_fields,
    replaced,
    sha256_of_file,
)
from multiberts.runs.identity import Input, check_unchanged, opened
from multiberts.runs.parameters import Seed, fits

# Our record of the origin of the weights and of the files' checksums.
PROVENANCE = "checkpoint.json"
INITIALISED = "initialised"
CARD = "README.md"

TENSORFLOW, HUGGING_FACE = "tf1", "hugging_face"
# Both modules and their classes have the same functions.
_FORMATS: dict[str, Any] = {TENSORFLOW: tensorflow_format, HUGGING_FACE: hugging_face}
_FILES: dict[str, Any] = {
    TENSORFLOW: tensorflow_format.TensorFlowFiles,
    HUGGING_FACE: hugging_face.HuggingFaceFiles,
}

ALWAYS_KNOWN = ("procedure", "pretrain_seed", "data_seed", "step")

# Fields of our record that we read, with their types.
_RECORDED = {
    "procedure": str | None,
    **dict.fromkeys(("pretrain_seed", "data_seed"), Seed | None),
    "step": int | None,
    "files": dict[str, dict[str, Any]],
}
_RECORDED_OF_FILE = {"bytes": int, "sha256": str}

# Encoders may lack the pre-training heads, and masked language models the pooler.
_OPTIONAL = ("cls/", "bert/pooler/")

# Sizes are rounded up to a multiple of 8 to 128, or have at most this share of unused rows.
_FACTOR, _PADDING, _ROOM = 8, 128, 0.04
_ROWS_OF_PIECES = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")


@dataclasses.dataclass(eq=False)
class Checkpoint:
    """An opened model on disk. Its weights are read and checked on first use, all other files on opening.

    Checkpoints with the same identity are equal, so they can be keys of caches, wherever they lie.

    Attributes:
      name: name given by the user, a directory or `hub:<repository>`.
      layout: storage layout, `tf1` or `hugging_face`.
      provenance: `procedure`, `pretrain_seed`, `data_seed`, `step`, None if unknown; and further known facts:
        `parent` (the checkpoint that it continues, see `as_parent`), `training` and `corpus` (facts of the
        run), `evaluation` (on held-out text), `initialised` (variables that were missing, and the seed that
        drew them), `finetuned` (the task of a fine-tuned model, see `bert/checkpoint/fine_tuned.py`). Facts
        stored in the weights (`initialised`, the step without a record) are added when these are read.
      files: bytes and SHA-256 of its files by name, from its record.
    """

    name: str
    directory: Path
    layout: str
    config: BertConfig
    provenance: dict[str, Any]
    files: Mapping[str, Mapping[str, Any]]
    _stored: Any
    _is_gelu_open: bool
    _vocabulary_path: Path | None
    _need_finite: bool
    _initialise_missing: int | None

    @classmethod
    def open(
        cls,
        name: PathLike,
        *,
        need_vocabulary: bool = True,
        vocabulary: PathLike | None = None,
        need_finite: bool = True,
        initialise_missing: int | None = None,
        gelu: Gelu | None = None,
    ) -> Checkpoint:
        """Opens a checkpoint, ours or a published one in either layout, without TensorFlow.

        The pre-training heads may be missing, as in some releases; the pooler, too, unless a fine-tuned head
        uses it.

        Args:
          name: a directory, or `hub:<repository>[@<revision>]` to download.
          need_vocabulary: whether a `vocab.txt` of the right size is required.
          vocabulary: vocabulary to use instead of its `vocab.txt`.
          need_finite: whether NaN or infinite weights are refused.
          initialise_missing: a `pretrain_seed` whose initial weights replace a missing pooler and missing
            heads, listed in `provenance["initialised"]`. None: missing variables are not initialised.
          gelu: form of GELU that the weights were trained with; None: the configuration's form.
        """
        # Check the files without reading weights.
        directory = checkpoint_directory(name)
        layout = _layout_of(directory)
        stored = _FILES[layout](directory)
        _require(stored.config_path)
        provenance = read_provenance(directory)
        files = provenance.pop("files", {})
        for file, entry in files.items():
            _require(directory / file)
            if (size := (directory / file).stat().st_size) != entry["bytes"]:
                raise UserError(
                    f"{directory / file} has {size} bytes, expected {entry['bytes']}; the checkpoint is "
                    "truncated or damaged: copy it again"
                )
        if hugging_face.WEIGHTS in stored.weights:
            with hugging_face.opened(directory / hugging_face.WEIGHTS):
                pass

        config, is_gelu_open = stored.config()
        if gelu is not None:
            config = dataclasses.replace(config, hidden_act=GELUS[gelu])
        # Errors of an index too, which `foreign_record` reads.
        small = [n for n in files if n not in stored.weights or n.endswith(".index")]
        _check_sums(directory, {n: files[n] for n in small})

        # The vocabulary must have the model's size and case.
        checkpoint = cls(
            str(name),
            directory,
            layout,
            config,
            provenance,
            files,
            _stored=stored,
            _is_gelu_open=is_gelu_open and gelu is None,
            _vocabulary_path=None if vocabulary is None else Path(vocabulary),
            _need_finite=need_finite,
            _initialise_missing=initialise_missing,
        )
        if need_vocabulary:
            lower_case = checkpoint.vocabulary.lower_case
        else:
            lower_case = said_to_lower_case(directory) is not False

        # Facts of fine-tuning, from our record or from another program's files.
        foreign = None if FINE_TUNED in provenance else stored.foreign_record(config)
        if foreign is not None:
            provenance[FINE_TUNED] = {**foreign, "do_lower_case": lower_case}
        if record := provenance.get(FINE_TUNED):
            if not 1 <= record["sequence_length"] <= config.max_position_embeddings:
                raise UserError(
                    f"{directory}: its record says sequence_length {record['sequence_length']}, expected 1 "
                    f"to {config.max_position_embeddings}, the model's max_position_embeddings; copy the "
                    "checkpoint again"
                )
            if need_vocabulary and lower_case != record["do_lower_case"]:
                path = checkpoint.vocabulary.where
                case = json.dumps({"do_lower_case": not lower_case})
                raise UserError(
                    f"{directory} was fine-tuned with do_lower_case {not lower_case}, but {path} is read "
                    f"with {lower_case}; write {case} into {path.with_name(TOKENIZER_CONFIG)}, and remove a "
                    f"{TOKENIZER} there that says otherwise"
                )
        return checkpoint

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """Returns the vocabulary; every piece has a row of the embeddings."""
        if self._vocabulary_path is None:
            _require(vocabulary_file(self.directory / VOCABULARY))
        vocabulary = Vocabulary.open(self._vocabulary_path or self.directory / VOCABULARY)
        path, num_pieces, size = vocabulary.where, vocabulary.size, self.config.vocab_size
        if not _is_padding(num_pieces, size):
            room = "; if the rest is room, add lines [room0], [room1], ... at its end"
            is_short = num_pieces < size and path.name != TOKENIZER
            raise UserError(
                f"{path} has {num_pieces} pieces, but {self._stored.config_path} says vocab_size {size}; use "
                f"the vocabulary the checkpoint was trained with{room if is_short else ''}"
            )
        if num_pieces < size:
            doubt = "; if the file was cut off, fetch it again" * (size % _FACTOR > 0)  # no padding
            console.note_once(
                f"{size - num_pieces} of {size} rows of the embeddings in {self.directory} have no piece in "
                f"{path.name} and stay unused{doubt}"
            )
        if self._vocabulary_path is not None:
            said = said_to_lower_case(self.directory)
            if said not in (None, vocabulary.lower_case):
                case = json.dumps({"do_lower_case": said})
                raise UserError(
                    f"{self.directory} has do_lower_case {said}, but {path} is read with "
                    f"{vocabulary.lower_case}; write {case} into a {TOKENIZER_CONFIG} beside that"
                )
        return vocabulary

    @property
    def where(self) -> Path:
        return self.directory

    @functools.cached_property
    def identity(self) -> str:
        """SHA-256 of what decides numbers: of our record, or of weights, sizes and vocabulary."""
        vocabulary, files = self.vocabulary, self.files
        case = vocabulary.overriding and vocabulary.overriding.name
        is_recorded = files.get(VOCABULARY, {}).get("sha256") == vocabulary.checksum
        if is_recorded and case in (None, *files) and self.config == self._stored.config()[0]:
            return opened(self.directory / PROVENANCE).identity
        weights = [each.identity for each in self._weight_files]
        sizes = {n: v if isinstance(v, str) else float(v) for n, v in vars(self.config).items()}
        parts = [weights, sizes, vocabulary.identity, self.provenance.get(FINE_TUNED)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @functools.cached_property
    def _weight_files(self) -> list[Input]:
        return [opened(self.directory / name) for name in self._stored.weights]

    def as_parent(self) -> dict[str, Any]:
        """Returns the `parent` entry that a checkpoint trained from this one records."""
        known = self.provenance
        facts = {name: known.get(name) for name in ("procedure", "pretrain_seed", "step")}
        return {**facts, "sha256": self.identity, "parent": known.get("parent")}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """float32 arrays by released variable name, optimiser slots and a fine-tuned head left out."""
        return self._weights[0]

    @property
    def head(self) -> dict[str, np.ndarray]:
        """float32 arrays of a fine-tuned head by name."""
        return self._weights[1]

    @property
    def variables(self) -> dict[str, np.ndarray]:
        return {**self.parameters, **self.head}

    @functools.cached_property
    def _weights(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Reads and verifies the weights: parameters of the encoder and of the head."""
        directory, config, record = self.directory, self.config, self.provenance.get(FINE_TUNED)
        _check_sums(directory, {n: self.files[n] for n in self.files if n in self._stored.weights})
        if self._is_gelu_open:
            console.note_once(
                f"{self._stored.config_path} says hidden_act 'gelu', which is the tanh form in "
                "Google's releases and the exact form in transformers; read as the tanh form. If "
                f"transformers pre-trained this model, `multiberts checkpoint convert {directory} TARGET "
                "--to tf1 --gelu=exact` makes one that is read as the exact form"
            )
        parameters, step = self._stored.read_weights(config, record)
        check_unchanged(*vars(self).get("_weight_files", ()))
        # A fine-tuned model's steps are not those of pre-training.
        if (
            not record
            and not (directory / PROVENANCE).is_file()
            and self.provenance["step"] is None
        ):
            self.provenance["step"] = step

        # Drop rows that only pad the number of embeddings to a multiple.
        config_name, rows = (
            self._stored.config_path.name,
            len(parameters.get(_ROWS_OF_PIECES[0], ())),
        )
        if rows > config.vocab_size and _is_padding(config.vocab_size, rows):
            console.note_once(
                f"{directory} has {rows} rows of embeddings, and {config_name} says vocab_size "
                f"{config.vocab_size}: the last {rows - config.vocab_size} are padding and left out"
            )
            for name in parameters.keys() & set(_ROWS_OF_PIECES):
                parameters[name] = parameters[name][: config.vocab_size]

        # Refuse wrong shapes before a variable of such a size is created.
        head = (
            {n: tuple(shape) for n, shape in record["head"]["variables"].items()} if record else {}
        )
        shapes = parameter_shapes(config)
        expected = {**head, **shapes}
        for name, shape in expected.items():
            actual = parameters[name].shape if name in parameters else None
            if name in head and actual != shape:
                problem = "is missing" if actual is None else f"has shape {actual}"
                raise UserError(
                    f"{directory}: {name} of the fine-tuned head {problem}, but its record says {shape}; the "
                    "files are of two models: copy the checkpoint again"
                )
            if actual not in (None, shape):
                raise UserError(
                    f"{directory}: {name} has shape {actual}, but {config_name} says "
                    f"{shape}; vocabulary or configuration are of another model: restore the set"
                )
        for name in parameters:
            if name not in expected:
                raise UserError(
                    f"{directory} holds the variable {name}, which its {config_name} has no place for: it "
                    "is of another model, restore the pair"
                )
        optional: tuple[str, ...] = _OPTIONAL
        if record and record["head"]["kind"] not in ON_TOKENS and self._initialise_missing is None:
            optional = _OPTIONAL[:1]
        for name in shapes:
            if (name not in parameters or name in head) and not name.startswith(optional):
                raise UserError(
                    f"{directory} lacks the variable {name}; its {config_name} is of another model: restore "
                    "the pair"
                )

        values_of_head = {name: parameters.pop(name) for name in head}
        absent = shapes.keys() - parameters.keys()
        if self._initialise_missing is not None and absent:
            from multiberts.bert.model.initialization import initial_parameters

            missing, drawn = sorted(absent), initial_parameters(config, self._initialise_missing)
            parameters |= {name: drawn[name] for name in missing}
            self.provenance[INITIALISED] = {
                "pretrain_seed": self._initialise_missing,
                "variables": missing,
            }
            console.note_once(
                f"{directory} lacks {listed(missing)}: drawn as at step 0 of pretrain_seed "
                f"{self._initialise_missing}"
            )
        for name, values in {**parameters, **values_of_head}.items() if self._need_finite else ():
            if not np.isfinite(values).all():
                raise UserError(
                    f"{directory}: {name} has numbers that are NaN or infinite; its training diverged or "
                    "the file is damaged: take another checkpoint (`multiberts checkpoint inspect` lists "
                    "all such variables)"
                )
        return parameters, values_of_head


def read_checkpoint(name: PathLike, **how: Any) -> Checkpoint:
    """Opens a checkpoint and reads its weights at once; `how`: keyword arguments of `Checkpoint.open`."""
    checkpoint = Checkpoint.open(name, **how)
    checkpoint.variables  # noqa: B018 -- read now, so that what is wrong with them is refused here
    return checkpoint


def write_checkpoint(
    directory: PathLike,
    parameters: Mapping[str, np.ndarray],
    config: BertConfig,
    vocabulary: Vocabulary,
    provenance: Mapping[str, Any],
    *,
    layout: str = TENSORFLOW,
    card: str | None = None,
) -> None:
    """Writes a checkpoint directory atomically; the same arguments give the same bytes.

    Args:
      directory: folder to write; an existing one is replaced.
      parameters: float32 arrays by released variable name, including the head's of a fine-tuned model.
      provenance: `procedure`, `pretrain_seed`, `data_seed`, `step`, and further facts as JSON
        values; they must not depend on the machine or the time.
      card: the model card, written as `README.md`; None for none.
    """
    with replaced(directory) as temporary:
        temporary.mkdir()
        names = _FORMATS[layout].write_files(temporary, parameters, config, vocabulary, provenance)
        paths = {name: temporary / name for name in names}
        files = {
            name: {"bytes": path.stat().st_size, "sha256": sha256_of_file(path)}
            for name, path in paths.items()
        }
        record = {**dict.fromkeys(ALWAYS_KNOWN), **provenance, "files": files}
        (temporary / PROVENANCE).write_text(json.dumps(record, indent=1) + "\n")
        if card is not None:
            # Not in the record, because users edit the card.
            (temporary / CARD).write_text(card)


def _layout_of(directory: Path) -> str:
    """Detects the layout of a checkpoint; TF1 if a directory holds both."""
    if not directory.is_dir():
        problem = "is a file" if directory.is_file() else "does not exist"
        such = f", such as {directory.parent}" if _layouts_in(directory.parent) else ""
        raise UserError(f"{directory} {problem}; give the directory of a checkpoint{such}")
    if layouts := _layouts_in(directory):
        return layouts[0]
    below = [
        child
        for folder in (directory, directory / "checkpoints")
        if folder.is_dir()
        for child in sorted(folder.iterdir(), key=lambda path: _natural_order(path.name))
        if child.is_dir() and _layouts_in(child)
    ]
    if below:
        names = ", ".join(child.name for child in below)
        raise UserError(
            f"{directory} is not a checkpoint, but holds some; give one of those in "
            f"{below[0].parent} ({names}), such as {below[-1]}"
        )
    states = [path.name for path in directory.iterdir() if path.suffix in (".pt", ".pth", ".ckpt")]
    if len(states) == 1:
        raise UserError(
            f"{directory} has {states[0]}, but no {INDEX} and no {hugging_face.WEIGHTS}; if PyTorch saved "
            f"that, call it {hugging_face.OLD_WEIGHTS}"
        )
    raise UserError(
        f"{directory} has no {INDEX} and no {hugging_face.WEIGHTS}; a checkpoint holds {INDEX}, "
        f"{DATA}, {CONFIG} and {VOCABULARY}, or {hugging_face.WEIGHTS}, {hugging_face.CONFIG} and "
        f"{VOCABULARY}: copy it again"
    )


def _layouts_in(folder: Path) -> list[str]:
    return [layout for layout, module in _FORMATS.items() if module.holds_weights(folder)]


def _check_sums(directory: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    for name, entry in files.items():
        if sha256_of_file(directory / name) != entry["sha256"]:
            raise UserError(
                f"{directory / name} does not match the checksum in {PROVENANCE}; the checkpoint is "
                "damaged: copy it again"
            )


def _is_padding(count: int, size: int) -> bool:
    """Returns whether a number of embeddings is the vocabulary's size, rounded up or with some unused rows.

    Two published vocabularies differ by more: the cased and the uncased one of English by 5 %.
    """
    room = size - count
    return 0 <= room <= size * _ROOM or (0 <= room < _PADDING and size % _FACTOR == 0)


def read_provenance(directory: PathLike) -> dict[str, Any]:
    """Reads our record of a checkpoint with its `files`, or derives facts from the directory's name."""
    path = Path(directory) / PROVENANCE
    provenance: dict[str, Any] = dict.fromkeys(ALWAYS_KNOWN)
    if not path.is_file():
        name = parse_release_name(directory)
        return {**provenance, **(dataclasses.asdict(name) if name else {})}
    cure = "copy the checkpoint again"
    record = read_json_fields(path, _RECORDED, cure)
    for name, entry in record["files"].items():
        if not is_name_inside(name):
            raise UserError(f"{path} lists {name!r}, which is not a file of a checkpoint; {cure}")
        if not all(fits(entry.get(field), kind) for field, kind in _RECORDED_OF_FILE.items()):
            raise UserError(f"{path} lacks the size or the checksum of {name}; {cure}")
    if FINE_TUNED in record:
        check_fine_tuned(record[FINE_TUNED], str(path), cure)
    return {**provenance, **record}


def same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    """Returns whether two float32 arrays agree in shape and in every bit: 0 is not -0, NaN can be NaN."""
    first_bits, second_bits = (
        np.ascontiguousarray(values, np.float32).view(np.uint32) for values in (first, second)
    )
    return first.shape == second.shape and np.array_equal(first_bits, second_bits)


def _require(path: Path) -> None:
    """Refuses a missing file and suggests where it might be."""
    if path.is_file():
        return
    directory = path.parent
    cure = "copy the checkpoint again"
    if (directory.parent / path.name).is_file():
        cure = f"copy {directory.parent / path.name} into it"
    elif path.name == VOCABULARY:
        cure = "put the model's vocabulary there"
    raise UserError(f"{directory} has no {path.name}; {cure}")


def _natural_order(name: str) -> list[int | str]:
    """Sort key that orders step_20 before step_100: alternating texts and numbers."""
    parts: list[int | str] = [*re.split(r"(\d+)", name)]
    parts[1::2] = map(int, parts[1::2])
    return parts
