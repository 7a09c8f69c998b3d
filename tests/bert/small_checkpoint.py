"""A checkpoint of a very small model, for tests of what is on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.bert.checkpoint.checkpoint import write_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.vocabulary import Vocabulary

PIECES = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n"
CONFIG = BertConfig(
    vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)
PROVENANCE = {"procedure": "base", "pretrain_seed": 3, "data_seed": 4, "step": 20}


def write_small(
    folder: Path,
    seed: int = 3,
    layout: str = "tf1",
    provenance: Mapping[str, Any] = PROVENANCE,
    config: BertConfig = CONFIG,
) -> Path:
    """Writes the checkpoint, and its vocabulary next to it as `given_vocab.txt`; returns the folder."""
    vocabulary = folder.with_name("given_vocab.txt")
    vocabulary.write_text(PIECES)
    weights, opened = initial_parameters(config, seed), Vocabulary.open(vocabulary)
    write_checkpoint(folder, weights, config, opened, provenance, layout=layout)
    return folder
