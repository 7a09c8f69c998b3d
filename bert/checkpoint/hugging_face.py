"""The Hugging Face layout: `model.safetensors`, `config.json`, `vocab.txt`, and files of its tokeniser.

Names and orientations are those of `transformers.BertForPreTraining`, heads included; a kernel is
stored transposed there. Conversion does no arithmetic, so every array survives a round trip bit for bit.
PyTorch is only needed for old `pytorch_model.bin` files, and `transformers` never.

GELU is ambiguous. Google's configurations call its tanh form "gelu"; in `transformers` that word means the
exact form, and the two differ by up to 0.0005 a unit. Published copies of TF1 weights, the MultiBERTs among
them, kept the word in `config.json` although they were trained with the tanh form. So "gelu" means the exact
form for models with a fine-tuned head, which `transformers` trained, and otherwise the tanh form, with a
note. The other names in `transformers` are unambiguous: we write "gelu_new" for tanh, and
"gelu_python" for exact if "gelu" would be read as tanh.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED, foreign_record
from multiberts.bert.model.configuration import (
    GELUS,
    REQUIRED,
    BertConfig,
    Gelu,
    check_layers,
    own_fields,
    parameter_shapes,
)
from multiberts.bert.tokenization import (
    CLS,
    MASK,
    MAX_CHARACTERS_PER_WORD,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    UNK,
)
from multiberts.bert.vocabulary import TOKENIZER, TOKENIZER_CONFIG, VOCABULARY, Vocabulary
from multiberts.runs import console, files
from multiberts.runs.errors import UserError, listed
from multiberts.runs.files import PathLike, read_json_fields, write_json_fields

WEIGHTS = "model.safetensors"
OLD_WEIGHTS = "pytorch_model.bin"
CONFIG, _EARLY_CONFIG = "config.json", "bert_config.json"

# The files that `write_files` writes.
FILES = (WEIGHTS, CONFIG, VOCABULARY, TOKENIZER, TOKENIZER_CONFIG)

# `BertConfig.hidden_act` by the value in `transformers`; None: it depends on the head, see above.
_GELUS = {
    "gelu": None,
    "gelu_python": GELUS["exact"],
    **dict.fromkeys(
        ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"),
        GELUS["tanh"],
    ),
}

# Fields of `config.json` that this module reads, with their types; `BertConfig` checks the sizes.
_KINDS = {
    "architectures": Sequence[str] | None,
    "problem_type": str | None,
    "finetuning_task": str | None,
    "id2label": Mapping[str, str] | None,
    "num_labels": int | None,
    "hidden_act": str | None,
    "hidden_size": int | None,
    "max_position_embeddings": int | None,
}

_WORDS = "bert.embeddings.word_embeddings.weight"
_BIAS = "cls.predictions.bias"
# The output layer of the masked-word head is tied to these embeddings; some files store it twice.
_TIED = {"cls.predictions.decoder.weight": _WORDS, "cls.predictions.decoder.bias": _BIAS}
# Old releases saved these position indices, which are not weights.
_COUNTERS = ("embeddings.position_ids", "embeddings.token_type_ids")

# Suffix of the name of the word embeddings, which may follow a wrapper's name.
_CURRENT_WORDS = r"(bert\.)?embeddings\.word_embeddings\.weight"
# Keys of the weights in training states of PyTorch users, Lightning and DeepSpeed.
_IN_STATES = ("model", "state_dict", "module", "model_state_dict")

# Block size for transposition: blocks that fit the cache take a quarter of the time of a whole kernel.
_TRANSPOSED_ROWS = 64


def holds_weights(directory: PathLike) -> bool:
    """Returns whether a directory has weights in this layout."""
    names = (WEIGHTS, OLD_WEIGHTS, f"{WEIGHTS}.index.json", f"{OLD_WEIGHTS}.index.json")
    return any((Path(directory) / name).is_file() for name in names)


def hugging_face_name(name: str) -> str:
    """Returns the name in `transformers` of a variable with a released name.

    Examples:
      `bert/encoder/layer_3/output/dense/kernel` is `bert.encoder.layer.3.output.dense.weight`.
    """
    layer, _, last = name.rpartition("/")
    layer = re.sub(r"layer_(\d+)", r"layer.\1", layer).replace("/", ".")
    if last.endswith("_embeddings"):
        return f"{layer}.{last}.weight"
    # In `transformers`, the heads' `output_weights` and `output_bias` are one level higher.
    return f"{layer}.{'bias' if last in ('bias', 'beta', 'output_bias') else 'weight'}"


@dataclasses.dataclass(frozen=True)
class _HeadClass:
    """Names in `transformers` for a kind of fine-tuned head."""

    architecture: str
    layer: str
    problem_type: str | None = None


_ON_TEXTS = ("BertForSequenceClassification", "classifier")
# Names by `TaskHead.kind`. Each head is one layer, `output_weights` [outputs, hidden] and `output_bias`
# [outputs] here.
_HEAD_CLASSES = {
    "classification": _HeadClass(*_ON_TEXTS, "single_label_classification"),
    "regression": _HeadClass(*_ON_TEXTS, "regression"),
    "multi_label_classification": _HeadClass(*_ON_TEXTS, "multi_label_classification"),
    "token_classification": _HeadClass("BertForTokenClassification", "classifier"),
    "question_answering": _HeadClass("BertForQuestionAnswering", "qa_outputs"),
}


def architecture_of(fine_tuned: Mapping[str, Any] | None) -> str:
    """Returns the class of `transformers` that loads a checkpoint.

    Args:
      fine_tuned: the record of a fine-tuned model; None for a pre-trained one.

    Examples:
      >>> architecture_of({"head": {"kind": "question_answering"}}), architecture_of(None)
      ('BertForQuestionAnswering', 'BertForPreTraining')
    """
    return "BertForPreTraining" if fine_tuned is None else _head_class(fine_tuned).architecture


def _head_class(fine_tuned: Mapping[str, Any]) -> _HeadClass:
    kind = fine_tuned["head"]["kind"]
    if kind not in _HEAD_CLASSES:
        raise UserError(
            f"the model's head is of kind {kind!r}, which no class of transformers has; convert it --to "
            "tf1, or convert the checkpoint that it was fine-tuned from"
        )
    return _HEAD_CLASSES[kind]


def _head_names(fine_tuned: Mapping[str, Any] | None) -> dict[str, str]:
    """Returns the names in `transformers` of a head's variables, by ours."""
    if fine_tuned is None:
        return {}
    layer = _head_class(fine_tuned).layer
    names = {"output_bias": f"{layer}.bias", "output_weights": f"{layer}.weight"}
    variables = fine_tuned["head"]["variables"]
    if variables.keys() != names.keys():
        raise UserError(
            f"the model's head has the variables {', '.join(variables)}, expected {', '.join(names)}, as "
            f"transformers.{architecture_of(fine_tuned)} has; convert it --to tf1"
        )
    return names


def write_files(
    directory: PathLike,
    parameters: Mapping[str, np.ndarray],
    config: BertConfig,
    vocabulary: Vocabulary,
    provenance: Mapping[str, Any],
) -> tuple[str, ...]:
    """Writes `FILES` into an existing directory; the same arguments give the same bytes.

    The arguments are those of `write_checkpoint`; returns the names of the files.
    """
    import tokenizers
    from safetensors import SafetensorError
    from safetensors.numpy import save_file
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

    directory, fine_tuned = Path(directory), provenance.get(FINE_TUNED)
    names = {name: hugging_face_name(name) for name in parameter_shapes(config)}
    missing = [name for name in names if name not in parameters]
    if fine_tuned is not None:
        names = {name: hugging_face for name, hugging_face in names.items() if name in parameters}
        names |= _head_names(fine_tuned)
    elif missing:
        raise UserError(
            f"the checkpoint lacks {missing[0]} ({len(missing)} variables in all), which "
            "transformers.BertForPreTraining has; `checkpoint convert` draws what is missing, as at step 0, "
            "with --initialise_missing=PRETRAIN_SEED"
        )
    tensors = {
        hugging_face: np.ascontiguousarray(_transposed(name, parameters[name]), np.float32)
        for name, hugging_face in names.items()
    }
    # `transformers` requires this mark: the orientation is PyTorch's.
    try:
        save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:  # the library's own error for a full disk
        raise OSError(str(error).rpartition("I/O error: ")[2]) from error
    exact = "gelu" if fine_tuned else "gelu_python"
    settings: dict[str, Any] = {
        **dataclasses.asdict(config),
        "architectures": [architecture_of(fine_tuned)],
        "hidden_act": exact if config.gelu == "exact" else "gelu_new",
        "layer_norm_eps": REQUIRED["layer_norm_eps"],
        "model_type": "bert",
        "pad_token_id": vocabulary.pad_id,
        "tie_word_embeddings": True,
    }
    if fine_tuned is not None:
        [outputs] = fine_tuned["head"]["variables"]["output_bias"]
        labels = fine_tuned["head"]["labels"] or [f"LABEL_{number}" for number in range(outputs)]
        settings["finetuning_task"] = fine_tuned["task"]
        settings["id2label"] = {str(number): label for number, label in enumerate(labels)}
        settings["label2id"] = {label: number for number, label in enumerate(labels)}
        if problem_type := _head_class(fine_tuned).problem_type:
            settings["problem_type"] = problem_type
    write_json_fields(directory / CONFIG, settings)
    # The library makes files with read permission for the owner only.
    shutil.copymode(directory / CONFIG, directory / WEIGHTS)
    (directory / VOCABULARY).write_bytes(vocabulary.content)

    # Write both files of the tokeniser.
    tokenizer_settings = {
        "cls_token": CLS,
        "do_lower_case": vocabulary.lower_case,
        "mask_token": MASK,
        "model_max_length": config.max_position_embeddings,
        "pad_token": PAD,
        "sep_token": SEP,
        "strip_accents": None,  # as do_lower_case
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
        "unk_token": UNK,
    }
    write_json_fields(directory / TOKENIZER_CONFIG, tokenizer_settings)
    ids = {piece: number for number, piece in enumerate(vocabulary.pieces)}
    tokenizer = tokenizers.Tokenizer(
        models.WordPiece(ids, unk_token=UNK, max_input_chars_per_word=MAX_CHARACTERS_PER_WORD)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=None,
        lowercase=vocabulary.lower_case,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(CLS, ids[CLS]), (SEP, ids[SEP])],
    )
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(name, normalized=False, special=True) for name in SPECIAL_TOKENS]
    )
    tokenizer.save(str(directory / TOKENIZER))
    return FILES


class HuggingFaceFiles:
    """A checkpoint's files in this layout; each is read on first use.

    Attributes:
      config_path: the file with the model's sizes: `config.json`, or `bert_config.json` as in 2019.
      weights: name of the file of weights.
    """

    def __init__(self, directory: Path):
        self.directory, self.config_path = directory, directory / CONFIG
        if (early := directory / _EARLY_CONFIG).is_file() and not self.config_path.is_file():
            self.config_path = early
        self.weights = [n for n in (WEIGHTS, OLD_WEIGHTS) if (directory / n).is_file()][:1]
        if not self.weights:
            raise UserError(
                f"{directory} has its weights in several parts ({WEIGHTS}.index.json); load it with "
                'transformers and save it again with save_pretrained(..., max_shard_size="20GB")'
            )

    @functools.cached_property
    def _fields(self) -> dict[str, Any]:
        return read_json_fields(self.config_path, _KINDS)

    def _kinds_of_head(self) -> list[str]:
        """Returns the possible kinds of the fine-tuned head; none for a pre-trained model."""
        architecture = (self._fields.get("architectures") or [None])[0]
        return [kind for kind, head in _HEAD_CLASSES.items() if head.architecture == architecture]

    def config(self) -> tuple[BertConfig, bool]:
        """Reads the model's sizes; refuses settings that our model does not support.

        Returns:
          The sizes, and whether the form of GELU is ambiguous, and so read as the tanh form.
        """
        path, values = self.config_path, dict(self._fields)
        if self._kinds_of_head():  # which is trained: its dropout was of its training
            values.pop("classifier_dropout", None)
        # The class in transformers ignores unknown fields, too.
        fields = own_fields(values, str(path), strict=False)
        activation = fields.get("hidden_act", "gelu")
        if activation not in _GELUS:
            raise UserError(
                f"{path}: hidden_act is {activation!r}, expected {', '.join(_GELUS)}; the BERT here "
                "has GELU only, so take another checkpoint"
            )
        form: Gelu = "exact" if self._kinds_of_head() else "tanh"
        is_open = _GELUS[activation] is None and form == "tanh"
        hidden_act = _GELUS[activation] or GELUS[form]
        return BertConfig.from_mapping({**fields, "hidden_act": hidden_act}, str(path)), is_open

    def foreign_record(self, config: BertConfig) -> dict[str, Any] | None:
        """Makes the record of a model that another program fine-tuned from its `config.json`.

        Returns:
          The record, see `bert/checkpoint/fine_tuned.py`; None for a model without a fine-tuned head.
        """
        values, kinds = self._fields, self._kinds_of_head()
        if not kinds:
            return None
        # These are default names in transformers.
        names = values.get("id2label") or {
            str(number): f"LABEL_{number}" for number in range(values.get("num_labels") or 2)
        }
        labels: list[Any] = [names.get(str(number)) for number in range(len(names))]
        if not all(isinstance(label, str) for label in labels):
            raise UserError(
                f"{self.config_path}: id2label is {names!r}, expected texts numbered from 0; correct it"
            )
        problem = values.get("problem_type")
        kind = next(
            (kind for kind in kinds if _HEAD_CLASSES[kind].problem_type == problem), kinds[0]
        )
        if kind == "classification" and len(labels) == 1:  # as in transformers
            kind = "regression"
        sizes = (config.hidden_size, config.max_position_embeddings)
        return foreign_record(kind, labels, *sizes, values.get("finetuning_task"))

    def read_weights(
        self, config: BertConfig, fine_tuned: Mapping[str, Any] | None
    ) -> tuple[dict[str, np.ndarray], None]:
        """Reads all weights, without checking that they are complete.

        Supports old names (`LayerNorm.gamma`), an encoder saved alone (no `bert.`), prefixes of wrappers
        (`module.`, `_orig_mod.`), training states, half precision, and tied output layers that are stored
        twice. Variables outside encoder and pre-training heads are left out with a note.

        Returns:
          float32 arrays by released variable name, and None, as this layout does not store the step.
        """
        path = self.directory / self.weights[0]
        ours = {hugging_face_name(name): name for name in parameter_shapes(config)}
        ours |= {hugging_face: name for name, hugging_face in _head_names(fine_tuned).items()}
        with opened(path) if path.name == WEIGHTS else _unpickled(path) as stored:
            names = [*stored.keys()]
            ends = (re.search(f"{_CURRENT_WORDS}$", name) for name in names)
            wrappers = {end.string[: end.start()] for end in ends if end}
            # All names begin with that of a module around the model, such as `module.`.
            wrapper = wrappers.pop() if len(wrappers) == 1 else ""
            if wrapper:
                console.note_once(
                    f"{path}: {wrapper!r} before the names of its weights is left out"
                )
            tensors, left_out = {}, []
            for full_name in names:
                name = _current_name(full_name.removeprefix(wrapper))
                if name.endswith(_COUNTERS):
                    continue
                if not name.startswith(("bert.", "cls.")) and name not in ours:
                    left_out.append(full_name)
                    continue
                # Read one by one: reading all first would take twice the memory, and time to clear it.
                values = _floats(path, full_name, stored)
                tensors[name] = np.ascontiguousarray(_transposed(ours.get(name, name), values))
        if left_out:
            console.note_once(f"{path}: left out are {listed(left_out)}")
        # A tied weight may be stored twice, but both copies must be equal.
        for copy, original in _TIED.items():
            if copy not in tensors:
                continue
            values = tensors.pop(copy)
            if not np.array_equal(tensors.setdefault(original, values), values, equal_nan=True):
                raise UserError(
                    f"{path}: {copy} differs from {original}; in BERT they are one, so this model cannot "
                    "be computed here"
                )
        check_layers(config, tensors, path)
        for name in sorted(tensors):
            if name not in ours:
                raise UserError(
                    f"{path} holds {name}, which no BERT of {self.config_path} has, so it computes "
                    "something else; take another checkpoint"
                )
        return {ours[name]: tensors[name] for name in sorted(tensors, key=ours.__getitem__)}, None


def _transposed(name: str, values: np.ndarray) -> np.ndarray:
    """Transposes kernels: they are [inputs, outputs] here and [outputs, inputs] there."""
    if not name.endswith("/kernel") or values.ndim != 2:
        return values
    transposed = np.empty(values.shape[::-1], values.dtype)
    for begin in range(0, len(values), _TRANSPOSED_ROWS):
        rows = slice(begin, begin + _TRANSPOSED_ROWS)
        transposed[:, rows] = values[rows].T
    return transposed


def _current_name(name: str) -> str:
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
    name = name.replace(".dense_act.", ".dense.")  # of NVIDIA's DeepLearningExamples
    # The encoder was saved without heads.
    is_of_encoder = name.startswith(("embeddings.", "encoder.", "pooler."))
    return f"bert.{name}" if is_of_encoder else name


def _floats(path: Path, name: str, stored: Any) -> np.ndarray:
    """Returns a tensor as float32; refuses types without 32 or 16 bits."""
    if path.name == WEIGHTS:
        # Imported for its registration: NumPy itself has no bfloat16.
        import ml_dtypes  # noqa: F401

        kind = stored.get_slice(name).get_dtype()
        if kind in ("F32", "F16", "BF16"):
            return np.asarray(stored.get_tensor(name), np.float32)
    else:
        kind = getattr(stored[name], "dtype", type(stored[name]).__name__)
        if str(kind).removeprefix("torch.") in ("float32", "float16", "bfloat16"):
            return np.asarray(stored[name].float())
    raise UserError(
        f"{path}: {name} has type {kind}, expected F32, F16 or BF16; save it in float32"
    )


def opened(path: Path) -> Any:
    """Opens safetensors; refuses a truncated file, by its header."""
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError) as error:
        files.refuse_bytes(path, _start_of(path), "copy it again")
        raise UserError(
            f"{path} cannot be read ({error}); it is truncated or damaged: copy it again"
        ) from error


def _start_of(path: Path) -> bytes:
    """Returns the first bytes of a file of weights that a library could not read."""
    try:
        with open(path, "rb") as file:
            return file.read(files.MOST_BYTES_NEEDED)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the path") from error


def _unpickled(path: Path) -> contextlib.nullcontext[Mapping[str, Any]]:
    """Opens a `pytorch_model.bin`, or the weights in a training state under its name."""
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"{path} can only be read with PyTorch ({error}); pip install torch, or "
            f"take a copy of the model that has {WEIGHTS}"
        ) from error
    try:
        # `weights_only`: an unpickled file could run any code.
        state = torch.load(path, map_location="cpu", weights_only=True)
    # Unpickling in PyTorch can raise any error.
    except Exception as error:
        start = _start_of(path)
        if not start.startswith((b"PK", b"\x80")):  # formats of PyTorch
            files.refuse_bytes(path, start, "copy it again")
        if match := re.search(r"Unsupported global: GLOBAL (\S+)", str(error)):
            raise UserError(
                f"{path} holds {match[1]} besides tensors, as training states and whole models do; if you "
                f'trust the file, save the weights alone: python -c "import os, sys, torch; p = sys.argv[1]; '
                "os.rename(p, p + '.whole'); s = torch.load(p + '.whole', weights_only=False); "
                "s = s.state_dict() if hasattr(s, 'state_dict') else s; "
                "torch.save({k: v for k, v in s.items() "
                f'if k in {_IN_STATES} or torch.is_tensor(v)}}, p)" {shlex.quote(str(path))}'
            ) from error
        # Keep the first sentence only: PyTorch's next one advises an unsafe way to load the file.
        reason = re.split(r"\. |\n", str(error))[0] or "it ends early"
        raise UserError(
            f"{path} cannot be read ({reason}); it is truncated or damaged: copy it again"
        ) from error
    if not isinstance(state, Mapping):
        raise UserError(
            f"{path} holds a {type(state).__name__}, expected tensors by name; save the "
            "model again with save_pretrained"
        )
    for name in _IN_STATES:
        if isinstance(state.get(name), Mapping):
            console.note_once(f"{path} is a training state; its weights are read from {name!r}")
            state = state[name]
    return contextlib.nullcontext(state)
