"""Figures of a family of tasks, of where the variance comes from, and of planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from multiberts.runs.figure_style import COLOURS, GREY, LINES, MARKERS, canvas
from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.task_family import TaskComparisons
from multiberts.stats.paper.tables import COMPONENT_NAMES
from multiberts.stats.planning.components import VarianceComponents
from multiberts.stats.planning.power import Study

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
    """Forest plot of a family of tasks: differences with t intervals, the macro-average below, and
    corrected p-values at the right.

    Args:
      family: see `stats.compare_tasks`.
      method: of the correction, a key of `family.adjusted`.
      title: stands above.

    Raises:
      DataError: the method is none of those, or the tasks have one side.
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
            colour, marker = (COLOURS[1], "D") if last else (COLOURS[0], "o")
            clear = item.t.low > 0 or item.t.high < 0
            axes.plot([item.t.low, item.t.high], [row] * 2, color=colour, linewidth=2)
            axes.plot(
                item.estimate, row, marker, markersize=7, color=colour,
                markerfacecolor=colour if clear else "white", markeredgewidth=1.6,
            )  # fmt: skip
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
        axes.set_yticks(range(len(items)), [*names_of_rows, "macro-average"])
        axes.set_ylim(len(items) - 0.4, -0.6)
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
    """Shares of variance by where it comes from, a bar an evaluation set: of one run's score on one
    example, and beside it of the mean score.

    Args:
      components: by evaluation set.
      sizes: by evaluation set the numbers of seeds, of runs a seed and of examples over which the
        mean was taken; None leaves the second panel out.
      title: stands above.

    Raises:
      DataError: no components, or an evaluation set without sizes.
    """
    if not components:
        raise DataError(
            "found no variance components to draw, expected one evaluation set at least"
        )
    missing = [name for name in components if sizes is not None and name not in sizes]
    if missing:
        raise DataError(f"found no sizes of {', '.join(missing)}; give one for each bar, or none")
    panels = [
        ("of one run on one example", {name: _cell(part) for name, part in components.items()})
    ]
    if sizes is not None:
        parts = {name: _mean(part, *sizes[name]) for name, part in components.items()}
        panels.append(("of the mean score", parts))
    height = 1.7 + 0.36 * len(components)
    with canvas(1.6 + 3.1 * len(panels), height, len(panels), squeeze=False, sharey=True) as (
        figure,
        grid,
    ):
        for axes, (name, parts) in zip(grid[0], panels, strict=True):
            _draw_shares(axes, parts)
            axes.set_xlabel("share of variance (%)")
            axes.set_title(name, fontsize=10)
        grid[0, 0].set_yticks(range(len(components)), list(components))
        grid[0, 0].set_ylim(len(components) - 0.4, -0.6)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=3)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _cell(found: VarianceComponents) -> dict[str, float]:
    return {name: getattr(found, name) for name in _FILLS}


def _mean(
    found: VarianceComponents, num_seeds: float, num_runs: float, num_examples: float
) -> dict[str, float]:
    """The terms of `stats.planning.power.Study.variance`."""
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
    """Power against the number of pre-training seeds, a curve an effect.

    Args:
      effects: true differences to be found.
      numbers_of_seeds: whole numbers from 2 on, rising.
      study: everything but the number of seeds.
      target_power: drawn as a line; a curve's name says from how many seeds on it is reached.
      title: stands above.

    Raises:
      DataError: no effects, fewer than two seeds, or a level that is none.
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
                seeds, curve, linestyle=LINES[place % len(LINES)], linewidth=1.7,
                color=COLOURS[place % len(COLOURS)], marker=MARKERS[place % len(MARKERS)],
                markersize=5, markevery=(place, max(1, len(seeds) // 6)),
                label=f"effect {effect:.3g}: {enough}",
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
