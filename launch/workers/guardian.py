"""Processes that never outlive their launcher: each watches it, wherever it runs, and leaves with it.

On the launcher's machine its process is watched, by id and creation time. Elsewhere its lease is: once it
is gone, held by another launcher or not renewed for long, the process leaves. What to watch stands in the
environment variable `LAUNCH_WATCH`, which every process of a launch inherits.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from multiberts.launch.markers.lease import SECONDS_UNTIL_STALE, read_lease
from multiberts.runs.processes import process_is_alive

VARIABLE = "LAUNCH_WATCH"
SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BETWEEN_LOOKS_AT_LEASE = 15.0
# For workers that were asked to stop; machines that are taken away leave 30 to 120 in all.
SECONDS_TO_SAVE = 100.0


@dataclass(frozen=True)
class Watch:
    """The launcher that a process belongs to.

    Attributes:
      root: the experiment's root.
      owner: of the lease.
      place: the machine, and there the space of process ids.
      pid: of the launcher.
      born: the launcher's creation time, so that another process with its id is not taken for it.
      seconds_until_stale: how long a lease elsewhere may go without being renewed.
      folder: removed by the process that sees the launcher gone, on the launcher's machine; or None.
    """

    root: str
    owner: str
    place: str
    pid: int
    born: float
    seconds_until_stale: float = SECONDS_UNTIL_STALE
    folder: str | None = None

    def spelled(self) -> str:
        """As a value of the environment variable."""
        return json.dumps(dataclasses.asdict(self))


def watch_this_process(root: str, owner: str, **settings: float | str | None) -> Watch:
    """Returns the watch of a launcher that is this process."""
    born = psutil.Process().create_time()
    values = {"root": root, "owner": owner, "place": _place(), "pid": os.getpid(), "born": born}
    return Watch(**{**values, **settings})


def watch_from_environment() -> Watch:
    """Returns the watch that this process inherited."""
    return Watch(**json.loads(os.environ[VARIABLE]))


def is_on_this_machine(watch: Watch) -> bool:
    """Returns whether the launcher is a process that this one can see."""
    return watch.place == _place()


def leave_with_launcher(watch: Watch, leave: Callable[[], None]) -> None:
    """Calls `leave` in a thread once the launcher is gone; returns at once."""
    is_gone: Callable[[Watch], bool] = _process_is_gone
    seconds = SECONDS_BETWEEN_LOOKS
    if not is_on_this_machine(watch):
        is_gone = _LeaseEnded()
        seconds = min(SECONDS_BETWEEN_LOOKS_AT_LEASE, watch.seconds_until_stale / 4)

    def look() -> None:
        while not is_gone(watch):
            time.sleep(seconds)
        leave()

    threading.Thread(target=look, name="guardian", daemon=True).start()


def _process_is_gone(watch: Watch) -> bool:
    return not process_is_alive(watch.pid, watch.born)


class _LeaseEnded:
    """Whether a lease is seen to have ended; by this machine's clock, which may differ from others'."""

    def __init__(self) -> None:
        self._renewed: float | None = None
        self._seen = time.monotonic()

    def __call__(self, watch: Watch) -> bool:
        holder = read_lease(watch.root)
        if holder is not None and holder.owner != watch.owner:
            return True
        renewed = None if holder is None else holder.renewed
        if renewed is not None and renewed != self._renewed:
            self._renewed, self._seen = renewed, time.monotonic()
        # A lease that is not there may only be out of sight, as network file systems have it.
        return time.monotonic() - self._seen > watch.seconds_until_stale


def _place() -> str:
    """Returns this machine, and within it the space of process ids (a container has its own)."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}"
