"""Stages that take no time, and others that go wrong on purpose: for tests of the launcher itself.

In a plan they are `quick_stages:<function>`; this folder must be in the PYTHONPATH of the launcher.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from multiberts.pretrain.training.stall_watch import killed_without_steps
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import write_atomically
from multiberts.runs.preemption import PreemptedError, preemption_notice


def note(*, run_dir: str, value: int = 0, inputs: Sequence[str] = ()) -> None:
    """Writes a number, plus those of its inputs."""
    print("begun", flush=True)
    run = RunDirectory(run_dir, stage="note", parameters={"value": value}, inputs={"of": inputs})
    if run.done:
        return
    total = value + sum(int((Path(path) / "total").read_text()) for path in inputs)
    with run:
        write_atomically(run.path / "total", str(total))
        run.finish(["total"])


def stumble(*, run_dir: str, times: int, how: str) -> None:
    """Goes wrong the first times: raises, needs memory, is refused, killed, stalls or is cut off."""
    falls = Path(run_dir).with_name(Path(run_dir).name + ".falls")
    falls.parent.mkdir(parents=True, exist_ok=True)
    with falls.open("a") as stream:
        stream.write("x")
    if falls.stat().st_size <= times:
        print("about to stumble", flush=True)
        if how == "refused":
            raise UserError("the input is bad; mend it")
        if how == "fills the memory":
            bytearray(1 << 62)
        if how == "cut off":
            from distributed import get_worker

            get_worker().loop.add_callback(get_worker().batched_stream.abort)
            time.sleep(600)
        if how == "makes no step":
            with killed_without_steps(0.5, "the_parameter", lambda: False):
                time.sleep(600)
        if how == "killed" or (how == "killed first" and falls.stat().st_size == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        raise ArithmeticError("two and two made five\nor more")
    note(run_dir=run_dir)


def wait(*, run_dir: str, release: str, seconds_to_leave: float = 0.0) -> None:
    """Waits for a file to appear; asked to stop it saves how often it looked, and resumes from there.

    When it has saved it takes so long to leave, as a trainer that gives back its memory.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(time.sleep, seconds_to_leave)
        _wait(run_dir, release)


def _wait(run_dir: str, release: str) -> None:
    run = RunDirectory(run_dir, stage="wait", parameters={"release": release})
    if run.done:
        return
    saved = run.path / "saved"
    with preemption_notice() as should_stop, run:
        looks = int(saved.read_text()) if saved.exists() else 0
        print(f"begun at {looks}", flush=True)
        while not Path(release).exists():
            time.sleep(0.05)
            looks += 1
            if should_stop():
                write_atomically(saved, str(looks))
                raise PreemptedError(f"asked to stop: saved at {looks}")
        write_atomically(run.path / "total", "0")
        run.finish(["total"])


def change(*, run_dir: str, file: str) -> None:
    with open(file, "a") as stream:
        stream.write("# another version\n")
    note(run_dir=run_dir)


def fill(*, run_dir: str, size: int) -> None:
    run = RunDirectory(run_dir, stage="fill", parameters={"size": size})
    if run.done:
        return
    with run:
        print("begun", flush=True)
        write_atomically(run.path / "filled", b"x" * size)
        write_atomically(run.path / "total", "1")
        run.finish(["total", "filled"])


def hold(*, run_dir: str, seconds: float) -> None:
    """Takes so long and cannot save; what it writes it writes in one piece at the end."""
    run = RunDirectory(run_dir, stage="hold", parameters={"seconds": seconds})
    if run.done:
        return
    with run:
        print("begun", flush=True)
        time.sleep(seconds)
        write_atomically(run.path / "total", "0")
        run.finish(["total"])
