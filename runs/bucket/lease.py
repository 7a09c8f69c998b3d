"""The lease on a run in a bucket: at most one process writes it, across machines.

An object that its holder renews. It can be taken over when no renewal is seen for long, or its holder
was a process of this machine that is gone. How long is measured by the monotonic clock of who waits:
the clocks of two machines are never compared. Each write is on the condition that nobody wrote in
between.
"""

from __future__ import annotations

import threading
import time
import uuid

from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.console import progress
from multiberts.runs.errors import UserError
from multiberts.runs.lease_holder import Holder

LEASE = "LEASE.json"
SECONDS_UNTIL_STALE = 60.0
# A lease asks to be waited for itself; nobody's is for longer.
_LONGEST_PATIENCE = 900.0


class LeaseLostError(UserError):
    """Another process writes the run now; nothing more may be pushed."""


class BucketLease:
    """The right to write below a URL.

    Attributes:
      owner: a name of this holder, another one each time.
    """

    def __init__(self, bucket: Bucket, seconds_until_stale: float = SECONDS_UNTIL_STALE):
        """Takes nothing yet.

        Args:
          seconds_until_stale: after so long without renewal others may take it over; it is
            renewed four times as often.
        """
        self.owner = uuid.uuid4().hex
        self._bucket = bucket
        self._seconds = seconds_until_stale
        self._version: str | None = None
        self._renewed = 0.0  # monotonic
        self._started = time.time()
        self._using = threading.Lock()
        self._ended = threading.Event()

    def acquire(self) -> None:
        """Takes the lease; waits until the lease of a holder that is gone has expired."""
        content, version = self._bucket.read_version(LEASE)
        first_version = version
        began, has_reported = time.monotonic(), False
        while True:
            holder = None
            if content is not None:
                where = f"{self._bucket.url}/{LEASE}"
                holder = Holder.parse(content, where, "if nothing writes this run, remove it")
            patience = min(holder.seconds_until_stale, _LONGEST_PATIENCE) if holder else 0.0
            is_changed = version not in (None, first_version)
            is_silent = not is_changed and time.monotonic() - began > patience
            if holder is None or is_silent or holder.is_gone():
                written = self._bucket.write_if(LEASE, self._content(), version)
                if written is not None:
                    break
            elif is_changed:
                raise UserError(
                    f"{self._bucket.url} is being written by process {holder.pid} on "
                    f"{holder.host}; wait for it, stop it, or choose another run_dir"
                )
            elif not has_reported:
                has_reported = True
                progress(
                    f"{self._bucket.url} was written by process {holder.pid} on {holder.host}: "
                    f"waiting up to {patience:.0f} s for its next sign of life"
                )
            time.sleep(self._seconds / 60)
            content, version = self._bucket.read_version(LEASE)
        self._version, self._renewed = written, time.monotonic()
        threading.Thread(target=self._renew, daemon=True).start()

    def check(self) -> None:
        """Checks that the lease is still ours.

        Raises:
          LeaseLostError: it is not.
        """
        with self._using:
            if self._version is not None:
                if self._bucket.read_version(LEASE)[1] == self._version:
                    return
                self._version = None
            raise LeaseLostError(
                f"{self._bucket.url} was taken over by another process, because this one was silent for "
                "too long; the other continues, and nothing more is written from here"
            )

    def release(self) -> None:
        """Gives the lease back, if it is still ours."""
        self._ended.set()
        with self._using:
            version, self._version = self._version, None
            if version is not None:
                self._bucket.remove_if(LEASE, version)

    def _renew(self) -> None:
        while not self._ended.wait(self._seconds / 4):
            with self._using:
                if self._version is None:
                    return
                try:
                    self._version = self._bucket.write_if(LEASE, self._content(), self._version)
                    self._renewed = time.monotonic()
                except UserError:
                    # Out of reach for a moment: retried until others might have taken it.
                    if time.monotonic() - self._renewed > self._seconds:
                        self._version = None

    def _content(self) -> bytes:
        holder = Holder.of_this_process(self.owner, self._started, self._seconds)
        return holder.to_json().encode()
