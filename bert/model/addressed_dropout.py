"""Dropout with bits that are a pure function of a key and the element's position."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from multiberts.bert.model.array_ops import ops
from multiberts.runs.errors import UserError

Array = Any

# Positions are numbered as if every sequence had this length: trimming or padding a batch does not change
# which elements are dropped.
_POSITION_STRIDE = 1024

# 2^32 divided by the golden ratio: multiples of it spread sites evenly over all 32 bits, so the positions of
# two sites lie far apart.
_SITE_MULTIPLIER = 0x9E3779B9


class TokenPositions(NamedTuple):
    """Positions of tokens in rows that are not a single sequence with positions 0, 1, 2, ...

    Attributes:
      in_sequence: int32 [rows, tokens], position of each token in its sequence.
      sequences: int32 [rows, tokens], index of each token's sequence in the batch; None: its row.
      keys: positions of the attention keys, int32 [rows, length]; None: 0, 1, 2, ...
    """

    in_sequence: Array
    sequences: Array | None = None
    keys: Array | None = None


def dropout(
    values: Array,
    rate: float,
    key: Array | None,
    site: int,
    positions: TokenPositions | None = None,
) -> Array:
    """Sets a share `rate` of the elements to zero and scales the others by 1 / (1 - rate).

    The bits are hashes of each element's position and the key, in 32-bit integers: they are the same on
    every engine and device and with any padding.

    Args:
      values: [batch, length, width], or attention probabilities [batch, heads, length, length].
      rate: share of dropped elements, in [0, 1).
      key: uint32 [2], or None for no dropout.
      site: index of this dropout in the model; each site draws its own bits.
      positions: positions of the tokens (second-last axis), so that gathered or packed tokens keep the
        bits of their own sequence; None: 0, 1, 2, ...

    Returns:
      Like `values`.
    """
    if key is None or rate == 0.0:
        return values
    is_kept = kept_elements(ops.shape(values), rate, key, site, positions)
    # In float32: 1 / (1 - rate) itself, rounded to bfloat16, would move every mean.
    scaled = ops.cast(ops.cast(values, "float32") * (1.0 / (1.0 - rate)), values.dtype)
    return ops.where(is_kept, scaled, ops.zeros_like(values))


def kept_elements(
    shape: tuple[int, ...],
    rate: float,
    key: Array,
    site: int,
    positions: TokenPositions | None = None,
) -> Array:
    """Returns whether `dropout` keeps each element of an array of this shape; bool, of the shape.

    Args:
      rate: share of dropped elements.
      key: dropout key, uint32 [2].
      positions: positions of the tokens, see `dropout`.
    """
    # Integers compare the same on every engine; a threshold on floats would be rounded.
    return ops.greater_equal(
        _random_bits(shape, key, site, positions), np.uint32(round(rate * 2**32))
    )


def _random_bits(
    shape: tuple[int, ...], key: Array, site: int, positions: TokenPositions | None
) -> Array:
    """Returns uint32 bits, one per element, from the key, the site and the element's position."""
    longest = max((0, *(shape[2:] if len(shape) == 4 else shape[1:-1])))
    if longest > _POSITION_STRIDE:
        raise UserError(
            f"sequences of {longest} pieces are longer than the {_POSITION_STRIDE} that dropout has "
            "addresses for; lower sequence_length"
        )
    strides: tuple[int, ...]
    if len(shape) == 3:  # [batch, length, width]
        strides = (_POSITION_STRIDE * int(shape[2]), int(shape[2]), 1)
    elif len(shape) == 4:  # [batch, heads, length, length]
        # The counter has 32 bits: after 4,096 pairs of sequence and head (341 sequences of 12 heads) in a
        # shard, attention's bits repeat.
        strides = (
            int(shape[1]) * _POSITION_STRIDE * _POSITION_STRIDE,
            _POSITION_STRIDE * _POSITION_STRIDE,
            _POSITION_STRIDE,
            1,
        )
    else:  # [batch, width]
        strides = (int(shape[1]), 1)
    coordinates = _coordinates(shape, positions)
    # Shapes are static: a step is compiled for each batch shape.
    counter: Array = ops.convert_to_tensor(np.uint32(site * _SITE_MULTIPLIER % 2**32))
    for axis, stride in enumerate(strides):
        step = np.uint32(stride % 2**32)
        if axis in coordinates:
            counter = counter + ops.cast(coordinates[axis], "uint32") * step
            continue
        along = [1] * len(strides)
        along[axis] = -1
        coordinate = np.arange(shape[axis], dtype=np.uint32) * step
        counter = counter + ops.convert_to_tensor(coordinate.reshape(along))
    return _mixed_bits(counter, key)


def _coordinates(shape: tuple[int, ...], positions: TokenPositions | None) -> dict[int, Array]:
    """Returns the non-consecutive coordinates by axis, broadcastable to the shape."""
    if positions is None:
        return {}
    rows, heads = int(shape[0]), (1,) * (len(shape) - 3)
    coordinates = {len(shape) - 2: ops.reshape(positions.in_sequence, (rows, *heads, -1, 1))}
    if positions.sequences is not None:
        coordinates[0] = ops.reshape(positions.sequences, (rows, *heads, -1, 1))
    if positions.keys is not None and heads:
        coordinates[len(shape) - 1] = ops.reshape(positions.keys, (rows, 1, 1, -1))
    return coordinates


def _mixed_bits(counter: Array, key: Array) -> Array:
    """Mixes bits in three rounds of xor-shift and multiply.

    The constants are those of `triple32` (C. Wellons, "Hash prospector", a search for low bias). Half
    of the key enters before each of the first two rounds, so that keys that differ in one bit give
    unrelated bits.
    """
    bits = counter + key[0]
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, np.uint32(17)))
    bits = bits * np.uint32(0xED5AD4BB)
    bits = bits + key[1]
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, np.uint32(11)))
    bits = bits * np.uint32(0xAC4C1B51)
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, np.uint32(15)))
    bits = bits * np.uint32(0x31848BAB)
    return ops.bitwise_xor(bits, ops.right_shift(bits, np.uint32(14)))
