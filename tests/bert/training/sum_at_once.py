"""Makes an update of shards at once, and of one by one, in JAX; for `test_jax_trainer.py`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from multiberts.bert.model.heads import pretraining_loss
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.training import jax_trainer
from multiberts.bert.training.jax_devices import open_devices
from multiberts.bert.training.trainer import TrainerSettings
from multiberts.tests.bert.training.small_model import CONFIG, batch_at

SHARDS = 8


def loss(parameters: Any, batch: Any, key: Any, backend: Any) -> Any:
    # Times 30: gradients of some shards are clipped, each by its own factor.
    value, metrics = pretraining_loss(parameters, CONFIG, batch, key, backend=backend)
    return 30.0 * value, metrics


def first_update(longest: int) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Returns the first moments after one update, which are the summed gradients, and its scalars.

    Args:
      longest: of sequences whose shards are computed at once.
    """
    jax_trainer.SHORT = longest
    devices = dataclasses.replace(open_devices(1), kind="not a CPU")
    trainer = jax_trainer.JaxTrainer(loss, TrainerSettings(gradient_shards=SHARDS), devices)
    trainer.start(initial_parameters(CONFIG, 0))
    scalars = trainer.step(batch_at(0), 1e-3, dropout_seed=7)
    return trainer.state().m, {name: float(value) for name, value in scalars.items()}


def differences() -> dict[str, float]:
    """Returns the largest differences, as shares of an array's largest element, or of a scalar or 1."""
    (summed, scalars), (expected, alone) = first_update(128), first_update(0)
    # The true gradient of a key's bias is 0.
    names = [name for name in expected if not name.endswith("key/bias")]
    moments = [
        np.abs(summed[name] - expected[name]).max() / np.abs(expected[name]).max() for name in names
    ]
    return {
        "gradients": float(max(moments)),
        "scalars": max(
            abs(scalars[name] - alone[name]) / max(1.0, abs(alone[name])) for name in alone
        ),
        "gradient_norm": alone["gradient_norm"],
    }
