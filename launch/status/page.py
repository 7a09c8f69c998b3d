"""The status as one self-contained HTML page: no network, no server, no other file."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from multiberts.launch.estimate import quantities
from multiberts.launch.status import table
from multiberts.launch.status.snapshot import STATES, Status
from multiberts.runs.files import PathLike, write_outputs
from multiberts.runs.web_page.rendering import render

TEMPLATE = "status_page.html.j2"
SECONDS_BETWEEN_REFRESHES = 30
# The launcher writes it into the experiment's root when it ends.
PAGE = "status.html"


def write_status_page(status: Status, path: PathLike, *, refreshes: bool = False) -> None:
    """Writes the page completely or not at all.

    Args:
      refreshes: whether the page reloads itself, because it will be written again.
    """
    page = render_status_page(status, refreshes=refreshes, folder=Path(path).parent)
    write_outputs({Path(path): page})


def render_status_page(
    status: Status, *, refreshes: bool = False, folder: PathLike | None = None
) -> str:
    """Returns the page as HTML; see `write_status_page`.

    Args:
      folder: folder of the page, from which it links to the experiment's files; None: the root.
    """
    root = Path(status.root)
    up = os.path.relpath(root.absolute(), Path(root if folder is None else folder).absolute())

    def link(path: str) -> str:
        """Returns the address of a file or directory of the experiment; empty if there is none."""
        return quote(f"./{up}/{path}") if (root / path).exists() else ""

    return render(
        Path(__file__).with_name(TEMPLATE),
        {
            "duration": quantities.duration,
            "moment": quantities.moment,
            "failure_line": table.failure_line,
            "link": link,
        },
        status=status,
        headline=table.headline(status),
        launched=table.launched(status),
        rows=table.rows_of(status),
        orphans=table.orphan_lines(status),
        states=STATES,
        refresh_seconds=SECONDS_BETWEEN_REFRESHES if refreshes else None,
    )
