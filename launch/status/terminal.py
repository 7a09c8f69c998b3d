"""The status in a terminal of any width, or as plain text where there is none."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from multiberts.launch.estimate import quantities
from multiberts.launch.status.progress import Pretraining
from multiberts.launch.status.snapshot import STATES, Cell, FailureRow, Status, SweepRow
from multiberts.runs.errors import counted

COLOURS = {
    "done": "green",
    "running": "blue",
    "retrying": "yellow",
    "waiting": "dim",
    "blocked": "dim red",
    "lost": "magenta",
    "failed": "red",
}

# Widths from which tables have more columns.
_WIDE = 110
_MEDIUM = 72

# Order of pre-training rows, where not all are shown.
_FIRST = ("failed", "lost", "running", "retrying", "waiting", "blocked", "done")
_LINES_OF_LOG = 6


def terminal_view(status: Status, width: int, rows: int = 40) -> RenderableType:
    """Returns the status for rich.

    Args:
      status: what to show.
      width: of the terminal, in characters; narrow ones get fewer columns.
      rows: how many rows a table has at most; a line below counts the others.
    """
    parts: list[RenderableType] = [_heading(status), _stages(status, width)]
    if status.pretraining:
        parts += ["", _pretraining(status.pretraining, width, rows)]
    if status.sweep:
        parts += ["", _sweep(status, width, rows)]
    if status.failures:
        parts += ["", *_failures(status.failures, rows)]
    if status.orphans:
        parts += ["", *_orphans(status, rows)]
    if status.unplanned:
        number = len(status.unplanned)
        parts += ["", _noted(f"{number} run directories that the plan does not name", number, 0)]
        parts += [Text(f"  {path}", "dim") for path in status.unplanned[: min(rows, 5)]]
        if number > 5:
            parts.append(Text(f"  and {number - 5} more", "dim"))
    return Group(*parts)


def print_status(status: Status, console: Console | None = None) -> None:
    """Prints the status once."""
    console = console or Console(highlight=False)
    console.print(terminal_view(status, console.width))


def _heading(status: Status) -> Text:
    counts = status.counts
    share = counts["done"] / status.total if status.total else 0.0
    text = Text()
    text.append(status.root, "bold")
    text.append(f": {counts['done']:,} of {status.total:,} runs done ({quantities.percent(share)})")
    for state in ("running", "retrying", "lost", "failed"):
        if counts[state]:
            text.append(", ")
            text.append(f"{counts[state]:,} {state}", COLOURS[state])
    text.append(f"\n{quantities.moment(status.time)}; ")
    if status.launcher is None:
        text.append("no launcher is running")
    else:
        text.append(f"launched by process {status.launcher.pid} on {status.launcher.host}")
    text.append(f"; {quantities.duration(3600 * status.hours)} spent by all attempts")
    if status.dollars is not None:
        text.append(f", {quantities.dollars(status.dollars)}")
    forecast = status.forecast
    if forecast.seconds:
        text.append(f"; {quantities.duration(forecast.seconds)} left")
        if forecast.dollars:
            text.append(f", {quantities.dollars(forecast.dollars)}")
        if forecast.wall_seconds is not None:
            end = quantities.moment(status.time + forecast.wall_seconds)
            text.append(f", to {end} with {counted(forecast.at_a_time, 'run')} at a time")
    text.append("\n")
    return text


class _Table(Table):
    """A table without lines whose cells are shown as they are, not read as markup."""

    def __init__(self, title: str | None = None):
        super().__init__(
            title=title, title_justify="left", title_style="bold", box=None, pad_edge=False
        )

    def add_plain_row(self, *cells: RenderableType) -> None:
        """Adds a row."""
        self.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))

    def add_numbers(self, *headers: str, style: str | None = None) -> None:
        """Adds columns of numbers."""
        for header in headers:
            self.add_column(Text(header), justify="right", style=style, no_wrap=True)


def _stages(status: Status, width: int) -> Table:
    table = _Table()
    table.add_column("stage", no_wrap=True)
    if width < _MEDIUM:
        table.add_numbers("done", "of")
        table.add_column("else")
        for stage in status.stages:
            others = [(state, stage.counts[state]) for state in STATES if state != "done"]
            words = ", ".join(f"{number} {state}" for state, number in others if number)
            table.add_plain_row(stage.command, str(stage.counts["done"]), str(stage.total), words)
        return table
    table.add_column("", no_wrap=True)
    # States that no run is in are left out.
    states = [state for state in STATES if status.counts[state] or state == "done"]
    for state in states:
        table.add_numbers(state, style=COLOURS[state])
    table.add_numbers("all")
    for stage in status.stages:
        bar = ProgressBar(
            total=stage.total,
            completed=stage.counts["done"],
            width=24 if width >= _WIDE else 6,
            finished_style="green",
        )
        cells = [str(stage.counts[state]) if stage.counts[state] else "" for state in states]
        table.add_plain_row(stage.command, bar, *cells, str(stage.total))
    return table


# The columns of pre-training: header, the width of terminal from which it is shown, and the cell.
_PRETRAINING: tuple[tuple[str, int, Callable[[Pretraining], str]], ...] = (
    ("step", 0, lambda row: quantities.count(row.step)),
    ("of", _MEDIUM, lambda row: quantities.count(row.num_steps)),
    ("", 0, lambda row: quantities.percent(row.share)),
    ("steps/s", _MEDIUM, lambda row: quantities.speed(row.steps_per_second)),
    ("left", 0, lambda row: quantities.duration(row.seconds_left)),
    ("attempts", _WIDE, lambda row: str(row.attempts)),
    ("saved ago", _WIDE, lambda row: quantities.duration(row.checkpoint_age)),
    ("cost", _MEDIUM, lambda row: quantities.dollars(row.dollars)),
)


def _pretraining(rows: Sequence[Pretraining], width: int, shown: int) -> RenderableType:
    table = _Table("Pre-training")
    # Never truncate names to make room for the place.
    table.add_column("run", no_wrap=width >= _WIDE)
    table.add_column("state", no_wrap=True)
    columns = [(header, cell) for header, least, cell in _PRETRAINING if width >= least]
    table.add_numbers(*(header for header, _ in columns))
    if width >= _WIDE:
        table.add_column("where")
    chosen = _most_telling(rows, shown)
    for row in chosen:
        cells: list[str | Text] = [f"{row.procedure} {row.pretrain_seed}"]
        cells.append(Text(row.state, COLOURS[row.state]))
        cells += [cell(row) for _, cell in columns]
        if width >= _WIDE:
            place = quantities.place(row.engine, row.device, row.zone, row.host)
            cells.append(Text(place, overflow="ellipsis", no_wrap=True))
        table.add_plain_row(*cells)
    return _with_rest(table, rows, chosen)


def _most_telling(rows: Sequence[Pretraining], shown: int) -> list[Pretraining]:
    """Returns the rows to show in the order of the plan; those in trouble or running are kept first."""
    order = sorted(range(len(rows)), key=lambda index: (_FIRST.index(rows[index].state), index))
    return [rows[index] for index in sorted(order[:shown])]


def _with_rest(
    table: Table, rows: Sequence[Pretraining], chosen: Sequence[Pretraining]
) -> RenderableType:
    """Returns the table, and below it what it leaves out."""
    rest = collections.Counter(row.state for row in rows) - collections.Counter(
        row.state for row in chosen
    )
    if not rest:
        return table
    words = ", ".join(f"{rest[state]} {state}" for state in STATES if rest[state])
    return Group(table, Text(f"and {words}", "dim"))


def _sweep(status: Status, width: int, rows: int) -> RenderableType:
    """Shows how many runs are done by checkpoint and task; merges seeds where there are many."""
    is_narrow = width < _MEDIUM
    is_merged = is_narrow or len(status.sweep) > rows
    merged: dict[str, list[SweepRow]] = {}
    for row in status.sweep:
        label = (row.procedure or row.name) if is_merged else row.label
        step = quantities.compact(row.step) if is_narrow else f"step {quantities.count(row.step)}"
        merged.setdefault(f"{label} {step}", []).append(row)
    table = _Table(f"Fine-tuning: runs done{', all seeds together' if is_merged else ''}")
    table.add_column("checkpoint", min_width=len("checkpoint"))
    for task in status.tasks:
        table.add_column(Text(task), justify="right", overflow="fold")
    for label, members in list(merged.items())[:rows]:
        cells = [
            _cell([row.cells[task] for row in members if task in row.cells], is_narrow)
            for task in status.tasks
        ]
        table.add_plain_row(label, *cells)
    if len(merged) <= rows:
        return table
    return Group(table, Text(f"and {counted(len(merged) - rows, 'more checkpoint')}", "dim"))


def _cell(cells: Sequence[Cell], is_narrow: bool) -> Text:
    if not cells:
        return Text(quantities.ABSENT, "dim")
    total, done = sum(cell.total for cell in cells), sum(cell.done for cell in cells)
    bad = sum(cell.counts["failed"] + cell.counts["lost"] for cell in cells)
    words = quantities.percent(done / total) if is_narrow else f"{done}/{total}"
    text = Text(words, "green" if done == total else "" if done else "dim")
    if bad:
        text.append(f" {bad}!", COLOURS["failed"])
    return text


def _failures(failures: Sequence[FailureRow], rows: int) -> list[RenderableType]:
    shown = failures[: max(1, rows // 8)]
    parts: list[RenderableType] = [_noted("Failures", len(failures), len(shown))]
    for failure in shown:
        message = failure.message or failure.kind or "no message"
        attempts = counted(failure.attempts, "attempt")
        parts.append(Text(f"{failure.name} ({attempts}): {message}", COLOURS["failed"]))
        parts += [Text(f"    {line}", "dim") for line in failure.log_lines[-_LINES_OF_LOG:]]
        if failure.log is not None:
            parts.append(Text(f"    (log: {failure.log})", "dim"))
    return parts


def _orphans(status: Status, rows: int) -> list[RenderableType]:
    shown = status.orphans[:rows]
    title = "Attempts without a launcher (`multiberts launch run --reap` ends such)"
    parts: list[RenderableType] = [_noted(title, len(status.orphans), len(shown))]
    for attempt in shown:
        place = quantities.place(attempt.engine, attempt.device, attempt.zone, attempt.host)
        lasted = quantities.duration(status.time - attempt.started)
        parts.append(Text(f"  {attempt.path}: {place}, process {attempt.pid}, for {lasted}"))
    return parts


def _noted(title: str, number: int, shown: int) -> Text:
    text = Text(title, "bold")
    if shown and shown < number:
        text.append(f" ({shown} of {number} shown)", "dim")
    return text
