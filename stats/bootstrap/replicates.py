"""The Multi-Bootstrap: draws of seeds and examples, and scores of the replicates.

A known metric is scored by a product of the counts (how often each example was drawn) and its columns,
block by block, which bounds the memory for a million examples. Other functions are called once per
replicate. Draws do not depend on the size of blocks or the number of replicates in memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.ranks import RankMetric
from multiberts.stats.metrics import FunctionMetric, MetricLike, ScoreFunction
from multiberts.stats.runs_table import Arm
from multiberts.stats.settings import ComparisonSettings

# Bytes of counts in memory (one byte per example and replicate).
_CHUNK_BYTES = 2**24
# Elements of a block in a product: of columns, and of counts converted to floats.
_BLOCK_ELEMENTS = 2**21
# Examples of a block if sums are exact in any order: its counts fit into the cache as floats.
_EXACT_BLOCK = 2**16
# Bytes up to which columns are cached; larger ones are computed once per chunk.
_BYTES_IN_MEMORY = 2**26
# Largest integer up to which float32 is exact; it is twice as fast as float64.
_EXACT_FLOAT32 = 2**24


@dataclass(frozen=True)
class ScoreJob:
    """A score to bootstrap: the mean over an arm's seeds.

    Attributes:
      arm: runs of the arm on one set of examples.
      pool: name of the pool of seeds; jobs with the same pool share its draws. None: seeds are held fixed.
      examples: name of the set of examples; jobs with the same set share its draws. None: held fixed.
    """

    arm: Arm
    score: MetricLike
    pool: str | None
    examples: str | None
    # Cache of `bootstrap` by bootstrap seed and number of replicates. Keyed draws do not depend on other
    # jobs, so an arm of many comparisons is scored once.
    replicates: dict[tuple[int, int], tuple[NDArray[np.float64], NDArray[np.bool_]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @cached_property
    def run_scores(self) -> Columns | _RankScores | FunctionScores:
        """Returns the function that scores the runs; cached, because it sorts or stores data."""
        if isinstance(self.score, Metric):
            return Columns(self.arm, self.score)
        if isinstance(self.score, FunctionMetric):
            return FunctionScores(self.arm, self.score.function)
        return _RankScores(self.arm, self.score)

    def by_seed(self, counts: NDArray | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Scores every seed as the mean of its runs.

        Args:
          counts: number of draws of each example or cluster [size, units]; None: one each.

        Returns:
          Scores, and whether they are 0/0, both [size, seeds].
        """
        weights = self.arm.seed_weights  # [runs, seeds]
        scores, degenerate = self.run_scores(counts)  # [size, runs] each
        return scores @ weights, degenerate @ (weights > 0)

    @cached_property
    def plain(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Returns `by_seed` on all examples."""
        return self.by_seed(None)

    def __call__(self, chunk: Chunk) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Averages scores over the drawn seeds; also returns whether any drawn run was 0/0."""
        if isinstance(self.run_scores, FunctionScores):
            return self._by_function(chunk, self.run_scores)
        if self.examples is None:
            scores, degenerate = self.plain
        else:
            scores, degenerate = self.by_seed(chunk.counts[self.examples])
        number = len(self.arm.seeds)
        drawn = np.ones((chunk.size, number)) if self.pool is None else chunk.seed_counts(self.pool)
        undefined = np.asarray(((drawn > 0) & degenerate).any(axis=1))
        return (drawn * scores).sum(axis=1) / number, undefined

    def _by_function(
        self, chunk: Chunk, run_scores: FunctionScores
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Calls a function for each run of each drawn seed, with the examples in drawn order."""
        weights, values = self.arm.seed_weights, np.empty(chunk.size)
        everything, scores = np.arange(self.arm.num_examples), dict[int, float]()
        for replicate in range(chunk.size):
            chosen = everything
            if self.examples is not None:
                chosen, scores = run_scores.members(chunk.indices[self.examples][replicate]), {}
            drawn = list(range(len(self.arm.seeds)))
            if self.pool is not None:
                drawn = chunk.seeds[self.pool][replicate].tolist()
            for seed in dict.fromkeys(drawn):
                if seed not in scores:
                    scores[seed] = 0.0
                    for run in np.flatnonzero(weights[:, seed]).tolist():
                        score = run_scores.score(run, chosen)
                        scores[seed] += float(weights[run, seed]) * score
            values[replicate] = np.mean([scores[seed] for seed in drawn])
        return values, np.zeros(chunk.size, dtype=bool)


@dataclass(frozen=True)
class Replicates:
    """Bootstrap scores.

    Attributes:
      scores: float64 [replicates, jobs].
      undefined: bool [replicates, jobs], whether the metric was 0/0 for a drawn run and took its defined
        value.
    """

    scores: NDArray[np.float64]
    undefined: NDArray[np.bool_]


class DrawSource(Protocol):
    """A source of draws, called in a fixed order, replicate by replicate."""

    def __call__(self, kind: str, name: str, number: int, /) -> NDArray[np.int64]:
        """Draws `number` indices below `number` with replacement, for the named pool or set."""


class PublishedDraws:
    """The single stream of the published library: in each replicate seeds first, then examples.

    Args:
      rng: RandomState, Generator or the module `numpy.random`, with `choice(n, size, replace)`.
    """

    def __init__(self, rng: Any):
        self._rng = rng
        # The same bits as `choice`, without its overhead.
        self._integers = rng.randint if isinstance(rng, np.random.RandomState) else None

    def __call__(self, _kind: str, _name: str, number: int) -> NDArray[np.int64]:
        """Draws from the single stream for any pool or set."""
        if self._integers is not None:
            return self._integers(0, number, size=number)
        return np.asarray(self._rng.choice(number, size=number, replace=True))


class KeyedDraws:
    """A separate stream for each pool and set, keyed by the bootstrap seed.

    The draws of a comparison therefore do not depend on other comparisons.
    """

    def __init__(self, rng: int):
        self.rng = rng
        self._streams: dict[tuple[str, str], np.random.Generator] = {}

    def __call__(self, kind: str, name: str, number: int) -> NDArray[np.int64]:
        """Draws from the stream of the pool or set."""
        stream = self._streams.get((kind, name))
        if stream is None:
            key = [self.rng, zlib.crc32(kind.encode()), zlib.crc32(name.encode())]
            stream = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
            self._streams[kind, name] = stream
        return stream.integers(0, number, size=number)


def draws_of(settings: ComparisonSettings) -> DrawSource:
    if settings.draws == "keyed":
        return KeyedDraws(settings.rng)
    return PublishedDraws(np.random.RandomState(settings.rng))


@dataclass
class Chunk:
    """Consecutive replicates.

    Attributes:
      seeds: drawn indices by pool [size, seeds].
      counts: number of draws of each example (or cluster) by set, uint8 [size, units].
      indices: drawn indices by set, if a function needs them [size, units].
    """

    start: int
    size: int
    seeds: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    counts: dict[str, NDArray] = field(default_factory=dict)
    indices: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def seed_counts(self, pool: str) -> NDArray[np.float64]:
        """Counts how often each seed of a pool was drawn: float64 [size, seeds]."""
        drawn = self.seeds[pool]
        number = drawn.shape[1]
        flat = (drawn + number * np.arange(self.size)[:, None]).ravel()
        return np.bincount(flat, minlength=self.size * number).reshape(self.size, -1).astype(float)


def bootstrap(
    jobs: Sequence[ScoreJob],
    draws: DrawSource,
    n_resamples: int,
    *,
    progress: Callable[[Iterable[int]], Iterable[int]] = lambda replicates: replicates,
) -> Replicates:
    """Scores bootstrap replicates of all jobs with shared draws.

    Args:
      draws: source of draws, called in each replicate for pools in the order of the jobs, then for sets.
      progress: wraps the range of replicates, as tqdm does.
    """
    key = (draws.rng, n_resamples) if isinstance(draws, KeyedDraws) else None
    scores = np.empty((n_resamples, len(jobs)))
    undefined = np.zeros((n_resamples, len(jobs)), dtype=bool)
    # With keyed streams only the pools and sets of new jobs need draws.
    new = {column: job for column, job in enumerate(jobs) if key not in job.replicates}
    for chunk in _chunks(draws, [*new.values()], progress(range(n_resamples))):
        rows = slice(chunk.start, chunk.start + chunk.size)
        for column, job in new.items():
            scores[rows, column], undefined[rows, column] = job(chunk)
        del chunk  # before the next one is made, so that only one is in memory
    for column, job in enumerate(jobs):
        if key is not None:
            drawn = scores[:, column].copy(), undefined[:, column].copy()
            scores[:, column], undefined[:, column] = job.replicates.setdefault(key, drawn)
    return Replicates(scores, undefined)


def _chunks(
    draws: DrawSource, jobs: Sequence[ScoreJob], replicates: Iterable[int]
) -> Iterator[Chunk]:
    """Yields the draws of jobs in chunks."""
    pools = {job.pool: len(job.arm.seeds) for job in jobs if job.pool is not None}
    sets = {job.examples: job.arm.num_units for job in jobs if job.examples is not None}
    for job in jobs:
        assert job.pool is None or pools[job.pool] == len(job.arm.seeds)
        assert job.examples is None or sets[job.examples] == job.arm.num_units
    # sets with stored indices
    wanted = {job.examples for job in jobs if isinstance(job.score, FunctionMetric)}
    bytes_per_replicate = sum(
        number * (9 if name in wanted else 1) for name, number in sets.items()
    )
    largest = max(1, _CHUNK_BYTES // max(1, bytes_per_replicate))
    iterator, start = iter(replicates), 0
    while True:
        chunk = Chunk(start, 0)
        seeds: dict[str, list[NDArray]] = {pool: [] for pool in pools}
        counts = {name: _Counts(number, largest) for name, number in sets.items()}
        indices: dict[str, list[NDArray]] = {name: [] for name in sets if name in wanted}
        for _ in iterator:
            for pool, number in pools.items():
                seeds[pool].append(draws("seeds", pool, number))
            for name, number in sets.items():
                drawn = draws("examples", name, number)
                if name in indices:
                    indices[name].append(drawn)
                counts[name].append(drawn)
            chunk.size += 1
            if chunk.size == largest:
                break
        if not chunk.size:
            return
        chunk.seeds = {pool: np.stack(rows) for pool, rows in seeds.items()}
        chunk.counts = {name: rows.filled for name, rows in counts.items()}
        chunk.indices = {name: np.stack(rows) for name, rows in indices.items()}
        yield chunk
        start += chunk.size


class _Counts:
    """Rows of counts [replicates, units], filled one at a time."""

    def __init__(self, number: int, largest: int):
        # Unfilled rows take no memory.
        self._rows = np.empty((largest, number), dtype=np.uint8)
        self._once = np.ones(number, dtype=np.uint8)
        self._size = 0

    def append(self, drawn: NDArray[np.int64]) -> None:
        row = self._rows[self._size]
        row[:] = 0
        np.add.at(row, drawn, self._once)  # half the time of `bincount`, whose counts have 8 bytes
        if row.sum(dtype=np.uint32) != len(drawn):  # a count has overflowed (above 255)
            self._rows, self._once = self._rows.astype(np.int64), self._once.astype(np.int64)
            self._rows[self._size] = np.bincount(drawn, minlength=len(row))
        self._size += 1

    @property
    def filled(self) -> NDArray:
        return self._rows[: self._size]


class _RankScores:
    """Scores [size, runs] by a presorted metric, from counts [size, units]."""

    def __init__(self, arm: Arm, metric: RankMetric):
        self._clusters = arm.clusters
        self._num_examples = arm.num_examples
        self._bound = metric.bind(arm.labels, arm.predictions, arm.observed)

    def __call__(self, counts: NDArray | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        if counts is None:
            return self._bound.weighted(np.ones((1, self._num_examples)))
        rows = max(1, _BLOCK_ELEMENTS // self._num_examples)
        scores, degenerate = [], []
        for start in range(0, len(counts), rows):
            weights = counts[start : start + rows]
            if self._clusters is not None:
                weights = weights[:, self._clusters]
            part = self._bound.weighted(weights.astype(np.float64))
            scores.append(part[0])
            degenerate.append(part[1])
        return np.concatenate(scores), np.concatenate(degenerate)


class Columns:
    """The columns of a metric for all runs of an arm, computed block by block, and scores from them.

    Attributes:
      bound: metric bound to all labels and predictions.
    """

    def __init__(self, arm: Arm, metric: Metric):
        self._arm = arm
        self.bound = metric.bind(arm.labels, arm.predictions)
        # With missing cells even columns of labels differ between runs.
        self._num_shared = self.bound.num_label_columns if arm.observed is None else 0
        self._num_runs = len(arm.run_seeds)
        self._num_by_run = self.bound.num_columns - self._num_shared
        # Bytes halve the time of a comparison of a million examples.
        self._dtype = np.dtype(np.uint8 if metric.whole else np.float64)
        # The length depends on the numbers of runs and columns only, not on the examples.
        self._block = max(1024, _BLOCK_ELEMENTS // (self._num_runs * self.bound.num_columns))
        width = self._num_runs * self._num_by_run + self._num_shared
        self._in_memory: list[tuple[slice, NDArray]] | None = None
        if arm.clusters is not None:
            self._in_memory = [(slice(0, arm.num_units), self._of_clusters(width))]
        elif width * arm.num_examples * self._dtype.itemsize <= _BYTES_IN_MEMORY:
            self._in_memory = list(self._make())

    @cached_property
    def _float32_is_exact(self) -> bool:
        """Returns whether float32 holds sums of columns exactly (at most largest value x draws)."""
        if self._dtype != np.uint8 or self._arm.clusters is not None or self._in_memory is None:
            return False
        largest = max(int(rows.max()) for _, rows in self._in_memory)
        return largest * self._arm.num_examples < _EXACT_FLOAT32

    def __call__(self, counts: NDArray | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Scores runs [size, runs] by products of counts [size, units] with the columns."""
        sums = self.totals()[None] if counts is None else self.weighted_sums(counts)
        return self.bound.finish(sums), self.bound.degenerate(sums)  # of [size, runs, K]

    def example_columns(self) -> Iterator[list[NDArray]]:
        """Yields the columns of each block, [runs, block], or [1, block] if all runs share it.

        Columns are zero in missing cells.
        """
        # Hold no reference to blocks here, so that the caller decides when they are freed.
        return map(
            self._by_column, self._make() if self._arm.clusters is not None else self._blocks()
        )

    def _by_column(self, block: tuple[slice, NDArray]) -> list[NDArray[np.float64]]:
        rows = block[1].astype(np.float64, copy=False)
        of_runs = rows[self._num_shared :].reshape(self._num_by_run, self._num_runs, -1)
        return [*rows[: self._num_shared, None], *of_runs]

    def _make(self) -> Iterator[tuple[slice, NDArray]]:
        """Yields rows of shared and own columns, [shared + own * runs, block]."""
        arm, shared = self._arm, self._num_shared
        for start in range(0, arm.num_examples, self._block):
            block = slice(start, min(start + self._block, arm.num_examples))
            table = self.bound.columns(arm.labels[block], arm.predictions[:, block])
            if arm.observed is not None:
                table = table * arm.observed[:, block, None]
            length = table.shape[1]
            rows = np.empty((shared + self._num_by_run * self._num_runs, length), dtype=self._dtype)
            rows[:shared] = table[0, :, :shared].T
            # memory order of the columns
            of_runs = rows[shared:].reshape(self._num_by_run, self._num_runs, length)
            of_runs[...] = table[:, :, shared:].transpose(2, 0, 1)
            del table, of_runs  # free the block while the rows are used
            yield block, rows
            del rows  # before the next ones are made

    def _of_clusters(self, width: int) -> NDArray:
        """Sums the columns within clusters, [shared + own * runs, clusters]."""
        assert self._arm.clusters is not None
        sums = np.zeros((self._arm.num_units, width))
        for block, rows in self._make():
            np.add.at(sums, self._arm.clusters[block], rows.T)
        return np.ascontiguousarray(sums.T)

    def _blocks(self) -> Iterable[tuple[slice, NDArray]]:
        return self._make() if self._in_memory is None else self._in_memory

    def _by_run(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Reshapes [..., shared + own * runs] to [..., runs, K]."""
        of_runs = sums[..., self._num_shared :].reshape(*sums.shape[:-1], -1, self._num_runs)
        table = np.empty((*sums.shape[:-1], self._num_runs, self.bound.num_columns))
        table[..., : self._num_shared] = sums[..., None, : self._num_shared]
        table[..., self._num_shared :] = np.swapaxes(of_runs, -1, -2)
        return table

    def totals(self) -> NDArray[np.float64]:
        """Sums the columns over all examples: float64 [runs, K]."""
        return self._by_run(
            np.add.reduce([rows.sum(axis=1, dtype=np.float64) for _, rows in self._blocks()])
        )

    def weighted_sums(self, counts: NDArray) -> NDArray[np.float64]:
        """Sums the columns with weights `counts` [size, units]: float64 [size, runs, K]."""
        sums = np.zeros((len(counts), self._num_shared + self._num_runs * self._num_by_run))
        kind = np.float32 if self._float32_is_exact else np.float64
        for block, rows in self._pieces():
            step = max(1, _BLOCK_ELEMENTS // rows.shape[1])
            rows = rows.astype(kind, copy=False)
            for start in range(0, len(counts), step):
                piece = counts[start : start + step, block].astype(kind)
                sums[start : start + step] += piece @ rows.T
            del rows, piece  # before the next ones are made
        return self._by_run(sums)

    def _pieces(self) -> Iterator[tuple[slice, NDArray]]:
        """Yields blocks of columns, split further if sums are exact in any order."""
        for block, rows in self._blocks():
            step = _EXACT_BLOCK if self._dtype == np.uint8 else rows.shape[1]
            for start in range(0, rows.shape[1], step):
                part = rows[:, start : start + step]
                yield slice(block.start + start, block.start + start + part.shape[1]), part


class FunctionScores:
    """Scores of runs by calling a function."""

    def __init__(self, arm: Arm, function: ScoreFunction):
        self._arm, self._function = arm, function
        self._clusters: list[NDArray[np.int64]] | None = None
        if arm.clusters is not None:
            self._clusters = [np.flatnonzero(arm.clusters == g) for g in range(arm.num_units)]

    def __call__(self, counts: NDArray | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Scores runs on all examples [1, runs]."""
        assert counts is None, "a function takes examples, not counts"
        everything = np.arange(self._arm.num_examples)
        scores = [self.score(run, everything) for run in range(len(self._arm.run_seeds))]
        return np.array([scores]), np.zeros((1, len(scores)), dtype=bool)

    def members(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the examples of drawn clusters in drawn order; drawn examples unchanged."""
        if self._clusters is None:
            return units
        return np.concatenate([self._clusters[unit] for unit in units])

    def score(self, run: int, chosen: NDArray[np.int64]) -> float:
        """Scores a run on those chosen examples that are not missing."""
        arm = self._arm
        seen = chosen if arm.observed is None else chosen[arm.observed[run, chosen]]
        return float(self._function(arm.labels[seen], arm.predictions[run, seen]))
