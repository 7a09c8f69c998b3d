"""Faults of files below the root of a launch: strange ones in place of markers and logs, and large plans."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parents[2] / "launch"
_LIMIT = 20.0  # seconds for a command, which may wait for ever
_LAUNCH = "import sys; from multiberts.tests.launch.launchers import launch; launch(sys.argv.pop())"
_ATTEMPT = {
    "attempt": 1, "path": "pretrain/a", "engine": "slurm", "host": "node07", "pid": 1, "started": 1.0,
    "ended": 2.0, "outcome": "failed", "error": {"kind": "E", "message": "m"}, "log": "logs/a.log",
}  # fmt: skip
# A clock two minutes ahead of the one that dates files.
_STATUS_AHEAD = """
import sys, time
now = time.time
time.time = lambda: now() + 120
from multiberts.launch.status.command import show_status
show_status(root=sys.argv[1])
"""


def pipe_among_attempts(scratch: Path) -> str:
    """A pipe lies among the markers of attempts."""
    return _status_and_reap(scratch, "launch/attempts/pretrain---a/2.json", os.mkfifo)


def folder_among_attempts(scratch: Path) -> str:
    """A folder has the name of a marker of an attempt."""
    return _status_and_reap(scratch, "launch/attempts/pretrain---a/2.json", os.mkdir)


def device_among_attempts(scratch: Path) -> str:
    """A link to /dev/zero has the name of a marker of an attempt."""
    place = "launch/attempts/pretrain---a/2.json"
    return _status_and_reap(scratch, place, lambda path: path.symlink_to("/dev/zero"))


def loop_of_links_for_a_log(scratch: Path) -> str:
    """The log of a failed run is a link to itself."""
    return _status_and_reap(scratch, "logs/a.log", lambda path: path.symlink_to(path.name))


def pipe_for_a_log(scratch: Path) -> str:
    """The log of a failed run is a pipe."""
    return _status_and_reap(scratch, "logs/a.log", os.mkfifo)


def pipe_for_metrics(scratch: Path) -> str:
    """The log of metrics of a pre-training is a pipe."""
    return _status_and_reap(scratch, "pretrain/a/metrics.jsonl", os.mkfifo)


def pipe_for_the_plan(scratch: Path) -> str:
    """A pipe lies in place of the plan's marker."""
    return _status_and_reap(scratch, "launch/plan.json", os.mkfifo)


def pipe_for_the_workers_folder(scratch: Path) -> str:
    """A pipe lies in place of launch/dask."""
    return _status_and_reap(scratch, "launch/dask", os.mkfifo)


def pipe_for_the_log_of_a_run(scratch: Path) -> str:
    """A run is launched whose log is a pipe."""
    root = scratch / "root"
    (root / "logs").mkdir(parents=True)
    os.mkfifo(root / "logs" / "run.log")
    run = ("quick_stages:note", "run", {"value": 1}, [])
    content = json.dumps({"runs": [run], "root": str(root), "workers": 1})
    return _said([sys.executable, "-c", _LAUNCH, content])


def clock_ahead_of_the_file_server(scratch: Path) -> str:
    """A run goes on elsewhere, and who asks for the status has a clock two minutes ahead of the disk's."""
    root = _root(scratch, {**_ATTEMPT, "ended": None, "outcome": None, "started": time.time()})
    (root / "launch" / ".lock").touch()
    return _said([sys.executable, "-c", _STATUS_AHEAD, str(root)], lines=4)


def run_with_20000_parents(scratch: Path) -> str:
    """A plan has a report of 20,000 fine-tunings."""
    parents = [f"finetune/{number}" for number in range(20_000)]
    plan = [_planned("finetune", path) for path in parents]
    return _status(_root(scratch, _ATTEMPT, [*plan, _planned("report", "report", parents)]))


def layers_of_two_runs(scratch: Path) -> str:
    """26 layers of two runs, each of which waits for both of the layer before; status, then the launch."""
    layers = [[f"{layer}a", f"{layer}b"] for layer in range(26)]
    plan = [
        _planned("finetune", path, before)
        for before, layer in zip([[], *layers], layers, strict=False)
        for path in layer
    ]
    runs = [("quick_stages:note", run["path"], {"value": 1}, run["parents"]) for run in plan]
    content = json.dumps({"runs": runs, "root": str(scratch / "launched"), "workers": 1})
    launched = _said([sys.executable, "-c", _LAUNCH, content])
    return f"{_status(_root(scratch, _ATTEMPT, plan))}\n{launched}"


def _planned(stage: str, path: str, parents: Sequence[str] = ()) -> dict[str, Any]:
    name = {"stage": stage, "name": path, "path": path, "identity": path}
    return {**name, "parents": list(parents), "facts": {}}


def _root(
    scratch: Path, attempt: Mapping[str, Any], plan: Sequence[Mapping[str, Any]] = ()
) -> Path:
    """Makes a root with a pre-training, and further runs, at which there was an attempt."""
    root = scratch / "root"
    runs = [_planned("pretrain", "pretrain/a"), *plan]
    for name, content in {
        "launch/plan.json": json.dumps({"version": 1, "runs": runs}),
        # As each version of the program has it.
        "launch/attempts/pretrain---a/1.json": json.dumps(attempt) + "\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def _status_and_reap(scratch: Path, name: str, make: Callable[[Path], object]) -> str:
    root = _root(scratch, _ATTEMPT)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).unlink(missing_ok=True)
    make(root / name)
    command = [sys.executable, "-m", "multiberts", "launch", "run", "--reap", f"--root={root}"]
    return f"status: {_status(root)}\nreap: {_said(command)}"


def _status(root: Path) -> str:
    command = [sys.executable, "-m", "multiberts", "launch", "status", f"--root={root}"]
    return _said([*command, f"--html={root / 'status.html'}"], lines=2)


def _said(command: Sequence[str], lines: int = 1) -> str:
    """Runs a command, and returns its status, its time, and the last lines of what it said."""
    paths = os.pathsep.join([str(_HERE), os.environ.get("PYTHONPATH", "")])
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=_LIMIT)
        status = f"status {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        said, _ = process.communicate()
        status = "did not end, killed"
    last = "\n".join(said.strip().splitlines()[-lines:])
    return f"{status}, {time.monotonic() - started:.1f} s: {last}"
