"""Runs that did not finish, and how people are told."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.runs import console
from multiberts.runs.command import EXIT_USER_ERROR

LOG_LINES_SHOWN = 5


@dataclass(frozen=True)
class FailedRun:
    """A run that did not finish.

    Attributes:
      run: which.
      message: what went wrong, in one line.
      is_user_error: whether the input was at fault.
      log: file with all that the run printed; None where it never started.
      attempts: how often it was tried.
    """

    run: PlannedRun
    message: str
    is_user_error: bool
    log: Path | None
    attempts: int = 0


def describe(failures: Sequence[FailedRun]) -> str:
    """Returns the failures for people: one line each, and the log's last lines."""
    lines = []
    for failure in failures:
        tried = f" (tried {failure.attempts} times)" if failure.attempts > 1 else ""
        lines.append(f"error: {failure.run.name}: {failure.message}{tried}")
        if failure.log is not None and not failure.is_user_error:
            with contextlib.suppress(OSError):
                tail = failure.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
                lines.extend([*(f"    {line}" for line in tail), f"    (log: {failure.log})"])
    return "\n".join(lines)


def exit_with(failures: Sequence[FailedRun]) -> None:
    """Prints which runs failed and exits, with 2 where all inputs were at fault; returns if none failed.

    Args:
      failures: of a plan.
    """
    if failures:
        console.progress(describe(failures))
        user_errors_only = all(failure.is_user_error for failure in failures)
        sys.exit(EXIT_USER_ERROR if user_errors_only else 1)
