"""Models of every kind that transformers saves, read here, answer as transformers does.

The random weights are large (initializer_range .5): the other form of GELU moves answers by 1e-4 or more.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import (
    HUGGING_FACE,
    TENSORFLOW,
    Checkpoint,
    read_checkpoint,
)
from multiberts.bert.checkpoint.conversion import convert_checkpoint
from multiberts.bert.model.array_ops import numpy_arrays
from multiberts.bert.model.configuration import Gelu
from multiberts.bert.model.encoder import encode, pool
from multiberts.bert.model.heads import (
    classification_logits,
    next_sentence_logits,
    span_logits,
    word_logits,
)
from multiberts.tests.checkpoint_command import checkpoint_command

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop"]
LENGTHS = (12, 7, 3)
TOLERANCE = 4e-5  # words' logits reach 10

Answers = dict[str, np.ndarray]


@dataclass(frozen=True)
class Saved:
    """A model as somebody saves it.

    Attributes:
      settings: of its configuration.
      kind: of the head that is read; None: none is.
      weights: the type of the saved numbers.
      file: that holds them; `.bin`: as transformers saved them up to version 4.
      lower_case: of its tokeniser.
      gelu: given to `checkpoint convert`, where `config.json` alone is read as the other form.
    """

    architecture: str
    settings: dict[str, Any] = field(default_factory=dict)
    kind: str | None = None
    weights: str = "float32"
    file: str = "model.safetensors"
    lower_case: bool = True
    gelu: Gelu | None = None


TEXTS, TOKENS = "BertForSequenceClassification", "BertForTokenClassification"
ANSWERS = "BertForQuestionAnswering"
WORDS, SENTENCES = "BertForMaskedLM", "BertForNextSentencePrediction"
BOTH, BIN = "BertForPreTraining", "pytorch_model.bin"
SETS, TAGS, SPANS = "multi_label_classification", "token_classification", "question_answering"
SEVERAL = {"num_labels": 3, "problem_type": SETS}

MODELS = {
    "classes": Saved(TEXTS, {"num_labels": 3}, "classification"),
    **{f"classes, {name}": Saved(TEXTS, {"hidden_act": name}, "classification")
       for name in ("gelu_new", "gelu_accurate", "gelu_python")},
    "classes, float16": Saved(TEXTS, {"num_labels": 3}, "classification", "float16"),
    "classes, .bin, cased": Saved(TEXTS, {"num_labels": 2}, "classification", file=BIN, lower_case=False),
    "classes, one type of tokens": Saved(TEXTS, {"type_vocab_size": 1}, "classification"),
    "classes, an odd vocabulary": Saved(TEXTS, {"vocab_size": 17}, "classification"),
    "a number": Saved(TEXTS, {"num_labels": 1}, "regression"),
    "a number, bfloat16 .bin": Saved(TEXTS, {"num_labels": 1}, "regression", "bfloat16", BIN),
    "sets of labels": Saved(TEXTS, SEVERAL, SETS),
    "sets of labels, gelu_fast": Saved(TEXTS, {**SEVERAL, "hidden_act": "gelu_fast"}, SETS),
    "tags": Saved(TOKENS, {"num_labels": 5}, TAGS),
    "tags, one layer, cased":
        Saved(TOKENS, {"num_labels": 4, "num_hidden_layers": 1}, TAGS, lower_case=False),
    "answers": Saved(ANSWERS, {}, SPANS),
    "answers, four layers, bfloat16": Saved(ANSWERS, {"num_hidden_layers": 4}, SPANS, "bfloat16"),
    "words": Saved(WORDS, {"hidden_act": "gelu_pytorch_tanh"}),
    "words, trained by transformers": Saved(WORDS, gelu="exact"),
    "words and sentences": Saved(BOTH, {"hidden_act": "gelu_python_tanh"}),
    "words and sentences, gelu_python": Saved(BOTH, {"hidden_act": "gelu_python"}),
    "words and sentences, .bin, trained by transformers": Saved(BOTH, file=BIN, gelu="exact"),
    "sentences": Saved(SENTENCES, {"hidden_act": "gelu_new"}),
    "the encoder": Saved("BertModel", {"hidden_act": "gelu_new"}),
    "the encoder, float16, trained by transformers": Saved("BertModel", weights="float16", gelu="exact"),
}  # fmt: skip


def _save(saved: Saved, directory: Path) -> Path:
    torch = pytest.importorskip("torch", reason="the oracle of this test is PyTorch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {
        "vocab_size": len(PIECES), "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "max_position_embeddings": 16, "initializer_range": 0.5,
    }  # fmt: skip
    config = transformers.BertConfig(**{**sizes, **saved.settings})
    model = getattr(transformers, saved.architecture)(config).to(getattr(torch, saved.weights))
    model.save_pretrained(directory)
    if saved.file != "model.safetensors":
        (directory / "model.safetensors").unlink()
        torch.save(model.state_dict(), directory / saved.file)
    vocabulary = {piece: number for number, piece in enumerate(PIECES[: config.vocab_size])}
    tokenizer = transformers.BertTokenizer(vocabulary, do_lower_case=saved.lower_case)
    tokenizer.save_pretrained(directory)
    return directory


def _inputs(pieces: int, types: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mask = (np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]).astype(np.int32)
    ids = np.random.default_rng(0).integers(5, pieces, mask.shape).astype(np.int32) * mask
    segments = (np.arange(max(LENGTHS)) > 1).astype(np.int32) * mask * (types - 1)
    return ids, mask, segments


def _theirs(architecture: str, directory: Path, **settings: Any) -> Answers:
    """Returns the states of the last layer and the logits, computed in float32."""
    import torch
    import transformers

    settings |= {"dtype": torch.float32}
    loaded = getattr(transformers, architecture).from_pretrained(directory, **settings)
    sizes = loaded.config.vocab_size, loaded.config.type_vocab_size
    ids, mask, segments = (torch.from_numpy(values).long() for values in _inputs(*sizes))
    with torch.no_grad():
        found = loaded.eval()(
            ids, attention_mask=mask, token_type_ids=segments, output_hidden_states=True
        )
    answers = {name: values.numpy() for name, values in found.items() if name != "hidden_states"}
    answers["last_hidden_state"] = found.hidden_states[-1].numpy()
    names = {WORDS: "prediction_logits", SENTENCES: "seq_relationship_logits"}
    if architecture in names:
        answers[names[architecture]] = answers.pop("logits")
    return answers


def _ours(checkpoint: Checkpoint, kind: str | None) -> Answers:
    """Returns what transformers does by its names."""
    config, parameters = checkpoint.config, checkpoint.variables
    ids, mask, segments = _inputs(config.vocab_size, config.type_vocab_size)
    states = encode(parameters, config, ids, mask, segments)
    answers = {"last_hidden_state": states}
    if "bert/pooler/dense/kernel" in parameters:
        pooled = answers["pooler_output"] = pool(parameters, states)
    if kind == "question_answering":
        answers["start_logits"], answers["end_logits"] = span_logits(parameters, states, mask)
    elif kind is not None:
        inputs = states if kind == "token_classification" else pooled
        answers["logits"] = classification_logits(parameters, inputs)
    if "cls/seq_relationship/output_bias" in parameters:
        answers["seq_relationship_logits"] = next_sentence_logits(parameters, pooled)
    if "cls/predictions/output_bias" in parameters:
        answers["prediction_logits"] = word_logits(parameters, config, states)
    return {name: np.asarray(values) for name, values in answers.items()}


def _difference(ours: Answers, theirs: Answers) -> float:
    """Returns the largest difference of a number that transformers gives too, but for padding's."""
    is_real = _inputs(len(PIECES), 1)[1].astype(bool)
    differences = [
        np.abs(ours[name] - values)[is_real if values.shape[1:2] == (max(LENGTHS),) else ...].max()
        for name, values in theirs.items()
    ]
    return float(max(differences))


def _read(saved: Saved, directory: Path) -> Checkpoint:
    """Reads what transformers saved; with the form of GELU, converted, as a command does it."""
    if saved.gelu is None:
        return read_checkpoint(directory)
    target, _ = convert_checkpoint(directory, directory / "converted", TENSORFLOW, gelu=saved.gelu)
    return read_checkpoint(target)


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_transformers(
    tmp_path: Path, name: str, record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    saved = MODELS[name]
    directory = _save(saved, tmp_path / "theirs")
    theirs = _theirs(saved.architecture, directory)
    capsys.readouterr()
    checkpoint = _read(saved, directory)
    assert capsys.readouterr().err == ""  # nothing is left open
    assert checkpoint.vocabulary.lower_case is saved.lower_case
    head = checkpoint.provenance.get("finetuned", {}).get("head", {})
    assert head.get("kind") == saved.kind
    other_form = {"gelu": "gelu_exact", "gelu_exact": "gelu"}[checkpoint.config.hidden_act]
    other = dataclasses.replace(checkpoint.config, hidden_act=other_form)
    with numpy_arrays():
        difference = _difference(_ours(checkpoint, saved.kind), theirs)
        of_other = dataclasses.replace(checkpoint, config=other)
        assert _difference(_ours(of_other, saved.kind), theirs) > 20 * TOLERANCE
    record_property("difference", f"{difference:.1e}")
    assert difference < TOLERANCE
    assert _difference(_ours(checkpoint, saved.kind), theirs) < TOLERANCE  # by the engine


@pytest.mark.parametrize("layout", [TENSORFLOW, HUGGING_FACE])
@pytest.mark.parametrize(
    ("name", "word"),
    [("classes", "gelu"), ("classes, gelu_accurate", "gelu_new"),
     ("words and sentences, gelu_python", "gelu_python")],
)  # fmt: skip
def test_a_converted_model_has_the_same_activation(
    tmp_path: Path, name: str, word: str, layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = MODELS[name]
    directory = _save(saved, tmp_path / "theirs")
    theirs = _theirs(saved.architecture, directory)
    capsys.readouterr()
    target, _ = convert_checkpoint(directory, tmp_path / "converted", layout)
    if layout == HUGGING_FACE:
        assert json.loads((target / "config.json").read_text())["hidden_act"] == word
        assert _difference(_theirs(saved.architecture, target), theirs) < TOLERANCE
        (target / "checkpoint.json").unlink()  # as people who copy what transformers reads
    capsys.readouterr()
    checkpoint = read_checkpoint(target)
    assert capsys.readouterr().err == ""
    with numpy_arrays():
        assert _difference(_ours(checkpoint, saved.kind), theirs) < TOLERANCE


@pytest.mark.parametrize("architecture", ["BertForPreTraining", "BertModel"])
def test_the_command_in_the_note_about_gelu_reads_a_model_as_transformers_does(
    tmp_path: Path, architecture: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until then a model without a fine-tuned head is taken for one of Google's."""
    directory = _save(Saved(architecture), tmp_path / "theirs")
    theirs = _theirs(architecture, directory)
    tanh = _theirs(architecture, directory, hidden_act="gelu_new")
    capsys.readouterr()
    read = read_checkpoint(directory, need_vocabulary=False)
    (note,) = capsys.readouterr().err.splitlines()
    assert "config.json says hidden_act 'gelu'" in note and "read as the tanh form" in note
    (typed,) = re.findall("`multiberts checkpoint (.*?)`", note)
    target = tmp_path / "exact"
    assert checkpoint_command(*typed.replace("TARGET", str(target)).split()) == 0
    with numpy_arrays():
        assert _difference(_ours(read, None), tanh) < TOLERANCE
        assert _difference(_ours(read_checkpoint(target), None), theirs) < TOLERANCE
    assert "note" not in capsys.readouterr().err
    assert checkpoint_command("inspect", target) == 0
    assert "activation     GELU, exact form" in capsys.readouterr().out
