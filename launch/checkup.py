"""`multiberts launch doctor`: checks this machine and says how to mend what does not work."""

from __future__ import annotations

import glob
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiberts.launch.estimate.accelerators import SECONDS_TO_ANSWER, ask_driver
from multiberts.pretrain.training.reference_digest import REFERENCE_DIGEST, measure_digest
from multiberts.runs.console import report
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike
from multiberts.runs.processes import available_cores

OK = "ok"
WARNING = "warning"
PROBLEM = "problem"

SECONDS_TO_TRAIN = 300.0
SECONDS_FOR_LIBRARY = 120.0
# A base-size run keeps moments and a few checkpoints.
BYTES_FREE_AT_LEAST = 10e9
TPU_DEVICES = ("/dev/accel*", "/dev/vfio/[0-9]*")
FRESH_ENVIRONMENT = "pip install -c constraints.txt '.[{extra}]' into a fresh environment"

# Each prints one line that begins with the mark: the version, and the number of devices of each kind.
_MARK = "devices: "
TENSORFLOW = """
import collections, json
import tensorflow as tf
kinds = collections.Counter(device.device_type for device in tf.config.list_logical_devices())
print("devices: " + json.dumps({"version": tf.__version__, "kinds": kinds}))
"""
JAX = """
import collections, json
import jax
kinds = collections.Counter(device.platform.upper() for device in jax.devices())
print("devices: " + json.dumps({"version": jax.__version__, "kinds": kinds}))
"""
LIBRARIES = {"TensorFlow": ("tensorflow", TENSORFLOW), "JAX": ("jax", JAX)}


@dataclass(frozen=True)
class CheckResult:
    """The result of a check, with a cure unless all is well."""

    level: str
    subject: str
    finding: str
    cure: str = ""


def doctor(*, root: PathLike | None = None, training: bool = True) -> int:
    """Checks packages, accelerators, disk and rounding of this machine, and prints a line for each.

    Args:
      root: an experiment's root, whose disk is checked; it need not exist. None: the current directory.
      training: whether to train 20 steps in portable mode, in half a minute or so, and compare the
        digest of the weights with the reference.

    Returns:
      0, or 1 if something is broken.
    """
    results = [check_machine(), check_packages(), *check_devices(), check_disk(root)]
    if training:
        results.append(check_training())
    for result in results:
        report(f"{result.level:7}  {result.subject:10}  {result.finding}")
        if result.cure:
            report(f"{'':21}-> {result.cure}")
    problems, warnings = (
        sum(result.level == level for result in results) for level in (PROBLEM, WARNING)
    )
    if problems or warnings:
        report(f"\n{counted(problems, 'problem')} to solve, {counted(warnings, 'warning')}")
    else:
        report("\nAll is well. `make demo` is a first run of a few minutes.")
    return 1 if problems else 0


def check_machine() -> CheckResult:
    """Describes this machine, without a judgement."""
    finding = f"Python {platform.python_version()}, {counted(available_cores(), 'core')}"
    if importlib.util.find_spec("psutil"):
        import psutil

        memory = psutil.virtual_memory()
        finding += (
            f", {memory.total / 2**30:.0f} GiB of memory, {memory.available / 2**30:.0f} free"
        )
    return CheckResult(OK, "machine", finding)


def check_packages() -> CheckResult:
    """Checks that the versions of the installed packages fit each other."""
    if importlib.util.find_spec("pip") is None:
        cure = f"uv pip check --python {sys.executable}"
        return CheckResult(WARNING, "packages", "not checked: this environment has no pip", cure)
    checked = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    lines = (checked.stdout or checked.stderr).strip().splitlines()
    if checked.returncode == 0:
        return CheckResult(OK, "packages", f"pip check: {lines[-1]}")
    more = [f"and {len(lines) - 4} more"] if len(lines) > 4 else []
    cure = f"{FRESH_ENVIRONMENT.format(extra='tensorflow')}, or another extra"
    return CheckResult(WARNING, "packages", f"pip check: {' '.join([*lines[:4], *more])}", cure)


def check_devices() -> list[CheckResult]:
    """Checks that the installed libraries see this machine's accelerators."""
    probes = {
        name: start_probe(script)
        for name, (module, script) in LIBRARIES.items()
        if importlib.util.find_spec(module) is not None
    }
    results = []
    try:
        if gpus := ask_driver("name", "driver_version"):
            name, _, driver = gpus[0].rpartition(", ")
            results.append(CheckResult(OK, "GPU", f"{len(gpus)} x {name}, driver {driver}"))
    except FileNotFoundError:
        pass  # no driver
    except subprocess.TimeoutExpired:
        finding = f"nvidia-smi did not answer within {SECONDS_TO_ANSWER:.0f} s"
        cure = "look at `dmesg`, and restart the machine"
        results.append(CheckResult(PROBLEM, "GPU", finding, cure))
    except (OSError, subprocess.CalledProcessError) as error:
        lines = (getattr(error, "stdout", "") or str(error)).strip().splitlines()
        cure = "install the NVIDIA driver for this kernel, or restart the machine"
        results.append(CheckResult(PROBLEM, "GPU", f"nvidia-smi fails: {lines[-1]}", cure))
    has_gpu = any(result.level == OK for result in results)
    chips = [path for pattern in TPU_DEVICES for path in glob.glob(pattern)]
    if chips:
        finding = f"{counted(len(chips), 'device file')}, the first {chips[0]}"
        results.append(CheckResult(OK, "TPU", finding))
    if not results:
        finding = "none: runs here are for the CPU, where base size is slow"
        results.append(CheckResult(OK, "devices", finding))
    if not probes:
        cure = "pip install 'multiberts[tensorflow]' ([gpu] for NVIDIA, [jax-tpu] for Cloud TPU)"
        finding = "neither TensorFlow nor JAX is installed"
        results.append(CheckResult(PROBLEM, "libraries", finding, cure))
    expected = "GPU" if has_gpu else "TPU" if chips else "CPU"
    end = time.monotonic() + SECONDS_FOR_LIBRARY
    for name, process in probes.items():
        answer = take_answer(process, max(1.0, end - time.monotonic()))
        # TensorFlow does not train on TPUs; beside JAX it reads data sets.
        is_beside = name == "TensorFlow" and expected == "TPU" and "JAX" in probes
        results.append(judge(name, answer, "CPU" if is_beside else expected))
    return results


def start_probe(script: str) -> subprocess.Popen[str]:
    """Starts a script in another Python process, because importing a library may hang or crash."""
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        start_new_session=True,
    )


def take_answer(process: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    """Returns a probe's output, or `{"error": message}`; kills a probe that hangs."""
    try:
        printed, complaints = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"error": f"no answer within {seconds:.0f} s"}
    for line in printed.splitlines():
        if line.startswith(_MARK):
            return dict(json.loads(line.removeprefix(_MARK)))
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        return {"error": f"importing it ends the process ({name})"}
    lines = complaints.strip().splitlines()
    return {"error": lines[-1] if lines else f"it ended with status {process.returncode}"}


def judge(name: str, answer: Mapping[str, Any], expected: str) -> CheckResult:
    """Returns the check of a library's answer.

    Args:
      answer: `version` and `kinds` (numbers of devices by kind), or `error`.
      expected: the kind of device that is here: `GPU`, `TPU` or `CPU`.
    """
    extra = {"GPU": "gpu", "TPU": "jax-tpu", "CPU": "tensorflow"}[expected]
    cure = FRESH_ENVIRONMENT.format(extra=extra)
    if "error" in answer:
        return CheckResult(PROBLEM, name, str(answer["error"]), cure)
    kinds = answer["kinds"]
    shown = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    finding = f"{answer['version']} sees {shown or 'no device'}"
    # JAX calls a GPU by its platform.
    present = set(kinds) | ({"GPU"} if {"CUDA", "ROCM"} & set(kinds) else set())
    if expected not in present:
        return CheckResult(PROBLEM, name, f"{finding}, but not the {expected} that is here", cure)
    return CheckResult(OK, name, finding)


def check_disk(root: PathLike | None) -> CheckResult:
    """Reports the free space of the experiment's disk; `launch plan` says how much it needs."""
    folder = Path(root or ".").absolute()
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK):
        cure = "choose another launch.root, or get the permission"
        return CheckResult(PROBLEM, "disk", f"{folder} may not be written", cure)
    finding = f"{free / 1e9:,.0f} GB free at {folder}"
    if free < BYTES_FREE_AT_LEAST:
        cure = "free some: base-size pre-training needs 5 GB and 0.4 more for each checkpoint kept"
        return CheckResult(WARNING, "disk", finding, cure)
    return CheckResult(OK, "disk", finding)


def check_training() -> CheckResult:
    """Checks by 20 training steps in portable mode that this machine rounds like the reference."""
    try:
        digest = measure_digest(SECONDS_TO_TRAIN)
    except UserError as error:
        return CheckResult(WARNING, "training", str(error))
    if digest == REFERENCE_DIGEST:
        return CheckResult(OK, "training", f"20 steps in portable mode give the reference {digest}")
    finding = f"20 steps in portable mode give {digest}, the reference is {REFERENCE_DIGEST}"
    cure = "results differ from published ones in their last bits; see docs/departures.md"
    return CheckResult(WARNING, "training", finding, cure)
