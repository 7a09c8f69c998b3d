"""Packs a training batch into fewer rows, so that short sequences are not padded to the longest.

In a batch of random sequences one is nearly always long, and padding all of them to it doubles the work. So
several short sequences share a row, without attending to each other. Loss and dropout bits stay the same, so
that only the last bits of sums change. Gradient shards are packed separately, as their gradients are clipped
separately.

Every shape must be compiled, so three are used: a number of rows that fits most batches of these training
data, more rows for nearly all other batches, and one row per sequence for the rest.

Reference: Krell et al., 2021, "Efficient sequence packing without cross-contamination".
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from multiberts.bert.randomness import generator
from multiberts.finetune.features import SequenceFeatures, bucket_length, sequence_batch

# Batches sampled to choose the shapes.
_NUM_SAMPLES = 256
# Packing must reduce the work below this share to be worth its compilation.
_WORTH_IT = 0.9
# Rows of the larger shape beyond the need of any sampled batch, so that hardly any batch needs a third shape.
_SPARE_ROWS = 1
# Candidates for the maximum number of sequences per row.
_MOST = (2, 3, 4, 6, 8, 12, 16)

# Arrays of a packed batch besides the encoder's inputs; see `encoder.Packing`.
PACKING = ("sequences", "positions", "firsts", "chosen")


class Shape(NamedTuple):
    """The shape of a packed batch.

    Attributes:
      rows: rows per gradient shard.
      most: maximum number of sequences per row.
    """

    rows: int
    length: int
    most: int

    @property
    def tokens(self) -> int:
        """Cost in tokens; the last layer computes the first token of each sequence only."""
        return self.rows * (self.length + self.most)


@functools.lru_cache(maxsize=16)
def packed_shapes(
    features: SequenceFeatures, batch_size: int, gradient_shards: int = 1
) -> tuple[Shape, ...]:
    """Returns the two shapes for packed batches, the smaller first; none if packing saves too little.

    They depend on the lengths and sizes alone, so that all runs pack in the same way.

    Args:
      gradient_shards: number of equal parts of a batch, all packed into one shape.
    """
    whole = Shape(batch_size // gradient_shards, int(features.lengths.max()), 1)
    size = (_NUM_SAMPLES, gradient_shards, whole.rows)
    drawn = generator("packing").choice(features.lengths, size).tolist()
    costs: dict[tuple[Shape, ...], float] = {}
    for most in _MOST:
        needed = np.array(
            [max(len(_packed(shard, whole.length, most)) for shard in batch) for batch in drawn]
        )
        rows = min(whole.rows, int(needed.max()) + _SPARE_ROWS)
        large = Shape(rows, whole.length, most)
        for rows in set(needed.tolist()):
            small = Shape(rows, whole.length, most)
            fits = float(np.mean(needed <= rows))
            costs[small, large] = fits * small.tokens + (1 - fits) * large.tokens
    best = min(costs, key=costs.__getitem__)
    return best if costs[best] < _WORTH_IT * whole.tokens else ()


def _packed(lengths: Iterable[int], length: int, most: int) -> list[list[int]]:
    """Returns the sequences of each row, by best-fit decreasing."""
    rows: list[list[int]] = []
    space: list[tuple[int, int]] = []  # (free tokens of a row, its number), sorted
    for negative, number in sorted((-size, number) for number, size in enumerate(lengths)):
        index = bisect.bisect_left(space, (-negative, -1))
        if index == len(space):
            rows.append([])
            free, row = length, len(rows) - 1
        else:
            free, row = space.pop(index)
        rows[row].append(number)
        if len(rows[row]) < most:
            bisect.insort(space, (free + negative, row))
    return rows


def packed_batch(
    features: SequenceFeatures, rows: np.ndarray, shapes: Sequence[Shape], gradient_shards: int = 1
) -> dict[str, np.ndarray]:
    """Returns the encoder's inputs for some sequences, in their order.

    Args:
      rows: numbers of the sequences, int64 [batch].
      shapes: shapes to try in order until all shards fit; they differ in the number of rows only.

    Returns:
      `input_ids`, `input_mask`, `segment_ids`: int32 [rows, length], shard after shard; if packed, also
      the arrays of `PACKING`, numbered within their shard. A batch that fits no shape is not packed: each
      sequence has a row, padded to the longest.
    """
    shards = np.split(rows, gradient_shards)
    packed = [
        _packed(features.lengths[shard].tolist(), *shapes[0][1:]) if shapes else []
        for shard in shards
    ]
    needed = max(map(len, packed))
    shape = next((shape for shape in shapes if needed <= shape.rows), None)
    if shape is None:
        return sequence_batch(features, rows, _length_of_batch(features, rows))
    parts = [
        _packed_shard(features, shard, of_shard, shape)
        for shard, of_shard in zip(shards, packed, strict=True)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _length_of_batch(features: SequenceFeatures, rows: np.ndarray) -> int:
    """Returns the padded length of some sequences: a bucket, at most the longest sequence of all data."""
    bucket = bucket_length(int(features.lengths[rows].max()))
    return min(bucket, int(features.lengths.max()))


def at_packed_tokens(
    values: np.ndarray, inputs: Mapping[str, np.ndarray], padding: int, gradient_shards: int
) -> np.ndarray:
    """Rearranges values per token into the layout of a packed batch.

    Args:
      values: values of each sequence's tokens [batch, length].
      inputs: the batch of `packed_batch`; if it is not packed, `values` are returned.
      padding: value of positions without a token.
      gradient_shards: number of equal parts of the batch.

    Returns:
      [rows, length].
    """
    if PACKING[0] not in inputs:
        return values
    sequences, positions, *_ = (inputs[name] for name in PACKING)
    shards = np.arange(gradient_shards)
    first = np.repeat(shards * len(values) // gradient_shards, len(sequences) // gradient_shards)
    number = np.maximum(sequences, 0) + first[:, None]
    return np.where(sequences < 0, padding, values[number, positions])


def _packed_shard(
    features: SequenceFeatures, rows: np.ndarray, packed: Sequence[Sequence[int]], shape: Shape
) -> dict[str, np.ndarray]:
    """Returns the encoder's inputs for sequences in the rows of `_packed`."""
    lengths = features.lengths[rows]
    order = np.array([number for row in packed for number in row])
    counts = np.array([len(row) for row in packed])
    # Begin of each sequence in its row: after the sequences before it.
    before = np.cumsum(lengths[order]) - lengths[order]
    row_of = np.repeat(np.arange(len(packed)), counts)
    first_of_row = (np.cumsum(counts) - counts)[row_of]
    begins = before - before[first_of_row]
    # Sequence, and position in it, of each token in that order.
    sequence = np.repeat(np.arange(len(order)), lengths[order])
    position = np.arange(len(sequence)) - before[sequence]
    flat_index = (row_of * shape.length + begins)[sequence] + position
    number = order[sequence]

    def filled(values: np.ndarray | int, padding: int = 0) -> np.ndarray:
        array = np.full(shape.rows * shape.length, padding, np.int32)
        array[flat_index] = values
        return array.reshape(shape.rows, shape.length)

    firsts = np.zeros((shape.rows, shape.most), np.int32)
    slot = np.arange(len(order)) - first_of_row
    firsts[row_of, slot] = begins
    chosen = np.zeros(len(order), np.int32)
    chosen[order] = row_of * shape.most + slot
    return {
        "input_ids": filled(features.input_ids[rows[number], position]),
        "input_mask": filled(1),
        "segment_ids": filled(position >= features.first_lengths[rows[number]]),
        # -1 marks padding: it attends only to padding, and no token attends to it.
        "sequences": filled(number, -1),
        "positions": filled(position),
        "firsts": firsts,
        "chosen": chosen,
    }
