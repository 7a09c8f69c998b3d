"""The lease: one launcher per experiment, across processes and machines.

On one machine a file lock decides, which the kernel drops with the process. Across machines
`launch/lease.json` does, which the holder renews (`runs.lease_holder`). Liveness: the file changed
recently, on the observer's monotonic clock, as clocks of two machines are never compared.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from pathlib import Path

from multiberts.runs.console import note_once, progress
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, open_marker, write_atomically
from multiberts.runs.lease_holder import Holder, NoLocksError, lock_file

FILE = "launch/lease.json"
LOCK = "launch/.lock"
# A lease is stale after six missed renewals: one late write on a slow file system ends no launch.
SECONDS_BETWEEN_RENEWALS = 15.0
SECONDS_UNTIL_STALE = 90.0
SECONDS_BETWEEN_LOOKS = 0.5


def time_of_disk(root: PathLike) -> float:
    """Returns the Unix time by the clock that dates the files of a root, such as a file server's.

    Where the root cannot be written it is this machine's, which may differ by minutes.
    """
    lock = Path(root) / LOCK
    with contextlib.suppress(OSError):
        os.utime(lock)
        return lock.stat().st_mtime
    return time.time()


class LeaseWatch:
    """Looks at a lease repeatedly, and notes when it changes."""

    def __init__(self, root: PathLike):
        self._root = root
        self._known = self._read()
        self._changed = time.monotonic()
        self.changes = 0

    def look(self) -> Holder | None:
        """Returns the holder in the marker; None where there is none, or the marker is damaged."""
        holder = self._read()
        if holder != self._known and holder is not None:
            self._changed, self.changes = time.monotonic(), self.changes + 1
            self._known = holder
        return holder

    @property
    def silent_seconds(self) -> float:
        return time.monotonic() - self._changed

    def _read(self) -> Holder | None:
        with contextlib.suppress(UserError):
            return read_lease(self._root)
        return None


class Lease:
    """The right to launch an experiment, held while the block runs.

    Usage:

        with Lease(root) as lease:
            while not lease.lost.is_set():
                ...

    Attributes:
      lost: set when another launcher took the lease over, as this one seemed to be gone.
    """

    def __init__(self, root: PathLike):
        self._root = Path(root)
        self.owner = str(uuid.uuid4())
        self.lost = threading.Event()
        self._ended = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._lock: int | None = None
        self._started = 0.0

    @staticmethod
    def held(root: PathLike) -> Holder | None:
        """Returns who launches the experiment now, at a glance; None if nobody does.

        A launcher on another machine counts while the marker's file is young, by the disk's clock:
        good enough to show, not to decide (see `awaited`).
        """
        holder = read_lease(root)
        if holder is None or holder.is_gone():
            return None
        with contextlib.suppress(FileNotFoundError):
            age = time_of_disk(root) - (Path(root) / FILE).stat().st_mtime
            return holder if holder.is_here or age <= SECONDS_UNTIL_STALE else None
        return None

    @staticmethod
    def awaited(root: PathLike) -> Holder | None:
        """Returns who launches the experiment now, after waiting for a renewal from elsewhere."""
        holder = read_lease(root)
        if holder is None or holder.is_here:
            return None if holder is None or holder.is_gone() else holder
        progress(
            f"{root} was launched by process {holder.pid} on {holder.host}: waiting up to "
            f"{SECONDS_UNTIL_STALE:.0f} s for its next sign of life"
        )
        watch = LeaseWatch(root)
        while watch.silent_seconds <= SECONDS_UNTIL_STALE:
            holder = watch.look()
            if holder is None or watch.changes:
                return holder
            time.sleep(SECONDS_BETWEEN_LOOKS)
        return None

    def __enter__(self) -> Lease:
        lock = self._root / LOCK
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
        except OSError as error:
            raise UserError(
                f"cannot write {lock.parent}: {error.strerror}; choose another launch.root"
            ) from error
        try:
            has_locks = True
            try:
                if not lock_file(self._lock, lock):
                    raise self._refusal(read_lease(self._root))
            except NoLocksError as error:
                has_locks = False
                reason = str(error).partition("; ")[0]
                note_once(f"{reason}: only {FILE}, which is renewed, keeps other launchers out")
            holder = read_lease(self._root)
            # A holder on this machine had the lock, which was free: it is gone, whoever has its pid.
            if holder is not None and not (holder.is_here and has_locks):
                holder = self.awaited(self._root)
                if holder is not None:
                    raise self._refusal(holder)
            self._started = time.time()
            self._write()
        except BaseException:
            self._unlock()
            raise
        self._renewing.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._renewing.join()  # or it could write the marker once more
        holder = LeaseWatch(self._root).look()
        if holder is not None and holder.owner == self.owner:
            with contextlib.suppress(FileNotFoundError):
                (self._root / FILE).unlink()
        self._unlock()

    def _renew(self) -> None:
        watch = LeaseWatch(self._root)
        while not self._ended.wait(SECONDS_BETWEEN_RENEWALS):
            holder = watch.look()
            # Taken over while this process was silent: two launchers would start the same runs.
            if holder is not None and holder.owner != self.owner:
                self.lost.set()
                return
            # A full disk must not end the launch: the lease only grows old.
            with contextlib.suppress(UserError, OSError):
                self._write()

    def _write(self) -> None:
        holder = Holder.of_this_process(self.owner, self._started, SECONDS_UNTIL_STALE)
        write_atomically(self._root / FILE, holder.to_json())

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _refusal(self, holder: Holder | None) -> UserError:
        who = "another launcher, which is just starting"
        if holder is not None:
            who = f"process {holder.pid} on {holder.host}"
        return UserError(
            f"{self._root} is being launched by {who}; wait for it, stop it, or choose another "
            "launch.root"
        )


def read_lease(root: PathLike) -> Holder | None:
    """Returns who holds the lease or held it last; None where no launcher left its marker."""
    path = Path(root) / FILE
    try:
        with open_marker(path) as stream:
            content = stream.read()
    except FileNotFoundError:
        return None
    return Holder.parse(content, str(path), "if no launcher runs, remove it")
