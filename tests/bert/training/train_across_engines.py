"""Trains a small model with this process's engine; for `test_engines.py`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from multiberts.bert.model.heads import pretraining_loss
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.training.engine import TrainerSettings, new_trainer
from multiberts.bert.training.state import TrainingState
from multiberts.tests.bert.training.small_model import CONFIG, STEPS, batch_at

RATES = {"dropout": 0.1, "plain": 0.0}


def train_with_states(
    folder: str, way: str, compile_step: bool, state: str | None = None
) -> list[float]:
    """Trains 20 steps; writes states after 1, 10 and 20 of them.

    Args:
      folder: gets `state`.
      way: whether there is dropout, a key of `RATES`.
      compile_step: whether the update is compiled by XLA.
      state: of a run, which is continued instead, to 20 steps.

    Returns:
      The losses at these steps.
    """
    config = dataclasses.replace(
        CONFIG, hidden_dropout_prob=RATES[way], attention_probs_dropout_prob=RATES[way]
    )

    def loss(parameters: Any, batch: Any, key: Any, backend: Any) -> Any:
        return pretraining_loss(parameters, config, batch, key, backend=backend)

    trainer = new_trainer(loss, TrainerSettings(gradient_shards=2, compile_step=compile_step))
    if state is not None:
        trainer.restore(TrainingState.load(Path(state)))
    else:
        trainer.start(initial_parameters(config, 0))
    losses = []
    while trainer.step_count < STEPS:
        metrics = trainer.step(batch_at(trainer.step_count), 1e-3, dropout_seed=7)
        if trainer.step_count in (1, 10, STEPS):
            trainer.state().save(Path(folder) / "state" / f"step_{trainer.step_count}.npz")
            losses.append(float(metrics["loss"]))
    return losses
