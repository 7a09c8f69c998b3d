"""Packs a training batch into fewer rows, so that short sequences are not padded to the longest.

In a batch of random sequences one is nearly always long, and padding all to it doubles the work. So several
short ones lie in one row, none attending to another: the loss is that of the whole batch, and every token
keeps its dropout bits, so nothing changes but the last bits of sums. Each gradient shard is packed by itself,
as its gradient is clipped by itself.

A step must be compiled for every shape, so there are few: rows that most batches of these training data fit
into, more rows for nearly all others, and one row for each sequence where a batch does not fit.

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

# Batches that are drawn to choose the shapes.
_NUM_SAMPLES = 256
# Packing is worth its compilation where it leaves less than this share of the work.
_WORTH_IT = 0.9
# Rows that the larger shape has beyond what any sampled batch needs, so that hardly any needs a third shape.
_SPARE_ROWS = 1
# Sequences that may lie in one row.
_MOST = (2, 3, 4, 6, 8, 12, 16)

# Arrays of a packed batch besides the encoder's inputs; see `encoder.Packing`.
PACKING = ("sequences", "positions", "firsts", "chosen")


class Shape(NamedTuple):
    """The shape of a packed batch.

    Attributes:
      rows: how many of a gradient shard.
      most: sequences in a row, at most.
    """

    rows: int
    length: int
    most: int

    @property
    def tokens(self) -> int:
        """Tokens that are computed; in the last layer the first ones of sequences alone are."""
        return self.rows * (self.length + self.most)


@functools.lru_cache(maxsize=16)
def packed_shapes(
    features: SequenceFeatures, batch_size: int, gradient_shards: int = 1
) -> tuple[Shape, ...]:
    """Returns the two shapes that batches are packed into, the smaller first; none: it saves too little.

    A function of the lengths and the sizes alone, so that every run packs alike.

    Args:
      batch_size: sequences in a batch.
      gradient_shards: equal parts of it, all packed into one shape.
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
    """Returns which sequences lie in each row: the longest first, each where least is left behind it."""
    rows: list[list[int]] = []
    space: list[tuple[int, int]] = []  # what is free in a row, and its number
    # Best fit in falling order of length.
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
      rows: int64 [batch], their numbers.
      shapes: to pack each shard into, the first that all fit; all have as long rows, with as many sequences.

    Returns:
      `input_ids`, `input_mask`, `segment_ids`: int32 [rows, length], the rows of one shard after those of
      another; and, if they are packed, those of `PACKING`, numbered within their shard. Sequences that fit
      none are not packed: each has a row, as long as the longest of them needs.
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
    """Returns to which length some sequences are padded: one of few, and not beyond the longest of all."""
    bucket = bucket_length(int(features.lengths[rows].max()))
    return min(bucket, int(features.lengths.max()))


def at_packed_tokens(
    values: np.ndarray, inputs: Mapping[str, np.ndarray], padding: int, gradient_shards: int
) -> np.ndarray:
    """Returns what stands at each token of a packed batch, as its inputs do.

    Args:
      values: [batch, length], of each token of each sequence.
      inputs: as `packed_batch` gave them; where they are not packed, each sequence has its row already.
      padding: of places without a token.
      gradient_shards: equal parts of the batch.

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
    """Returns the encoder's inputs for sequences whose places in rows are known, as from `_packed`."""
    lengths = features.lengths[rows]
    order = np.array([number for row in packed for number in row])
    counts = np.array([len(row) for row in packed])
    # Where each sequence begins among all tokens: behind those before it in its row.
    before = np.cumsum(lengths[order]) - lengths[order]
    row_of = np.repeat(np.arange(len(packed)), counts)
    first_of_row = (np.cumsum(counts) - counts)[row_of]
    begins = before - before[first_of_row]
    # Tokens in that order: of which sequence, and where in it.
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
        # -1 is the number of padding: it attends to padding alone, and no token to it.
        "sequences": filled(number, -1),
        "positions": filled(position),
        "firsts": firsts,
        "chosen": chosen,
    }
