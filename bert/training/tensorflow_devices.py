"""TensorFlow's devices: one needs no strategy, several share the work by one of TensorFlow's.

MirroredStrategy joins those of one process, MultiWorkerMirroredStrategy those of several (where the
environment's `TF_CONFIG` names the processes), TPUStrategy the cores of a TPU.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from multiberts.bert.training.devices import (
    AUTO,
    DeviceChoice,
    Devices,
    Processes,
    cluster_of_environment,
)
from multiberts.runs import console
from multiberts.runs.errors import UserError

# Errors that collectives raise when another process has ended.
_LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)

# TensorFlow's strategies print long notes; their warnings are still printed.
tf.get_logger().setLevel("WARNING")


def find_devices(devices: DeviceChoice) -> Devices:
    """Finds the devices and joins several by a strategy; see `devices.open_devices`."""
    if os.environ.get("TPU_NAME"):
        return _tpu(devices, os.environ["TPU_NAME"])
    addresses, process = cluster_of_environment()
    if len(addresses) > 1:
        return _of_several_processes(devices, len(addresses), process)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        count = len(gpus) if devices == AUTO else int(devices)
        if count > len(gpus):
            raise UserError(f"devices is {count}, but there are {len(gpus)} GPUs; lower it")
        names = [f"GPU:{number}" for number in range(count)]
    else:
        count = 1 if devices == AUTO else int(devices)
        names = _parts_of_the_cpu(count) if count > 1 else []
    strategy = tf.distribute.MirroredStrategy(names) if count > 1 else None
    return Devices(strategy, count, _kind())


def _of_several_processes(devices: DeviceChoice, num_processes: int, process: int) -> Devices:
    console.progress(f"joining the {num_processes} processes of TF_CONFIG")
    try:
        with _kept_sigterm():
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        raise UserError(
            f"the processes of TF_CONFIG cannot be joined ({str(error).splitlines()[0]}); check its "
            "addresses, and open the devices before anything else of TensorFlow's runs"
        ) from error
    count = strategy.num_replicas_in_sync

    def gather(own: np.ndarray) -> np.ndarray:
        def row(context: tf.distribute.ValueContext) -> tf.Tensor:
            table = np.zeros((num_processes, len(own)), np.int64)
            sender, device = divmod(context.replica_id_in_sync_group, count // num_processes)
            if device == 0:
                table[sender] = own
            return tf.constant(table)

        tables = strategy.experimental_distribute_values_from_function(row)
        found: np.ndarray = strategy.reduce(tf.distribute.ReduceOp.SUM, tables, axis=None).numpy()
        return found

    processes = Processes(count=num_processes, is_chief=process == 0, gather=gather, lost=_LOST)
    if devices not in (AUTO, count):
        raise UserError(
            f"devices is {devices}, but the processes of TF_CONFIG have {count}; give 'auto'"
        )
    return Devices(strategy, count, _kind(), processes=processes)


@contextlib.contextmanager
def _kept_sigterm() -> Iterator[None]:
    """Keeps what SIGTERM does: TensorFlow's coordination of processes takes the signal for itself."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _tpu(devices: DeviceChoice, name: str) -> Devices:
    """Opens all cores of a TPU, as TensorFlow's guide to TPUs describes; never run here."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    count = strategy.num_replicas_in_sync
    if devices not in (AUTO, count):
        raise UserError(f"devices is {devices}, but the TPU {name} has {count} cores; give 'auto'")
    return Devices(strategy, count, kind="TPU", compiles=False)


def _parts_of_the_cpu(count: int) -> list[str]:
    """Names of so many logical CPU devices, made where TensorFlow has not started yet."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    found = tf.config.get_logical_device_configuration(cpu)
    if found is None or len(found) < count:
        try:
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration()] * count
            )
        except RuntimeError as error:
            raise UserError(
                f"devices is {count}, but TensorFlow has started with fewer parts of the CPU; open "
                "the devices before anything else of TensorFlow's runs"
            ) from error
    return [f"CPU:{number}" for number in range(count)]


def _kind() -> str:
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return "CPU"
    details: dict[str, Any] = tf.config.experimental.get_device_details(gpus[0])
    return str(details.get("device_name", "GPU"))
