"""Checks which accelerators the driver and the libraries see, each in a process that may hang."""

from __future__ import annotations

import glob
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from multiberts.launch.doctor.findings import OK, PROBLEM, WARNING, CheckResult
from multiberts.launch.estimate.accelerators import SECONDS_TO_ANSWER, ask_driver

SECONDS_FOR_LIBRARY = 120.0
TPU_DEVICES = ("/dev/accel*", "/dev/vfio/[0-9]*")
_MARK = "devices: "

# Each prints one line that begins with the mark: kinds and numbers of devices.
TENSORFLOW = """
import collections, json, os
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf
kinds = collections.Counter(device.device_type for device in tf.config.list_logical_devices())
build = tf.sysconfig.get_build_info()
print("devices: " + json.dumps({"version": tf.__version__, "kinds": kinds,
    "cuda": build.get("cuda_version"), "cudnn": build.get("cudnn_version")}))
"""
JAX = """
import collections, json
import jax
kinds = collections.Counter(device.platform.upper() for device in jax.devices())
print("devices: " + json.dumps({"version": jax.__version__, "kinds": kinds}))
"""
LIBRARIES = {"TensorFlow": ("tensorflow", TENSORFLOW), "JAX": ("jax", JAX)}


@dataclass(frozen=True)
class Gpu:
    """A GPU as its driver reports it; memory in MiB."""

    name: str
    driver: str
    memory: int
    memory_used: int


def check_devices() -> list[CheckResult]:
    """Reports which accelerators are here, and which of them the installed libraries can use."""
    processes = {
        name: start_probe(script)
        for name, (module, script) in LIBRARIES.items()
        if importlib.util.find_spec(module) is not None
    }
    gpus, driver = _gpus()
    chips = [path for pattern in TPU_DEVICES for path in glob.glob(pattern)]
    findings = [driver] if driver is not None else []
    if chips:
        findings.append(CheckResult(OK, "TPU", f"{len(chips)} device files ({chips[0]}, ...)"))
    if not gpus and not chips:
        findings.append(
            CheckResult(
                OK, "accelerator", "none: runs here are for the CPU, where base size is slow"
            )
        )
    expected = "GPU" if gpus else "TPU" if chips else "CPU"
    end = time.monotonic() + SECONDS_FOR_LIBRARY
    for name, process in processes.items():
        answer = take_answer(process, max(1.0, end - time.monotonic()))
        # TensorFlow does not train on TPUs; beside JAX it reads data sets.
        is_beside = name == "TensorFlow" and expected == "TPU" and "JAX" in processes
        findings.append(judge(name, answer, "CPU" if is_beside else expected))
    return findings


def _gpus() -> tuple[list[Gpu], CheckResult | None]:
    """Returns the GPUs that the driver lists, and the result of the check."""
    try:
        listed = ask_driver("name", "driver_version", "memory.total", "memory.used")
    except FileNotFoundError:
        return [], None
    except subprocess.TimeoutExpired:
        found = f"nvidia-smi did not answer within {SECONDS_TO_ANSWER:.0f} s"
        cure = "the driver hangs: look at `dmesg`, and restart the machine"
        return [], CheckResult(PROBLEM, "GPU", found, cure)
    except (OSError, subprocess.CalledProcessError) as error:
        output = (getattr(error, "stdout", "") or str(error)).strip().splitlines()
        cure = "install the NVIDIA driver for this kernel, or restart the machine"
        return [], CheckResult(PROBLEM, "GPU", f"nvidia-smi fails: {output[-1]}", cure)
    return judge_gpus(parse_gpus(listed))


def parse_gpus(lines: Sequence[str]) -> list[Gpu]:
    """Returns the GPUs of lines with name, driver, memory and used memory."""
    gpus = []
    for line in lines:
        name, driver, memory, used = (part.strip() for part in line.rsplit(",", 3))
        numbers = [int(text) if text.isdigit() else 0 for text in (memory, used)]
        gpus.append(Gpu(name, driver, *numbers))
    return gpus


def judge_gpus(gpus: Sequence[Gpu]) -> tuple[list[Gpu], CheckResult | None]:
    """Returns the GPUs, and the result of the check."""
    if not gpus:
        return [], None
    first = gpus[0]
    memory = first.memory / 1024
    found = f"{len(gpus)} x {first.name}, {memory:.0f} GiB each, driver {first.driver}"
    busy = sum(gpu.memory_used > gpu.memory / 10 for gpu in gpus)
    if busy:
        found += f"; others use the memory of {busy}"
        cure = "see `nvidia-smi`; free it, or choose GPUs with CUDA_VISIBLE_DEVICES"
        return list(gpus), CheckResult(WARNING, "GPU", found, cure)
    return list(gpus), CheckResult(OK, "GPU", found)


def start_probe(script: str) -> subprocess.Popen[str]:
    """Starts a script in a Python of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        start_new_session=True,
    )


def take_answer(process: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    """Returns what a probe printed, or `{"error": what went wrong}`; a probe that hangs is ended."""
    try:
        printed, complaints = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"error": f"no answer within {seconds:.0f} s"}
    for line in printed.splitlines():
        if line.startswith(_MARK):
            answer: dict[str, Any] = json.loads(line.removeprefix(_MARK))
            return answer
    if process.returncode < 0:
        return {
            "error": f"importing it ends the process ({signal.Signals(-process.returncode).name})"
        }
    lines = complaints.strip().splitlines()
    return {"error": lines[-1] if lines else f"it ended with status {process.returncode}"}


def judge(name: str, answer: Mapping[str, Any], expected: str) -> CheckResult:
    """Returns the check of a library's answer.

    Args:
      name: of the library.
      answer: `version` and `kinds` (numbers of devices by kind), or `error`.
      expected: the kind of device that is here: `GPU`, `TPU` or `CPU`.
    """
    extra = {"GPU": "gpu", "TPU": "jax-tpu", "CPU": "tensorflow"}[expected]
    cure = f"pip install -c constraints.txt '.[{extra}]' into a fresh environment"
    if "error" in answer:
        return CheckResult(
            PROBLEM, name, str(answer["error"]), f"{cure}; see the lines on versions"
        )
    kinds = answer["kinds"]
    shown = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    found = f"{answer['version']} sees {shown or 'no device'}"
    if answer.get("cuda"):
        found += f" (built for CUDA {answer['cuda']}, cuDNN {answer.get('cudnn')})"
    # JAX calls a GPU by its platform.
    present = set(kinds) | ({"GPU"} if {"CUDA", "ROCM"} & set(kinds) else set())
    if expected not in present:
        return CheckResult(PROBLEM, name, f"{found}, but not the {expected} that is here", cure)
    return CheckResult(OK, name, found)
