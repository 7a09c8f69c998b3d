"""The processes that train together: one message about all of them, and the same decisions in each.

What is said here goes through TensorFlow's collectives, so every process must say it, in the same
order as the others. A single process agrees with itself, and nothing is sent.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from multiberts.runs.errors import UserError

# What collectives raise where a process at the other end is gone.
_GONE = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)


class Processes:
    """All processes of a training. The chief is process 0.

    Attributes:
      count: how many.
      is_chief: whether this is the one that writes.
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
        strategy: that joins them; not needed for one.
        """
        self.count = count
        self.is_chief = is_chief
        self._strategy = strategy

    def gather(self, numbers: Sequence[int]) -> np.ndarray:
        """The numbers of every process, int64 [processes, numbers].

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

        with self.losses_told():
            tables = strategy.experimental_distribute_values_from_function(row)
            return strategy.reduce(tf.distribute.ReduceOp.SUM, tables, axis=None).numpy()

    def said_by_chief(self, number: int) -> int:
        """The chief's number."""
        return int(self.gather([number])[0, 0])

    def any(self, is_so: bool) -> bool:
        """Whether it is so in some process."""
        return bool(self.gather([int(is_so)]).any())

    def check_equal(self, facts: Mapping[str, object], cure: str) -> None:
        """Refuses to go on where a process knows something else than the chief.

        Args:
          facts: by name; compared by how they print, or by their digest if they are bytes.
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

    def part(self) -> None:
        """Waits until every process, the chief with its files written, has come here.

        Raises:
          UserError: a process ended before it came; not in the chief, whose work is done.
        """
        try:
            self.gather([0])
        except UserError:
            if not self.is_chief:
                raise
        # Whoever answers here has heard that all have come; that it then leaves harms nobody.
        with contextlib.suppress(UserError):
            self.gather([0])

    @contextlib.contextmanager
    def losses_told(self) -> Iterator[None]:
        """Turns what collectives raise when a process is gone into one line."""
        try:
            yield
        except _GONE as error:
            if self.count == 1:
                raise
            raise UserError(
                f"another of the {self.count} processes of TF_CONFIG has ended ({type(error).__name__}), "
                "and its own output says why; start all of them again: they go on from the last saved "
                "state"
            ) from error


def _number(fact: object) -> int:
    """64 bits that stand for a fact."""
    data = fact if isinstance(fact, bytes) else repr(fact).encode()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little", signed=True)
