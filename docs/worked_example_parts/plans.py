"""Sections about planning: how many seeds and runs a comparison needs."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.runs.figure_style import COLOURS, GREY, LINES, MARKERS
from multiberts.stats.errors import DataError
from multiberts.stats.variance.components import (
    VarianceComponents,
    unpaired_components,
    variance_components,
)
from multiberts.stats.variance.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure
from multiberts.docs.worked_example_parts.data import Data, right
from multiberts.docs.worked_example_parts.printing import table
from multiberts.docs.worked_example_parts.seeds import interval_of_deviation


@dataclass(frozen=True)
class PlannedComparison:
    """A plan, its components, and the scores [groups, seeds] that its seeds' variance is from."""

    components: VarianceComponents
    plan: Plan
    seed_scores: np.ndarray


@functools.cache
def plans(data: Data) -> dict[str, PlannedComparison]:
    arms = [right(data.group("mnli", f"roberta-base-{size}")) for size in ("100M", "1B")]
    parts = unpaired_components(*arms)
    seed_scores = np.array([arm.mean(axis=1) for arm in arms])
    plan = parts.plan(2, num_examples=arms[0].shape[1], design="unpaired")
    found = {"two pre-trainings, MNLI": PlannedComparison(parts, plan, seed_scores)}
    for name, runs in (("MNLI", data.mnli), ("HANS", data.hans)):
        scores = right(runs)
        parts, size = variance_components(scores), scores.shape[1]
        plan = parts.plan(2, num_examples=size, design="single")
        found[f"one fine-tuning, {name}"] = PlannedComparison(
            parts, plan, scores.mean(axis=1)[None]
        )
    return found


def plan_inputs(data: Data) -> str:
    rows = []
    for name, planned in plans(data).items():
        plan, parts = planned.plan, planned.components
        rows.append(
            {
                "Plan": name,
                "Design": plan.design,
                "SD of a seed's score": math.sqrt(planned.seed_scores.var(axis=1, ddof=1).mean()),
                "95% CI of it": interval_of_deviation(planned.seed_scores),
                "Example": parts.example,
                "Residual": parts.residual,
                "Examples": plan.num_examples,
                "SD that examples leave": math.sqrt(parts.example / plan.num_examples),
            }
        )
    return table(rows, ".2%", Example=".3f", Residual=".3f")


def detectable(data: Data) -> str:
    rows = []
    for name, planned in plans(data).items():
        row: dict[str, Any] = {"Least difference found with power 0.8": name}
        for number in (3, 5, 10, 25, 1_000_000):
            plan = planned.plan.at(number)
            found = plan.minimum_detectable_range()
            assert found is not None
            row[f"{number:,} seeds (80% range)"] = (
                f"{plan.minimum_detectable_effect():.2%} ({found.low:.2%} to {found.high:.2%})"
            )
        rows.append(row)
    return table(rows)


def enough_seeds(data: Data) -> str:
    rows, messages = [], []
    for name, planned in plans(data).items():
        row: dict[str, Any] = {"Seeds of each arm (80% range) for a difference of": name}
        for effect in (0.005, 0.01, 0.02, 0.03):
            try:
                number = planned.plan.seeds_needed(effect)
                found = planned.plan.needed_range("seeds", effect)
                assert found is not None
                high = "or more" if math.isinf(found.high) else f"to {found.high}"
                row[f"{effect:.1%}"] = f"{number} ({found.low} {high})"
            except DataError as error:
                row[f"{effect:.1%}"] = None
                messages.append(f"> {name}: {error}\n")
        rows.append(row)
    return "\n".join([table(rows), *messages])


def runs_per_seed(data: Data) -> str:
    planned = plans(data)["two pre-trainings, MNLI"]
    found = planned.components
    fine_tuning = variance_components(right(data.mnli))
    rows = []
    for name, seed in (
        ("as the RoBERTas have it", found.seed - fine_tuning.seed),
        ("four times that of fine-tuning", 4 * fine_tuning.seed),
        ("that of fine-tuning", fine_tuning.seed),
        ("a quarter of that", fine_tuning.seed / 4),
    ):
        parts = VarianceComponents(
            seed=seed,
            example=found.example,
            residual=found.residual - fine_tuning.residual,
            run=fine_tuning.seed,
            run_residual=fine_tuning.residual,
        )
        row: dict[str, Any] = {"Variance of pre-training seeds": name, "SD": math.sqrt(seed)}
        for cost in (1, 10, 100, 1000):
            row[f"cost {cost:,}"] = parts.best_runs_per_seed(cost, 1, planned.plan.num_examples)
        rows.append(row)
    return table(rows, ".2%")


def power(data: Data) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 3.1), layout="constrained")
    panels, effects, numbers = (
        figure.subplots(1, 3, sharey=True),
        np.linspace(0, 0.05, 101),
        (3, 5, 10, 25),
    )
    for axes, (name, planned) in zip(panels, plans(data).items(), strict=True):
        curves = planned.plan.power_curve(effects, numbers)
        for place, (number, curve) in enumerate(zip(numbers, curves, strict=True)):
            axes.plot(
                100 * effects, curve, linestyle=LINES[place], color=COLOURS[place],
                marker=MARKERS[place], markevery=(5 + 4 * place, 20), markersize=5,
                label=f"{number} seeds",
            )  # fmt: skip
        axes.axhline(0.8, color=GREY, linewidth=0.8, linestyle=":")
        axes.set_title(name, fontsize=10, loc="left")
        axes.set_xlabel("true difference (points)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(0, 1.02)
    panels[0].set_ylabel("power of the t-test")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False
    )
    return figure
