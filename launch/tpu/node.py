"""The program of a node after its boot: checks the accelerator, trains, and reports to the bucket.

`python -m multiberts.launch.tpu.node settings.json log`. On SIGTERM, or when the metadata server says that
the machine is being preempted, the trainer is sent SIGTERM and saves. A trainer that was asked to stop though
the machine stays is started again; so is one that saves because maintenance was announced. Once all has ended
and no launcher looks, the node deletes itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from multiberts.bert.training.log import tail_of_metrics
from multiberts.launch.tpu.client import Provisioner, Resource, TpuError
from multiberts.launch.tpu.places import LOOK
from multiberts.launch.workers.heartbeats import HEARTBEATS, WatchedProcess
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
_SECONDS_BETWEEN_LOOKS = 0.2
_BYTES_OF_LOG = 256 * 2**10
METRICS = "metrics.jsonl"
# As Google's own libraries name it.
METADATA_VARIABLE = "GCE_METADATA_HOST"
# Answers of Compute Engine's metadata server: on spot capacity shortly before the machine is taken, on
# demand up to an hour before maintenance. TPUs are not moved to another host: they boot again on one.
_PREEMPTED = "instance/preempted", "TRUE"
_MAINTENANCE = "instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE"
_SECONDS_BETWEEN_QUESTIONS = 1.0
_SECONDS_BETWEEN_DELETIONS = 600.0


class NodeBoot:
    """One boot of a node."""

    def __init__(self, settings: dict[str, Any], log: Path):
        """Opens no connection.

        Args:
          settings: of `launch.tpu.startup.startup_script`.
        """
        self._settings = settings
        self._bucket = Bucket(settings["bucket"])
        self._metrics = local_copy(Bucket(settings["run_url"])) / METRICS
        self._log = log
        self._phase = "checking"
        self._error: dict[str, str] | None = None
        self._booted = self._progressed = time.time()
        self._step: int | None = None
        self._restarts = 0
        self._trainer: subprocess.Popen[bytes] | None = None
        self._asked_to_stop = False
        self._maintenance = ""
        self._reporting = threading.Lock()
        self._reported_bytes = -1

    def carry_out(self) -> int:
        """Checks, trains, and returns the exit status."""
        signal.signal(signal.SIGTERM, self._pass_on)
        for target in (self._report_now_and_then, self._ask_metadata):
            threading.Thread(target=target, daemon=True).start()
        status = self._check_and_train()
        if not self._asked_to_stop:
            wait_until_forgotten(self._bucket, self._settings["forgotten_seconds"])
            own = Resource(state="", created=0.0, **self._settings["resource"])
            delete_forgotten(Provisioner(self._settings["project"]), own)
        return status

    def _check_and_train(self) -> int:
        self._enter("checking")
        problem = self._problem_of_accelerator()
        if problem is not None:
            return self._fail("Accelerator", problem, 1)
        crashes = 0
        while not self._asked_to_stop:
            self._enter("training")
            status = self._train()
            if status == 0:
                self._enter("done")
                return 0
            if status == _EXIT_USER_ERROR:
                return self._fail("UserError", self._last_error(), status)
            # A trainer that is asked to save while it still imports libraries dies of SIGTERM.
            was_asked = status in (EXIT_PREEMPTED, -signal.SIGTERM)
            if not was_asked and not self._asked_to_stop:
                crashes += 1
                if crashes > _CRASHES_ALLOWED:
                    line = f"the trainer ended {crashes} times, at last with status {status}"
                    return self._fail("Crashed", f"{line}: {self._last_error()}", 1)
            self._restarts += 1
            self._enter("restarting")
            time.sleep(_SECONDS_BETWEEN_STARTS)
        self._enter("preempted")
        return EXIT_PREEMPTED

    def _train(self) -> int:
        """Runs the trainer; returns its exit status. A silent one is killed."""
        silent_seconds = self._settings["silent_seconds"]
        command = [sys.executable, "-m", "multiberts.launch.workers.heartbeats", "pretrain"]
        command += [*self._settings["flags"], f"{silent_seconds / HEARTBEATS:g}"]
        trainer = WatchedProcess(command, silent_seconds)
        self._trainer = trainer.process
        if self._asked_to_stop:
            self._trainer.terminate()
        while (status := trainer.poll()) is None:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        trainer.close()
        if trainer.was_silent:
            report(f"error: the trainer was silent for {silent_seconds:g} s and was ended")
        return status

    def _problem_of_accelerator(self) -> str | None:
        # In a process of its own, as the accelerator serves one process at a time.
        check = f"check_accelerator({self._settings['device_kind']!r})"
        check = f"from multiberts.launch.tpu.node import check_accelerator; {check}"
        try:
            command = [sys.executable, "-c", check]
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

    def _ask_metadata(self) -> None:
        """Asks the metadata server: the service of the start-up script passes no SIGTERM on."""
        while not self._asked_to_stop:
            if metadata(_PREEMPTED[0]) == _PREEMPTED[1]:
                report("the metadata server says that this machine is being preempted")
                self._pass_on(signal.SIGTERM, None)
            event = metadata(_MAINTENANCE[0]) or self._maintenance
            announced = event if event == _MAINTENANCE[1] else ""
            if announced and not self._maintenance and self._trainer is not None:
                report("maintenance of this machine is announced: the trainer saves, and goes on")
                self._trainer.terminate()
            self._maintenance = announced
            time.sleep(_SECONDS_BETWEEN_QUESTIONS)

    def _enter(self, phase: str) -> None:
        self._phase = phase
        report(f"--- {phase}")
        self._report()

    def _fail(self, kind: str, message: str, status: int) -> int:
        self._error = {"kind": kind, "message": message}
        report(f"{kind}: {message}")
        self._enter("failed")
        return status

    def _last_error(self) -> str:
        """Returns the most telling line of the log: the last `error:`, else the last of all."""
        lines = [line.strip() for line in self._tail().decode(errors="replace").splitlines()]
        lines = [line for line in lines if line and not line.startswith("---")]
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return (errors or lines or ["it printed nothing"])[-1]

    def _tail(self) -> bytes:
        with open(self._log, "rb") as stream:
            stream.seek(max(0, os.path.getsize(self._log) - _BYTES_OF_LOG))
            return stream.read()

    def _report_now_and_then(self) -> None:
        while True:
            time.sleep(self._settings["heartbeat"])
            self._report()

    def _report(self) -> None:
        """Writes the heartbeat, and the log where it has grown."""
        with self._reporting:
            step = last_step(self._metrics)
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
                "maintenance": self._maintenance,
            }
            try:
                self._bucket.write(self._settings["beat"], json.dumps(beat).encode())
                size = os.path.getsize(self._log)
                if size != self._reported_bytes:
                    self._bucket.write(self._settings["log"], self._tail())
                    self._reported_bytes = size
            except UserError as error:
                report(f"{error} (tried again with the next heartbeat)")


def last_step(metrics: Path) -> int | None:
    """Returns the step of the last whole line of a metrics file that is being written."""
    lines = tail_of_metrics(metrics)
    return lines[-1]["step"] if lines else None


def metadata(name: str) -> str | None:
    """Returns what the machine's metadata server answers; None where there is none."""
    host = os.environ.get(METADATA_VARIABLE, "metadata.google.internal")
    url = f"http://{host}/computeMetadata/v1/{name}"
    question = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError), opener.open(question, timeout=5) as answer:
        return str(answer.read().decode()).strip()
    return None


def wait_until_forgotten(bucket: Bucket, seconds: float) -> None:
    """Returns once no launcher has looked for so long, by this machine's clock alone."""
    last, since = None, time.monotonic()
    while time.monotonic() - since < seconds:
        with contextlib.suppress(UserError):  # out of reach for a while
            found = bucket.read(LOOK)
            if found != last:
                last, since = found, time.monotonic()
        time.sleep(min(60.0, seconds / 4))


def delete_forgotten(provisioner: Provisioner, own: Resource) -> None:
    """Deletes the node's own queued resource, which costs its full price until somebody does."""
    while True:
        report(f"no launcher has looked for long: {own.name} deletes itself")
        try:
            return provisioner.delete(own)
        except TpuError as error:
            report(f"{own.name} cannot be deleted from here: {error}")
        time.sleep(_SECONDS_BETWEEN_DELETIONS)


def check_accelerator(kind: str) -> None:
    """Multiplies two matrices on every device of a kind, and prints how many there are.

    Args:
      kind: `TPU`, `GPU` or `CPU`.
    """
    import jax
    import numpy as np

    devices = [one for one in jax.devices() if one.platform.upper() == kind]
    if not devices:
        raise RuntimeError(f"JAX {jax.__version__} sees no {kind}")
    factor = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
    for device in devices:
        placed = jax.device_put(factor, device)
        if not np.allclose(jax.device_get(placed @ placed), factor @ factor, atol=0.05):
            raise RuntimeError(f"{device} multiplies wrongly")
    report(f"{len(devices)} {kind} answer to JAX {jax.__version__}")


if __name__ == "__main__":
    _settings = json.loads(Path(sys.argv[1]).read_text())
    sys.exit(NodeBoot(_settings, Path(sys.argv[2])).carry_out())
