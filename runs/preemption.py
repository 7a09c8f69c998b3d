"""Notice of the end: SIGTERM asks a run to finish its step, save and leave."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator

# EX_TEMPFAIL of sysexits.h: nothing is wrong, the same command later goes on.
EXIT_PREEMPTED = 75


class PreemptedError(Exception):
    """The run was asked to stop, has saved its state and stopped; the same command goes on."""


@contextlib.contextmanager
def preemption_notice() -> Iterator[Callable[[], bool]]:
    """Notes SIGTERM instead of dying of it, while the block runs.

    Machines that can be taken away send SIGTERM some seconds before SIGKILL. Signals are the main
    thread's: in another thread the block runs without notice, and SIGTERM ends the process.

    Yields:
      Whether SIGTERM has come.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    noticed = False

    def note(number: int, frame: object) -> None:
        nonlocal noticed
        noticed = True

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield lambda: noticed
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def exit_when_preempted() -> Iterator[None]:
    """Ends the process with status 75 and one line if the block was asked to stop."""
    try:
        yield
    except PreemptedError as notice:
        print(notice, file=sys.stderr)
        sys.exit(EXIT_PREEMPTED)
