"""Ends a process at once, without what libraries do at exit, where others must not wait for it.

JAX's clean-up at exit waits for all processes that were joined, for minutes where one of them still computes
and waits for this one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Iterator

_ASKED = threading.Event()


def leave_at_once() -> None:
    """Makes the process end so when its `leaving` block does."""
    _ASKED.set()


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """Ends the process, with the status that it would have had, where `leave_at_once` was called inside."""
    try:
        yield
    except BaseException as error:
        if not _ASKED.is_set():
            raise
        status = error.code if isinstance(error, SystemExit) else 1
        if not isinstance(error, SystemExit):
            traceback.print_exc()
        elif isinstance(status, str):
            sys.stderr.write(f"{status}\n")
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(status or 0))
