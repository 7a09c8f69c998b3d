"""The status in a terminal of any width, or as plain text without one."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from multiberts.launch.estimate import quantities
from multiberts.launch.status.snapshot import Status
from multiberts.launch.status.table import (
    failure_line,
    headline,
    launched,
    orphan_lines,
    rows_of,
)

COLOURS = {
    "done": "green",
    "running": "blue",
    "retrying": "yellow",
    "waiting": "dim",
    "blocked": "dim red",
    "lost": "magenta",
    "failed": "red",
}

# Smallest widths at which times, and where seeds are trained, are shown.
_MEDIUM, _WIDE = 60, 110
_FAILURES_SHOWN = 5
_LINES_OF_LOG = 6


def terminal_view(status: Status, width: int, seeds: int | None = None) -> RenderableType:
    """Returns the status as a renderable for rich.

    Args:
      seeds: largest number of rows of pre-training seeds, those in trouble first; None: all.
    """
    # Text, so that rich does not read cells as markup.
    table = Table(box=None, pad_edge=False)
    for header in ("stage", "done", "not done"):
        table.add_column(header, overflow="fold")
    if width >= _MEDIUM:
        table.add_column("time", justify="right")
    for row in rows_of(status, seeds):
        words = Text(", ").join(Text(words, COLOURS[state]) for state, words in row.words)
        words.append(f", {row.pace}" if row.pace else "")
        words.append(f", {row.where}" if row.where and width >= _WIDE else "", "dim")
        cells = [Text(f"  {row.name}" if row.path else row.name), Text(row.done), words]
        if width >= _MEDIUM:
            cells.append(Text(quantities.duration(3600 * row.hours if row.hours else None)))
        table.add_row(*cells)
    parts: list[RenderableType] = [
        Text.assemble((status.root, "bold"), f": {headline(status)}"),
        Text(launched(status)),
        *(Text(f"report: {status.root}/{report}/index.html") for report in status.reports),
        "",
        table,
    ]
    if status.failures:
        parts += ["", _noted("Failed or lost", len(status.failures), _FAILURES_SHOWN)]
    for failure in status.failures[:_FAILURES_SHOWN]:
        parts.append(Text(failure_line(failure), COLOURS[failure.state]))
        parts += [Text(f"    {line}", "dim") for line in failure.log_lines[-_LINES_OF_LOG:]]
        if failure.log is not None:
            parts.append(Text(f"    (log: {status.root}/{failure.log})", "dim"))
    if status.orphans:
        title = "Attempts without a launcher (`multiberts launch run --reap` ends such)"
        parts += ["", _noted(title, len(status.orphans), len(status.orphans))]
        parts += [Text(f"  {line}") for line in orphan_lines(status)]
    return Group(*parts)


def print_status(status: Status, console: Console | None = None) -> None:
    console = console or Console(highlight=False)
    console.print(terminal_view(status, console.width))


def _noted(title: str, number: int, shown: int) -> Text:
    text = Text(title, "bold")
    if shown < number:
        text.append(f" ({shown} of {number} shown)", "dim")
    return text
