"""Fine-tuned models in both layouts, with `transformers` as the other program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint, write_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.vocabulary import Vocabulary
from multiberts.runs.errors import UserError
from multiberts.tests.checkpoint_command import checkpoint_command as command

CONFIG = BertConfig(
    vocab_size=12, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=16, initializer_range=0.2,
)  # fmt: skip
KINDS = {
    "classification": ("BertForSequenceClassification", ["no", "yes", "perhaps"], 3),
    "regression": ("BertForSequenceClassification", None, 1),
    "multi_label_classification": ("BertForSequenceClassification", ["a", "b"], 2),
    "token_classification": ("BertForTokenClassification", ["O", "B-PER", "I-PER"], 3),
    "question_answering": ("BertForQuestionAnswering", None, 2),
}


def _encoder() -> dict[str, np.ndarray]:
    initial = initial_parameters(CONFIG, 3).items()
    return {name: values for name, values in initial if name.startswith("bert/")}


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Writes a model with a head of a kind; all its numbers are drawn."""
    vocabulary = tmp_path / "given_vocab.txt"
    pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] a good cake she is here ##s"
    vocabulary.write_text("\n".join(pieces.split()) + "\n")

    def make(kind: str, odd: bool = False) -> Path:
        _, labels, outputs = KINDS.get(kind, ("", None, 2))
        draw = np.random.default_rng(1)
        parameters = _encoder()
        head = {
            "output_weights": draw.normal(size=(outputs, 16)).astype(np.float32),
            "output_bias": draw.normal(size=outputs).astype(np.float32),
        }
        if odd:  # every kind of finite float32
            for name, values in head.items():
                bits = draw.integers(0, 2**32, values.shape, np.uint32).view(np.float32)
                head[name] = np.where(np.isfinite(bits), bits, np.float32(-0.0))
        shapes = {name: list(values.shape) for name, values in sorted(head.items())}
        record = {
            "task": "mine", "sequence_length": 16, "do_lower_case": True,
            "head": {"kind": kind, "labels": labels, "num_texts": None, "variables": shapes},
            "arguments": {"labels": labels, "options": {}, "task_modules": []},
            "learning_rate": 5e-5, "finetune_seed": 4, "epochs": 3,
        }  # fmt: skip
        known = {"procedure": "base+mine", "pretrain_seed": 3, "data_seed": 1, "step": 7}
        path, opened = tmp_path / kind, Vocabulary.open(vocabulary)
        provenance = {**known, "finetuned": record}
        write_checkpoint(path, {**parameters, **head}, CONFIG, opened, provenance)
        return path

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip_gives_the_same_bytes(
    tmp_path: Path, make: Callable[..., Path], kind: str
) -> None:
    first, there, back = make(kind, odd=True), tmp_path / "there", tmp_path / "back"
    assert command("convert", str(first), str(there), "--to", "hugging_face") == 0
    name, labels, _ = KINDS[kind]
    config = json.loads((there / "config.json").read_text())
    assert config["architectures"] == [name]
    assert labels is None or [*config["id2label"].values()] == labels
    assert command("compare", str(first), str(there), "--strict", "true") == 0
    assert command("convert", str(there), str(back), "--to", "tf1") == 0
    for file in first.iterdir():
        assert file.read_bytes() == (back / file.name).read_bytes(), file.name
    card = (there / "README.md").read_text()
    assert f"{name}.from_pretrained" in card
    assert f"on mine, 3 epochs: {kind}" in card
    # Called again it finds the same model; another head is another model.
    assert command("convert", str(first), str(there), "--to", "hugging_face") == 0


def test_a_head_that_transformers_does_not_have_is_refused(
    tmp_path: Path, make: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["convert", str(make("coreference")), str(tmp_path / "new"), "--to"]
    assert command(*arguments, "hugging_face") == 2
    assert "kind 'coreference', which no class of transformers has" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    assert command(*arguments, "tf1") == 0


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda record: record.pop("task"), "finetuned has task nothing, expected"),
        (lambda record: record.update(sequence_length="long"), "finetuned has sequence_length 'long'"),
        (lambda record: record["head"].update(kind=3), "finetuned has kind 3"),
        (lambda record: record["head"].pop("num_texts"), "finetuned has num_texts nothing, expected"),
        (lambda record: record["head"]["variables"].update(output_bias=[9]),
         "a head of classification with 3 labels has 3 outputs, but its variables have 9"),
        (lambda record: record["head"]["variables"].update(output_weights=[9, 16]),
         r"output_weights of the fine-tuned head has shape \(3, 16\), but its record says \(9, 16\)"),
        (lambda record: record.update(do_lower_case=False), "was fine-tuned with do_lower_case False, but"),
        (lambda record: record.update(sequence_length=4096), "sequence_length 4096, expected 1 to "),
        (lambda record: record["head"].update(kind="regression", labels=None), "has 1 outputs, but"),
        (lambda record: record["arguments"].update(labels=["good", "bad", "fine"]),
         "the head has the labels .* and the arguments of its training .*, expected the same"),
        (lambda record: record["head"]["variables"].update(more=[9]),
         "more of the fine-tuned head is missing"),
    ],
)  # fmt: skip
def test_a_record_that_does_not_fit_is_refused(
    make: Callable[..., Path], change: Callable[[dict], None], line: str
) -> None:
    path = make("classification") / "checkpoint.json"
    content = json.loads(path.read_text())
    change(content["finetuned"])
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=line):
        read_checkpoint(path.parent)


def _by_google(folder: Path, variables: dict[str, Any], slots: tuple[str, ...]) -> dict[str, Any]:
    """Writes a model with TensorFlow's Saver, as run_classifier and run_squad do."""
    import tensorflow as tf

    draw = np.random.default_rng(2)
    values = _encoder()
    values |= {name: draw.normal(size=shape).astype("f") for name, shape in variables.items()}
    v1, graph = tf.compat.v1, tf.Graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        saved = [v1.get_variable(name, initializer=array) for name, array in values.items()]
        saved += [
            v1.get_variable(f"{name}/{slot}", initializer=np.zeros_like(array))
            for name, array in values.items()
            for slot in slots
        ]
        saved.append(v1.get_variable("global_step", initializer=np.int64(343)))
        session.run(v1.global_variables_initializer())
        v1.train.Saver(saved).save(session, str(folder / "model.ckpt-343"))
    (folder / "bert_config.json").write_text(CONFIG.to_json())
    (folder / "vocab.txt").write_text((folder / "given_vocab.txt").read_text())
    return values


@pytest.mark.parametrize(
    ("scope", "architecture", "head", "outputs", "slots"),
    [
        ("", "BertForSequenceClassification", "classifier", 3, ("adam_m", "adam_v")),
        ("", "BertForSequenceClassification", "classifier", 1, ()),
        ("cls/squad/", "BertForQuestionAnswering", "qa_outputs", 2, ("lamb_m", "lamb_v")),
    ],
)
def test_a_head_that_googles_scripts_trained_is_read(
    make: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    scope: str,
    architecture: str,
    head: str,
    outputs: int,
    slots: tuple[str, ...],
) -> None:
    """Alone has fine-tuned checkpoints with the names that Google's own scripts give."""
    transformers = pytest.importorskip("transformers")
    shapes = {f"{scope}output_weights": (outputs, 16), f"{scope}output_bias": (outputs,)}
    values = _by_google(tmp_path, shapes, slots)
    command("convert", tmp_path, tmp_path / "converted", "--to", "hugging_face")
    said = capsys.readouterr().err
    assert f"model.ckpt-343.index has no record of its {scope}output_weights" in said
    assert ("classification, LABEL_0, LABEL_1, LABEL_2" in said) == (outputs == 3)
    number = len(slots) * len(values)
    assert (f"left out are {number} variables of its optimiser" in said) == bool(slots)
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path / "converted")
    layer = getattr(theirs, head)
    np.testing.assert_array_equal(layer.weight.detach(), values[f"{scope}output_weights"])
    np.testing.assert_array_equal(layer.bias.detach(), values[f"{scope}output_bias"])
    read = read_checkpoint(tmp_path)
    assert read.parameters.keys() == _encoder().keys()
    assert read.head.keys() == {name.removeprefix(scope) for name in shapes}
    assert read.provenance["step"] is None  # 343 are not of pre-training


def test_what_is_left_out_of_a_checkpoint_is_said(
    make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = {"output_weights": (3, 16), "output_bias": (3,), "crf_loss/transitions": (3, 3)}
    _by_google(
        tmp_path, others | {f"layer_{number}/kernel": (2,) for number in range(50)}, ("Adam_1",)
    )
    assert not read_checkpoint(tmp_path).head
    said = capsys.readouterr().err
    assert "left out are crf_loss/transitions, layer_0/kernel, layer_1/kernel, " in said
    assert "layer_17/kernel, 42 more, " in said
    assert "variables of its optimiser" in said
