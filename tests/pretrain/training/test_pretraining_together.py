"""Several seeds in one process end in the files of single ones, also when they are killed on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from multiberts.benchmarks.stress_resume import differing_files, last_logged_step
from multiberts.bert.training.log import read_metrics
from multiberts.bert.training.state import saved_step
from multiberts.pretrain.training.pretraining import pretrain, pretrain_together
from multiberts.runs.directory import CONFIG, DONE
from multiberts.runs.environment import ENGINE, JAX, engine
from multiberts.runs.errors import UserError
from multiberts.tests.patience import PATIENCE

needs_jax = pytest.mark.skipif(
    find_spec("jax") is None, reason="needs JAX: pip install -r requirements-jax.txt"
)

Arguments = Callable[..., dict[str, Any]]
WORKER = Path(__file__).with_name("train_seeds.py")
SEEDS = (3, 4, 5)
SCHEDULE = {
    "num_steps": 60,
    "checkpoint_steps": [0, 20],
    "save_state_every_steps": 10,
    "log_every_steps": 1,
}


def start(
    arguments: Arguments, folder: Path, way: str, is_accelerator: bool, **changes: Any
) -> subprocess.Popen[str]:
    """Starts pre-training of all seeds in a process."""
    runs = [
        arguments(folder / f"seed_{seed}", **{**SCHEDULE, **changes}, pretrain_seed=seed)
        for seed in SEEDS
    ]
    return subprocess.Popen(
        [
            sys.executable,
            str(WORKER),
            json.dumps({"runs": runs, "way": way, "is_accelerator": is_accelerator}),
        ],
        env={**os.environ, ENGINE: JAX},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Waits for a process that succeeds; returns what it printed."""
    found = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, found[1][-3000:]
    return found


def check_same(alone: Path, together: Path) -> None:
    """Compares all files but TensorBoard's, and all numbers of the logs but times."""
    for seed in SEEDS:
        one, other = alone / f"seed_{seed}", together / f"seed_{seed}"
        assert differing_files(one, other) == []
        for name in (CONFIG, DONE):
            assert (one / name).read_bytes() == (other / name).read_bytes()
        assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}
        logs = [
            [
                {name: line[name] for name in line if name != "time" and "per_second" not in name}
                for line in read_metrics(run_dir / "metrics.jsonl")
            ]
            for run_dir in (one, other)
        ]
        assert logs[0] == logs[1]
        assert [line["step"] for line in logs[0]] == list(range(1, 61))


def end_in_training(process: subprocess.Popen[str], run_dir: Path, kind: signal.Signals) -> str:
    """Ends a process once states are saved; returns what it printed on standard error."""
    try:
        while process.poll() is None and last_logged_step(run_dir) < 25:
            time.sleep(0.01)
    finally:
        process.send_signal(kind)
        _, errors = process.communicate(timeout=PATIENCE)
    assert 25 <= last_logged_step(run_dir) < 60, "it was not ended in the middle"
    return errors


@needs_jax
@pytest.mark.slow
def test_seeds_that_are_asked_to_stop_are_all_saved_at_their_last_step(
    arguments: Arguments, tmp_path: Path
) -> None:
    process = start(arguments, tmp_path, "together", False)
    errors = end_in_training(process, tmp_path / f"seed_{SEEDS[-1]}", signal.SIGTERM)
    for seed in SEEDS:
        step = last_logged_step(tmp_path / f"seed_{seed}")
        assert saved_step(tmp_path / f"seed_{seed}") == step
        assert f"asked to stop: saved at step {step} of 60; the same command resumes" in errors


@needs_jax
@pytest.mark.slow
def test_killed_seeds_resume_each_at_its_step_and_end_in_the_bytes_of_single_ones(
    arguments: Arguments, tmp_path: Path
) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    ended(start(arguments, alone, "alone", False))
    process = start(arguments, together, "together", False)
    end_in_training(process, together / f"seed_{SEEDS[-1]}", signal.SIGKILL)
    # As if a seed had been killed before it was saved.
    *_, newest = sorted((together / "seed_4" / "state").glob("*.npz"))
    newest.unlink()
    ended(start(arguments, together, "together", False))
    check_same(alone, together)


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("way", ["together", "inexact"])
def test_programs_for_accelerators_end_in_the_bytes_of_single_seeds(
    arguments: Arguments, tmp_path: Path, way: str
) -> None:
    """On a processor, whether or not one program for all would round otherwise; a seed is done before."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    ended(start(arguments, alone, "alone", True))
    done = together / f"seed_{SEEDS[0]}"
    shutil.copytree(alone / done.name, done)
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*")}
    printed, errors = ended(start(arguments, together, way, True))
    check_same(alone, together)
    assert before == {path: path.stat().st_mtime_ns for path in done.rglob("*")}
    is_exact = json.loads(printed)["2"] is not None
    told = "note: 2 seeds in one program of not a CPU do not end in the bytes of single seeds"
    assert (told in errors) != is_exact
    assert not (is_exact and way == "inexact")


def test_seeds_of_several_procedures_are_refused_in_one_line(
    arguments: Arguments, tmp_path: Path
) -> None:
    runs = [arguments(tmp_path / "one", num_steps=3), arguments(tmp_path / "two", num_steps=4)]
    with pytest.raises(
        UserError, match=r"^pretrain.num_steps is 3 for one seed and 4 for another; "
    ):
        pretrain_together(runs)
    with pytest.raises(UserError, match="^two seeds that are trained together have one run_dir; "):
        pretrain_together([runs[0], runs[0]])
    with pytest.raises(UserError, match=r"^pretrain.num_steps is '3', expected int"):
        pretrain_together([{**runs[0], "num_steps": "3"}])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(engine() == JAX, reason="JAX trains several")
def test_tensorflow_trains_one_seed_and_bad_input_is_that_seeds_alone(
    arguments: Arguments, tmp_path: Path
) -> None:
    schedule = {**SCHEDULE, "num_steps": 2, "checkpoint_steps": [], "compile_step": False}
    taken, done, new = (
        arguments(tmp_path / name, **schedule, pretrain_seed=seed)
        for name, seed in (("one", 1), ("two", 3), ("three", 5))
    )
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "notes.txt").touch()
    pretrain(**done)
    found = pretrain_together([taken, done, new])
    assert "one holds other files (notes.txt)" in str(found[0])
    assert found[1] is None
    assert "several seeds cannot be trained together by 1 process(es) of the engine" in str(
        found[2]
    )
    assert not (tmp_path / "three").exists()
