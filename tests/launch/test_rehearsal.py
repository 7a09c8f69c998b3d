"""The rehearsal as `make rehearse` runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from multiberts.tests.tools.patience import PATIENCE
from multiberts.tests.tools.skypilot_rehearsal.cloud import VARIABLE, missing_programs

pytestmark = pytest.mark.slow
# Where `make rehearse` installs it.
_INSTALLED = Path(__file__).resolve().parents[3] / ".venv/skypilot/bin/python"
_LIMIT = 870.0  # seconds


@pytest.fixture
def rehearsal(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    if missing_programs():
        pytest.skip(f"needs {', '.join(missing_programs())}")
    python = os.environ.get(VARIABLE, str(_INSTALLED))
    if not Path(python).exists():
        pytest.skip(
            f"needs SkyPilot: `make rehearse` installs it, or {VARIABLE} names a Python that has it"
        )
    process = subprocess.Popen(
        [sys.executable, "-m", "multiberts.tests.tools.skypilot_rehearsal", str(tmp_path)],
        env={**os.environ, VARIABLE: python},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.terminate()
    process.wait(PATIENCE)


def test_seeds_that_lose_their_machines_end_in_the_bytes_of_uninterrupted_runs(
    rehearsal: subprocess.Popen[str],
) -> None:
    printed, _ = rehearsal.communicate(timeout=_LIMIT)
    assert rehearsal.returncode == 0, printed
    *_, killed, stopped, down, sweep, last = printed.splitlines()
    assert "the checkpoints are those of uninterrupted runs, byte for byte (32 files" in last
    # The state of every hundredth step is pushed within a second, and with notice that of the last step.
    assert max(int(line.split()[-1]) for line in (killed, stopped)) < 300, printed
    assert down.split()[-1] == "0", printed
    assert "2 of 2 seeds done" in sweep


def test_a_rehearsal_that_is_stopped_leaves_nothing(rehearsal: subprocess.Popen[str]) -> None:
    had_folder = Path("/run/sshd").exists()
    assert rehearsal.stdout is not None
    for line in rehearsal.stdout:
        if "submits both seeds" in line:
            break
    descendants = psutil.Process(rehearsal.pid).children(recursive=True)
    names = {process.name() for process in descendants}
    assert {"munged", "slurmctld", "slurmd", "sshd"} <= names
    rehearsal.send_signal(signal.SIGTERM)
    assert rehearsal.wait(PATIENCE) == 128 + signal.SIGTERM
    assert not [process for process in descendants if process.is_running()]
    assert Path("/run/sshd").exists() == had_folder
