"""Variance components: pre-training seeds, fine-tuning runs, examples, and the residual."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.runs.errors import counted
from multiberts.stats.bootstrap.arms import DataError, check_choice
from multiberts.stats.bootstrap.score_tables import Scores, deviations, score_table

Array = NDArray[np.float64]
Targets = Literal["examples", "seeds"]
Runs = Mapping[Any, ArrayLike] | Sequence[ArrayLike]  # for each seed [F_i, C]


@dataclass(frozen=True)
class VarianceComponents:
    """Variances of the parts of the score of one run on one example.

    X = mean + seed + run within seed + example + (seed by example) + (run by example).

    Attributes:
      seed: of the pre-training seed's own mean.
      example: of the example's own mean.
      residual: of a seed on an example, beyond both.
      run: of a fine-tuning run's mean within its seed; 0 where runs were averaged before.
      run_residual: of a run on an example, beyond all other parts.
      truncated: the names of those whose estimate was negative and is set to 0.

    Raises:
      DataError: a component is NaN or infinite.
    """

    seed: float
    example: float
    residual: float
    run: float = 0.0
    run_residual: float = 0.0
    truncated: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("seed", "example", "residual", "run", "run_residual"):
            if not math.isfinite(getattr(self, name)):
                raise DataError(f"found component {name} {getattr(self, name)}, expected a number")

    @property
    def total(self) -> float:
        """Returns the variance of one run on one example."""
        return self.seed + self.example + self.residual + self.run + self.run_residual

    @property
    def seed_share(self) -> float:
        """Returns the seed's share of the total, from 0 to 1; 0 where nothing varies."""
        return self.seed / self.total if self.total else 0.0


@dataclass(frozen=True)
class MeanSquares:
    """The mean squares of seeds, examples and residual of a table [R, C]."""

    seed: float
    example: float
    residual: float


def mean_squares(scores: Scores) -> MeanSquares:
    """Computes C sum r^2 / (R - 1), R sum c^2 / (C - 1) and sum d^2 / ((R - 1) (C - 1)).

    Args:
      scores: [R, C], the runs of a seed averaged.

    Raises:
      DataError: fewer than two seeds or examples.
    """
    parts = deviations(scores)
    num_seeds, num_examples = len(parts.seed), len(parts.example)
    _at_least_two(num_seeds, num_examples)
    return MeanSquares(
        num_examples * float(parts.seed @ parts.seed) / (num_seeds - 1),
        num_seeds * float(parts.example @ parts.example) / (num_examples - 1),
        parts.residual_squares / ((num_seeds - 1) * (num_examples - 1)),
    )


def _at_least_two(num_seeds: int, num_examples: int) -> None:
    if num_seeds < 2 or num_examples < 2:
        raise DataError(
            f"found {counted(num_seeds, 'seed')} and {counted(num_examples, 'example')}, expected two "
            "or more of each to separate their variances"
        )


def variance_components(scores: Scores, truncate: bool = True) -> VarianceComponents:
    """Estimates components of seeds crossed with examples, from the expected mean squares.

    Args:
      scores: [R, C], the runs of a seed averaged.
      truncate: whether a negative estimate is set to 0. Without truncation every estimate is
        unbiased, as needed where many are averaged.

    Raises:
      DataError: fewer than two seeds or examples.
    """
    squares = mean_squares(scores)
    num_seeds, num_examples = score_table(scores).shape
    return _components(
        truncate,
        seed=(squares.seed - squares.residual) / num_examples,
        example=(squares.example - squares.residual) / num_seeds,
        residual=squares.residual,
    )


def unpaired_components(
    base: Scores, experiment: Scores, truncate: bool = True
) -> VarianceComponents:
    """Estimates the components of `stats.planning.power.Study` for unpaired seeds.

    Args:
      base: [R, C].
      experiment: [R', C], on the same examples.
      truncate: as in `variance_components`.

    Returns:
      Seed and residual of one side (the mean of both), and the example component of the
      difference.

    Raises:
      DataError: fewer than two seeds or examples, or different numbers of examples.
    """
    sides = [deviations(base), deviations(experiment)]
    if len(sides[0].example) != len(sides[1].example):
        raise DataError(
            f"found {len(sides[0].example)} and {len(sides[1].example)} examples, expected the "
            "same on both sides"
        )
    parts = [variance_components(scores, truncate=False) for scores in (base, experiment)]
    difference = sides[1].example - sides[0].example
    spread = float(difference @ difference) / (len(difference) - 1)
    noise = sum(part.residual / len(side.seed) for part, side in zip(parts, sides, strict=True))
    return _components(
        truncate,
        seed=(parts[0].seed + parts[1].seed) / 2,
        example=spread - noise,
        residual=(parts[0].residual + parts[1].residual) / 2,
    )


def _components(truncate: bool, **estimates: float) -> VarianceComponents:
    negative = tuple(name for name, value in estimates.items() if value < 0 and truncate)
    kept: dict[str, Any] = {
        name: 0.0 if name in negative else value for name, value in estimates.items()
    }
    return VarianceComponents(**kept, truncated=negative)


def nested_variance_components(runs: Runs, truncate: bool = True) -> VarianceComponents:
    """Estimates components of runs nested in seeds, crossed with examples.

    From the expected mean squares. Where seeds have different numbers of runs F_i (N in total),
    n0 = (N - sum F_i^2 / N) / (R - 1) takes the place of F.

    Args:
      runs: for each seed its runs' scores [F_i, C].
      truncate: as in `variance_components`.

    Raises:
      DataError: fewer than two seeds or examples, or no seed with two runs.

    Reference: Searle, Casella & McCulloch, Variance Components (1992), chapter 3.6.
    """
    tables = _run_tables(runs)
    counts = np.array([len(table) for table in tables])
    num_seeds, num_examples, number = len(tables), tables[0].shape[1], int(counts.sum())
    _at_least_two(num_seeds, num_examples)
    if number == num_seeds:
        raise DataError(
            "found one run per seed, expected a seed with two or more to separate runs from seeds; "
            "add fine-tuning runs or use variance_components"
        )
    within = [deviations(table) for table in tables]
    seed_rows = np.array([table.mean(axis=0) for table in tables])  # [R, C]
    example = counts @ seed_rows / number
    mean = example.mean()
    seed = seed_rows.mean(axis=1) - mean
    interaction = seed_rows - seed[:, None] - example
    ms_run = (
        num_examples
        * sum(float(found.seed @ found.seed) for found in within)
        / (number - num_seeds)
    )
    ms_run_residual = sum(found.residual_squares for found in within)
    ms_run_residual /= (number - num_seeds) * (num_examples - 1)
    ms_seed = num_examples * float(counts @ seed**2) / (num_seeds - 1)
    ms_example = number * float(((example - mean) ** 2).sum()) / (num_examples - 1)
    ms_residual = float(counts @ (interaction**2).sum(axis=1))
    ms_residual /= (num_seeds - 1) * (num_examples - 1)
    crowding = float((counts**2).sum()) / number  # F where all seeds have F runs
    runs_per_seed = (number - crowding) / (num_seeds - 1)  # n0
    residual = (ms_residual - ms_run_residual) / runs_per_seed
    return _components(
        truncate,
        seed=(ms_seed - ms_run - ms_residual + ms_run_residual) / (num_examples * runs_per_seed),
        example=(ms_example - ms_run_residual - crowding * residual) / number,
        residual=residual,
        run=(ms_run - ms_run_residual) / num_examples,
        run_residual=ms_run_residual,
    )


def _run_tables(runs: Runs) -> list[Array]:
    rows = runs.values() if isinstance(runs, Mapping) else runs
    tables = [np.asarray(table, dtype=np.float64) for table in rows]
    shapes = [table.shape for table in tables]
    if (
        not tables
        or any(len(shape) != 2 or 0 in shape for shape in shapes)
        or len({shape[1] for shape in shapes}) > 1
    ):
        raise DataError(
            f"found runs of shapes {shapes}, expected [runs, examples] for each seed, with the same examples"
        )
    return tables


@dataclass(frozen=True)
class IntraclassCorrelation:
    """Agreement of raters on targets, two-way random effects.

    Attributes:
      single: ICC(2,1): the share of the targets' variance in one rating.
      average: ICC(2,k): the same in the mean of all k ratings.
      single_interval, average_interval: confidence intervals (low, high) by F quantiles.
    """

    single: float
    average: float
    single_interval: tuple[float, float]
    average_interval: tuple[float, float]


def intraclass_correlation(
    scores: Scores, targets: Targets = "examples", confidence: float = 0.95
) -> IntraclassCorrelation:
    """Computes ICC(2,1) and ICC(2,k) of a table of scores.

    With examples as targets it measures how far seeds agree on which examples are hard; with seeds
    as targets ICC(2,1) is the seeds' share of the total variance. Negative estimates are kept, as is
    usual for ICCs. Where targets do not differ at all, every value is 0.

    Args:
      scores: [R, C], the runs of a seed averaged.
      targets: `examples` (seeds rate them) or `seeds` (examples rate them).
      confidence: level of the intervals.

    Raises:
      DataError: fewer than two seeds or examples, or an unknown word for targets.

    Reference: Shrout & Fleiss (1979); McGraw & Wong (1996), table 7.
    """
    from scipy.special import fdtri

    check_choice("targets", targets, Targets)
    if not 0 < confidence < 1:
        raise DataError(f"found confidence {confidence}, expected a number between 0 and 1")
    squares = mean_squares(scores)
    num_seeds, num_examples = score_table(scores).shape
    k, n = (num_seeds, num_examples) if targets == "examples" else (num_examples, num_seeds)
    rows, columns = squares.example, squares.seed
    if targets == "seeds":
        rows, columns = columns, rows
    rest = squares.residual
    scale = rows + (k - 1) * rest + k * (columns - rest) / n
    if scale <= 0 or rows == rest == 0:  # nothing varies, or raters alone
        return IntraclassCorrelation(0.0, 0.0, (0.0, 0.0), (0.0, 0.0))
    single = (rows - rest) / scale
    if single >= 1:
        return IntraclassCorrelation(1.0, 1.0, (1.0, 1.0), (1.0, 1.0))
    tail = (1 - confidence) / 2
    # Satterthwaite's degrees of freedom of the raters' and the residual's mean square.
    a = k * single / (n * (1 - single))
    b = 1 + a * (n - 1)
    freedom = (a * columns + b * rest) ** 2 / (
        (a * columns) ** 2 / (k - 1) + (b * rest) ** 2 / ((n - 1) * (k - 1))
    )
    lower_f = float(fdtri(n - 1, freedom, 1 - tail))
    upper_f = float(fdtri(freedom, n - 1, 1 - tail))
    raters = k * columns + (k * n - k - n) * rest
    low = n * (rows - lower_f * rest) / (lower_f * raters + n * rows)
    high = n * (upper_f * rows - rest) / (raters + n * upper_f * rows)
    low, high = float(low), float(high)
    return IntraclassCorrelation(
        float(single),
        _of_average(float(single), k),
        (low, high),
        (_of_average(low, k), _of_average(high, k)),
    )


def _of_average(single: float, number: int) -> float:
    """Computes the reliability of the mean of `number` ratings by Spearman and Brown."""
    return number * single / (1 + (number - 1) * single)
