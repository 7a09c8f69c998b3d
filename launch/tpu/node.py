"""What a node does after its boot: checks the accelerator, trains, and tells the bucket how it is.

`python -m multiberts.launch.tpu.node settings.json log`. SIGTERM, which a machine gets that is taken away, is
passed on to the trainer, which saves; a trainer that was asked to stop though the machine stays is
started again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from multiberts.bert.training.log import tail_of_metrics
from multiberts.runs.bucket.mirror import local_copy
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.console import report
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import EXIT_PREEMPTED

_EXIT_USER_ERROR = 2
# How often a trainer that crashed is started again before the machine is given up.
_CRASHES_ALLOWED = 2
_SECONDS_FOR_ACCELERATOR = 900.0
_SECONDS_BETWEEN_STARTS = 2.0
_BYTES_OF_LOG = 256 * 2**10


class NodeBoot:
    """One boot of a node."""

    def __init__(self, settings: dict[str, Any], log: Path):
        """Opens no connection.

        Args:
          settings: of `launch.tpu.startup`.
          log: the file that all is printed to.
        """
        self._settings = settings
        self._log = log
        self._phase = "checking"
        self._error: dict[str, str] | None = None
        self._booted = self._progressed = time.time()
        self._step: int | None = None
        self._restarts = 0
        self._trainer: subprocess.Popen[bytes] | None = None
        self._asked_to_stop = False
        self._telling = threading.Lock()
        self._told_log = -1

    def carry_out(self) -> int:
        """Checks, trains, and returns the status to exit with."""
        signal.signal(signal.SIGTERM, self._pass_on)
        threading.Thread(target=self._beat, daemon=True).start()
        self._enter("checking")
        problem = self._problem_of_accelerator()
        if problem is not None:
            return self._fail("Accelerator", problem, 1)
        crashes = 0
        while not self._asked_to_stop:
            self._enter("training")
            command = [sys.executable, "-m", "multiberts.pretrain", *self._settings["flags"]]
            self._trainer = subprocess.Popen(command)
            if self._asked_to_stop:
                self._trainer.terminate()
            status = self._trainer.wait()
            if status == 0:
                self._enter("done")
                return 0
            if status == _EXIT_USER_ERROR:
                return self._fail("UserError", self._last_error(), status)
            if status != EXIT_PREEMPTED and not self._asked_to_stop:
                crashes += 1
                if crashes > _CRASHES_ALLOWED:
                    line = f"the trainer ended {crashes} times, at last with status {status}"
                    return self._fail("Crashed", f"{line}: {self._last_error()}", 1)
            self._restarts += 1
            self._enter("restarting")
            time.sleep(_SECONDS_BETWEEN_STARTS)
        self._enter("preempted")
        return EXIT_PREEMPTED

    def _problem_of_accelerator(self) -> str | None:
        command = [
            sys.executable,
            "-m",
            "multiberts.launch.tpu.accelerator",
            self._settings["accelerator"],
        ]
        try:
            result = subprocess.run(command, timeout=_SECONDS_FOR_ACCELERATOR)
        except subprocess.TimeoutExpired:
            return f"it did not answer within {_SECONDS_FOR_ACCELERATOR:.0f} s"
        if result.returncode == 0 or self._asked_to_stop:
            return None
        return f"its check ended with status {result.returncode}: {self._last_error()}"

    def _pass_on(self, _number: int, _frame: object) -> None:
        self._asked_to_stop = True
        if self._trainer is not None and self._trainer.poll() is None:
            self._trainer.terminate()

    def _enter(self, phase: str) -> None:
        self._phase = phase
        report(f"--- {phase}")
        self._tell()

    def _fail(self, kind: str, message: str, status: int) -> int:
        self._error = {"kind": kind, "message": message}
        report(f"{kind}: {message}")
        self._enter("failed")
        return status

    def _last_error(self) -> str:
        """Returns the line of the log that says most: the last `error:`, else the last of all."""
        lines = [line.strip() for line in self._tail().decode(errors="replace").splitlines()]
        lines = [line for line in lines if line and not line.startswith("---")]
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return (errors or lines or ["it printed nothing"])[-1]

    def _tail(self) -> bytes:
        with open(self._log, "rb") as stream:
            stream.seek(max(0, os.path.getsize(self._log) - _BYTES_OF_LOG))
            return stream.read()

    def _beat(self) -> None:
        while True:
            time.sleep(self._settings["heartbeat"])
            self._tell()

    def _tell(self) -> None:
        """Writes the heartbeat and what of the log is new."""
        with self._telling:
            step = last_step(local_copy(Bucket(self._settings["run_url"])) / "metrics.jsonl")
            if step != self._step:
                self._step, self._progressed = step, time.time()
            beat = {
                "phase": self._phase,
                "booted": self._booted,
                "time": time.time(),
                "progressed": self._progressed,
                "step": self._step,
                "restarts": self._restarts,
                "error": self._error,
            }
            try:
                _write(self._settings["beat_url"], json.dumps(beat).encode())
                size = os.path.getsize(self._log)
                if size != self._told_log:
                    _write(self._settings["log_url"], self._tail())
                    self._told_log = size
            except UserError as error:
                report(f"{error} (tried again with the next heartbeat)")


def _write(url: str, data: bytes) -> None:
    folder, _, name = url.rpartition("/")
    Bucket(folder).write(name, data)


def last_step(metrics: Path) -> int | None:
    """Returns the step of the last whole line of a metrics file that is being written."""
    lines = tail_of_metrics(metrics)
    return lines[-1]["step"] if lines else None


if __name__ == "__main__":
    _settings = json.loads(Path(sys.argv[1]).read_text())
    sys.exit(NodeBoot(_settings, Path(sys.argv[2])).carry_out())
