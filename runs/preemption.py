"""Preemption: on SIGTERM a run finishes its step, saves and exits."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from multiberts.runs import console

# EX_TEMPFAIL of sysexits.h: nothing is wrong, and the same command resumes later.
EXIT_PREEMPTED = 75

# The open blocks' notices, the outermost first; of the main thread alone.
_BLOCKS: list[list[int]] = []


class PreemptedError(Exception):
    """The run was asked to stop, has saved its state and stopped; the same command resumes it."""


@contextlib.contextmanager
def preemption_notice() -> Iterator[Callable[[], bool]]:
    """Notes SIGTERM instead of dying of it, while the block runs.

    Machines that can be taken away send SIGTERM some seconds before SIGKILL. Signals are the main
    thread's: in another thread the block runs without notice, and SIGTERM ends the process. Of blocks
    inside each other, as a sweep's and its runs', all have notice, also one that opens after it came.

    Yields:
      Whether SIGTERM has come.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    notices = list(_BLOCKS[-1]) if _BLOCKS else []

    def note(number: int, _: object) -> None:
        for block in _BLOCKS:
            block.append(number)

    _BLOCKS.append(notices)
    before = signal.signal(signal.SIGTERM, note)
    try:
        yield lambda: bool(notices)
    finally:
        # None: something else than Python had taken the signal.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
        _BLOCKS.pop()


@contextlib.contextmanager
def exit_when_preempted() -> Iterator[None]:
    """Ends the process with status 75 and one line if the block was asked to stop."""
    try:
        yield
    except PreemptedError as notice:
        console.progress(str(notice))
        sys.exit(EXIT_PREEMPTED)
