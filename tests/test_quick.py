"""`--quick` leaves out what is marked, skips what starts a process, and finds a mark that is missing."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import subprocess, sys, threading
import pytest

def start():
    subprocess.run([sys.executable, "-c", ""])

def start_in_thread():
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

def test_starts(): start()
def test_starts_in_thread(): start_in_thread()
@pytest.mark.processes
def test_marked(): start_in_thread()
@pytest.mark.seconds
def test_long(): pass
def test_plain(): pass
"""


def test_what_quick_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    plugins = ["-p", "multiberts.tests.conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "--quick"],
        cwd=tmp_path,
        # Those that are installed here take as long to import as all the rest.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert "a thread of this test starts a process: mark it `processes`" in done.stdout
    assert "2 passed, 1 skipped, 2 deselected, " in done.stdout and "1 error" in done.stdout
