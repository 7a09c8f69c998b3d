"""Attention's core on accelerators: `attention.plain` up to rounding, with the same elements dropped."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from multiberts.bert.model.addressed_dropout import Standing, kept_elements
from multiberts.bert.model.attention import AttentionCore, plain
from multiberts.runs.environment import RECOMPUTED, attention

Array = jax.Array


def chosen_core() -> AttentionCore:
    """Returns the core that `runs.environment.attention` names, for an accelerator."""
    return recomputed if attention() == RECOMPUTED else plain


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 6))
def recomputed(
    query: Array,
    key: Array,
    value: Array,
    attention_bias: Array,
    rate: float,
    dropout_key: Array | None,
    site: int,
    standing: Standing | None = None,
) -> Array:
    """Computes the core by XLA, with a backward pass of its own; see `attention.plain`.

    Of the softmax, each exponential alone is kept, its sign saying whether dropout keeps the element: so
    scores, exponentials and dropout's hash are computed once. What is one number per query (the sum of
    its exponentials, dropout's factor) is applied to queries' vectors, not to probabilities. The softmax's
    sum in the backward pass is taken from the output.

    Reference: Dao et al., FlashAttention, 2022, section 3.1 and appendix B (the backward pass).
    """
    return _forward(query, key, value, attention_bias, rate, dropout_key, site, standing)[0]


def _forward(
    query: Array,
    key: Array,
    value: Array,
    bias: Array,
    rate: float,
    dropout_key: Array | None,
    site: int,
    standing: Standing | None,
) -> tuple[Array, tuple[Any, ...]]:
    scaled = _scaled(query, query.shape[-1] ** -0.5)
    scores = jnp.matmul(scaled, key.swapaxes(2, 3)).astype(jnp.float32) + bias
    signed = exponentials = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    factor = 1.0
    if dropout_key is not None and rate > 0.0:
        factor = 1.0 / (1.0 - rate)
        kept = kept_elements(scores.shape, rate, dropout_key, site, standing)
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
    of_value = jnp.matmul(jnp.maximum(signed, 0).swapaxes(2, 3), shared)
    of_kept = jnp.matmul(shared, value.swapaxes(2, 3)).astype(jnp.float32)
    mean = jnp.sum(gradient.astype(jnp.float32) * mixed.astype(jnp.float32), -1, keepdims=True)
    mean = mean / sums
    exponentials = signed.astype(jnp.float32)
    # Of an element that was dropped the exponential is negative, and the mean is subtracted from 0.
    of_scores = exponentials * jnp.where(exponentials > 0, of_kept - mean, mean)
    of_scores = of_scores.astype(value.dtype)
    of_query = _scaled(jnp.matmul(of_scores, key), scaled.shape[-1] ** -0.5)
    of_key = jnp.matmul(of_scores.swapaxes(2, 3), scaled)
    return of_query, of_key, of_value, jnp.zeros_like(bias), None, None


def _scaled(values: Array, factor: Array | float) -> Array:
    """Multiplies in float32; of the values' type."""
    return (values.astype(jnp.float32) * factor).astype(values.dtype)


recomputed.defvjp(_forward, _backward)
