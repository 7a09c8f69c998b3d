"""A process that is asked to leave at once skips what is registered for its exit, and keeps its status."""

from __future__ import annotations

import subprocess
import sys

import pytest

from multiberts.tests.own_process import ROOT
from multiberts.tests.patience import PATIENCE

_PROGRAM = """
import atexit, sys
from multiberts.runs.early_exit import leave_at_once, leaving

atexit.register(print, "cleaned up")
with leaving():
    if {asked}:
        leave_at_once()
    {ending}
"""


@pytest.mark.parametrize(
    ("asked", "ending", "status", "output"),
    [
        (True, "sys.exit(2)", 2, ""),
        (True, "raise ValueError('why')", 1, ""),
        (True, "sys.exit('why')", 1, ""),
        (True, "sys.exit()", 0, ""),
        (True, "pass", 0, "cleaned up\n"),
        (False, "sys.exit(2)", 2, "cleaned up\n"),
    ],
)
def test_it_leaves_with_its_status(asked: bool, ending: str, status: int, output: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(asked=asked, ending=ending)],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (status, output)
    assert ("why" in done.stderr) == ("why" in ending)
