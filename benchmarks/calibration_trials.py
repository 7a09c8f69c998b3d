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
from dataclasses import dataclass

import numpy as np

from multiberts.benchmarks.crossed_model import Condition
from multiberts.evaluate.metrics.register import METRICS
from multiberts.stats.bootstrap.comparison import Question, compare_questions
from multiberts.stats.bootstrap.conclusion import Comparison, ComparisonSettings, Names
from multiberts.stats.bootstrap.crossing import Crossing

INTERVALS = ("t", "percentile", "basic", "bca", "studentised")
TESTS = ("t", "percentile", "published", "sign_flip", "permutation")
LEVELS = (0.05, 0.01)
CONFIDENCE = 0.95
BATCH = 20


@dataclass(frozen=True)
class Outcome:
    """Counts over the trials of a condition.

    Attributes:
      trials: how many.
      covered: by interval, trials whose interval holds the truth.
      median_length: by interval, the median length; infinite where most have no end on a side.
      rejected: by test that the design has, `one-sided` (of greater) or `two-sided` and level,
        trials with a p at or below it.
      shares: of seeds, examples and residuals in the variance of the estimate, by the mean squares
        of all trials.
    """

    trials: int
    covered: dict[str, int]
    median_length: dict[str, float]
    rejected: dict[str, dict[str, int]]
    shares: tuple[float, float, float]


def bootstrap_seed_of(condition: Condition, simulation_seed: int, first_trial: int) -> int:
    """Names the bootstrap draws of the batch that starts with `first_trial`."""
    entropy = [simulation_seed, zlib.crc32(condition.name.encode()), first_trial]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def questions_of(
    condition: Condition, simulation_seed: int, trials: Sequence[int], num_bootstrap: int
) -> tuple[list[Question], ComparisonSettings]:
    """A batch of trials, ready for one bootstrap."""
    settings = ComparisonSettings(
        design=condition.design,
        num_bootstrap=num_bootstrap,
        bootstrap_seed=bootstrap_seed_of(condition, simulation_seed, trials[0]),
        confidence=CONFIDENCE,
    )
    metric = METRICS[condition.metric]
    questions = [
        Question(condition.arms(simulation_seed, trial), metric, settings, "") for trial in trials
    ]
    return questions, settings


def simulate(
    condition: Condition, simulation_seed: int, num_trials: int, num_bootstrap: int
) -> Outcome:
    """Makes and judges the trials 0, 1, ... of a condition.

    Args:
      condition: what the data are like.
      simulation_seed: names the data and the bootstrap draws, with condition and trial.
      num_trials: how many.
      num_bootstrap: replicates of each.
    """
    covered = dict.fromkeys(INTERVALS, 0)
    lengths: dict[str, list[float]] = {name: [] for name in INTERVALS}
    rejected: dict[str, dict[str, int]] = {}
    terms = np.zeros(3)
    for first in range(0, num_trials, BATCH):
        trials = range(first, min(first + BATCH, num_trials))
        questions, settings = questions_of(condition, simulation_seed, trials, num_bootstrap)
        terms += np.sum([variance_terms(question.crossing) for question in questions], axis=0)
        names = [Names()] * len(questions)
        for found in compare_questions(questions, settings, names)[0]:
            for name in INTERVALS:
                interval = getattr(found, name)
                covered[name] += interval.low <= condition.truth <= interval.high
                lengths[name].append(interval.high - interval.low)
            _count_rejections(found, rejected)
    return Outcome(
        num_trials,
        {name: int(count) for name, count in covered.items()},
        {name: float(np.median(values)) for name, values in lengths.items()},
        rejected,
        _shares(terms),
    )


def _count_rejections(found: Comparison, rejected: dict[str, dict[str, int]]) -> None:
    for test in TESTS:
        p_values = getattr(found, f"p_{test}")
        if p_values is None:
            continue
        counts = rejected.setdefault(test, {})
        for sides, p in (("one-sided", p_values.greater), ("two-sided", p_values.two_sided)):
            for level in LEVELS:
                key = f"{sides} {level}"
                counts[key] = counts.get(key, 0) + int(p <= level)


def monte_carlo_error(count: int, trials: int) -> float:
    """The standard error of a share of independent trials; of none or all, that of half a trial."""
    share = min(max(count, 0.5), trials - 0.5) / trials
    return math.sqrt(share * (1 - share) / trials)


def variance_terms(crossing: Crossing) -> tuple[float, float, float]:
    """Mean squares of seeds, examples and residuals, each as its part in the variance of the sum.

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


def _shares(terms: np.ndarray) -> tuple[float, float, float]:
    seeds, examples, residual = (float(term) for term in terms)
    parts = max(seeds - residual, 0.0), max(examples - residual, 0.0), residual
    total = sum(parts)
    return parts[0] / total, parts[1] / total, parts[2] / total
