"""Three short answers about a comparison: would one seed have misled, what can be shown, what is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multiberts.stats.bootstrap.crossing import VarianceParts

# The probability with which a difference is to be found.
TARGET_POWER = 0.8
# Beyond so many times the present seeds or examples, more of them alone are not called a way out.
_MOST_TIMES = 10_000


@dataclass(frozen=True)
class ShortAnswers:
    """What the data say about one seed per side, and about more seeds and examples.

    Attributes:
      opposite_chance: the chance that one random seed per side (of a paired design, one random seed)
        would have shown a difference of the other sign on these examples, where seeds' scores are
        normal; one half where the estimate is 0. None where no side has two seeds.
      detectable_difference: the smallest true difference of which the t test of these seeds and
        examples finds four in five.
      seeds_needed: seeds per side (of the side with fewer) with which four in five such studies
        would find a difference as large as the estimate, on as many examples; the present number
        where the difference is already found. None where no number is enough, or seeds are not
        resampled.
      examples_needed: the same of the examples, with as many seeds.
      num_seeds, num_examples: the present numbers of both.
      error_of_twice_the_seeds, error_of_twice_the_examples: the standard error to be expected then;
        the smaller one buys more. None where they are not resampled.
    """

    opposite_chance: float | None
    detectable_difference: float
    seeds_needed: int | None
    examples_needed: int | None
    num_seeds: int
    num_examples: int
    error_of_twice_the_seeds: float | None
    error_of_twice_the_examples: float | None


def short_answers(
    parts: VarianceParts,
    estimate: float,
    found: bool,
    alpha: float,
    num_seeds: int,
    num_examples: int,
    seed_differences: Sequence[NDArray[np.float64]],
) -> ShortAnswers:
    """Computes the short answers from the parts of a variance.

    Args:
      parts: of the variance of the estimate.
      estimate: the difference.
      found: whether the t test finds it at the level alpha.
      alpha: level of the two-sided test.
      num_seeds: of the side with fewer.
      num_examples: of the data.
      seed_differences: samples whose means add up to the difference: the seeds' paired differences,
        or the scores of each side whose seeds are drawn (with their sign).

    Example:
      >>> import numpy as np
      >>> from multiberts.stats.bootstrap.crossing import crossing_of_tables
      >>> from multiberts.stats.bootstrap.answers import short_answers
      >>> table = np.random.default_rng(0).normal(0.1, 1, (5, 200))
      >>> parts = crossing_of_tables([table]).variance_parts()
      >>> found = short_answers(parts, 0.1, False, 0.05, 5, 200, [table.mean(axis=1)])
      >>> found.detectable_difference > 0.05
      True
    """

    def power(seeds: float, examples: float) -> float:
        planned = parts.scaled(seeds, examples)
        freedom = planned.cautious_degrees_of_freedom
        return power_of_t(estimate, planned.variance, freedom, alpha)

    now = parts.scaled(1, 1)
    drawn = bool(parts.seeds), bool(parts.examples)
    return ShortAnswers(
        opposite_chance=opposite_chance(estimate, seed_differences),
        detectable_difference=detectable_difference(
            now.variance, now.cautious_degrees_of_freedom, alpha
        ),
        seeds_needed=_needed(lambda times: power(times, 1), num_seeds, found) if drawn[0] else None,
        examples_needed=_needed(lambda times: power(1, times), num_examples, found)
        if drawn[1]
        else None,
        num_seeds=num_seeds,
        num_examples=num_examples,
        error_of_twice_the_seeds=math.sqrt(parts.scaled(2, 1).variance) if drawn[0] else None,
        error_of_twice_the_examples=math.sqrt(parts.scaled(1, 2).variance) if drawn[1] else None,
    )


def _needed(power: Callable[[float], float], number: int, found: bool) -> int | None:
    """Returns the smallest number with enough power at so many times the present one, or None."""
    if found:
        return number
    low, high = number, number
    while power(high / number) < TARGET_POWER:
        low, high = high, 2 * high
        if high > _MOST_TIMES * number:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle / number) >= TARGET_POWER else (middle, high)
    return high


def opposite_chance(
    estimate: float, seed_differences: Sequence[NDArray[np.float64]]
) -> float | None:
    """Computes the chance that one random seed per side shows the other sign.

    The difference of new seeds is predicted from those at hand by Student's t, so that the error of
    the estimate counts, too.

    Args:
      estimate: the difference.
      seed_differences: as in `short_answers`.
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


def power_of_t(
    effect: float, variance: float, freedom: float, alpha: float, sides: int = 2
) -> float:
    """Computes the probability that a t test finds a true effect.

    Args:
      effect: the true value; the test is against 0.
      variance: of its estimate.
      freedom: degrees of freedom of the test; infinity for a known variance.
      alpha: level of the test.
      sides: of the test; a one-sided test looks for positive effects.
    """
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
        # The mirror image of the lower tail: SciPy's distribution function can be NaN there.
        above, below = float(nct.sf(critical, freedom, shift)), 0.0
        if sides == 2:
            below = float(nct.sf(critical, freedom, -shift))
    return above + below if sides == 2 else above


def detectable_difference(
    variance: float,
    freedom: float,
    alpha: float,
    sides: int = 2,
    target_power: float = TARGET_POWER,
) -> float:
    """Computes the smallest true effect that a t test finds with a given probability.

    Args:
      variance: of the estimate.
      freedom: degrees of freedom of the test.
      alpha: level of the test.
      sides: of the test.
      target_power: the probability, above alpha.
    """
    from scipy.optimize import brentq
    from scipy.special import stdtrit

    if variance == 0:
        return 0.0

    def missing(effect: float) -> float:
        return power_of_t(effect, 1.0, freedom, alpha, sides) - target_power

    high = float(stdtrit(freedom, 1 - alpha / sides) + stdtrit(freedom, target_power))
    while missing(high) < 0:
        high *= 2
    return float(brentq(missing, 0, high)) * math.sqrt(variance)
