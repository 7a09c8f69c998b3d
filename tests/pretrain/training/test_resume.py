"""A run that is killed, stopped, starved of disk or damaged goes on to the same bytes."""

from __future__ import annotations

import dataclasses
import os
import random
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.training.engine import Trainer
from multiberts.bert.training.log import TrainingLog, read_metrics
from multiberts.bert.training.state import (
    TrainingState,
    load_newest_state,
    load_state,
    save_state,
    saved_step,
)
from multiberts.pretrain.training.pretraining import checkpoint_path, pretrain
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import EXIT_PREEMPTED
from multiberts.tests.pretrain.training.breaking_off import pretrain_until, start, wait_for_step
from multiberts.tests.runs.conftest import own_disk
from multiberts.tests.tools.patience import PATIENCE
from multiberts.tests.tools.stress_resume import differing_files, last_logged_step, run_with_stops

Arguments = Callable[..., dict[str, Any]]

SCHEDULE = {
    "num_steps": 60,
    "warmup_steps": 8,
    "checkpoint_steps": [0, 24, 48],
    "save_state_every_steps": 10,
    "log_every_steps": 1,
    "tensorboard": False,
    # Compiling would take most of the time; `make stress` stops compiled runs.
    "compile_step": False,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, arguments: Arguments) -> Path:
    """A run that nothing disturbed."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    pretrain(**arguments(run_dir, **SCHEDULE))
    return run_dir


@pytest.mark.slow
def test_stopped_at_random_moments_ends_in_the_same_bytes(
    arguments: Arguments, whole: Path, tmp_path: Path
) -> None:
    """SIGKILL and SIGTERM; moments differ from run to run: any of them must do."""
    stopped = tmp_path / "stopped"
    stops = run_with_stops(arguments(stopped, **SCHEDULE), 3, random.Random())
    assert len(stops) == 3
    allowed = {"SIGKILL": {-signal.SIGKILL}, "SIGTERM": {EXIT_PREEMPTED, -signal.SIGTERM}}
    assert all(stop.exit_code in allowed[stop.kind] for stop in stops), stops
    assert differing_files(whole, stopped) == []
    steps = [line["step"] for line in read_metrics(stopped / "metrics.jsonl")]
    assert steps == list(range(1, 61))


@pytest.mark.slow
def test_batches_of_several_threads_are_the_same(
    arguments: Arguments, whole: Path, tmp_path: Path
) -> None:
    threaded = tmp_path / "threaded"
    pretrain(**arguments(threaded, **SCHEDULE, batch_threads=2))
    assert differing_files(whole, threaded) == []


def test_sigterm_finishes_the_step_saves_and_exits_with_75(
    arguments: Arguments, tmp_path: Path
) -> None:
    """The only real signal to the real command before each commit."""
    run = tmp_path / "run"
    endless = arguments(run, **{**SCHEDULE, "num_steps": 10**6, "save_state_every_steps": 10**6})
    process = start(endless)
    wait_for_step(process, run, 5)
    process.send_signal(signal.SIGTERM)
    _, message = process.communicate()
    assert process.returncode == EXIT_PREEMPTED == 75
    [state] = (run / "state").glob("*.npz")
    step = int(state.stem.removeprefix("step_"))
    assert step >= 5
    assert last_logged_step(run) == step
    assert "compiling" in message  # before minutes of silence on a busy machine
    # Where 30 s have passed, a line of progress comes before.
    assert message.splitlines()[-1] == (
        f"asked to stop: saved at step {step} of 1000000; the same command resumes there"
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 450 kB, which a few states of the tiny model fill."""
    yield from own_disk(tmp_path, "450k")


# Before the others: a run that cannot begin does not give its trainer back, whose program would be lost.
def test_read_only_disk_is_one_line(arguments: Arguments, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(UserError, match=r"cannot write .*Read-only file system"):
        pretrain(**arguments(small_disk / "run", **SCHEDULE))


def test_full_disk_is_one_line_and_keeps_what_was_saved(
    arguments: Arguments, whole: Path, small_disk: Path
) -> None:
    """A real disk that is full, and the bytes of the run after it."""
    run = small_disk / "run"
    schedule = {**SCHEDULE, "save_state_every_steps": 20}
    with pytest.raises(UserError, match=r"cannot write .*No space left on device; free some space"):
        pretrain(**arguments(run, **schedule))
    assert (run / "state" / "step_20.npz").exists()
    assert checkpoint_path(run, 0).exists()
    assert list(run.rglob("*.unfinished")) == []
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    pretrain(**arguments(run, **schedule))
    assert differing_files(whole, run) == []


@pytest.mark.parametrize("tensorboard", [False, True])
def test_log_on_a_full_disk_is_one_line(small_disk: Path, tensorboard: bool) -> None:
    with TrainingLog(small_disk, 0, tensorboard=tensorboard) as log:
        log.write(1, {"loss": 2.0})
        room = os.statvfs(small_disk)
        (small_disk / "filler").write_bytes(b"0" * (room.f_bavail * room.f_frsize))
        with pytest.raises(UserError, match=r"cannot write .*: .*; free some space"):
            for step in range(2, 2000):
                log.write(step, {"loss": 2.0})
    (small_disk / "filler").unlink()
    steps = [line["step"] for line in read_metrics(small_disk / "metrics.jsonl")]
    assert steps == list(range(1, len(steps) + 1))
    with TrainingLog(small_disk, 1, tensorboard=tensorboard) as log:
        log.write(2, {"loss": 1.0})
    assert [line["step"] for line in read_metrics(small_disk / "metrics.jsonl")] == [1, 2]


def _saved_steps(run: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("step_")) for path in (run / "state").iterdir())


def test_no_byte_of_a_state_can_change_unnoticed(tmp_path: Path) -> None:
    """Also those of the zip file's table of contents, where a flip could hide an array."""
    path, whole = tmp_path / "step_1.npz", _state(1)
    whole.save(path)
    data = path.read_bytes()
    refused = 0
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            state = TrainingState.load(path)
        except UserError:
            refused += 1
            continue
        assert state.step == 1
        for part in ("parameters", "m", "v"):
            found, expected = getattr(state, part), getattr(whole, part)
            assert list(found) == ["kernel"] and np.array_equal(found["kernel"], expected["kernel"])
    assert refused > len(data) / 2


def _state(step: int, value: float = 1.0, **machine: Any) -> TrainingState:
    values = {"kernel": np.full(3, value, dtype=np.float32)}
    whole = {"kernel": np.arange(3, dtype=np.float32)}
    return TrainingState(whole, whole, values, step, machine)


def test_a_state_under_another_name_or_that_is_not_finite_is_damaged(tmp_path: Path) -> None:
    _save_states(tmp_path, 7)
    assert load_state(tmp_path, 7).step == 7
    (tmp_path / "state" / "step_7.npz").rename(tmp_path / "state" / "step_9.npz")
    with pytest.raises(UserError, match=r"step_9\.npz is damaged \(it holds step 7\)"):
        load_state(tmp_path, 9)
    _state(1, np.nan).save(tmp_path / "step_1.npz")
    with pytest.raises(UserError, match=r"damaged \(v of kernel are not finite\)"):
        TrainingState.load(tmp_path / "step_1.npz")


def _save_states(run_dir: Path, *steps: int) -> None:
    for step in steps:
        state = _state(step, devices=2, numpy="1.0")
        state.save(run_dir / "state" / f"step_{step}.npz")


def test_a_damaged_newest_state_gives_way_to_an_older_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load_newest_state(tmp_path) is None
    _save_states(tmp_path, 5, 7, 9)
    for step in (7, 9):
        path = tmp_path / "state" / f"step_{step}.npz"
        path.write_bytes(path.read_bytes()[:-30])
    found = load_newest_state(tmp_path)
    assert found is not None and found.step == 5
    assert re.search(r"step_9\.npz is damaged .*; resuming from step 5 instead", _said(capsys))
    # The next state replaces the damaged ones.
    save_state(dataclasses.replace(found, step=6), tmp_path)
    assert _saved_steps(tmp_path) == [5, 6]
    for step in (5, 6):
        (tmp_path / "state" / f"step_{step}.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"step_6\.npz is damaged"):
        load_newest_state(tmp_path)


def test_a_stray_file_among_the_states_is_left_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _save_states(tmp_path, 5)
    (tmp_path / "state" / "step_147 (copy).npz").write_bytes(b"PK")
    assert saved_step(tmp_path) == 5
    found = load_newest_state(tmp_path)
    assert found is not None and found.step == 5
    assert _said(capsys).count("step_147 (copy).npz is ignored") == 1


@pytest.mark.slow
def test_states_are_saved_by_time(arguments: Arguments, whole: Path, tmp_path: Path) -> None:
    """Each step is later than a nanosecond after the last state; the bytes stay."""
    run = tmp_path / "run"
    by_time = {"save_state_every_steps": 10**6, "save_state_every_seconds": 1e-9}
    given = arguments(run, **{**SCHEDULE, **by_time, "steps_per_dispatch": 1})
    pretrain_until(30, given)
    assert _saved_steps(run) == [29, 30]
    pretrain(**given)
    for step in (24, 48, 60):
        name = "bert.ckpt.data-00000-of-00001"
        found, wanted = (checkpoint_path(folder, step) / name for folder in (run, whole))
        assert found.read_bytes() == wanted.read_bytes()


def test_resuming_on_another_machine_is_reported(
    arguments: Arguments,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = tmp_path / "run"
    pretrain_until(28, arguments(run, **SCHEDULE))
    state = load_newest_state(run)
    assert state is not None
    named = {"devices", "steps_per_dispatch", "compile_step", "processor", "tensorflow", "threads"}
    assert named <= state.machine.keys()
    # Has no effect once TensorFlow has started, but stands for a machine with other settings.
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX")
    pretrain(**arguments(run, **SCHEDULE))
    assert re.search(
        rf"warning: the state at step {state.step} was trained with XLA_FLAGS .*, now "
        "--xla_cpu_max_isa=AVX: the last bits",
        _said(capsys),
    )


def _said(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_a_checkpoint_that_is_lost_is_refused_and_only_the_last_states_are_kept(
    arguments: Arguments, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    pretrain_until(38, arguments(run, **SCHEDULE))
    assert _saved_steps(run) == [20, 30]  # the last two
    assert sorted(int(path.name[5:]) for path in (run / "checkpoints").iterdir()) == [0, 24]
    first = checkpoint_path(run, 0)
    first.rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"step_0 is missing, but .*state is past that step"):
        pretrain(**arguments(run, **SCHEDULE))
    (tmp_path / "elsewhere").rename(first)
    pretrain(**arguments(run, **SCHEDULE))


def test_states_go_when_the_run_is_done(arguments: Arguments, whole: Path, tmp_path: Path) -> None:
    """Also where a kill comes between the marker and their removal; the checkpoints stay."""
    assert (whole / "DONE").exists()
    assert not (whole / "state").exists()
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    _save_states(run, 40, 50)
    pretrain(**arguments(run, **SCHEDULE))
    assert not (run / "state").exists()
    assert differing_files(whole, run) == []


def test_training_continues_while_a_state_is_written(
    arguments: Arguments, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every state waits until training is five steps past it; if training waited too, none would come."""
    trained, ends = threading.Condition(), [0]
    real_steps, real_save = Trainer.steps, TrainingState.save
    overtaken = []

    def steps(self: Trainer, *given: Any) -> Any:
        metrics = real_steps(self, *given)
        with trained:
            ends[0] = self.step_count
            trained.notify_all()
        return metrics

    def save(self: TrainingState, path: Path) -> None:
        with trained:
            overtaken.append(trained.wait_for(lambda: ends[0] >= self.step + 5, timeout=PATIENCE))
        real_save(self, path)

    monkeypatch.setattr(Trainer, "steps", steps)
    monkeypatch.setattr(TrainingState, "save", save)
    run = tmp_path / "run"
    pretrain(**arguments(run, **SCHEDULE))
    assert overtaken == [True] * 5
    assert differing_files(whole, run) == []


@pytest.mark.parametrize("last", [10, 50], ids=["at a step", "at the end"])
def test_a_state_that_cannot_be_written_stops_training(
    arguments: Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    """The folder of states becomes a file; the error comes from the thread that writes."""
    run = tmp_path / "run"
    real = TrainingState.save

    def save(self: TrainingState, path: Path) -> None:
        if self.step == last:
            shutil.rmtree(path.parent)
            path.parent.write_text("not a directory")
        real(self, path)

    monkeypatch.setattr(TrainingState, "save", save)
    with pytest.raises(UserError, match=rf"cannot write .*step_{last}\.npz: .*; free some space"):
        pretrain(**arguments(run, **SCHEDULE))
    assert not (run / "DONE").exists()


def test_what_vanished_from_a_run_is_made_again_and_said(
    arguments: Arguments, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    pretrain_until(25, arguments(run, **SCHEDULE))
    shutil.rmtree(run / "state")  # so it is trained again past the checkpoint that lost a file
    (checkpoint_path(run, 24) / "vocab.txt").unlink()
    pretrain_until(40, arguments(run, **SCHEDULE))
    assert "metrics.jsonl has step 25, but no state is saved: training starts" in _said(capsys)
    (run / "metrics.jsonl").unlink()
    pretrain(**arguments(run, **SCHEDULE))
    assert "metrics.jsonl is missing: it will begin after step 40" in _said(capsys)
    assert differing_files(whole, run) == []


def test_a_log_that_was_removed_is_not_written_to_nowhere(tmp_path: Path) -> None:
    with TrainingLog(tmp_path, 0) as log:
        log.write(1, {"loss": 2.0})
        (tmp_path / "metrics.jsonl").unlink()
        with pytest.raises(UserError, match="jsonl was removed while it was being written"):
            log.write(2, {"loss": 2.0})
