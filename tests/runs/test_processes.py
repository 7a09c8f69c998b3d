"""Processes by number and time of creation."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from multiberts.runs.processes import creation_time, process_is_alive


def test_this_process_is_alive_and_an_ended_one_is_not() -> None:
    created = creation_time(os.getpid())
    assert created is not None and process_is_alive(os.getpid(), created)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    born = creation_time(child.pid)
    assert born is not None and born >= created and process_is_alive(child.pid, born)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert creation_time(child.pid) is None, "a zombie has ended"
    child.communicate()
    assert not process_is_alive(child.pid)


def test_another_process_with_the_same_number_is_not_taken_for_it() -> None:
    created = creation_time(os.getpid())
    assert created is not None
    assert not process_is_alive(os.getpid(), created - 1)


def test_numbers_that_no_process_can_have() -> None:
    assert not process_is_alive(2**62) and not process_is_alive(10**30)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="needs Linux")
def test_times_do_not_depend_on_the_clock() -> None:
    """They are seconds since the boot, which setting the clock does not change."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        created = creation_time(child.pid)
        assert created is not None
        # In whole ticks of the kernel.
        assert before - 0.02 <= created <= time.clock_gettime(time.CLOCK_BOOTTIME)
        child.kill()
