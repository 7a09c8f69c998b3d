"""The rehearsal as a user runs it: the real trainer through every mishap, to the same bytes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from multiberts.launch.markers.attempts import attempts_at
from multiberts.tests.patience import PATIENCE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent.parent.parent

pytest.importorskip("google.cloud.tpu_v2", reason="needs requirements-cloud.txt")


LIBRARIES = {"tensorflow": "TensorFlow", "jax": "JAX"}


@pytest.fixture(scope="module", params=list(LIBRARIES))
def rehearsed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A rehearsal's folder and what it printed."""
    pytest.importorskip(request.param, reason=f"needs requirements of {request.param}")
    root = tmp_path_factory.mktemp("rehearsal")
    command = [sys.executable, "-m", "launch", "rehearse"]
    command += ["--gin_file=configs/launch/rehearse.gin", f"--gin_param=ROOT = '{root}'"]
    result = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "MULTIBERTS_ENGINE": request.param},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    [folder] = root.iterdir()
    return folder, result.stdout


def test_ends_in_the_bytes_of_an_uninterrupted_run(rehearsed: tuple[Path, str]) -> None:
    folder, printed = rehearsed
    assert (
        "the final checkpoint is that of an uninterrupted run, byte for byte (5 files)" in printed
    )
    [one] = (folder / "uninterrupted").glob("pretrain/base/*/DONE")
    [other] = (folder / "experiment").glob("pretrain/base/*/DONE")
    assert one.read_bytes() == other.read_bytes()
    outputs = json.loads(one.read_text())["outputs"]
    weights = [name for name in outputs if ".data-" in name]
    assert len(weights) == 3
    for name in outputs:
        assert (one.parent / name).read_bytes() == (other.parent / name).read_bytes()
    # Training moved: else any two would be the same.
    first, last = (one.parent / name for name in (weights[0], weights[-1]))
    assert first.read_bytes() != last.read_bytes()


def test_every_mishap_came_and_is_accounted_for(
    rehearsed: tuple[Path, str], request: pytest.FixtureRequest
) -> None:
    folder, printed = rehearsed
    library = LIBRARIES[request.node.callspec.params["rehearsed"]]
    [path] = (folder / "experiment" / "launch" / "attempts").glob("pretrain*")
    attempts = attempts_at(folder / "experiment", path.name.replace("---", "/"))
    kinds = [(one.outcome, (one.error or {}).get("kind")) for one in attempts]
    assert kinds[:3] == [("failed", "Quota"), ("failed", "Stockout"), ("failed", "Stockout")]
    assert kinds[-1] == ("done", None)
    assert sorted(kinds[3:-1]) == [("preempted", "Preempted")] * 3
    assert [one.zone for one in attempts[:3]] == ["rehearsal-a", "rehearsal-b", "rehearsal-c"]
    # Only those that had a node cost money.
    assert [one.dollars_per_hour for one in attempts] == [None] * 3 + [1.0] * 4
    for one in attempts[3:]:
        assert one.log is not None
        assert f"CPU answer to {library}" in (folder / "experiment" / one.log).read_text()
    losses = re.findall(
        r"(SIGTERM|metadata|SIGKILL) at step (\d+), resumed from (\d+): (\d+) steps", printed
    )
    assert [kind for kind, *_ in losses] == ["SIGTERM", "metadata", "SIGKILL"]
    assert losses[0][3] == losses[1][3] == "0"  # with notice it saved
    unanswered = re.search(r"(\d+) calls unanswered", printed)
    assert unanswered is not None and int(unanswered[1]) >= 8


def test_nothing_goes_on_and_nothing_is_half_written(rehearsed: tuple[Path, str]) -> None:
    folder, _ = rehearsed
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(folder) not in processes
    assert list(folder.glob("experiment/**/*.unfinished")) == []
    [bucket] = folder.glob("bucket/pretrain/base/*")
    names = {file.name for file in bucket.iterdir()}
    assert {"DONE", "MANIFEST.json", "config.gin", "metrics.jsonl"} <= names
    assert "LEASE.json" not in names
    # A finished run needs no state; a folder stands for the bucket, and is left empty.
    assert not list((bucket / "state").glob("*"))


def test_an_unknown_preemption_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "launch", "rehearse"]
    command += ["--gin_file=configs/launch/rehearse.gin", f"--gin_param=ROOT = '{tmp_path}'"]
    command += ["--gin_param=rehearse.preemptions = ['SIGHUP']"]
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, env=dict(os.environ)
    )
    assert result.returncode == 2
    assert result.stderr == (
        "error: rehearse.preemptions is ['SIGHUP'], expected list of 'SIGTERM' or 'metadata' or "
        "'SIGKILL'; correct it\n"
    )
    assert list(tmp_path.iterdir()) == []
