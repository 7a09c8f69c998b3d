"""Freed memory stays with the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import resource, sys
import numpy as np
import runs
from multiberts.bert.training.keeping_memory import keep_freed_memory
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
            [sys.executable, "-c", _PROGRAM, way], capture_output=True, text=True, check=True
        )
        kept, faults = done.stdout.split()
        if way == "keep" and kept == "False":
            pytest.skip("the C library has no mallopt")
        found[way] = int(faults)
    assert found["keep"] < 0.1 * max(found["as it is"], 100), found
