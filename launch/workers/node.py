"""The program of each node of a block: keeps workers running, and ends those that are silent.

    LAUNCH_WATCH=... LAUNCH_POOL=... python -m multiberts.launch.workers.node BLOCK

A worker writes to a pipe at each heartbeat. One that is silent for long (stopped, or hung) is killed, and
its connection to the launcher ends with it. A worker that has ended is replaced, unless it never connected:
then the node gives up, and what the worker printed says why.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import dataclass

import psutil

from multiberts.launch.workers.guardian import (
    SECONDS_TO_SAVE,
    Watch,
    is_on_this_machine,
    leave_with_launcher,
    watch_from_environment,
)
from multiberts.launch.workers.heartbeats import WatchedProcess

POOL_VARIABLE = "LAUNCH_POOL"
_SECONDS_BETWEEN_LOOKS = 0.1


@dataclass(frozen=True)
class PoolAddress:
    """How workers reach their launcher.

    Attributes:
      hosts: names or addresses, to be tried in order.
      port: of each.
      token: shared by the launcher and its workers.
      workers: how many a node has.
      silent_seconds: a worker without a heartbeat for so long is killed.
    """

    hosts: list[str]
    port: int
    token: str
    workers: int
    silent_seconds: float

    @classmethod
    def from_environment(cls) -> PoolAddress:
        """Returns the address that the launcher put into the environment of its blocks."""
        return cls(**json.loads(os.environ[POOL_VARIABLE]))


def keep_workers(block: str, address: PoolAddress) -> int:
    """Keeps workers running until SIGTERM comes.

    Args:
      block: the number of the block.
      address: how many workers, and how they reach the launcher.

    Returns:
      The exit status: 1 if a worker ended before it could connect.
    """
    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    command = [sys.executable, "-m", "multiberts.launch.workers.worker", block]

    def start(rank: int) -> WatchedProcess:
        return WatchedProcess([*command, str(rank)], address.silent_seconds)

    workers = [start(rank) for rank in range(address.workers)]
    status = 0
    while not status and not asked_to_stop.wait(_SECONDS_BETWEEN_LOOKS):
        for rank, worker in enumerate(workers):
            if worker.poll() is None:
                continue
            # Its first heartbeat comes after it has connected.
            status = status or int(not worker.has_spoken)
            worker.close()
            workers[rank] = start(rank)
    _end_children(SECONDS_TO_SAVE)
    return status


def _end_children(seconds_to_save: float) -> None:
    """Asks all descendants to exit, repeatedly, as a worker may be between two runs; then kills them."""
    # The semaphore tracker of multiprocessing exits by itself, after it has removed them.
    children = [
        child
        for child in psutil.Process().children(recursive=True)
        if not _has_word(child, "resource_tracker")
    ]
    end = time.monotonic() + seconds_to_save
    while time.monotonic() < end and children:
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.terminate()
        _, children = psutil.wait_procs(children, timeout=0.2)
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()


def _has_word(process: psutil.Process, word: str) -> bool:
    try:
        return any(word in part for part in process.cmdline())
    except psutil.Error:
        return False


def _leave(watch: Watch) -> None:
    """Ends this process and those it started; on other machines than the launcher's they may save first."""
    is_local = is_on_this_machine(watch)
    _end_children(0 if is_local else SECONDS_TO_SAVE)
    if watch.folder is not None and is_local:
        shutil.rmtree(watch.folder, ignore_errors=True)
    os._exit(1)


def main() -> None:
    """Keeps the workers of one node."""
    watch = watch_from_environment()
    # A terminal sends Ctrl-C to the whole group; the launcher decides what follows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    leave_with_launcher(watch, lambda: _leave(watch))
    sys.exit(keep_workers(sys.argv[1], PoolAddress.from_environment()))


if __name__ == "__main__":
    main()
