"""The Multi-Bootstrap itself: draws of seeds and examples, and scores of the replicates.

Draws follow the stream of the published library: a replicate draws seeds (once if paired, else for
every arm in turn), then examples. A known metric is scored by one product of the matrix of counts
with its columns; any other function is called replicate by replicate.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluate.metrics import Metric
from stats.arms import Arm

ScoreFunction = Callable[[NDArray, NDArray], Any]

# Elements of the count matrix held at a time: 64 MiB.
_CHUNK_ELEMENTS = 2**23


@dataclass(frozen=True)
class Replicates:
    """Bootstrap scores.

    Attributes:
        scores: float64 [replicates, arms].
        degenerate: the number of replicates where the metric was 0/0 for some run that was drawn.
    """

    scores: NDArray[np.float64]
    degenerate: int


@dataclass(frozen=True)
class Draws:
    """A chunk of replicates.

    Attributes:
        seeds: for each arm, indices [replicates, seeds] or None where seeds are not resampled.
        examples: indices [replicates, examples], or None.
    """

    seeds: list[NDArray[np.int64]] | None
    examples: NDArray[np.int64] | None


def resample(
    arms: Sequence[Arm],
    score: Metric | ScoreFunction,
    *,
    paired: bool,
    sample_seeds: bool,
    sample_examples: bool,
    num_bootstrap: int,
    rng: Any,
    progress: Callable[[Iterable[int]], Iterable[int]] = lambda replicates: replicates,
) -> Replicates:
    """Scores bootstrap replicates of the arms, which share their examples.

    Args:
        arms: one or more, on the same examples; with the same seeds if `paired`.
        score: a metric, or a function of (labels [examples], predictions [examples]).
        paired: one draw of seeds for all arms.
        sample_seeds: whether seeds are resampled.
        sample_examples: whether examples are resampled.
        num_bootstrap: replicates.
        rng: has `choice(n, size, replace)`: a RandomState, a Generator or the module
            `numpy.random`.
        progress: wraps the range of replicates, as tqdm does.
    """
    scorers: list[_MetricScorer | _FunctionScorer] = [
        _MetricScorer(arm, score) if isinstance(score, Metric) else _FunctionScorer(arm, score)
        for arm in arms
    ]
    scores = np.empty((num_bootstrap, len(arms)))
    degenerate, start = 0, 0
    for draws, size in _draws(
        arms, paired, sample_seeds, sample_examples, rng, progress(range(num_bootstrap))
    ):
        counts = _counts(draws.examples) if isinstance(score, Metric) else None
        undefined = np.zeros(size, dtype=bool)
        for column, scorer in enumerate(scorers):
            seeds = None if draws.seeds is None else draws.seeds[column]
            values, flags = scorer(seeds, draws.examples, counts, size)
            scores[start : start + size, column] = values
            undefined |= flags
        degenerate += int(undefined.sum())
        start += size
    return Replicates(scores, degenerate)


def _draws(
    arms: Sequence[Arm],
    paired: bool,
    sample_seeds: bool,
    sample_examples: bool,
    rng: Any,
    replicates: Iterable[int],
) -> Iterator[tuple[Draws, int]]:
    """Chunks of draws, in the published order within each replicate."""
    num_examples = arms[0].num_examples
    chunk = max(1, _CHUNK_ELEMENTS // num_examples)
    iterator = iter(replicates)
    while batch := list(itertools.islice(iterator, chunk)):
        seeds = [np.empty((len(batch), len(arm.seeds)), dtype=np.int64) for arm in arms]
        examples = np.empty((len(batch), num_examples), dtype=np.int64) if sample_examples else None
        for row in range(len(batch)):
            if sample_seeds:
                for column, arm in enumerate(arms):
                    if paired and column:
                        seeds[column][row] = seeds[0][row]
                    else:
                        number = len(arm.seeds)
                        seeds[column][row] = rng.choice(number, size=number, replace=True)
            if examples is not None:
                examples[row] = rng.choice(num_examples, size=num_examples, replace=True)
        yield Draws(seeds if sample_seeds else None, examples), len(batch)


def _counts(
    indices: NDArray[np.int64] | None, number: int | None = None
) -> NDArray[np.float64] | None:
    """How often each of `number` items was drawn: [replicates, draws] -> [replicates, number]."""
    if indices is None:
        return None
    number = number or indices.shape[1]
    counts = np.empty((len(indices), number))
    for row, drawn in enumerate(indices):
        counts[row] = np.bincount(drawn, minlength=number)
    return counts


class _MetricScorer:
    """Scores an arm by counts x columns."""

    def __init__(self, arm: Arm, metric: Metric):
        self._metric = metric
        columns = metric.columns(arm.labels, arm.predictions)  # [runs, examples, K]
        self._num_runs, _, self._num_columns = columns.shape
        # One product for all runs: [examples, runs * K].
        self._columns = np.ascontiguousarray(columns.transpose(1, 0, 2)).reshape(
            arm.num_examples, -1
        )
        self._seed_weights = arm.seed_weights  # [runs, seeds]
        self._plain = self._by_seed(self._columns.sum(axis=0, keepdims=True))

    def _by_seed(self, sums: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Scores and degeneracy by seed, [replicates, seeds] each, from sums [replicates, runs *
        K]."""
        sums = sums.reshape(len(sums), self._num_runs, self._num_columns)
        scores = self._metric.finish(sums) @ self._seed_weights
        degenerate = np.asarray(self._metric.degenerate(sums) @ (self._seed_weights > 0))
        return scores, degenerate

    def __call__(
        self,
        seeds: NDArray[np.int64] | None,
        examples: NDArray[np.int64] | None,
        counts: NDArray[np.float64] | None,
        size: int,
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        scores, degenerate = (
            self._plain if counts is None else self._by_seed(counts @ self._columns)
        )
        number = self._seed_weights.shape[1]
        drawn = np.ones((size, number)) if seeds is None else _counts(seeds, number)
        assert drawn is not None
        return (drawn * scores).sum(axis=1) / number, np.any((drawn > 0) & degenerate, axis=1)


class _FunctionScorer:
    """Scores an arm by calling a function for every run of every seed that was drawn."""

    def __init__(self, arm: Arm, function: ScoreFunction):
        self._arm = arm
        self._function = function
        self._rows = [
            [row for row, seed in enumerate(arm.run_seeds) if seed == wanted]
            for wanted in arm.seeds
        ]

    def __call__(
        self,
        seeds: NDArray[np.int64] | None,
        examples: NDArray[np.int64] | None,
        counts: NDArray[np.float64] | None,
        size: int,
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        everything = np.arange(self._arm.num_examples)
        values = np.empty(size)
        for replicate in range(size):
            chosen = everything if examples is None else examples[replicate]
            drawn = range(len(self._rows)) if seeds is None else seeds[replicate].tolist()
            labels = self._arm.labels[chosen]
            scores = {
                seed: np.mean(
                    [
                        self._function(labels, self._arm.predictions[row, chosen])
                        for row in self._rows[seed]
                    ]
                )
                for seed in dict.fromkeys(drawn)
            }
            values[replicate] = np.mean([scores[seed] for seed in drawn])
        return values, np.zeros(size, dtype=bool)
