"""The lookup of word embeddings on accelerators, with a gradient that can be made for several shards."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from multiberts.bert.model.backend_ops import PLAIN

Array = jax.Array


@jax.custom_vjp
def look_up_words(words: Array, ids: Array) -> Array:
    """Returns `backend_ops.look_up_words`, whose gradients of several shards lie one after the other.

    JAX makes one scatter of all shards, whose rows XLA lays out by word, not by shard: the products that
    make the other part of these gradients are then copied into that layout.
    """
    rows: Array = PLAIN.look_up_words(words, ids)
    return rows


@jax.custom_batching.custom_vmap
def _gradient(words: Array, ids: Array, gradient: Array) -> Array:
    return jnp.zeros_like(words).at[ids].add(gradient)


@_gradient.def_vmap
def _gradients(
    shards: int, batched: tuple[bool, bool, bool], words: Array, ids: Array, gradients: Array
) -> tuple[Array, bool]:
    del shards, batched  # the words are those of all shards, ids and gradients each its own
    each = [_gradient(words, *shard) for shard in zip(ids, gradients, strict=True)]
    return jnp.stack(each), True


def _forward(words: Array, ids: Array) -> tuple[Array, tuple[Array, Array]]:
    return look_up_words(words, ids), (words, ids)


def _backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, None]:
    return _gradient(*kept, gradient), None


look_up_words.defvjp(_forward, _backward)
