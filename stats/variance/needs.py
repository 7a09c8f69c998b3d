"""Short answers about a comparison: risk of one seed, power, and numbers of seeds or examples needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.intervals import Interval
from multiberts.stats.variance.plan import Plan, Unit

# Largest suggested multiple of the present seeds or examples.
MOST_TIMES = 100


@dataclass(frozen=True)
class Needs:
    """The risk of one seed per arm, and the numbers of seeds and examples needed.

    Nothing is planned if an arm has fewer than three drawn seeds; seeds and examples are not planned for a
    difference that is already detected, or within one standard error of 0. Ranges as in
    `stats.variance.plan.Plan`.

    Attributes:
      opposite_chance: probability that one random seed per arm (one random seed if paired) shows the
        opposite sign on these examples, for normal scores; 1/2 if the estimate is 0; None if no arm has two
        seeds.
      detectable_difference: smallest true difference that the t test with these seeds and examples detects
        with 80 % power.
      detectable_difference_range: 80 % range of `detectable_difference`.
      seeds_needed: seeds per arm (of the arm with fewer) to detect a true difference of the estimate's size
        with 80 % power on the same number of examples. None if not planned, if the present number is
        enough, or if no number is.
      seeds_needed_range: 80 % range of `seeds_needed`; infinity beyond a hundred times the present number.
      examples_needed: number of examples needed with the present number of seeds, as `seeds_needed`.
      examples_needed_range: 80 % range of `examples_needed`.
      error_of_twice_the_seeds: expected standard error with twice the seeds; None if seeds are not drawn.
    """

    opposite_chance: float | None
    num_seeds: int
    num_examples: int
    detectable_difference: float | None = None
    detectable_difference_range: Interval | None = None
    seeds_needed: int | None = None
    seeds_needed_range: Interval | None = None
    examples_needed: int | None = None
    examples_needed_range: Interval | None = None
    error_of_twice_the_seeds: float | None = None
    error_of_twice_the_examples: float | None = None


def needs_of(plan: Plan, opposite: float | None, detected: bool) -> Needs:
    """Computes the short answers about a comparison.

    Args:
      opposite: result of `opposite_chance`.
      detected: whether the test already detects the difference.
    """
    seeds, examples = plan.num_seeds, int(plan.num_examples)
    wanted = not detected and plan.effect is not None and plan.power() < plan.target_power
    return Needs(
        opposite,
        seeds,
        examples,
        plan.minimum_detectable_effect(),
        plan.minimum_detectable_range(),
        *(number_and_range(plan, "seeds") if wanted else (None, None)),
        *(number_and_range(plan, "examples") if wanted else (None, None)),
        math.sqrt(plan.at(2 * seeds).variance) if plan.draws_new("seeds") else None,
        math.sqrt(plan.at(None, 2 * examples).variance) if plan.draws_new("examples") else None,
    )


@lru_cache(maxsize=128)  # cached, because terminal, page and JSON need the same numbers
def number_and_range(plan: Plan, unit: Unit) -> tuple[int | None, Interval | None]:
    """Finds the seeds or examples needed, with their range.

    Returns:
      (None, None) if the units are not drawn or a hundred times the present number is not enough.
    """
    if not plan.draws_new(unit):
        return None, None
    most = MOST_TIMES * (plan.num_seeds if unit == "seeds" else int(plan.num_examples))
    number = plan.number_needed(unit, most=most)
    if math.isinf(number):
        return None, None
    return int(number), plan.needed_range(unit, most=most)


def opposite_chance(
    estimate: float, seed_differences: Sequence[NDArray[np.float64]]
) -> float | None:
    """Computes the probability that one random seed per arm shows the opposite sign.

    The difference of new seeds is predicted by Student's t, which includes the error of the estimate.

    Args:
      seed_differences: paired differences of seeds, or scores of each arm whose seeds are drawn.
    """
    from scipy.special import stdtr

    samples = [sample for sample in seed_differences if len(sample) > 1]
    if not samples:
        return None
    if estimate == 0:
        return 0.5
    terms = [(float(sample.var(ddof=1)), len(sample)) for sample in samples]
    spread = sum(variance * (1 + 1 / number) for variance, number in terms)
    if spread == 0:
        return 0.0
    squares = sum((variance * (1 + 1 / n)) ** 2 / (n - 1) for variance, n in terms)
    return float(stdtr(spread**2 / squares, -abs(estimate) / math.sqrt(spread)))
