"""Trains a small model for 20 steps on given numbers of devices; run by `test_training_devices.py`.

    python tests/bert/training/train_on_devices.py WAY DEVICES...

WAY is `compiled` or `plain`, of BERT, `perceptron`, which compiles fast, or `accelerators`: BERT as JAX
trains it there, in one program for all devices. DEVICES is a number or `auto`; `4x8` are 4 devices
that are given up to 8 steps at once. Prints a line for each number
of devices: the number, whether this process is the chief, whether all its devices hold the same bits, the
last loss, and a digest of weights and moments.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.heads import pretraining_loss
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.randomness import generator
from multiberts.bert.training.devices import _opened as opened_devices
from multiberts.bert.training.devices import open_devices
from multiberts.bert.training.engine import Trainer

# After the packages above, which settle how Keras and TensorFlow compute.
from keras import ops  # isort: skip

CONFIG = BertConfig(
    vocab_size=97,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
)
ROWS, LENGTH, PREDICTIONS, STEPS = 8, 12, 3, 20
SHARDS = {"compiled": 4, "plain": 4, "perceptron": 8, "accelerators": 4}


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


def bert_loss(parameters: Any, batch: Any, key: Any) -> Any:
    return pretraining_loss(parameters, CONFIG, batch, key)


def perceptron_loss(parameters: Any, batch: Any, key: Any) -> Any:
    """Guesses the first piece from the sum of the others; its gradients exceed the clipping norm."""
    words = ops.take(parameters["words"], batch["input_ids"], axis=0)
    hidden = ops.tanh(ops.sum(words[:, 1:], 1))
    scores = ops.log_softmax(ops.matmul(hidden, parameters["kernel"]) + parameters["bias"])
    first = ops.one_hot(batch["input_ids"][:, 0], CONFIG.vocab_size)
    return -3.0 * ops.mean(ops.sum(first * scores, 1)), {}


def perceptron_parameters() -> dict[str, np.ndarray]:
    draw = generator("devices test", "perceptron")
    shapes = {"words": (CONFIG.vocab_size, 16), "kernel": (16, CONFIG.vocab_size)}
    drawn = {name: draw.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    return {**drawn, "bias": np.zeros(CONFIG.vocab_size, np.float32)}


def main(way: str, devices: list[str]) -> None:
    """Trains once for each number of devices, the trainers made before TensorFlow starts."""
    is_bert = way != "perceptron"
    if way == "accelerators":
        for count in dict.fromkeys(int(text.partition("x")[0]) for text in devices):
            found = dataclasses.replace(open_devices(count), kind="not a CPU")
            opened_devices[count] = found
    trainers = [
        Trainer(
            bert_loss if is_bert else perceptron_loss,
            gradient_shards=SHARDS[way],
            compile_step=way != "plain",
            devices="auto" if count == "auto" else int(count),
            steps_per_dispatch=int(most or 1),
        )
        for count, _, most in (text.partition("x") for text in devices)
    ]
    for trainer, count in zip(trainers, devices, strict=True):
        trainer.start(initial_parameters(CONFIG, 0) if is_bert else perceptron_parameters())
        while trainer.step_count < STEPS:
            most = trainer.step_count + trainer.steps_per_dispatch
            steps = range(trainer.step_count, min(most, STEPS))
            rates = [1e-3 / (step + 1) for step in steps]
            metrics = trainer.steps([batch_at(step) for step in steps], rates, dropout_seed=7)
        loss, digest = np.ravel(metrics["loss"])[len(steps) - 1], trainer.state().digest().hex()
        is_chief = trainer.processes.is_chief
        print(count, is_chief, trainer.has_equal_copies(), f"{loss:.9g}", digest, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
