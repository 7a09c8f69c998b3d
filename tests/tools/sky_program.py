"""A stand-in for SkyPilot's program `sky`: a queue in a JSON file, and jobs that a test runs in bash.

It prints what SkyPilot 0.14.1 printed for the same commands. The real one is run by `make rehearse`.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from multiberts.tests.tools.patience import PATIENCE

_STARTED = "\x1b[0m\x1b[32m✓ SkyPilot API server started. \x1b[0m\x1b[0m"
_PREAMBLE = "export PYTHONUNBUFFERED=1\ncd sky_workdir\n"


class Sky:
    """The stand-in, installed in a folder; `commands` are those that it was given."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        self.save([])
        (folder / "commands").touch()
        program = folder / "sky"
        program.write_text(
            f"#!{sys.executable}\nfrom {__name__} import main\nmain({str(folder)!r})\n"
        )
        program.chmod(0o755)

    @property
    def queue(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads((self.folder / "queue.json").read_text())
        return rows

    @property
    def commands(self) -> list[str]:
        return (self.folder / "commands").read_text().splitlines()

    def save(self, rows: list[dict[str, Any]]) -> None:
        (self.folder / "queue.json").write_text(json.dumps(rows))

    def set(self, job_id: int, **facts: Any) -> None:
        self.save([{**row, **(facts if row["job_id"] == job_id else {})} for row in self.queue])

    def refuse(self, command: str, line: str) -> None:
        """Lets a command, such as `jobs queue`, fail with a line from now on."""
        (self.folder / command.replace(" ", "-")).write_text(line)

    def carry_out(self, job_id: int, **environment: str) -> int:
        """Runs a job's blocks `setup` and `run` as SkyPilot does on a node; returns the exit status."""
        task = json.loads((self.folder / f"{job_id}.json").read_text())
        status = run_blocks(task, self.folder / f"node-{job_id}", environment)
        self.set(job_id, status="FAILED" if status else "SUCCEEDED", schedule_state="DONE")
        return status


def run_blocks(task: dict[str, Any], node: Path, environment: dict[str, str]) -> int:
    """Runs the blocks of a task, each in an interactive bash without a terminal."""
    (node / "sky_workdir").mkdir(parents=True, exist_ok=True)
    envs = {name: str(value) for name, value in task["envs"].items()}
    for block in ("setup", "run"):
        script = node / f"{block}.sh"
        script.write_text(f"#!/bin/bash\n{_PREAMBLE}{task[block]}\n")
        ended = subprocess.run(
            ["/bin/bash", "-i", str(script)],
            cwd=node,
            env={**os.environ, **envs, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            start_new_session=True,
        )
        (node / f"{block}.log").write_text(ended.stdout + ended.stderr)
        if ended.returncode:
            return ended.returncode
    return 0


def main(folder: str) -> None:
    """The program: `sky launch --dryrun`, `sky jobs launch`, `sky jobs queue`, `sky jobs cancel`."""
    sky, words = object.__new__(Sky), sys.argv[1:]
    sky.folder = Path(folder)
    with (sky.folder / "commands").open("a") as stream:
        print(" ".join(words[:2]), file=stream)
    refusal = sky.folder / "-".join(words[:2])
    if refusal.exists():
        print(refusal.read_text(), file=sys.stderr)
        sys.exit(1)
    if words[:2] == ["launch", "--dryrun"]:
        print("YAML to run:", words[-1])
    elif words[:2] == ["jobs", "launch"]:
        _launch(sky, words)
    elif words[:2] == ["jobs", "queue"]:
        assert {"--all", "--verbose", "json"} <= set(words)
        print(_STARTED)
        print(json.dumps(sky.queue, indent=2))
    elif words[:3] == ["jobs", "cancel", "-y"]:
        for job_id in map(int, words[3:]):
            sky.set(job_id, status="CANCELLED")
    else:
        sys.exit(f"Error: No such command {words[0]!r}.")


def _launch(sky: Sky, words: list[str]) -> None:
    task = yaml.safe_load(Path(words[-1]).read_text())
    given = [words[place + 1] for place, word in enumerate(words) if word == "--env"]
    task["envs"] |= dict(text.split("=", 1) for text in given)
    missing = [name for name, value in task["envs"].items() if value is None]
    if missing:
        sys.exit(f"ValueError: Environment variable {missing[0]!r} is None.")
    rows, name = sky.queue, words[words.index("-n") + 1]
    job_id = len(rows) + 1
    (sky.folder / f"{job_id}.json").write_text(json.dumps(task))
    row = {
        "job_id": job_id,
        "task_id": 0,
        "job_name": name,
        "status": "PENDING",
        "schedule_state": "WAITING",
        "resources": "1x[tpu-v5litepod-4:1][Spot]",
        "cluster_resources": "-",
        "infra": "-",
        "recovery_count": 0,
        "details": None,
        "failure_reason": None,
        "submitted_at": time.time(),
    }
    sky.save([row, *rows])  # the newest first
    print(f"\n📋 Useful Commands\nManaged Job ID: {job_id}")


def make_executable(path: Path, script: str) -> Path:
    path.write_text(script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
