"""Sketches in place of figures: files of the right kind in a hundredth of the time.

Rendering a figure takes a tenth of a second, and a report has dozens. Where a test is about what stands
around them, each figure is made as ever, and then written as an empty picture with its words. The
figures themselves are drawn by the tests that have the mark `figures`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, BinaryIO

import pytest

from multiberts.runs import figure_style

_to_be_drawn: list[bool] = []


def _sketch(figure: Any) -> str:
    width, height = 72 * figure.get_size_inches()
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    texts = [text for legend in filter(None, legends) for text in legend.get_texts()]
    texts += [text for axes in figure.axes for text in (axes.title, axes.xaxis.label, *axes.texts)]
    words = "".join(f"<text>{escape(text.get_text())}</text>" for text in texts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">'
        f'<path d="M 0 0"/>{words}</svg>\n'
    )


@contextmanager
def sketched_figures() -> Iterator[None]:
    """While it is open, figures are written as sketches."""
    from matplotlib.figure import Figure

    draw, lay_out = Figure.savefig, figure_style._lay_out

    def save(figure: Figure, file: BinaryIO, format: str = "", **options: Any) -> None:
        if _to_be_drawn or format != "svg":
            draw(figure, file, format=format, **options)
        else:
            file.write(_sketch(figure).encode())

    def lay_out_drawn(figure: Figure, dots_per_inch: float) -> None:
        if _to_be_drawn:
            lay_out(figure, dots_per_inch)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(Figure, "savefig", save)
        patches.setattr(figure_style, "_lay_out", lay_out_drawn)
        yield


@contextmanager
def drawn_figures() -> Iterator[None]:
    """While it is open, figures are drawn within `sketched_figures`, too."""
    _to_be_drawn.append(True)
    try:
        yield
    finally:
        _to_be_drawn.pop()


@pytest.fixture(autouse=True, scope="module")
def sketched(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where a module has the mark itself, its fixtures draw, too."""
    if request.node.get_closest_marker("figures"):
        yield
        return
    with sketched_figures():
        yield


@pytest.fixture(autouse=True)
def drawn_where_marked(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("figures") is None:
        yield
    else:
        with drawn_figures():
            yield
