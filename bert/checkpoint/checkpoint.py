"""Checkpoints on disk: the one thing every stage after pre-training reads.

A directory in the released TF1 layout (`bert/checkpoint/tensorflow_format.py`) or in that of Hugging Face
(`bert/checkpoint/hugging_face.py`), and in both, where we wrote it, `checkpoint.json`: where the weights came
from, and the size and SHA-256 of every file. `multiberts checkpoint` looks at checkpoints,
converts and compares them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.bert.checkpoint import hugging_face, tensorflow_format
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED, ON_TOKENS, check_fine_tuned
from multiberts.bert.checkpoint.release_names import parse_release_name
from multiberts.bert.checkpoint.tensorflow_format import CONFIG, DATA, INDEX, VOCABULARY
from multiberts.bert.model.configuration import (
    GELUS,
    BertConfig,
    Gelu,
    parameter_shapes,
)
from multiberts.bert.tokenization import (
    TOKENIZER,
    TOKENIZER_CONFIG,
    lower_cases,
    read_vocabulary,
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
from multiberts.runs.parameters import fits

# Our record of where the weights came from and what the files hold.
PROVENANCE = "checkpoint.json"
INITIALISED = "initialised"
CARD = "README.md"

TENSORFLOW, HUGGING_FACE = "tf1", "hugging_face"
# The modules have the same functions.
_FORMATS: dict[str, Any] = {TENSORFLOW: tensorflow_format, HUGGING_FACE: hugging_face}

ALWAYS_KNOWN = ("procedure", "pretrain_seed", "data_seed", "step")

# The fields of our record that are read, with their types.
_RECORDED = {
    "procedure": str | None,
    **dict.fromkeys(ALWAYS_KNOWN[1:], int | None),
    "files": dict[str, dict[str, Any]],
}
_RECORDED_OF_FILE = {"bytes": int, "sha256": str}

# Encoders may come without the pre-training heads, and models of masked words without a pooler.
_OPTIONAL = ("cls/", "bert/pooler/")

# Sizes are rounded up to a multiple, of 8 to 128; or have room for pieces to come, at most this share.
_FACTOR, _PADDING, _ROOM = 8, 128, 0.04
_ROWS_OF_PIECES = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model read from disk.

    Attributes:
      parameters: float32 arrays by released variable name, optimiser slots left out.
      vocabulary_path: its `vocab.txt`; if there is none, the `tokenizer.json` beside it has the pieces.
      provenance: `procedure`, `pretrain_seed`, `data_seed`, `step`, None where unknown; and what
        else is known: `parent` (the checkpoint that it continues, see `ancestor`), `training` and
        `corpus` (facts of the run), `evaluation` (on held-out text), `initialised` (variables that were
        missing, and the seed that drew them), `finetuned` (the task of a fine-tuned model, see
        `bert/checkpoint/fine_tuned.py`).
      layout: how it is stored, `tf1` or `hugging_face`.
      head: of a fine-tuned model, the float32 arrays of its head by name.
      lower_case: whether its text is lower-cased and loses its accents.
      files: bytes and SHA-256 of its files by name, as its record says.
    """

    parameters: dict[str, np.ndarray]
    config: BertConfig
    vocabulary_path: Path
    provenance: dict[str, Any]
    layout: str = TENSORFLOW
    head: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    lower_case: bool = True
    files: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def variables(self) -> dict[str, np.ndarray]:
        return {**self.parameters, **self.head}


def write_checkpoint(
    directory: PathLike,
    parameters: Mapping[str, np.ndarray],
    config: BertConfig,
    vocabulary_path: PathLike,
    provenance: Mapping[str, Any],
    *,
    layout: str = TENSORFLOW,
    card: str | None = None,
) -> None:
    """Writes a checkpoint directory, whole or not at all; the same arguments give the same bytes.

    Args:
      directory: to be made (an existing one is replaced).
      parameters: float32 arrays by released variable name; of a fine-tuned model the head's, too.
      vocabulary_path: copied in as `vocab.txt`.
      provenance: `procedure`, `pretrain_seed`, `data_seed`, `step`, and further facts as JSON
        values; they must not depend on the machine or the time.
      layout: `tf1` or `hugging_face`.
      card: the model card, written as `README.md`; None for none.
    """
    with replaced(directory) as temporary:
        temporary.mkdir()
        names = _FORMATS[layout].write_files(
            temporary, parameters, config, vocabulary_path, provenance
        )
        files = described_files(temporary, names)
        record = {**dict.fromkeys(ALWAYS_KNOWN), **provenance, "files": files}
        (temporary / PROVENANCE).write_text(json.dumps(record, indent=1) + "\n")
        if card is not None:
            # Not in the record: a card is there to be edited.
            (temporary / CARD).write_text(card)


def described_files(directory: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Returns size and SHA-256 of files by name, as our record has them."""
    return {
        name: {
            "bytes": (directory / name).stat().st_size,
            "sha256": sha256_of_file(directory / name),
        }
        for name in names
    }


def layout_of(directory: PathLike) -> str:
    """Returns how a checkpoint is stored; TF1 where a directory holds both layouts."""
    directory = Path(directory)
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
        for child in sorted(folder.iterdir(), key=lambda path: natural_order(path.name))
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


def check_checkpoint(directory: PathLike) -> BertConfig:
    """Looks a checkpoint over without TensorFlow: files, sizes, vocabulary.

    Returns:
      The model's sizes.
    """
    directory = Path(directory)
    config, _ = _check_files(directory)
    _require(vocabulary_file(directory / VOCABULARY))
    _check_vocabulary(directory / VOCABULARY, config, config_path(directory))
    return config


def _check_vocabulary(path: Path, config: BertConfig, config_path: Path) -> bool:
    """Refuses a vocabulary of another size than the model's; returns whether its text is lower-cased."""
    lower_case = lower_cases(path)
    num_pieces, size = len(read_vocabulary(path)), config.vocab_size
    if not _is_padding(num_pieces, size):
        room = "; if the rest is room, add lines [room0], [room1], ... at its end"
        is_short = num_pieces < size and path.is_file()
        raise UserError(
            f"{vocabulary_file(path)} has {num_pieces} pieces, but {config_path} says vocab_size {size}; use "
            f"the vocabulary the checkpoint was trained with{room if is_short else ''}"
        )
    if num_pieces < size:
        doubt = "; if the file was cut off, fetch it again" * (size % _FACTOR > 0)  # no padding
        console.note_once(
            f"{size - num_pieces} of {size} rows of the embeddings in {config_path.parent} have no piece in "
            f"{vocabulary_file(path).name} and stay unused{doubt}"
        )
    return lower_case


def _is_padding(count: int, size: int) -> bool:
    """Returns whether a size is a count, rounded up to a multiple or with some room left.

    Two published vocabularies differ by more: the cased and the uncased one of English by 5 %.
    """
    room = size - count
    return 0 <= room <= size * _ROOM or (0 <= room < _PADDING and size % _FACTOR == 0)


def read_checkpoint(
    directory: PathLike,
    *,
    need_vocabulary: bool = True,
    vocabulary: PathLike | None = None,
    need_finite: bool = True,
    initialise_missing: int | None = None,
    gelu: Gelu | None = None,
) -> Checkpoint:
    """Reads a checkpoint directory, ours or a published one in either layout, verifying checksums.

    The pre-training heads may be missing, as some releases leave them out; the pooler, too, where no
    fine-tuned head reads it.

    Args:
      need_vocabulary: whether a `vocab.txt` of the right size must be there.
      vocabulary: in place of its `vocab.txt`.
      need_finite: whether weights that are NaN or infinite are refused.
      initialise_missing: a `pretrain_seed`, whose values at step 0 a missing pooler and missing heads get;
        `provenance["initialised"]` then says which. None: nothing is made up.
      gelu: the form that the weights were trained with; None: as the configuration says it.
    """
    directory = Path(directory)
    layout = layout_of(directory)
    config, is_gelu_open = _check_files(directory)
    config_file = config_path(directory)
    if gelu is not None:
        config = dataclasses.replace(config, hidden_act=GELUS[gelu])
    provenance = read_provenance(directory)
    files = provenance.pop("files", {})
    for name, entry in files.items():
        if sha256_of_file(directory / name) != entry["sha256"]:
            raise UserError(
                f"{directory / name} does not match the checksum in {PROVENANCE}; the checkpoint is "
                "damaged: copy it again"
            )
    path = Path(vocabulary or directory / VOCABULARY)
    if need_vocabulary and vocabulary is None:
        _require(vocabulary_file(path))
    said = said_to_lower_case(directory / VOCABULARY)
    lower_case = said is not False
    if need_vocabulary:
        lower_case = _check_vocabulary(path, config, config_file)
        if said not in (None, lower_case):
            case = json.dumps({"do_lower_case": said})
            raise UserError(
                f"{directory} has do_lower_case {said}, but {path} is read with {lower_case}; write {case} "
                f"into a {TOKENIZER_CONFIG} beside that"
            )
    head: dict[str, tuple[int, ...]] = {}
    optional: tuple[str, ...] = _OPTIONAL
    if record := read_fine_tuned(directory):
        is_open = record["do_lower_case"] is None
        record = {**record, "do_lower_case": lower_case if is_open else record["do_lower_case"]}
        provenance[FINE_TUNED] = record
        head = {name: tuple(shape) for name, shape in record["head"]["variables"].items()}
        if record["head"]["kind"] not in ON_TOKENS and initialise_missing is None:
            optional = _OPTIONAL[:1]
        if not 1 <= record["sequence_length"] <= config.max_position_embeddings:
            raise UserError(
                f"{directory}: its record says sequence_length {record['sequence_length']}, expected 1 to "
                f"{config.max_position_embeddings}, the model's max_position_embeddings; copy the checkpoint "
                "again"
            )
        if need_vocabulary and lower_case != record["do_lower_case"]:
            case = json.dumps({"do_lower_case": not lower_case})
            raise UserError(
                f"{directory} was fine-tuned with do_lower_case {not lower_case}, but {path} is read with "
                f"{lower_case}; write {case} into {path.with_name(TOKENIZER_CONFIG)}, and remove a "
                f"{TOKENIZER} there that says otherwise"
            )
    if gelu is None and is_gelu_open:
        console.note_once(
            f"{config_file} says hidden_act 'gelu', which is the tanh form in "
            "Google's releases and the exact form in transformers; read as the tanh form. If "
            f"transformers pre-trained this model, `multiberts checkpoint convert {directory} TARGET "
            "--to tf1 --gelu=exact` makes one that is read as the exact form"
        )
    parameters, step = _FORMATS[layout].read_weights(directory, config, record)
    # A fine-tuned model's steps are not those of pre-training.
    if not record and not (directory / PROVENANCE).is_file() and provenance["step"] is None:
        provenance["step"] = step
    _cut_padding(directory, config, parameters)
    _check_variables(directory, config, parameters, head, optional)
    values_of_head = {name: parameters.pop(name) for name in head}
    absent = parameter_shapes(config).keys() - parameters.keys()
    if initialise_missing is not None and absent:
        from multiberts.bert.model.initialization import initial_parameters

        missing, drawn = sorted(absent), initial_parameters(config, initialise_missing)
        parameters |= {name: drawn[name] for name in missing}
        provenance[INITIALISED] = {"pretrain_seed": initialise_missing, "variables": missing}
        console.note_once(
            f"{directory} lacks {listed(missing)}: drawn as at step 0 of pretrain_seed {initialise_missing}"
        )
    checkpoint = Checkpoint(
        parameters, config, path, provenance, layout, values_of_head, lower_case, files
    )
    for name, values in checkpoint.variables.items() if need_finite else ():
        if not np.isfinite(values).all():
            raise UserError(
                f"{directory}: {name} has numbers that are NaN or infinite; its training diverged or "
                "the file is damaged: take another checkpoint (`multiberts checkpoint inspect` lists "
                "all such variables)"
            )
    return checkpoint


def read_fine_tuned(directory: PathLike) -> dict[str, Any] | None:
    """Returns what a model was fine-tuned on: our record, or what another program's files say.

    Returns:
      The record, see `bert/checkpoint/fine_tuned.py`, its `do_lower_case` None where it is not ours; None
      for a model without a fine-tuned head.
    """
    if FINE_TUNED in (provenance := read_provenance(directory)):
        record: dict[str, Any] | None = provenance[FINE_TUNED]
    else:
        record = _FORMATS[layout_of(directory)].read_fine_tuned(directory)
    return record


def read_provenance(directory: PathLike) -> dict[str, Any]:
    """Reads our record of a checkpoint, its `files` included, or what the directory's name shows."""
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


def ancestor(provenance: Mapping[str, Any], sha256: str) -> dict[str, Any]:
    """Returns what a descendant records of a checkpoint, as its `parent`.

    Args:
      sha256: its fingerprint (`runs.directory.fingerprint`).

    Example:
      >>> ancestor({"procedure": "base", "pretrain_seed": 0, "step": 400, "data_seed": 0}, "5f0a")
      {'procedure': 'base', 'pretrain_seed': 0, 'step': 400, 'sha256': '5f0a', 'parent': None}
    """
    facts = {name: provenance.get(name) for name in ("procedure", "pretrain_seed", "step")}
    return {**facts, "sha256": sha256, "parent": provenance.get("parent")}


def same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    """Returns whether two float32 arrays agree in shape and in every bit: 0 is not -0, NaN can be NaN."""
    one, other = (
        np.ascontiguousarray(values, np.float32).view(np.uint32) for values in (first, second)
    )
    return first.shape == second.shape and np.array_equal(one, other)


def config_path(directory: Path) -> Path:
    """Returns where a checkpoint has the model's sizes."""
    path: Path = _FORMATS[layout_of(directory)].config_path(directory)
    return path


def stored_files(directory: Path) -> list[str]:
    """Returns the names of a checkpoint's files but its record and card, which are not read."""
    beside = [name for name in (TOKENIZER, TOKENIZER_CONFIG) if (directory / name).is_file()]
    vocabulary = vocabulary_file(directory / VOCABULARY).name
    weights = _FORMATS[layout_of(directory)].weight_files(directory)
    return sorted({*weights, config_path(directory).name, vocabulary, *beside})


def _check_files(directory: Path) -> tuple[BertConfig, bool]:
    """Checks all but the vocabulary, without TensorFlow.

    Returns:
      The model's sizes, and whether its configuration leaves the form of GELU open.
    """
    module = _FORMATS[layout_of(directory)]
    names = module.weight_files(directory)
    _require(module.config_path(directory))
    for name, entry in read_provenance(directory).get("files", {}).items():
        _require(directory / name)
        size = (directory / name).stat().st_size
        if size != entry["bytes"]:
            raise UserError(
                f"{directory / name} has {size} bytes, expected {entry['bytes']}; the checkpoint is "
                "truncated or damaged: copy it again"
            )
    if hugging_face.WEIGHTS in names:
        with hugging_face.opened(directory / hugging_face.WEIGHTS):
            pass
    sizes: tuple[BertConfig, bool] = module.read_config(directory)
    return sizes


def _require(path: Path) -> None:
    """Refuses a missing file, pointing at where it might be."""
    if path.is_file():
        return
    directory = path.parent
    cure = "copy the checkpoint again"
    if (directory.parent / path.name).is_file():
        cure = f"copy {directory.parent / path.name} into it"
    elif path.name == VOCABULARY:
        cure = "put the model's vocabulary there"
    raise UserError(f"{directory} has no {path.name}; {cure}")


def _cut_padding(directory: Path, config: BertConfig, parameters: dict[str, np.ndarray]) -> None:
    """Leaves out rows that were added to the weights alone, so that their number has few factors."""
    rows = len(parameters.get(_ROWS_OF_PIECES[0], ()))
    if rows <= config.vocab_size or not _is_padding(config.vocab_size, rows):
        return
    console.note_once(
        f"{directory} has {rows} rows of embeddings, and {config_path(directory).name} says vocab_size "
        f"{config.vocab_size}: the last {rows - config.vocab_size} are padding and left out"
    )
    for name in _ROWS_OF_PIECES:
        if name in parameters:
            parameters[name] = parameters[name][: config.vocab_size]


def _check_variables(
    directory: Path,
    config: BertConfig,
    parameters: Mapping[str, np.ndarray],
    head: Mapping[str, tuple[int, ...]],
    optional: tuple[str, ...],
) -> None:
    """Refuses variables of another model than the configuration's, before one of its sizes is built.

    Args:
      head: shapes of the variables of a fine-tuned head.
      optional: how the names of those begin that may be missing.
    """
    path, shapes = config_path(directory), parameter_shapes(config)
    expected = {**head, **shapes}
    for name, shape in expected.items():
        found = parameters[name].shape if name in parameters else None
        if name in head and found != shape:
            problem = "is missing" if found is None else f"has shape {found}"
            raise UserError(
                f"{directory}: {name} of the fine-tuned head {problem}, but its record says {shape}; the "
                "files are of two models: copy the checkpoint again"
            )
        if found not in (None, shape):
            raise UserError(
                f"{directory}: {name} has shape {found}, but {path.name} says "
                f"{shape}; vocabulary or configuration are of another model: restore the set"
            )
    for name in parameters:
        if name not in expected:
            raise UserError(
                f"{directory} holds the variable {name}, which its {path.name} has no place for: it "
                "is of another model, restore the pair"
            )
    for name in shapes:
        if (name not in parameters or name in head) and not name.startswith(optional):
            raise UserError(
                f"{directory} lacks the variable {name}; its {path.name} is of another model: restore the "
                "pair"
            )


def natural_order(name: str) -> list[int | str]:
    """Orders step_20 before step_100: texts and numbers take turns, so that like is compared with like."""
    parts: list[int | str] = [*re.split(r"(\d+)", name)]
    parts[1::2] = map(int, parts[1::2])
    return parts
