"""Sections about seeds: how far they agree, and what their scores vary with."""

from __future__ import annotations

import math

import numpy as np
import scipy.stats
import xarray

from multiberts.docs.worked_example_parts.data import Data, parts_of_hans, right
from multiberts.docs.worked_example_parts.printing import table
from multiberts.stats.instances.run_agreement import agreement as run_agreement
from multiberts.stats.intervals import Interval
from multiberts.stats.variance.components import (
    VarianceComponents,
    intraclass_correlation,
    variance_components,
)

# Agreement of two runs with the same, and with different pre-training seeds: Sellam et al. (2022).
MULTIBERTS_AGREEMENT = {
    "MNLI": (0.936, 0.901),
    "HANS": (0.922, 0.881),
    "HANS, not entailed": (0.883, 0.819),
}


# Their names in the file of the 100 runs.
HUNDRED_COLUMNS = {
    "lexical overlap": "Lexical",
    "subsequence": "Subseq",
    "constituent": "Constituent",
}


def agreement_of_seeds(runs: xarray.Dataset) -> float:
    """Returns how often two seeds give the same answer."""
    found = run_agreement(runs).different_seeds
    assert found is not None
    return found.value


def sources(data: Data) -> str:
    rows = []
    for name, runs in (("mnli", data.mnli), ("hans", data.hans)):
        scores = right(runs).mean(axis=1)
        rows.append(
            {
                "Set": name.upper(),
                "Examples": right(runs).shape[1],
                "Seeds": len(scores),
                "With the reported accuracy": int((scores == data.reported[name]).sum()),
                "Mean accuracy": scores.mean(),
                "SD over seeds": scores.std(ddof=1),
            }
        )
    by_runs, by_examples = data.hundred["MNLI dev acc."].mean(), data.number_right.mean() / 100
    return table(rows, ".2%") + (
        f"\nMNLI accuracy of the 100 BERTs: {by_runs:.7f} by runs, {by_examples:.7f} by examples.\n"
    )


def agreement(data: Data) -> str:
    whole = {"MNLI": data.mnli, "HANS": data.hans}
    parts = {f"HANS, {name}": data.hans.isel(example=here) for name, here in parts_of_hans(data)}
    rows = []
    for name, runs in {**whole, **parts}.items():
        scores = right(runs).mean(axis=1)
        rows.append(
            {
                "Examples": name,
                "Two seeds agree": agreement_of_seeds(runs),
                "Mean accuracy": scores.mean(),
                "SD over seeds": scores.std(ddof=1),
                "Worst seed": scores.min(),
                "Best seed": scores.max(),
            }
        )
    return table(rows, ".1%", **{"SD over seeds": ".2%"})


def published_agreement(data: Data) -> str:
    sets = {
        "MNLI": data.mnli,
        "HANS": data.hans,
        "HANS, not entailed": data.hans.isel(example=data.hans["label"] == 0),
    }
    rows = [
        {
            "Set": name,
            "These ten seeds": agreement_of_seeds(runs),
            "MultiBERTs, one checkpoint": MULTIBERTS_AGREEMENT[name][0],
            "MultiBERTs, two checkpoints": MULTIBERTS_AGREEMENT[name][1],
        }
        for name, runs in sets.items()
    ]
    return table(rows, ".1%")


def subcases(data: Data) -> str:
    rows = []
    for name in dict.fromkeys(data.hans["subcase"].to_numpy()):
        if name[1] == "n":  # the answer is: not entailed
            runs = data.hans.isel(example=data.hans["subcase"] == name)
            ten, hundred = right(runs).mean(axis=1), data.hundred[name]
            rows.append(
                {
                    "Subcase": name,
                    "Agree": agreement_of_seeds(runs),
                    "Mean of 10": ten.mean(),
                    "Worst": ten.min(),
                    "Best": ten.max(),
                    "SD": ten.std(ddof=1),
                    "Mean of the 100": hundred.mean(),
                    "SD of the 100": hundred.std(),
                }
            )
    return table(rows, ".1%")


def components(data: Data) -> str:
    not_entailed = data.hans.isel(example=data.hans["label"] == 0)
    rows = []
    for name, runs in (
        ("MNLI", data.mnli),
        ("HANS", data.hans),
        ("HANS, not entailed", not_entailed),
    ):
        scores = right(runs)  # [seeds, examples]
        parts, number = variance_components(scores), scores.shape[1]
        of_mean = sum(parts.of_mean(10, num_examples=number).values())
        rows.append(
            {
                "Examples": name,
                "Seed": parts.seed,
                "Example": parts.example,
                "Residual": parts.residual,
                "ICC of examples": intraclass_correlation(scores).single,
                "SD of seeds": math.sqrt(parts.seed),
                "Share in a mean of 10 seeds: seeds": parts.seed / 10 / of_mean,
                "examples": parts.example / number / of_mean,
            }
        )
    percent = ("Share in a mean of 10 seeds: seeds", "examples")
    return table(rows, "", **dict.fromkeys(percent, ".0%"), **{"SD of seeds": ".2%", "Seed": ".2g"})


def components_from_margins(data: Data) -> str:
    runs, examples = data.hundred["MNLI dev acc."].to_numpy(), data.number_right / 100
    num_runs, num_examples, mean = len(runs), len(examples), runs.mean()
    # The squares of 0s and 1s add up to their sum, so the margins of the table are all it takes.
    total = num_runs * num_examples * mean * (1 - mean)
    of_runs = num_examples * ((runs - mean) ** 2).sum()
    of_examples = num_runs * ((examples - mean) ** 2).sum()
    residual = (total - of_runs - of_examples) / ((num_runs - 1) * (num_examples - 1))
    of_hundred = VarianceComponents(
        seed=(of_runs / (num_runs - 1) - residual) / num_examples,
        example=(of_examples / (num_examples - 1) - residual) / num_runs,
        residual=residual,
    )
    found = {"10 seeds": variance_components(right(data.mnli)), "100 runs": of_hundred}
    rows = [
        {
            "MNLI": name,
            "Seed": parts.seed,
            "Example": parts.example,
            "Residual": parts.residual,
            "SD of seeds": math.sqrt(parts.seed),
        }
        for name, parts in found.items()
    ]
    return table(rows, "", **{"SD of seeds": ".2%", "Seed": ".2g"})


def interval_of_deviation(scores: np.ndarray, confidence_level: float = 0.95) -> Interval:
    """Returns intervals of the standard deviation of normal scores, [groups, seeds]."""
    freedom = scores.shape[0] * (scores.shape[1] - 1)
    deviation = math.sqrt(scores.var(axis=1, ddof=1).mean())
    tail = (1 - confidence_level) / 2
    high, low = (float(scipy.stats.chi2.ppf(share, freedom)) for share in (tail, 1 - tail))
    return Interval(deviation * math.sqrt(freedom / low), deviation * math.sqrt(freedom / high))


def hundred_runs(data: Data) -> str:
    groups = [
        ("MNLI", right(data.mnli), "MNLI dev acc."),
        ("HANS", right(data.hans), "Overall accuracy"),
    ]
    for name, here in parts_of_hans(data):
        heuristic, answer = name.split(", ")
        column = f"{HUNDRED_COLUMNS[heuristic]} ({'nonent' if 'not' in answer else answer})"
        groups.append((f"HANS, {name}", right(data.hans)[:, here], column))
    rows = []
    for name, scores, column in groups:
        ten, hundred = scores.mean(axis=1), data.hundred[column].to_numpy()
        rows.append(
            {
                "Examples": name,
                "SD of 10": ten.std(ddof=1),
                "95% CI of it": interval_of_deviation(ten[None]),
                "SD of 100": hundred.std(ddof=1),
                "Mean of 10": ten.mean(),
                "Mean of 100": hundred.mean(),
                "p, equal means": scipy.stats.ttest_ind(ten, hundred, equal_var=False).pvalue,
            }
        )
    return table(rows, ".2%", **{"p, equal means": ".1g"})
