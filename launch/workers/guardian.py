"""Lets no process outlive its launcher: each watches the launcher and exits after it.

On the launcher's machine a process watches the launcher's process, by id and creation time. Elsewhere it
watches the lease, and exits once it is gone, held by another launcher, or not renewed for long. What to
watch is in the environment variable `LAUNCH_WATCH`, which every process of a launch inherits.
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
from typing import Any

from multiberts.launch.markers.lease import SECONDS_UNTIL_STALE, LeaseWatch
from multiberts.runs.processes import creation_time, process_is_alive

VARIABLE = "LAUNCH_WATCH"
SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BETWEEN_LOOKS_AT_LEASE = 15.0
# For workers that were asked to stop; preempted machines have 30 to 120 in all.
SECONDS_TO_SAVE = 100.0


@dataclass(frozen=True)
class Watch:
    """The launcher that a process belongs to.

    Attributes:
      root: the experiment's root.
      owner: of the lease.
      place: the machine, and its space of process ids.
      pid: of the launcher.
      born: the launcher's creation time, which tells it from a later process with the same id.
      seconds_until_stale: how long a lease elsewhere may stay without being renewed.
      folder: removed after the launcher, on its machine; or None.
    """

    root: str
    owner: str
    place: str
    pid: int
    born: float
    seconds_until_stale: float = SECONDS_UNTIL_STALE
    folder: str | None = None

    def spelled(self) -> str:
        """Returns the value of the environment variable."""
        return json.dumps(dataclasses.asdict(self))


def watch_this_process(root: str, owner: str, **settings: float | str | None) -> Watch:
    """Returns the watch of a launcher that is this process."""
    pid = os.getpid()
    born = creation_time(pid) or 0.0
    values: dict[str, Any] = {
        "root": root,
        "owner": owner,
        "place": _place(),
        "pid": pid,
        "born": born,
    }
    return Watch(**{**values, **settings})


def watch_from_environment() -> Watch:
    """Returns the watch that this process inherited."""
    return Watch(**json.loads(os.environ[VARIABLE]))


def is_on_this_machine(watch: Watch) -> bool:
    """Returns whether the launcher is a process that this one can see."""
    return watch.place == _place()


def leave_with_launcher(watch: Watch, leave: Callable[[], None]) -> None:
    """Calls `leave` in a thread once the launcher is gone; returns at once."""
    is_here = is_on_this_machine(watch)
    seconds = SECONDS_BETWEEN_LOOKS
    if not is_here:
        seconds = min(SECONDS_BETWEEN_LOOKS_AT_LEASE, watch.seconds_until_stale / 4)
    lease = LeaseWatch(watch.root)

    def is_gone() -> bool:
        if is_here:
            return not process_is_alive(watch.pid, watch.born)
        holder = lease.look()
        if holder is not None and holder.owner != watch.owner:
            return True
        # A lease that is not there may only be out of sight, as network file systems have it.
        return lease.silent_seconds > watch.seconds_until_stale

    def look() -> None:
        while not is_gone():
            time.sleep(seconds)
        leave()

    threading.Thread(target=look, name="guardian", daemon=True).start()


def _place() -> str:
    """Returns this machine, and within it the space of process ids (a container has its own)."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}"
