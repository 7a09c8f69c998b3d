"""What pre-training refuses, in one line and before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.checkpoint.checkpoint import write_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.training.pretraining import pretrain
from multiberts.runs.environment import JAX, engine
from multiberts.runs.errors import UserError
from multiberts.tests.bert.model.test_configuration import OTHERS
from multiberts.tests.pretrain.conftest import MODEL

Arguments = Callable[..., dict[str, Any]]
# What is changed of the arguments, and a part of the line.
ROWS: list[tuple[dict[str, Any], str]] = [
    ({"num_steps": 1e5}, r"num_steps is 100000\.0, expected int at least 1"),
    ({"gradient_shards": 0}, "gradient_shards is 0, expected int at least 1"),
    ({"checkpoint_steps": [0, 500]}, r"checkpoint_steps is \[500\], expected steps in 0..2"),
    ({"learning_rate": float("nan")}, "learning_rate is nan, expected float above 0"),
    ({"masked_lm_probability": 15}, "probability is 15, expected float above 0 and below 1"),
    ({"batch_size": 7}, "batch_size is 7, expected a multiple of pretrain.gradient_shards 2"),
    ({"batch_size": 10**6}, "batch_size is 1000000, expected at most"),
    ({"sequence_length": 64}, "sequence_length 64 exceeds the model's 32 positions"),
    ({"warmup_steps": 9}, "warmup_steps is 9, expected 0 to"),
    ({"save_state_every_steps": 0}, "save_state_every_steps is 0, expected int at least 1"),
    ({"log_every_steps": 0}, "log_every_steps is 0, expected int at least 1"),
    ({"evaluate_every_steps": 0}, "evaluate_every_steps is 0, expected int at least 1"),
    ({"evaluation_batches": 99}, r"evaluation_batches is 99, but .*held_out has \d+ instances"),
    ({"compute_dtype": "float16"}, "dtype is 'float16', expected 'float32' or 'bfloat16'"),
    ({"learning_rate_treatment": "warm"}, "'warm', expected 'restart' or 'constant' or 'continue'"),
    (
        {"learning_rate_treatment": "continue"},
        "is 'continue', expected 'restart' without pretrain.initial_checkpoint",
    ),
    (
        {"initial_checkpoint": "somewhere", "initialisation_seed": 4},
        "initialisation_seed is 4, expected None with",
    ),
]
OF_MODEL: list[tuple[dict[str, Any], str]] = [
    ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0, expected"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0, expected"),
    ({"num_hidden_layers": 10**9}, "expected int at least 1 and at most 65536"),
    ({"num_attention_heads": 0}, "num_attention_heads is 0, expected"),
    ({"num_attention_heads": 5}, "not a multiple of num_attention_heads"),
    ({"hidden_sise": 32}, "unknown field 'hidden_sise'"),
    ({"vocab_size": 9}, r"model\['vocab_size'\] is 9, expected"),
    (
        {"type_vocab_size": 1},
        "two segments in a sequence, but the model has type_vocab_size 1; leave it out",
    ),
    *(
        ({name: value}, f"pretrain.model: {name} is .*, expected ")
        for name, value in OTHERS.items()
    ),
]


@pytest.mark.parametrize(
    ("changes", "message"),
    [*ROWS, *(({"model": {**MODEL, **fields}}, message) for fields, message in OF_MODEL)],
)
def test_bad_numbers_are_refused_before_anything_is_written(
    arguments: Arguments, corpus: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    held_out = str(corpus.parent / "held_out")
    given = arguments(tmp_path / "run", num_steps=2, evaluation_corpus=held_out)
    with pytest.raises(UserError, match=message):
        pretrain(**{**given, **changes})
    assert not (tmp_path / "run").exists()


def start_of(folder: Path, pieces: list[str], **fields: Any) -> str:
    """Writes a checkpoint of a model with this vocabulary."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    config = BertConfig.from_mapping({**MODEL, "vocab_size": len(pieces), **fields}, "test")
    vocabulary = Vocabulary.open(folder / "vocab.txt")
    write_checkpoint(
        folder / "start", initial_parameters(config, 0), config, vocabulary, {"step": 0}
    )
    return str(folder / "start")


def test_a_start_of_other_sizes_or_pieces_is_refused_by_name(
    arguments: Arguments, corpus: Path, tmp_path: Path
) -> None:
    *pieces, last = (corpus / "vocab.txt").read_text().split()
    for name, fields, message in (
        (last, {"hidden_size": 64}, "another model .*: hidden_size 64, expected 32; give"),
        ("other", {}, r"vocab\.txt differ"),
    ):
        start = start_of(tmp_path / name, [*pieces, name], **fields)
        with pytest.raises(UserError, match=message):
            pretrain(**arguments(tmp_path / "run", num_steps=2, initial_checkpoint=start))
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(engine() == JAX, reason="JAX trains on several")
def test_tensorflow_refuses_several_devices(arguments: Arguments, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"devices is 2, but .* one device; add --engine=jax"):
        pretrain(**arguments(tmp_path / "run", num_steps=2, devices=2))
    assert not (tmp_path / "run").exists()
