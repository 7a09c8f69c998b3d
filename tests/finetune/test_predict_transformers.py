"""`multiberts predict` with models that transformers saved, against transformers' own answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.finetune.prediction import predict
from multiberts.runs.errors import UserError
from multiberts.tests.finetune.few_rows import check_few_rows

WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "wrote", "?", "ada", "did", "in", "1843",
]  # fmt: skip
QUESTION, CONTEXT = ["who", "wrote", "?"], ["ada", "did", "in", "1843"]
TAGS = {0: "O", 1: "B-PER", 2: "I-PER"}
TAG_NUMBERS = {name: number for number, name in TAGS.items()}
Answer = Callable[..., tuple[Any, dict[str, Any]]]


@pytest.fixture
def saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Answer:
    """Returns a model, without the pooler where transformers leaves it out, and our answer."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def saved(architecture: str, file: Path, **settings: Any) -> tuple[Any, dict[str, Any]]:
        torch.manual_seed(1)
        config = transformers.BertConfig(
            vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=32, max_position_embeddings=128, initializer_range=0.5, **settings,
        )  # fmt: skip
        model = getattr(transformers, architecture)(config).eval()
        model.save_pretrained(tmp_path / "model")
        (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n")
        tokenizer = transformers.BertTokenizer(vocab=str(tmp_path / "words.txt"))
        tokenizer.save_pretrained(tmp_path / "model")
        capsys.readouterr()
        predict(model=str(tmp_path / "model"), files=[str(file)], compile_step=False)
        return model, json.loads(capsys.readouterr().out)

    return saved


def theirs(model: Any, *parts: list[str]) -> Any:
    """Returns what transformers computes of one or two texts."""
    import torch

    tokens, segments = [WORDS.index("[CLS]")], [0]
    for number, part in enumerate(parts):
        tokens += [*map(WORDS.index, part), WORDS.index("[SEP]")]
        segments += [number] * (len(part) + 1)
    with torch.no_grad():
        return model(torch.tensor([tokens]), token_type_ids=torch.tensor([segments]))


def test_questions(tmp_path: Path, saved: Answer) -> None:
    paragraph = {
        "context": " ".join(CONTEXT),
        "qas": [{"id": "q", "question": " ".join(QUESTION), "answers": []}],
    }
    file = tmp_path / "new.json"
    file.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    model, ours = saved("BertForQuestionAnswering", file)
    found = theirs(model, QUESTION, CONTEXT)
    first = len(QUESTION) + 2
    starts, ends = (
        logits[0, first : first + len(CONTEXT)].numpy()
        for logits in (found.start_logits, found.end_logits)
    )
    spans = {
        (start, end): starts[start] + ends[end]
        for start in range(len(CONTEXT))
        for end in range(start, len(CONTEXT))
    }
    start, end = max(spans, key=lambda span: spans[span])
    assert ours["prediction"] == " ".join(CONTEXT[start : end + 1])
    np.testing.assert_allclose(
        [ours["start_logit"], ours["end_logit"]], [starts[start], ends[end]], atol=1e-5
    )


def test_tags(tmp_path: Path, saved: Answer) -> None:
    file = tmp_path / "new.jsonl"
    file.write_text(json.dumps({"tokens": CONTEXT}) + "\n")
    model, ours = saved("BertForTokenClassification", file, id2label=TAGS, label2id=TAG_NUMBERS)
    tags = theirs(model, CONTEXT).logits[0, 1:-1].argmax(-1).tolist()
    assert ours["prediction"] == [TAGS[tag] for tag in tags]


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        ("BertForSequenceClassification", {"num_labels": 3}),
        ("BertForSequenceClassification", {"num_labels": 1}),
        ("BertForSequenceClassification", {"num_labels": 3, "problem_type": "multi_label_classification"}),
        ("BertForTokenClassification", {"id2label": TAGS, "label2id": TAG_NUMBERS}),
        ("BertForQuestionAnswering", {}),
    ],
)  # fmt: skip
def test_few_rows_are_answered_without_tensorflow(
    tmp_path: Path, saved: Answer, architecture: str, settings: dict[str, Any]
) -> None:
    """Every kind of head, of rows of several lengths."""
    file = tmp_path / "new.jsonl"
    words = [CONTEXT[: 1 + n % 4] * (1 + n) for n in range(10)]
    by_architecture: dict[str, list[dict[str, Any]]] = {
        "BertForSequenceClassification": [{"text": " ".join(row)} for row in words],
        "BertForTokenClassification": [{"tokens": row} for row in words],
        "BertForQuestionAnswering": [
            {"id": str(n), "question": " ".join(QUESTION), "context": " ".join(CONTEXT * (1 + n))}
            for n in range(10)
        ],
    }
    rows = by_architecture[architecture]
    file.write_text(json.dumps(rows[0]) + "\n")
    saved(architecture, file, **settings)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    check_few_rows(tmp_path / "model", file)


def test_vectors_label_a_model_of_several_labels(
    tmp_path: Path, saved: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Answers are those of transformers, labels those of the vectors."""
    draws = np.random.default_rng(0)
    texts = [draws.choice(WORDS[5:], 5).tolist() for _ in range(24)]
    labels = draws.integers(0, 2, (24, 3))
    rows = [
        {"text": " ".join(text), "label": row.tolist()}
        for text, row in zip(texts, labels, strict=True)
    ]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "one.txt").write_text("ada\n")
    settings = {"num_labels": 3, "problem_type": "multi_label_classification"}
    model, _ = saved("BertForSequenceClassification", tmp_path / "one.txt", **settings)
    answers = np.array([theirs(model, text).logits[0].numpy() > 0 for text in texts])
    assert 0.2 < answers.mean() < 0.8
    predict(model=str(tmp_path / "model"), files=[str(tmp_path / "new.jsonl")], compile_step=False)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line, answer, label in zip(lines, answers, labels, strict=True):
        assert line["prediction"] == [f"LABEL_{place}" for place in np.flatnonzero(answer)]
        assert line["label"] == [f"LABEL_{place}" for place in np.flatnonzero(label)]


def test_pairs_need_two_types_of_tokens(tmp_path: Path, saved: Answer) -> None:
    file = tmp_path / "new.tsv"
    file.write_text("text1\ttext2\nwho wrote\tada did\n")
    with pytest.raises(
        UserError, match="two segments in a sequence, but the model has type_vocab_size 1"
    ):
        saved("BertForSequenceClassification", file, num_labels=3, type_vocab_size=1)
    file.write_text("text\nwho wrote\n")
    model, answer = saved("BertForSequenceClassification", file, num_labels=3, type_vocab_size=1)
    expected = theirs(model, ["who", "wrote"]).logits[0].numpy()
    np.testing.assert_allclose(answer["scores"], expected, atol=2e-5)


def test_a_single_output_is_a_regression(tmp_path: Path, saved: Answer) -> None:
    file = tmp_path / "new.txt"
    file.write_text(" ".join(CONTEXT) + "\n")
    model, ours = saved("BertForSequenceClassification", file, num_labels=1)
    assert ours["prediction"] == pytest.approx(theirs(model, CONTEXT).logits.item(), abs=1e-5)


def test_predictions_of_a_strangers_model_become_a_run(tmp_path: Path, saved: Answer) -> None:
    file = tmp_path / "new.txt"
    file.write_text("ada wrote ?\n")
    saved("BertForSequenceClassification", file, num_labels=2)
    transformers = pytest.importorskip("transformers")
    cased = transformers.BertTokenizer(vocab=str(tmp_path / "words.txt"), do_lower_case=False)
    cased.save_pretrained(tmp_path / "model")
    run = tmp_path / "run"
    predict(model=str(tmp_path / "model"), files=[str(file)], run_dir=str(run), compile_step=False)
    record = json.loads((run / "run.json").read_text())
    assert record["do_lower_case"] is False
    assert list(record["evaluation_sets"]) == ["new"]
