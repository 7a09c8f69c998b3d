"""A node as processes of this machine: the start-up script in a session of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

# Read by the start-up script: the folder for all it writes.
FOLDER_VARIABLE = "NODE_FOLDER"


def start_node(
    folder: Path, script: str, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Boots a node.

    Args:
      folder: for the node alone, as a disk of its own would be.
      script: the start-up script.
      environment: of the node; None: this process's own.

    Returns:
      The shell that runs the script, or what the script put in its place.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "startup.sh"
    file.write_text(script)
    with open(folder / "console", "ab") as console:
        return subprocess.Popen(
            ["bash", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            env={
                **(os.environ if environment is None else environment),
                FOLDER_VARIABLE: str(folder),
            },
            start_new_session=True,
        )


def end_node(process: subprocess.Popen[bytes] | None, seconds_of_notice: float = 0.0) -> None:
    """Takes a node away: SIGTERM to all its processes, then SIGKILL.

    Args:
      process: from `start_node`; None: nothing to do.
      seconds_of_notice: between the two; 0: no SIGTERM.
    """
    if process is None:
        return
    if seconds_of_notice:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds_of_notice)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
