"""The encoder with scores of starts and ends, and what it gives on windows.

Reference: Devlin et al., 2019, section 4.2; google-research/bert, run_squad.py, create_model.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.finetune.features import evaluation_batches, evaluation_lengths, sequence_batch
from multiberts.finetune.squad.windows import SquadWindows

if TYPE_CHECKING:
    from multiberts.bert.training.engine import Predictor, Trainer

EVALUATION_BATCH_SIZE = 64

_NOT_A_TOKEN = -1e9


def window_logits(
    windows: SquadWindows, predictor: Predictor, parameters: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of every piece as start and as end; float32 [windows, longest] each."""
    found = np.zeros((2, *windows.features.input_ids.shape), np.float32)
    lengths = windows.features.lengths
    batches = evaluation_batches(lengths, EVALUATION_BATCH_SIZE)
    padded = evaluation_lengths(lengths, batches)
    for (rows, count), length in zip(batches, padded, strict=True):
        outputs = predictor(parameters, sequence_batch(windows.features, rows, length))
        for place, name in enumerate(("start_logits", "end_logits")):
            width = min(found.shape[2], outputs[name].shape[1])
            found[place, rows[:count], :width] = outputs[name][:count, :width]
    return found[0], found[1]


@functools.lru_cache(maxsize=4)
def engines(config: BertConfig, compile_step: bool) -> tuple[Trainer, Predictor]:
    """The compiled trainer and predictor, shared by all runs of the same sizes in this process."""
    from keras import ops

    from multiberts.bert.model.encoder import encode
    from multiberts.bert.model.heads import cross_entropy, is_right
    from multiberts.bert.training.engine import Predictor, Trainer

    def logits_of(parameters: Any, batch: Any, dropout_key: Any) -> tuple[Any, Any]:
        inputs = (batch["input_ids"], batch["input_mask"], batch["segment_ids"])
        sequence = encode(parameters, config, *inputs, dropout_key)  # [batch, length, hidden]
        weights = ops.cast(ops.transpose(parameters["output_weights"]), sequence.dtype)
        logits = ops.cast(ops.matmul(sequence, weights), "float32") + parameters["output_bias"]
        # A batch is as long as it needs to be, so what is behind a sequence must not count.
        behind = (1.0 - ops.cast(batch["input_mask"], "float32")) * _NOT_A_TOKEN
        return logits[:, :, 0] + behind, logits[:, :, 1] + behind

    def loss(parameters: Any, batch: Any, dropout_key: Any) -> tuple[Any, dict[str, Any]]:
        start, end = logits_of(parameters, batch, dropout_key)
        losses = cross_entropy(start, batch["start_positions"]) + cross_entropy(
            end, batch["end_positions"]
        )
        right = is_right(start, batch["start_positions"]) * is_right(end, batch["end_positions"])
        return ops.mean(losses) / 2, {"span_accuracy": ops.mean(right)}

    def predict(parameters: Any, batch: Any) -> dict[str, Any]:
        start, end = logits_of(parameters, batch, None)
        return {"start_logits": start, "end_logits": end}

    return Trainer(loss, compile_step=compile_step), Predictor(predict, compile_step=compile_step)
