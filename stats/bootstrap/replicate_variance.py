"""The unbiased variance estimate of every bootstrap replicate, for the studentised interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.score_tables import (
    Array,
    Deviations,
    Part,
    Resample,
    ResidualTable,
    Scores,
    aligned_blocks,
    deviations,
    score_table,
)

# Elements of [replicates, examples] that are worked on at a time: 4 MiB.
_CHUNK_ELEMENTS = 2**19
_ROUNDING = 16 * float(np.finfo(np.float64).eps)


def replicate_variances(
    tables: Sequence[Scores],
    seed_counts: Sequence[NDArray] | None,
    example_counts: NDArray | Sequence[NDArray] | None,
    resample: Resample = "both",
) -> Array:
    """`unbiased_variance` of each bootstrap replicate's own table, by products of counts.

    The replicate's table holds seed i as often as it was drawn, and so each example; it is never
    made. Products of the counts with the residuals give the means of its seeds and of its examples,
    one with the squared residuals the rest.

    Args:
      tables: one table [R, C] (of the difference where seeds are paired), or base and experiment
        with seeds of their own.
      seed_counts: how often each seed was drawn, [B, R] for each table, a row's sum R; None where
        seeds are held fixed.
      example_counts: how often each example was drawn [B, C], a row's sum C; a pair of such
        arrays where base and experiment draw examples of their own; None where examples are
        held fixed.
      resample: what varies, as in `unbiased_variance`.

    Returns:
      float64 [B]. 0 where a replicate drew one seed only, or one example only, and this alone
      varies.

    Raises:
      DataError: what is resampled has one level only, or the counts do not fit the tables.
    """
    arms = len(tables)
    for what, counts, fixed in (
        ("seed", seed_counts, resample == "examples"),
        ("example", example_counts, resample == "seeds"),
    ):
        if counts is not None and fixed:
            raise DataError(
                f"found {what} counts with resample={resample!r}, expected None as {what}s are "
                "held fixed"
            )
    seed_draws, example_draws = {}, {}
    pools = [None if resample == "examples" else f"seeds {position}" for position in range(arms)]
    if seed_counts is not None:
        seed_draws = {f"seeds {position}": counts for position, counts in enumerate(seed_counts)}
    sets: list[str | None] = [None if resample == "seeds" else "examples"] * arms
    if isinstance(example_counts, np.ndarray):
        example_draws = {"examples": example_counts}
    elif example_counts is not None:
        sets = [f"examples {position}" for position in range(arms)]
        example_draws = {
            f"examples {position}": counts for position, counts in enumerate(example_counts)
        }
    signs = [-1.0, 1.0] if arms == 2 else [1.0]
    parts = [
        Part(score_table(table), sign, pool, name)
        for table, sign, pool, name in zip(tables, signs, pools, sets, strict=True)
    ]
    return crossed_replicate_variances(
        parts, [deviations(part.table) for part in parts], seed_draws, example_draws
    )


def crossed_replicate_variances(
    parts: Sequence[Part],
    parts_deviations: Sequence[Deviations],
    seed_counts: Mapping[str, NDArray],
    example_counts: Mapping[str, NDArray],
) -> Array:
    """`Crossing.unbiased_variance` of each bootstrap replicate's own tables.

    Args:
      parts: the tables of a sum.
      parts_deviations: of each, taken apart.
      seed_counts: by pool, how often each seed was drawn [B, R].
      example_counts: by set, how often each example was drawn [B, C].

    Returns:
      float64 [B]. A pool or set of which a replicate drew one member only adds nothing.
    """
    drawn = [*seed_counts.values(), *example_counts.values()]
    number = max((len(counts) for counts in drawn), default=1)
    arms = []
    for part, found in zip(parts, parts_deviations, strict=True):
        weights = _checked_counts("seed", seed_counts.get(part.pool or ""), len(found.seed))
        arms.append(_ReplicateArm(part, found, weights, number))
    examples = np.zeros(number)
    for arm in arms:
        if arm.part.examples is None:
            _gather([arm], None, number)  # for its seeds alone
    for name in dict.fromkeys(part.examples for part in parts):
        if name is not None:
            members = [arm for arm in arms if arm.part.examples == name]
            size = len(members[0].deviations.example)
            counts = _checked_counts("example", example_counts.get(name), size)
            examples += _gather(members, counts, number)
    seeds = np.zeros(number)
    for pool in dict.fromkeys(part.pool for part in parts):
        if pool is not None:
            seeds += _seed_term([arm for arm in arms if arm.part.pool == pool])
    rest = np.zeros(number)
    for arm in arms:
        if arm.part.pool is not None and arm.part.examples is not None:
            rest += arm.part.weight**2 * arm.residual_term()
    return np.maximum(seeds + examples - rest, np.maximum(seeds, examples))


def _seed_term(arms: Sequence[_ReplicateArm]) -> Array:
    """The seeds' term [B] of tables that share their pool."""
    weights, number = arms[0].weights, arms[0].num_seeds
    means = sum((arm.part.weight * arm.seed_means() for arm in arms), np.zeros((1, number)))
    centre = (weights * means).sum(axis=1, keepdims=True) / number
    squares = (weights * (means - centre) ** 2).sum(axis=1)
    # What rounding leaves where all seeds that were drawn have one mean is no spread.
    size = sum(
        abs(arm.part.weight * (arm.deviations.mean + arm.deviations.seed)).max() for arm in arms
    )
    squares[squares <= number * (_ROUNDING * size) ** 2] = 0.0
    return squares / (number * max(1, number - 1))


class _ReplicateArm:
    """One table, and sums over the examples drawn that are gathered block by block."""

    def __init__(self, part: Part, found: Deviations, weights: NDArray | None, number: int) -> None:
        self.part = part
        self.deviations = found
        self.residuals = ResidualTable(part.table, found)
        self.num_seeds, self.num_examples = part.table.shape
        self.weighted = weights is not None
        self.weights = np.ones((1, self.num_seeds))  # [B or 1, R]
        if weights is not None:
            self.weights = weights.astype(np.float64)
        self.seed_sums = np.zeros((number, self.num_seeds))  # of the residual
        self.seed_squares = np.zeros((number, self.num_seeds))  # of the squared residual
        self.example_squares = np.zeros(number)  # of the squared mean residual of an example

    def add(self, residual: Array, counts: Array | None) -> Array | float:
        """Takes in residuals [R, c] drawn `counts` [B, c] times; their means by example [B, c]."""
        if counts is None:
            # Residuals sum to zero over all examples, each once.
            self.seed_squares += (residual**2).sum(axis=1)
        else:
            self.seed_sums += counts @ residual.T
            self.seed_squares += counts @ (residual**2).T
        if not self.weighted:
            return 0.0  # and over all seeds, each once
        means = self.weights @ residual
        means /= self.num_seeds
        self.example_squares += _drawn_sum(counts, means**2)
        return means

    def seed_means(self) -> Array:
        """How the seeds deviate on the examples drawn [B, R]."""
        return self.deviations.seed + self.seed_sums / self.num_examples

    def residual_term(self) -> Array:
        means = self.seed_sums / self.num_examples
        centre = (self.weights * means).sum(axis=1) / self.num_seeds
        squares = (self.weights * self.seed_squares).sum(axis=1)
        squares -= self.num_examples * (self.weights * means**2).sum(axis=1)
        squares -= self.num_seeds * self.example_squares
        squares += self.deviations.size * centre**2
        freedom = (self.num_seeds - 1) * (self.num_examples - 1)
        return np.maximum(squares, 0.0) / (freedom * self.deviations.size)


def _gather(arms: Sequence[_ReplicateArm], counts: NDArray | None, number: int) -> Array:
    """Goes over the examples of arms that share them, and gives their examples' term [B]."""
    num_examples = arms[0].num_examples
    total, squares = np.zeros(number), np.zeros(number)
    width = max(1, _CHUNK_ELEMENTS // number)
    start = 0
    for blocks in aligned_blocks(*(arm.residuals for arm in arms)):
        for first in range(0, blocks[0].shape[1], width):
            columns = slice(start + first, start + min(first + width, blocks[0].shape[1]))
            chunk = None if counts is None else counts[:, columns].astype(np.float64)
            means: Array | float = 0.0
            for arm, block in zip(arms, blocks, strict=True):
                drawn = arm.add(block[:, first : first + width], chunk)
                means = means + arm.part.weight * (arm.deviations.example[columns] + drawn)
            means = np.atleast_2d(means)
            total += _drawn_sum(chunk, means)
            squares += _drawn_sum(chunk, means**2)
        start += blocks[0].shape[1]
    spread = squares - total**2 / num_examples
    squares = np.where(spread > _ROUNDING * squares, spread, 0.0)
    return squares / (num_examples * max(1, num_examples - 1))


def _drawn_sum(counts: Array | None, values: Array) -> Array:
    """Sums over examples of `values` [B or 1, c], each as often as it was drawn."""
    if counts is None:
        return values.sum(axis=1)
    return np.einsum("bc,bc->b", counts, np.broadcast_to(values, counts.shape))


def _checked_counts(what: str, counts: NDArray | None, number: int) -> NDArray | None:
    if counts is None:
        return None
    array = np.asarray(counts)
    if array.ndim != 2 or array.shape[1] != number or array[0].sum() != number:
        raise DataError(
            f"found {what} counts of shape {array.shape}, expected [replicates, {number}] with "
            f"rows that sum to {number}"
        )
    return array
