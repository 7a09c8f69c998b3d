"""JAX's devices, joined by a mesh with the one axis `data`.

The devices take equal runs of the recipe's gradient shards, in order. On CPUs the bytes of the weights do not
depend on how many devices there are; elsewhere the last bits do.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from multiberts.bert.training.devices import AUTO, CPU, DeviceChoice, Devices
from multiberts.runs.environment import machine
from multiberts.runs.errors import UserError

# The axis of a mesh along which a batch is divided.
DATA = "data"

# Device sets that this process has opened, by request.
_opened: dict[DeviceChoice, Devices] = {}


def open_devices(devices: DeviceChoice = AUTO) -> Devices:
    """Opens devices and joins several in a mesh; the same call returns the same devices.

    With several devices, call it before any other use of JAX in the process: logical CPU devices are
    created when JAX starts. A process may have one group of several devices (and one device besides).

    Args:
      devices: number of devices; `auto`: all accelerators, or one CPU without any. More than one without
        accelerators: the CPU is split into that many devices.
    """
    if devices in _opened:
        return _opened[devices]
    groups = [number for number, opened in _opened.items() if opened.mesh is not None]
    if devices != 1 and groups:
        raise UserError(
            f"devices is {devices}, but this process trains on {groups[0]} already; start another"
        )
    if devices not in (1, AUTO):
        with contextlib.suppress(RuntimeError):  # JAX has started: its devices are counted below
            jax.config.update("jax_num_cpu_devices", devices)
    available = known_devices()
    is_cpu = available[0].platform == "cpu"
    _keep_programs(is_cpu)
    number = (1 if is_cpu else len(available)) if devices == AUTO else int(devices)
    if number > len(available):
        cure = "open the devices before anything else of JAX's runs" if is_cpu else "lower it"
        raise UserError(f"devices is {number}, but JAX has {len(available)}; {cure}")
    mesh = Mesh(np.array(available[:number]), (DATA,)) if number > 1 else None
    _opened[devices] = Devices(mesh, number, CPU if is_cpu else available[0].device_kind)
    return _opened[devices]


def known_devices() -> list[jax.Device]:
    """Returns JAX's devices."""
    try:
        return jax.devices()
    except (RuntimeError, AssertionError) as error:
        platforms = os.environ.get("JAX_PLATFORMS")
        if not platforms:
            raise
        reason = str(error).partition(" (set ")[0].strip() or "none is there"
        raise UserError(
            f"JAX_PLATFORMS is {platforms!r}, but JAX finds no such device ({reason}); check its driver, "
            "install JAX for it (multiberts[jax-cuda13], [jax-cuda12] or [jax-tpu]), or unset "
            "JAX_PLATFORMS to compute on what is there"
        ) from error


def _keep_programs(is_cpu: bool) -> None:
    """Keeps compiled programs in the user's cache, unless `JAX_COMPILATION_CACHE_DIR` is set.

    JAX recompiles programs that it cannot read back.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    name = "jax"
    if is_cpu:
        # Machines may share a home, and a program compiled for one processor may not run on another.
        facts, cpuinfo = [*machine().values(), platform.machine()], Path("/proc/cpuinfo")
        if cpuinfo.is_file():
            lines = cpuinfo.read_text(encoding="utf-8").splitlines()
            facts += sorted({line for line in lines if line.startswith(("flags", "Features"))})
        name += "-" + hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(cache / "multiberts" / name))
