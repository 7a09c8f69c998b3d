"""Memory that is free within a process goes back to the system."""

from __future__ import annotations

import platform
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

PROGRAM = """
import numpy as np, psutil
from multiberts.runs.freeing_memory import give_back_memory

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
    result = run_python("-c", PROGRAM)
    assert result.returncode == 0, result.stderr
    by_itself, when_told = map(int, result.stdout.split())
    assert by_itself < 50e6 and when_told > 100e6
