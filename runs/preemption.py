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

# A request to stop is the whole process's: only the main thread gets signals, and workers of Dask call stages
# in another one. It lasts until the outermost block has ended.
_ASKED = threading.Event()
_OPEN: list[None] = []


class PreemptedError(Exception):
    """The run was asked to stop, has saved its state and stopped; the same command resumes it."""


@contextlib.contextmanager
def preemption_notice() -> Iterator[Callable[[], bool]]:
    """Notes SIGTERM instead of dying of it, while the block runs.

    Machines that can be taken away send SIGTERM some seconds before SIGKILL. In another thread than the
    main one the block changes no signal's handler, and has notice by `ask_to_stop`. Blocks inside each
    other, as a sweep's and its runs', all have notice, also one that opens after it came.

    Yields:
      Whether the process was asked to stop.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not _OPEN:
        _ASKED.clear()
    _OPEN.append(None)
    before = signal.signal(signal.SIGTERM, lambda *_: ask_to_stop()) if is_main else None
    try:
        yield _ASKED.is_set
    finally:
        if is_main:
            # None: something else than Python had taken the signal.
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
        _OPEN.pop()


def ask_to_stop() -> None:
    """Gives notice to the open blocks of this process."""
    _ASKED.set()


def num_open_blocks() -> int:
    """Returns how many blocks are open, one inside the other."""
    return len(_OPEN)


@contextlib.contextmanager
def exit_when_preempted() -> Iterator[None]:
    """Ends the process with status 75 and one line if the block was asked to stop."""
    try:
        yield
    except PreemptedError as notice:
        console.progress(str(notice))
        sys.exit(EXIT_PREEMPTED)
