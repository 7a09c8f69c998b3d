"""A small model and made-up batches, for tests that compare trainings."""

from __future__ import annotations

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.randomness import generator

CONFIG = BertConfig(
    vocab_size=97, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=16,
)  # fmt: skip
ROWS, LENGTH, PREDICTIONS, STEPS = 8, 12, 3, 20


def batch_at(step: int) -> dict[str, np.ndarray]:
    """Made-up rows; each shard has another number of predictions."""
    draw = generator("devices test", step)
    counts = draw.integers(1, PREDICTIONS + 1, ROWS)
    at = np.sort(draw.permuted(np.tile(np.arange(1, LENGTH), (ROWS, 1)), axis=1)[:, :PREDICTIONS])
    return {
        "input_ids": draw.integers(0, CONFIG.vocab_size, (ROWS, LENGTH)).astype(np.int32),
        "input_mask": np.ones((ROWS, LENGTH), np.int32),
        "segment_ids": np.repeat([[0] * 6 + [1] * 6], ROWS, 0).astype(np.int32),
        "masked_lm_positions": at.astype(np.int32),
        "masked_lm_ids": draw.integers(0, CONFIG.vocab_size, (ROWS, PREDICTIONS)).astype(np.int32),
        "masked_lm_weights": (np.arange(PREDICTIONS) < counts[:, None]).astype(np.float32),
        "next_sentence_labels": draw.integers(0, 2, ROWS).astype(np.int32),
    }
