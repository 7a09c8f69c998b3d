"""The command with real, quick runs: what is done stays, what is wrong is told in one line."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from multiberts.bert.training.log import read_metrics
from multiberts.launch.markers.attempts import attempts_of
from multiberts.tests.launch.launchers import MODEL, TINY, files_with_times, gin_lines, wait_until
from multiberts.tests.tools import warm
from multiberts.tests.tools.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[2]

# A world and its corpus: two stages that take a second and need no TensorFlow.
EXPERIMENT = {"corpora": ["base"], "procedures": [], "tasks": [], "pretrain_seeds": []}


def write_config(folder: Path, more: str = "") -> Path:
    path = folder / "experiment.gin"
    given = {
        "launch": {"root": str(folder / "root"), **EXPERIMENT},
        "make_world": {"num_documents": 30},
    }
    path.write_text(gin_lines(**given, prepare=TINY["prepare"]) + more)
    return path


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run(["launch", *arguments])


def test_what_is_done_stays_what_is_lost_is_made_again_and_what_failed_is_told(
    tmp_path: Path,
) -> None:
    """The command with stages of the project, three times: bytes and times of what is done stay."""
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"A sentence.\n\xff\xfe\n")
    os.utime(bad, (1e9, 1e9))
    more = gin_lines(run={"workers": 1}, launch={"corpora": ["base", "bad"]})
    more += f"bad/prepare.sources = [{str(bad)!r}]\n"
    first = launch(f"--gin_file={write_config(tmp_path, more=more)}")
    assert first.returncode == 2
    assert "error: prepare bad: " in first.stderr and "bad.txt" in first.stderr
    corpora = tmp_path / "root" / "corpora"
    (marker,) = corpora.glob("base-*/DONE")
    content = marker.read_bytes()
    assert not list(corpora.glob("bad-*/DONE"))
    # A corpus of many gigabytes is not read again whenever the same command starts.
    inputs = json.loads((tmp_path / "root" / "launch" / "inputs.json").read_text())
    assert inputs[str(bad)][-1] == hashlib.sha256(bad.read_bytes()).hexdigest()

    marker.unlink()
    config = f"--gin_file={write_config(tmp_path, more='run.workers = 1')}"
    second = launch(config)
    assert second.returncode == 0, second.stderr
    assert "[2/2]" in second.stdout and marker.read_bytes() == content
    before = files_with_times(tmp_path)
    third = launch(config)
    assert third.returncode == 0 and "all 2 runs" in third.stdout
    assert files_with_times(tmp_path) == before


TRAINED = gin_lines(
    launch={"procedures": ["base"], "pretrain_seeds": [0, 1]},
    run={"workers": 2},
    pretrain={
        **TINY["pretrain"], "model": MODEL, "gradient_shards": 1, "warmup_steps": 0, "num_steps": 700,
        "log_every_steps": 1, "save_state_every_steps": 10**6,
    },
)  # fmt: skip


def start_pretraining(folder: Path, num_seeds: int) -> subprocess.Popen[str]:
    """Starts a launch and waits until so many seeds have been trained further than they had."""
    config = write_config(folder, more=TRAINED)
    before = {path: path.read_bytes() for path in logs_of_training(folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", "launch", f"--gin_file={config}"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip

    def trains() -> bool:
        found = logs_of_training(folder)
        further = [path for path in found if path.read_bytes() != before.get(path, b"")]
        return process.poll() is not None or len(further) >= num_seeds

    assert wait_until(trains)
    return process


def logs_of_training(folder: Path) -> list[Path]:
    return sorted((folder / "root" / "pretrain" / "base").glob("*/metrics.jsonl"))


@pytest.mark.slow
def test_workers_that_are_asked_to_stop_save_and_go_on(tmp_path: Path) -> None:
    # On a slow machine the first seed could be finished before the second begins.
    process = start_pretraining(tmp_path, num_seeds=1)
    try:
        process.send_signal(signal.SIGTERM)
        _, message = process.communicate(timeout=PATIENCE)
        assert process.returncode == 75, message
        assert message == (
            f"asked to stop: 2 of 4 runs of {tmp_path / 'root'} are done; the same command resumes "
            "from here\n"
        )
        runs = [log.parent for log in logs_of_training(tmp_path) if log.read_bytes()]
        saved = [len(list((run / "state").glob("step_*.npz"))) for run in runs]
        assert saved == [1] * len(runs), "each has saved, and only because it was asked to stop"

        # A worker that alone is asked to stop has not failed: the launch starts its run again.
        process = start_pretraining(tmp_path, num_seeds=2)
        for attempts in attempts_of(tmp_path / "root").values():
            if attempts[-1].ended is None:
                os.kill(attempts[-1].pid, signal.SIGTERM)
        _, message = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, message
    logs = logs_of_training(tmp_path)
    assert len(logs) == 2
    for log in logs:
        assert [line["step"] for line in read_metrics(log)] == list(range(1, 701))
    logs = "".join(log.read_text() for log in (tmp_path / "root" / "logs").glob("pretrain-*"))
    assert logs.count("asked to stop: saved at step") == 4
