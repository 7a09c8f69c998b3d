"""Freed memory stays with the process or goes back to the system, as is asked."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

HOLES = """
import numpy as np, psutil
from multiberts.runs.allocator import give_back_memory

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
from multiberts.runs.allocator import keep_freed_memory
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
