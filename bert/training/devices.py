"""JAX's devices: those of one process or of several, joined by a mesh with the one axis `data`.

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
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from multiberts.bert.training.processes import (
    AUTO,
    CPU,
    DeviceChoice,
    Devices,
    Processes,
    cluster_of_environment,
)
from multiberts.runs import console
from multiberts.runs.environment import machine
from multiberts.runs.errors import UserError

# The axis of a mesh along which a batch is divided.
DATA = "data"

# Device sets that this process has opened, by request.
_opened: dict[DeviceChoice, Devices] = {}


def open_devices(devices: DeviceChoice = AUTO) -> Devices:
    """Finds devices and joins several in a mesh; the same call gives the same devices.

    Must come before anything else of JAX's runs in the process, where several devices are asked for: logical
    CPU devices and the connections between processes are made at its start. A process may have one group of
    several devices per process (and one device besides).

    Args:
      devices: how many, in all processes; `auto`: all accelerators, or one CPU where there are none. More
        than one without accelerators: that many parts of the CPU, each a device of its own.

    Raises:
      UserError: more devices than there are, another group than before, or JAX has started already.
    """
    groups = [known for known, opened in _opened.items() if opened.mesh is not None]
    if devices not in _opened and devices != 1 and groups:
        raise UserError(
            f"devices is {devices}, but this process trains on {groups[0]} already; start another"
        )
    if devices not in _opened:
        _opened[devices] = _find_devices(devices)
    return _opened[devices]


def _find_devices(devices: DeviceChoice) -> Devices:
    addresses, process = cluster_of_environment()
    _make_cpu_devices(1 if devices == AUTO or len(addresses) > 1 else int(devices))
    if len(addresses) > 1:
        _join(addresses, process)
    known = jax.devices()
    is_cpu = known[0].platform == "cpu"
    _keep_programs(is_cpu)
    all_of_them = jax.process_count() if is_cpu else len(known)
    count = all_of_them if devices == AUTO else int(devices)
    if len(addresses) > 1 and count != all_of_them:
        raise UserError(
            f"devices is {count}, but the processes of TF_CONFIG have {all_of_them}; give 'auto'"
        )
    if count > len(known):
        cure = "open the devices before anything else of JAX's runs" if is_cpu else "lower it"
        raise UserError(f"devices is {count}, but JAX has {len(known)}; {cure}")
    mesh = Mesh(np.array(known[:count]), (DATA,)) if count > 1 else None
    processes = Processes(
        count=jax.process_count(),
        is_chief=process == 0,
        gather=_gather,
        is_engine_error=_is_engine_error,
    )
    kind = CPU if is_cpu else known[0].device_kind
    return Devices(mesh, count, kind, processes=processes)


def _is_engine_error(error: BaseException) -> bool:
    # Gloo's collectives of processors raise a ValueError.
    return isinstance(error, jax.errors.JaxRuntimeError) or (
        isinstance(error, ValueError) and "Gloo" in str(error)
    )


def _make_cpu_devices(count: int) -> None:
    """Divides the CPU into devices, where JAX has not started yet."""
    if count > 1:
        with contextlib.suppress(RuntimeError):  # it has: `_find_devices` counts what is there
            jax.config.update("jax_num_cpu_devices", count)


def _keep_programs(is_cpu: bool) -> None:
    """Keeps compiled programs in the user's cache, unless `JAX_COMPILATION_CACHE_DIR` is set.

    JAX compiles anew what it cannot read back.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        # Homes are shared by machines, and what was compiled for one processor may not run on another.
        name = f"jax-{_processor()}" if is_cpu else "jax"
        jax.config.update("jax_compilation_cache_dir", str(cache / "multiberts" / name))


def _processor() -> str:
    """Returns a name of the processors with this one's instructions."""
    found = [*machine().values(), platform.machine()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        found += sorted({line for line in lines if line.startswith(("flags", "Features"))})
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:12]


def _join(addresses: list[str], process: int) -> None:
    console.progress(f"joining the {len(addresses)} processes of TF_CONFIG")
    # SIGTERM is ours: `runs.preemption` notes it.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(addresses[0], len(addresses), process)
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"the processes of TF_CONFIG cannot be joined ({str(error).splitlines()[0]}); check its "
            "addresses, and open the devices before anything else of JAX's runs"
        ) from error


def _gather(own: np.ndarray) -> np.ndarray:
    """Gathers int64 [numbers] of every process; as halves, as JAX's integers have 32 bits."""
    halves = multihost_utils.process_allgather(own.view(np.uint32))
    found: np.ndarray = np.ascontiguousarray(halves, np.uint32).view(np.int64)
    return found
