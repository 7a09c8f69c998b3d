"""Ways to compute attention's core on accelerators, equal to `attention.plain` up to rounding.

All drop the same elements.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton

from multiberts.bert.model.addressed_dropout import (
    POSITION_STRIDE,
    SITE_MULTIPLIER,
    Standing,
    dropped_below,
    kept_elements,
    mixed_bits,
)
from multiberts.bert.model.attention import AttentionCore, plain
from multiberts.runs.environment import KERNEL, RECOMPUTED, attention

Array = jax.Array
# Of a grid step on a GPU: scores of so many queries (or keys) are in registers at a time.
_GPU_BLOCK = 32


def core_for(kind: str) -> AttentionCore:
    """Returns the core that `runs.environment.attention` names, for an accelerator.

    Args:
      kind: the name that its driver reports.
    """
    if attention() == KERNEL:
        return kernel("tpu" if kind.startswith("TPU") else "gpu")
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


def kernel(platform: str) -> AttentionCore:
    """Returns a core that is one Pallas kernel forward and one or two backward; scores stay on the chip.

    Args:
      platform: `tpu`, `gpu`, or `cpu`, where the kernel is interpreted.

    Returns:
      A core; see `attention.plain`. Tokens that were taken from their sequences, or packed with others in
      a row, are left to `recomputed`: the kernel's tiles are of whole sequences.
    """

    def core(
        query: Array,
        key: Array,
        value: Array,
        attention_bias: Array,
        rate: float,
        dropout_key: Array | None,
        site: int,
        standing: Standing | None = None,
    ) -> Array:
        if standing is not None:
            few: Array = recomputed(
                query, key, value, attention_bias, rate, dropout_key, site, standing
            )
            return few
        batch = query.shape[0]
        if dropout_key is None:
            rate, dropout_key = 0.0, jnp.zeros(2, jnp.uint32)
        # Each row's address and the key, as scalars.
        address = jnp.arange(batch, dtype=jnp.uint32) * np.uint32(
            query.shape[1] * POSITION_STRIDE**2
        )
        address = address + np.uint32(site * SITE_MULTIPLIER % 2**32)
        seeds = jnp.stack([address, *(jnp.full_like(address, part) for part in dropout_key)], 1)
        bias = attention_bias.reshape(batch, -1, 1)
        return _kernel_core(query, key, value, bias, seeds, rate, platform)

    return core


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _kernel_core(
    query: Array, key: Array, value: Array, bias: Array, seeds: Array, rate: float, platform: str
) -> Array:
    return _kernel_forward(query, key, value, bias, seeds, rate, platform)[0]


def _kernel_forward(
    query: Array, key: Array, value: Array, bias: Array, seeds: Array, rate: float, platform: str
) -> tuple[Array, tuple[Any, ...]]:
    given = {"query": query, "key": key, "value": value, "bias": bias}
    mixed, log_sums = _called(seeds, given, _QUERIES, ("mixed", "log_sums"), rate, platform)
    return mixed, (given, seeds, mixed, log_sums)


def _kernel_backward(
    rate: float, platform: str, kept: tuple[Any, ...], gradient: Array
) -> tuple[Array | None, ...]:
    given, seeds, mixed, log_sums = kept
    mean = jnp.sum(gradient.astype(jnp.float32) * mixed.astype(jnp.float32), -1)[:, :, None]
    given = {**given, "gradient": gradient, "log_sums": log_sums, "mean": mean}
    if platform == "gpu":
        # A tile sees some queries and all keys, or the other way round: no sums over programs.
        (of_query,) = _called(seeds, given, _QUERIES, ("of_query",), rate, platform)
        of_keys = _called(seeds, given, _KEYS, ("of_key", "of_value"), rate, platform)
        return of_query, *of_keys, jnp.zeros_like(given["bias"]), None
    wanted = ("of_query", "of_key", "of_value")
    found = _called(seeds, given, _QUERIES, wanted, rate, platform)
    return *found, jnp.zeros_like(given["bias"]), None


_kernel_core.defvjp(_kernel_forward, _kernel_backward)

# What a tile of scores [keys, queries] has only some of, and which arrays are by queries; others are by keys.
_QUERIES, _KEYS = "queries", "keys"
_BY_QUERY = ("query", "gradient", "mixed", "of_query", "log_sums", "mean")
_ROWS = ("log_sums", "mean")


def _called(
    seeds: Array,
    given: dict[str, Array],
    by: str,
    wanted: tuple[str, ...],
    rate: float,
    platform: str,
) -> list[Array]:
    """Runs the kernel for each sequence, head and block.

    Args:
      seeds: uint32 [batch, 3], the address of the dropout of each row and the two parts of the key.
      given: query, key, value [batch, heads, length, size] and bias [batch, length, 1]; for the backward
        pass gradient, like the query, and log_sums, mean [batch, heads, 1, length].
      by: `_QUERIES` or `_KEYS`, what is cut in blocks.
      wanted: names of outputs.
      rate: the share dropped.
      platform: as `kernel` has it.
    """
    batch, heads, length, size = given["query"].shape
    block = min(_GPU_BLOCK, length) if platform == "gpu" else length

    def spec(name: str) -> pl.BlockSpec:
        is_cut = by == (_QUERIES if name in _BY_QUERY else _KEYS)
        count = block if is_cut else length
        if name in _ROWS:
            return pl.BlockSpec((None, None, 1, count), lambda b, h, i: (b, h, 0, i * is_cut))
        if name == "bias":
            return pl.BlockSpec((None, count, 1), lambda b, _, i: (b, i * is_cut, 0))
        return pl.BlockSpec((None, None, count, size), lambda b, h, i: (b, h, i * is_cut, 0))

    def shape(name: str) -> jax.ShapeDtypeStruct:
        if name in _ROWS:
            return jax.ShapeDtypeStruct((batch, heads, 1, length), jnp.float32)
        return jax.ShapeDtypeStruct(given["query"].shape, given["query"].dtype)

    scalars = pl.BlockSpec(memory_space=pltpu.SMEM) if platform == "tpu" else pl.BlockSpec()
    parameters: Any = {"gpu": triton.CompilerParams(num_warps=8)}.get(platform)
    found: list[Array] = pl.pallas_call(
        functools.partial(_kernel, names=(*given, *wanted), by=by, block=block, rate=rate),
        grid=(batch, heads, length // block),
        in_specs=[scalars, *map(spec, given)],
        out_specs=[*map(spec, wanted)],
        out_shape=[*map(shape, wanted)],
        compiler_params=parameters,
        interpret=platform == "cpu",
    )(seeds, *given.values())
    return found


def _kernel(
    seeds: Any, *references: Any, names: tuple[str, ...], by: str, block: int, rate: float
) -> None:
    """Computes a tile [keys, queries] of the scores and what is wanted of it; see `_called`."""
    named = dict(zip(names, references, strict=True))
    query, key, value = (named[name][...] for name in ("query", "key", "value"))
    scale = query.shape[-1] ** -0.5
    scores = _product(key, query, 1, 1) * scale + named["bias"][...]
    factor = _tile_factor(seeds, scores.shape, by, block, rate)
    if "mixed" in named:
        largest = jnp.max(scores, axis=0, keepdims=True)
        exponentials = jnp.exp(scores - largest)
        sums = jnp.sum(exponentials, axis=0, keepdims=True)
        dropped = (exponentials / sums * factor).astype(value.dtype)
        named["mixed"][...] = _product(dropped, value, 0, 0).astype(value.dtype)
        named["log_sums"][...] = largest + jnp.log(sums)
        return
    gradient = named["gradient"][...]
    probabilities = jnp.exp(scores - named["log_sums"][...])
    of_dropped = _product(value, gradient, 1, 1)
    of_scores = probabilities * (of_dropped * factor - named["mean"][...]) * scale
    of_scores = of_scores.astype(query.dtype)
    if "of_query" in named:
        named["of_query"][...] = _product(of_scores, key, 0, 0).astype(query.dtype)
    if "of_key" in named:
        named["of_key"][...] = _product(of_scores, query, 1, 0).astype(query.dtype)
        dropped = (probabilities * factor).astype(value.dtype)
        named["of_value"][...] = _product(dropped, gradient, 1, 0).astype(query.dtype)


def _product(first: Array, second: Array, axis: int, other: int) -> Array:
    """Returns the float32 product of two matrices, summed over an axis of each."""
    return jax.lax.dot_general(
        first, second, (((axis,), (other,)), ((), ())), preferred_element_type=jnp.float32
    )


def _tile_factor(
    seeds: Any, shape: tuple[int, ...], by: str, block: int, rate: float
) -> Array | float:
    """Returns what dropout multiplies a tile [keys, queries] by, from the bits of `kept_elements`."""
    if rate == 0.0:
        return 1.0
    row, head, first = (pl.program_id(axis) for axis in range(3))
    keys, queries = (jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in range(2))
    if by == _QUERIES:
        queries = queries + first * block
    else:
        keys = keys + first * block
    # Sums of int32 and uint32 have the same bits.
    offset = head * POSITION_STRIDE**2 + queries * POSITION_STRIDE + keys
    bits = mixed_bits(seeds[row, 0] + offset.astype(jnp.uint32), (seeds[row, 1], seeds[row, 2]))
    return jnp.where(bits >= dropped_below(rate), np.float32(1.0 / (1.0 - rate)), np.float32(0.0))
