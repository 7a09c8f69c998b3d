"""The status as one HTML page that needs nothing else: no network, no server, no other file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from multiberts.launch.estimate import quantities
from multiberts.launch.status.progress import logged_curves
from multiberts.launch.status.snapshot import STATES, Status, SweepRow
from multiberts.runs.files import PathLike, write_atomically
from multiberts.runs.web_page.rendering import render
from multiberts.stats.formats import format_cell, with_minus
from multiberts.stats.presentation.metric_names import metric_label, score_format

TEMPLATE = "status_page.html.j2"
SECONDS_BETWEEN_REFRESHES = 30
# Written into an experiment's root at the launcher's end.
PAGE = "status.html"
UNPLANNED_SHOWN = 1000
ATTEMPTS_SHOWN = 1000

# Size of a small curve, in CSS pixels.
_WIDTH, _HEIGHT = 96, 24


def write_status_page(status: Status, path: PathLike, *, refreshes: bool = False) -> None:
    """Writes the page, whole or not at all.

    Args:
      status: what it shows.
      path: the HTML file.
      refreshes: whether the page reads itself again, as it is being written anew.

    Raises:
      UserError: the file cannot be written.
    """
    page = render_status_page(status, refreshes=refreshes, folder=Path(path).parent)
    write_atomically(path, page)


def render_status_page(
    status: Status, *, refreshes: bool = False, folder: PathLike | None = None
) -> str:
    """Returns the page as HTML; see `write_status_page`.

    Args:
      status: what it shows.
      refreshes: see `write_status_page`.
      folder: where the page will lie, from which it links to the experiment's files; None: in its root.
    """
    root = Path(status.root)
    up = os.path.relpath(root.absolute(), Path(root if folder is None else folder).absolute())

    def link(place: str) -> str:
        """Returns the address of a file or directory of the experiment; empty where there is none."""
        return quote(f"./{up}/{place}") if (root / place).exists() else ""

    curves = {
        row.path: logged_curves(root / row.path).after(row.steps_before)
        for row in status.pretraining
    }
    filters: dict[str, Callable[..., Any]] = {
        "compact": quantities.compact,
        "count": quantities.count,
        "dollars": quantities.dollars,
        "duration": quantities.duration,
        "moment": quantities.moment,
        "percent": quantities.percent,
        "speed": quantities.speed,
        "sortable": _sortable,
        "checkpoint_key": _checkpoint_key,
        "link": link,
        "label": metric_label,
        "number": lambda score, metric="": with_minus(format_cell(score, score_format(metric))),
    }
    present = {row.state for row in status.pretraining}
    left = [row.seconds_left for row in status.pretraining if row.seconds_left is not None]
    return render(
        Path(__file__).with_name(TEMPLATE),
        filters,
        status=status,
        place=quantities.place,
        states=STATES,
        pretraining_states=[state for state in STATES if state in present],
        longest=max(left, default=None),
        losses=_sparklines({path: found.loss for path, found in curves.items()}, "loss"),
        accuracies=_sparklines(
            {path: found.accuracy for path, found in curves.items()}, "held-out accuracy"
        ),
        attempts_shown=ATTEMPTS_SHOWN,
        refresh_seconds=SECONDS_BETWEEN_REFRESHES if refreshes else None,
        unplanned_shown=UNPLANNED_SHOWN,
    )


@dataclass(frozen=True)
class Sparkline:
    """A small curve.

    Attributes:
      points: of an SVG line.
      last: the newest value; NaN where it is not finite.
      words: the curve in words.
    """

    points: str
    last: float
    words: str


def _sparklines(
    curves: Mapping[str, Sequence[tuple[int, float]]], noun: str
) -> dict[str, Sparkline]:
    """Returns the curves that have points, all with the same axes, by their key."""
    finite = {key: [p for p in curve if math.isfinite(p[1])] for key, curve in curves.items()}
    every = [point for curve in finite.values() for point in curve]
    if not every:
        return {}
    end = max(step for step, _ in every) or 1
    low, high = min(value for _, value in every), max(value for _, value in every)
    found = {}
    for key, curve in curves.items():
        if not finite[key]:
            continue
        points = " ".join(
            f"{1 + (_WIDTH - 2) * step / end:.1f},"
            f"{_HEIGHT - 1 - (_HEIGHT - 2) * (value - low) / ((high - low) or 1):.1f}"
            for step, value in finite[key]
        )
        (first_step, first), (step, last) = finite[key][0], curve[-1]
        words = f"{noun} from {first:.3g} at step {first_step:,} to {last:.3g} at step {step:,}"
        found[key] = Sparkline(points, last, words)
    return found


def _checkpoint_key(row: SweepRow) -> str:
    if row.procedure is None:
        return row.name
    return f"{row.procedure} {row.pretrain_seed} {row.step or 0:012d}"


def _sortable(number: float | None) -> str:
    return "" if number is None else repr(number)
