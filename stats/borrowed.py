"""Seeds' spread that an arm with one seed borrows: a number from a paper, or from other runs.

The spread is the standard deviation over seeds of the score on one evaluation set, as papers print it. That
holds how much models differ and how much a seed's answers to these examples happen to differ (its noise),
but not which examples were drawn: all seeds have the same ones. One seed's answers show the spread of
examples and the same noise, so that the sum of both counts the noise twice: the standard error is too large,
by a factor of 1.41 at most, where seeds vary by noise alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from multiberts.stats.errors import DataError

# A number without degrees of freedom counts as one of five seeds, the usual number of papers that print one.
ASSUMED_FREEDOM = 4.0


@dataclass(frozen=True)
class SeedSpread:
    """The spread of seeds that an arm with one seed borrows.

    Attributes:
      sd: standard deviation over seeds of the score on one evaluation set, in the unit that readers see
        (points for scores in per cent) or, in a result, the metric's own.
      df: degrees of freedom of `sd`: seeds less one.
      source: where it comes from.
      assumed: whether the degrees of freedom are an assumption.

    Example:
      >>> SeedSpread(sd=0.8, df=24.0, source="25 seeds of our own").assumed
      False

    See also: `compare`, which takes one as `seed_sd`.
    """

    sd: float
    df: float
    source: str
    assumed: bool = False


def seed_spread(given: float | str | SeedSpread) -> SeedSpread:
    """Reads a spread of seeds: a number, or `number/degrees of freedom`.

    Args:
      given: `0.8` or `0.8/24`; a spread is returned as it is.

    Example:
      >>> spread = seed_spread("0.8/24")
      >>> spread.sd, spread.df
      (0.8, 24.0)
    """
    if isinstance(given, SeedSpread):
        return given
    sd, slash, freedom = str(given).partition("/")
    try:
        numbers = float(sd), float(freedom) if slash else ASSUMED_FREEDOM
    except ValueError:
        numbers = (math.nan, math.nan)
    if isinstance(given, bool) or not all(0 < number < math.inf for number in numbers):
        raise DataError(
            f"found seed_sd {given!r}, expected a standard deviation above 0, such as 0.8, or "
            "0.8/24 with its degrees of freedom"
        )
    if numbers[1] < 1:
        raise DataError(
            f"found seed_sd {given!r}, expected 1 degree of freedom or more (seeds less one)"
        )
    return SeedSpread(*numbers, "no source given", assumed=not slash)
