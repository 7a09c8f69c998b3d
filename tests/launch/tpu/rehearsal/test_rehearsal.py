"""The rehearsal as `make rehearse` runs it: the real trainer through every mishap, to the same bytes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from multiberts.launch.markers.attempts import attempts_of
from multiberts.tests.patience import PATIENCE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A rehearsal's folder and the lines that it printed."""
    # Not at the top, where every session that collects it would import it.
    pytest.importorskip("google.cloud.tpu_v2", reason="needs the extra cloud")
    root = tmp_path_factory.mktemp("rehearsal")
    command = [sys.executable, "-m", "multiberts.tests.launch.tpu.rehearsal.rehearsal", str(root)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
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


def test_every_mishap_came_and_is_accounted_for(rehearsed: tuple[Path, str]) -> None:
    from multiberts.tests.launch.tpu.rehearsal.rehearsal import ANNOUNCED

    folder, printed = rehearsed
    by_run = attempts_of(folder / "experiment")
    [attempts] = [found for path, found in by_run.items() if path.startswith("pretrain/")]
    kinds = [(one.outcome, (one.error or {}).get("kind")) for one in attempts]
    refused = ["Quota", "Stockout", "Stockout", "Stockout", "Stockout", "Internal", "Stockout"]
    assert kinds[:7] == [("failed", kind) for kind in refused]
    assert kinds[7:] == [("preempted", "Preempted")] * 3 + [("done", None)]
    assert {one.zone for one in attempts[:7]} == {"rehearsal-a", "rehearsal-b", "rehearsal-c"}
    # Only those that had a node cost money.
    assert [one.dollars_per_hour for one in attempts] == [None] * 7 + [1.0] * 4
    for one in attempts[7:]:
        assert one.log is not None
        assert "CPU answer to JAX" in (folder / "experiment" / one.log).read_text()
    losses = re.findall(
        r"(maintenance|SIGTERM|metadata|SIGKILL) at step (\d+), resumed from (\d+): (\d+) steps",
        printed,
    )
    assert [kind for kind, *_ in losses] == ["maintenance", "SIGTERM", "metadata", "SIGKILL"]
    assert losses[1][3] == losses[2][3] == "0"  # with notice it saved
    # Maintenance ends no attempt: the trainer saves, and the next one resumes on the same node.
    assert attempts[7].log is not None
    first = (folder / "experiment" / attempts[7].log).read_text()
    assert ANNOUNCED in first
    assert first.count("--- training") == 2
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
