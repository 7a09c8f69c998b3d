"""The look of every figure: palette, line styles, fonts, and files with the same bytes every time.

Figures stay readable for the colour-blind and in grey: the colours are those of Okabe and Ito, and
each colour goes with a marker, a line style or a hatch of its own. Matplotlib is imported where it is
first needed, and no window is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
GREY = "#666666"

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.grid": False,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: small files that can be searched
    "figure.dpi": 100,
    "savefig.dpi": 150,
}

# Its first import on a machine lists the fonts, and says so; nobody who reads a result needs to know.
logging.getLogger("matplotlib.font_manager").setLevel(logging.WARNING)


@contextmanager
def canvas(
    width: float, height: float, columns: int = 1, rows: int = 1, **options: Any
) -> Iterator[tuple[Figure, Any]]:
    """Opens a figure in this style; its parts are laid out when the block ends.

    Args:
      width: in inches.
      height: in inches.
      columns: number of panels in a row.
      **options: of `matplotlib.figure.Figure.subplots`, such as `sharey` or `squeeze`.

    Yields:
      The figure and its axes, as `subplots` returns them.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, figure.subplots(rows, columns, **options)


def save_figure(figure: Figure, path: Path, salt: str = "stats") -> list[Path]:
    """Writes `path` with the endings .png and .svg, without dates or versions inside.

    Args:
      figure: made in a `canvas`.
      path: without an ending; its folder exists.
      salt: the names of the parts inside the SVG file depend on it.

    Returns:
      The two files.
    """
    import matplotlib

    files = [path.with_name(path.name + ending) for ending in (".png", ".svg")]
    with matplotlib.rc_context(_SETTINGS | {"svg.hashsalt": salt}):
        figure.savefig(files[0], metadata={"Software": None})
        figure.set_layout_engine("none")  # the layout is done; computing it again takes as long
        figure.savefig(files[1], metadata={"Date": None, "Creator": None})
    return files
