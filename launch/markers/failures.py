"""Runs that did not finish, and how they are reported."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.runs import console
from multiberts.runs.command_line.error_lines import EXIT_USER_ERROR
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, open_marker

LOG_LINES_SHOWN = 5
_BYTES_OF_LOG = 16 * 1024


@dataclass(frozen=True)
class FailedRun:
    """A run that did not finish.

    Attributes:
      is_user_error: whether the input was at fault.
      log: file of the run's output; None if it never started.
    """

    run: PlannedRun
    message: str
    is_user_error: bool
    log: Path | None
    attempts: int = 0


def describe(failures: Sequence[FailedRun]) -> str:
    """Formats failures for people: one line each, and the last lines of the log."""
    lines = []
    for failure in failures:
        tried = f" (tried {failure.attempts} times)" if failure.attempts > 1 else ""
        lines.append(f"error: {failure.run.name}: {failure.message}{tried}")
        if failure.log is not None and not failure.is_user_error:
            lines += [f"    {line}" for line in last_lines(failure.log, LOG_LINES_SHOWN)]
            lines += [f"    (log: {failure.log})"] * failure.log.is_file()
    return "\n".join(lines)


def last_lines(path: PathLike, count: int) -> tuple[str, ...]:
    """Returns the last non-empty lines of a log; none if it cannot be read.

    Of a line that was drawn repeatedly, such as a progress bar, returns the last state.
    """
    try:
        with open_marker(path) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _BYTES_OF_LOG))
            text = stream.read().decode("utf-8", errors="replace")
    except (OSError, UserError):
        return ()
    lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in text.split("\n")]
    return tuple([line for line in lines if line][-count:])


def exit_with(failures: Sequence[FailedRun]) -> None:
    """Prints the failed runs and exits with 2 if all inputs were at fault, else 1; returns if none failed."""
    if failures:
        console.progress(describe(failures))
        sys.exit(EXIT_USER_ERROR if all(failure.is_user_error for failure in failures) else 1)
