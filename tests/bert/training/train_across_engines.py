"""Trains a small model for 20 steps with this process's engine; run by `test_engines.py`.

    python tests/bert/training/train_across_engines.py FOLDER [STATE]

For dropout on and off, writes the states after 1, 10 and 20 steps to FOLDER/<dropout|plain>/state, and prints
the losses. With STATE, of a run with dropout, continues from that instead, to 20 steps.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from multiberts.bert.model.heads import pretraining_loss
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.training.engine import Trainer
from multiberts.bert.training.state import TrainingState, save_state
from multiberts.tests.bert.training.train_on_devices import CONFIG, STEPS, batch_at

RATES = {"dropout": 0.1, "plain": 0.0}


def main(folder: Path, state: str | None = None) -> None:
    for way, rate in RATES.items():
        config = dataclasses.replace(
            CONFIG, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
        )

        def loss(parameters: Any, batch: Any, key: Any, config: Any = config) -> Any:
            return pretraining_loss(parameters, config, batch, key)

        trainer = Trainer(loss, gradient_shards=2)
        if state is not None:
            trainer.restore(TrainingState.load(Path(state)))
        else:
            trainer.start(initial_parameters(config, 0))
        while trainer.step_count < STEPS:
            metrics = trainer.step(batch_at(trainer.step_count), 1e-3, dropout_seed=7)
            if trainer.step_count in (1, 10, STEPS):
                save_state(trainer.state(), folder / way, keep_last=3)
                print(f"{float(metrics['loss']):.9g}", flush=True)
        if state is not None:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
