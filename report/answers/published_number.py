"""The probability of a published number under the distribution of your runs (`stats.reproduce`)."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multiberts.report.answers.borrowed_spread import SeedSpread, seed_spread
from multiberts.report.presentation.answer import FurtherAnswer, finished
from multiberts.report.presentation.formats import difference_text, score_text
from multiberts.report.presentation.words import about_seeds, p_text, rate_text, unseen_failures_of
from multiberts.runs.errors import counted
from multiberts.stats.compare.two_arms import compare
from multiberts.stats.errors import DataError
from multiberts.stats.interval_rule import clipped_interval, interval_of_sum
from multiberts.stats.intervals import ConfidenceInterval, Interval
from multiberts.stats.reading import may_be_of_runs, table_of
from multiberts.stats.results import EqualByContent, plain_value
from multiberts.stats.score import UNKNOWN_DIRECTION, metric_name
from multiberts.stats.variance.crossing import VarianceEstimate

_FORM = re.compile(r"(mean|best|median)(?::([1-9]\d{0,5}))?")
# from the table of coverage in docs/statistics.md
_MEAN_LIMIT = (
    "This takes scores of runs as normal: where one run in ten fails, a 95 % interval of 3 to 10 runs holds "
    "the mean of five new ones in 73 to 83 % of studies, and where scores have a long tail to bad ones in 88 "
    "to 90 %."
)
NUM_DRAWS = 200_000  # a share of .05 has a standard error of .0005


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction(FurtherAnswer):
    """A published number, and the prediction interval for it under the distribution of these runs.

    Attributes:
      comparison: comparison of these runs in a `single` design.
      standard_deviation, df: standard deviation between seeds and its degrees of freedom.
      published: published number in the metric's unit.
      of: statistic of the published runs: `mean`, `best` or `median`.
      ci: prediction interval for the same statistic of new runs, with level `ci.level` and method `t` or
        `simulation`.
      p_value: two-sided probability of a number at least as extreme from new runs.
      borrowed: borrowed spread for one seed; None if the spread is estimated from these seeds.

    See also: `reproduce`.
    """

    key: ClassVar[str] = "reproduction"
    parameter: ClassVar[str] = "published"

    standard_deviation: float
    df: float
    published: float
    of: str
    num_published: int
    ci: ConfidenceInterval
    p_value: float
    borrowed: SeedSpread | None = None

    def record(self) -> Any:
        arm = self.comparison.base
        names = (
            "name", "estimate", "seed_scores", "num_examples", "seeds", "failed_seeds", "failure_rate",
            "constant_seeds",
        )  # fmt: skip
        runs = {name: plain_value(getattr(arm, name)) for name in names}
        return runs | {"metric": self.comparison.metric} | self.to_dict()

    def sentences(self) -> list[str]:
        arm, metric = self.comparison.base, self.comparison.metric
        number, spread = len(arm.seeds), difference_text(self.standard_deviation, metric)
        spread = f"standard deviation {spread}"
        if self.borrowed is not None:
            spread += f", borrowed: {self.borrowed.origin}"
        less = self.of == "best" and self.comparison.score.more_is_better is False
        new = f"the {self.of}{' (lowest)' * less} of {self.num_published} new runs"
        if self.num_published == 1:
            new = "one new run"
        low, high, mean, published = (
            score_text(value, metric) for value in (*self.ci, arm.estimate, self.published)
        )
        warned = [_MEAN_LIMIT] if self.of == "mean" and self.num_published > 1 else []
        drawn = [counted(number, "seed")]
        drawn += [counted(arm.num_examples, "example")] * (arm.num_examples > 1)
        answer = f"Runs like these seldom give the published {published}: it lies outside"
        if self.ci.low <= self.published <= self.ci.high:
            answer = f"These runs do not contradict the published {published}: it lies within"
        return [
            f"{answer} {low} to {high}, where {new} of the same law, scored on the same examples, lies "
            f"with probability {100 * self.ci.level:g} %. A number as far out would come up in "
            f"{rate_text(self.p_value)} of such studies ({p_text(self.p_value)}, two-sided).",
            f"Across {' and '.join(drawn)}, {metric_name(metric)} of {arm.name} is "
            f"{mean}{' on average' * (number > 1)} ({spread}).",
            *warned,
            *about_seeds(arm, metric, self.ci.level),
            *filter(None, [unseen_failures_of([arm], self.ci.level)]),
        ]


def reproduce(
    result: Any,
    published: float,
    of: str = "mean",
    *,
    seed_sd: float | str | SeedSpread | None = None,
) -> Reproduction:
    """Tests whether a published number is plausible under the distribution of these runs.

    Scores of seeds are assumed normal: the mean of k new seeds then lies within estimate -+ t x sd x
    sqrt(1/k + 1/R), with R - 1 degrees of freedom. The best and the median are simulated, with mean and
    spread drawn from their fiducial distribution. The published runs must have been scored on the same
    examples.

    Args:
      result: comparison of one arm, `compare(runs)`; or the runs as `compare` takes them, such as a list of
        their scores.
      published: published number in the unit of the scores: .874 of shares, 87.4 of scores in per cent.
      of: statistic of the published runs: `mean`, `best` or `median`, optionally with their number, such as
        `best:5`; by default the number of these seeds.
      seed_sd: spread of seeds to borrow if there is one seed, as in `one_seed`.

    Raises:
      DataError: one seed without a borrowed spread, several seeds with one, seeds that do not vary, a
        number in another unit, or an invalid setting.

    Examples:
      >>> import numpy as np
      >>> from multiberts import stats
      >>> right = np.random.default_rng(0).random((5, 1000)) < 0.85  # seeds x examples
      >>> answer = stats.reproduce(stats.compare(right, design="single"), 0.874, "best:5")
      >>> answer.ci.low < answer.comparison.estimate < answer.ci.high, answer.p_value > 0.05
      (True, True)

    See also: `compare`, with `design="fixed_baseline"` if the answers of the published runs are available.

    Reference: Hahn & Meeker (1991), Statistical Intervals, chapters 4 and 12.
    """
    if not isinstance(result, EqualByContent):
        table = table_of("runs", result)
        are_scores = may_be_of_runs(table) or len(table.seeds) > 1
        result = compare(result, design="single", resample="seeds" if are_scores else None).named(
            "runs"
        )
    result = finished(result)
    form = _FORM.fullmatch(of)
    if form is None:
        raise DataError(
            f"found of={of!r}, expected mean, best or median, or one of these with a number of runs: best:5"
        )
    if result.experiment is not None:
        raise DataError(
            "found a comparison of two arms, expected one of these runs alone; give stats.compare(runs, "
            "design='single')"
        )
    kind, count = form.group(1), int(form.group(2) or len(result.base.seeds))
    low, high = bounds = result.score.ends
    if not (math.isfinite(published) and low <= published <= high):
        cure = (
            f"; {published:g} % is {published / 100:g}"
            if high == 1 and 1 < published <= 100
            else ""
        )
        raise DataError(
            f"found published {published:g}, expected {low:g} to {high:g} for {result.metric}{cure}"
        )
    scores, level = result.base.seed_scores, result.confidence_level
    for factor in (100, 0.01):
        # An interval far from a number in another unit would look like a refutation.
        if 0.5 < factor * published / scores.mean() < 2:
            raise DataError(
                f"found published {published:g}, but scores from {scores.min():g} to {scores.max():g}: one "
                f"seems to be in per cent, the other not; give published='{factor * published:g}'"
            )
    number, spread = len(scores), None if seed_sd is None else seed_spread(seed_sd)
    if spread is None:
        if number == 1:
            raise DataError(
                f"{result.base.name} has one seed, expected two or more to see how seeds vary; add seeds, or "
                "borrow their spread (seed_sd)"
            )
        sd, df = float(scores.std(ddof=1)), float(number - 1)
    elif number > 1:
        raise DataError(
            f"found seed_sd, but {number} seeds, which have a spread of their own; leave seed_sd out"
        )
    else:
        spread = spread.in_unit_of(result.metric, high - low)
        sd, df = spread.sd, spread.df
    if sd <= 1e-12 * abs(scores).max():
        raise DataError(
            f"found the same score for all {number} seeds, from which no law follows; add seeds"
        )
    centre = float(scores.mean())
    if kind == "mean" or count == 1:
        variance = VarianceEstimate(sd**2 * (1 / count + 1 / number), df, df)
        interval, tests = interval_of_sum(centre, variance, level, bounds, published)
        p = tests.two_sided
    else:
        drawn = standard_draws(kind, count, number, df, result.rng)
        if kind == "best" and result.score.more_is_better is None:
            raise DataError(f"found of='best', but {UNKNOWN_DIRECTION}")
        if kind == "best" and result.score.more_is_better is False:
            drawn = -drawn[::-1]
        tail = max(1, round((1 - level) / 2 * (NUM_DRAWS + 1)))
        ends = Interval(*(centre + sd * float(drawn[end]) for end in (tail - 1, -tail)))
        interval = ConfidenceInterval(*clipped_interval(ends, bounds), level, "simulation")
        z = (published - centre) / sd
        beyond = min(
            np.searchsorted(drawn, z, "right"),
            NUM_DRAWS - np.searchsorted(drawn, z, "left"),
        )
        p = min(1.0, 2 * (int(beyond) + 1) / (NUM_DRAWS + 1))
    return Reproduction(result, sd, df, published, kind, count, interval, p, spread)


@functools.lru_cache(maxsize=8)
def standard_draws(kind: str, count: int, number: int, df: float, rng: int) -> NDArray[np.float64]:
    """Draws the best or median of `count` new seeds minus the mean of `number` observed seeds; sorted [D].

    Units are standard deviations of the observed seeds. Unknown parameters are drawn, too: the ratio of
    true to observed spread is the root of df / chi-squared, and the true mean differs from the observed one
    by the error of a mean of `number` seeds.
    """
    from scipy.special import ndtri

    random = np.random.default_rng([rng, count, number])
    scale = np.sqrt(df / random.chisquare(df, NUM_DRAWS))
    shift = random.standard_normal(NUM_DRAWS) / math.sqrt(number)
    if kind == "best":
        new = ndtri(random.beta(count, 1, NUM_DRAWS))
    else:  # order statistics of uniforms are beta
        below = (count + 1) // 2
        share = random.beta(below, count + 1 - below, NUM_DRAWS)
        new = ndtri(share)
        if count % 2 == 0:
            above_draws = random.beta(1, count - below, NUM_DRAWS)
            new = (new + ndtri(share + (1 - share) * above_draws)) / 2
    return np.sort(scale * (shift + new))
