"""Trains a small model for 20 steps on given numbers of devices; run by `test_training_devices.py`.

    python tests/bert/train_on_devices.py DIRECTORY compiled|plain DEVICES...

Writes the weights of each number of devices to DIRECTORY and prints a line: devices, whether
this process is the chief, whether all its devices hold the same bits, the last loss.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.heads import pretraining_loss
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.randomness import generator
from multiberts.bert.training.engine import Trainer

CONFIG = BertConfig(
    vocab_size=97,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
)
ROWS, LENGTH, PREDICTIONS, STEPS, SHARDS = 8, 12, 3, 20, 4


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


def main(directory: Path, way: str, devices: list[str]) -> None:
    """Trains once for each number of devices, the trainers made before TensorFlow starts."""
    trainers = [
        Trainer(
            lambda parameters, batch, key: pretraining_loss(parameters, CONFIG, batch, key),
            gradient_shards=SHARDS,
            compile_step=way == "compiled",
            devices="auto" if count == "auto" else int(count),
        )
        for count in devices
    ]
    for trainer, count in zip(trainers, devices, strict=True):
        trainer.start(initial_parameters(CONFIG, 0))
        for step in range(STEPS):
            metrics = trainer.step(batch_at(step), 1e-3, dropout_seed=7)
        weights = {name.replace("/", "|"): v for name, v in trainer.parameters().items()}
        np.savez(directory / f"{way}_{count}.npz", **weights)
        loss = float(metrics["loss"])
        print(count, trainer.processes.is_chief, same_bits(trainer), f"{loss:.9g}", flush=True)


def same_bits(trainer: Trainer) -> bool:
    """Whether the copies of all variables on this process's devices are equal."""
    strategy = trainer.devices.strategy
    if strategy is None:
        return True
    copies = [
        [copy.numpy() for copy in strategy.experimental_local_results(variable)]
        for part in (trainer._variables, trainer._m, trainer._v)
        for variable in part.values()
    ]
    return all(np.array_equal(first, other) for first, *others in copies for other in others)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
