"""The status as one HTML page that needs nothing else: no network, no server, no other file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from multiberts.launch.estimate import quantities
from multiberts.launch.status.picture import STATES, Status, SweepRow
from multiberts.runs.files import PathLike, write_atomically
from multiberts.runs.web_page.rendering import render

TEMPLATE = "status_page.html.j2"
SECONDS_BETWEEN_REFRESHES = 30
UNPLANNED_SHOWN = 1000


def write_status_page(status: Status, path: PathLike, *, refreshes: bool = False) -> None:
    """Writes the page, whole or not at all.

    Args:
      status: what it shows.
      path: the HTML file.
      refreshes: whether the page reads itself again, as it is being written anew.

    Raises:
      UserError: the file cannot be written.
    """
    write_atomically(path, render_status_page(status, refreshes=refreshes))


def render_status_page(status: Status, *, refreshes: bool = False) -> str:
    """Returns the page as HTML; see `write_status_page`."""
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
        refresh_seconds=SECONDS_BETWEEN_REFRESHES if refreshes else None,
        unplanned_shown=UNPLANNED_SHOWN,
    )


def _checkpoint_key(row: SweepRow) -> str:
    """Sorts by procedure, seed, step."""
    if row.procedure is None:
        return row.name
    return f"{row.procedure} {row.pretrain_seed} {row.step or 0:012d}"


def _sortable(number: float | None) -> str:
    """Returns a number for the script that sorts; empty where there is none."""
    return "" if number is None else repr(number)
