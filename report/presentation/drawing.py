"""Common parts of figures: dots over boxes, rows of a forest plot, styles of curves and bars."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiberts.report.presentation.formats import with_minus
from multiberts.runs.figure_style import COLOURS, GIVEN_AXES, GREY, LINES, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Fills of bars from light to dark, with different hatches, distinct in grey.
_FILLS = (
    ("#E6E6E6", ""),
    ("#56B4E9", "///"),
    ("#D55E00", "..."),
    ("#009E73", "xxx"),
    ("#CC79A7", "\\\\\\"),
)


def _jitter(count: int) -> NDArray:
    """Returns small constant offsets [count] to separate dots of equal scores."""
    return ((np.arange(count) * 0.618034) % 1 - 0.5) * 0.16


def curve_style(index: int) -> dict[str, Any]:
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": LINES[index % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def dot_style(index: int, size: float = 6, edge: float = 0.5) -> dict[str, Any]:
    """Returns the style number `index` of single dots with white edges."""
    return curve_style(index) | {
        "linestyle": "none",
        "markersize": size,
        "markeredgecolor": "white",
        "markeredgewidth": edge,
    }


def fill_style(index: int) -> dict[str, Any]:
    """Returns the style number `index` of parts of stacked bars."""
    colour, hatch = _FILLS[index]
    return {"color": colour, "hatch": hatch, "edgecolor": "black", "linewidth": 0.6}


def legend_below(
    figure: Figure, panels: Iterable[Axes], ncols: int, first: Sequence[str] = ()
) -> None:
    """Puts one legend with distinct labels below all panels, starting with `first`.

    Args:
      ncols: maximum number of columns; fewer where they are wider than the figure.
    """
    entries: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    entries = {name: entries[name] for name in first if name in entries} | entries
    if (axes_in_use := GIVEN_AXES.get()) is not None:
        axes_in_use.legend(list(entries.values()), list(entries), loc="best", fontsize="small")
        return
    for columns in range(ncols, 0, -1):
        legend = figure.legend(
            list(entries.values()), list(entries), loc="outside lower left", ncols=columns
        )
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def title_above(figure: Figure, title: str) -> None:
    """Puts a title above all panels, unless it is empty."""
    if title and (axes_in_use := GIVEN_AXES.get()) is not None:
        axes_in_use.set_title(title)
    elif title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)


def show_unit(axis: Axis, number_format: str) -> None:
    """Formats the numbers of a score axis as in tables (shares in per cent)."""
    from matplotlib.ticker import FuncFormatter

    if number_format:
        axis.set_major_formatter(FuncFormatter(lambda value, _: with_minus(f"{100 * value:g}")))


def finish_rows(axes: Axes, names: Sequence[str], label: str, title: str = "") -> None:
    """Labels the rows (from top to bottom), axis and panel of a forest plot; wraps long names."""
    wrapped = (textwrap.wrap(name, 34, max_lines=2, placeholder="…") for name in names)
    axes.set_yticks(range(len(names)), ["\n".join(lines) for lines in wrapped])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(label)
    axes.set_title(title)


def row(
    axes: Axes,
    position: float,
    estimate: float,
    interval: Sequence[float],
    *,
    colour: str = COLOURS[0],
    marker: str = "o",
    filled: bool = True,
    label: str | None = None,
) -> None:
    """Draws an estimate and its interval in a row of a forest plot."""
    axes.plot([*interval], [position] * 2, color=colour, linewidth=2)
    axes.plot(
        estimate, position, marker, markersize=7, color=colour, label=label,
        markerfacecolor=colour if filled else "white", markeredgewidth=1.6,
    )  # fmt: skip


def estimate_beside(
    axes: Axes, position: float, estimate: float, interval: Sequence[float], colour: str
) -> None:
    """Draws an estimate and its vertical interval beside the dots of seeds."""
    axes.plot([position] * 2, [*interval], color=colour, linewidth=2)
    axes.plot(position, estimate, "D", color=colour, markersize=6)


def dots(
    axes: Axes,
    values: NDArray,
    position: float,
    style: int,
    *,
    spread: float = 1.0,
    box: float = 0.0,
    **look: Any,
) -> NDArray:
    """Draws one dot per value of a group around `position`, over a grey box plot of width `box`.

    Returns the horizontal positions of the dots [values]; `look` overrides parts of their `dot_style`.
    """
    if box:
        grey = {"color": GREY, "linewidth": 0.8}
        drawn = axes.boxplot(
            [values], positions=[position], widths=box, showfliers=False, patch_artist=True,
            zorder=1, manage_ticks=False, medianprops={"color": "black", "linewidth": 1.4},
            boxprops=dict(grey), whiskerprops=grey, capprops=grey,
        )  # fmt: skip
        drawn["boxes"][0].set_facecolor("#F2F2F2")
    where: NDArray = position + spread * _jitter(len(values))
    axes.plot(where, values, **dot_style(style) | {"zorder": 3} | look)
    return where


def width_of_names(names: Iterable[str]) -> float:
    """Returns the inches that the longest name takes beside its row."""
    return 0.085 * max(map(len, names), default=0)
