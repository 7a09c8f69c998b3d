"""Rehearses pre-training by managed jobs of SkyPilot, without a cloud, an account or the internet.

    python -m multiberts.tests.launch.skypilot_rehearsal FOLDER      # or: make rehearse

SkyPilot, its server, its jobs' controller, the task file, `multiberts launch run` and the trainer are the real ones. The
cloud is a Slurm of three nodes on this machine, and a folder stands for the bucket. The first of two seeds loses its
machine without notice, hangs, and loses its machine with notice; both must end in the bytes of uninterrupted runs.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from multiberts.bert.training.log import METRICS, tail_of_metrics
from multiberts.runs.bucket.mirror import (
    FOLDER_VARIABLE,
    PUSH_VARIABLE,
    local_copy,
    read_manifest,
)
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.command_line.command import run_main
from multiberts.runs.console import report
from multiberts.runs.directory import DONE
from multiberts.runs.environment import ENGINE, JAX
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import EXIT_PREEMPTED
from multiberts.tests.launch.skypilot_rehearsal.cloud import (
    Cloud,
    adopt_descendants,
    check,
    end_descendants,
    exit_on_signals,
)
from multiberts.tests.patience import PATIENCE

EXPERIMENT = Path(__file__).with_name("experiment.gin")
_TASK = Path(__file__).resolve().parents[3] / "configs/launch/skypilot/pretrain.yaml"
_STATE = re.compile(r"state/step_(\d+)\.npz")
_PYTHONPATH = os.environ.get("PYTHONPATH", "")
SAME = "the checkpoints are those of uninterrupted runs, byte for byte"


@dataclass(frozen=True)
class Event:
    """What happened to a trainer.

    Attributes:
      seconds: until the bucket had a later state.
      reached: the last step that it had logged.
      kept: the step of the state in the bucket when the next one started.
    """

    name: str
    seen: str
    seconds: float
    reached: int
    kept: int


class Rehearsal:
    """A rehearsal in a folder.

    Args:
      folder: is new; has a short path, as sockets lie in it.
      sky: the folder of programs of SkyPilot's environment.
      cache: of uv, kept from rehearsal to rehearsal.
    """

    def __init__(self, folder: Path, sky: Path, cache: Path):
        self._folder = folder
        self._cloud = Cloud(folder / "cloud", sky, cache)
        self._url = f"file://{folder}/bucket"
        os.environ[FOLDER_VARIABLE] = str(folder / "mirror")
        self._began = time.monotonic()

    def run(self) -> None:
        """Carries it out.

        Raises:
          RuntimeError: something did not happen, or other bytes came out.
        """
        self._say("both seeds are trained here, uninterrupted")
        self._launch("uninterrupted", "--engine=local", "--workers=1", expected=0)
        done = sorted((self._folder / "uninterrupted" / "pretrain").rglob(DONE))
        runs = [str(path.parent.relative_to(self._folder / "uninterrupted")) for path in done]
        self._write_task()
        self._say("Slurm, SSH and SkyPilot start")
        with self._cloud:
            self._say("`multiberts launch run` submits both seeds")
            look = ("experiment", "--engine=skypilot", f"--gin_param={self._options()}")
            self._launch(*look, expected=EXIT_PREEMPTED)
            if "submitted as" in self._launch(*look, expected=EXIT_PREEMPTED):
                raise RuntimeError("the same command submitted a seed again")
            events = [
                self._lose(runs[0], 300, "node killed, no notice", self._kill_node),
                self._lose(runs[0], 1100, "trainer stopped", self._stop_trainer),
                self._lose(runs[0], 1900, "node set down, SIGTERM", self._set_down),
            ]
            self._say("the seeds train to their ends")
            for run in runs:
                self._wait(
                    lambda run=run: Bucket(f"{self._url}/{run}").read(DONE), f"DONE of {run}"
                )
            self._launch(*look, expected=0)
            self._say("`multiberts launch run` has fetched both")
        widths = "{:<24} {:<46} {:>7} {:>9}".format
        report(widths("event", "seen", "seconds", "steps lost"))
        for event in events:
            lost = max(0, event.reached - event.kept)
            report(widths(event.name, event.seen, f"{event.seconds:.0f}", lost))
        self._compare(runs)

    def _say(self, text: str) -> None:
        report(f"{time.strftime('%H:%M:%S')} {time.monotonic() - self._began:4.0f} s  {text}")
        sys.stdout.flush()

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError(f"waited {PATIENCE:.0f} s for {what}")
            time.sleep(0.2)

    def _options(self) -> str:
        return f"run.engine_options = {{'bucket': '{self._url}', 'task': '{self._folder}/pretrain.yaml'}}"

    def _launch(self, root: str, *flags: str, expected: int) -> str:
        """Calls `multiberts launch run` and returns what it printed."""
        command = [sys.executable, "-m", "multiberts", "launch", "run"]
        command += [f"--gin_file={EXPERIMENT}", f"--root={self._folder / root}", *flags]
        done = subprocess.run(
            command,
            env={**self._cloud.environment, "PYTHONPATH": _PYTHONPATH, ENGINE: JAX},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        with (self._folder / "launch.log").open("a") as log:
            print("$", *command, done.stdout, f"status {done.returncode}", sep="\n", file=log)
        if done.returncode != expected:
            raise RuntimeError(
                f"status {done.returncode}, expected {expected}, of {command}: {done.stdout[-2000:]}"
            )
        return done.stdout

    def _write_task(self) -> None:
        """Copies the task file, for processors, and for machines that have everything."""
        task = yaml.safe_load(_TASK.read_text())
        recovery = task["resources"]["job_recovery"]
        task["resources"] = {"infra": "slurm", "cpus": 1, "memory": 1, "job_recovery": recovery}
        task["envs"] |= {
            **{"PYTHON": sys.executable, "PYTHONPATH": _PYTHONPATH, "JAX_PLATFORMS": "cpu"},
            **{FOLDER_VARIABLE: os.environ[FOLDER_VARIABLE], PUSH_VARIABLE: "1"},
            **{"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        }
        (self._folder / "pretrain.yaml").write_text(yaml.safe_dump(task, sort_keys=False))

    def _lose(
        self, run: str, step: int, name: str, happens: Callable[[psutil.Process], str]
    ) -> Event:
        """Lets something happen to a run's trainer after a step, and waits until another trains."""
        self._wait(lambda: self._state(run) >= step, f"step {step} of {run}")
        trainer = self._trainer(run)
        assert trainer is not None, f"no trainer of {run}"
        log = local_copy(Bucket(f"{self._url}/{run}")) / METRICS
        reached = tail_of_metrics(log)[-1]["step"]
        began = time.monotonic()
        seen = happens(trainer)
        self._say(f"{name} at step {reached}: {seen}")
        self._wait(lambda: self._trainer(run) not in (None, trainer), "another trainer")
        another, kept = self._trainer(run), self._state(run)
        assert another is not None
        self._say(f"another trains on {_node(another)}, from step {kept}")
        self._wait(lambda: self._state(run) > kept, f"a step of {run} after {kept}")
        return Event(
            name, f"{seen}; goes on, {_node(another)}", time.monotonic() - began, reached, kept
        )

    def _state(self, run: str) -> int:
        """Returns the step of the newest state in the bucket."""
        names = read_manifest(Bucket(f"{self._url}/{run}")) or {}
        return max((int(match[1]) for match in map(_STATE.fullmatch, names) if match), default=0)

    def _trainer(self, run: str) -> psutil.Process | None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                if command[:1] == [sys.executable] and any(
                    f"{self._url}/{run}'" in word for word in command
                ):
                    return process
        return None

    def _kill_node(self, trainer: psutil.Process) -> str:
        node = _node(trainer)
        count = self._cloud.slurm.kill_node(node)
        # The machine's disk is lost with it.
        shutil.rmtree(os.environ[FOLDER_VARIABLE])
        self._say(f"{node} comes back, empty")
        self._cloud.slurm.start_node(node)
        return f"{count} processes of {node} killed"

    def _stop_trainer(self, trainer: psutil.Process) -> str:
        trainer.send_signal(signal.SIGSTOP)
        self._wait(lambda: not trainer.is_running(), "the end of the stopped trainer")
        return "killed by its own watch"

    def _set_down(self, trainer: psutil.Process) -> str:
        node = _node(trainer)
        self._cloud.slurm.set_node("state=down", "reason=rehearsal", name=node)
        self._wait(lambda: not trainer.is_running(), f"the end of the trainer on {node}")
        self._cloud.slurm.set_node("state=resume", name=node)
        return "saved within 5 s"

    def _compare(self, runs: list[str]) -> None:
        compared = 0
        for run in runs:
            one, other = self._folder / "uninterrupted" / run, self._folder / "experiment" / run
            files = [path for path in (one / "checkpoints").rglob("*") if path.is_file()]
            for path in [one / DONE, *files]:
                name = path.relative_to(one)
                if not filecmp.cmp(path, other / name, shallow=False):
                    raise RuntimeError(f"{other / name} differs from an uninterrupted run's")
                compared += 1
        report(f"{SAME} ({compared} files)")


def _node(process: psutil.Process) -> str:
    return process.environ()["SLURMD_NODENAME"]


def main(arguments: Sequence[str]) -> None:
    """Rehearses in a new folder below the one that is named."""
    if len(arguments) != 2:
        raise UserError("give one folder, such as results/rehearsals")
    root = Path(arguments[1]).absolute()
    sky = Path(os.environ.get("SKYPILOT_PYTHON", "")).parent.absolute()
    check(sky)
    folder = root / time.strftime("%Y%m%d-%H%M%S")
    (folder / "cloud").mkdir(parents=True)
    report(f"logs and everything else: {folder}")
    adopt_descendants()
    exit_on_signals()
    try:
        Rehearsal(folder, sky, root / "uv-cache").run()
    except RuntimeError as error:
        report(f"error: {error}")
        raise SystemExit(1) from error
    finally:
        end_descendants()


if __name__ == "__main__":
    run_main(main)
