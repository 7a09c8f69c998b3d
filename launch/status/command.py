"""`multiberts launch status`: shows how an experiment stands, once or as it changes."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import asdict
from json import dumps as to_json
from pathlib import Path

from multiberts.launch.status.snapshot import collect_status
from multiberts.runs.console import report
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

SECONDS_BETWEEN_LOOKS = 5.0
# Lines of the live view that are not seeds in pre-training.
_OTHER_LINES = 20


def show_status(
    *, root: PathLike, html: PathLike | None = None, watch: bool = False, json: bool = False
) -> None:
    """Shows how an experiment stands, from its markers alone: on any machine that sees its root.

    Args:
      root: the experiment's root.
      html: where to write one self-contained page, too, which shows the same. Its links to runs, logs and
        reports are relative: in the experiment's root it can move with it.
      watch: go on until Ctrl-C: a live view in a terminal, a page that reads itself again; without
        either, the text anew every few seconds.
      json: print everything as one JSON object instead, for other programs.

    Raises:
      UserError: nothing was launched at the root, or the page cannot be written.
    """
    from multiberts.launch.status.terminal import print_status

    if json:
        if watch:
            raise UserError("--json prints the status once; leave it or --watch out")
        status = collect_status(root)
        report(to_json({**asdict(status), "counts": status.counts}, indent=1))
        return
    if not watch:
        status = collect_status(root)
        print_status(status)
        if html is not None:
            _write_page(root, html, refreshes=False)
            report(f"page: {Path(html).resolve()}")
        return
    with contextlib.suppress(KeyboardInterrupt):
        if sys.stdout.isatty():
            _show_live(root, html)
        while True:
            started = time.monotonic()
            if html is None:
                print_status(collect_status(root))
            else:
                _write_page(root, html, refreshes=True)
            _rest(started)


def _write_page(root: PathLike, html: PathLike, *, refreshes: bool) -> None:
    from multiberts.launch.status.page import write_status_page

    write_status_page(collect_status(root), html, refreshes=refreshes)


def _show_live(root: PathLike, html: PathLike | None) -> None:
    """Draws the status again and again in place, until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from multiberts.launch.status.terminal import terminal_view

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            started = time.monotonic()
            seeds = max(4, console.height - _OTHER_LINES)
            live.update(terminal_view(collect_status(root), console.width, seeds), refresh=True)
            if html is not None:
                _write_page(root, html, refreshes=True)
            _rest(started)


def _rest(started: float) -> None:
    """Waits for the next look: a root of many runs takes a while to read, and the disk as long a rest."""
    time.sleep(max(SECONDS_BETWEEN_LOOKS, time.monotonic() - started))
