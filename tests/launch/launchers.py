"""Plans of quick stages, and launchers of them in processes of their own; for tests of the launcher."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from multiberts.launch.plan.planned_run import Output, PlannedRun
from multiberts.launch.workers.mark import VARIABLE
from multiberts.tests.patience import PATIENCE
from multiberts.tests.terminal_signals import obey_a_terminal

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# Builds the same plan as `quick_run` does, from JSON, and launches it as the command would.
LAUNCHER = """
import json, sys
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.running import describe, run_plan
from multiberts.runs.command_line.command import run_main

settings, runs = json.loads(sys.argv.pop()), {}
for stage, path, parameters, parents in settings.pop("runs"):
    runs[path] = PlannedRun(stage, path, parameters, tuple(map(runs.get, parents)), path, path)

def main(arguments):
    failures = run_plan(plan=list(runs.values()), **settings)
    print(describe(failures), file=sys.stderr)
    sys.exit(bool(failures))

run_main(main)
"""


def quick_run(stage: str, path: str, *parents: PlannedRun, **parameters: Any) -> PlannedRun:
    """A run of a stage of `quick_stages.py`."""
    if parents and stage == "note":
        parameters["inputs"] = [Output(parent) for parent in parents]
    return PlannedRun(f"quick_stages:{stage}", path, parameters, parents, path, path)


class Launcher:
    """A launcher in a process and session of its own."""

    def __init__(
        self,
        root: Path,
        plan: Sequence[PlannedRun],
        *,
        max_bytes_of_file: int = resource.RLIM_INFINITY,
        **settings: Any,
    ):
        self.root = root
        # Not below the test's own folder, whose path is too long for sockets.
        self.scratch = Path(tempfile.mkdtemp())
        self._begun: dict[str, int] = {}
        runs = []
        for run in plan:
            # Runs within the parameters are not JSON: here parents only come before.
            plain = {name: value for name, value in run.parameters.items() if name != "inputs"}
            runs.append((run.stage, run.path, plain, [parent.path for parent in run.parents]))
        content = json.dumps({"runs": runs, "root": str(root), "workers": 2, **settings})
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, content],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]),
                "TMPDIR": str(self.scratch),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: (
                obey_a_terminal(),
                # Writing more fails as it does on a full disk.
                resource.setrlimit(
                    resource.RLIMIT_FSIZE, (max_bytes_of_file, resource.RLIM_INFINITY)
                ),
            ),
        )

    def wait_for(self, *runs: PlannedRun) -> None:
        """Waits until these runs have begun (once more, if they had) as they say in their logs."""

        def beginnings(run: PlannedRun) -> int:
            log = self.root / "logs" / f"{run.path.replace('/', '-')}.log"
            return log.read_text().count("begun") if log.exists() else 0

        def all_have_begun() -> bool:
            return all(beginnings(run) > self._begun.get(run.path, 0) for run in runs)

        found = wait_until(lambda: self.process.poll() is not None or all_have_begun())
        assert found and self.process.poll() is None, self.process.communicate()
        self._begun.update({run.path: beginnings(run) for run in runs})

    def end(self) -> tuple[int, str]:
        """Waits for the end; returns the status and what it printed on standard error."""
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors

    def processes(self) -> list[psutil.Process]:
        """All processes of its session that run."""
        found = []
        for process in psutil.process_iter():
            try:
                is_ours = os.getsid(process.pid) == self.process.pid
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found

    def worker_of(self, run: PlannedRun) -> psutil.Process:
        """The process that carries out a run."""
        folder = self.root / "launch" / "attempts" / run.path.replace("/", "---")
        newest = max(folder.glob("*.json"), key=lambda path: int(path.stem))
        return psutil.Process(json.loads(newest.read_text())["pid"])


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def marked_process(mark: str) -> subprocess.Popen[bytes]:
    """A process with a launch's mark, once the kernel shows it: a moment after `Popen` returns."""
    process = subprocess.Popen(["sleep", "300"], env={**os.environ, VARIABLE: mark})
    assert wait_until(lambda: VARIABLE in psutil.Process(process.pid).environ())
    return process
