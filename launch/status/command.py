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
    """
    if json and watch:
        raise UserError("--json prints the status once; leave it or --watch out")
    if json:
        status = collect_status(root)
        report(to_json({**asdict(status), "counts": status.counts}, indent=1))
        return
    from multiberts.launch.status.page import write_status_page
    from multiberts.launch.status.terminal import print_status, terminal_view

    if not watch:
        status = collect_status(root)
        print_status(status)
        if html is not None:
            write_status_page(status, html)
            report(f"page: {Path(html).resolve()}")
        return

    from rich.console import Console
    from rich.live import Live

    # Again and again: in place in a terminal, else as the page or as text.
    console = Console(highlight=False)
    live = Live(console=console, auto_refresh=False, vertical_overflow="ellipsis")
    is_live = sys.stdout.isatty()
    with contextlib.suppress(KeyboardInterrupt), live if is_live else contextlib.nullcontext():
        while True:
            started = time.monotonic()
            status = collect_status(root)
            if is_live:
                seeds = max(4, console.height - _OTHER_LINES)
                live.update(terminal_view(status, console.width, seeds), refresh=True)
            elif html is None:
                print_status(status)
            if html is not None:
                write_status_page(status, html, refreshes=True)
            # A root of many runs takes a while to read, and the disk as long a rest.
            time.sleep(max(SECONDS_BETWEEN_LOOKS, time.monotonic() - started))
