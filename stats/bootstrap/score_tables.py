"""Tables of scores [seeds, examples], whole or in blocks, and what they are made of.

Everything here goes over a table block by block, so that a table of a million examples need never
be in memory whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.bootstrap.arms import DataError

Array = NDArray[np.float64]
# What is resampled; the other is held fixed.
Resample = Literal["both", "seeds", "examples"]

# Numbers of a block that is cut from an array: 2 MiB.
_BLOCK_ELEMENTS = 2**18


@runtime_checkable
class ScoreTable(Protocol):
    """Scores [R, C] that are made block by block."""

    @property
    def shape(self) -> tuple[int, int]:
        """Seeds and examples."""

    def blocks(self) -> Iterator[Array]:
        """Blocks [R, c], in order over the examples; every call starts afresh."""


Scores = ArrayLike | ScoreTable


@dataclass(frozen=True)
class ArrayTable:
    """An array [R, C] as a `ScoreTable`; a block is float64 whatever the array is.

    Attributes:
      values: [R, C], any real dtype.
      block_size: examples of a block.
    """

    values: NDArray
    block_size: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def blocks(self) -> Iterator[Array]:
        for start in range(0, self.values.shape[1], self.block_size):
            yield np.asarray(self.values[:, start : start + self.block_size], dtype=np.float64)


@dataclass(frozen=True)
class SumTable:
    """A weighted sum of tables of one shape; their blocks may have different widths."""

    tables: tuple[ScoreTable, ...]
    weights: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.tables[0].shape

    def blocks(self) -> Iterator[Array]:
        for blocks in aligned_blocks(*self.tables):
            total = self.weights[0] * blocks[0]
            for weight, block in zip(self.weights[1:], blocks[1:], strict=True):
                total += weight * block
            yield total


def score_table(scores: Scores) -> ScoreTable:
    """An array [R, C] as a table; a table stays what it is.

    Raises:
      DataError: not two axes, or nothing in it.
    """
    if isinstance(scores, ScoreTable):
        table: ScoreTable = scores
        shape: tuple[int, ...] = table.shape
    else:
        values = np.asarray(scores)
        shape = values.shape
        table = ArrayTable(values, max(1, _BLOCK_ELEMENTS // max(1, shape[0] if shape else 1)))
    if len(shape) != 2 or 0 in shape:
        raise DataError(f"found scores of shape {shape}, expected [seeds, examples]")
    return table


def difference_table(base: Scores, experiment: Scores) -> ScoreTable:
    """experiment - base of two tables of the same seeds and examples.

    Raises:
      DataError: their shapes differ.
    """
    first, second = score_table(base), score_table(experiment)
    if first.shape != second.shape:
        raise DataError(
            f"found scores of shape {first.shape} and {second.shape} to pair, expected the same; "
            "keep the seeds and examples that both sides have"
        )
    return SumTable((second, first), (1.0, -1.0))


def aligned_blocks(*tables: ScoreTable) -> Iterator[tuple[Array, ...]]:
    """Blocks of several tables over the same examples, cut where any of them ends a block.

    Raises:
      DataError: the tables have different numbers of examples.
    """
    numbers = [table.shape[1] for table in tables]
    if len(set(numbers)) > 1:
        raise DataError(
            f"base has {numbers[0]} examples and experiment {numbers[-1]}, expected the same"
        )
    sources = [table.blocks() for table in tables]
    held = [next(source) for source in sources]
    done = 0
    while True:
        width = min(block.shape[1] for block in held)
        yield tuple(block[:, :width] for block in held)
        done += width
        if done == numbers[0]:
            return
        held = [
            block[:, width:] if block.shape[1] > width else next(source)
            for block, source in zip(held, sources, strict=True)
        ]


@dataclass(frozen=True)
class Deviations:
    """A table X [R, C] taken apart: X = mean + seed + example + residual.

    The residual itself is not kept, only its sums that moments are made of.

    Attributes:
      mean: the grand mean.
      seed: deviations r of seeds [R].
      example: deviations c of examples [C].
      seed_squares: sum over examples of the squared residual d [R].
      example_squares: the sum of it over seeds [C].
      products: sum over seeds of r d [C].
      residual_cubes: sum of d**3.
    """

    mean: float
    seed: Array
    example: Array
    seed_squares: Array
    example_squares: Array
    products: Array
    residual_cubes: float

    @property
    def residual_squares(self) -> float:
        """Sum of d**2."""
        return float(self.seed_squares.sum())

    @property
    def size(self) -> int:
        """Seeds times examples."""
        return len(self.seed) * len(self.example)


def deviations(scores: Scores) -> Deviations:
    """Takes scores [R, C] apart, in two passes over their blocks.

    Raises:
      DataError: not two axes, or nothing in it.
    """
    table = score_table(scores)
    mean, seed, example = _marginal_deviations(table)
    seed_squares = np.zeros_like(seed)
    example_squares, products = np.empty_like(example), np.empty_like(example)
    cubes, start = 0.0, 0
    for residual in _residual_blocks(table, mean, seed, example):
        columns = slice(start, start + residual.shape[1])
        products[columns] = seed @ residual
        squares = residual * residual
        seed_squares += squares.sum(axis=1)
        example_squares[columns] = squares.sum(axis=0)
        cubes += float(np.vdot(squares, residual))
        start += residual.shape[1]
    return Deviations(mean, seed, example, seed_squares, example_squares, products, cubes)


def _marginal_deviations(table: ScoreTable) -> tuple[float, Array, Array]:
    """The grand mean, and the deviations of seeds [R] and examples [C] from it."""
    num_seeds, num_examples = table.shape
    sums, example = np.zeros(num_seeds), np.empty(num_examples)
    start, first = 0, None
    for block in table.blocks():
        # Less one of the values, so that a table without spread has none after rounding either.
        first = block[0, 0] if first is None else first
        shifted = block - first
        sums += shifted.sum(axis=1)
        example[start : start + block.shape[1]] = shifted.mean(axis=0)
        start += block.shape[1]
    if start != num_examples:
        raise DataError(
            f"found blocks of {start} examples in all, expected {num_examples} as the table's "
            "shape says"
        )
    means = sums / num_examples
    mean = means.mean()
    return float(cast(float, first) + mean), means - mean, example - mean


def _residual_blocks(
    table: ScoreTable, mean: float, seed: Array, example: Array
) -> Iterator[Array]:
    """Blocks [R, c] of what is left beside mean, seeds and examples."""
    start = 0
    for block in table.blocks():
        expected = example[start : start + block.shape[1]] + mean
        residual = block - expected
        residual -= seed[:, None]
        start += block.shape[1]
        yield residual


@dataclass(frozen=True)
class ResidualTable:
    """What is left of a table beside grand mean, seeds and examples, as a table."""

    table: ScoreTable
    parts: Deviations

    @property
    def shape(self) -> tuple[int, int]:
        return self.table.shape

    def blocks(self) -> Iterator[Array]:
        return _residual_blocks(self.table, self.parts.mean, self.parts.seed, self.parts.example)


def clustered_table(scores: Scores, clusters: ArrayLike) -> Array:
    """One column a cluster of examples, for everything that takes a table of scores.

    The score of seed i is a ratio once whole clusters are drawn: the sum over the clusters' scores
    by the sum of their sizes. Its linear part gives cluster g the value
    mean_i + (G / C) sum_{j in g} (X_ij - mean_i). With clusters of one size that is the mean of the
    cluster, exactly.

    Args:
      scores: [R, C].
      clusters: the cluster of each example [C], numbers or strings.

    Returns:
      float64 [R, G], clusters in sorted order. Its mean over clusters is the mean over examples.

    Raises:
      DataError: not one cluster an example, or a single cluster.
    """
    table = score_table(scores)
    num_seeds, num_examples = table.shape
    names, codes = np.unique(np.asarray(clusters), return_inverse=True)
    if codes.shape != (num_examples,):
        raise DataError(
            f"found clusters of shape {codes.shape} for {num_examples} examples, expected one "
            "cluster an example"
        )
    if len(names) < 2:
        raise DataError(
            "found one cluster of examples, and its spread cannot be known; give finer clusters"
        )
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
class Part:
    """One table of a sum.

    Attributes:
      table: scores [R, C].
      weight: its factor in the sum.
      pool: where its seeds are drawn from; None where they are fixed.
      examples: where its examples (or clusters) are drawn from; None where they are fixed.
    """

    table: ScoreTable
    weight: float
    pool: str | None
    examples: str | None
