"""Sketches in place of figures: files of the right kind in a hundredth of the time.

Rendering a figure takes a tenth of a second, and a report has dozens. Where a test is about what stands
around them, each figure is made as ever, and then written as an empty picture with its words. The
figures themselves are drawn by the tests that have the mark `figures`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import pytest

# One transparent pixel.
_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


_to_be_drawn: list[bool] = []


def _written(figure: Any, file: Path) -> None:
    if file.suffix == ".png":
        file.write_bytes(_PNG)
        return
    width, height = 72 * figure.get_size_inches()
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    texts = [text for legend in filter(None, legends) for text in legend.get_texts()]
    texts += [text for axes in figure.axes for text in (axes.title, axes.xaxis.label, *axes.texts)]
    words = "".join(f"<text>{escape(text.get_text())}</text>" for text in texts)
    file.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">'
        f'<path d="M 0 0"/>{words}</svg>\n',
        encoding="utf-8",
    )


@contextmanager
def sketched_figures() -> Iterator[None]:
    """While it is open, figures are written as sketches."""
    from matplotlib.figure import Figure

    draw = Figure.savefig

    def save(figure: Figure, file: Any, **options: Any) -> None:
        if _to_be_drawn or not isinstance(file, Path):
            draw(figure, file, **options)
        else:
            _written(figure, file)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(Figure, "savefig", save)
        yield


@contextmanager
def drawn_figures() -> Iterator[None]:
    """While it is open, figures are drawn within `sketched_figures`, too."""
    _to_be_drawn.append(True)
    try:
        yield
    finally:
        _to_be_drawn.pop()
