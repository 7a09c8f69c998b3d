"""Early looks at an unfinished experiment: whether the present seeds are enough (`stats.early_look`).

Reference: Lan & DeMets (1983), Discrete sequential boundaries for clinical trials.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, cast

import numpy as np

from multiberts.runs.errors import counted
from multiberts.stats.errors import DataError
from multiberts.stats.formats import format_cell
from multiberts.stats.guessed import knows_guesses
from multiberts.stats.presentation.answer import FurtherAnswer, finished
from multiberts.stats.presentation.words import arms_of
from multiberts.stats.results import ComparisonResult
from multiberts.stats.sequential import Boundaries, spending_boundaries


@dataclass(frozen=True, eq=False, repr=False)
class EarlyLook(FurtherAnswer):
    """Interim result of fewer seeds than planned.

    Attributes:
      seeds, planned_seeds: numbers of present and planned seeds per arm.
      level: largest two-sided p for which the present seeds are enough.
      is_enough: whether p is at most `level`.
      seeds_to_boundary: number of seeds that reaches the boundary with the present difference and noise; None
        if the planned number is too small.

    See also: `early_look`.
    """

    key: ClassVar[str] = "early_look"
    parameter: ClassVar[str] = "planned_seeds"
    of_means: ClassVar[bool] = True
    occasion: ClassVar[str] = " at this look"
    list_column: ClassVar[tuple[str, str, str]] = (
        "Planned seeds",
        "all",
        ", and where seeds are missing by the stricter boundary of a sequential test (O'Brien and Fleming's "
        "spending, a look after every seed: in simulated studies of equal arms some look found a difference "
        "in 0.4 to 7 %; intervals are those of a single look)",
    )

    seeds: int
    planned_seeds: int
    level: float
    is_enough: bool
    seeds_to_boundary: int | None

    @classmethod
    def corrected(cls, answers: Sequence[tuple[Self, float | None]]) -> list[Self]:
        return [
            cast("Self", early_look(each.comparison, each.planned_seeds, p)) for each, p in answers
        ]

    @property
    def clear(self) -> bool:
        return self.is_enough

    def list_cell(self) -> str:
        return f"{self.seeds} of {self.planned_seeds}"

    def summary(self) -> list[str]:
        return self.sentences()

    def sentences(self) -> list[str]:
        of_planned = f"{self.seeds} of {self.planned_seeds} planned seeds"
        level = format_cell(self.level, "p")
        bound = f"p {level}" if level.startswith("<") else f"p = {level}"
        if self.is_enough:
            return [
                f"This is early, from {of_planned}, and these are enough: the corrected p is at or below the "
                f"sequential boundary, {bound}."
            ]
        more = f"at this difference and noise all {self.planned_seeds} would not reach it"
        if self.seeds_to_boundary is not None:
            number = counted(self.seeds_to_boundary - self.seeds, "more seed")
            more = f"at this difference and noise {number} would reach it"
        return [
            f"This is early, from {of_planned}, and not yet enough: the corrected p is above the sequential "
            f"boundary, {bound}; {more}."
        ]


@knows_guesses
def early_look(
    result: ComparisonResult | FurtherAnswer, planned_seeds: int, p_value: float | None = None
) -> EarlyLook:
    """Judges a result with fewer seeds than planned, assuming a look after each seed from the second on.

    The level therefore holds for any number of looks. See `sequential_decision` for the approximation.

    Args:
      result: comparison of two arms with two or more seeds each.
      planned_seeds: number of planned seeds per arm.
      p_value: two-sided p corrected for several comparisons; None: the result's p.

    Raises:
      DataError: fewer than two seeds, more than planned, or p outside [0, 1].

    Examples:
      >>> import numpy as np
      >>> from multiberts import stats
      >>> result = stats.compare(*(np.random.default_rng(0).random((2, 7, 500)) < [[[0.7]], [[0.75]]]))
      >>> look = stats.early_look(result, planned_seeds=10)
      >>> look.is_enough, round(look.level, 4), look.seeds_to_boundary
      (True, 0.0123, 7)

    See also: `sequential_decision`.

    Reference: Lan & DeMets (1983), Discrete sequential boundaries for clinical trials.
    """
    result = finished(result)
    seeds = min(len(arm.seeds) for arm in arms_of(result))
    p = result.p_value if p_value is None else p_value
    if p is None:
        raise DataError("found a single design, expected two arms, whose difference has a p")
    alpha = round(1 - result.confidence_level, 12)
    return EarlyLook(result, seeds, planned_seeds, *look_at(p, seeds, planned_seeds, alpha))


def look_if_planned(result: ComparisonResult, planned_seeds: int) -> EarlyLook | None:
    """Returns `early_look` if planned seeds are missing and there is a p, else None."""
    seeds = min(len(arm.seeds) for arm in arms_of(result))
    if result.p_value is None or not 2 <= seeds < planned_seeds:
        return None
    return early_look(result, planned_seeds)


def look_at(
    p_value: float, seeds: int, planned_seeds: int, alpha: float = 0.05
) -> tuple[float, bool, int | None]:
    """Returns `level`, `is_enough` and `seeds_to_boundary` of `EarlyLook`.

    Args:
      p_value: two-sided p of all seeds so far.
      seeds: number of present seeds per arm, 2 or more.
      alpha: overall two-sided level.

    Examples:
      >>> level, is_enough, _ = look_at(0.004, seeds=7, planned_seeds=10)
      >>> round(level, 4), is_enough
      (0.0123, True)
      >>> look_at(0.04, seeds=7, planned_seeds=10)[-1]
      9
    """
    from scipy.special import ndtri

    if not 2 <= seeds <= planned_seeds or not 0 <= p_value <= 1:
        raise DataError(
            f"found p {p_value} of {seeds} seeds, expected p from 0 to 1 of 2 to {planned_seeds} seeds"
        )
    boundaries = _after_every_seed(planned_seeds, alpha)
    level = float(boundaries.nominal_p[seeds - 2])
    numbers = np.arange(seeds, planned_seeds + 1)
    # The test statistic grows with the root of the information.
    grown = -ndtri(p_value / 2) * np.sqrt(numbers / seeds)
    reached = numbers[grown >= boundaries.z[seeds - 2 :]].tolist()
    is_enough = p_value <= level
    needed = seeds if is_enough else min((n for n in reached if n > seeds), default=None)
    return level, is_enough, needed


@functools.lru_cache(maxsize=16)
def _after_every_seed(planned_seeds: int, alpha: float) -> Boundaries:
    return spending_boundaries([n / planned_seeds for n in range(2, planned_seeds + 1)], alpha)
