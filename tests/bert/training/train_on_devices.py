"""Trains a small model on numbers of devices, with JAX; for `test_training_devices.py`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from multiberts.bert.model.heads import pretraining_loss
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.randomness import generator
from multiberts.bert.training.jax_devices import open_devices
from multiberts.bert.training.jax_trainer import JaxTrainer
from multiberts.bert.training.trainer import TrainerSettings
from multiberts.tests.bert.training.small_model import CONFIG, STEPS, batch_at

# After the packages above, which settle what Keras computes with.
import jax  # isort: skip
from keras import ops  # isort: skip

SHARDS = {"bert": 4, "perceptron": 8, "accelerators": 4}


def bert_loss(parameters: Any, batch: Any, key: Any, backend: Any) -> Any:
    return pretraining_loss(parameters, CONFIG, batch, key, backend=backend)


def perceptron_loss(parameters: Any, batch: Any, key: Any, backend: Any) -> Any:
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


def train_on(way: str, devices: list[str]) -> list[tuple[bool, float, str]]:
    """Trains 20 steps for each number of devices, the trainers made before JAX starts.

    Args:
      way: `bert`; `perceptron`, which compiles fast; or `accelerators`: BERT as JAX trains it there, in one
        program for all devices.
      devices: numbers; `4x8` are 4 devices that are given up to 8 steps at once.

    Returns:
      For each: whether all its devices hold the same bits, the last loss, and a digest of weights and
      moments.
    """
    is_bert, trainers, found = way != "perceptron", [], []
    for count, _, most in (text.partition("x") for text in devices):
        settings = TrainerSettings(
            gradient_shards=SHARDS[way], devices=int(count), steps_per_dispatch=int(most or 1)
        )
        opened = open_devices(settings.devices)
        if way == "accelerators":
            opened = dataclasses.replace(opened, kind="not a CPU")
        trainers.append(JaxTrainer(bert_loss if is_bert else perceptron_loss, settings, opened))
    for trainer in trainers:
        trainer.start(initial_parameters(CONFIG, 0) if is_bert else perceptron_parameters())
        while trainer.step_count < STEPS:
            end = min(trainer.step_count + trainer.steps_per_dispatch, STEPS)
            steps = range(trainer.step_count, end)
            rates = [1e-3 / (step + 1) for step in steps]
            metrics = trainer.steps([batch_at(step) for step in steps], rates, dropout_seed=7)
        loss, digest = float(np.ravel(metrics["loss"])[len(steps) - 1]), trainer.state().digest()
        has_equal_copies = all(
            np.array_equal(array.addressable_data(0), other.data)
            for array in jax.tree.leaves(trainer._state)
            for other in array.addressable_shards
        )
        found.append((has_equal_copies, loss, digest.hex()))
    return found
