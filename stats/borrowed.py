"""Seeds' spread that an arm with one seed borrows: a number from a paper, or a row of an atlas.

The spread is the standard deviation over seeds of the score on one evaluation set, as papers print it. That
holds how much models differ and how much a seed's answers to these examples happen to differ (its noise),
but not which examples were drawn: all seeds have the same ones. One seed's answers show the spread of
examples and the same noise, so that the sum of both counts the noise twice. Where its size is known it is
subtracted; elsewhere the standard error is too large, by a factor of 1.41 at most, where seeds vary by
noise alone.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from multiberts.runs.errors import nearest
from multiberts.stats.errors import DataError

if TYPE_CHECKING:
    import pandas

# A number without degrees of freedom counts as one of five seeds, the usual number of papers that print one.
ASSUMED_FREEDOM = 4.0
ATLAS = Path(__file__).with_name("seed_atlas.csv")
COLUMNS = (
    "task", "size", "recipe", "metric", "seeds_are", "num_seeds", "num_examples", "score", "seed_sd",
    "seed_sd_low", "seed_sd_high", "df", "noise_sd", "example_sd", "example_sd_low", "example_sd_high",
    "source",
)  # fmt: skip
_FORMS = "such as 0.8, 0.8/24 (with degrees of freedom), atlas:MNLI/bert-base or FILE.csv:TASK/SIZE"


@dataclass(frozen=True)
class SeedSpread:
    """The spread of seeds that an arm with one seed borrows.

    Attributes:
      sd: standard deviation over seeds of the score on one evaluation set, in the unit that readers see
        (points for scores in per cent) or, in a result, the metric's own.
      df: degrees of freedom of `sd`: seeds less one.
      source: where it comes from.
      noise_sd: the part of `sd` that is noise of each seed on each example; 0 where it is not known.
      num_examples: of the set that it was found on; None where it is not known.
      metric: of the score; None where it is not known.
      assumed: whether the degrees of freedom are an assumption.

    Example:
      >>> SeedSpread(sd=0.8, df=24.0, source="25 seeds of our own").noise_df
      24.0

    See also: `compare`, which takes one as `seed_sd`; `seed_atlas`.
    """

    sd: float
    df: float
    source: str
    noise_sd: float = 0.0
    num_examples: int | None = None
    metric: str | None = None
    assumed: bool = False

    @property
    def noise_df(self) -> float:
        """Returns the degrees of freedom of the noise, which is found in each cell of seeds x examples."""
        return self.df * ((self.num_examples or 2) - 1)

    def on(self, num_examples: int, unit: float) -> SeedSpread:
        """Returns the spread on a set of another size, where the noise is known, in another unit."""
        noise, own = self.noise_sd**2, self.sd**2
        if noise and self.num_examples:
            smaller = noise * self.num_examples / num_examples
            own, noise = max(own - noise, 0.0) + smaller, smaller
        return replace(
            self,
            sd=unit * math.sqrt(own),
            noise_sd=unit * math.sqrt(noise),
            num_examples=num_examples if noise else self.num_examples,
        )


def seed_spread(given: float | str | SeedSpread) -> SeedSpread:
    """Reads a spread of seeds: a number, `number/degrees of freedom`, or a row of an atlas.

    Args:
      given: `0.8`, `0.8/24`, `atlas:TASK/SIZE` or `atlas:TASK/SIZE/RECIPE` for the shipped atlas,
        `FILE.csv:TASK/SIZE` for one of your own; a spread is returned as it is.

    Raises:
      DataError: it is none of these, or there is no such row.

    Example:
      >>> spread = seed_spread("0.8/24")
      >>> spread.sd, spread.df
      (0.8, 24.0)
    """
    if isinstance(given, SeedSpread):
        return given
    where, colon, row = str(given).rpartition(":")
    if colon and isinstance(given, str):
        return _row_of(ATLAS if where == "atlas" else Path(where), row, given)
    sd, slash, freedom = str(given).partition("/")
    try:
        numbers = float(sd), float(freedom) if slash else ASSUMED_FREEDOM
    except ValueError:
        numbers = (math.nan, math.nan)
    if isinstance(given, bool) or not all(0 < number < math.inf for number in numbers):
        raise DataError(f"found seed_sd {given!r}, expected a standard deviation above 0, {_FORMS}")
    if numbers[1] < 1:
        raise DataError(
            f"found seed_sd {given!r}, expected 1 degree of freedom or more (seeds less one)"
        )
    return SeedSpread(*numbers, "no source given", assumed=not slash)


def seed_atlas(path: str | Path = ATLAS) -> pandas.DataFrame:
    """Returns an atlas of how much seeds and examples vary, one row per task, model and recipe.

    Standard deviations are in points for scores in per cent: `seed_sd` over seeds of the score on one
    evaluation set, with its interval at 95 % and degrees of freedom; `noise_sd`, the part of it that is
    noise of each seed on each example; `example_sd`, what drawing other examples adds to all seeds alike.

    Args:
      path: of an atlas that `multiberts compare ONE_ARM --atlas=FILE.csv:TASK/SIZE/RECIPE` wrote; by default
        the shipped one.

    Raises:
      DataError: there is no such file, or it lacks a column.

    Example:
      >>> from multiberts import stats
      >>> atlas = stats.seed_atlas().set_index(["task", "size", "recipe"])
      >>> float(atlas.seed_sd["MNLI", "bert-base", "mccoy2020"])
      0.242

    See also: `compare`, whose `seed_sd="atlas:MNLI/bert-base"` takes a row.

    Reference: each row names its own in the column `source`.
    """
    import pandas

    read_atlas(Path(path))
    return pandas.read_csv(path)


def read_atlas(path: Path = ATLAS) -> list[dict[str, str]]:
    """Reads the rows of an atlas: the shipped one, or `FILE.csv`.

    Raises:
      DataError: there is no such file, or it lacks a column.
    """
    try:
        reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
        rows = list(reader)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: cannot be read as an atlas of seeds ({error}); multiberts compare ONE_ARM "
            "--atlas=FILE.csv:TASK/SIZE/RECIPE writes one"
        ) from error
    lacking = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if lacking:
        raise DataError(
            f"{path}: found no column {', '.join(lacking)}, expected those of an atlas of seeds; "
            "multiberts compare ONE_ARM --atlas=FILE.csv:TASK/SIZE/RECIPE writes one"
        )
    return rows


def with_row(path: Path, row: Mapping[str, object]) -> str:
    """Returns the text of an atlas with one more row, in place of one with the same name."""
    rows: list[Mapping[str, object]] = [*(read_atlas(path) if path.exists() else ())]
    kept = [one for one in rows if name_of(one) != name_of(row)]
    text = io.StringIO()
    own = dict.fromkeys((*COLUMNS, *(name for one in kept for name in one if name)))
    writer = csv.DictWriter(text, [*own], lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows([*kept, row])
    return text.getvalue()


def name_of(row: Mapping[str, object]) -> str:
    """Returns the name of an atlas's row, `TASK/SIZE/RECIPE`."""
    return "/".join(str(row[part]) for part in ("task", "size", "recipe"))


def _row_of(path: Path, name: str, given: str) -> SeedSpread:
    """Returns the row of that name; of several recipes, the one with most seeds."""
    rows = {name_of(row): row for row in read_atlas(path)}
    found = [one for one in rows if one == name or one.startswith(f"{name}/")]
    if not found:
        raise DataError(
            f"found no row {name!r} in the atlas of seed_sd {given!r}; {nearest(name, sorted(rows))}"
        )
    row = rows[max(found, key=lambda one: _number(rows[one], "df", path))]
    examples = row["num_examples"]
    return SeedSpread(
        _number(row, "seed_sd", path),
        _number(row, "df", path),
        f"{name_of(row)}: {row['num_seeds']} {row['seeds_are']}, {row['source']}",
        _number(row, "noise_sd", path) if row["noise_sd"] else 0.0,
        int(_number(row, "num_examples", path)) if examples else None,
        row["metric"],
    )


def _number(row: Mapping[str, str], column: str, path: Path) -> float:
    try:
        number = float(row[column])
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise DataError(
            f"{path}: found {column} {row[column]!r} in {name_of(row)}, expected a number above 0"
        )
    return number
