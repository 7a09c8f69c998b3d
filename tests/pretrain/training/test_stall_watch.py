"""A trainer that makes no step is killed by a process of its own, which ends with the trainer."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from multiberts.pretrain.training.pretraining import pretrain
from multiberts.runs.preemption import EXIT_PREEMPTED
from multiberts.tests.pretrain.training.breaking_off import start, wait_for_step
from multiberts.tests.tools.patience import PATIENCE
from multiberts.tests.tools.stress_resume import differing_files, last_logged_step

Arguments = Callable[..., dict[str, Any]]

STEPS = """
import ctypes, os, signal, sys, time
from multiberts.pretrain.training.stall_watch import killed_without_steps

seconds, num_steps, then = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if then == "save":
    # print would fail where the signal comes in the middle of another print.
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b"saves\\n"))
with killed_without_steps(seconds, "the_parameter", lambda: False) as after_step:
    print("begun", flush=True)
    for step in range(num_steps):
        time.sleep(0.05)
        assert after_step() is False
        print("step", step, flush=True)
    if then == "hold the lock":
        ctypes.PyDLL(None).sleep(600)
    if then == "fork" and os.fork() == 0:
        time.sleep(600)
    if then != "end":
        print("waits", flush=True)
        time.sleep(600)
print("ended", flush=True)
"""


def steps(seconds: float, num_steps: int, then: str) -> subprocess.Popen[str]:
    """Starts a process with its watch, in a group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", STEPS, str(seconds), str(num_steps), then],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert line + "\n" in iter(process.stdout.readline, "")


def watch_of(pid: int) -> psutil.Process:
    """Returns it once it has its command line, which a process that is just starting may lack."""
    end = time.monotonic() + PATIENCE
    while True:
        children = psutil.Process(pid).children()
        watches = [child for child in children if "stall_watch" in str(child.cmdline())]
        if watches or time.monotonic() > end:
            [watch] = watches
            return watch
        time.sleep(0.01)


def wait_for_end(watch: psutil.Process) -> None:
    """Waits until nothing is left of a watch; a zombie that nobody reaps counts as left."""
    watch.wait(PATIENCE)
    assert not watch.is_running()


def test_a_process_that_holds_pythons_lock_is_killed_with_one_line() -> None:
    process = steps(0.5, 0, "hold the lock")
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert errors == (
        f"error: no step for 0.5 s (the_parameter): process {process.pid} is killed; the same command "
        "resumes\n"
    )


@pytest.mark.slow
def test_a_process_that_makes_steps_is_left_alone() -> None:
    process = steps(2.0, 120, "end")
    printed, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")
    assert printed.endswith("step 119\nended\n")


def test_ctrl_c_leaves_the_watch_to_a_trainer_that_saves_first() -> None:
    process = steps(2.0, 1, "save")  # one step, which no busy machine makes longer than the limit
    wait_for(process, "begun")
    os.killpg(process.pid, signal.SIGINT)  # the watch may be just starting
    printed, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert "saves\n" in printed and printed.endswith("waits\n")
    assert errors.startswith("error: no step for 2 s") and errors.count("\n") == 1


@pytest.mark.parametrize("how", ["end", "SIGKILL", "SIGTERM", "fork"])
def test_the_watch_ends_with_its_trainer(how: str) -> None:
    process = steps(600.0, 5, how)
    wait_for(process, "begun")
    watch = watch_of(process.pid)
    if how != "end":
        wait_for(process, "waits")
        process.send_signal(signal.SIGTERM if how == "SIGTERM" else signal.SIGKILL)
    wait_for_end(watch)
    if how == "fork":
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)


@pytest.mark.slow
def test_time_in_which_the_watch_is_stopped_too_does_not_count() -> None:
    """As of a machine that sleeps, or a job that Slurm suspends."""
    process = steps(3.0, 40, "end")
    wait_for(process, "step 19")
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(4.0)
    watch_of(process.pid).resume()  # it looks before the other makes a step
    time.sleep(0.5)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_process_1_of_a_container_is_refused_with_a_cure_that_works(tmp_path: Path) -> None:
    namespace = ["unshare", "--pid", "--fork", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("may make no namespace of processes here")
    inside = [sys.executable, "-c", STEPS, "600", "1", "end"]
    for init in ([], ["sh", "-c", '"$@"; exit $?', "init"]):
        command = [*namespace, *init, *inside]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        if not init:
            assert done.returncode == 1
            assert "the_parameter is 600, but nothing in a container can kill" in done.stderr
    assert (done.returncode, done.stdout) == (0, "begun\nstep 0\nended\n"), done.stderr


@pytest.mark.slow
def test_a_trainer_that_is_stopped_is_killed_and_resumes_to_the_same_bytes(
    arguments: Arguments, tmp_path: Path
) -> None:
    schedule = {"num_steps": 300, "save_state_every_steps": 10, "log_every_steps": 1}
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    pretrain(**arguments(whole, **schedule))

    # Much longer than the first step takes to come.
    process = start(arguments(stopped, **schedule, max_seconds_without_step=30.0))
    wait_for_step(process, stopped, 15)
    watch = watch_of(process.pid)
    process.send_signal(signal.SIGSTOP)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert "error: no step for 30 s (pretrain.max_seconds_without_step)" in errors
    wait_for_end(watch)
    assert 15 <= last_logged_step(stopped) < 300

    patient = arguments(stopped, **schedule, max_seconds_without_step=600.0)
    process = start(patient)
    wait_for_step(process, stopped, 150)
    watch = watch_of(process.pid)
    process.terminate()
    process.communicate()
    assert process.returncode == EXIT_PREEMPTED
    wait_for_end(watch)
    process = start(patient)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert differing_files(whole, stopped) == []


def test_training_goes_on_without_a_watch_that_was_ended_and_says_so() -> None:
    process = steps(60.0, 100, "end")
    wait_for(process, "begun")
    watch_of(process.pid).kill()
    printed, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and printed.endswith("ended\n")
    assert errors == (
        "note: the process that watches over the_parameter was ended; training goes on without\n"
    )
