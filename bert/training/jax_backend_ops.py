"""Operations of `backend_ops` on accelerators, in JAX: equal up to rounding, with the same dropout."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from multiberts.bert.model.addressed_dropout import TokenPositions, kept_elements
from multiberts.bert.model.backend_ops import PLAIN, BackendOps, compare_labels
from multiberts.runs.environment import RECOMPUTED, attention

Array = jax.Array


def accelerated() -> BackendOps:
    """Returns the operations for accelerators; `runs.environment.attention` selects the attention."""
    return BackendOps(
        attention=recomputed if attention() == RECOMPUTED else PLAIN.attention,
        label_values=compare_labels,
        look_up_words=look_up_words,
    )


@jax.custom_vjp
def look_up_words(words: Array, ids: Array) -> Array:
    """Computes `backend_ops.look_up_words` with a separate scatter per shard in the backward pass.

    JAX makes one scatter of all shards, whose rows XLA lays out by word, not by shard: the products that
    make the other part of these gradients are then copied into that layout.
    """
    rows: Array = PLAIN.look_up_words(words, ids)
    return rows


@jax.custom_batching.custom_vmap
def _gradient_of_words(words: Array, ids: Array, gradient: Array) -> Array:
    return jnp.zeros_like(words).at[ids].add(gradient)


@_gradient_of_words.def_vmap
def _gradients_of_words(
    shards: int, batched: tuple[bool, bool, bool], words: Array, ids: Array, gradients: Array
) -> tuple[Array, bool]:
    del shards, batched  # the words are shared by all shards, ids and gradients are per shard
    each = [_gradient_of_words(words, *shard) for shard in zip(ids, gradients, strict=True)]
    return jnp.stack(each), True


def _look_up_forward(words: Array, ids: Array) -> tuple[Array, tuple[Array, Array]]:
    return look_up_words(words, ids), (words, ids)


def _look_up_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, None]:
    return _gradient_of_words(*saved, gradient), None


look_up_words.defvjp(_look_up_forward, _look_up_backward)


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
    """Computes attention by XLA, with a custom backward pass; see `backend_ops.attention`.

    The forward pass saves the softmax's exponentials, negated where dropout drops the element, so scores,
    exponentials and dropout's hash are computed once. Factors with one number per query (the sum of its
    exponentials, dropout's factor) are applied to queries' vectors, not to probabilities. The softmax's sum
    in the backward pass is taken from the output.

    Reference: Dao et al., FlashAttention, 2022, section 3.1 and appendix B (the backward pass).
    """
    return _attend_forward(query, key, value, attention_bias, rate, dropout_key, site, positions)[0]


def _attend_forward(
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
        is_kept = kept_elements(scores.shape, rate, dropout_key, site, positions)
        signed = jnp.where(is_kept, exponentials, -exponentials)
    # Computed together with the scores, and not recomputed where they are used.
    signed, sums = jax.lax.optimization_barrier(
        (signed.astype(value.dtype), jnp.sum(exponentials, axis=-1, keepdims=True))
    )
    shares = factor / sums
    mixed = _scaled(jnp.matmul(jnp.maximum(signed, 0), value), shares)
    return mixed, (scaled, key, value, bias, signed, sums, shares, mixed)


def _attend_backward(
    rate: float, site: int, saved: tuple[Any, ...], gradient: Array
) -> tuple[Array | None, ...]:
    del rate, site  # negative signs mark dropped elements
    scaled, key, value, bias, signed, sums, shares, mixed = saved
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


recomputed.defvjp(_attend_forward, _attend_backward)
