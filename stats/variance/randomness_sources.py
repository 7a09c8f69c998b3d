"""Shares of sources of randomness in the variance of a score, from runs that share their other seeds.

Seeds of each source are random draws; examples are fixed. The variance V of a run's score is a sum over
sets of sources: main effects of each source and interactions of several.

Reference: Searle, Casella & McCulloch (1992), Variance Components, chapter 4; Homma & Saltelli (1996) for the
total share of a source; Jansen (1999) for its estimate from pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.runs.errors import counted
from multiberts.stats.errors import DataError
from multiberts.stats.intervals import Interval
from multiberts.stats.variance.crossing import Term
from multiberts.stats.variance.plan import drawn_squares

_LEAST = 3  # minimum number of seeds per source, because two hardly show the variance


@dataclass(frozen=True)
class SeedSource:
    """One source of randomness and its share in the variance of a score.

    Attributes:
      name: name of the source, such as `dropout_seed`.
      num_seeds: number of seeds; in one-at-a-time designs, number of pairs of runs that differ in this
        source only.
      total: share of the variance that remains with all other seeds held fixed. With interactions, shares
        overlap and their sum exceeds 1.
      alone: share of the main effect; None in one-at-a-time designs, which do not identify it.
    """

    name: str
    num_seeds: int
    total: float
    total_ci: Interval
    alone: float | None = None
    alone_ci: Interval | None = None


@dataclass(frozen=True)
class SeedSources:
    """Shares of the variance of a run's score.

    Attributes:
      sources: shares of the sources, in the given order.
      crossed: whether the design is crossed.
    """

    sources: tuple[SeedSource, ...]
    variance: float
    num_runs: int
    crossed: bool


def seed_sources(
    scores: ArrayLike, seeds: Mapping[str, Sequence[Hashable]], confidence_level: float = 0.95
) -> SeedSources:
    """Estimates the share of each source of randomness in the variance of a score.

    Two designs are allowed. Crossed: every combination of seeds once. One at a time: baseline runs with
    distinct seeds, plus for each of them one run per source with only that seed changed.

    Args:
      scores: score of each run [runs].
      seeds: seed of each run by source [runs].
      confidence_level: level of the intervals, which are fiducial, as in `Plan`. They assume normal effects
        of seeds: if seeds of a source can fail, they cover far less (docs/studies.md).

    Raises:
      DataError: another design, one source, fewer than three seeds of a source, or equal scores.

    Examples:
      >>> import numpy as np
      >>> from multiberts import stats
      >>> order, dropout = np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4)
      >>> scores = np.array([0.1, 0.5, 0.2, 0.9])[order]  # dropout moves nothing
      >>> found = stats.seed_sources(scores, {"order": order, "dropout": dropout})
      >>> {source.name: (source.total, tuple(source.total_ci)) for source in found.sources}
      {'order': (1.0, (1.0, 1.0)), 'dropout': (0.0, (0.0, 0.0))}

    See also: `variance_components`.

    Reference: Searle, Casella & McCulloch (1992), Variance Components; Homma & Saltelli (1996), Importance
    measures in global sensitivity analysis of nonlinear models, for the total share.
    """
    values = np.asarray(scores, np.float64)
    rows = list(zip(*seeds.values(), strict=True))
    if values.shape != (len(rows),) or not seeds or not np.isfinite(values).all():
        raise DataError(
            f"found scores of shape {values.shape} for {counted(len(rows), 'run')}, expected a finite "
            "score and a seed of each source for every run"
        )
    if len(seeds) < 2:
        raise DataError(
            f"found one source of randomness, {next(iter(seeds))}, which then has all of the variance; vary "
            "two or more"
        )
    levels = [list(dict.fromkeys(of_runs)) for of_runs in seeds.values()]
    if len({*rows}) < len(rows):
        raise DataError(
            f"found two runs with the same seeds ({', '.join(seeds)}), expected each once; average them"
        )
    crossed = len(rows) == np.prod([len(level) for level in levels])
    fewest = min(map(len, levels)) if crossed else len(rows) // (1 + len(seeds))
    if fewest < _LEAST:
        raise DataError(
            f"found {counted(fewest, 'seed')} of a source ({', '.join(seeds)}; {counted(len(rows), 'run')}), "
            "expected three or more, crossed or one at a time: two hardly show how much they vary; add runs"
        )
    if np.ptp(values) == 0:
        raise DataError(
            f"found the score {values[0]:g} in all {len(rows)} runs, expected some to differ"
        )
    names = list(seeds)
    if not crossed:
        return _one_at_a_time(values, names, rows, confidence_level)
    table = np.empty([len(level) for level in levels])
    for row, value in zip(rows, values, strict=True):
        table[tuple(level.index(seed) for level, seed in zip(levels, row, strict=True))] = value
    squares = _mean_squares(table)
    parts = _components(squares, table.shape, lambda subset: squares[subset][0])
    drawn = drawn_squares(squares)
    draws = _components(squares, table.shape, lambda subset: drawn[subset])

    def share(chosen: Sequence[tuple[int, ...]]) -> tuple[float, Interval]:
        return float(_share(parts, chosen)), _interval(_share(draws, chosen), confidence_level)

    sources = []
    for axis, name in enumerate(names):
        total = share([subset for subset in squares if axis in subset])
        sources.append(SeedSource(name, len(levels[axis]), *total, *share([(axis,)])))
    return SeedSources(tuple(sources), float(sum(parts.values())), len(rows), True)


def _mean_squares(table: NDArray[np.float64]) -> dict[tuple[int, ...], Term]:
    """Returns the mean square of each set of axes, with its degrees of freedom."""
    axes = range(table.ndim)
    effects: dict[tuple[int, ...], NDArray[np.float64]] = {}
    squares: dict[tuple[int, ...], Term] = {}
    subsets = [s for size in range(table.ndim + 1) for s in itertools.combinations(axes, size)]
    for subset in subsets:
        others = tuple(axis for axis in axes if axis not in subset)
        mean = table.mean(axis=others, keepdims=True) if others else table
        effects[subset] = mean - sum(term for part, term in effects.items() if {*part} < {*subset})
        if subset:
            freedom = int(np.prod([table.shape[axis] - 1 for axis in subset]))
            total = float((np.broadcast_to(effects[subset], table.shape) ** 2).sum())
            # Sources without effect have rounding errors, which are set to 0.
            is_rounding = (
                total <= table.size * (16 * np.finfo(float).eps * np.abs(table).max()) ** 2
            )
            squares[subset] = (0.0 if is_rounding else total / freedom, freedom)
    return squares


def _components(
    squares: Mapping[tuple[int, ...], Term], shape: tuple[int, ...], value: Any
) -> dict[tuple[int, ...], Any]:
    """Returns the component of each set of sources from mean squares (numbers or draws [D]).

    Components may be negative. The expectation of a mean square is the sum of the components of all sets
    that contain its own, each times the number of runs that share its seeds; solving for a component gives
    alternating signs.
    """
    components = {}
    for subset in squares:
        signed = sum(
            (-1) ** (len(s) - len(subset)) * value(s) for s in squares if {*subset} <= {*s}
        )
        others = [size for axis, size in enumerate(shape) if axis not in subset]
        components[subset] = signed / np.prod(others or [1])
    return components


def _share(parts: Mapping[tuple[int, ...], Any], chosen: Sequence[tuple[int, ...]]) -> Any:
    """Returns the share of the chosen components in the sum of all, a number or draws [D].

    Sums are cut at 0, not components, because noise in zero components would add up.
    """
    part = np.maximum(sum(value for subset, value in parts.items() if subset in chosen), 0.0)
    others = np.maximum(sum(value for subset, value in parts.items() if subset not in chosen), 0.0)
    return part / (part + others)


def _one_at_a_time(
    values: NDArray[np.float64],
    names: Sequence[str],
    rows: Sequence[tuple[Hashable, ...]],
    confidence_level: float,
) -> SeedSources:
    """Returns total shares: mean squared difference of pairs, relative to that of unrelated runs."""
    alike = np.array(
        [[[a == b for a, b in zip(first, two, strict=True)] for two in rows] for first in rows]
    )
    halves = (values[:, None] - values) ** 2 / 2  # [runs, runs]
    above = np.triu(np.ones(halves.shape, bool), 1)
    pairs = [
        above & ~alike[:, :, axis] & np.delete(alike, axis, axis=2).all(axis=2)
        for axis in range(len(names))
    ]
    number = len(rows) // (1 + len(names))
    is_complete = len(rows) == number * (1 + len(names))
    if not is_complete or any(
        pair.sum() != number or pair.any(axis=1).sum() != number for pair in pairs
    ):
        raise DataError(
            f"found {counted(len(rows), 'run')} that neither cross the seeds of {', '.join(names)} nor vary "
            "them one at a time; add what is missing (launch.seed_design plans both)"
        )
    variance = float(halves[above & ~alike.any(axis=2)].mean())
    squares = [float(halves[pair].mean()) for pair in pairs]
    terms = [*((square, number) for square in squares), (variance, number - 1)]
    *drawn, of_all = drawn_squares(dict(enumerate(terms))).values()
    sources = [
        SeedSource(
            name,
            number,
            min(1.0, square / variance) if variance else 1.0,
            _interval(np.minimum(draws / of_all, 1.0), confidence_level),
        )
        for name, square, draws in zip(names, squares, drawn, strict=True)
    ]
    return SeedSources(tuple(sources), variance, len(rows), False)


def _interval(draws: Any, confidence_level: float) -> Interval:
    low, high = np.quantile(draws, [(1 - confidence_level) / 2, (1 + confidence_level) / 2])
    return Interval(float(low), float(high))
