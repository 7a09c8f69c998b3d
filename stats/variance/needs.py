"""Short answers about a comparison: would one seed have misled, what can be shown, what is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.intervals import Interval
from multiberts.stats.variance.plan import Plan, Unit

# Above this multiple of the present seeds or examples, more of them alone are not suggested.
MOST_TIMES = 100


@dataclass(frozen=True)
class Needs:
    """The data on one seed per arm, and on more seeds and examples.

    Nothing is planned where an arm has fewer than three seeds that are drawn; seeds and examples are not
    planned for a difference that is already found, or within one standard error of 0. Ranges are those
    of `stats.variance.plan.Plan`.

    Attributes:
      opposite_chance: the chance that one random seed per arm (of a paired design, one random seed)
        would have shown a difference of the other sign on these examples, where seeds' scores are
        normal; one half where the estimate is 0. None where no arm has two seeds.
      detectable_difference: the smallest true difference that the t test of these seeds and examples
        finds with 80 % power.
      detectable_difference_range: its 80 % range.
      seeds_needed: seeds per arm (of the arm with fewer) to find a true difference as large as the
        estimate with 80 % power, on as many examples. None where it is not planned, the present number
        would do, or none is enough.
      seeds_needed_range: its 80 % range; infinity beyond a hundred times the present number.
      examples_needed: the same for examples, with the present number of seeds.
      examples_needed_range: its 80 % range.
      error_of_twice_the_seeds: the standard error to be expected with twice the seeds. None where they
        are not drawn.
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
    """Computes the short answers.

    Args:
      opposite: of `opposite_chance`.
      detected: whether its test finds the difference.
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


@lru_cache(maxsize=128)  # terminal, page and JSON ask the same of one comparison
def number_and_range(plan: Plan, unit: Unit) -> tuple[int | None, Interval | None]:
    """Finds the seeds or examples needed, with their range.

    Returns:
      None twice where they are not drawn, or a hundred times the present number is not enough.
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
    """Computes the chance that one random seed per arm shows the other sign.

    The difference of new seeds is predicted from those at hand by Student's t, so that the error of
    the estimate counts, too.

    Args:
      seed_differences: samples whose means add up to the difference: the seeds' paired differences, or
        the scores of each arm whose seeds are drawn.
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
