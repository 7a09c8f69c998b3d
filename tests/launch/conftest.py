"""Fixtures of the launcher's tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.tests.finetune.conftest import (
    make_checkpoint,
    pair_data,
    vocabulary,
    winogender_data,
)
from multiberts.tests.launch.launchers import HERE, Launcher, wait_until
from multiberts.tests.tools.slurm_cluster import PROGRAMS, SlurmCluster

# Fixtures of fine-tuning, which a sweep needs, too.
__all__ = ["make_checkpoint", "pair_data", "vocabulary", "winogender_data"]


@pytest.fixture
def quick_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the workers of this test find `quick_stages.py`."""
    # Before what there is: workers must find the same project as this process.
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
    monkeypatch.syspath_prepend(
        str(HERE)
    )  # which processes that are spawned have from their parent


@pytest.fixture
def start_launcher(tmp_path: Path) -> Iterator[Callable[..., Launcher]]:
    """Starts launchers of plans of quick stages, and sees that none of them leaves anything running."""
    started: list[Launcher] = []

    def start(plan: Sequence[PlannedRun], **settings: Any) -> Launcher:
        started.append(Launcher(tmp_path / "root", plan, **settings))
        return started[-1]

    yield start
    for launcher in started:
        launcher.process.kill()
        launcher.process.communicate()
        left = wait_until(lambda one=launcher: not one.processes(), 10)
        assert left, [process.cmdline() for process in launcher.processes()]
        shutil.rmtree(launcher.scratch)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """A cluster of one node; the test is skipped, saying why, where there can be none."""
    if os.geteuid() != 0:
        pytest.skip("needs Slurm's daemons, which only root can start")
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs Slurm: {', '.join(missing)} not found (Debian: slurm-wlm, munge)")
    with SlurmCluster(tmp_path / "slurm") as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        yield cluster
