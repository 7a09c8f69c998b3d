"""Where the variance comes from: pre-training seeds, fine-tuning runs, examples, and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.score_tables import Scores, deviations, score_table

Array = NDArray[np.float64]
Runs = Mapping[Any, ArrayLike] | Sequence[ArrayLike]  # for each seed [F_i, C]


@dataclass(frozen=True)
class VarianceComponents:
    """Variances of the parts of a score of one run on one example.

    X = mean + seed + run within seed + example + (seed by example) + (run by example).

    Attributes:
      seed: of the pre-training seed's own mean.
      example: of the example's own mean.
      residual: of a seed on an example, beyond both.
      run: of a fine-tuning run's mean within its seed; 0 where runs were averaged before.
      run_residual: of a run on an example, beyond all others.
      truncated: the names of those whose estimate was negative and stands as 0.
    """

    seed: float
    example: float
    residual: float
    run: float = 0.0
    run_residual: float = 0.0
    truncated: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        """The variance of one run on one example."""
        return self.seed + self.example + self.residual + self.run + self.run_residual

    @property
    def seed_share(self) -> float:
        """The seed's share of the total, from 0 to 1; 0 where nothing varies."""
        return self.seed / self.total if self.total else 0.0


@dataclass(frozen=True)
class MeanSquares:
    """Mean squares of a table [R, C] of seeds, examples and residual."""

    seed: float
    example: float
    residual: float


def mean_squares(scores: Scores) -> MeanSquares:
    """C sum r^2 / (R - 1), R sum c^2 / (C - 1) and sum d^2 / ((R - 1) (C - 1)).

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
            f"found {num_seeds} seeds and {num_examples} examples, expected two of each at least "
            "to tell their variances apart"
        )


def variance_components(scores: Scores, truncate: bool = True) -> VarianceComponents:
    """Components of seeds crossed with examples, by equating mean squares with their expectation.

    Args:
      scores: [R, C], the runs of a seed averaged.
      truncate: whether a negative estimate stands as 0. Without it every estimate is unbiased,
        as it should be where many are averaged.

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
    """What `stats.planning.power` needs for unpaired seeds on shared examples.

    Args:
      base: [R, C].
      experiment: [R', C], on the same examples.
      truncate: as in `variance_components`.

    Returns:
      Seed and residual of one side (the mean of both), and the example component of the
      difference.

    Raises:
      DataError: fewer than two seeds or examples, or other examples.
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
    """Components of runs nested in seeds, crossed with examples; seeds may differ in runs.

    By equating mean squares with their expectation. Where seeds have different numbers of runs F_i
    (N in all), n0 = (N - sum F_i^2 / N) / (R - 1) takes the place of F.

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
            "found one run a seed, and runs cannot be told from seeds; add fine-tuning runs or use "
            "variance_components"
        )
    within = [_within_seed(table) for table in tables]
    seed_rows = np.array([table.mean(axis=0) for table in tables])  # [R, C]
    example = counts @ seed_rows / number
    mean = example.mean()
    seed = seed_rows.mean(axis=1) - mean
    interaction = seed_rows - seed[:, None] - example
    ms_run = num_examples * sum(run for run, _ in within) / (number - num_seeds)
    ms_run_residual = sum(rest for _, rest in within)
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
            f"found runs of shapes {shapes}, expected [runs, examples] for each seed, with the "
            "same examples"
        )
    return tables


def _within_seed(table: Array) -> tuple[float, float]:
    """Sums of squares of runs' means, and of what is left beside runs and examples."""
    parts = deviations(table)
    return float(parts.seed @ parts.seed), parts.residual_squares


@dataclass(frozen=True)
class NestedVariance:
    """Variance of each example's score between the runs of a seed, and between seeds.

    Attributes:
      fine_tuning: [C].
      pretraining: [C]; single examples may be negative, the mean over examples is unbiased.
    """

    fine_tuning: Array
    pretraining: Array

    @property
    def fine_var(self) -> float:
        """FineVar, averaged over examples."""
        return float(self.fine_tuning.mean())

    @property
    def pret_var(self) -> float:
        """PretVar, averaged over examples."""
        return float(self.pretraining.mean())


def nested_variance(runs: Runs) -> NestedVariance:
    """FineVar and PretVar of each example.

    FineVar is the mean over seeds of the sample variance of a seed's runs; PretVar the sample
    variance of the seeds' means, less what runs put into it: the mean over seeds of s_i^2 / F_i.
    A seed with one run has no variance of its own, and the others' mean stands for it.

    Args:
      runs: for each seed its runs' scores [F_i, C].

    Raises:
      DataError: fewer than two seeds, or no seed with two runs.

    Reference: Zhong et al., Are Larger Pretrained Language Models Uniformly Better? (2021),
        appendix H.
    """
    tables = _run_tables(runs)
    several = [table for table in tables if len(table) > 1]
    if len(tables) < 2 or not several:
        raise DataError(
            f"found {len(tables)} seeds, {len(several)} of them with two runs or more, expected at "
            "least two seeds and one with two runs"
        )
    fine_tuning = np.mean([table.var(axis=0, ddof=1) for table in several], axis=0)
    of_means = np.mean(
        [
            (table.var(axis=0, ddof=1) if len(table) > 1 else fine_tuning) / len(table)
            for table in tables
        ],
        axis=0,
    )
    between = np.var([table.mean(axis=0) for table in tables], axis=0, ddof=1)
    return NestedVariance(fine_tuning, between - of_means)


def disagreement_within_seeds(runs: Runs) -> float:
    """How often two runs of one seed differ on an example, averaged over pairs, seeds, examples.

    Of 0/1 scores this is 2 FineVar.

    Args:
      runs: for each seed its runs' scores [F_i, C]; seeds with one run are left out.

    Raises:
      DataError: no seed has two runs.
    """
    shares = [
        _mean_disagreement(table, table) * len(table) / (len(table) - 1)
        for table in _run_tables(runs)
        if len(table) > 1
    ]
    if not shares:
        raise DataError("found no seed with two runs, expected one at least; add fine-tuning runs")
    return float(np.mean(shares))


def disagreement_across_seeds(runs: Runs) -> float:
    """How often runs of two seeds differ on an example, averaged over runs, pairs of seeds,
    examples.

    Of 0/1 scores this is 2 (FineVar + PretVar).

    Args:
      runs: for each seed its runs' scores [F_i, C].

    Raises:
      DataError: fewer than two seeds.
    """
    tables = _run_tables(runs)
    if len(tables) < 2:
        raise DataError("found one seed, expected two at least to compare")
    return float(
        np.mean(
            [
                _mean_disagreement(first, second)
                for position, first in enumerate(tables)
                for second in tables[:position]
            ]
        )
    )


def _mean_disagreement(first: Array, second: Array) -> float:
    return float(np.mean([(row != second).mean() for row in first]))


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
    scores: Scores, targets: Literal["examples", "seeds"] = "examples", confidence: float = 0.95
) -> IntraclassCorrelation:
    """ICC(2,1) and ICC(2,k) of a table of scores.

    With examples as targets it says how far seeds agree about which examples are hard; with seeds
    as targets ICC(2,1) is the seeds' share of the total variance. Negative estimates stand, as is
    usual for ICCs. Where targets do not differ at all every value is 0.

    Args:
      scores: [R, C], the runs of a seed averaged.
      targets: `examples` (seeds rate them) or `seeds` (examples rate them).
      confidence: level of the intervals.

    Raises:
      DataError: fewer than two seeds or examples.

    Reference: Shrout & Fleiss (1979); McGraw & Wong (1996), table 7.
    """
    from scipy.special import fdtri

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
    """Spearman and Brown: the reliability of the mean of `number` ratings."""
    return number * single / (1 + (number - 1) * single)
