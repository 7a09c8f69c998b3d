"""Processes by number and time of creation; freed memory stays with one or goes back, as is asked."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

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
    # Nor is another with the same number, or one whose number no process can have.
    assert not process_is_alive(os.getpid(), created - 1)
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


HOLES = """
import numpy as np, psutil
from multiberts.runs.processes import give_back_memory

def size():
    return psutil.Process().memory_info().rss

blocks = [np.ones(100_000, np.uint8) for _ in range(2000)]  # 200 MB, too small to be mapped apart
kept = blocks[::100]
full = size()
del blocks
holes = size()
give_back_memory()
print(full - holes, holes - size())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_holes_between_kept_blocks_are_given_back(
    run_python: Callable[..., CompletedProcess[str]],
) -> None:
    result = run_python("-c", HOLES)
    assert result.returncode == 0, result.stderr
    by_itself, when_told = map(int, result.stdout.split())
    assert by_itself < 50e6 and when_told > 100e6


FAULTS = """
import resource, sys
import numpy as np
from multiberts.runs.processes import keep_freed_memory
kept = sys.argv[1] == "keep" and keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(8_000_000)  # 64 MB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(kept, faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc is Linux's")
def test_a_second_array_meets_no_new_pages() -> None:
    found = {}
    for way in ("keep", "as it is"):
        done = subprocess.run(
            [sys.executable, "-c", FAULTS, way], capture_output=True, text=True, check=True
        )
        kept, faults = done.stdout.split()
        if way == "keep" and kept == "False":
            pytest.skip("the C library has no mallopt")
        found[way] = int(faults)
    assert found["keep"] < 0.1 * max(found["as it is"], 100), found
