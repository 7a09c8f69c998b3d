"""The look of every figure: palette, line styles, fonts, and files with the same bytes every time.

Figures stay readable for the colour-blind and in grey: the colours are those of Okabe and Ito, and
each colour goes with a marker, a line style or a hatch of its own. Matplotlib is imported where it is
first needed, and no window is opened.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, cast

from multiberts.runs.errors import UserError
from multiberts.runs.files import MARK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
GREY = "#666666"

FigureKind = Literal["svg", "pdf", "png"]
# Leaves out the version and the time, which Matplotlib writes into a file of each kind.
_METADATA: dict[FigureKind, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": MARK},
}

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.grid": False,
    "legend.frameon": False,
    "text.parse_math": False,  # an arm named `$\\a$` was an error of Matplotlib
    "text.usetex": False,  # TeX would read files named in \\input{...}
    "svg.fonttype": "none",  # text stays text: small files that can be searched
    "svg.hashsalt": "stats",  # the same names of parts every time
    "figure.dpi": 100,
    "savefig.dpi": 150,
}

# Its first import on a machine lists the fonts, and says so; nobody who reads a result needs to know.
logging.getLogger("matplotlib.font_manager").setLevel(logging.WARNING)

# The axes of a caller, into which the next figure is drawn; None where it is a figure of its own.
GIVEN_AXES: ContextVar[Axes | None] = ContextVar("given axes", default=None)


@contextmanager
def drawn_into(axes: Axes) -> Iterator[None]:
    """Lets the figure that is made in the block be drawn into given axes, if it has one panel."""
    token = GIVEN_AXES.set(axes)
    try:
        yield
    finally:
        GIVEN_AXES.reset(token)


@contextmanager
def canvas(
    width: float, height: float, columns: int = 1, rows: int = 1, **options: Any
) -> Iterator[tuple[Figure, Any]]:
    """Opens a figure in this style, or axes that were given; its parts are laid out when the block ends.

    Args:
      width, height: size in inches.
      **options: arguments of `matplotlib.figure.Figure.subplots`, such as `sharey` or `squeeze`.

    Yields:
      The figure and its axes, as `subplots` returns them.
    """
    import matplotlib
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    caller_axes = GIVEN_AXES.get()
    if caller_axes is not None and columns * rows > 1:
        raise UserError(
            f"this figure has {columns * rows} panels, which do not fit into one ax; leave ax out"
        )
    with matplotlib.rc_context(_SETTINGS):
        if caller_axes is not None:
            figure = cast("Figure", caller_axes.figure)
            yield figure, caller_axes if options.get("squeeze", True) else np.array([[caller_axes]])
            return
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, figure.subplots(rows, columns, **options)


def figure_bytes(figure: Figure, kind: FigureKind = "svg") -> bytes:
    """Returns the picture of a figure that was made in a `canvas`, without dates or versions inside."""
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        _lay_out(figure, dots_per_inch=matplotlib.rcParams["savefig.dpi"])
        figure.savefig(content, format=kind, metadata=_METADATA[kind])
    return content.getvalue()


def _lay_out(figure: Figure, dots_per_inch: float) -> None:
    """Computes the layout once, by the sizes of letters in a PNG, so that it is the same in all kinds."""
    engine, dpi = figure.get_layout_engine(), figure.dpi
    if engine is not None:
        figure.dpi = dots_per_inch
        engine.execute(figure)
        figure.dpi = dpi
        figure.set_layout_engine("none")
