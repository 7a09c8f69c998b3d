"""Two processes of this machine that train together with JAX, by the command itself.

Needs 127.0.0.1 and two free ports; a bit over a minute of CPU time in all.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.training.log import read_metrics
from multiberts.runs.environment import ENGINE, JAX
from multiberts.runs.files import sha256_of_file
from multiberts.runs.preemption import EXIT_PREEMPTED
from multiberts.tests.patience import PATIENCE
from multiberts.tests.pretrain.training.breaking_off import pretrain_until
from multiberts.tests.pretrain.training.stress_resume import differing_files, last_logged_step

pytest.importorskip("jax", reason="needs JAX: the extra jax")

ROOT = Path(__file__).resolve().parent.parent.parent.parent

Arguments = Callable[..., dict[str, Any]]
Start = Callable[..., list[subprocess.Popen[str]]]

SCHEDULE = {
    "num_steps": 60,
    "checkpoint_steps": [0, 20],
    "save_state_every_steps": 25,
    "log_every_steps": 1,
    "tensorboard": False,
    "compile_step": False,
    "model": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
    },
}


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process for each call's arguments, several joined by TF_CONFIG; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def start(calls: Sequence[dict[str, Any]]) -> list[subprocess.Popen[str]]:
        with socket.socket() as first, socket.socket() as second:
            for listener in (first, second):
                listener.bind(("127.0.0.1", 0))
            ports = [listener.getsockname()[1] for listener in (first, second)]
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        for index, call in enumerate(calls):
            task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            joined = {"TF_CONFIG": json.dumps(task)} if len(calls) > 1 else {}
            flags = [f"--gin_param=pretrain.{name} = {value!r}" for name, value in call.items()]
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "pretrain", *flags],
                    cwd=ROOT,
                    env={**os.environ, ENGINE: JAX, **joined},
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return started[-len(calls) :]

    yield start
    for process in started:
        process.kill()
        process.wait()


def ended(processes: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Exit status and last line of standard error of each."""
    outputs = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    return [
        (process.returncode, output.strip().splitlines()[-1])
        for process, output in zip(processes, outputs, strict=True)
    ]


@pytest.mark.slow
def test_two_processes_train_stop_and_go_on_as_one(
    arguments: Arguments, start: Start, tmp_path: Path
) -> None:
    one, two, stopped = (tmp_path / name for name in ("one", "two", "stopped"))
    assert [status for status, _ in ended(start([arguments(one, **SCHEDULE)]))] == [0]
    assert [status for status, _ in ended(start([both(arguments, two)] * 2))] == [0, 0]
    assert differing_files(one, two) == []
    steps = [line["step"] for line in read_metrics(two / "metrics.jsonl")]
    assert steps == list(range(1, 61)), "one of them logs, the other does not"

    # The notice of a machine's end comes to every process, but not at the same moment.
    processes = start([both(arguments, stopped)] * 2)
    while all(process.poll() is None for process in processes) and last_logged_step(stopped) < 2:
        time.sleep(0.01)
    processes[1].send_signal(signal.SIGTERM)
    time.sleep(0.02)
    processes[0].send_signal(signal.SIGTERM)
    endings = ended(processes)
    [state] = (stopped / "state").glob("*.npz")
    step = int(state.stem.removeprefix("step_"))
    told = f"asked to stop: saved at step {step} of 60; the same command resumes there"
    assert endings == [(EXIT_PREEMPTED, told)] * 2
    assert last_logged_step(stopped) == step
    assert [status for status, _ in ended(start([both(arguments, stopped)] * 2))] == [0, 0]
    assert differing_files(two, stopped) == []


def both(arguments: Arguments, run_dir: Path, **changes: Any) -> dict[str, Any]:
    return arguments(run_dir, **{**SCHEDULE, **changes}, devices="auto")


@pytest.mark.slow
def test_a_process_with_another_run_directory_ends_the_others(
    arguments: Arguments, start: Start, tmp_path: Path
) -> None:
    """It has no state to resume from, as its directory is not the chief's."""
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    pretrain_until(30, arguments(run, **SCHEDULE))
    saved = sha256_of_file(run / "state" / "step_25.npz")
    chief, other = ended(start([both(arguments, run), both(arguments, elsewhere)]))
    assert chief[0] == other[0] == 2
    assert "another of the 2 processes of TF_CONFIG has ended" in chief[1]
    assert f"{elsewhere}/state/step_25.npz does not exist; processes that train" in other[1]
    assert not elsewhere.exists()
    assert sha256_of_file(run / "state" / "step_25.npz") == saved


@pytest.mark.slow
def test_processes_with_other_arguments_are_refused(
    arguments: Arguments, start: Start, tmp_path: Path
) -> None:
    """Each reports the argument, before anything is written."""
    run = tmp_path / "run"
    for status, message in ended(
        start([both(arguments, run), both(arguments, run, compile_step=True)])
    ):
        assert status == 2
        assert "process 1 has another compile_step than process 0; start all processes" in message
    assert not run.exists()
