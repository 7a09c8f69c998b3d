"""Processes that are watched by their heartbeats, over a clock that the test sets."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

import pytest

from multiberts.launch.workers import heartbeats
from multiberts.launch.workers.heartbeats import WatchedProcess
from multiberts.tests.launch.launchers import wait_until
from multiberts.tests.patience import PATIENCE

SILENT = [sys.executable, "-c", "import time; time.sleep(600)"]
SPEAKS_ONCE = [
    sys.executable, "-c", "import os, sys, time; os.write(int(sys.argv[1]), b'.'); time.sleep(600)"
]  # fmt: skip


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        heartbeats, "time", types.SimpleNamespace(monotonic=lambda: clock.now), raising=True
    )
    return lambda now: setattr(clock, "now", now)


def is_ended_after(process: WatchedProcess) -> bool:
    process.process.wait(PATIENCE)
    process.close()
    return process.was_silent


def test_a_process_that_starts_may_be_silent_ten_times_as_long(
    set_clock: Callable[[float], None],
) -> None:
    """While it imports libraries on a slow disk."""
    process = WatchedProcess(SILENT, silent_seconds=90)
    set_clock(899.0)
    assert process.poll() is None and not process.was_silent
    set_clock(901.0)
    process.poll()
    assert is_ended_after(process)


def test_after_its_first_heartbeat_it_is_ended_when_silent(
    set_clock: Callable[[float], None],
) -> None:
    process = WatchedProcess(SPEAKS_ONCE, silent_seconds=90)
    assert wait_until(lambda: process.poll() is None and process.has_spoken)
    set_clock(89.0)
    assert process.poll() is None and not process.was_silent
    set_clock(91.0)
    process.poll()
    assert is_ended_after(process)
