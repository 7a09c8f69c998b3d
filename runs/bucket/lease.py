"""A lease: at most one process writes a run in a bucket, or launches an experiment, across machines.

The lease is an object that its holder renews. Another process can take it over after a long time without
renewal, or if the holder was a process of this machine that has ended. The waiting process measures the
time by its own monotonic clock: clocks of two machines are never compared. Each write is conditional on the
version read before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
import uuid

from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.console import progress
from multiberts.runs.errors import UserError
from multiberts.runs.lease_holder import Holder

LEASE = "LEASE.json"
SECONDS_UNTIL_STALE = 60.0
DAMAGED = "if nothing runs there, remove it"
# Upper limit of the waiting time that a lease's content may ask for.
_LONGEST_PATIENCE = 900.0


class LeaseLostError(UserError):
    """Another process writes the run now; nothing more may be pushed."""


class LeaseHeldError(UserError):
    """Another process, `holder`, has the lease; None: one that is just starting."""

    holder: Holder | None = None


@dataclasses.dataclass(eq=False)
class Lease:
    """The right to write below a URL, once it is acquired.

    Attributes:
      seconds_until_stale: time without renewal after which others may take the lease over; it is
        renewed every quarter of this time.
      name: name of the lease object.
      place: path or URL that the lease protects, for messages; default: the bucket's URL.
      verb: what the holder does to it, a past participle for messages.
      setting: parameter to change for another path, for messages.
      may_vanish: whether a renewal rewrites a removed or damaged object, because a kernel lock also
        keeps others out.
      owner: unique name of this holder, a new one for each object.
      lost: set when a renewal finds that another process has taken the lease over.
    """

    bucket: Bucket
    seconds_until_stale: float = SECONDS_UNTIL_STALE
    _: dataclasses.KW_ONLY
    name: str = LEASE
    place: str = ""
    verb: str = "written"
    setting: str = "run_dir"
    may_vanish: bool = False

    def __post_init__(self) -> None:
        self.owner = uuid.uuid4().hex
        self.lost = threading.Event()
        self.place = self.place or self.bucket.url
        self._version: str | None = None
        self._started = time.time()
        self._using = threading.Lock()
        self._ended = threading.Event()

    def acquire(self) -> None:
        """Acquires the lease; waits for the lease of a dead holder to expire."""
        content, version = self.bucket.read_version(self.name)
        first_version = version
        began, has_reported = time.monotonic(), False
        while True:
            holder = None
            if content is not None:
                holder = Holder.parse(content, f"{self.bucket.url}/{self.name}", DAMAGED)
            patience = min(holder.seconds_until_stale, _LONGEST_PATIENCE) if holder else 0.0
            is_changed = version not in (None, first_version)
            is_silent = not is_changed and time.monotonic() - began > patience
            if holder is None or is_silent or holder.is_gone():
                self._version = self.bucket.write_if(self.name, self._content(), version)
                if self._version is not None:
                    break
            elif is_changed or (
                holder.is_here and 0 <= time.time() - holder.renewed < patience / 2
            ):
                raise self.refusal(holder)  # a holder on this machine has our clock
            elif not has_reported:
                has_reported = True
                progress(
                    f"{self.place} was {self.verb} by process {holder.pid} on {holder.host}: "
                    f"waiting up to {patience:.0f} s for its next sign of life"
                )
            time.sleep(self.seconds_until_stale / 60)
            content, version = self.bucket.read_version(self.name)
        threading.Thread(target=self._renew, daemon=True).start()

    def refusal(self, holder: Holder | None) -> LeaseHeldError:
        starting = "another process, which is just starting"
        who = f"process {holder.pid} on {holder.host}" if holder else starting
        error = LeaseHeldError(
            f"{self.place} is being {self.verb} by {who}; wait for it, stop it, or choose another "
            f"{self.setting}"
        )
        error.holder = holder
        return error

    def check(self) -> None:
        """Raises LeaseLostError if the lease is no longer ours."""
        with self._using:
            if self._version is not None:
                if self.bucket.read_version(self.name)[1] == self._version:
                    return
                self._version = None
            raise LeaseLostError(
                f"{self.place} was taken over by another process, because this one was silent for "
                "too long; the other continues, and nothing more is written from here"
            )

    def release(self) -> None:
        """Releases the lease, if it is still ours."""
        self._ended.set()
        with self._using:
            version, self._version = self._version, None
            if version is not None:
                self.bucket.remove_if(self.name, version)

    def _renew(self) -> None:
        while not self._ended.wait(self.seconds_until_stale / 4):
            with self._using:
                if self._version is None:
                    return
                # Bucket out of reach or disk full: the lease is ours until somebody takes it over.
                with contextlib.suppress(UserError, OSError):
                    self._version = self._rewritten()
                if self._version is None:
                    self.lost.set()
                    return

    def _rewritten(self) -> str | None:
        if not self.may_vanish:
            return self.bucket.write_if(self.name, self._content(), self._version)
        while True:  # again if it vanishes between reading and writing
            content, stored = self.bucket.read_version(self.name)
            with contextlib.suppress(UserError):  # a damaged one is rewritten
                if content is not None and Holder.parse(content, "", "").owner != self.owner:
                    return None
            version = self.bucket.write_if(self.name, self._content(), stored)
            if version is not None:
                return version

    def _content(self) -> bytes:
        seconds = self.seconds_until_stale
        holder = Holder(owner=self.owner, started=self._started, seconds_until_stale=seconds)
        return holder.to_json().encode()
