"""Rehearses pre-training by managed jobs of SkyPilot, without a cloud, an account or the internet.

    python -m multiberts.tests.tools.skypilot_rehearsal FOLDER      # or: make rehearse

SkyPilot, its server and its jobs' controller, the task file, `multiberts launch run` and the trainer are the
real ones. A Slurm of three nodes on this machine is the cloud, and a folder the bucket. The first of two
seeds loses its machine without notice, hangs, and loses its machine with notice. Both must end in the bytes
of uninterrupted runs.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import shutil
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
    MANIFEST,
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
from multiberts.runs.preemption import EXIT_PREEMPTED, handle_signals
from multiberts.tests.tools.patience import PATIENCE
from multiberts.tests.tools.skypilot_rehearsal.cloud import (
    Cloud,
    adopt_descendants,
    check,
    end_descendants,
)
from multiberts.tests.tools.slurm_cluster import free_port

EXPERIMENT = Path(__file__).with_name("experiment.gin")
_TASKS = Path(__file__).resolve().parents[3] / "configs/launch/skypilot"
_LIVE = {"PENDING", "STARTING", "RUNNING", "RECOVERING"}
_STATE = re.compile(r"state/step_(\d+)\.npz")
_PYTHONPATH = os.environ.get("PYTHONPATH", "")
SAME = "the checkpoints are those of uninterrupted runs, byte for byte"


@dataclass(frozen=True)
class Event:
    """What happened to a trainer.

    Attributes:
      seconds: until the bucket had a later state.
    """

    name: str
    seen: str
    seconds: float
    steps_lost: int = 0


class Rehearsal:
    """A rehearsal in a folder.

    Args:
      folder: is new.
      sky: the folder of programs of SkyPilot's environment.
    """

    def __init__(self, folder: Path, sky: Path):
        self._folder = folder
        self._cloud = Cloud(folder / "cloud", sky)
        self._url = f"file://{folder}/bucket"
        os.environ[FOLDER_VARIABLE] = str(folder / "mirror")
        self._began = time.monotonic()

    def run(self) -> None:
        """Carries it out.

        Raises:
          RuntimeError: something did not happen, or other bytes came out.
        """
        task = self._write_task("pretrain.yaml")
        options = f"run.engine_options = {{'bucket': '{self._url}', 'task': '{task}'}}"
        self._say("the same seeds train here, uninterrupted; Slurm, SSH and SkyPilot start")
        uninterrupted = self._start("uninterrupted", "--engine=local", "--workers=1")
        with self._cloud:
            self._say("`multiberts launch run` submits both seeds")
            look = ("experiment", "--engine=skypilot", f"--gin_param={options}")
            self._launch(*look, expected=EXIT_PREEMPTED)
            if "submitted as" in self._launch(*look, expected=EXIT_PREEMPTED):
                raise RuntimeError("the same command submitted a seed again")
            self._wait(lambda: len(self._runs()) == 2, "both seeds in the bucket")
            runs = self._runs()
            slurm = self._cloud.slurm

            def kill_node(trainer: psutil.Process) -> None:
                slurm.kill_node(_node(trainer))
                shutil.rmtree(self._copy(runs[0]))  # the disk is lost with the machine

            def set_down(trainer: psutil.Process) -> None:
                slurm.set_node("state=down", "reason=rehearsal", name=_node(trainer))

            def start(node: str) -> None:
                slurm.set_node("state=resume", name=node)

            events = [
                self._lose(runs[0], 300, "node killed by -9", kill_node, slurm.start_node),
                self._lose(runs[0], 1100, "trainer stopped", psutil.Process.suspend),
                self._lose(runs[0], 1900, "node down, SIGTERM", set_down, start),
            ]
            self._say("the seeds train to their ends")
            for run in runs:
                bucket = Bucket(f"{self._url}/{run}")
                self._wait(lambda bucket=bucket: bucket.read(DONE), f"DONE of {run}")
            self._launch(*look, expected=0)
            self._say("`multiberts launch run` has fetched both")
            events.append(self._sweep())
            if uninterrupted.wait(PATIENCE):
                raise RuntimeError(
                    f"the uninterrupted runs failed, see {self._folder}/uninterrupted.log"
                )
        widths = "{:<20} {:<50} {:>8} {:>11}".format
        report(widths("event", "seen", "seconds", "steps lost"))
        for event in events:
            report(widths(event.name, event.seen, f"{event.seconds:.0f}", event.steps_lost))
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

    def _launch(self, root: str, *flags: str, expected: int) -> str:
        """Calls `multiberts launch run` and returns what it printed."""
        log = self._folder / f"{root}.log"
        before = log.stat().st_size if log.exists() else 0
        process = self._start(root, *flags)
        self._wait(lambda: process.poll() is not None, f"`multiberts launch run`, see {log}")
        printed = log.read_text()[before:]
        if process.returncode != expected:
            raise RuntimeError(
                f"`multiberts launch run` ended with status {process.returncode}, expected {expected}: "
                f"{printed[-2000:]}"
            )
        return printed

    def _start(self, root: str, *flags: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "multiberts", "launch", "run"]
        command += [f"--gin_file={EXPERIMENT}", f"--root={self._folder / root}", *flags]
        with (self._folder / f"{root}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env={**self._cloud.environment, "PYTHONPATH": _PYTHONPATH, ENGINE: JAX},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _write_task(self, name: str, **variables: object) -> str:
        """Copies a task file, for processors and machines that have everything, and returns its path."""
        task = yaml.safe_load((_TASKS / name).read_text())
        recovery = task["resources"]["job_recovery"]
        task["resources"] = {"infra": "slurm", "cpus": 1, "memory": 1, "job_recovery": recovery}
        task["envs"] |= {
            **{"PYTHON": sys.executable, "PYTHONPATH": _PYTHONPATH, "JAX_PLATFORMS": "cpu"},
            **{FOLDER_VARIABLE: os.environ[FOLDER_VARIABLE], PUSH_VARIABLE: "1"},
            **{"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            **{name: str(value) for name, value in variables.items()},
        }
        path = self._folder / name
        path.write_text(yaml.safe_dump(task | {"num_nodes": min(2, task.get("num_nodes", 1))}))
        return str(path)

    def _sweep(self) -> Event:
        """Trains both seeds for a few steps by the task file for several machines."""
        began, root = time.monotonic(), self._folder / "sweep"
        # Nobody stops a trainer here, and two that compile on a busy machine take more than 30 s.
        settings = ("num_steps = 60", "checkpoint_steps = [0]", "max_seconds_without_step = 300")
        flags = " ".join(f"--gin_param='pretrain.{setting}'" for setting in settings)
        variables = {"CONFIG": EXPERIMENT, "ROOT": root, "FLAGS": flags, "PORT": free_port()}
        task = self._write_task("sweep.yaml", **variables)
        self._say("a sweep on two nodes starts")
        self._cloud.sky("jobs", "launch", "--yes", "--detach-run", "--name=sweep", task)
        self._wait(
            lambda: len(list(root.glob(f"pretrain/*/*/{DONE}"))) == 2, "both seeds of the sweep"
        )
        self._wait(lambda: self._cloud.status_of("sweep") not in _LIVE, "the end of the sweep")
        if self._cloud.status_of("sweep") != "SUCCEEDED":
            raise RuntimeError(f"the sweep is {self._cloud.status_of('sweep')}")
        return Event(
            "sweep on two nodes", "Dask on both, 2 of 2 seeds done", time.monotonic() - began
        )

    def _lose(
        self,
        run: str,
        step: int,
        name: str,
        lose: Callable[[psutil.Process], None],
        restore: Callable[[str], None] = lambda node: None,
    ) -> Event:
        """Loses a run's trainer after a step, and waits until another trains."""
        self._wait(lambda: self._state(run) >= step and self._trainer(run), f"step {step} of {run}")
        trainer, began = self._trainer(run), time.monotonic()
        assert trainer is not None
        node, reached = _node(trainer), tail_of_metrics(self._copy(run) / METRICS)[-1]["step"]
        self._say(f"{name} at step {reached}, on {node}")
        lose(trainer)
        self._wait(lambda: self._trainer(run) not in (None, trainer), "another trainer")
        another, kept = self._trainer(run), self._state(run)
        assert another is not None
        seen = f"another trainer, on {_node(another)}, from step {kept}"
        self._say(seen)
        restore(node)
        self._wait(lambda: self._state(run) > kept, f"a step of {run} after {kept}")
        return Event(name, seen, time.monotonic() - began, max(0, reached - kept))

    def _runs(self) -> list[str]:
        """Returns the seeds that train or have trained in the bucket."""
        bucket = self._folder / "bucket"
        return sorted(
            str(path.parent.relative_to(bucket)) for path in bucket.glob(f"pretrain/*/*/{MANIFEST}")
        )

    def _copy(self, run: str) -> Path:
        return local_copy(Bucket(f"{self._url}/{run}"))

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
        shutil.rmtree(self._folder / "cloud")
        report(f"{SAME} ({compared} files, {time.monotonic() - self._began:.0f} s)")


def _node(process: psutil.Process) -> str:
    return process.environ()["SLURMD_NODENAME"]


def main(arguments: Sequence[str]) -> None:
    """Rehearses in a new folder below the one that is named."""
    if len(arguments) != 2:
        raise UserError("give one folder, such as results/rehearsals")
    root = Path(arguments[1]).absolute()
    sky = check()
    folder = root / time.strftime("%Y%m%d-%H%M%S")
    (folder / "cloud").mkdir(parents=True)
    report(f"logs and everything else: {folder}")
    adopt_descendants()
    handle_signals(lambda number, _: sys.exit(128 + number))
    try:
        Rehearsal(folder, sky).run()
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:
        report(f"error: {error}")
        raise SystemExit(1) from error
    finally:
        end_descendants()


if __name__ == "__main__":
    run_main(main)
