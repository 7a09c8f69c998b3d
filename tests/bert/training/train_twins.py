"""Trains three seeds by JAX's program for accelerators; run by `test_training_together.py`.

    python tests/bert/training/train_twins.py DEVICES

Prints the largest difference between weights of seeds that one program trained, each from a step of its
own, and of the same seeds trained alone, as a share of each array's largest element; then the steps that they
reached.
"""

from __future__ import annotations

import dataclasses
import sys

import numpy as np

from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.training.devices import _opened as opened_devices
from multiberts.bert.training.devices import open_devices
from multiberts.bert.training.engine import Dispatch, Trainer
from multiberts.tests.bert.training.train_on_devices import CONFIG, batch_at, bert_loss

SEEDS, BLOCK = 3, 4
# Which seeds are updated together, and by how many steps: blocks that are full and one that is not, with a
# seed that stays behind.
TOGETHER = (((0, 1, 2), 4), ((0, 1, 2), 3), ((0, 2), 4), ((0, 1, 2), 4))


def dispatch_of(trainer: Trainer, seed: int, length: int) -> Dispatch:
    steps = range(trainer.step_count, trainer.step_count + length)
    batches = [batch_at(100 * seed + step) for step in steps]
    return Dispatch(trainer, batches, [1e-3 / (step + 1) for step in steps], dropout_seed=seed)


def main(devices: int) -> None:
    opened_devices[devices] = dataclasses.replace(open_devices(devices), kind="not a CPU")
    first = Trainer(bert_loss, gradient_shards=2, devices=devices, steps_per_dispatch=BLOCK)
    twins = [first.twin() for _ in range(SEEDS)]
    for seed, twin in enumerate(twins):
        twin.start(initial_parameters(CONFIG, seed))
        for _ in range(seed):
            twin.steps(*dispatch_of(twin, seed, BLOCK)[1:])
    found, largest = [], 0.0
    for seeds, length in TOGETHER:
        found = Trainer.steps_in_one_program(
            [dispatch_of(twins[seed], seed, length) for seed in seeds]
        )
    for seed, twin in enumerate(twins):
        first.start(initial_parameters(CONFIG, seed))
        lengths = [length for seeds, length in TOGETHER if seed in seeds]
        for length in (*[BLOCK] * seed, *lengths):
            metrics = first.steps(*dispatch_of(first, seed, length)[1:])
        assert first.step_count == twin.step_count
        for name, values in first.parameters().items():
            difference = np.abs(twin.parameters()[name] - values).max()
            largest = max(largest, float(difference / max(np.abs(values).max(), 1e-3)))
        np.testing.assert_allclose(metrics["loss"], found[seed]["loss"], rtol=1e-5)
    print(f"{largest:.3g}", *[twin.step_count for twin in twins])


if __name__ == "__main__":
    main(int(sys.argv[1]))
