"""A published number beside your own runs: how probable it is if both follow the same law."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiberts.runs.errors import counted
from multiberts.stats.bootstrap.pseudo_values import job_table
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.borrowed import SeedSpread
from multiberts.stats.compare.failures import failures_of
from multiberts.stats.compare.question import TaskData, borrowed, prepare_arms
from multiberts.stats.compare.undefined import check_defined
from multiberts.stats.errors import DataError
from multiberts.stats.intervals import ConfidenceInterval, Interval, clipped_interval
from multiberts.stats.metric_names import difference_text, metric_name, score_text
from multiberts.stats.metrics import MetricLike, ScoreFunction
from multiberts.stats.presentation.wording import (
    about_seeds,
    origin_text,
    p_text,
    rate_text,
    unseen_failures_of,
)
from multiberts.stats.recommended import interval_of_sum
from multiberts.stats.results.comparison import ArmSummary
from multiberts.stats.results.content import EqualByContent
from multiberts.stats.settings import ComparisonSettings, Missing
from multiberts.stats.variance.crossing import Crossing, VarianceEstimate
from multiberts.stats.variance.score_tables import TablePart

_FORM = re.compile(r"(mean|best|median)(?::([1-9]\d{0,5}))?")
# From the table of coverage in docs/statistics.md.
_MEAN_LIMIT = (
    "This takes scores of runs as normal: where one run in ten fails, a 95 % interval of 3 to 10 runs holds "
    "the mean of five new ones in 73 to 83 % of studies, and where scores have a long tail to bad ones in 88 "
    "to 90 %."
)
NUM_DRAWS = 200_000  # shares of .05 are known to .0005


@dataclass(frozen=True, eq=False)
class Reproduction(EqualByContent):
    """A published number, and where such a number lies if it comes from runs like these.

    Attributes:
      name, metric: of these runs, and their score.
      estimate: the mean of their seeds' scores.
      seed_scores: one per seed, its runs averaged [R].
      num_examples: that all seeds answered.
      standard_deviation, df: between seeds, and its degrees of freedom.
      published: the published number, in the metric's own unit.
      of: `mean`, `best` or `median` of the published runs.
      num_published: how many they are taken to be.
      ci: the interval that holds such a number of new runs with probability `ci.level`; its method is `t` or
        `simulation`.
      p_value: two-sided: how often new runs give a number as far out or further.
      borrowed: the spread that one seed borrowed; None where it is these seeds' own.
      seeds: of these runs [R].
      failed_seeds, failure_rate, constant_seeds: as in `ArmSummary`. New runs may fail as well, and then
        fewer lie in `ci`.

    Example:
      >>> reproduce([[1, 0, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]], "mean", published=0.8).num_published
      3

    See also: `reproduce`.
    """

    name: str
    metric: str
    estimate: float
    seed_scores: NDArray[np.float64]
    num_examples: int
    standard_deviation: float
    df: float
    published: float
    of: str
    num_published: int
    ci: ConfidenceInterval
    p_value: float
    borrowed: SeedSpread | None = None
    seeds: tuple = ()
    failed_seeds: tuple = ()
    failure_rate: Interval | None = None
    constant_seeds: tuple = ()

    def __str__(self) -> str:
        """Returns the answer in words."""
        arm = ArmSummary(
            self.name, self.estimate, self.ci, {}, self.seeds, self.seed_scores, len(self.seeds),
            self.num_examples, failed_seeds=self.failed_seeds, failure_rate=self.failure_rate,
            constant_seeds=self.constant_seeds,
        )  # fmt: skip
        warned = [_MEAN_LIMIT] if self.of == "mean" and self.num_published > 1 else []
        warned += about_seeds(arm, self.metric, self.ci.level)
        limit = unseen_failures_of([arm], self.ci.level)
        return " ".join([self._answer(), *warned, *filter(None, [limit])])

    def _answer(self) -> str:
        number, metric = len(self.seed_scores), self.metric
        spread = f"standard deviation {difference_text(self.standard_deviation, metric)}"
        if self.borrowed is not None:
            spread += f", borrowed: {origin_text(self.borrowed)}"
        new = f"the {self.of} of {self.num_published} new runs"
        if self.num_published == 1:
            new = "one new run"
        within = self.ci.low <= self.published <= self.ci.high
        low, high, mean, found = (
            score_text(value, metric) for value in (*self.ci, self.estimate, self.published)
        )
        return (
            f"Across {counted(number, 'seed')} and {counted(self.num_examples, 'example')}, "
            f"{metric_name(metric)} of {self.name} is {mean}{' on average' * (number > 1)} ({spread}). With "
            f"probability {100 * self.ci.level:g} % {new} of the same law, scored on the same examples, "
            f"lies between {low} and {high}. The published {found} lies "
            f"{'within' if within else 'outside'} that: a number as far out would come up in "
            f"{rate_text(self.p_value)} of such studies ({p_text(self.p_value)}, two-sided), so that "
            f"{'these runs do not contradict it' if within else 'such runs seldom give it'}."
        )


def reproduce(
    runs: Any,
    metric: str | MetricLike | ScoreFunction | None = None,
    *,
    published: float,
    of: str = "mean",
    labels: Any = None,
    missing: Missing = "refuse",
    seed_sd: float | str | SeedSpread | None = None,
    name: str = "these runs",
) -> Reproduction:
    """Asks how probable a published number is, if it came from runs that follow the same law as these.

    Scores of seeds are taken as normal, with a mean and spread that these runs show: the mean of k new
    seeds then lies within estimate -+ t x sd x sqrt(1/k + 1/R), with R - 1 degrees of freedom. The best and
    the median are simulated from the same law, with mean and spread drawn from what these runs leave open.
    The published runs must have been scored on the same examples.

    Args:
      runs: predictions or scores, as `stats.compare` takes them.
      metric: as in `stats.compare`.
      published: the number, in the metric's own unit: .874 of accuracy, not 87.4.
      of: what it is: `mean`, `best` or `median`, with the number of runs, such as `best:5`; without it as
        many as these.
      labels: as in `stats.compare`.
      missing: `refuse` or `omit`, as in `stats.compare`.
      seed_sd: for one run, the spread of seeds to borrow, as in `stats.compare`.
      name: of these runs.

    Raises:
      DataError: there is one seed and no spread for it, or several and a borrowed one; seeds do not vary;
        or a setting is not valid.

    Example:
      >>> import numpy as np
      >>> from multiberts import stats
      >>> right = np.random.default_rng(0).random((5, 1000)) < 0.85  # seeds x examples
      >>> found = stats.reproduce(right, published=0.874, of="best:5", name="ours")
      >>> found.ci.low < found.estimate < found.ci.high, found.p_value > 0.05
      (True, True)

    See also: `compare`, with `design="fixed_baseline"` where the answers of the published runs are at hand.

    Reference: Hahn & Meeker (1991), Statistical Intervals, chapters 4 and 12.
    """
    form = _FORM.fullmatch(of)
    if form is None:
        raise DataError(
            f"found of {of!r}, expected mean, best or median, or with a number of runs: best:5"
        )
    settings = ComparisonSettings("single", resample="seeds", seed_sd=seed_sd)
    confidence_level = settings.confidence_level
    prepared = prepare_arms(TaskData(runs, None, metric, labels, None, missing), settings)
    (arm,), used = prepared.arms, prepared.metric
    low, high = used.bounds
    if not (math.isfinite(published) and low <= published <= high):
        cure = (
            f"; {published:g} % is {published / 100:g}"
            if high == 1 and 1 < published <= 100
            else ""
        )
        raise DataError(
            f"found published {published:g}, expected {low:g} to {high:g} for {used.name}{cure}"
        )
    job = ScoreJob(arm, used, "seeds", None)
    check_defined(name, job)
    scores: NDArray[np.float64] = job.plain[0][0]
    number, spread = len(scores), settings.spread
    if spread is None:
        if number == 1:
            raise DataError(
                f"{name} has one seed, expected two or more to see how seeds vary; add seeds, or borrow "
                "their spread (seed_sd)"
            )
        sd, df = float(scores.std(ddof=1)), float(number - 1)
    elif number > 1:
        raise DataError(
            f"found seed_sd, but {number} seeds, which have a spread of their own; leave seed_sd out"
        )
    else:
        spread = borrowed(spread, used)
        sd, df = spread.sd, spread.df
    if sd <= 1e-12 * abs(scores).max():
        raise DataError(
            f"found the same score for all {number} seeds, from which no law follows; add seeds"
        )
    kind, count = form.group(1), int(form.group(2) or number)
    centre = float(scores.mean())
    if kind == "mean" or count == 1:
        variance = VarianceEstimate(sd**2 * (1 / count + 1 / number), df, df)
        interval, tests = interval_of_sum(
            centre, variance, confidence_level, (low, high), published
        )
        p = tests.two_sided
    else:
        drawn = standard_draws(kind, count, number, df, settings.rng)
        tail = max(1, round((1 - confidence_level) / 2 * (NUM_DRAWS + 1)))
        ends = Interval(*(centre + sd * float(drawn[end]) for end in (tail - 1, -tail)))
        interval = ConfidenceInterval(
            *clipped_interval(ends, (low, high)), confidence_level, "simulation"
        )
        place = (published - centre) / sd
        beyond = min(
            np.searchsorted(drawn, place, "right"),
            NUM_DRAWS - np.searchsorted(drawn, place, "left"),
        )
        p = min(1.0, 2 * (int(beyond) + 1) / (NUM_DRAWS + 1))
    crossing = Crossing([TablePart(job_table(job), 1.0, job.pool, job.examples)])
    return Reproduction(
        name, used.name, centre, scores, arm.num_examples, sd, df, published, kind, count, interval, p,
        spread, arm.seeds, *failures_of(job, crossing, scores, confidence_level),
    )  # fmt: skip


@functools.lru_cache(maxsize=8)
def standard_draws(kind: str, count: int, number: int, df: float, rng: int) -> NDArray[np.float64]:
    """Draws the best or median of `count` new seeds, less the mean of `number` seen; sorted [D].

    In standard deviations of the seeds seen. What is unknown is drawn, too: the true spread over the seen
    one is the root of df / chi-squared, and the true mean lies as far from the seen one as that of `number`
    seeds does.
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
            rest = random.beta(1, count - below, NUM_DRAWS)
            new = (new + ndtri(share + (1 - share) * rest)) / 2
    return np.sort(scale * (shift + new))
