"""Fields of a model's configuration: each counts, has its only value, or changes no number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint
from multiberts.bert.model.configuration import REQUIRED, own_fields
from multiberts.runs.errors import UserError
from multiberts.tests.bert.small_checkpoint import write_small

# Values that make another model in transformers.
OTHERS: dict[str, Any] = {
    "add_cross_attention": True, "attention_type": "block_sparse", "classifier_dropout": 0.3,
    "cross_attention_hidden_size": 8, "is_decoder": True, "is_encoder_decoder": True,
    "layer_norm_eps": 1e-6, "model_type": "roberta", "position_embedding_type": "relative_key",
    "pruned_heads": {"0": [1]}, "quantization_config": {"bits": 8}, "tie_word_embeddings": False,
}  # fmt: skip
# As in bert-base-multilingual-cased and -chinese, bert-base-uncased, and what transformers 5 writes.
HARMLESS: dict[str, Any] = {
    "architectures": ["BertForMaskedLM"], "directionality": "bidi", "dtype": "float32",
    "gradient_checkpointing": False, "pad_token_id": 0, "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3, "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform", "torch_dtype": "float32",
    "transformers_version": "4.6.0.dev0", "use_cache": True,
}  # fmt: skip
FILES = {"tf1": "bert_config.json", "hugging_face": "config.json"}


@pytest.fixture(params=FILES)
def configuration(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The configuration's file of a checkpoint in each layout, as a stranger's: without our record."""
    folder = write_small(tmp_path / "model", layout=request.param)
    (folder / "checkpoint.json").unlink()
    return folder / FILES[request.param]


def write(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_every_required_field_has_another_value_here() -> None:
    assert OTHERS.keys() == REQUIRED.keys()


@pytest.mark.parametrize("field", OTHERS)
def test_another_model_is_refused_in_every_layout(configuration: Path, field: str) -> None:
    before = read_checkpoint(configuration.parent).config
    for value in (REQUIRED[field], None):
        write(configuration, **{field: value})
        assert read_checkpoint(configuration.parent).config == before
    write(configuration, **{field: OTHERS[field]})
    with pytest.raises(UserError, match=f"{field} is .*, expected .*another checkpoint") as error:
        read_checkpoint(configuration.parent)
    assert "\n" not in str(error.value)


def test_fields_without_effect_are_allowed_and_not_kept(configuration: Path) -> None:
    before = read_checkpoint(configuration.parent).config
    write(configuration, **HARMLESS)
    assert read_checkpoint(configuration.parent).config == before
    sizes = {"hidden_size": 8, "num_attention_heads": 2}
    assert own_fields({**sizes, **REQUIRED, **HARMLESS}, "model") == sizes
