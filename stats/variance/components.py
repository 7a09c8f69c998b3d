"""Variance components: pre-training seeds, fine-tuning runs, examples, and the residual."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.runs.errors import counted
from multiberts.stats.errors import DataError
from multiberts.stats.settings import Design
from multiberts.stats.variance.crossing import Term, VarianceParts
from multiberts.stats.variance.plan import (
    TARGET_POWER,
    Plan,
    check_sizes,
    drawn_squares,
    too_few_to_plan,
)
from multiberts.stats.variance.score_tables import Deviations, Scores, deviations

Array = NDArray[np.float64]
Runs = Mapping[Any, ArrayLike] | Sequence[ArrayLike]  # one array per seed [F_i, C]
_NAMES = ("seed", "example", "residual", "run", "run_residual")


@dataclass(frozen=True)
class VarianceComponents:
    """Variance components of the score of one run on one example.

    Model: X = mean + seed + run within seed + example + (seed by example) + (run by example).

    Attributes:
      seed: variance of the pre-training seed's mean.
      example: variance of the example's mean.
      residual: variance of the interaction of seed and example.
      run: variance of a fine-tuning run's mean within its seed; 0 if runs are already averaged.
      run_residual: variance of the interaction of run and example.
      truncated: names of components set to 0 because of a negative estimate.
      mean_squares: mean squares of the data by name; empty if the components are not estimated.
      coefficients: coefficient of each mean square by component.

    Raises:
      DataError: a component is NaN or infinite.

    Examples:
      >>> from multiberts import stats
      >>> parts = stats.VarianceComponents(seed=0.0001, example=0.1, residual=0.05)
      >>> round(parts.plan(num_seeds=5, num_examples=1000).power(0.03), 2)
      0.71

    See also: `variance_components`, `Plan`.
    """

    seed: float
    example: float
    residual: float
    run: float = 0.0
    run_residual: float = 0.0
    truncated: tuple[str, ...] = ()
    mean_squares: Mapping[str, Term] = field(default_factory=dict, repr=False, compare=False)
    coefficients: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for name in _NAMES:
            if not math.isfinite(getattr(self, name)):
                raise DataError(f"found component {name} {getattr(self, name)}, expected a number")

    @property
    def total(self) -> float:
        """Returns the variance of one run on one example."""
        return self.seed + self.example + self.residual + self.run + self.run_residual

    @property
    def seed_share(self) -> float:
        """Returns the seed's share of the total variance, from 0 to 1; 0 if nothing varies."""
        return self.seed / self.total if self.total else 0.0

    def of_mean(
        self, num_seeds: float, num_runs: float = 1, num_examples: float = math.inf
    ) -> dict[str, float]:
        """Returns the contribution of each component to the variance of a mean: sa/R, sf/(R F), sb/C, ..."""
        return _of_mean(self._values(), num_seeds, num_runs, num_examples)

    def plan(
        self,
        num_seeds: int,
        num_runs: float = 1,
        num_examples: float = math.inf,
        design: Design = "paired",
        alpha: float = 0.05,
        sides: int = 2,
        target_power: float = TARGET_POWER,
        effect: float | None = None,
    ) -> Plan:
        """Plans a study. Planned numbers have ranges if the components were estimated from data.

        Args:
          num_seeds: R, number of seeds per arm.
          num_runs: F, number of fine-tuning runs averaged per seed.
          num_examples: C, number of examples; infinity leaves out their variance.
          design: with `unpaired`, the components are those of one of two equal arms, except `example`,
            which is that of the difference; otherwise those of the difference, or of the arm in a
            `single` design.
          alpha: level of the test.
          sides: sides of the test, 1 or 2.
          target_power: required probability of detection.
          effect: true difference to detect; may be given later.

        Raises:
          DataError: a number is invalid, or components are estimated from only two seeds or examples.

        Warns:
          UserWarning: the estimate of a component is negative, and 0 is used instead.

        Examples:
          >>> from multiberts.stats.variance.components import VarianceComponents
          >>> plan = VarianceComponents(seed=0.0001, example=0.1, residual=0.05).plan(5, 1, 1000)
          >>> plan.seeds_needed(0.03)
          11
        """
        check_sizes(num_seeds, num_runs, num_examples)
        for name, value in self._values().items():
            if value < 0:
                raise DataError(
                    f"found component {name} {value:g}, expected 0 or more; estimate it with "
                    "truncate=True, or plan with an upper limit"
                )
        if self.truncated:
            warnings.warn(
                f"the components {', '.join(self.truncated)} were estimated below 0 and are planned "
                "as 0: if they are not, the power is lower than computed",
                stacklevel=2,
            )
        sizes = num_seeds, num_runs, num_examples
        draws = self._draws()
        return Plan(
            _parts(self._values(), *sizes, design),
            num_seeds,
            num_examples,
            num_runs,
            design,
            alpha,
            sides,
            target_power,
            effect,
            None if draws is None else _parts(draws, *sizes, design),
        )

    def _draws(self) -> dict[str, Array] | None:
        """Returns fiducial draws of the components [D]; None without data."""
        if not self.mean_squares:
            return None
        seeds = tuple(term for name, term in self.mean_squares.items() if name.startswith("seed"))
        reason = too_few_to_plan(VarianceParts(seeds, (self.mean_squares["example"],), ()))
        if reason:
            raise DataError(reason)
        squares = drawn_squares(self.mean_squares)
        # Cut at 0, because differences of drawn mean squares can be negative.
        return {
            name: np.maximum(sum(times * squares[square] for square, times in by.items()), 0.0)
            for name, by in self.coefficients.items()
        }

    def _values(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in _NAMES}


def _of_mean(
    values: Mapping[str, Any], num_seeds: float, num_runs: float, num_examples: float
) -> dict[str, Any]:
    """Returns the contributions of components, numbers or draws [D], to the variance of a mean."""
    numbers = {
        "seed": num_seeds,
        "run": num_seeds * num_runs,
        "example": num_examples,
        "residual": num_seeds * num_examples,
        "run_residual": num_seeds * num_runs * num_examples,
    }
    return {name: values.get(name, 0.0) / number for name, number in numbers.items()}


def _parts(
    values: Mapping[str, Any], num_seeds: int, num_runs: float, num_examples: float, design: Design
) -> VarianceParts:
    """Returns the expected mean squares of components, numbers or draws [D]."""
    terms = _of_mean(values, num_seeds, num_runs, num_examples)
    pools = 2 if design == "unpaired" else 1
    residual_share = terms["residual"] + terms["run_residual"]
    seeds = ((terms["seed"] + terms["run"] + residual_share, num_seeds - 1),) * pools
    if math.isinf(num_examples):
        return VarianceParts(seeds, (), ())
    examples = ((terms["example"] + pools * residual_share, num_examples - 1),)
    residual = ((residual_share, (num_seeds - 1) * (num_examples - 1)),) * pools
    return VarianceParts(seeds, examples, residual)


def mean_squares(parts: Deviations) -> dict[str, Term]:
    """Computes C sum r^2 / (R - 1), R sum c^2 / (C - 1) and sum d^2 / ((R - 1) (C - 1)).

    Args:
      parts: deviations of scores [R, C], averaged over the runs of each seed.

    Returns:
      The mean squares of `seed`, `example` and `residual`, with their degrees of freedom.
    """
    num_seeds, num_examples = len(parts.seed), len(parts.example)
    _at_least_two(num_seeds, num_examples)
    of_seed, of_example = num_seeds - 1, num_examples - 1
    return {
        "seed": (num_examples * float(parts.seed @ parts.seed) / of_seed, of_seed),
        "example": (num_seeds * float(parts.example @ parts.example) / of_example, of_example),
        "residual": (parts.residual_squares / (of_seed * of_example), of_seed * of_example),
    }


def _at_least_two(num_seeds: int, num_examples: int) -> None:
    if num_seeds < 2 or num_examples < 2:
        raise DataError(
            f"found {counted(num_seeds, 'seed')} and {counted(num_examples, 'example')}, expected two "
            "or more of each to separate their variances"
        )


def variance_components(scores: Scores, truncate: bool = True) -> VarianceComponents:
    """Estimates components of seeds crossed with examples, from the expected mean squares.

    Args:
      scores: scores averaged over the runs of each seed [R, C].
      truncate: whether to set negative estimates to 0. Estimates without truncation are unbiased, as required
        for averages of many.

    Raises:
      DataError: fewer than two seeds or examples.

    Examples:
      >>> from multiberts import stats
      >>> import numpy as np
      >>> scores = np.random.default_rng(0).random((5, 100)) < np.linspace(0.5, 0.9, 5)[:, None]
      >>> round(stats.variance_components(scores).seed, 3)
      0.034

    See also: `nested_variance_components`, `Plan`.

    Reference: Searle, Casella & McCulloch (1992), Variance Components, chapter 4.
    """
    parts = deviations(scores)
    num_seeds, num_examples = len(parts.seed), len(parts.example)
    return _components(
        truncate,
        mean_squares(parts),
        seed={"seed": 1 / num_examples, "residual": -1 / num_examples},
        example={"example": 1 / num_seeds, "residual": -1 / num_seeds},
        residual={"residual": 1.0},
    )


def _components(
    truncate: bool, squares: Mapping[str, Term], **coefficients: Mapping[str, float]
) -> VarianceComponents:
    """Returns components as linear combinations of mean squares."""
    estimates = {
        name: sum(times * squares[square][0] for square, times in by.items())
        for name, by in coefficients.items()
    }
    negative = tuple(name for name, value in estimates.items() if value < 0 and truncate)
    estimated: dict[str, Any] = {
        name: 0.0 if name in negative else value for name, value in estimates.items()
    }
    return VarianceComponents(
        **estimated, truncated=negative, mean_squares=squares, coefficients=coefficients
    )


def nested_variance_components(runs: Runs, truncate: bool = True) -> VarianceComponents:
    """Estimates components of runs nested in seeds, crossed with examples.

    Estimates use the expected mean squares. If seeds have different numbers of runs F_i (N in total), F is
    replaced by n0 = (N - sum F_i^2 / N) / (R - 1).

    Args:
      runs: scores of the runs of each seed [F_i, C].
      truncate: as in `variance_components`.

    Raises:
      DataError: fewer than two seeds or examples, or no seed with two runs.

    Examples:
      >>> from multiberts import stats
      >>> import numpy as np
      >>> random = np.random.default_rng(0)
      >>> runs = random.normal(size=(20, 3, 50)) + random.normal(size=(20, 1, 1))  # seeds, runs, examples
      >>> round(stats.nested_variance_components(list(runs)).seed, 1)
      1.1

    See also: `variance_components`, `Plan`.

    Reference: Searle, Casella & McCulloch, Variance Components (1992), chapter 3.6.
    """
    rows = runs.values() if isinstance(runs, Mapping) else runs
    tables = [np.asarray(table, dtype=np.float64) for table in rows]
    shapes = [table.shape for table in tables]
    of_examples = {shape[1:] for shape in shapes}
    if len(of_examples) != 1 or any(len(shape) != 2 or 0 in shape for shape in shapes):
        raise DataError(
            f"found runs of shapes {shapes}, expected [runs, examples] for each seed, with the same examples"
        )
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
    interaction = float(counts @ ((seed_rows - seed[:, None] - example) ** 2).sum(axis=1))
    of_seed, of_run, of_example = num_seeds - 1, number - num_seeds, num_examples - 1
    run = num_examples * sum(
        float(of_seed_runs.seed @ of_seed_runs.seed) for of_seed_runs in within
    )
    run_residual = sum(of_seed_runs.residual_squares for of_seed_runs in within)
    squares: dict[str, Term] = {
        "seed": (num_examples * float(counts @ seed**2) / of_seed, of_seed),
        "example": (number * float(((example - mean) ** 2).sum()) / of_example, of_example),
        "residual": (interaction / (of_seed * of_example), of_seed * of_example),
        "run": (run / of_run, of_run),
        "run residual": (run_residual / (of_run * of_example), of_run * of_example),
    }
    crowding = float((counts**2).sum()) / number  # F if all seeds have F runs
    runs_per_seed = (number - crowding) / of_seed  # n0
    crowded, each = crowding / runs_per_seed / number, 1 / (num_examples * runs_per_seed)
    return _components(
        truncate,
        squares,
        seed={"seed": each, "run": -each, "residual": -each, "run residual": each},
        example={
            "example": 1 / number, "residual": -crowded, "run residual": crowded - 1 / number
        },
        residual={"residual": 1 / runs_per_seed, "run residual": -1 / runs_per_seed},
        run={"run": 1 / num_examples, "run residual": -1 / num_examples},
        run_residual={"run residual": 1.0},
    )  # fmt: skip
