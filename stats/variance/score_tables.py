"""Tables of scores [seeds, examples], whole or in blocks, and their deviations.

All functions process tables in blocks, so that a table of a million examples is never in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.errors import DataError

Array = NDArray[np.float64]

# Number of elements per block cut from an array: 2 MiB.
_BLOCK_ELEMENTS = 2**18
_NONE = np.zeros((0, 0))


@dataclass(frozen=True)
class ScoreTable:
    """Scores [R, C] that are computed in blocks.

    Attributes:
      shape: numbers of seeds and examples.
      blocks: function that yields blocks [R, c] in the order of the examples.
    """

    shape: tuple[int, int]
    blocks: Callable[[], Iterator[Array]]

    @cached_property
    def deviations(self) -> Deviations:
        """Returns the deviations, cached for several sums of the table."""
        return deviations(self)


Scores = ArrayLike | ScoreTable


def score_table(scores: Scores) -> ScoreTable:
    """Converts an array [R, C] of any real dtype to a table; returns a table unchanged."""
    values = np.empty(0) if isinstance(scores, ScoreTable) else np.asarray(scores)
    shape = scores.shape if isinstance(scores, ScoreTable) else values.shape
    if len(shape) != 2 or 0 in shape:
        raise DataError(f"found scores of shape {shape}, expected [seeds, examples]")
    if isinstance(scores, ScoreTable):
        return scores
    step = max(1, _BLOCK_ELEMENTS // shape[0])

    def blocks() -> Iterator[Array]:
        for start in range(0, shape[1], step):
            yield np.asarray(values[:, start : start + step], dtype=np.float64)

    return ScoreTable((shape[0], shape[1]), blocks)


def summed_table(tables: Sequence[ScoreTable], weights: Sequence[float]) -> ScoreTable:
    """Returns a weighted sum of tables of one shape; their blocks may have different widths."""

    def blocks() -> Iterator[Array]:
        for group in aligned_blocks(*tables):
            total = weights[0] * group[0]
            for weight, block in zip(weights[1:], group[1:], strict=True):
                total += weight * block
            yield total

    return ScoreTable(tables[0].shape, blocks)


def rows_of(table: ScoreTable, rows: Sequence[int]) -> ScoreTable:
    chosen = list(rows)
    return ScoreTable(
        (len(chosen), table.shape[1]), lambda: (block[chosen] for block in table.blocks())
    )


def aligned_blocks(*tables: ScoreTable) -> Iterator[tuple[Array, ...]]:
    """Yields aligned blocks of several tables, cut at all ends of blocks."""
    numbers = [table.shape[1] for table in tables]
    if len(set(numbers)) > 1:
        raise DataError(
            f"base has {numbers[0]} examples and experiment {numbers[-1]}, expected the same"
        )
    sources = [table.blocks() for table in tables]
    blocks = [next(source) for source in sources]
    done = 0
    while True:
        width = min(block.shape[1] for block in blocks)
        yield tuple(block[:, :width] for block in blocks)
        done += width
        if done == numbers[0]:
            return
        for number, source in enumerate(sources):
            blocks[number] = blocks[number][:, width:] if blocks[number].shape[1] > width else _NONE
            if not blocks[number].size:  # free the old block before the next one is made
                blocks[number] = next(source)


@dataclass(frozen=True)
class Deviations:
    """Parts of a table X [R, C] = mean + seed + example + residual.

    Only the sum of squares of the residual d is kept.

    Attributes:
      mean: grand mean.
      seed: deviations of seeds [R].
      example: deviations of examples [C].
      residual_squares: sum of squared residuals.
    """

    mean: float
    seed: Array
    example: Array
    residual_squares: float

    @property
    def size(self) -> int:
        return len(self.seed) * len(self.example)


def deviations(scores: Scores) -> Deviations:
    """Splits scores [R, C] into their parts in two passes over the blocks."""
    table = score_table(scores)
    mean, seed, example = _marginal_deviations(table)
    seed_squares = np.zeros_like(seed)
    for residual in _residual_blocks(table, mean, seed, example):
        seed_squares += (residual * residual).sum(axis=1)
    if not np.isfinite(mean + seed_squares.sum()):
        raise DataError(
            "found scores that are NaN or infinite (or too large to square), expected numbers; leave "
            "out runs that diverged"
        )
    return Deviations(mean, seed, example, float(seed_squares.sum()))


def _marginal_deviations(table: ScoreTable) -> tuple[float, Array, Array]:
    """Computes the grand mean, and the deviations of seeds [R] and examples [C] from it."""
    num_seeds, num_examples = table.shape
    sums, example = np.zeros(num_seeds), np.empty(num_examples)
    start, first = 0, None
    for block in table.blocks():
        # Subtract the first value, so that a constant table has no rounding errors.
        first = block[0, 0] if first is None else first
        shifted = block - first
        sums += shifted.sum(axis=1)
        example[start : start + block.shape[1]] = shifted.mean(axis=0)
        start += block.shape[1]
    if start != num_examples:
        raise DataError(
            f"found blocks of {start} examples in total, expected {num_examples} by the table's shape"
        )
    means = sums / num_examples
    mean = means.mean()
    return float(cast(float, first) + mean), means - mean, example - mean


def _residual_blocks(
    table: ScoreTable, mean: float, seed: Array, example: Array
) -> Iterator[Array]:
    """Yields blocks [R, c] of the residual."""
    start = 0
    for block in table.blocks():
        expected = example[start : start + block.shape[1]] + mean
        residual = block - expected
        residual -= seed[:, None]
        start += block.shape[1]
        del block, expected  # free the block while the residual is used
        yield residual
        del residual


def clustered_table(scores: Scores, clusters: ArrayLike) -> Array:
    """Reduces a table to one column per cluster of examples.

    If whole clusters are drawn, the score of seed i is a ratio: the sum of the clusters' scores over the
      sum of their sizes. Its linear part gives cluster g the value mean_i + (G / C) sum_{j in g} (X_ij -
      mean_i). For clusters of equal size this value is the mean of the cluster.

    Args:
      scores: scores [R, C].
      clusters: cluster of each example, numbers or strings [C].

    Returns:
      Values, float64 [R, G], with clusters in sorted order. Their mean over clusters is the mean over
      examples.
    """
    table = score_table(scores)
    num_seeds, num_examples = table.shape
    names, codes = np.unique(np.asarray(clusters), return_inverse=True)
    if codes.shape != (num_examples,):
        raise DataError(
            f"found clusters of shape {codes.shape}, expected one for each of {num_examples} examples"
        )
    if len(names) < 2:
        raise DataError("found one cluster of examples, expected several; give finer clusters")
    mean, seed, _ = _marginal_deviations(table)
    result = np.zeros((num_seeds, len(names)))
    start = 0
    for block in table.blocks():
        members = codes[start : start + block.shape[1]]
        for sums, values, seed_mean in zip(result, block, mean + seed, strict=True):
            np.add.at(sums, members, values - seed_mean)
        start += block.shape[1]
    result *= len(names) / num_examples
    return result + (mean + seed)[:, None]


@dataclass(frozen=True)
class TablePart:
    """A weighted table in a sum of tables.

    Attributes:
      table: scores [R, C].
      weight: factor of the table in the sum.
      pool: name of the pool of its seeds; None if they are held fixed.
      examples: name of the set of its examples (or clusters); None if they are held fixed.
      scored: numbers of examples of each ratio in the scores, if not all examples are used, such as the
        positives of a recall.
      sizes: number of examples of each cluster [C]; None if there are no clusters.
    """

    table: ScoreTable
    weight: float
    pool: str | None
    examples: str | None
    scored: tuple[float, ...] = ()
    sizes: Array | None = None
