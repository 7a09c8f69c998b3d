"""The lease: one launcher an experiment, whoever starts a second one and wherever.

On one machine a file lock decides, which the kernel drops with the process. Across machines
`launch/lease.json` does, which the holder renews: {"owner", "host", "pid", "started", "renewed"}, times
in Unix seconds. Workers that see it grow old leave.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, write_atomically
from multiberts.runs.processes import process_is_alive

FILE = "launch/lease.json"
LOCK = "launch/.lock"
SECONDS_BETWEEN_RENEWALS = 15.0
SECONDS_UNTIL_STALE = 90.0


@dataclass(frozen=True)
class Holder:
    """Who has the lease.

    Attributes:
      owner: a UUID, another one for each launch.
      host, pid: of the launcher.
      started, renewed: Unix seconds.
    """

    owner: str
    host: str
    pid: int
    started: float
    renewed: float

    def is_gone(self, now: float) -> bool:
        """Returns whether it will not come back: its process has ended, or it was silent for too
        long.
        """
        if self.host == socket.gethostname():
            return not process_is_alive(self.pid)
        return now - self.renewed > SECONDS_UNTIL_STALE


class Lease:
    """The right to launch an experiment, held while the block runs.

    Usage:

        with Lease(root) as lease:
            while not lease.lost.is_set():
                ...

    Attributes:
      owner: the UUID in the marker.
      lost: set when another launcher took the lease over, as this one seemed to be gone.
    """

    def __init__(self, root: PathLike):
        """Takes nothing yet.

        Args:
          root: the experiment's root.
        """
        self._root = Path(root)
        self.owner = str(uuid.uuid4())
        self.lost = threading.Event()
        self._ended = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._lock: int | None = None
        self._started = 0.0

    @staticmethod
    def held(root: PathLike) -> Holder | None:
        """Who launches the experiment now; None if nobody does."""
        holder = read_lease(root)
        return None if holder is None or holder.is_gone(time.time()) else holder

    def __enter__(self) -> Lease:
        """Takes the lease.

        Raises:
          UserError: another launcher has it, or the root cannot be written.
        """
        lock = self._root / LOCK
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
        except OSError as error:
            raise UserError(
                f"cannot write {lock.parent}: {error.strerror}; choose another launch.root"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._unlock()
            raise self._refusal(read_lease(self._root)) from error
        holder = read_lease(self._root)
        # A holder on this machine had the lock, which was free: it is gone, whoever has its pid now.
        is_elsewhere = holder is not None and holder.host != socket.gethostname()
        if holder is not None and is_elsewhere and not holder.is_gone(time.time()):
            self._unlock()
            raise self._refusal(holder)
        self._started = time.time()
        self._write()
        self._renewing.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._renewing.join()  # or it could write the marker once more
        holder = read_lease(self._root)
        if holder is not None and holder.owner == self.owner:
            with contextlib.suppress(FileNotFoundError):
                (self._root / FILE).unlink()
        self._unlock()

    def _renew(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_RENEWALS):
            holder = read_lease(self._root)
            if holder is not None and holder.owner != self.owner:
                self.lost.set()
                return
            # A full disk must not end the launch: the lease only grows old.
            with contextlib.suppress(UserError, OSError):
                self._write()

    def _write(self) -> None:
        holder = Holder(
            self.owner, socket.gethostname(), os.getpid(), self._started, renewed=time.time()
        )
        write_atomically(self._root / FILE, json.dumps(dataclasses.asdict(holder)) + "\n")

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _refusal(self, holder: Holder | None) -> UserError:
        if holder is None:
            who = "another launcher, which is just starting"
        else:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.started))
            who = f"process {holder.pid} on {holder.host} since {since}"
        return UserError(
            f"{self._root} is being launched by {who}; wait for it, stop it, or choose another "
            "launch.root"
        )


def read_lease(root: PathLike) -> Holder | None:
    """Who holds the lease or held it last; None where no launcher left its marker."""
    try:
        values = json.loads((Path(root) / FILE).read_text())
        return Holder(**{field.name: values[field.name] for field in dataclasses.fields(Holder)})
    except (OSError, ValueError, KeyError):
        return None
