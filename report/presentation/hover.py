"""Figures of pages: points show their values on hover, and parts belong to entries of the legend.

The page's script hides the parts of an entry; without it the values still show, as SVG titles.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from multiberts.runs.figure_style import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_MOST_POINTS = 300  # more points of one artist get its name only, so that pages stay small
_NEUTRAL = ("#000000", "#ffffff", "#f2f2f2", GREY)


class HoverText(NamedTuple):
    """Legend entry of an artist, if any, its text on hover, and that of each of its points."""

    entry: int | None
    text: str
    points: list[str]


def mark(figure: Figure) -> list[HoverText]:
    """Sets the ids of artists and legend entries in SVG, and returns the marks of the artists.

    Artists without a label belong to the legend entry of their colour.
    """
    entries: dict[str, int] = {}
    by_colour: dict[str, int] = {}
    for legend in filter(None, [*figure.legends, *(axes.get_legend() for axes in figure.axes)]):
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            number = entries.setdefault(text.get_text(), len(entries))
            by_colour.setdefault(_colour(handle), number)
            for part in filter(None, (handle, text)):
                part.set_gid(f"entry-{number}")
    names = [*entries]
    marks: list[HoverText] = []
    for axes in figure.axes:
        bars = {id(bar): group for group in axes.containers for bar in group.get_children()}
        for artist in (*axes.lines, *axes.collections, *axes.patches):
            group = bars.get(id(artist))
            label, colour = str((group or artist).get_label()), _colour(artist)
            entry = entries.get(label, by_colour.get(colour) if colour not in _NEUTRAL else None)
            name = names[entry] if entry is not None else label * (not label.startswith("_"))
            value, points = _values(axes, artist, getattr(group, "orientation", ""))
            if entry is None and colour in _NEUTRAL:  # boxes, whiskers and lines of reference
                value, points = "", []
            title, *titles = [": ".join(filter(None, (name, each))) for each in (value, *points)]
            artist.set_gid(f"mark-{len(marks)}")
            marks.append(HoverText(entry, title, titles if len(titles) <= _MOST_POINTS else []))
    return marks


def with_marks(svg: str, marks: list[HoverText]) -> str:
    """Returns the SVG with titles of its marks, and `data-series` and `data-entry` in place of ids."""
    parts = re.split(r'(?=<g id=")', svg)
    for place, part in enumerate(parts):
        opening = re.match(r'<g id="(mark|entry)-(\d+)"', part)
        if not opening:
            continue
        kind, number, content = opening[1], opening[2], part[opening.end() :]
        if kind == "entry":
            parts[place] = f'<g data-entry="{number}"{content}'
            continue
        entry, text, points = marks[int(number)]
        if points and content.count("<use ") == len(points):
            first, *uses = re.split(r"(?=<use )", content)
            titled = zip(uses, points, strict=True)
            content = first + "".join(
                use.replace("/>", f">{_title(title)}</use>", 1) for use, title in titled
            )
        content = content.replace(">", f">{_title(text)}", 1)
        parts[place] = "<g" + f' data-series="{entry}"' * (entry is not None) + content
    return "".join(parts)


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _colour(artist: Any) -> str:
    from matplotlib.colors import to_hex

    colour = artist.get_color() if hasattr(artist, "get_color") else artist.get_facecolor()
    if np.ndim(colour) == 2:
        colour = colour[0] if len(colour) else "black"
    return to_hex(colour)


def _values(axes: Axes, artist: Any, orientation: str) -> tuple[str, list[str]]:
    """Returns the value of an artist, such as a bar's length, and those of its points."""
    if orientation:
        is_row = orientation == "horizontal"
        axis, value = (
            (axes.xaxis, artist.get_width()) if is_row else (axes.yaxis, artist.get_height())
        )
        return _number(axis, value), []
    if not hasattr(artist, "get_xydata") or artist.get_transform() != axes.transData:
        return "", []
    finite = [point for point in artist.get_xydata() if np.isfinite(point).all()]
    if artist.get_marker() in ("o", "s", "^", "D", "v", "P", "X", "."):
        shown = [(_number(axes.xaxis, x), _number(axes.yaxis, y)) for x, y in finite]
        # Names of rows and columns before numbers.
        return "", [", ".join(sorted(filter(None, each), key=_is_number)) for each in shown]
    if len(finite) == 2:  # an interval
        (x, y), (other_x, other_y) = finite
        for axis, low, high, same in (
            (axes.xaxis, x, other_x, y == other_y),
            (axes.yaxis, y, other_y, x == other_x),
        ):
            if same and low != high:
                return f"{_number(axis, low)} to {_number(axis, high)}", []
    return "", []


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-\d.,e+]+", text) is not None


def _number(axis: Axis, value: float) -> str:
    """Returns a value as its axis shows it: the name of a row or column, or a number."""
    from matplotlib.ticker import FuncFormatter

    formatter, ticks = axis.get_major_formatter(), axis.get_majorticklocs()
    if not len(ticks):
        return ""
    text = f"{value:.4g}"
    if isinstance(formatter, FuncFormatter):  # of a unit, or of names at whole numbers
        nearest = min(ticks, key=lambda tick: abs(tick - value))
        text = str(formatter(value) or formatter(nearest))
    try:
        number = float(text.replace("\N{MINUS SIGN}", "-"))
    except ValueError:
        return " ".join(text.split())
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
