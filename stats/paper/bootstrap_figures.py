"""Figures of bootstrap distributions, as those of the MultiBERTs paper (Sellam et al., 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiberts.runs.figure_style import COLOURS, canvas
from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.conclusion import Comparison
from multiberts.stats.paper.comparisons import SOURCES
from multiberts.stats.presentation.figures import curve_style, dot_style, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Quartiles of a violin: percentage, half the length of its line, and the line's style.
_QUARTILES = ((25, 0.13, ":"), (50, 0.2, "-"), (75, 0.13, ":"))


def _draw_violin(axes: Axes, samples: NDArray, place: float, index: int, across: bool) -> None:
    """Draws the distribution of bootstrap samples, with its quartiles as lines."""
    violin: Any = axes.violinplot(
        [samples], positions=[place], widths=0.75 if across else 0.6, showextrema=False,
        orientation="vertical" if across else "horizontal",
    )  # fmt: skip
    for body in violin["bodies"]:
        body.set(facecolor=COLOURS[index], edgecolor=COLOURS[index], alpha=0.35)
    draw: Any = axes.hlines if across else axes.vlines
    for share, reach, line in _QUARTILES:
        draw(
            np.percentile(samples, share), place - reach, place + reach, color="black",
            linewidth=1.1, linestyles=line,
        )  # fmt: skip


def bootstrap_figure(comparison: Comparison) -> Figure:
    """Draws the bootstrap distributions of two sides, and of their difference with the recommended
    and the published interval.

    The paper's published notebooks draw such figures of incremental against full CDA and of 1M
    against 2M steps.

    Raises:
      DataError: the comparison has one side.
    """
    if comparison.experiment is None:
        raise DataError(
            f"{comparison.name}: found a single design, expected a comparison of two sides; use "
            "multiberts.stats.presentation.figures.delta_figure"
        )
    sides = (comparison.base, comparison.experiment)
    with canvas(5.8, 3.6, 2, width_ratios=[2, 1.15]) as (figure, (left, right)):
        for place, side in enumerate(sides):
            _draw_violin(left, comparison.samples[:, place], place, place, True)
            left.plot(place, side.estimate, zorder=4, **dot_style(place, size=7, edge=1))
        counts = [f"{len(side.seeds)} seed{'s' * (len(side.seeds) > 1)}" for side in sides]
        names = [f"{side.name}\n({count})" for side, count in zip(sides, counts, strict=True)]
        left.set_xticks(range(2), names)
        left.set_xlim(-0.6, 1.6)
        left.set_ylabel(comparison.metric.replace("_", " "))
        left.set_title(comparison.evaluation_set, fontsize=10)
        _draw_violin(right, comparison.differences, 0, 4, True)
        _draw_intervals(right, comparison, 0.52, 0.2, True)
        right.axhline(0, color="black", linewidth=0.9, linestyle=":")
        right.set_xlim(-0.6, 0.95)
        right.set_xticks([0], ["difference"])
        right.set_title(f"{comparison.experiment.name} - {comparison.base.name}", fontsize=10)
        legend_below(figure, [right], 1)
    return figure


def _draw_intervals(axes: Axes, item: Comparison, place: float, apart: float, across: bool) -> None:
    """Draws the recommended and the published interval next to each other, each with its centre."""
    level = f"{item.confidence:.0%}"
    kinds = (
        (item.t, item.estimate, f"estimate, {level} t interval (recommended)"),
        (
            item.percentile, item.bootstrap_mean,
            f"bootstrap mean, {level} percentile interval (published)",
        ),
    )  # fmt: skip
    for index, (interval, centre, label) in enumerate(kinds):
        style = curve_style(index) | {"linewidth": 2}
        where = [place + apart * index]
        line, point = (where * 2, list(interval)), (where, [centre])
        axes.plot(*(line if across else line[::-1]), **style | {"marker": None})
        axes.plot(*(point if across else point[::-1]), **style, markersize=6, label=label)


def sources_figure(comparisons: Sequence[Comparison], title: str = "") -> Figure:
    """Draws the bootstrap distributions of one difference with seeds and examples resampled, seeds
    alone, and examples alone: what is not resampled is missing in the width of the interval.

    Args:
      comparisons: of the same sides and measure, see `stats.paper.comparisons.compare_sources`.
      title: a line above the figure.

    Raises:
      DataError: there are no comparisons.
    """
    if not comparisons:
        raise DataError("found no comparisons to draw, expected one per source of chance")
    first = comparisons[0]
    with canvas(6.6, 1.5 + 1.0 * len(comparisons)) as (figure, axes):
        for row, item in enumerate(comparisons):
            _draw_violin(axes, item.differences, row, 5, False)
            _draw_intervals(axes, item, row + 0.4, 0.14, False)
        axes.axvline(0, color="black", linewidth=0.9, linestyle=":")
        axes.set_yticks(
            np.arange(len(comparisons)), [SOURCES[item.resample] for item in comparisons]
        )
        axes.set_ylim(len(comparisons) - 0.25, -0.45)
        experiment = f"{first.experiment.name} - " if first.experiment else ""
        axes.set_xlabel(f"{first.metric.replace('_', ' ')}: {experiment}{first.base.name}")
        axes.set_title(title or f"{first.evaluation_set}: what is resampled")
        legend_below(figure, [axes], 1)
    return figure
