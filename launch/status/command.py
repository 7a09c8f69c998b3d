"""`multiberts launch status`: shows the state of an experiment, once or continuously."""

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
# Lines of the live view besides those of pre-training seeds.
_OTHER_LINES = 20


def show_status(
    *, root: PathLike, html: PathLike | None = None, watch: bool = False, json: bool = False
) -> None:
    """Shows the state of an experiment from its markers, on any machine that sees its root.

    Args:
      root: the experiment's root.
      html: also write the same as one self-contained page to this file. Its links to runs, logs and reports
        are relative: in the experiment's root it can move with it.
      watch: continue until Ctrl-C: a live view in a terminal, a page that reloads itself, or else the text
        again every few seconds.
      json: print one JSON object instead, for other programs.
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

    # Repeat: in place in a terminal, else as the page or as text.
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
            # Reading a root of many runs takes a while; let the disk rest as long.
            time.sleep(max(SECONDS_BETWEEN_LOOKS, time.monotonic() - started))
