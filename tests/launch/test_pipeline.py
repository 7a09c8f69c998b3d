"""The whole pipeline at toy size, from the world to the report, killed on its way and not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from multiberts.tests.tools.patience import PATIENCE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent

# The demo with fewer seeds and steps: every stage and every task family, nothing left out.
SMALL = {
    "launch.pretrain_seeds": [0, 1],
    "launch.finetune_seeds": [0],
    "launch.finetune_steps": "all",
    "make_world.num_documents": 400,
    "make_world.num_train_facts": 64,
    "make_world.num_dev_facts": 32,
    "make_world.num_train_coreference": 32,
    "make_world.num_dev_coreference": 16,
    "make_world.num_train_questions": 32,
    "make_world.num_dev_questions": 16,
    "pretrain.num_steps": 40,
    "pretrain.warmup_steps": 5,
    "pretrain.checkpoint_steps": [0],
    "pretrain.save_state_every_steps": 10,
    "cda_incr/pretrain.num_steps": 20,
    "cda_incr/pretrain.warmup_steps": 5,
    "facts/finetune.num_epochs": 1,
    "questions/finetune.num_epochs": 1,
    "coreference/finetune.num_epochs": 1,
    "report.n_resamples": 50,
}
NUM_RUNS = 1 + 2 + 4 + 2 * 3 * 4 + 2


def _start(root: Path) -> subprocess.Popen[str]:
    flags = [f"--gin_param={name} = {value!r}" for name, value in SMALL.items()]
    return subprocess.Popen(
        [sys.executable, "-m", "launch", "--gin_file=configs/demo.gin", *flags,
         f"--gin_param=ROOT = {str(root)!r}"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
        # Optimising programs that run 40 steps costs more than it saves.
        env={**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0"},
    )  # fmt: skip


def _results(root: Path) -> dict[str, bytes]:
    """Weights and predictions by path."""
    patterns = ("pretrain/**/bert.ckpt*", "finetune/**/*.tfrecord", "scores-*/scores.csv")
    return {
        str(path.relative_to(root)): path.read_bytes()
        for pattern in patterns
        for path in sorted(root.glob(pattern))
    }


def _num_done(root: Path) -> int:
    # Unlike rglob, walk passes over folders that a run removes meanwhile.
    return sum("DONE" in files for _, _, files in os.walk(root))


def test_killed_and_started_again_ends_in_the_same_bytes(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = _start(whole)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    assert _num_done(whole) == NUM_RUNS
    page = (whole / "report" / "index.html").read_text()
    assert "probe_slope" in page and "True and estimated values" in page

    clock = random.Random()  # moments differ from run to run: any of them must do
    for target in sorted(clock.sample(range(2, NUM_RUNS - 2), 2)):
        process = _start(killed)
        while process.poll() is None and _num_done(killed) < target:
            time.sleep(0.01)
        time.sleep(clock.random())
        # The driver alone is killed; its workers must follow by themselves.
        process.send_signal(signal.SIGKILL)
        process.communicate()
        _wait_for_workers(process.pid)
    process = _start(killed)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    expected, found = _results(whole), _results(killed)
    assert len([name for name in expected if name.endswith(".tfrecord")]) == 2 * 3 * (1 + 2 + 1 + 1)
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []

    process = _start(killed)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert f"all {NUM_RUNS} runs" in output


def _wait_for_workers(session: int) -> None:
    """Waits until no process of the killed driver's session is left; fails after ten seconds."""
    for _ in range(100):
        alive = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                alive.append(folder.name)
        if not alive:
            return
        time.sleep(0.1)
    raise AssertionError(f"workers outlived their driver: {alive}, seen from {os.getpid()}")
