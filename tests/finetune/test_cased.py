"""Cased models from transformers: read, asked, fine-tuned, exported and served, against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.finetune.finetuning import finetune
from multiberts.finetune.predictor import Predictor
from multiberts.tests.checkpoint_command import checkpoint_command

pytestmark = pytest.mark.slow

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
PIECES = [
    *SPECIAL_TOKENS, *LETTERS, *("##" + letter for letter in LETTERS), *".,'",
    *("The", "the", "Zürich", "é", "É", "##é", "\u4e2d", "\u6587", "NASA", "us", "US"),
]  # fmt: skip
TEXTS = [
    "The US asked us.", "the us asked US.", "Zürich, Zurich, zürich.", "\u4e2d\u6587 NASA nasa", "Élan élan",
    "THE the The", "U.S.A. 'NASA'", "e\u0301 E\u0301 é",
]  # fmt: skip


def logits_of(model: Any, tokenizer: Any, texts: list[str]) -> np.ndarray:
    import torch

    with torch.no_grad():
        rows = [model(**tokenizer(text, return_tensors="pt")).logits[0] for text in texts]
    return torch.stack(rows).numpy()


def scores(model: Path, texts: list[str]) -> np.ndarray:
    found = Predictor(str(model), compile_step=False)(texts)
    return np.array([line["scores"] for line in found])


def test_a_cased_model_is_asked_fine_tuned_exported_and_served(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(PIECES), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    tokenizer = transformers.BertTokenizerFast(
        vocab={piece: number for number, piece in enumerate(PIECES)}, do_lower_case=False
    )
    tokenizer.save_pretrained(tmp_path / "theirs")
    expected = logits_of(model, tokenizer, TEXTS)
    np.testing.assert_allclose(scores(tmp_path / "theirs", TEXTS), expected, atol=1e-5)
    # Capitals count: the two first texts differ in nothing else.
    assert not np.allclose(expected[0], expected[1], atol=1e-2)

    rows = [{"text": text, "label": "ab"[number % 2]} for number, text in enumerate(TEXTS * 4)]
    for split, mark in (("train", ""), ("dev", " .")):
        lines = (json.dumps({**row, "text": row["text"] + mark}) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text("".join(lines))
    run = tmp_path / "run"
    finetune(
        run_dir=str(run), checkpoint=str(tmp_path / "theirs"), task="mine", labels=["a", "b"],
        data_dir=str(tmp_path), options={"text_columns": ["text"]}, sequence_length=32, batch_size=8,
        num_epochs=1, keep="last", compile_step=False,
    )  # fmt: skip
    record = json.loads((run / "model" / "checkpoint.json").read_text())["finetuned"]
    assert record["do_lower_case"] is False
    assert json.loads((run / "run.json").read_text())["do_lower_case"] is False
    ours = scores(run / "model", TEXTS)
    assert checkpoint_command(
        "convert", str(run / "model"), str(tmp_path / "exported"), "--to", "hugging_face"
    ) == 0  # fmt: skip
    exported = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "exported")
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    np.testing.assert_allclose(logits_of(exported.eval(), read, TEXTS), ours, atol=1e-5)
    np.testing.assert_allclose(scores(tmp_path / "exported", TEXTS), ours, atol=1e-5)

    pytest.importorskip("tensorflow_text", reason="needs the extra tensorflow")
    import tensorflow as tf

    assert checkpoint_command(
        "convert", str(run / "model"), str(tmp_path / "served"), "--to", "saved_model"
    ) == 0  # fmt: skip
    served = tf.saved_model.load(str(tmp_path / "served"))
    answer = served.signatures["texts"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(answer["logits"], ours, atol=1e-5)
