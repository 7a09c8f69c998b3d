"""The power of a comparison in words: detectable differences, and the effect of more seeds or examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from multiberts.report.presentation.formats import format_cell
from multiberts.report.presentation.words import (
    count_text,
    drawn_unit,
    error_text,
    estimate_text,
    filled,
    is_clear,
    not_empty,
    units_of,
    unseen_failures,
)
from multiberts.stats.compare.result import arms_of
from multiberts.stats.variance.plan import too_few

if TYPE_CHECKING:
    from multiberts.report.presentation.answer import FurtherAnswer
    from multiberts.stats.compare.result import Comparison
    from multiberts.stats.intervals import Interval
    from multiberts.stats.variance.needs import Needs


def needs_in_words(
    item: Comparison, adjusted: float | None = None, answers: Sequence[FurtherAnswer] = ()
) -> list[str]:
    """Describes the risk of using one seed, the power of these data, and the seeds or examples needed.

    Args:
      adjusted, answers: as in `finding`.

    Returns:
      A paragraph of answers and the paragraph of `unseen_failures`, without empty ones.
    """
    needs = item.needs
    if needs is None or item.standard_error == 0:
        return not_empty(unseen_failures(item))
    opposite = ""
    if needs.opposite_chance is not None:
        unit = drawn_unit(arms_of(item))
        one_seed = (
            f"One random {unit} per arm" if item.design == "unpaired" else f"A single random {unit}"
        )
        chance = 100 * needs.opposite_chance
        shown = f"{chance:.0f}" if chance >= 1 else "below 1"
        opposite = f"{one_seed} would have shown the opposite sign with probability {shown} %."
    sentences = (opposite, what_is_needed(item, adjusted, answers), _doubled(item, needs))
    return not_empty(" ".join(not_empty(*sentences)), unseen_failures(item))


def what_is_needed(
    item: Comparison, adjusted: float | None = None, answers: Sequence[FurtherAnswer] = ()
) -> str:
    """Describes the detectable difference and the needs for a smaller one; empty if nothing varies.

    Args:
      adjusted, answers: as in `finding`.
    """
    needs = item.needs
    if needs is None or item.standard_error == 0:
        return ""
    if needs.detectable_difference is None:
        number, units = _too_few(item, needs)
        return f"Nothing can be planned from {number:,g} {units}, which do not show how much {units} vary."
    text = partial(estimate_text, item)
    smallest = detectable_text(
        needs.detectable_difference, needs.detectable_difference_range, "80 %", text
    )
    more = "" if item.significant else _needed(item, needs, needs.detectable_difference)
    if item.significant and adjusted is not None and not is_clear(item, adjusted):
        more = "Significant on its own, but not after correcting for the number of comparisons."
    further = (text for answer in answers for text in answer.more_needed())
    return " ".join([f"The {smallest}.", *not_empty(more), *further])


def _too_few(item: Comparison, needs: Needs) -> tuple[float, str]:
    """Returns the number and the name of the units of which there are too few for a plan."""
    if item.variance_parts is None or too_few(item.variance_parts) == "seeds":
        return needs.num_seeds, f"{drawn_unit(arms_of(item))}s"
    arm = min(arms_of(item), key=lambda arm: arm.num_scored)
    clusters = units_of(item) if arm.num_clusters is None else "clusters"
    if arm.num_scored < arm.num_units:
        return arm.num_scored, f"{clusters} that the score rests on"
    return arm.num_units, clusters


def _needed(item: Comparison, needs: Needs, detectable: float) -> str:
    """Gives the number of seeds or examples to detect a difference of this size, if it can be planned."""
    seeds = f"{drawn_unit(arms_of(item))}s"
    drawn = [seeds] * (item.resample != "examples") + [units_of(item)] * (item.resample != "seeds")
    if abs(item.estimate) <= item.standard_error:
        close = "within one standard error of zero, too close to plan further"
        return f"The estimate is {close} {drawn[0]} for it."
    of_seeds = seeds + " per arm" * (item.design == "unpaired")
    ways = [
        f"about {number:,} {unit} ({range_text(likely, count_text)})"
        for number, likely, unit in (
            (needs.seeds_needed, needs.seeds_needed_range, of_seeds),
            (needs.examples_needed, needs.examples_needed_range, units_of(item)),
        )
        if number is not None and likely is not None
    ]
    if not ways and abs(item.estimate) < detectable:
        ways = [
            f"more of both {' and '.join(drawn)}" if len(drawn) > 1 else f"many more {drawn[0]}"
        ]
    # empty if the present numbers are enough
    size = estimate_text(item, abs(item.estimate))
    takes = f"Detecting a true difference of {size} with 80 % power takes"
    return filled(f"{takes} {{}}.", " or ".join(ways))


def _doubled(item: Comparison, needs: Needs) -> str:
    """Gives the standard error with twice the seeds or examples, starting with the better option."""
    pairs = (
        (needs.error_of_twice_the_seeds, f"{drawn_unit(arms_of(item))}s"),
        (needs.error_of_twice_the_examples, units_of(item)),
    )
    errors = sorted((error, unit) for error, unit in pairs if error is not None)
    if needs.detectable_difference is None or not errors:
        return ""
    now, (first, *others) = error_text(item, item.standard_error), errors
    more = "".join(f", doubling the {unit} to {error_text(item, error)}" for error, unit in others)
    return (
        f"Doubling the {first[1]} would reduce the standard error from {now} to "
        f"{error_text(item, first[0])}{more}."
    )


def detectable_text(
    value: float, interval: Interval | None, power: str, text: Callable[[Any], str] = format_cell
) -> str:
    return f"smallest difference detectable with {power} power is about {text(value)}" + (
        "" if interval is None else f" ({range_text(interval, text)})"
    )


def range_text(interval: Interval, text: Callable[[Any], str]) -> str:
    """Formats the 80 % range of a planned number."""
    if math.isinf(interval.high):
        return f"80 % range {text(interval.low)} or more"
    return f"80 % range {text(interval)}"
