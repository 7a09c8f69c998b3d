"""Trials of a condition, counted: how often intervals cover the truth, how often tests reject it.

A trial is what `stats.compare` says about made-up data. Here the parts that it is made of are
called, so that nothing need be packed into labelled arrays and a batch of trials shares its
bootstrap draws; the answers are the same to the last bit. Trials have data of their own. The shared
draws move the level of a bootstrap quantile by about 0.005 (of 1,000 replicates), which adds about
a hundredth to the variance of a share, and the Monte Carlo errors leave that out.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiberts.benchmarks.crossed_model import CLUSTER_SIZE, Condition, RealAnswers
from multiberts.benchmarks.neighbours import neighbour_intervals
from multiberts.evaluate.metrics.register import METRICS
from multiberts.stats import TaskData, compare_tasks
from multiberts.stats.compare.conclude import Names, without_failed
from multiberts.stats.compare.question import (
    ComparisonSpec,
    PreparedArms,
    bounded_mean,
    compare_specs,
    kind_of,
)
from multiberts.stats.intervals import Interval, PValues
from multiberts.stats.recommended import interval_of_difference
from multiberts.stats.runs_table import Arm
from multiberts.stats.settings import ComparisonSettings
from multiberts.stats.variance.crossing import Crossing

TESTS = ("t", "percentile", "published", "sign_flip", "permutation")
FAMILY_TESTS = ("uncorrected", "bonferroni", "holm")
LEVELS = (0.05, 0.01)
CONFIDENCE = 0.95
_BOOTSTRAPPED = {*TESTS} - {"t"}
BATCH = 20
LEAST_BOOTSTRAP = 40  # of settings whose replicates are not drawn
FAMILY_BOOTSTRAP = 199  # a trial of a family takes as long as fifteen others


@dataclass
class Outcome:
    """Counts over the trials of a condition.

    Attributes:
      trials: how many.
      bootstrapped: trials with the intervals and tests that take long, see `count_of`.
      covered: by interval, of the library or a neighbour, trials whose interval holds the truth;
        `without_failed`: the recommended interval of the seeds that are not flagged, and the truth of
        seeds that do not fail.
      length: by interval, the median length of a block of trials, averaged over blocks; infinite
        where most have no end on a side.
      rejected: by test that the design has, `one-sided` (of greater) or `two-sided` and level,
        trials with a p at or below it. For a family: trials with any such p.
      flagged: by flag (see `recommended`), trials where it is up.
      flagged_misses: the same among trials whose t interval misses the truth.
      unseen_misses: of data where seeds can fail, trials whose t interval misses although no seed of
        the trial failed, so that nothing in its data differs from data where none can.
      terms: mean squares of seeds, examples and residual in the variance of the estimate, summed
        over bootstrapped trials.
    """

    trials: int = 0
    bootstrapped: int = 0
    covered: dict[str, int] = field(default_factory=dict)
    length: dict[str, float] = field(default_factory=dict)
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)
    flagged: dict[str, int] = field(default_factory=dict)
    flagged_misses: dict[str, int] = field(default_factory=dict)
    unseen_misses: int = 0
    terms: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    @property
    def shares(self) -> tuple[float, float, float]:
        """Returns the shares of seeds, examples and residuals in the variance of the estimate."""
        seeds, examples, residual = self.terms
        parts = max(seeds - residual, 0.0), max(examples - residual, 0.0), residual
        total = sum(parts) or math.nan
        return parts[0] / total, parts[1] / total, parts[2] / total

    def count_of(self, name: str) -> int:
        """Returns the trials that count for an interval or test: all, or the bootstrapped ones."""
        return self.bootstrapped if name in _BOOTSTRAPPED else self.trials

    def share(self, interval: str = "t") -> float:
        """Returns the coverage of an interval."""
        return self.covered[interval] / self.count_of(interval)

    def errs(self, test: str, key: str = "two-sided 0.05") -> float:
        """Returns the type I error of a test."""
        return self.rejected[test][key] / self.count_of(test)


def joined(blocks: Sequence[Outcome]) -> Outcome:
    """Adds the counts of blocks of trials."""
    whole = Outcome(
        sum(block.trials for block in blocks),
        sum(block.bootstrapped for block in blocks),
        unseen_misses=sum(block.unseen_misses for block in blocks),
    )
    for block in blocks:
        for name in ("covered", "flagged", "flagged_misses"):
            _add(getattr(whole, name), getattr(block, name))
        for test, counts in block.rejected.items():
            _add(whole.rejected.setdefault(test, {}), counts)
        for name, length in block.length.items():
            part = length * block.count_of(name) / whole.count_of(name)
            whole.length[name] = whole.length.get(name, 0.0) + part
        whole.terms = [a + b for a, b in zip(whole.terms, block.terms, strict=True)]
    return whole


def _add(counts: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def bootstrap_seed_of(condition: Condition, simulation_seed: int, first_trial: int) -> int:
    """Names the bootstrap draws of the batch that starts with `first_trial`."""
    entropy = [simulation_seed, zlib.crc32(condition.name.encode()), first_trial]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def questions_of(
    condition: Condition,
    simulation_seed: int,
    trials: Sequence[int],
    n_resamples: int,
    real: RealAnswers | None = None,
) -> tuple[list[ComparisonSpec], ComparisonSettings]:
    """Makes a batch of trials, ready for one bootstrap."""
    assert condition.design != "family"
    settings = ComparisonSettings(
        design=condition.design,
        n_resamples=n_resamples,
        rng=bootstrap_seed_of(condition, simulation_seed, trials[0]),
        confidence_level=CONFIDENCE,
    )
    metric = METRICS[condition.metric]
    questions = []
    for trial in trials:
        arms = condition.arms(simulation_seed, trial, real)
        questions.append(
            ComparisonSpec(PreparedArms(tuple(arms), bounded_mean(metric, arms)), settings, "")
        )
    return questions, settings


def simulate(
    condition: Condition,
    simulation_seed: int,
    trials: Sequence[int],
    n_resamples: int = 0,
    real: RealAnswers | None = None,
) -> Outcome:
    """Makes and judges trials of a condition.

    Args:
      condition: what the data are like.
      simulation_seed: names the data and the bootstrap draws, with condition and trial.
      trials: their numbers, in order.
      n_resamples: replicates of each; without any, only what needs none is counted, which takes a
        fifth of the time.
      real: by name, answers [seeds, examples] that are right, for conditions of real data.
    """
    outcome = Outcome(len(trials), len(trials) if n_resamples else 0)
    if condition.design == "family":
        _simulate_families(condition, simulation_seed, trials, outcome)
        return outcome
    truth = condition.truth(real)
    lengths: dict[str, list[float]] = {}
    for start in range(0, len(trials), BATCH):
        batch = trials[start : start + BATCH]
        questions, settings = questions_of(
            condition, simulation_seed, batch, n_resamples or LEAST_BOOTSTRAP, real
        )
        if n_resamples:
            terms = np.sum([variance_terms(question.crossing) for question in questions], axis=0)
            outcome.terms = (np.array(outcome.terms) + terms).tolist()
            for found in compare_specs(questions, settings, [Names()] * len(questions))[0]:
                ends = np.array([found.intervals["percentile"]])
                _judge(outcome, lengths, "percentile", ends, truth)
                if truth == 0:
                    for test in TESTS[1:]:
                        p_values = found.p_values.get(test.replace("_", " "))
                        _count_rejections(outcome, test, p_values)
        for question in questions:
            advised = recommended(question, settings)
            _judge(outcome, lengths, "t", np.array([advised.interval]), truth)
            if advised.unpaired is not None:
                _judge(outcome, lengths, "unpaired_t", np.array([advised.unpaired]), truth)
            trained = condition.truth_of_trained
            if trained is not None:
                _judge(
                    outcome, lengths, "without_failed", np.array([advised.without_failed]), trained
                )
            missed = not advised.interval.low <= truth <= advised.interval.high
            if trained is not None and missed:
                # Seeds that failed, and no others, give one answer throughout.
                failed = any((arm.predictions == 1).all(axis=1).any() for arm in question.arms)
                outcome.unseen_misses += not failed
            for flag, up in advised.flags.items():
                _add(outcome.flagged, {flag: int(up)})
                _add(outcome.flagged_misses, {flag: int(up and missed)})
            if truth == 0:
                _count_rejections(outcome, "t", advised.p)
        if condition.metric in ("mean", "accuracy"):
            seed = bootstrap_seed_of(condition, simulation_seed, batch[0])
            arms = [question.arms for question in questions]
            for name, ends in _neighbours(condition, arms, np.random.default_rng(seed)).items():
                _judge(outcome, lengths, name, ends, truth)
    outcome.length = {name: float(np.median(values)) for name, values in lengths.items()}
    return outcome


class Recommended(NamedTuple):
    """A comparison's recommended interval, and its flags."""

    estimate: float
    interval: Interval
    p: PValues | None
    unpaired: Interval | None
    without_failed: Interval
    flags: dict[str, bool]


def recommended(question: ComparisonSpec, settings: ComparisonSettings) -> Recommended:
    """Computes what `stats.compare` recommends, without a bootstrap.

    The flags are those of the warnings that a printed result holds: `failed seeds`; `data` for these or
    answers that are all alike (the interval is Clopper and Pearson's); `any` for these or a p smaller
    than the order of so few seeds can show. An interval of one point, whose warning is newer than the
    counts of `docs/calibration.jsonl`, has no flag here.
    """
    sides = question.summaries(np.zeros((1, len(question.jobs))), Names(), settings)
    metric, level = question.metric, settings.confidence_level
    estimate = sides[-1].estimate - (sides[0].estimate if len(sides) == 2 else 0.0)
    interval, p, floor, unpaired = sides[0].ci, None, False, None
    span, width = metric.bounds, metric.bounds[1] - metric.bounds[0]
    if len(sides) == 2:
        span = (-width, width)
        kind, resample = kind_of(metric), settings.resample
        interval, p = interval_of_difference(
            sides, question.crossing, question.pairs, kind, resample, level
        )
        if question.unpaired is not None:
            unpaired = interval_of_difference(
                sides, question.unpaired, None, kind, resample, level
            )[0]
        number = len(sides[0].seeds)
        least = 2.0**-number if settings.design == "paired" else 1 / math.comb(2 * number, number)
        if p.two_sided < 1 - level and min(p.greater, p.less) < least:
            floor = question.crossing.variance_parts().seed_share > 0.5
    failed = any(side.failed_seeds for side in sides)
    alike = any(side.ci.low < side.ci.high and side.estimate in side.ci for side in sides)
    flags = {
        "any": failed or alike or floor,
        "data": failed or alike,
        "failed seeds": failed,
    }
    rest = question.without(sides)
    others = interval if rest is None else without_failed(rest, level, span, p is not None).ci
    return Recommended(estimate, interval, p, unpaired, others, flags)


def _judge(
    outcome: Outcome, lengths: dict[str, list[float]], name: str, ends: NDArray, truth: float
) -> None:
    """Counts which of the intervals [trials, 2] hold the truth."""
    low, high = ends.T
    _add(outcome.covered, {name: int(((low <= truth) & (truth <= high)).sum())})
    lengths.setdefault(name, []).extend((high - low).tolist())


def _neighbours(
    condition: Condition, trials: Sequence[Sequence[Arm]], random: np.random.Generator
) -> dict[str, NDArray]:
    """Returns the neighbours' intervals [trials, 2], from the arms of each trial."""
    right = condition.metric == "accuracy"
    runs = [
        np.array([arms[side].predictions == arms[side].labels for arms in trials], dtype=float)
        if right
        else np.array([arms[side].predictions for arms in trials])
        for side in range(len(trials[0]))
    ]  # by side, [trials, runs, examples]
    first = trials[0]
    seeds = [
        np.einsum("tre,rs->tse", table, arm.seed_weights)
        for table, arm in zip(runs, first, strict=True)
    ]
    size = 1 if first[0].clusters is None else CLUSTER_SIZE
    paired = condition.design == "paired"
    return neighbour_intervals(seeds, paired, random, runs if right else None, size)


def _simulate_families(
    condition: Condition,
    simulation_seed: int,
    trials: Sequence[int],
    outcome: Outcome,
) -> None:
    """Counts families of true hypotheses in which any is rejected, and the macro-average's coverage."""
    lengths = []
    for trial in trials:
        tables = condition.tasks(simulation_seed, trial)
        tasks = {
            str(number): TaskData(np.zeros_like(table), table)
            for number, table in enumerate(tables)
        }
        seed = bootstrap_seed_of(condition, simulation_seed, trial)
        found = compare_tasks(
            tasks,
            n_resamples=FAMILY_BOOTSTRAP,
            rng=seed,
        )
        p_values = dict(found.adjusted)
        p_values["uncorrected"] = np.array([item.p_value for item in found.comparisons.values()])
        for test in FAMILY_TESTS:
            counts = {f"two-sided {a}": int(p_values[test].min() <= a) for a in LEVELS}
            _add(outcome.rejected.setdefault(test, {}), counts)
        low, high = found.macro_average.ci
        _add(outcome.covered, {"t": int(low <= 0 <= high)})
        lengths.append(high - low)
    outcome.length = {"t": float(np.median(lengths))}


def _count_rejections(outcome: Outcome, test: str, p_values: PValues | None) -> None:
    if p_values is not None:
        counts = outcome.rejected.setdefault(test, {})
        for sides, p in (("one-sided", p_values.greater), ("two-sided", p_values.two_sided)):
            _add(counts, {f"{sides} {level}": int(p <= level) for level in LEVELS})


def monte_carlo_error(count: int, trials: int) -> float:
    """Computes the standard error of a share of independent trials; of none or all, half a trial's."""
    share = min(max(count, 0.5), trials - 0.5) / trials
    return math.sqrt(share * (1 - share) / trials)


def variance_terms(crossing: Crossing) -> tuple[float, float, float]:
    """Computes mean squares of seeds, examples and residuals, as parts in the variance of the sum.

    Those of seeds and of examples hold the residual's too.
    """
    seeds, examples = (
        sum(float(drawn @ drawn) / (len(drawn) * (len(drawn) - 1)) for drawn in group.values())
        for group in (crossing.seeds, crossing.examples)
    )
    residual = sum(
        part.weight**2
        * found.residual_squares
        / ((len(found.seed) - 1) * (len(found.example) - 1) * found.size)
        for part, found in zip(crossing.parts, crossing.deviations, strict=True)
    )
    return seeds, examples, residual
