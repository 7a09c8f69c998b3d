"""Compares accelerators' attention with the plain one, in JAX; for `test_jax_attention.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from multiberts.bert.model.addressed_dropout import TokenPositions
from multiberts.bert.model.backend_ops import PLAIN, BackendOps, compare_labels
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.heads import pretraining_loss
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.training.jax_backend_ops import recomputed

Core = Callable[..., jax.Array]

# Heads as wide as sequences are long: with values of the identity, mixtures are the dropped probabilities.
BATCH, HEADS, LENGTH = 3, 2, 16
KEY = jnp.array([5, 7], jnp.uint32)


def arrays(
    core: Core, rate: float, key: jax.Array | None, packed: bool = False
) -> list[np.ndarray]:
    """Mixtures and the gradients of queries, keys and values; packed: two sequences in each row."""
    rng = np.random.default_rng(0)
    query, keys, values, gradient = rng.standard_normal((4, BATCH, HEADS, LENGTH, LENGTH))
    bias = jnp.asarray(rng.random((BATCH, 1, 1, LENGTH)) < 0.3, jnp.float32) * -10000.0
    stored = None
    if packed:
        first = jnp.arange(LENGTH)[None] < jnp.array([[5], [9], [2]])
        sequences = jnp.where(first, jnp.array([[4], [0], [2]]), jnp.array([[1], [3], [5]]))
        positions = jnp.cumsum(jnp.ones_like(sequences), 1) - 1
        positions = positions - jnp.where(first, 0, jnp.array([[5], [9], [2]]))
        stored = TokenPositions(positions, sequences, positions)
        bias = (sequences[:, None, :, None] != sequences[:, None, None, :]) * -10000.0
    given = [jnp.asarray(part, jnp.float32) for part in (query, keys, values)]
    mixed, back = jax.vjp(lambda *parts: core(*parts, bias, rate, key, 4, stored), *given)
    return [np.asarray(part) for part in (mixed, *back(jnp.asarray(gradient, jnp.float32)))]


def dropped(core: Core) -> np.ndarray:
    ones = jnp.ones((BATCH, HEADS, LENGTH, LENGTH))
    values = jnp.broadcast_to(jnp.eye(LENGTH), ones.shape)
    return np.asarray(core(ones, ones, values, jnp.zeros((BATCH, 1, 1, LENGTH)), 0.3, KEY, 4)) == 0


def gradients(backend: BackendOps) -> dict[str, np.ndarray]:
    """Gradients of a model's loss."""
    config = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    batch = {
        "input_ids": rng.integers(0, 50, (2, LENGTH)),
        "input_mask": rng.integers(0, 2, (2, LENGTH)),
        "segment_ids": rng.integers(0, 2, (2, LENGTH)),
        "masked_lm_positions": rng.integers(0, LENGTH, (2, 3)),
        "masked_lm_ids": rng.integers(0, 50, (2, 3)),
        "masked_lm_weights": np.ones((2, 3), np.float32),
        "next_sentence_labels": rng.integers(0, 2, 2),
    }

    def loss(parameters: dict[str, jax.Array]) -> jax.Array:
        return pretraining_loss(parameters, config, batch, KEY, backend=backend)[0]

    found = jax.grad(loss)(initial_parameters(config, 0))
    return {name: np.asarray(values) for name, values in found.items()}


def largest(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    pairs = zip(found, expected, strict=True)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def differences() -> dict[str, object]:
    plain = PLAIN.attention
    cases: dict[str, tuple[Any, ...]] = {
        "dropout": (0.1, KEY),
        "packed": (0.1, KEY, True),
        "none": (0.0, None),
    }
    on_accelerators = BackendOps(attention=recomputed, label_values=compare_labels)
    whole, ours = gradients(PLAIN), gradients(on_accelerators)
    # The true gradient of a key's bias is 0.
    names = [name for name in whole if not name.endswith("key/bias")]
    found: dict[str, object] = {
        case: largest(arrays(recomputed, *given), arrays(plain, *given))
        for case, given in cases.items()
    }
    found["loss"] = largest([ours[name] for name in names], [whole[name] for name in names])
    found["same_elements"] = bool(np.array_equal(dropped(recomputed), dropped(plain)))
    found["share"] = float(dropped(recomputed).mean())
    return found
