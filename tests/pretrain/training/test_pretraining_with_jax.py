"""Pre-training with JAX, in processes that cannot import TensorFlow."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint
from multiberts.pretrain.training.checkpoints import checkpoint_path
from multiberts.runs.command_line.command import main
from multiberts.runs.environment import ENGINE, JAX, TENSORFLOW
from multiberts.tests.tools import warm
from multiberts.tests.tools.patience import PATIENCE
from multiberts.tests.tools.stress_resume import differing_files, last_logged_step

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs JAX: the extra jax"
)

Arguments = Callable[..., dict[str, Any]]

COMMAND = """
import os
import sys

if os.environ["MULTIBERTS_ENGINE"] == "jax":
    sys.modules["tensorflow"] = None  # imports of it fail
from multiberts.runs.command_line.command import main

main(sys.argv[1:])
"""
SCHEDULE = {
    "num_steps": 60, "checkpoint_steps": [0, 20], "save_state_every_steps": 10,
    "log_every_steps": 1, "gradient_shards": 4,
}  # fmt: skip


def command_line(arguments: Arguments, run_dir: Path) -> list[str]:
    given = arguments(run_dir, **SCHEDULE).items()
    return ["pretrain", *(f"--gin_param=pretrain.{name} = {value!r}" for name, value in given)]


def main_on_the_named_platform(words: list[str]) -> None:
    """The command, after JAX was imported without the variable."""
    import jax

    jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])
    main(words)


def start(
    arguments: Arguments, run_dir: Path, engine: str, *flags: str, **environment: str
) -> subprocess.Popen[str]:
    """Starts pre-training with an engine; with JAX, TensorFlow cannot be imported."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *command_line(arguments, run_dir), *flags],
        env={**os.environ, ENGINE: engine, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    """Waits for a process that succeeds."""
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0, errors[-3000:]
    return errors


def killed_in_training(process: subprocess.Popen[str], run_dir: Path) -> None:
    """Kills a run without notice, once a state is saved."""
    try:
        while process.poll() is None and last_logged_step(run_dir) < 15:
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert 15 <= last_logged_step(run_dir) < 60, "it was not killed in the middle"


@pytest.mark.slow
def test_a_killed_run_ends_in_the_bytes_of_one_that_was_not(
    arguments: Arguments, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    output_of(start(arguments, whole, JAX))
    killed_in_training(start(arguments, killed, JAX), killed)
    # Then on two devices.
    output_of(start(arguments, killed, JAX, "--devices=2"))
    assert differing_files(whole, killed) == []
    record = json.loads((checkpoint_path(whole, 60) / "checkpoint.json").read_text())
    assert record["engine"] == JAX


@pytest.mark.parametrize("platform", ["cuda", pytest.param("tpu", marks=pytest.mark.slow)])
def test_a_device_that_is_not_there_is_one_line_before_anything_is_written(
    arguments: Arguments, tmp_path: Path, platform: str
) -> None:
    """A trainer would else compute on the processor, at the price of the device.

    JAX reads the variable when it is imported, so the slow one is in a Python of its own.
    """
    if any(Path("/dev").glob({"cuda": "nvidia[0-9]*", "tpu": "accel[0-9]*"}[platform])):
        pytest.skip("it is there")
    named = {"JAX_PLATFORMS": platform}
    process: subprocess.Popen[str] | warm.Process
    if platform == "tpu":
        process = start(arguments, tmp_path / "run", JAX, **named)
    else:
        environment = {**os.environ, ENGINE: JAX, **named}
        words = command_line(arguments, tmp_path / "run")
        module = "multiberts.tests.pretrain.training.test_pretraining_with_jax"
        target = f"{module}:main_on_the_named_platform"
        process = warm.Process(target, [words], kind=warm.JAX, environment=environment)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 2, errors
    assert errors.startswith(
        f"error: JAX_PLATFORMS is {platform!r}, but JAX finds no such device ("
    )
    assert errors.endswith("or unset JAX_PLATFORMS to compute on what is there\n")
    assert errors.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_programs_kept_on_disk_change_no_byte_though_they_are_damaged(
    arguments: Arguments, tmp_path: Path
) -> None:
    """A cache that is empty, then used, then cut short."""
    cache = tmp_path / "cache"
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    output_of(start(arguments, first, JAX, **kept))
    programs = list(cache.glob("*-cache"))
    assert programs
    output_of(start(arguments, second, JAX, **kept))
    assert differing_files(first, second) == []
    for program in programs:
        program.write_bytes(program.read_bytes()[: program.stat().st_size // 2])
    assert "Error reading persistent" in output_of(start(arguments, third, JAX, **kept))
    assert differing_files(first, third) == []


@pytest.mark.slow
def test_the_other_engine_continues_and_says_so(arguments: Arguments, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    killed_in_training(start(arguments, two, JAX), two)
    errors = output_of(start(arguments, two, TENSORFLOW))
    assert "was trained with" in errors and "engine jax, now tensorflow" in errors
    output_of(start(arguments, one, TENSORFLOW))
    found, expected = (
        read_checkpoint(checkpoint_path(run_dir, 60)).parameters for run_dir in (two, one)
    )
    for name, values in expected.items():
        size = np.abs(expected[name.replace("key/bias", "query/bias")]).max()
        assert np.abs(found[name] - values).max() <= 1e-3 * size, name
