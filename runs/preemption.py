"""Preemption: on SIGTERM, or when its terminal hangs up, a run finishes its step, saves and exits."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from multiberts.runs import console

# EX_TEMPFAIL of sysexits.h: nothing is wrong, and the same command resumes later.
EXIT_PREEMPTED = 75

# A request to stop is the whole process's: only the main thread gets signals, and workers of Dask call stages
# in another one. It lasts until the outermost block has ended.
_ASKED = threading.Event()
OPEN_BLOCKS: list[None] = []
_num_opened = 0

# Released once whenever maintenance of this machine is announced: then a state is due.
MAINTENANCE = threading.Semaphore(0)

# An ssh connection that closes is the most frequent stop of all.
SIGNALS = (signal.SIGTERM, signal.SIGHUP)

# Google's machines are taken without SIGTERM; its own libraries read the same variable.
_PRODUCT = Path("/sys/class/dmi/id/product_name")
_METADATA_HOST = "GCE_METADATA_HOST", "metadata.google.internal"


class PreemptedError(Exception):
    """The run was asked to stop, has saved its state and stopped; the same command resumes it."""


@contextlib.contextmanager
def preemption_notice() -> Iterator[Callable[[], bool]]:
    """Notes SIGTERM and SIGHUP instead of dying of them, while the block runs.

    Machines that can be taken away send SIGTERM some seconds before SIGKILL; on Google's a thread asks for
    the notice. SIGHUP stays ignored where it is, as under `nohup`. In another thread than the main one the
    block changes no signal's handler, and has notice by `ask_to_stop`. Blocks inside each other, as a sweep's
    and its runs', all have notice, also one that opens after it came.

    Yields:
      Whether the process was asked to stop.
    """
    global _num_opened  # of the process, like its signals
    ended = threading.Event()
    if not OPEN_BLOCKS:
        _ASKED.clear()
        is_googles = os.access(_PRODUCT, os.R_OK) and _PRODUCT.read_text().startswith("Google")
        if is_googles or os.environ.get(_METADATA_HOST[0]):
            threading.Thread(target=_ask_metadata, args=(ended,), daemon=True).start()
    OPEN_BLOCKS.append(None)
    _num_opened += 1
    before = handle_signals(lambda *_: ask_to_stop())
    try:
        yield _ASKED.is_set
    finally:
        for number, handler in before.items():
            # None: something else than Python had taken the signal.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        OPEN_BLOCKS.pop()
        ended.set()


def handle_signals(handler: Callable[..., object]) -> dict[signal.Signals, Any]:
    """Sets the handler of `SIGNALS` and returns those before; an ignored hang-up stays ignored.

    Outside of the main thread, which alone gets signals, it sets and returns none.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    taken = (signal.SIGTERM,) if is_ignored else SIGNALS
    return {number: signal.signal(number, handler) for number in taken}


def ask_to_stop() -> None:
    _ASKED.set()


def _ask_metadata(ended: threading.Event) -> None:
    from http.client import HTTPConnection, HTTPException  # not above: 20 ms of every command

    answers = {"preempted": "", "maintenance-event": ""}
    while not ended.wait(1.0):  # shorter blocks (a sweep has thousands) ask nothing
        for name, before in answers.items():
            # ValueError: the host's name is none.
            with contextlib.suppress(OSError, HTTPException, ValueError):
                link = HTTPConnection(os.environ.get(*_METADATA_HOST), timeout=5)
                path = f"/computeMetadata/v1/instance/{name}"
                link.request("GET", path, headers={"Metadata-Flavor": "Google"})
                if (answer := link.getresponse()).status == 200:
                    answers[name] = answer.read(99).decode(errors="replace").strip()
                link.close()
            if answers[name] == "TRUE":
                console.note_once("the metadata server says that this machine is being preempted")
                ask_to_stop()
            elif before != answers[name] == "TERMINATE_ON_HOST_MAINTENANCE":
                MAINTENANCE.release()


def num_opened_blocks() -> int:
    """Returns how many blocks this process has opened so far, those that are closed included."""
    return _num_opened


@contextlib.contextmanager
def exit_when_preempted() -> Iterator[None]:
    """Ends the process with status 75 and one line if the block was asked to stop."""
    try:
        yield
    except PreemptedError as notice:
        console.progress(str(notice))
        sys.exit(EXIT_PREEMPTED)
