"""Figures of a family of tasks, of sources of variance, and of planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from multiberts.runs.figure_style import COLOURS, GREY, canvas
from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.task_family import TaskComparisons
from multiberts.stats.paper.tables import COMPONENT_NAMES
from multiberts.stats.planning.components import VarianceComponents
from multiberts.stats.planning.power import Study
from multiberts.stats.presentation.figures import (
    curve_style,
    draw_difference,
    legend_below,
    name_rows,
    title_above,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Fills that differ in grey, with hatches of their own, by component.
_FILLS = {
    "seed": ("#D55E00", "..."),
    "run": ("#56B4E9", "///"),
    "example": ("#E6E6E6", ""),
    "residual": ("#CC79A7", "\\\\\\"),
    "run_residual": ("#009E73", "xxx"),
}


def family_figure(family: TaskComparisons, method: str = "holm", title: str = "") -> Figure:
    """Draws a forest plot of a family of tasks: differences with t intervals, the macro-average
    below, and corrected p-values at the right.

    Args:
      family: see `stats.compare_tasks`.
      method: of the correction, a key of `family.adjusted`.
      title: a line above the figure.

    Raises:
      DataError: the method is not one of those, or the tasks have one side.
    """
    if method not in family.adjusted:
        raise DataError(
            f"found correction {method!r}, expected one of {', '.join(family.adjusted) or 'none'} "
            "(a single design has none)"
        )
    items = [*family.comparisons.values(), family.macro_average]
    adjusted = [*family.adjusted[method], None]
    first = items[0]
    assert first.experiment is not None
    with canvas(7.0, 1.6 + 0.36 * len(items)) as (figure, axes):
        for row, (item, p) in enumerate(zip(items, adjusted, strict=True)):
            last = row == len(items) - 1
            draw_difference(axes, row, item, *((COLOURS[1], "D") if last else (COLOURS[0], "o")))
            axes.text(
                1.02, row, "-" if p is None else _p_text(float(p)), va="center",
                transform=axes.get_yaxis_transform(), fontsize=9,
            )  # fmt: skip
        names = {"holm": "Holm", "bonferroni": "Bonferroni", "bh": "BH", "by": "BY"}
        axes.text(
            1.02, -0.85, f"p ({names.get(method, 'max-T')})", transform=axes.get_yaxis_transform(),
            fontsize=9, va="center",
        )  # fmt: skip
        axes.axvline(0, color="black", linewidth=0.9, linestyle=":")
        axes.axhline(len(items) - 1.5, color=GREY, linewidth=0.6)
        names_of_rows = [
            f"{task}, {item.metric.replace('_', ' ')}" for task, item in family.comparisons.items()
        ]
        name_rows(axes, [*names_of_rows, "macro-average"])
        axes.set_xlabel(f"difference, {first.confidence:.0%} t interval (filled: it excludes 0)")
        axes.set_title(title or f"{first.experiment.name} - {first.base.name}")
    return figure


def _p_text(p: float) -> str:
    return "< 0.001" if p < 1e-3 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def variance_figure(
    components: Mapping[str, VarianceComponents],
    sizes: Mapping[str, tuple[float, float, float]] | None = None,
    title: str = "",
) -> Figure:
    """Draws the shares of variance by source, one bar per evaluation set: of one run's score on one
    example, and of the mean score.

    Args:
      components: by evaluation set.
      sizes: by evaluation set the numbers of seeds, of runs per seed and of examples over which the
        mean was taken; None leaves the second panel out.
      title: a line above the figure.

    Raises:
      DataError: there are no components, or an evaluation set lacks its sizes.
    """
    if not components:
        raise DataError("found no variance components to draw, expected at least one set")
    missing = [name for name in components if sizes is not None and name not in sizes]
    if missing:
        raise DataError(f"found no sizes of {', '.join(missing)}, expected one per bar, or none")
    one_of_each: Mapping = dict.fromkeys(components, (1, 1, 1))
    panels = [("of one run on one example", one_of_each)]
    panels += [("of the mean score", sizes)] if sizes is not None else []
    height = 1.7 + 0.36 * len(components)
    with canvas(1.6 + 3.1 * len(panels), height, len(panels), squeeze=False, sharey=True) as (
        figure,
        grid,
    ):
        for axes, (name, numbers) in zip(grid[0], panels, strict=True):
            parts = {key: _shares(part, *numbers[key]) for key, part in components.items()}
            _draw_shares(axes, parts)
            axes.set_xlabel("share of variance (%)")
            axes.set_title(name, fontsize=10)
        name_rows(grid[0, 0], list(components))
        legend_below(figure, grid[0, :1], 3)
        title_above(figure, title)
    return figure


def _shares(
    found: VarianceComponents, num_seeds: float, num_runs: float, num_examples: float
) -> dict[str, float]:
    """Returns the terms of `stats.planning.power.Study.variance`."""
    numbers = {
        "seed": num_seeds,
        "run": num_seeds * num_runs,
        "example": num_examples,
        "residual": num_seeds * num_examples,
        "run_residual": num_seeds * num_runs * num_examples,
    }
    return {name: getattr(found, name) / number for name, number in numbers.items()}


def _draw_shares(axes: Axes, parts: Mapping[str, Mapping[str, float]]) -> None:
    rows, left = np.arange(len(parts)), np.zeros(len(parts))
    totals = np.array([sum(found.values()) for found in parts.values()])
    for name, (colour, hatch) in _FILLS.items():
        values = np.array([found[name] for found in parts.values()])
        shares = 100 * np.divide(values, totals, out=np.zeros(len(parts)), where=totals > 0)
        axes.barh(
            rows, shares, 0.66, left, color=colour, hatch=hatch, edgecolor="black", linewidth=0.6,
            label=COMPONENT_NAMES[name],
        )  # fmt: skip
        left += shares
    axes.set_xlim(0, 100)


def power_figure(
    effects: Sequence[float],
    numbers_of_seeds: ArrayLike,
    study: Study,
    target_power: float = 0.8,
    title: str = "",
) -> Figure:
    """Draws power against the number of pre-training seeds, one curve per effect.

    Args:
      effects: true differences.
      numbers_of_seeds: whole numbers from 2 on, increasing.
      study: everything except the number of seeds.
      target_power: drawn as a line; the legend gives the number of seeds that reach it.
      title: a line above the figure.

    Raises:
      DataError: there are no effects or numbers of seeds, or a parameter is out of its range.
    """
    seeds = np.asarray(numbers_of_seeds)
    if not len(effects) or not seeds.size:
        raise DataError("found no effects or no numbers of seeds to draw power for, expected both")
    table = study.power_curve(effects, seeds)  # [seeds, effects]
    from matplotlib.ticker import MaxNLocator

    with canvas(5.4, 3.9) as (figure, axes):
        for place, (effect, curve) in enumerate(zip(effects, table.T, strict=True)):
            reached = np.flatnonzero(curve >= target_power)
            enough = f"{seeds[reached[0]]} seeds" if reached.size else f"over {seeds[-1]} seeds"
            axes.plot(
                seeds, curve, linewidth=1.7, markersize=5,
                markevery=(place, max(1, len(seeds) // 6)),
                label=f"effect {effect:.3g}: {enough}", **curve_style(place),
            )  # fmt: skip
        axes.axhline(target_power, color=GREY, linewidth=0.9, linestyle=":")
        axes.set_ylim(0, 1.02)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(
            "pre-training seeds" + (" of each side" if study.design != "single" else "")
        )
        axes.set_ylabel(f"power at level {study.alpha:g}, {study.sides}-sided")
        runs = f"{study.num_runs} run{'s' * (study.num_runs > 1)} per seed"
        axes.set_title(title or f"{study.design} design, {runs}")
        figure.legend(
            loc="outside lower left", ncols=2, title=f"seeds for a power of {target_power:g}",
            alignment="left", title_fontsize=9,
        )  # fmt: skip
    return figure
