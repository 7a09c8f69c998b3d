"""The loss of pre-training and its gradient, compiled by this process's engine; for `test_encoder.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.heads import pretraining_loss
from multiberts.runs.environment import JAX, engine


def write_gradients(folder: str) -> float:
    """Reads `config.json`, `parameters.npz` and `batch.npz`; writes `gradients.npz`, returns the loss."""
    given = Path(folder)
    parameters, batch = (dict(np.load(given / f"{name}.npz")) for name in ("parameters", "batch"))
    config = BertConfig.from_file(given / "config.json")
    compute = _by_jax if engine() == JAX else _by_tensorflow
    value, gradients = compute(config, parameters, batch)
    np.savez(given / "gradients.npz", **gradients)
    return float(value)


def _by_jax(config: BertConfig, parameters: Any, batch: Any) -> tuple[Any, dict[str, np.ndarray]]:
    import jax

    def loss(variables: Any) -> Any:
        return pretraining_loss(variables, config, batch, None)[0]

    value, gradients = jax.jit(jax.value_and_grad(loss))(parameters)
    return value, {name: np.asarray(gradient) for name, gradient in gradients.items()}


def _by_tensorflow(
    config: BertConfig, parameters: Any, batch: Any
) -> tuple[Any, dict[str, np.ndarray]]:
    import tensorflow as tf

    from multiberts.bert.training.tensorflow_matmuls import COMPILED_ON_CPU

    @tf.function(jit_compile=True, autograph=False)
    def ours(variables: dict[str, Any], batch: dict[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(variables)
            value, _ = pretraining_loss(variables, config, batch, None, backend=COMPILED_ON_CPU)
        gradients = tape.gradient(value, variables)
        return value, {name: tf.convert_to_tensor(g) for name, g in gradients.items()}

    value, gradients = ours(
        *({n: tf.constant(v) for n, v in d.items()} for d in (parameters, batch))
    )
    return value, {name: gradient.numpy() for name, gradient in gradients.items()}
