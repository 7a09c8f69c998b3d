"""Generalises comparisons of arms with one seed to new seeds by a borrowed spread (`stats.one_seed`).

The spread is the standard deviation over seeds of the score on one evaluation set, as printed in papers. It
contains the variation between models and the noise of a seed's answers to these examples, but not the
sampling of examples, which all seeds share. The variance over the examples of one seed contains the same
noise. Their sum counts the noise twice, so the standard error is too large, by a factor of at most 1.41 (if
seeds vary by noise only).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

from multiberts.report.presentation.answer import FurtherAnswer, finished
from multiberts.report.presentation.formats import difference_text, printed_unit
from multiberts.report.presentation.words import finding
from multiberts.stats.compare.comparison_spec import ComparisonSpec
from multiberts.stats.compare.result import Comparison, Names, arms_of
from multiberts.stats.compare.two_arms import compare_specs
from multiberts.stats.errors import DataError
from multiberts.stats.results import plain_value
from multiberts.stats.settings import ComparisonSettings

# Default degrees of freedom: five seeds, as is usual in papers that print a standard deviation.
ASSUMED_FREEDOM = 4.0


@dataclass(frozen=True)
class SeedSpread:
    """The spread of seeds that an arm with one seed borrows.

    Attributes:
      sd: standard deviation over seeds of the score on one evaluation set, in printed units (points for
        scores in per cent) or, in a result, the metric's unit.
      df: degrees of freedom of `sd`: number of seeds minus 1.
      source: text on the origin of `sd`.
      assumed: whether `df` is a default.

    Examples:
      >>> SeedSpread(sd=0.8, df=24.0, source="25 seeds of our own").assumed
      False

    See also: `one_seed`.
    """

    sd: float
    df: float
    source: str
    assumed: bool = False

    @property
    def origin(self) -> str:
        """Returns a text on the degrees of freedom and the source."""
        assumed = ", assumed as if from five seeds" if self.assumed else ""
        return f"{self.df:g} degrees of freedom{assumed}; {self.source}"

    def in_unit_of(self, metric: str, width: float) -> SeedSpread:
        """Converts the spread to a metric's unit.

        Args:
          width: width of the metric's range.
        """
        unit = printed_unit(metric)
        if unit * self.sd >= width / 2:
            of_unit = "points" if unit != 1 else f"the unit of {metric}, not in points"
            raise DataError(
                f"found seed_sd {self.sd:g}, half of the range of {metric} or more; it is in {of_unit}"
            )
        return replace(self, sd=unit * self.sd)


def seed_spread(spread: float | str | SeedSpread) -> SeedSpread:
    """Reads a spread of seeds: a number, or `number/degrees of freedom`.

    Args:
      spread: `0.8` or `0.8/24`; a `SeedSpread` is returned unchanged.

    Examples:
      >>> spread = seed_spread("0.8/24")
      >>> spread.sd, spread.df
      (0.8, 24.0)
    """
    if isinstance(spread, SeedSpread):
        return spread
    sd, slash, freedom = str(spread).partition("/")
    try:
        numbers = float(sd), float(freedom) if slash else ASSUMED_FREEDOM
    except ValueError:
        numbers = (math.nan, math.nan)
    if isinstance(spread, bool) or not all(0 < number < math.inf for number in numbers):
        raise DataError(
            f"found seed_sd {spread!r}, expected a standard deviation above 0, such as 0.8, or "
            "0.8/24 with its degrees of freedom"
        )
    if numbers[1] < 1:
        raise DataError(
            f"found seed_sd {spread!r}, expected 1 degree of freedom or more (seeds less one)"
        )
    return SeedSpread(*numbers, "no source given", assumed=not slash)


@dataclass(frozen=True, eq=False, repr=False)
class OneSeed(FurtherAnswer):
    """A comparison whose seeds vary by a borrowed spread.

    Attributes:
      comparison: comparison for new seeds, with the recommended interval and p only; bootstrap samples draw
        examples only, and plans are impossible.
      borrowed: borrowed spread in the metric's unit.

    See also: `one_seed`.
    """

    key: ClassVar[str] = "borrowed"
    parameter: ClassVar[str] = "seed_sd"
    replaces: ClassVar[bool] = True
    no_ranking: ClassVar[str] = "it needs two seeds of each"

    borrowed: SeedSpread

    @classmethod
    def settings_for(cls, settings: ComparisonSettings) -> ComparisonSettings:
        design = "unpaired" if settings.laid_out == "paired" else settings.design
        return replace(settings, design=design, resample="examples")

    def record(self) -> Any:
        return plain_value(self.borrowed)

    def _borrowers(self) -> str:
        item = self.comparison
        drawn = arms_of(item)[item.design == "fixed_baseline" :]
        names = [arm.name for arm in drawn if len(arm.seeds) == 1]
        have = "has one seed" if len(names) == 1 else "have one seed each"
        return f"{' and '.join(names)} {have}"

    def _spread(self) -> str:
        spread = self.borrowed
        return f"{difference_text(spread.sd, self.comparison.metric)} ({spread.origin})"

    def summary(self) -> list[str]:
        return self.sentences()

    def sentences(self) -> list[str]:
        single = self.comparison.experiment is None
        right = "The interval is" if single else "Interval and p are"
        return [
            f"{right} right only if the spread of seeds is: {self._borrowers()}, and the standard "
            f"deviation between seeds was taken to be {self._spread()}."
        ]

    def methods(self) -> tuple[list[str], list[str]]:
        return [
            f"{self._borrowers()}; the standard deviation between seeds was not estimated but "
            f"taken to be {self._spread()}, and examples were drawn independently of it."
        ], []

    def __str__(self) -> str:
        """Returns the finding with its spread, and the table."""
        table = cast("Comparison", self.comparison).table().markdown()
        return f"{finding(self.comparison, answers=[self])}\n\n{table.rstrip()}"


def one_seed(
    result: Comparison | FurtherAnswer,
    seed_sd: float | str | SeedSpread,
    resample: Literal["both", "seeds"] = "both",
) -> OneSeed:
    """Generalises a comparison of arms with one seed to new seeds, with a borrowed spread.

    Seeds are unpaired, because the correlation of pairs is unknown; arms with several seeds use their own
    spread.

    Args:
      result: result of `compare`; if one arm has several seeds, of `compare(..., resample="examples")`.
      seed_sd: standard deviation over seeds of the score on one evaluation set, in printed units (points
        for scores in per cent); `"0.8/24"` with its degrees of freedom (by default 4), or a `SeedSpread`.
      resample: `both`, or `seeds` with the examples held fixed.

    Raises:
      DataError: a result without an arm of one seed or not with `resample="examples"`, or an invalid spread.

    Examples:
      >>> import numpy as np
      >>> from multiberts import stats
      >>> right = np.random.default_rng(0).random((2, 1, 2000)) < 0.8  # arms x one seed x examples
      >>> result = stats.compare(*right)
      >>> answer = stats.one_seed(result, "0.8/24")  # points, of 25 seeds
      >>> round(answer.comparison.standard_error / result.standard_error, 2)
      1.34

    See also: `compare`, `SeedSpread`.

    Reference: Satterthwaite (1946), An Approximate Distribution of Estimates of Variance Components.
    """
    result = finished(result)
    source, spread = result.computed_from(), seed_spread(seed_sd)
    if result.resample != "examples" or source.spec is None:
        raise DataError(
            f"found a result with resample={result.resample!r}, expected resample='examples', which holds "
            "the one seed fixed; compare so, and give that result"
        )
    spec, arms = source.spec, arms_of(result)
    drawn = arms[result.design == "fixed_baseline" :]
    if all(len(arm.seeds) > 1 for arm in drawn):
        numbers = " and ".join(f"{arm.name} {len(arm.seeds)}" for arm in drawn)
        raise DataError(
            f"found seed_sd, but more than one seed ({numbers}), which have a spread of their own; "
            "leave seed_sd out"
        )
    if any(arm.left_out for arm in arms):
        raise DataError(
            "found seeds that pairing left out, expected design='unpaired', which keeps them; compare so"
        )
    scaled = spread.in_unit_of(spec.metric.name, result.score.width)
    design = "unpaired" if result.design == "paired" else result.design
    settings = replace(spec.settings, design=design, resample=resample)
    drawing = ComparisonSpec.of(spec.prepared, settings, prior=(scaled.sd**2, scaled.df))
    names = Names(result.name, result.evaluation_set, *(arm.name for arm in arms))
    [item] = compare_specs([drawing], settings, [names])
    origin = item.computed_from()
    origin = replace(
        origin, arms=[replace(arm, draw=None) for arm in origin.arms], is_borrowed=True
    )
    return OneSeed(Comparison(item.name, item.evaluation_set, origin), scaled)
