"""Planning of runs: power, the smallest detectable effect, and numbers of seeds and runs."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.runs.errors import counted
from multiberts.stats.bootstrap.answers import detectable_difference, power_of_t
from multiberts.stats.bootstrap.arms import DataError, check_choice
from multiberts.stats.bootstrap.corrections import check_level
from multiberts.stats.planning.components import VarianceComponents

PlannedDesign = Literal["paired", "unpaired", "single"]

_MAX_SEEDS = 10_000_000


@dataclass(frozen=True)
class Study:
    """A planned study: its variance components and sizes, and the t-test of its seeds' scores.

    The test has the degrees of freedom of seeds, R - 1 (paired, single) or 2 R - 2: right where
    seeds dominate the variance, cautious where examples do.

    Attributes:
      components: of the difference for paired seeds; of the procedure in a `single` design. For
        unpaired seeds: of one side, with both sides taken as equal, but `example` of the difference
        (the sum of both sides' where their examples are not shared).
      num_seeds: R, of each side. Not used by the methods that look for it.
      num_runs: F, fine-tuning runs per seed, which are averaged.
      num_examples: C; infinity leaves the variance of examples out.
      design: with `unpaired` all variance but that of examples counts twice.
      alpha: level of the test.
      sides: of the test, 1 or 2; a one-sided test looks for positive effects.

    Raises:
      DataError: the design, the level, the number of sides, a size or a component is not valid.

    Warns:
      UserWarning: a component was estimated below 0 and is planned as 0.

    Example:
      >>> components = VarianceComponents(seed=0.0001, example=0.1, residual=0.05)
      >>> study = Study(components, num_seeds=5, num_examples=1000)
      >>> round(study.power(0.03), 2), round(study.minimum_detectable_effect(), 3)
      (0.52, 0.043)
      >>> study.seeds_needed(0.03)
      26
    """

    components: VarianceComponents
    num_seeds: float = 2
    num_runs: float = 1
    num_examples: float = math.inf
    design: PlannedDesign = "paired"
    alpha: float = 0.05
    sides: int = 2

    def __post_init__(self) -> None:
        check_choice("design", self.design, PlannedDesign)
        check_level(self.alpha, self.sides)
        for name in ("num_seeds", "num_runs", "num_examples"):
            value = getattr(self, name)
            if not value >= 1 or (math.isfinite(value) and value % 1):
                raise DataError(
                    f"found {name} {value}, expected a whole number of 1 or more, or infinity"
                )
        for name in ("seed", "example", "residual", "run", "run_residual"):
            if getattr(self.components, name) < 0:
                raise DataError(
                    f"found component {name} {getattr(self.components, name):g}, expected 0 or more; "
                    "estimate it with truncate=True, or plan with an upper limit"
                )
        if self.components.truncated:
            warnings.warn(
                f"the components {', '.join(self.components.truncated)} were estimated below 0 and are "
                "planned as 0: if they are not, the power is lower than computed",
                stacklevel=3,
            )

    @property
    def variance(self) -> float:
        """Returns the variance of the estimate: sa/R + sf/(R F) + sb/C + (se + sfe/F)/(R C)."""
        of_seed, of_run = self._seed_parts()
        sides = 2 if self.design == "unpaired" else 1
        per_seed = of_seed + of_run / self.num_runs
        return sides * per_seed / self.num_seeds + self.components.example / self.num_examples

    def _seed_parts(self) -> tuple[float, float]:
        """Returns the variance of a seed's score that more runs do not reduce, and that of a run."""
        found = self.components
        return (
            found.seed + found.residual / self.num_examples,
            found.run + found.run_residual / self.num_examples,
        )

    @property
    def _freedom(self) -> float:
        return 2 * self.num_seeds - 2 if self.design == "unpaired" else self.num_seeds - 1

    def power(self, effect: float) -> float:
        """Computes the probability that the test finds a true difference of `effect`.

        Raises:
          DataError: there are fewer than two seeds, or the effect is not a number.
        """
        self._check_seeds()
        _check_effect(effect)
        return power_of_t(effect, self.variance, self._freedom, self.alpha, self.sides)

    def _check_seeds(self) -> None:
        if self.num_seeds < 2:
            raise DataError(
                f"found {counted(self.num_seeds, 'seed')}, expected two or more to estimate their spread"
            )

    def power_curve(self, effects: ArrayLike, numbers_of_seeds: ArrayLike) -> NDArray[np.float64]:
        """Computes `power` at each number of seeds [S] and each effect [E]: float64 [S, E]."""
        studies = [replace(self, num_seeds=float(number)) for number in np.ravel(numbers_of_seeds)]
        each = np.ravel(np.asarray(effects, dtype=np.float64)).tolist()
        return np.array([[study.power(effect) for effect in each] for study in studies])

    def minimum_detectable_effect(self, target_power: float = 0.8, exact: bool = True) -> float:
        """Computes the smallest effect that is found with probability `target_power`.

        Args:
          target_power: the probability, above alpha.
          exact: solve `power` for the effect; else the usual (t_{1-a} + t_{power}) sqrt(V), a few
            per cent off with few seeds.

        Raises:
          DataError: there are fewer than two seeds, or the power is not above alpha and below 1.
        """
        from scipy.special import stdtrit

        self._check_seeds()
        if not self.alpha < target_power < 1:
            raise DataError(
                f"found power {target_power}, expected a power between alpha ({self.alpha}) and 1"
            )
        variance, freedom = self.variance, self._freedom
        if exact:
            return detectable_difference(variance, freedom, self.alpha, self.sides, target_power)
        reach = float(
            stdtrit(freedom, 1 - self.alpha / self.sides) + stdtrit(freedom, target_power)
        )
        return reach * math.sqrt(variance)

    def seeds_needed(self, effect: float, target_power: float = 0.8) -> int:
        """Finds the smallest number of seeds (of each side) at which the power reaches a target.

        Args:
          effect: the true difference to be found.
          target_power: the probability of finding it.

        Raises:
          DataError: no number of seeds is enough: as R grows, the variance falls to sb/C and no
            further. Or there is no effect on the side that is tested.
        """
        if not 0 < target_power < 1:
            raise DataError(f"found power {target_power}, expected a number between 0 and 1")
        _check_effect(effect)
        if effect == 0 or (self.sides == 1 and effect < 0):
            raise DataError(
                f"found an effect of {effect:g} to look for with {self.sides} sides, expected one "
                "that the test can find: above 0, or below 0 with two sides"
            )
        floor = self.components.example / self.num_examples
        best = power_of_t(effect, floor, math.inf, self.alpha, self.sides)
        if best <= target_power:
            raise DataError(
                f"found power {best:.3g} for an effect of {effect:g} with any number of seeds, "
                f"expected more than {target_power:g}: {self.num_examples:g} examples leave a "
                f"variance of sb/C = {floor:.3g} that seeds do not reduce; add examples or look for "
                "a larger effect"
            )

        def enough(number: int) -> bool:
            return replace(self, num_seeds=number).power(effect) >= target_power

        high = 2
        while not enough(high):
            high *= 2
            if high > _MAX_SEEDS:
                raise DataError(
                    f"found that an effect of {effect:g} needs more than {_MAX_SEEDS:,} seeds; add "
                    "examples or look for a larger effect"
                )
        low = high // 2  # not enough, or 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def best_runs_per_seed(self, cost_pretrain: float, cost_finetune: float) -> int:
        """Finds the fine-tuning runs per seed that give the smallest variance for the cost.

        The variance falls as (A + B / F) / R, with A of a seed and B of a run, and R seeds cost
        R (cost_pretrain + F cost_finetune). The best F is sqrt(cost_pretrain B / (cost_finetune A));
        of the whole numbers next to it, the one with the smaller product is returned.

        Args:
          cost_pretrain: of one seed, in any unit; 0 where the checkpoints exist.
          cost_finetune: of one run, in the same unit.

        Raises:
          DataError: a cost is negative or fine-tuning free, or seeds do not differ, so that more
            runs are always better; `best_plan` finds the best numbers within a budget.
        """
        _check_costs(cost_pretrain, cost_finetune)
        of_seed, of_run = self._seed_parts()
        if of_run == 0:
            return 1
        if of_seed == 0 and cost_pretrain > 0:
            raise DataError(
                "found no variance between seeds, so that one seed with ever more runs is best; use "
                "best_plan with a budget"
            )
        ideal = (
            math.sqrt(cost_pretrain * of_run / (cost_finetune * of_seed)) if cost_pretrain else 0
        )

        def product(number: int) -> float:
            return (of_seed + of_run / number) * (cost_pretrain + number * cost_finetune)

        below = max(1, math.floor(ideal))
        return min((below, below + 1), key=product)

    def cost(self, cost_pretrain: float, cost_finetune: float) -> float:
        """Computes the cost of all runs, both sides together, from those of a seed and of a run."""
        _check_costs(cost_pretrain, cost_finetune)
        sides = 1 if self.design == "single" else 2
        return sides * self.num_seeds * (cost_pretrain + self.num_runs * cost_finetune)

    def best_plan(self, budget: float, cost_pretrain: float, cost_finetune: float) -> Study:
        """Finds the numbers of seeds and runs with the smallest variance within a budget.

        Args:
          budget: for all runs of all sides.
          cost_pretrain: of one seed of one side.
          cost_finetune: of one run of one side.

        Returns:
          This study with these numbers; `variance` and `cost` describe the plan.

        Raises:
          DataError: the budget is below the cost of two seeds.
        """
        _check_costs(cost_pretrain, cost_finetune)
        if not math.isfinite(budget):
            raise DataError(f"found a budget of {budget}, expected a number")
        sides = 1 if self.design == "single" else 2
        of_side = budget / sides
        most_runs = math.floor((of_side / 2 - cost_pretrain) / cost_finetune * (1 + 1e-12))
        if most_runs < 1:
            raise DataError(
                f"found a budget of {budget:g}, expected at least "
                f"{2 * sides * (cost_pretrain + cost_finetune):g} for two seeds of one run"
            )
        runs = np.arange(1, most_runs + 1)
        seeds = np.floor(of_side / (cost_pretrain + runs * cost_finetune) * (1 + 1e-12))
        of_seed, of_run = self._seed_parts()
        best = int(np.argmin((of_seed + of_run / runs) / seeds))
        return replace(self, num_seeds=int(seeds[best]), num_runs=int(runs[best]))


def _check_effect(effect: float) -> None:
    if not math.isfinite(effect):
        raise DataError(f"found an effect of {effect}, expected a number")


def _check_costs(cost_pretrain: float, cost_finetune: float) -> None:
    if not (0 <= cost_pretrain < math.inf and 0 < cost_finetune < math.inf):
        raise DataError(
            f"found costs {cost_pretrain} and {cost_finetune}, expected pre-training of 0 or more "
            "and fine-tuning above 0"
        )
