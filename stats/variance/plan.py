"""Plans of studies: power, the smallest detectable difference, and the seeds or examples needed.

All plans are for the recommended t test, which estimates the variance and its cautious degrees of freedom
from mean squares (`stats.variance.crossing`). `Comparison.plan` and `VarianceComponents.plan` make plans.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.runs.errors import counted
from multiberts.stats.errors import DataError, check_choice
from multiberts.stats.intervals import Interval
from multiberts.stats.public_names import printing
from multiberts.stats.settings import Design
from multiberts.stats.significance import check_level
from multiberts.stats.variance.crossing import Term, VarianceParts

Unit = Literal["seeds", "examples"]
Key = TypeVar("Key", bound=Hashable)

# Required probability of detection.
TARGET_POWER = 0.8
# Quantiles at the ends of the range of a planned number.
RANGE = (0.1, 0.9)
# Points of mean squares that average the power (error below 0.001), and draws for a range.
_POINTS = 1024
_DRAWS = 1000
_MAX_NUMBER = 10_000_000


@dataclass(frozen=True)
class Plan:
    """A planned study and its recommended t test.

    If the mean squares come from data, every planned number has an 80 % range, because a mean square of few
    seeds is noisy. The range is fiducial: mean squares are divided by draws of chi-squared / degrees of
    freedom.

    Attributes:
      parts: expected mean squares of the study.
      num_seeds: number of seeds per arm (of the arm with fewer).
      num_examples: number of examples; infinity leaves out their variance.
      num_runs: number of fine-tuning runs averaged per seed.
      design: as in `stats.compare`.
      alpha: level of the test.
      sides: sides of the test, 1 or 2; a one-sided test looks for positive effects.
      target_power: required probability of detection.
      effect: default of the true difference to detect.
      draws: fiducial draws of the mean squares [D]; None if `parts` are known.

    Raises:
      DataError: an invalid design, level, power, number of sides or size.

    Examples:
      >>> from multiberts.stats.variance.components import VarianceComponents
      >>> components = VarianceComponents(seed=0.0001, example=0.1, residual=0.05)
      >>> plan = components.plan(num_seeds=5, num_examples=1000)
      >>> round(plan.power(0.03), 2), round(plan.minimum_detectable_effect(), 3)
      (0.71, 0.033)
      >>> plan.seeds_needed(0.03)
      11

    See also: `Comparison.plan`, `variance_components`.

    Reference: Satterthwaite (1946) for degrees of freedom; Weerahandi (1993), Generalized Confidence
    Intervals, JASA 88(423), for the ranges.
    """

    parts: VarianceParts = field(repr=False)
    num_seeds: int
    num_examples: float = math.inf
    num_runs: float = 1
    design: Design = "paired"
    alpha: float = 0.05
    sides: int = 2
    target_power: float = TARGET_POWER
    effect: float | None = None
    draws: VarianceParts | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice("design", self.design, Design)
        check_level(self.alpha, self.sides)
        check_sizes(self.num_seeds, self.num_runs, self.num_examples)
        if self.parts.seeds and self.num_seeds < 2:
            raise DataError(
                f"found {counted(self.num_seeds, 'seed')}, expected two or more to estimate their spread"
            )
        if not self.alpha < self.target_power < 1:
            raise DataError(
                f"found power {self.target_power}, expected a power between alpha ({self.alpha}) and 1"
            )
        if self.effect is not None:
            _check_effect(self.effect)

    def __str__(self) -> str:
        """Returns a text on the detectable difference and on the power at the plan's effect."""
        return str(printing().plan_text(self))

    def at(self, num_seeds: int | None = None, num_examples: float | None = None) -> Plan:
        """Returns this plan with other numbers of seeds and examples.

        Raises:
          DataError: a number is not an integer, or is too small.
        """
        seeds = self.num_seeds if num_seeds is None else num_seeds
        examples = self.num_examples if num_examples is None else num_examples
        check_sizes(seeds, self.num_runs, examples)
        if examples != self.num_examples and math.inf in (examples, self.num_examples):
            raise DataError(
                f"found {examples:g} examples for a plan of {self.num_examples:g}, expected a number "
                "for a number; make another plan"
            )
        times = (
            seeds / self.num_seeds,
            1.0 if examples == self.num_examples else examples / self.num_examples,
        )
        return replace(
            self,
            parts=self.parts.resized(*times),
            num_seeds=seeds,
            num_examples=examples,
            draws=self.draws and self.draws.resized(*times),
        )

    @property
    def variance(self) -> float:
        """Returns the variance of the estimate."""
        return self.parts.estimate().variance

    def power(self, effect: float | None = None) -> float:
        """Computes the probability that the test detects a true difference of `effect`.

        Args:
          effect: true difference; None: the plan's effect.

        Raises:
          DataError: the effect is missing or is not a number.
        """
        return self._test().power(self._effect(effect))

    def power_curve(self, effects: ArrayLike, numbers_of_seeds: ArrayLike) -> NDArray[np.float64]:
        """Computes `power` at each number of seeds [S] and each effect [E]: float64 [S, E]."""
        tests = [self.at(number)._test() for number in np.ravel(numbers_of_seeds).tolist()]
        each = np.ravel(np.asarray(effects, dtype=np.float64)).tolist()
        return np.array([[test.power(effect) for effect in each] for test in tests])

    def minimum_detectable_effect(self) -> float:
        """Computes the smallest effect that the test detects with probability `target_power`."""
        return self._test().detectable(self.target_power)

    def minimum_detectable_range(self) -> Interval | None:
        """Computes the 80 % range of the detectable effect; None if the mean squares are known."""
        if self.draws is None:
            return None
        low, high = (self._test(share).detectable(self.target_power) for share in RANGE)
        return Interval(low, high)

    def seeds_needed(self, effect: float | None = None) -> int:
        """Finds the smallest number of seeds (of each arm) with power `target_power`; effect as in `power`.

        Raises:
          DataError: no number of seeds is enough, because the variance of the examples remains; seeds are not
            drawn; or the test cannot detect the effect.
        """
        return self._checked("seeds", effect)

    def examples_needed(self, effect: float | None = None) -> int:
        """Finds the smallest number of examples with power `target_power`, as `seeds_needed`."""
        return self._checked("examples", effect)

    def needed_range(
        self, unit: Unit, effect: float | None = None, most: int = _MAX_NUMBER
    ) -> Interval | None:
        """Computes the 80 % range of the seeds or examples needed; None if the mean squares are known.

        Args:
          most: a number beyond it is infinity.

        Raises:
          DataError: they are not drawn, or the test cannot find the effect.
        """
        if self.draws is None:
            return None
        return Interval(*(self.number_needed(unit, effect, share, most) for share in RANGE))

    def number_needed(
        self,
        unit: Unit,
        effect: float | None = None,
        share: float | None = None,
        most: int = _MAX_NUMBER,
    ) -> float:
        """Finds the number of seeds or examples needed; infinity if none is enough.

        Args:
          share: quantile of the draws of mean squares to plan for; None: the expected mean squares.
          most: a number beyond it is infinity.

        Raises:
          DataError: they are not drawn, or the test cannot find the effect.
        """
        effect = self._effect_to_find(effect)
        if not self.draws_new(unit):
            raise DataError(f"found a plan that draws no {unit}, expected one that does")

        # At least two clusters, or two positives of a recall, are needed to estimate a variance.
        fewest = min((freedom for _, freedom in self.parts.examples), default=1.0)
        least = 2.0 if unit == "seeds" else 2 * self.num_examples / (fewest + 1)

        def enough(number: int) -> bool:
            if number < least:
                return False
            plan = self.at(number) if unit == "seeds" else self.at(None, number)
            return plan._test(share).power(effect) >= self.target_power

        if not enough(most):  # checked first, because most unsuccessful searches end here
            return math.inf
        high = 2
        while not enough(high):
            high = min(2 * high, most)
        return bisect_left(range(high), True, high // 2 + 1, key=enough)

    def draws_new(self, unit: Unit) -> bool:
        """Returns whether the result is for new seeds, or new examples."""
        finite = unit == "seeds" or math.isfinite(self.num_examples)
        return finite and bool(getattr(self.parts, unit))

    def _test(self, share: float | None = None) -> _TTest:
        """Returns the test for the expected mean squares, or for a quantile `share` of the draws."""
        parts = self.parts
        if share is not None and self.draws is not None:
            from scipy.special import stdtrit

            drawn = self.draws.estimate()
            freedom = drawn.cautious_degrees_of_freedom
            reach = stdtrit(freedom, 1 - self.alpha / self.sides)
            # The usual formula is only used to sort the draws; the power is exact for the chosen draw.
            sizes = np.sqrt(drawn.variance) * (reach + stdtrit(freedom, self.target_power))
            chosen = np.argsort(sizes)[int(share * len(sizes))]
            parts = _mapped(self.draws, lambda value: float(value[chosen]))
        return _TTest(parts, self.alpha, self.sides)

    def _effect(self, effect: float | None) -> float:
        effect = self.effect if effect is None else effect
        if effect is None:
            raise DataError(
                "found no effect to plan for, expected a true difference: the estimate is within one "
                "standard error of 0 and cannot stand for it; give effect"
            )
        _check_effect(effect)
        return effect

    def _effect_to_find(self, effect: float | None) -> float:
        effect = self._effect(effect)
        if effect == 0 or (self.sides == 1 and effect < 0):
            raise DataError(
                f"found an effect of {effect:g} to look for with {self.sides} sides, expected one "
                "that the test can find: above 0, or below 0 with two sides"
            )
        return effect

    def _checked(self, unit: Unit, effect: float | None) -> int:
        """Returns the number needed; refuses infinity with a message on the remaining variance."""
        number = self.number_needed(unit, effect)
        if math.isfinite(number):
            return int(number)
        others: Unit = "examples" if unit == "seeds" else "seeds"
        # mean squares that remain with infinitely many seeds (or examples)
        terms: tuple[Term, ...] = getattr(self.parts, others)
        total = sum(value for value, _ in terms)
        residual = sum(value for value, _ in self.parts.residual)
        factor = max(total - residual, 0.0) / total if total else 0.0
        left = tuple((value * factor, freedom) for value, freedom in terms)
        floor = VarianceParts(**{"residual": (), unit: (), others: left})
        effect = self._effect(effect)
        best = _TTest(floor, self.alpha, self.sides).power(effect)
        raise DataError(
            f"found power {best:.3g} for an effect of {effect:g} with any number of {unit}, expected "
            f"more than {self.target_power:g}: a variance of {floor.estimate().variance:.3g} comes from "
            f"{others} alone; add {others} or look for a larger effect"
        )


def estimated_plan(
    measured: VarianceParts,
    num_seeds: int,
    num_examples: float,
    design: Design,
    alpha: float,
    estimate: float,
    num_runs: int = 1,
) -> Plan:
    """Returns the plan, with ranges, of a study like a finished one.

    Args:
      num_seeds: number of seeds of the arm with fewer.
      estimate: estimated difference, the planned effect unless it is within one standard error of 0, where
        even its sign is unknown.
    """
    reason = too_few_to_plan(measured)
    if reason:
        raise DataError(reason)
    clear = abs(estimate) > math.sqrt(measured.estimate().variance)
    return Plan(
        measured,
        num_seeds,
        num_examples,
        num_runs,
        design,
        alpha=alpha,
        effect=estimate if clear else None,
        draws=fiducial_draws(measured),
    )


def too_few_to_plan(measured: VarianceParts) -> str:
    """Returns the reason why mean squares are too noisy for a plan, or an empty text."""
    unit = too_few(measured)
    if not unit:
        return ""
    return (
        f"found too few {unit} to plan from (one degree of freedom), expected three or more: two hardly show "
        f"how much {unit} vary; add {unit}, or plan from variance components of a larger study"
    )


def too_few(measured: VarianceParts) -> Literal["seeds", "examples", ""]:
    """Returns the unit with one degree of freedom, too few for a plan; seeds take precedence over examples.

    The 80 % range of such a variance spans a factor of 170.
    """
    if any(freedom < 2 for _, freedom in measured.seeds):
        return "seeds"
    return "examples" if any(freedom < 2 for _, freedom in measured.examples) else ""


def fiducial_draws(parts: VarianceParts) -> VarianceParts:
    """Returns fiducial draws of mean squares [D]."""
    return _scattered(parts, _DRAWS, lambda value, ratio: value / ratio)


def drawn_squares(squares: Mapping[Key, Term]) -> dict[Key, NDArray[np.float64]]:
    """Returns `fiducial_draws` of named mean squares."""
    drawn = fiducial_draws(VarianceParts(tuple(squares.values()), (), ())).seeds
    return dict(zip(squares, (value for value, _ in drawn), strict=True))


def check_sizes(num_seeds: float, num_runs: float, num_examples: float) -> None:
    sizes = {"num_seeds": num_seeds, "num_runs": num_runs, "num_examples": num_examples}
    for name, value in sizes.items():
        whole = value >= 1 and (value % 1 == 0 if math.isfinite(value) else name != "num_seeds")
        if not whole:
            raise DataError(
                f"found {name} {value}, expected a whole number of 1 or more"
                + ("" if name == "num_seeds" else ", or infinity")
            )


def _check_effect(effect: float) -> None:
    if not math.isfinite(effect):
        raise DataError(f"found an effect of {effect}, expected a number")


class _TTest:
    """The recommended t test for a normal estimate and chi-squared mean squares.

    Estimate and mean squares are independent, so the power is the mean over mean squares of the power at
    their critical value. The noncentral t with the expected degrees of freedom overestimates the power if the
    test often has fewer: .80 instead of .70 with three seeds per unpaired arm.
    """

    def __init__(self, parts: VarianceParts, alpha: float, sides: int) -> None:
        from scipy.special import stdtrit

        self.alpha, self.sides = alpha, sides
        total = parts.estimate()
        self.error, self.freedom = math.sqrt(total.variance), total.cautious_degrees_of_freedom
        self.critical: NDArray[np.float64] | None = None  # in standard errors [points]
        if self.error and len([*parts.seeds, *parts.examples, *parts.residual]) > 1:
            seen = _scattered(parts, _POINTS, lambda value, ratio: value * ratio).estimate()
            reach = stdtrit(seen.cautious_degrees_of_freedom, 1 - alpha / sides)
            self.critical = reach * np.sqrt(seen.variance) / self.error

    def power(self, effect: float) -> float:
        """Computes the probability that the test detects a true effect."""
        _check_effect(effect)
        if self.error == 0:
            detected = effect > 0 or (self.sides == 2 and effect < 0)
            return 1.0 if detected else (self.alpha if effect == 0 else 0.0)
        return self._power(effect / self.error)

    def _power(self, shift: float) -> float:
        """Computes the power at an effect in standard errors."""
        from scipy.special import nctdtr, ndtr, stdtrit

        if self.critical is None:  # with one mean square this is the textbook t test
            critical = float(stdtrit(self.freedom, 1 - self.alpha / self.sides))
            # Upper tails by symmetry, without importing scipy.stats; NaN means below 1e-17.
            above = float(np.nan_to_num(nctdtr(self.freedom, -shift, -critical)))
            below = float(np.nan_to_num(nctdtr(self.freedom, shift, -critical)))
        else:
            above = float(ndtr(shift - self.critical).mean())
            below = float(ndtr(-shift - self.critical).mean())
        return above + below if self.sides == 2 else above

    def detectable(self, target_power: float) -> float:
        """Computes the smallest true effect that the test detects with a probability."""
        if self.error == 0:
            return 0.0
        low, high = 0.0, 4.0
        while self._power(high) < target_power:
            high *= 2
        # SciPy's searches take .14 s to import, a fifth of a comparison of two files.
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            if self._power(middle) < target_power:
                low = middle
            else:
                high = middle
        return self.error * high


def _mapped(parts: VarianceParts, function: Callable[[Any], Any]) -> VarianceParts:
    """Applies a function to each mean square."""

    def changed(terms: tuple[Term, ...]) -> tuple[Term, ...]:
        return tuple((function(value), freedom) for value, freedom in terms)

    return VarianceParts(changed(parts.seeds), changed(parts.examples), changed(parts.residual))


def _scattered(
    parts: VarianceParts, number: int, function: Callable[[Any, Any], Any]
) -> VarianceParts:
    """Applies a function to each mean square and points of chi-squared / degrees of freedom [D]."""
    terms = (*parts.seeds, *parts.examples, *parts.residual)
    ratios = iter(_chi_squared([freedom for _, freedom in terms], number))
    return _mapped(parts, lambda value: function(value, next(ratios)))


def _chi_squared(freedoms: Sequence[float], number: int) -> list[NDArray[np.float64]]:
    """Returns points of independent chi-squared variables over their degrees of freedom, each [D].

    The points are quantiles at quasirandom points, for which means converge faster than for random draws.

    Reference: Roberts (2018), The unreasonable effectiveness of quasirandom sequences; Hickernell
    (2002), Obtaining O(N^(-2+e)) convergence for lattice quadrature rules, for the folding.
    """
    ratio = 1.5
    for _ in range(50):  # the root of x^(d + 1) = x + 1
        ratio = (1 + ratio) ** (1 / (len(freedoms) + 1))
    return [
        _chi_squared_at(ratio**-dimension, freedom, number)
        for dimension, freedom in enumerate(freedoms, 1)
    ]


@lru_cache(maxsize=256)  # cached (2 MB), because all searches of a comparison use the same points
def _chi_squared_at(step: float, freedom: float, number: int) -> NDArray[np.float64]:
    from scipy.special import chdtri

    uniform = 1 - np.abs(2 * ((0.5 + np.arange(1, number + 1) * step) % 1) - 1)
    return np.asarray(chdtri(freedom, uniform) / freedom)
