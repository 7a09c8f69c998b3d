"""Before the runs are made: power, the least effect that can be found, how many seeds and runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.planning.components import VarianceComponents

Array = NDArray[np.float64]
PlannedDesign = Literal["paired", "unpaired", "single"]

_MAX_SEEDS = 10_000_000


def variance_of_estimate(
    components: VarianceComponents,
    num_seeds: float,
    num_runs: float = 1,
    num_examples: float = math.inf,
    design: PlannedDesign = "paired",
) -> float:
    """V(R, F, C) = sa/R + sf/(R F) + sb/C + (se + sfe/F)/(R C).

    Args:
      components: of the difference for paired seeds; of the procedure in a `single` design. For
        unpaired seeds: of one side, both sides taken as equal, but `example` of the difference
        (it is the sum of both sides' where their examples are not shared).
      num_seeds: R, of each side.
      num_runs: F, fine-tuning runs of a seed, which are averaged.
      num_examples: C; infinity leaves the examples out.
      design: with `unpaired` all but the examples' part counts twice.
    """
    if design not in get_args(PlannedDesign):
        raise DataError(
            f"found design {design!r}, expected one of {', '.join(get_args(PlannedDesign))}"
        )
    of_seed = _per_seed(components, num_runs, num_examples)
    sides = 2 if design == "unpaired" else 1
    return sides * of_seed / num_seeds + components.example / num_examples


def _per_seed(components: VarianceComponents, num_runs: float, num_examples: float) -> float:
    """What one seed adds to R times the variance."""
    always, by_run = _seed_parts(components, num_examples)
    return always + by_run / num_runs


def _seed_parts(components: VarianceComponents, num_examples: float) -> tuple[float, float]:
    """The variance of a seed's score that more runs leave as it is, and that of one run."""
    return (
        components.seed + components.residual / num_examples,
        components.run + components.run_residual / num_examples,
    )


def _freedom(num_seeds: float, design: PlannedDesign) -> float:
    return 2 * num_seeds - 2 if design == "unpaired" else num_seeds - 1


def power(
    effect: float,
    components: VarianceComponents,
    num_seeds: int,
    num_runs: int = 1,
    num_examples: float = math.inf,
    design: PlannedDesign = "paired",
    alpha: float = 0.05,
    sides: int = 2,
) -> float:
    """The chance that a t-test of the seeds' scores finds an effect.

    Degrees of freedom are those of seeds, R - 1 (paired, single) or 2 R - 2: right where seeds
    dominate the variance, cautious where examples do.

    Args:
      effect: the true difference; a one-sided test looks for positive ones.
      components, num_seeds, num_runs, num_examples, design: see `variance_of_estimate`.
      alpha: level of the test.
      sides: 1 or 2.

    Raises:
      DataError: fewer than two seeds, or a level that is none.
    """
    _check(alpha, sides)
    if num_seeds < 2:
        raise DataError(f"found {num_seeds} seeds, expected two at least to know their spread")
    variance = variance_of_estimate(components, num_seeds, num_runs, num_examples, design)
    return _power(effect, variance, _freedom(num_seeds, design), alpha, sides)


def _check(alpha: float, sides: int) -> None:
    if not 0 < alpha < 1 or sides not in (1, 2):
        raise DataError(
            f"found alpha {alpha} and {sides} sides, expected a level between 0 and 1, and 1 or 2"
        )


def _power(effect: float, variance: float, freedom: float, alpha: float, sides: int) -> float:
    from scipy.special import ndtr, ndtri, stdtrit

    if variance == 0:
        found = effect > 0 or (sides == 2 and effect < 0)
        return 1.0 if found else (alpha if effect == 0 else 0.0)
    shift = effect / math.sqrt(variance)
    if math.isinf(freedom):
        critical = float(ndtri(1 - alpha / sides))
        above, below = float(ndtr(shift - critical)), float(ndtr(-critical - shift))
    else:
        from scipy.stats import nct

        critical = float(stdtrit(freedom, 1 - alpha / sides))
        # Of the lower tail the mirror image: SciPy's distribution function is NaN there for some.
        above, below = float(nct.sf(critical, freedom, shift)), 0.0
        if sides == 2:
            below = float(nct.sf(critical, freedom, -shift))
    return above + below if sides == 2 else above


def minimum_detectable_effect(
    components: VarianceComponents,
    num_seeds: int,
    num_runs: int = 1,
    num_examples: float = math.inf,
    design: PlannedDesign = "paired",
    alpha: float = 0.05,
    sides: int = 2,
    target_power: float = 0.8,
    exact: bool = True,
) -> float:
    """The least effect that is found with the chance `target_power`.

    Args:
      components, num_seeds, num_runs, num_examples, design: see `variance_of_estimate`.
      alpha, sides: of the test.
      target_power: the chance, above alpha.
      exact: solve `power` for the effect; else the usual (t_{1-a} + t_{power}) sqrt(V), a few
        per cent off with few seeds.

    Raises:
      DataError: fewer than two seeds, or a level that is none.
    """
    from scipy.optimize import brentq
    from scipy.special import stdtrit

    _check(alpha, sides)
    if num_seeds < 2 or not alpha < target_power < 1:
        raise DataError(
            f"found {num_seeds} seeds and power {target_power}, expected two at least and a power "
            f"between alpha ({alpha}) and 1"
        )
    variance = variance_of_estimate(components, num_seeds, num_runs, num_examples, design)
    freedom = _freedom(num_seeds, design)
    reach = float(stdtrit(freedom, 1 - alpha / sides) + stdtrit(freedom, target_power))
    if exact and variance:
        high = reach
        while _power(high, 1.0, freedom, alpha, sides) < target_power:
            high *= 2
        reach = float(
            brentq(lambda x: _power(x, 1.0, freedom, alpha, sides) - target_power, 0, high)
        )
    return reach * math.sqrt(variance)


def seeds_needed(
    effect: float,
    components: VarianceComponents,
    num_runs: int = 1,
    num_examples: float = math.inf,
    design: PlannedDesign = "paired",
    alpha: float = 0.05,
    sides: int = 2,
    target_power: float = 0.8,
) -> int:
    """The least number of seeds (of each side) at which `power` reaches `target_power`.

    Args:
      effect: the true difference that is to be found.
      components, num_runs, num_examples, design: see `variance_of_estimate`.
      alpha, sides: of the test.
      target_power: the chance that is wanted.

    Raises:
      DataError: no number of seeds is enough: as R grows the variance falls to sb/C and no
        further, which the message gives. Or there is no effect on the side that is tested.
    """
    _check(alpha, sides)
    if effect == 0 or (sides == 1 and effect < 0):
        raise DataError(
            f"found an effect of {effect:g} to look for with {sides} sides, expected one that the "
            "test is for: above 0, or below with two sides"
        )
    floor = components.example / num_examples
    best = _power(effect, floor, math.inf, alpha, sides)
    if best <= target_power:
        raise DataError(
            f"found power {best:.3g} for an effect of {effect:g} with any number of seeds, expected "
            f"more than {target_power:g}: {num_examples:g} examples leave a variance of sb/C = "
            f"{floor:.3g} that no seed takes away; add examples or look for a larger effect"
        )

    def enough(num_seeds: int) -> bool:
        found = power(effect, components, num_seeds, num_runs, num_examples, design, alpha, sides)
        return found >= target_power

    high = 2
    while not enough(high):
        high *= 2
        if high > _MAX_SEEDS:
            raise DataError(
                f"an effect of {effect:g} needs more than {_MAX_SEEDS:,} seeds; add examples or "
                "look for a larger effect"
            )
    low = high // 2  # not enough, or 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def power_curve(
    effects: ArrayLike,
    numbers_of_seeds: ArrayLike,
    components: VarianceComponents,
    num_runs: int = 1,
    num_examples: float = math.inf,
    design: PlannedDesign = "paired",
    alpha: float = 0.05,
    sides: int = 2,
) -> Array:
    """`power` at each number of seeds and each effect, for a figure.

    Args:
      effects: [E].
      numbers_of_seeds: [S].

    Returns:
      float64 [S, E].
    """
    return np.array(
        [
            [
                power(
                    float(effect), components, int(number), num_runs, num_examples, design, alpha,
                    sides,
                )
                for effect in np.atleast_1d(np.asarray(effects, dtype=np.float64))
            ]
            for number in np.atleast_1d(np.asarray(numbers_of_seeds))
        ]
    )  # fmt: skip


def best_runs_per_seed(
    cost_pretrain: float,
    cost_finetune: float,
    components: VarianceComponents,
    num_examples: float = math.inf,
) -> int:
    """Fine-tuning runs of each seed that give the least variance for the money.

    The variance falls as (A + B / F) / R, with A of a seed and B of a run, and R seeds cost
    R (cost_pretrain + F cost_finetune): best is F = sqrt(cost_pretrain B / (cost_finetune A)), and
    of the whole numbers beside it the one with the smaller product.

    Args:
      cost_pretrain: of one seed, in any unit; 0 where the checkpoints are at hand.
      cost_finetune: of one run, in the same unit.
      components: with `run`, see `nested_variance_components`.
      num_examples: C.

    Raises:
      DataError: a cost is negative or fine-tuning free, or seeds do not differ, so that the more
        runs the better; `best_plan` finds the best within a budget.
    """
    _check_costs(cost_pretrain, cost_finetune)
    always, by_run = _seed_parts(components, num_examples)
    if by_run == 0:
        return 1
    if always == 0 and cost_pretrain > 0:
        raise DataError(
            "found no variance between seeds, so that one seed with ever more runs is best; give a "
            "budget to best_plan"
        )
    ideal = math.sqrt(cost_pretrain * by_run / (cost_finetune * always)) if cost_pretrain else 0.0

    def product(number: int) -> float:
        return (always + by_run / number) * (cost_pretrain + number * cost_finetune)

    below = max(1, math.floor(ideal))
    return min((below, below + 1), key=product)


def _check_costs(cost_pretrain: float, cost_finetune: float) -> None:
    if cost_pretrain < 0 or cost_finetune <= 0:
        raise DataError(
            f"found costs {cost_pretrain} and {cost_finetune}, expected pre-training of 0 or more "
            "and fine-tuning above 0"
        )


@dataclass(frozen=True)
class Plan:
    """Numbers of seeds and of runs per seed, with the variance they give and what they cost.

    Attributes:
      num_seeds: of each side.
      num_runs: of each seed.
      variance: of the estimate.
      cost: in the unit of the costs given, both sides together.
    """

    num_seeds: int
    num_runs: int
    variance: float
    cost: float


def best_plan(
    budget: float,
    cost_pretrain: float,
    cost_finetune: float,
    components: VarianceComponents,
    num_examples: float = math.inf,
    design: PlannedDesign = "paired",
) -> Plan:
    """The whole numbers of seeds and runs with the least variance within a budget.

    Args:
      budget: for all runs of all sides.
      cost_pretrain, cost_finetune: of one seed and one run of one side.
      components, num_examples, design: see `variance_of_estimate`.

    Raises:
      DataError: the budget does not hold two seeds.
    """
    _check_costs(cost_pretrain, cost_finetune)
    sides = 1 if design == "single" else 2
    of_side = budget / sides
    most_runs = math.floor((of_side / 2 - cost_pretrain) / cost_finetune * (1 + 1e-12))
    if most_runs < 1:
        raise DataError(
            f"found a budget of {budget:g}, expected at least "
            f"{2 * sides * (cost_pretrain + cost_finetune):g} for two seeds of one run"
        )
    runs = np.arange(1, most_runs + 1)
    costs = cost_pretrain + runs * cost_finetune
    seeds = np.floor(of_side / costs * (1 + 1e-12))
    always, by_run = _seed_parts(components, num_examples)
    best = int(np.argmin((always + by_run / runs) / seeds))
    num_seeds, num_runs = int(seeds[best]), int(runs[best])
    return Plan(
        num_seeds,
        num_runs,
        variance_of_estimate(components, num_seeds, num_runs, num_examples, design),
        float(sides * num_seeds * costs[best]),
    )
