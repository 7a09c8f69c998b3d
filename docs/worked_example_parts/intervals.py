"""Sections about intervals: what is resampled, and how far to trust the result."""

from __future__ import annotations

import math

import numpy as np
import scipy.stats

from multiberts import stats
from multiberts.docs.worked_example_parts.data import Data
from multiberts.docs.worked_example_parts.printing import table
from multiberts.stats.intervals import Interval, percentile_interval, t_interval

COVERAGE_NAMES = {
    "MNLI dev acc.": "MNLI",
    "Overall accuracy": "HANS",
    "Lexical (nonent)": "lexical overlap, not entailed",
    "ln_passive": "its subcase ln_passive",
}


def scopes(data: Data) -> str:
    rows = []
    for name, runs in (("MNLI", data.mnli), ("HANS", data.hans)):
        for resample, speaks_about in (
            ("seeds", "new seeds, these examples"),
            ("examples", "these seeds, new examples"),
            ("both", "new seeds, new examples"),
        ):
            found = stats.compare(runs, None, "accuracy", design="single", resample=resample)
            rows.append(
                {
                    "Set": name,
                    "resample": resample,
                    "Speaks about": speaks_about,
                    "Accuracy": found.estimate,
                    "95% CI": found.ci,
                    "Width": found.ci.high - found.ci.low,
                }
            )
    return table(rows, ".2%")


def clusters(data: Data) -> str:
    rows = []
    for name, runs, unit in (
        ("MNLI", data.mnli, None),
        ("MNLI", data.mnli, "premise"),
        ("HANS", data.hans, None),
        ("HANS", data.hans, "template"),
        ("HANS", data.hans, "subcase"),
    ):
        found = stats.compare(runs, None, "accuracy", design="single", clusters=unit)
        rows.append(
            {
                "Set": name,
                "Drawn whole": unit or "example",
                "Number": found.base.num_clusters or found.num_examples,
                "95% CI": found.ci,
                "Width": found.ci.high - found.ci.low,
            }
        )
    return table(rows, ".2%")


def intervals(data: Data) -> str:
    rows = []
    for name, runs in (("MNLI", data.mnli), ("HANS", data.hans)):
        for number in (3, 5, 10):
            first = runs.isel(run=slice(number))
            found = stats.compare(first, None, "accuracy", design="single")
            rows.append(
                {
                    "Set": name,
                    "Seeds": number,
                    "Accuracy": found.estimate,
                    "t (recommended)": found.ci,
                    "Percentile (published)": found.intervals["percentile"],
                }
            )
    return table(rows, ".2%")


def coverage(data: Data, num_trials: int = 2000) -> str:
    def intervals_of_mean(runs: np.ndarray, replicates: np.ndarray) -> list[Interval]:
        """Returns intervals of the mean of runs [R], given bootstrap replicates [B, R]."""
        error = runs.std(ddof=1) / math.sqrt(len(runs))
        return [
            t_interval(runs.mean(), error, len(runs) - 1, 0.95),
            percentile_interval(replicates.mean(axis=1), 0.95),
        ]

    rows = []
    for column in ("MNLI dev acc.", "Overall accuracy", "Lexical (nonent)", "ln_passive"):
        population = data.hundred[column].to_numpy()
        for number in (3, 5, 10):
            random = np.random.Generator(np.random.Philox(key=number))
            trials = population[random.integers(100, size=(num_trials, number))]
            redrawn = random.integers(number, size=(1000, number))
            ends = np.array([intervals_of_mean(runs, runs[redrawn]) for runs in trials])
            low, high = ends[..., 0], ends[..., 1]  # [trials, intervals]
            held = ((low <= population.mean()) & (population.mean() <= high)).mean(axis=0)
            rows.append(
                {
                    "Accuracy on": COVERAGE_NAMES[column],
                    "Skewness": float(scipy.stats.skew(population)),
                    "Runs": number,
                    "t": held[0],
                    "Percentile": held[1],
                }
            )
    return table(rows, ".1%", Skewness=".1f")


def other_metrics(data: Data) -> str:
    rows = []
    for name, runs in (("MNLI", data.mnli), ("HANS", data.hans)):
        for metric in ("log_loss", "brier", "ece"):
            found = stats.compare(runs, None, metric, design="single")
            rows.append(
                {
                    "Set": name,
                    "Metric": metric,
                    "Estimate": found.estimate,
                    "SD over seeds": found.base.seed_scores.std(ddof=1),
                    "95% CI (t)": found.ci,
                    "95% CI (percentile)": found.intervals["percentile"],
                    "Bias (bootstrap)": found.bias,
                }
            )
    return table(rows, ".4f")
