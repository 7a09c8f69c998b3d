"""Which devices and processes train together, and how they share the work.

One device needs no strategy. Several in one process share it by TensorFlow's MirroredStrategy,
those of several processes by MultiWorkerMirroredStrategy (where the environment's `TF_CONFIG` names
the processes), TPU cores by TPUStrategy. The recipe's gradient shards are dealt to the devices in
order. On CPUs, where the step is compiled, the bytes of the weights do not depend on how many devices
there are; elsewhere the last bits do.

Processes take the same decisions: their messages go through TensorFlow's collectives, so every process
must call the same methods in the same order. With a single process nothing is sent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from multiberts.bert.model.operations import peak_flops_per_second
from multiberts.runs import console
from multiberts.runs.errors import UserError

AUTO: Literal["auto"] = "auto"
DeviceChoice = int | Literal["auto"]

# The tasks of a cluster that train.
_ROLES = ("chief", "worker")

# Errors that collectives raise when another process has ended.
_GONE = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)

# TensorFlow's strategies print long notes; their warnings are still printed.
tf.get_logger().setLevel("WARNING")


class Processes:
    """All processes that train one model together. The chief is process 0.

    Attributes:
      count: how many.
      is_chief: whether this process is the chief, which alone writes.
    """

    def __init__(
        self,
        *,
        count: int = 1,
        is_chief: bool = True,
        strategy: tf.distribute.Strategy | None = None,
    ):
        """Args:
        count: how many processes.
        is_chief: whether this is process 0.
        strategy: TensorFlow's strategy that joins them; not needed for one.
        """
        self.count = count
        self.is_chief = is_chief
        self._strategy = strategy

    def gather(self, numbers: Sequence[int]) -> np.ndarray:
        """Returns the numbers of every process, int64 [processes, numbers].

        Args:
          numbers: of this process; as many in each.

        Raises:
          UserError: another process has ended.
        """
        own = np.asarray(numbers, np.int64)
        strategy = self._strategy
        if self.count == 1 or strategy is None:
            return own[None]
        devices_of_each = strategy.num_replicas_in_sync // self.count

        def row(context: tf.distribute.ValueContext) -> tf.Tensor:
            table = np.zeros((self.count, len(own)), np.int64)
            process, device = divmod(context.replica_id_in_sync_group, devices_of_each)
            if device == 0:
                table[process] = own
            return tf.constant(table)

        with self.report_lost_process():
            tables = strategy.experimental_distribute_values_from_function(row)
            found: np.ndarray = strategy.reduce(
                tf.distribute.ReduceOp.SUM, tables, axis=None
            ).numpy()
            return found

    def broadcast_from_chief(self, number: int) -> int:
        """Returns the chief's number, in every process."""
        return int(self.gather([number])[0, 0])

    def any(self, is_so: bool) -> bool:
        """Returns whether `is_so` is true in at least one process."""
        return bool(self.gather([int(is_so)]).any())

    def check_equal(self, facts: Mapping[str, object], cure: str) -> None:
        """Raises an error where a process has other facts than the chief.

        Args:
          facts: by name; compared by their `repr`, or as they are if they are bytes.
          cure: what the user can do.

        Raises:
          UserError: in every process, naming the process and the fact.
        """
        names = sorted(facts)
        known = self.gather([_number(facts[name]) for name in names])
        for process, numbers in enumerate(known):
            for name, number, of_chief in zip(names, numbers, known[0], strict=True):
                if number != of_chief:
                    raise UserError(f"process {process} has another {name} than process 0; {cure}")

    def wait_for_all(self) -> None:
        """Waits until every process has called this, the chief with its files written.

        Raises:
          UserError: a process ended before; not raised in the chief, whose work is done.
        """
        try:
            self.gather([0])
        except UserError:
            if not self.is_chief:
                raise
        # Second barrier: a process that reaches it knows that all passed the first, so it may exit.
        with contextlib.suppress(UserError):
            self.gather([0])

    @contextlib.contextmanager
    def report_lost_process(self) -> Iterator[None]:
        """Turns the errors that collectives raise when a process has ended into one line."""
        try:
            yield
        except _GONE as error:
            if self.count == 1:
                raise
            raise UserError(
                f"another of the {self.count} processes of TF_CONFIG has ended ({type(error).__name__}); "
                "see its own output for the reason, and start all of them again: they resume from the "
                "last saved state"
            ) from error


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of all processes that train together.

    Attributes:
      strategy: TensorFlow's strategy; None for one device.
      count: devices in all processes.
      kind: the name that the driver of the first local device reports.
      compiles: whether a step may be compiled by XLA by itself (on TPU, all is compiled anyway).
      processes: that train together.
    """

    strategy: tf.distribute.Strategy | None
    count: int
    kind: str
    compiles: bool = True
    processes: Processes = dataclasses.field(default_factory=Processes)

    def check_shards(self, gradient_shards: int) -> None:
        """Refuses shards that cannot be dealt evenly.

        Raises:
          UserError: `gradient_shards` is not a multiple of the number of devices.
        """
        if gradient_shards % self.count:
            raise UserError(
                f"gradient_shards {gradient_shards} is not a multiple of the {self.count} devices; set "
                "devices to a number that divides it (the shards are part of the recipe)"
            )

    def peak_flops_per_second(self, compute_dtype: str = "float32") -> float | None:
        """Returns the peak of all devices by the makers' data sheets; None where not known."""
        peak = peak_flops_per_second(self.kind, compute_dtype)
        return None if peak is None else peak * self.count


def open_devices(devices: DeviceChoice = AUTO) -> Devices:
    """Finds devices and makes the strategy; the same call gives the same devices.

    Must come before anything else of TensorFlow's runs in the process, where several devices are
    asked for: logical CPU devices and the connections between processes are made at its start.
    TensorFlow allows one group of several devices per process (and one device besides).

    Args:
      devices: how many, in all processes; `auto`: all accelerators, or one CPU where there are
        none. More than one without accelerators: so many parts of the CPU, each a device of its
        own. A TPU (the environment's `TPU_NAME` is set, `local` on a TPU's own machine) is used
        as a whole.

    Returns:
      The devices. The code for TPUs follows TensorFlow's documentation but was never run here.

    Raises:
      UserError: more devices than there are, another group than before, or TensorFlow has started
        already.
    """
    if devices != AUTO and (not isinstance(devices, int) or devices < 1):
        raise UserError(f"devices is {devices!r}; give 'auto' or a number from 1")
    groups = [known for known, opened in _opened.items() if opened.strategy is not None]
    if devices not in _opened and devices != 1 and groups:
        raise UserError(
            f"devices is {devices}, but this process trains on {groups[0]} already; start another"
        )
    if devices not in _opened:
        _opened[devices] = _found(devices)
    return _opened[devices]


# What this process has opened, by what was asked for.
_opened: dict[DeviceChoice, Devices] = {}


def _found(devices: DeviceChoice) -> Devices:
    if os.environ.get("TPU_NAME"):
        return _tpu(devices, os.environ["TPU_NAME"])
    num_processes = _num_processes()
    if num_processes > 1:
        return _of_several_processes(devices, num_processes)
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


def _num_processes() -> int:
    """Returns how many processes that train the environment's `TF_CONFIG` names.

    Raises:
      UserError: it is not what TensorFlow reads, or has no place for this process.
    """
    text = os.environ.get("TF_CONFIG")
    if not text:
        return 1
    try:
        settings = json.loads(text)
        cluster, task = settings.get("cluster", {}), settings.get("task", {})
        counts = {role: len(cluster.get(role, [])) for role in _ROLES}
        role, index = task.get("type"), int(task.get("index", -1))
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"the environment's TF_CONFIG is not JSON of TensorFlow's form ({error}); unset or correct it"
        ) from error
    count = sum(counts.values())
    if count > 1 and not 0 <= index < counts.get(role, 0):
        raise UserError(
            f"the environment's TF_CONFIG has the task {role!r} {index}, which its cluster does not "
            f"name as one that trains ({' or '.join(_ROLES)}); correct it"
        )
    return count


def _of_several_processes(devices: DeviceChoice, num_processes: int) -> Devices:
    console.progress(f"joining the {num_processes} processes of TF_CONFIG")
    try:
        with _kept_sigterm():
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        raise UserError(
            f"the processes of TF_CONFIG cannot be joined ({str(error).splitlines()[0]}); check its "
            "addresses, and open the devices before anything else of TensorFlow's runs"
        ) from error
    resolver, count = strategy.cluster_resolver, strategy.num_replicas_in_sync
    # Without a chief by name, the first worker is the chief.
    chief = resolver.task_type == "chief" or (
        resolver.task_id == 0 and not resolver.cluster_spec().as_dict().get("chief")
    )
    processes = Processes(count=num_processes, is_chief=chief, strategy=strategy)
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


def _number(fact: object) -> int:
    """Returns 64 bits of a hash of a fact."""
    data = fact if isinstance(fact, bytes) else repr(fact).encode()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little", signed=True)
