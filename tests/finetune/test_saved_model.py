"""A kept model as a SavedModel: what plain TensorFlow and tensorflow-text answer, without this package."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.saved_model import export_saved_model
from multiberts.bert.model.configuration import BertConfig
from multiberts.finetune.features import truncated_lengths
from multiberts.finetune.prediction import predict
from multiberts.runs.errors import UserError
from multiberts.tests.checkpoint_command import checkpoint_command
from multiberts.tests.finetune.conftest import Make
from multiberts.tests.good_files import checkpoint

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_text") is None, reason="needs the extra tensorflow"
)

USUAL_WORDS = ["mary", "told", "the", "plumber", "late", "about", "guest", "sun"]
SMALL = {"batch_size": 16, "num_epochs": 3, "compile_step": False, "learning_rate": 2e-3}
# Kinds of models that take something else than texts.
OTHER_KINDS = ("question_answering", "token_classification", "coreference")
# Prints what signatures answer for the columns on standard input.
CLIENT = """
import json, sys
import tensorflow as tf
import tensorflow_text

model = tf.saved_model.load(sys.argv[1])

def answered(signature, columns):
    answer = model.signatures[signature]
    _, inputs = answer.structured_input_signature
    assert columns.keys() == inputs.keys(), inputs
    found = answer(**{name: tf.constant(column, inputs[name].dtype) for name, column in columns.items()})
    return {name: values.numpy().tolist() for name, values in found.items()}

found = [answered(*call) for call in json.load(sys.stdin)]
assert not any(name.split(".")[0] == "multiberts" for name in sys.modules)
print(json.dumps(found, default=bytes.decode))
"""


def served(model: Path, *calls: tuple[str, dict[str, list[Any]]]) -> list[dict[str, Any]]:
    """What signatures answer in a process of its own, which has neither this checkout nor its settings."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", CLIENT, model],
        input=json.dumps(calls), capture_output=True, text=True, cwd=model,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def ours(capsys: pytest.CaptureFixture[str], model: Path, file: Path) -> list[dict[str, Any]]:
    capsys.readouterr()
    predict(model=str(model), files=[str(file)], compile_step=False)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def pair_model(fine_tune: Make, pair_data: Path) -> Path:
    run = fine_tune("pair", pair_data, sequence_length=12, keep="last")
    return run / "model"


@pytest.mark.slow
def test_pairs_and_texts_are_answered_as_predict_does(
    tmp_path: Path, pair_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "served"
    assert checkpoint_command("convert", str(pair_model), str(target), "--to", "saved_model") == 0
    assert (target / "assets" / "vocab.txt").read_bytes() == (pair_model / "vocab.txt").read_bytes()
    words = ["mary", "told", "the", "plumber", "late", "Rang,", "again.", "Ἀ\u0345Σ", "\u1b44x"]
    draw = np.random.default_rng(0)
    # Lengths on both sides of what fits, so that each text, both and neither are cut.
    pairs = [
        tuple(" ".join(draw.choice(words, draw.integers(1, 14))) for _ in range(2))
        for _ in range(80)
    ]
    first, second = ([*column] for column in zip(*pairs, strict=True))
    (tmp_path / "new.txt").write_text("".join("\t".join(pair) + "\n" for pair in pairs))
    expected = ours(capsys, pair_model, tmp_path / "new.txt")
    call = {"text": first, "text_pair": second}
    found, default = served(target, ("pairs", call), ("serving_default", call))
    assert found == default
    scores = np.array([line["scores"] for line in expected])
    np.testing.assert_allclose(found["logits"], scores, rtol=0, atol=1e-5)
    assert found["prediction"] == [line["prediction"] for line in expected]
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["probabilities"], shares, atol=1e-5)


@pytest.mark.slow
def test_a_regression_answers_numbers(
    tmp_path: Path, fine_tune: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{word} is late\t{number / 4}" for number, word in enumerate(("mary", "it", "she"))]
    for name, times in (("train", 6), ("dev", 2)):
        text = "\n".join(["sentence\tlabel", *rows * times]) + "\n"
        (tmp_path / f"{name}.tsv").write_text(text)
    options = {"kind": "regression", "text_columns": ["sentence"]}
    fine_tune("rating", tmp_path, options=options, sequence_length=16, keep="last")
    path = tmp_path / "run" / "model" / "checkpoint.json"
    content = json.loads(path.read_text())
    # As of a model of another program, which does not record it: both signatures are there.
    content["finetuned"]["head"]["num_texts"] = None
    path.write_text(json.dumps(content))
    model = export_saved_model(tmp_path / "run" / "model", tmp_path / "served")
    texts = ["mary is late", "it is late", "she told them", ""]
    (tmp_path / "new.txt").write_text("\n".join(texts[:3]) + "\n")
    expected = ours(capsys, tmp_path / "run" / "model", tmp_path / "new.txt")
    alone, pair = {"text": texts}, {"text": texts, "text_pair": texts}
    found, default, pairs = served(
        model, ("texts", alone), ("serving_default", alone), ("pairs", pair)
    )
    assert found == default != pairs
    np.testing.assert_allclose(
        found["prediction"][:3], [line["prediction"] for line in expected], rtol=0, atol=1e-5
    )
    assert np.shape(found["logits"]) == (4, 1) and "probabilities" not in found


@pytest.mark.slow
def test_several_labels_are_answered_as_predict_does(
    tmp_path: Path, fine_tune: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(USUAL_WORDS, 3)) for _ in range(64)]
    rows = [
        {"text": text, "marks": [word for word in ("mary", "sun") if word in text.split()]}
        for text in texts
    ]
    table(tmp_path / "train.jsonl", rows[:48])
    table(tmp_path / "dev.jsonl", rows[48:])
    options = {"kind": "multi_label_classification", "text_columns": ["text"], "label_column": "marks",
               "class_weights": "balanced"}  # fmt: skip
    fine_tune("marks", tmp_path, options=options, sequence_length=12, keep="last", num_epochs=12)
    model = export_saved_model(tmp_path / "run" / "model", tmp_path / "served")
    expected = ours(capsys, tmp_path / "run" / "model", tmp_path / "dev.jsonl")
    [found] = served(model, ("serving_default", {"text": texts[48:]}))
    assert found.keys() == {"logits", "probabilities", "classes"}
    assert found["classes"] == [["mary", "sun"]] * len(expected)
    np.testing.assert_allclose(
        found["logits"], [line["scores"] for line in expected], rtol=1e-5, atol=1e-5
    )
    names = [
        [name for name, share in zip(("mary", "sun"), shares, strict=True) if share > 0.5]
        for shares in found["probabilities"]
    ]
    assert names == [line["prediction"] for line in expected]
    assert len(set(map(tuple, names))) > 2
    np.testing.assert_allclose(
        [[line["probabilities"][name] for name in ("mary", "sun")] for line in expected],
        found["probabilities"], atol=1e-6,
    )  # fmt: skip


def test_a_model_with_one_type_of_tokens_serves_no_pairs() -> None:
    from multiberts.bert.text_graph import text_signatures

    def names(number: int | None) -> list[str]:
        head = {"kind": "classification", "labels": None, "num_texts": number}
        config = BertConfig(vocab_size=9, type_vocab_size=1)
        return [*text_signatures({}, config, None, ["[CLS]", "[SEP]"], length=8, head=head)]

    assert names(None) == names(1) == ["texts"]
    with pytest.raises(UserError, match="a model of pairs has two segments .* type_vocab_size 1"):
        names(2)


def test_pairs_are_cut_as_training_cuts_them() -> None:
    import tensorflow as tf

    from multiberts.bert.text_graph import shortened

    lengths = [(first, second) for first in range(20) for second in range(20)]
    for most in (1, 8, 13):
        segments = [tf.ragged.range([pair[side] for pair in lengths]) for side in range(2)]
        kept = [each.row_lengths().numpy().tolist() for each in shortened(segments, most)]
        expected = [truncated_lengths(first, second, most) for first, second in lengths]
        assert list(zip(*kept, strict=True)) == expected


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("pre-trained", "multi_label_classification; fine-tune it first, with --keep=last"),
        *((kind, f"is a model for {kind}, but a SavedModel is of a model of texts or pairs of texts, for one "
           "of classification, regression, multi_label_classification; use `multiberts predict`")
          for kind in ("own", *OTHER_KINDS)),
        ("there", "exists already; choose another TARGET"),
        ("no library", "needs TensorFlow and tensorflow-text, which tokenises in the graph ("),
        ("jax", "Keras computes with jax; set MULTIBERTS_ENGINE=tensorflow"),
        ("flag", "--to saved_model does not take --corpus"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_gets_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    checkpoint(tmp_path / "model", task=None if change == "pre-trained" else "pair")
    if change in ("own", *OTHER_KINDS):
        record = tmp_path / "model" / "checkpoint.json"
        content = json.loads(record.read_text())
        content["finetuned"]["head"]["kind"] = change
        record.write_text(json.dumps(content))
    target = tmp_path / "served"
    arguments = ["convert", str(tmp_path / "model"), str(target), "--to", "saved_model"]
    if change == "there":
        target.mkdir()
    if change == "no library":
        monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    if change == "jax":
        monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    if change == "flag":
        arguments.append("--corpus=nowhere.json")
    before = sorted(tmp_path.rglob("*"))
    assert checkpoint_command(*arguments) == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path
