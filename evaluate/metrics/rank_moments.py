"""Moments of mid-ranks for many replicates at once, the basis of rank metrics.

Three sums over the centred mid-ranks x of the labels and y of the predictions: joint = sum w x y, and the
spreads sum w x^2 and sum w y^2. Weights w count how often an example occurs in the sample; ranks are
those in that sample, with ties averaged.

With sorted predictions, joint is the sum over i > j of w_i x_i w_j (plus half of i = j). It is computed by
halving: products of the lower and the upper neighbour of each pair, then pairs are merged into single
entries. All steps use whole arrays; running sums would be slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import Array
from multiberts.evaluate.metrics.continuous import RELATIVE_ROUNDING

# Replicates per chunk, and the maximum of elements (examples x replicates) in memory: 64 MiB.
_REPLICATES = 64
_ELEMENTS = 2**23
# Groups of equal predictions, and rows of examples, per block.
_SEGMENT_GROUPS = 2**14
_PART_ROWS = 2**12


@dataclass(frozen=True)
class RankMoments:
    """Sums over centred mid-ranks, arrays of equal shape; spreads that are rounding errors are set to 0."""

    joint: Array
    label_spread: Array
    prediction_spread: Array


class _Groups:
    """Groups of equal values in ascending order, and the rows of their sums."""

    def __init__(self, rows: NDArray, sizes: NDArray, positions: NDArray, num_rows: int, none: int):
        """
        Args:
          rows: numbers of the examples, group by group.
          positions: row of each group's sum in arrays of `num_rows` rows.
          num_rows: number of rows, at least one per group; rows without a group are 0.
          none: number of the example whose weights are all zero.
        """
        self.num_groups = len(sizes)
        self.num_rows = num_rows
        self._single = None
        self._parts: list[tuple[NDArray, NDArray]] = []  # places [m], rows of examples [m, size]
        if (sizes == 1).all():
            single = np.full(num_rows, none, dtype=np.int32)
            single[positions] = rows
            self._single = single
            return
        starts = np.cumsum(sizes) - sizes
        for size in np.unique(sizes):
            members = np.flatnonzero(sizes == size)
            step = max(1, _PART_ROWS // size)
            for first in range(0, len(members), step):
                some = members[first : first + step]
                table = rows[starts[some][:, None] + np.arange(size)].astype(np.int32)
                for column in range(0, size, _PART_ROWS):
                    part = table[:, column : column + _PART_ROWS]
                    self._parts.append((positions[some].astype(np.int32), part))

    def sum(self, weights: Array, out: Array) -> None:
        """Writes the groups' sums of weights [examples + 1, replicates] to `out`."""
        if self._single is not None:
            np.take(weights, self._single, axis=0, out=out, mode="clip")
            return
        out[:] = 0
        for positions, rows in self._parts:
            out[positions] += weights.take(rows, axis=0).sum(axis=1)

    def sum_products(
        self, weights: Array, ranks: Array, rank_of: NDArray, sums: Array, products: Array
    ) -> None:
        """Writes the groups' sums of weights, and of weight x rank with the rank ranks[rank_of]."""
        if self._single is not None:
            np.take(weights, self._single, axis=0, out=sums, mode="clip")
            np.take(ranks, rank_of[self._single], axis=0, out=products, mode="clip")
            products *= sums
            return
        sums[:] = 0
        products[:] = 0
        for positions, rows in self._parts:
            part = weights.take(rows, axis=0)
            sums[positions] += part.sum(axis=1)
            part *= ranks.take(rank_of[rows], axis=0)
            products[positions] += part.sum(axis=1)


def _sorted_groups(values: NDArray) -> tuple[NDArray, NDArray]:
    """Returns the sort order of values, and the sizes of the groups of equal values, ascending."""
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    starts = np.flatnonzero(np.r_[True, ascending[1:] != ascending[:-1]][: len(values)])
    return order, np.diff(np.r_[starts, len(values)])


class _LabelOrder:
    """The labels' groups.

    Attributes:
      group: group of every example, and of the row of zeros [examples + 1].
    """

    def __init__(self, labels: NDArray, rows: NDArray, num_examples: int):
        """Groups the labels of the examples `rows`."""
        order, sizes = _sorted_groups(labels[rows])
        self.group = np.zeros(num_examples + 1, dtype=np.int32)
        self.group[rows[order]] = np.repeat(np.arange(len(sizes)), sizes)
        self.groups = _Groups(
            rows[order], sizes, np.arange(len(sizes)), len(sizes), none=num_examples
        )


def _segments(predictions: NDArray, rows: NDArray, num_examples: int) -> list[_Groups]:
    """Splits the predictions' groups, in ascending order, into parts that fit the cache."""
    order, sizes = _sorted_groups(predictions[rows])
    ends = np.cumsum(sizes)
    segments = []
    for first in range(0, len(sizes), _SEGMENT_GROUPS):
        some = sizes[first : first + _SEGMENT_GROUPS]
        start, stop = ends[first] - some[0], ends[first + len(some) - 1]
        segments.append(
            _Groups(
                rows[order[start:stop]],
                some,
                _positions_by_halves(len(some)),
                _padded(len(some)),
                none=num_examples,
            )
        )
    return segments


def _halvings(number: int) -> int:
    """Returns the number of halvings of `number` entries before running sums are used."""
    return max(0, int(number).bit_length() - 6)


def _padded(number: int) -> int:
    block = 1 << _halvings(number)
    return -(-number // block) * block


def _positions_by_halves(number: int) -> NDArray[np.int64]:
    """Arranges `number` ascending entries so that neighbours are half the array apart.

    The same holds after each merge of neighbours.
    """
    position = np.zeros(number, dtype=np.int64)
    entry, half = np.arange(number), _padded(number)
    for _ in range(_halvings(number)):
        half //= 2
        position += (entry & 1) * half
        entry >>= 1
    return position + entry


def _joint(weights: Array, values: Array, number: int) -> Array:
    """Sums values_i weights_j over i > j, and half of i = j; both arrays are overwritten.

    Args:
      weights: weights [rows, replicates], in the first `_padded(number)` rows.
      values: values in the shape of `weights`.
      number: number of entries, arranged by `_positions_by_halves`.
    """
    size = _padded(number)
    joint = _dot(weights[:size], values[:size]) / 2
    for _ in range(_halvings(number)):
        half = size // 2
        joint += _dot(weights[:half], values[half:size])
        weights[:half] += weights[half:size]
        values[:half] += values[half:size]
        size = half
    return joint + _dot(np.cumsum(weights[:size], axis=0)[:-1], values[1:size])


def _dot(first: Array, second: Array) -> Array:
    """Sums products per column; few columns are folded into many for speed."""
    width = first.shape[1]
    fold = _REPLICATES // width
    whole = len(first) // fold * fold
    wide = np.einsum(
        "ij,ij->j",
        first[:whole].reshape(-1, fold * width),
        second[:whole].reshape(-1, fold * width),
    )
    remainder = np.einsum("ij,ij->j", first[whole:], second[whole:])
    total: Array = wide.reshape(fold, width).sum(axis=0) + remainder
    return total


class SortedRuns:
    """Sorts labels and predictions once, for any number of replicates."""

    def __init__(
        self, labels: NDArray, predictions: NDArray, observed: NDArray | None, both_spreads: bool
    ):
        """
        Args:
          observed: bool [runs, examples], False for missing predictions; None if none is missing.
          both_spreads: whether to compute the predictions' spread; otherwise it is 0.
        """
        self._both_spreads = both_spreads
        self.num_examples = number = len(labels)
        everything = np.arange(number)
        shared = _LabelOrder(labels, everything, number)
        self._runs: list[tuple[_LabelOrder, list[_Groups]]] = []
        for row, values in enumerate(predictions):
            label_order, rows = shared, everything
            if observed is not None and not observed[row].all():
                rows = np.flatnonzero(observed[row])
                label_order = _LabelOrder(labels, rows, number)
            self._runs.append((label_order, _segments(values, rows, number)))
        # Arrays by example, and three by group of labels.
        elements = number + 3 * max(order.groups.num_groups for order, _ in self._runs)
        # Powers of two, and a filled last chunk, so that all replicates are summed in the same order.
        self._chunk = _REPLICATES
        while self._chunk > 1 and self._chunk * elements > _ELEMENTS:
            self._chunk //= 2

    @property
    def num_runs(self) -> int:
        return len(self._runs)

    def moments(self, table: NDArray) -> Iterator[tuple[slice, RankMoments]]:
        """Computes weighted moments, in chunks of replicates.

        Args:
          table: weights [replicates, examples].

        Yields:
          A slice of replicates, and moments [replicates or more, runs]; further rows are padding.
        """
        columns = np.empty((self.num_examples + 1, self._chunk))
        for start in range(0, len(table), self._chunk):
            part = table[start : start + self._chunk]
            columns[:] = 0
            columns[:-1, : len(part)] = part.T
            yield slice(start, start + len(part)), self._of_columns(columns)

    def _of_columns(self, weights: Array) -> RankMoments:
        """Computes moments [replicates, runs] from weights [examples + 1, replicates]."""
        moments = np.empty((3, self._chunk, len(self._runs)))
        most = max((s.num_rows for _, segments in self._runs for s in segments), default=0)
        sums, products = np.empty((2, most, self._chunk))
        labels: _WeightedLabels | None = None
        for run, (label_order, segments) in enumerate(self._runs):
            if labels is None or labels.order is not label_order:
                labels = _WeightedLabels(label_order, weights)
            joint, cubes, below = np.zeros((3, self._chunk))
            for groups in segments:
                size = groups.num_rows
                groups.sum_products(
                    weights, labels.ranks, label_order.group, sums[:size], products[:size]
                )
                if self._both_spreads:
                    cubes += _cubes(sums[:size])
                joint += _joint(sums, products, groups.num_groups)
                # `_joint` has merged both arrays into a few rows.
                merged = size >> _halvings(groups.num_groups)
                joint += products[:merged].sum(axis=0) * below
                below += sums[:merged].sum(axis=0)
            moments[0, :, run] = joint
            moments[1, :, run] = labels.spread
            moments[2, :, run] = _spread(labels.total, cubes) if self._both_spreads else 0
        return RankMoments(*moments)


class _WeightedLabels:
    """Ranks of the labels under weights [examples + 1, replicates].

    Attributes:
      ranks: centred mid-ranks [groups, replicates].
      spread: spread of the labels' ranks [replicates].
    """

    def __init__(self, order: _LabelOrder, weights: Array):
        self.order = order
        groups = np.empty((order.groups.num_groups, weights.shape[1]))
        order.groups.sum(weights, groups)
        self.ranks = np.cumsum(groups, axis=0)
        self.total = self.ranks[-1].copy() if len(groups) else np.zeros(weights.shape[1])
        self.spread = _spread(self.total, _cubes(groups))
        self.ranks -= self.total / 2
        groups /= 2
        self.ranks -= groups


def _cubes(weights: Array) -> Array:
    centred: Array = np.einsum("ij,ij,ij->j", weights, weights, weights)
    return centred


def _spread(total: Array, cubes: Array) -> Array:
    """Computes the sum of squared centred mid-ranks from the groups' cubed weights."""
    whole = total * total * total
    spread = whole - cubes
    return np.where(spread > RELATIVE_ROUNDING * whole, spread, 0.0) / 12
