"""How a training batch is cut into parts of like length, so that short rows are not padded to the longest.

In a batch of random rows one is nearly always long, and padding all to it doubles the work. So a batch
is sorted by length and cut into a few parts, each padded to a length of its own, all in one compiled
step: the loss is that of the whole batch, and every row keeps its dropout bits, so nothing changes but
the last bits of sums.

A step must be compiled for every new layout, so there are two only: the one that is best on average,
chosen by the lengths of the training data, and a single part as long as the longest row for the
batches that do not fit it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from multiberts.bert.randomness import generator
from multiberts.finetune.features import SequenceFeatures, sequence_batch

# (rows, length) of each part, the shortest rows first.
Layout = tuple[tuple[int, int], ...]

# Fewer rows per part leave a processor idle between small products.
_LEAST_ROWS = 8
# Each part makes the step longer to compile; a third would save less than that in twenty short runs.
_MOST_PARTS = 2
# Parts end at multiples of this: finer lengths would save little.
_LENGTH_STEP = 8
_NUM_SAMPLES = 256
# What is left of the work, for a second part to be worth its compilation.
_WORTH_IT = 0.9
# How many of the batches fit, where a part is as long as this share of the batches need.
_SHARES = (0.8, 0.9, 0.95, 0.98, 1.0)

PARTS = "input_ids_"


def layouts(features: SequenceFeatures, batch_size: int) -> tuple[Layout, Layout]:
    """Returns the usual layout of a batch, and one that every batch fits.

    A function of the lengths and the batch size alone, so that every run cuts alike.
    """
    return _layouts(features.lengths.tobytes(), batch_size)


@functools.lru_cache(maxsize=16)
def _layouts(lengths_bytes: bytes, batch_size: int) -> tuple[Layout, Layout]:
    lengths = np.frombuffer(lengths_bytes, np.int32)
    whole: Layout = ((batch_size, int(lengths.max())),)
    drawn = generator("batch layout").choice(lengths, (_NUM_SAMPLES, batch_size))
    drawn = np.sort(drawn, axis=1)  # [samples, batch]

    def mean_tokens(layout: Layout) -> float:
        """Returns expected size of a batch, padding included."""
        share = _fits(drawn, layout).mean()
        return float(share * _tokens(layout) + (1 - share) * _tokens(whole))

    best = min([whole, *_candidates(drawn, whole[0][1])], key=mean_tokens)
    return (best if mean_tokens(best) < _WORTH_IT * _tokens(whole) else whole), whole


def _padded(length: np.ndarray) -> np.ndarray:
    return -(-length.astype(int) // _LENGTH_STEP) * _LENGTH_STEP


def _candidates(drawn: np.ndarray, longest: int) -> Iterator[Layout]:
    """Returns layouts of up to `_MOST_PARTS` parts that most of the drawn batches fit."""
    batch_size = drawn.shape[1]
    cuts = range(_LEAST_ROWS, batch_size - _LEAST_ROWS + 1, max(1, batch_size // 16))
    for number in range(1, _MOST_PARTS):
        for inner in itertools.combinations(cuts, number):
            ends = np.array([*inner, batch_size])
            rows = np.diff(ends, prepend=0)
            if rows.min() < _LEAST_ROWS:
                continue
            for share in _SHARES:
                needed = np.quantile(drawn[:, ends - 1], share, axis=0, method="higher")
                shorter = _padded(needed)[:-1].tolist()
                # The longest part is as long as any batch may need: it is often full anyway.
                yield tuple(zip(rows.tolist(), [*shorter, longest], strict=True))


def _fits(lengths: np.ndarray, layout: Layout) -> np.ndarray:
    """Returns bool [...]: whether sorted batches [..., batch] fit."""
    ends = np.cumsum([rows for rows, _ in layout])
    found: np.ndarray = np.all(lengths[..., ends - 1] <= [length for _, length in layout], axis=-1)
    return found


def _tokens(layout: Layout) -> int:
    return sum(rows * length for rows, length in layout)


def parted_batch(
    features: SequenceFeatures, rows: np.ndarray, choice: tuple[Layout, Layout]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns the encoder's inputs for a batch, in parts.

    Args:
      features: all sequences.
      rows: int64 [batch].
      choice: the usual layout and the one that everything fits.

    Returns:
      For each part n `input_ids_<n>`, `input_mask_<n>`, `segment_ids_<n>`: int32 [rows, length], and
      `places_<n>`: uint32 [rows], where each row stands in the batch; and the places of all parts
      in one array, int64 [batch].
    """
    lengths = features.lengths[rows]
    order = np.argsort(lengths, kind="stable")
    usual, whole = choice
    layout = usual if _fits(lengths[order], usual) else whole
    if len(layout) == 1:
        order = np.arange(len(rows))
    batch: dict[str, np.ndarray] = {}
    first = 0
    for number, (count, length) in enumerate(layout):
        places = order[first : first + count]
        part = sequence_batch(features, rows[places], length)
        batch.update({f"{name}_{number}": values for name, values in part.items()})
        batch[f"places_{number}"] = places.astype(np.uint32)
        first += count
    return batch, order


def parts_of(batch: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, Any, Any], Any]]:
    """((input_ids, input_mask, segment_ids), places) of each part of `parted_batch`."""
    for number in range(sum(name.startswith(PARTS) for name in batch)):
        names = ("input_ids", "input_mask", "segment_ids")
        ids, mask, segments = (batch[f"{name}_{number}"] for name in names)
        yield (ids, mask, segments), batch[f"places_{number}"]
