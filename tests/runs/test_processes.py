"""Processes by number and time of creation."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from multiberts.runs import processes
from multiberts.runs.processes import code_digest_on_disk, creation_time, process_is_alive


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


def test_names_and_bytes_of_python_files_are_the_code_and_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stats/one.py", "runs/files/two.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a = 1\n")
    monkeypatch.setattr(processes, "_PACKAGE", tmp_path)
    first = code_digest_on_disk()
    (tmp_path / "stats" / "notes.txt").write_text("not code")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "three.py").write_text("b = 2\n")
    assert code_digest_on_disk() == first
    (tmp_path / "stats" / "one.py").write_text("a = 2\n")
    changed = code_digest_on_disk()
    (tmp_path / "stats" / "one.py").rename(tmp_path / "stats" / "other.py")
    assert len({first, changed, code_digest_on_disk()}) == 3
