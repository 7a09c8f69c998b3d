"""JAX's devices: those of one process or of several, joined by a mesh with the one axis `data`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from multiberts.bert.training.devices import (
    AUTO,
    DeviceChoice,
    Devices,
    Processes,
    cluster_of_environment,
)
from multiberts.runs import console
from multiberts.runs.errors import UserError

# The axis of a mesh along which a batch is dealt.
DATA = "data"
# The kind of a processor, as `Devices` has it.
CPU = "CPU"


def find_devices(devices: DeviceChoice) -> Devices:
    """Finds the devices and joins several in a mesh; see `devices.open_devices`."""
    addresses, process = cluster_of_environment()
    _make_cpu_devices(1 if devices == AUTO or len(addresses) > 1 else int(devices))
    if len(addresses) > 1:
        _join(addresses, process)
    known = jax.devices()
    is_cpu = known[0].platform == "cpu"
    if not is_cpu:
        _keep_programs()
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
        lost=(jax.errors.JaxRuntimeError,),
    )
    kind = CPU if is_cpu else known[0].device_kind
    return Devices(mesh, count, kind, processes=processes)


def _make_cpu_devices(count: int) -> None:
    """Makes so many parts of the CPU devices of their own, where JAX has not started yet."""
    if count > 1:
        with contextlib.suppress(RuntimeError):  # it has: `find_devices` counts what is there
            jax.config.update("jax_num_cpu_devices", count)


def _keep_programs() -> None:
    """Keeps compiled programs in the user's cache, unless `JAX_COMPILATION_CACHE_DIR` is set.

    Not those of CPUs: another processor would read what was compiled for this one. JAX compiles anew what
    it cannot read back.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "multiberts" / "jax"))


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
