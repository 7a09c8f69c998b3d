"""Communication between the processes that train together, so that all take the same decisions.

Messages go through TensorFlow's collectives, so every process must call the same methods in the same
order. With a single process nothing is sent.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from multiberts.runs.errors import UserError

# Errors that collectives raise when another process has ended.
_GONE = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)


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


def _number(fact: object) -> int:
    """Returns 64 bits of a hash of a fact."""
    data = fact if isinstance(fact, bytes) else repr(fact).encode()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little", signed=True)
