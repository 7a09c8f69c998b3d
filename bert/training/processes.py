"""Devices and processes that train one model together.

Processes take the same decisions: their messages go through the engine's collectives, so every process
must call the same methods in the same order. With a single process nothing is sent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from multiberts.bert.model.operations import peak_flops_per_second
from multiberts.runs.early_exit import leave_at_once
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import PreemptedError

AUTO: Literal["auto"] = "auto"
DeviceChoice = int | Literal["auto"]

# The kind of a processor, as `Devices` has it.
CPU = "CPU"

# The tasks of a cluster that train.
_ROLES = ("chief", "worker")


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
        gather: Callable[[np.ndarray], np.ndarray] | None = None,
        is_engine_error: Callable[[BaseException], bool] = lambda _: False,
    ):
        """Args:
        count: how many processes.
        is_chief: whether this is process 0.
        gather: int64 [numbers] of this process -> int64 [processes, numbers]; not needed for one.
        is_engine_error: whether the engine raised it: memory is too small, or another process has ended.
        """
        self.count = count
        self.is_chief = is_chief
        self._gather = gather
        self._is_engine_error = is_engine_error

    def gather(self, numbers: Sequence[int]) -> np.ndarray:
        """Returns the numbers of every process, int64 [processes, numbers].

        Args:
          numbers: of this process; as many in each.

        Raises:
          UserError: another process has ended.
        """
        own = np.asarray(numbers, np.int64)
        if self.count == 1 or self._gather is None:
            return own[None]
        with self.report_errors():
            return self._gather(own)

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
    def report_errors(self) -> Iterator[None]:
        """Turns the engine's errors into one line where memory is too small or a process has ended.

        TPUs' compiler says before the first update that memory is too small; else the device does. After any
        error a process leaves at once, so that the others notice.
        """
        try:
            yield
        except PreemptedError:  # all processes stop at the same step
            raise
        except BaseException as error:
            if self.count > 1:
                leave_at_once()
            if not self._is_engine_error(error):
                raise
            if too_large := re.search("(RESOURCE_EXHAUSTED|[Oo]ut of memory).*", str(error)):
                raise UserError(
                    f"an update does not fit the device's memory ({too_large[0][:200]}); give "
                    "compute_dtype = 'bfloat16', a smaller batch_size, more gradient_shards (each is clipped "
                    "apart) or more devices"
                ) from error
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
      mesh: JAX's, which joins them; None for one device.
      count: devices in all processes.
      kind: the name that the driver of the first local device reports.
      processes: that train together.
    """

    mesh: Any
    count: int
    kind: str
    processes: Processes = dataclasses.field(default_factory=Processes)

    def check_shards(self, gradient_shards: int) -> None:
        """Refuses shards that cannot be divided evenly among the devices.

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


def cluster_of_environment() -> tuple[list[str], int]:
    """Returns the addresses of the processes that the environment's `TF_CONFIG` names, and which this is.

    The chief comes first; without `TF_CONFIG` there are no addresses.

    Raises:
      UserError: it is not what TensorFlow reads, or has no place for this process.
    """
    text = os.environ.get("TF_CONFIG")
    if not text:
        return [], 0
    try:
        settings = json.loads(text)
        cluster, task = settings.get("cluster", {}), settings.get("task", {})
        addresses = {role: list(cluster.get(role, [])) for role in _ROLES}
        role, index = task.get("type"), int(task.get("index", -1))
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"the environment's TF_CONFIG is not JSON of TensorFlow's form ({error}); unset or correct it"
        ) from error
    every = [address for role in _ROLES for address in addresses[role]]
    if len(every) > 1 and not 0 <= index < len(addresses.get(role, [])):
        raise UserError(
            f"the environment's TF_CONFIG has the task {role!r} {index}, which its cluster does not "
            f"name as one that trains ({' or '.join(_ROLES)}); correct it"
        )
    return every, index + (len(addresses["chief"]) if role == "worker" else 0)


def _number(fact: object) -> int:
    # 64 bits of a hash
    data = fact if isinstance(fact, bytes) else repr(fact).encode()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little", signed=True)
