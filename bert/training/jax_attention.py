"""Attention on accelerators: `backend_ops.attention` up to rounding, with the same elements dropped."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from multiberts.bert.model.addressed_dropout import TokenPositions, kept_elements
from multiberts.bert.model.backend_ops import PLAIN
from multiberts.runs.environment import RECOMPUTED, attention

Array = jax.Array


def chosen_attention() -> Callable[..., Array]:
    """Returns the implementation that `runs.environment.attention` names, for an accelerator."""
    return recomputed if attention() == RECOMPUTED else PLAIN.attention


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 6))
def recomputed(
    query: Array,
    key: Array,
    value: Array,
    attention_bias: Array,
    rate: float,
    dropout_key: Array | None,
    site: int,
    positions: TokenPositions | None = None,
) -> Array:
    """Computes the core by XLA, with a backward pass of its own; see `backend_ops.attention`.

    The backward pass has the softmax's exponentials, with a minus where dropout drops the element: so scores,
    exponentials and dropout's hash are computed once. Factors that are one number per query (the sum of its
    exponentials, dropout's factor) are applied to queries' vectors, not to probabilities. The softmax's
    sum in the backward pass is taken from the output.

    Reference: Dao et al., FlashAttention, 2022, section 3.1 and appendix B (the backward pass).
    """
    return _forward(query, key, value, attention_bias, rate, dropout_key, site, positions)[0]


def _forward(
    query: Array,
    key: Array,
    value: Array,
    bias: Array,
    rate: float,
    dropout_key: Array | None,
    site: int,
    positions: TokenPositions | None,
) -> tuple[Array, tuple[Any, ...]]:
    scaled = _scaled(query, query.shape[-1] ** -0.5)
    scores = jnp.matmul(scaled, key.swapaxes(2, 3)).astype(jnp.float32) + bias
    signed = exponentials = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    factor = 1.0
    if dropout_key is not None and rate > 0.0:
        factor = 1.0 / (1.0 - rate)
        kept = kept_elements(scores.shape, rate, dropout_key, site, positions)
        signed = jnp.where(kept, exponentials, -exponentials)
    # Made together, in the product that makes scores, and not again where they are read.
    signed, sums = jax.lax.optimization_barrier(
        (signed.astype(value.dtype), jnp.sum(exponentials, axis=-1, keepdims=True))
    )
    shares = factor / sums
    mixed = _scaled(jnp.matmul(jnp.maximum(signed, 0), value), shares)
    return mixed, (scaled, key, value, bias, signed, sums, shares, mixed)


def _backward(
    rate: float, site: int, kept: tuple[Any, ...], gradient: Array
) -> tuple[Array | None, ...]:
    del rate, site  # the signs have what was dropped
    scaled, key, value, bias, signed, sums, shares, mixed = kept
    shared = _scaled(gradient, shares)
    d_value = jnp.matmul(jnp.maximum(signed, 0).swapaxes(2, 3), shared)
    d_kept = jnp.matmul(shared, value.swapaxes(2, 3)).astype(jnp.float32)
    mean = jnp.sum(gradient.astype(jnp.float32) * mixed.astype(jnp.float32), -1, keepdims=True)
    mean = mean / sums
    exponentials = signed.astype(jnp.float32)
    # A dropped element's exponential is negative: the mean is subtracted from 0.
    d_scores = exponentials * jnp.where(exponentials > 0, d_kept - mean, mean)
    d_scores = d_scores.astype(value.dtype)
    d_query = _scaled(jnp.matmul(d_scores, key), scaled.shape[-1] ** -0.5)
    d_key = jnp.matmul(d_scores.swapaxes(2, 3), scaled)
    return d_query, d_key, d_value, jnp.zeros_like(bias), None, None


def _scaled(values: Array, factor: Array | float) -> Array:
    # In float32; the result has the values' type.
    return (values.astype(jnp.float32) * factor).astype(values.dtype)


recomputed.defvjp(_forward, _backward)
