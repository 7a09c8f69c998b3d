"""Equality of two arms within a margin, or non-inferiority (`stats.same`).

Reference: Schuirmann (1987), A comparison of the two one-sided tests procedure and the power approach for
assessing the equivalence of average bioavailability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from multiberts.report.presentation.answer import FurtherAnswer, finished
from multiberts.report.presentation.formats import difference_text, printed_unit
from multiberts.report.presentation.planning import range_text
from multiberts.report.presentation.words import (
    count_text,
    estimate_text,
    level_text,
    p_text,
    units_of,
)
from multiberts.stats.compare.result import Comparison, arms_of
from multiberts.stats.errors import DataError
from multiberts.stats.interval_rule import interval_of_difference
from multiberts.stats.intervals import ConfidenceInterval
from multiberts.stats.results import seed_names
from multiberts.stats.significance import adjusted_p_values
from multiberts.stats.variance.needs import number_and_range
from multiberts.stats.variance.plan import TARGET_POWER, Plan, Unit

# measured rate of false claims if seeds fail or are skewed (statistics.md)
_LIMIT = (
    " This rests on seeds that do not fail: where one in ten does, an experiment worse by just the margin "
    "passes in 29 to 46 % of studies of 3 to 10 seeds, and where scores have a long tail to bad ones in "
    "up to 17 %."
)
_SCHUIRMANN = (
    "Schuirmann, D. J. (1987). A Comparison of the Two One-Sided Tests Procedure and the Power "
    "Approach for Assessing the Equivalence of Average Bioavailability. Journal of Pharmacokinetics "
    "and Biopharmaceutics 15(6)."
)


@dataclass(frozen=True, eq=False, repr=False)
class Sameness(FurtherAnswer):
    """Equality of two arms within a margin, from two one-sided tests by the recommended interval.

    Attributes:
      margin: largest irrelevant difference in the metric's unit (.005 for half a point of accuracy).
      ci: recommended interval at 1 minus twice the level of the tests: 90 % for tests at .05.
      p_lower: one-sided p against a difference of -margin or less.
      p_upper: one-sided p against a difference of margin or more.
      higher_is_better: direction of the metric; None if neither is better.
      refused: whether a seed of either arm may have failed to train (`ArmSummary.failed_seeds`); no claim is
        then made about new seeds, for any p.
      holm: both p-values corrected for the length of a list of comparisons; if present, they decide the
        result.

    Examples:
      >>> import numpy as np
      >>> from multiberts import stats
      >>> base, experiment = np.random.default_rng(0).normal(0, 1, (2, 5, 100))
      >>> answer = stats.same(stats.compare(base, experiment), 0.5)
      >>> answer.same, round(answer.p_same, 3)
      (True, 0.001)

    See also: `same`.
    """

    key: ClassVar[str] = "sameness"
    parameter: ClassVar[str] = "margin"
    of_means: ClassVar[bool] = True

    margin: float
    ci: ConfidenceInterval
    p_lower: float
    p_upper: float
    higher_is_better: bool | None = None
    refused: bool = False
    holm: tuple[float, float] | None = None

    def _margin_text(self) -> str:
        """Returns the margin with its own decimals, such as `0.5 points`."""
        metric = self.comparison.metric
        number = f"{self.margin / printed_unit(metric):.6g}"
        return difference_text(self.margin, metric, len(number.partition(".")[2]))

    @cached_property
    def p_same(self) -> float:
        """Returns p of the test of equality, against a difference of the margin or more."""
        return max(self.p_lower, self.p_upper)

    @cached_property
    def p_not_worse(self) -> float | None:
        """Returns p of the test of non-inferiority by the margin; None if neither direction is better."""
        return self._better_side(self.p_lower, self.p_upper)

    def _better_side(self, lower: float, upper: float) -> float | None:
        return {True: lower, False: upper, None: None}[self.comparison.score.more_is_better]

    @property
    def _judged(self) -> tuple[float, float | None]:
        """Returns `p_same` and `p_not_worse`, corrected if the comparison is in a list."""
        pair = self.holm or (self.p_lower, self.p_upper)
        return max(pair), self._better_side(*pair)

    @property
    def alpha(self) -> float:
        """Returns the level of the two tests."""
        return round((1 - self.ci.level) / 2, 12)

    @property
    def same(self) -> bool:
        """Returns whether the arms are shown to be equal within the margin."""
        return not self.refused and self._judged[0] < self.alpha

    @property
    def not_worse(self) -> bool:
        """Returns whether the experiment is shown not to be worse by the margin."""
        p = self._judged[1]
        return not self.refused and p is not None and p < self.alpha

    @property
    def claims(self) -> bool:
        return self.same or self.not_worse

    @classmethod
    def corrected(cls, answers: Sequence[tuple[Self, float | None]]) -> list[Self]:
        lower, upper = (
            adjusted_p_values([getattr(each, name) for each, _ in answers], "holm").tolist()
            for name in ("p_lower", "p_upper")
        )
        pairs = zip(answers, lower, upper, strict=True)
        return [replace(each, holm=(low, high)) for (each, _), low, high in pairs]

    def record(self) -> Any:
        numbers = self.to_dict()
        if numbers.pop("holm"):
            numbers["p_same_holm"], numbers["p_not_worse_holm"] = self._judged
        return numbers

    def plan(
        self,
        num_seeds: int | None = None,
        num_examples: int | None = None,
        true_difference: float = 0.0,
        target_power: float = TARGET_POWER,
    ) -> Plan:
        """Plans a study like this one to show that the experiment is not worse by the margin.

        `seeds_needed()` of the plan is the number of seeds that show this with probability `target_power`. To
        show equality within the margin, plan with (1 + target_power) / 2, so that both one-sided tests
        succeed with probability `target_power` or more.

        Args:
          num_seeds: as in `Comparison.plan`.
          num_examples: as in `Comparison.plan`.
          true_difference: true advantage of the experiment in the metric's unit; negative if it is worse.
          target_power: as in `Comparison.plan`.

        Raises:
          DataError: a true difference worse than the margin, or as in `Comparison.plan`.

        Examples:
          >>> import numpy as np
          >>> from multiberts import stats
          >>> base, experiment = np.random.default_rng(0).normal(0, 1, (2, 5, 100))
          >>> stats.same(stats.compare(base, experiment), 0.5).plan().seeds_needed()
          3

        See also: `Comparison.plan`.
        """
        return self.comparison.plan(
            num_seeds, num_examples, self.margin + true_difference, target_power, sides=1
        )

    def sentences(self) -> list[str]:
        item = self.comparison
        margin = self._margin_text()
        base, experiment = (arm.name for arm in arms_of(item))
        p_same, p_not_worse = self._judged
        ci = f"{level_text(self.ci.level)} {estimate_text(item, self.ci)}"
        holm = (
            "" if self.holm in (None, (self.p_lower, self.p_upper)) else " after Holm's correction"
        )
        alike = f"{experiment} and {base} are the same within {margin}"
        not_worse = f"{experiment} is not worse than {base} by {margin} or more"
        two_sided = f"; two one-sided tests, {p_text(p_same)}{holm}"
        one_sided = "" if p_not_worse is None else f"; one-sided {p_text(p_not_worse)}{holm}"
        if self.refused and replace(self, refused=False).claims:
            failed = " and ".join(
                f"{seed_names(arm.failed_seeds)} of {arm.name}"
                for arm in arms_of(item)
                if arm.failed_seeds
            )
            claim, tests = (alike, two_sided) if p_not_worse is None else (not_worse, one_sided)
            return [
                f"That {claim} is not claimed ({ci}{tests}), because {failed} may have failed to train."
            ]
        limit = "" if item.resample == "examples" else _LIMIT
        if self.same:
            return [f"{alike} ({ci}{two_sided}).{limit}"]
        if self.not_worse:
            only = "that they are the same within it is not shown"
            return [f"{not_worse} ({ci}{one_sided}); {only}.{limit}"]
        if self.comparison.score.more_is_better is None:
            return [f"That {alike} is not shown ({ci}{two_sided})."]
        end = self.ci.high if self.comparison.score.more_is_better else -self.ci.low
        beyond = f": it is worse by more than {margin}" * (end < -self.margin)
        less = f"{experiment} is less than {margin} worse than {base}"
        return [f"These data do not show that {less} ({ci}{one_sided}){beyond}."]

    def more_needed(self) -> list[str]:
        item, shown_to_be_worse = self.comparison, (self.p_not_worse or 0) > 1 - self.alpha
        if self.refused or replace(self, holm=None).claims or shown_to_be_worse:
            return []
        if item.needs is None or item.needs.detectable_difference is None:
            return []
        both = self.comparison.score.more_is_better is None
        plan = self.plan(target_power=(1 + TARGET_POWER) / 2 if both else TARGET_POWER)
        margin = self._margin_text()
        experiment = arms_of(item)[-1].name
        claim = f"{experiment} is not worse by {margin}"
        if both:
            claim = f"both are the same within {margin}"
        units = units_of(item)
        ways = []
        kinds: tuple[tuple[Unit, str], ...] = (
            ("seeds", "seeds per arm" if item.design == "unpaired" else "seeds"),
            ("examples", units),
        )
        for unit, called in kinds:
            number, spread = number_and_range(plan, unit)
            if spread is not None:
                ways.append(f"{number:,} {called} ({range_text(spread, count_text)})")
        needed = f"About {' or '.join(ways)}" if ways else f"More of both seeds and {units}"
        alike = "alike" if both else "equally good"
        return [f"{needed} would show that {claim}, 4 times in 5, if both are {alike}."]

    def methods(self) -> tuple[list[str], list[str]]:
        margin = self._margin_text()
        return [
            f"Sameness within a margin of {margin} was tested by two one-sided tests at {self.alpha:g} "
            "(Schuirmann, 1987)."
        ], [_SCHUIRMANN]


def same(result: Comparison | FurtherAnswer, margin: float) -> Sameness:
    """Tests whether two arms are equal within a margin, and whether the experiment is not worse by it.

    It makes two one-sided tests at 1 minus the confidence level; they agree with the recommended interval at
    1 minus twice that level.

    Args:
      result: comparison of two arms.
      margin: largest irrelevant difference in printed units: points for scores in per cent (0.5 for .005 of
        accuracy, or of scores that are all 0 or 1), else the metric's unit.

    Raises:
      DataError: a margin outside (0, half of the metric's range), or a result of one arm.

    Examples:
      >>> import numpy as np
      >>> from multiberts import stats
      >>> right = np.random.default_rng(0).random((2, 5, 2000)) < 0.8  # arms x seeds x examples
      >>> answer = stats.same(stats.compare(*right), margin=5)  # points
      >>> answer.not_worse, answer.margin
      (True, 0.05)

    See also: `compare`, `Sameness`.

    Reference: Schuirmann (1987), A comparison of the two one-sided tests procedure and the power approach
    for assessing the equivalence of average bioavailability.
    """
    result = finished(result)
    check_margin(margin, result.design)
    source, unit = result.computed_from(), printed_unit(result.metric)
    score, limit = result.score, margin * unit
    if limit >= score.width / 2:
        of_unit = "points" if unit != 1 else f"the unit of {score.metric}, not in points"
        raise DataError(
            f"found margin {margin:g}, half of the range of {score.metric} or more; it is in "
            f"{of_unit}, expected below {score.width / 2 / unit:g}"
        )
    arms = arms_of(result)
    level = 2 * result.confidence_level - 1
    (ci, below), (_, above) = (
        interval_of_difference(
            arms, source.crossing, source.pairs, score, result.resample, level, null=null
        )
        for null in (-limit, limit)
    )
    refused = result.resample != "examples" and any(arm.failed_seeds for arm in arms)
    return Sameness(result, limit, ci, below.greater, above.less, score.more_is_better, refused)


def check_margin(margin: Any, design: str) -> None:
    """Refuses margins that are not positive numbers, and margins for one arm."""
    number = isinstance(margin, int | float | np.floating) and not isinstance(margin, bool)
    if not number or not 0 < margin < math.inf:
        raise DataError(f"found margin {margin!r}, expected a number above 0")
    if design == "single":
        raise DataError(
            "found a margin in a single design, expected two arms to compare; leave it out"
        )
