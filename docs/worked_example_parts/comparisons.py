"""Sections about comparisons of models, and of single examples."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from multiberts import stats
from multiberts.stats.instances.analysis import InstanceAnalysis, analyse_sizes
from multiberts.stats.instances.decomposition import decompose
from multiberts.stats.instances.figures import decay_figure
from multiberts.stats.intervals import Interval
from multiberts.stats.presentation.figures import forest_figure
from multiberts.stats.presentation.wording import finding, warnings
from multiberts.stats.results.sequential import sequential_decision
from multiberts.stats.runs_table import RunsTable, runs_from_array

if TYPE_CHECKING:
    from matplotlib.figure import Figure
from multiberts.docs.worked_example_parts.data import Data, right
from multiberts.docs.worked_example_parts.printing import table


@functools.cache
def one_billion_against_100_million(data: Data) -> stats.TaskComparisons:
    tasks = {
        test_set: stats.TaskData(
            data.group(test_set, "roberta-base-100M"),
            data.group(test_set, "roberta-base-1B"),
            "accuracy",
        )
        for test_set in data.correct
    }
    return stats.compare_tasks(
        tasks, design="unpaired", base_name="RoBERTa 100M", experiment_name="RoBERTa 1B"
    )


def groups(data: Data) -> str:
    family = one_billion_against_100_million(data)
    rows = []
    for found in [*family.comparisons.values(), family.macro_average]:
        rows.append(
            {
                "Test set": found.name,
                "Examples": found.num_examples,
                "100M": found.base.estimate,
                "1B - 100M": found.estimate,
                "95% CI (t)": found.ci,
                "p (t)": found.p_value,
                "p (percentile)": found.p_values["percentile"].two_sided,
                "p (permutation)": found.p_values["permutation"].two_sided,
            }
        )
    return table(rows, ".3f", **dict.fromkeys(("100M", "1B - 100M", "95% CI (t)"), ".1%"))


def corrections(data: Data) -> str:
    family = one_billion_against_100_million(data)
    rows = [
        {
            "Test set": name,
            "p (t)": found.p_value,
            "Holm": family.adjusted["holm"][place],
            "Benjamini-Hochberg": family.adjusted["bh"][place],
        }
        for place, (name, found) in enumerate(family.comparisons.items())
        if found.p_value < 0.1
    ]
    mnli = family.comparisons["mnli"]
    return "\n".join(
        [table(rows, ".3f"), *(f"> {text}\n" for text in (finding(mnli), *warnings(mnli)))]
    )


def fixed_baseline(data: Data) -> str:
    one = data.published.assign_coords(template=data.hans["template"])
    rows = []
    for unit in (None, "template"):
        found = stats.compare(one, data.hans, "accuracy", design="fixed_baseline", clusters=unit)
        rows.append(
            {
                "Drawn whole": unit or "example",
                "Published": found.base.estimate,
                "Ten seeds": found.experiment.estimate,
                "Difference": found.estimate,
                "95% CI (t)": found.ci,
                "p (t)": found.p_value,
            }
        )
    return table(rows, ".1%", **{"p (t)": ".1g"})


def looks(data: Data) -> str:
    planned, p_values, rows = (4, 7, 10), [], []
    for number in planned:
        first = data.hans.isel(run=slice(number))
        found = stats.compare(data.published, first, "accuracy", design="fixed_baseline")
        p_values.append(found.p_value)
        decision = sequential_decision(p_values, planned[: len(p_values)], planned_seeds=10)
        rows.append(
            {
                "Seeds": number,
                "Difference": found.estimate,
                "p": p_values[-1],
                "Stop at": float(decision.boundaries.nominal_p[-1]),
                "Decision": "stop" if decision.stop else "go on",
            }
        )
        if decision.stop:
            break
    return table(rows, ".2g", Difference=".2%")


@functools.cache
def sizes(data: Data) -> InstanceAnalysis:
    def models(test_set: str, size: str) -> RunsTable:
        scores = data.group(test_set, f"roberta-base-{size}")["prediction"].to_numpy()
        return runs_from_array(scores, levels=("model",))

    tasks = {
        test_set.upper(): {size: models(test_set, size) for size in ("10M", "100M", "1B")}
        for test_set in ("mnli", "snli")
    }
    return analyse_sizes(tasks, levels=(0.05, 0.2), with_curves=False)


def decay(data: Data) -> str:
    rows = []
    for pair in sizes(data).pairs:
        bias = pair.decay_bias
        rows.append(
            {
                "Task": pair.task,
                "Pair": f"{pair.small} to {pair.large}",
                "Gain in accuracy": pair.gain,
                "Improving, at least": pair.improvement.bound,
                "Decaying, at least": pair.decay.bound,
                "less the threshold's bias": bias.corrected,
                "95% CI over examples": Interval(bias.low, bias.high) if bias.bound else None,
            }
        )
    return table(rows, ".2%")


def single_tests(data: Data) -> str:
    rows = []
    for pair in sizes(data).pairs:
        p_values = pair.fisher[0.05].p_values
        rows.append(
            {
                "Task": pair.task,
                "Pair": f"{pair.small} to {pair.large}",
                "Smallest p": float(p_values.min()),
                "Examples with it": int((p_values == p_values.min()).sum()),
                "Needed at level 0.2": math.ceil(len(p_values) * p_values.min() / 0.2 - 1e-9),
                "Found at level 0.05": pair.fisher[0.05].num_discoveries,
                "Found at level 0.2": pair.fisher[0.2].num_discoveries,
            }
        )
    return table(rows, ".3f")


def loss(data: Data) -> str:
    ten = runs_from_array(right(data.mnli), levels=("finetune_seed",))
    of_mnli = {**sizes(data).decompositions["MNLI"], "one BERT": decompose(ten)}
    rows = []
    for name, found in of_mnli.items():
        parts = found.parts
        (level,) = found.variances
        rows.append(
            {
                "Models": name,
                "Loss": parts["loss"].mean,
                "Squared bias": parts["bias_squared"].mean,
                "Variance": parts[level].mean,
                "SE of the variance": parts[level].standard_error,
                "between": {"model": "pre-trainings", "finetune_seed": "fine-tunings"}[level],
            }
        )
    return table(rows, ".4f")


def forest(data: Data) -> Figure:
    family = one_billion_against_100_million(data)
    items = [*family.comparisons.values(), family.macro_average]
    rows = {f"{item.evaluation_set}, {item.metric}": item for item in items}
    return forest_figure(rows, "RoBERTa 1B - 100M")


def smallest_to_largest(data: Data) -> Figure:
    return decay_figure(next(pair for pair in sizes(data).pairs if pair.large == "1B"))
