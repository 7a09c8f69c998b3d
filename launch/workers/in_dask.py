"""Code that runs inside Dask: the task that carries out a chunk, and plugins that let its runs save.

Dask calls tasks in a thread, where Python delivers no signals. SIGTERM, closing a worker and cancelling a
task therefore reach the run as a notice (`runs.preemption.ask_to_stop`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

from distributed import NannyPlugin, Status, WorkerPlugin, get_worker
from distributed.protocol import pickle
from distributed.utils import sync
from tqdm import tqdm

from multiberts.launch.markers.attempts import file_of_journal, read_journal
from multiberts.launch.workers.worker import (
    SECONDS_TO_SAVE,
    Call,
    LaunchContext,
    Outcome,
    carry_out_calls,
    end_if_it_cannot_save,
)
from multiberts.runs.dask_cluster import BlamelessLossError, LostWorkerError
from multiberts.runs.preemption import ask_to_stop, handle_signals
from multiberts.runs.processes import code_digest

NAME = "multiberts-launch"
_SECONDS_BETWEEN_LOOKS = 0.05
_SECONDS_TO_PREPARE = 10

# A run needs the process's output and signals for itself, so a Dask worker with several threads carries out
# one chunk at a time.
_ONE_AT_A_TIME = threading.Lock()


class LaunchWorker(WorkerPlugin):
    """Lets a Dask worker carry out runs, for any number of launches.

    Attributes:
      rank: number of the worker on its node, which selects its GPU; the worker's name ends in it.
      launch: launch of the current chunk, or None.
      left: launches that start no more runs on this worker.
      is_closing: whether no launch starts runs on it any more.
    """

    name = NAME
    idempotent = True

    def __init__(self, workers_per_node: int, is_local: bool):
        self.rank = 0
        self.launch: str | None = None
        self.left: set[str] = set()
        self.is_closing = False
        self._before: Any = None
        self._workers_per_node = workers_per_node
        self._is_local = is_local

    def setup(self, worker: Any) -> None:
        """Called in the worker's event loop, usually its main thread."""
        code_digest()  # computed now, because the files may change later and the imported modules stay
        # tqdm's default lock is a semaphore, which a killed worker would leave behind.
        tqdm.set_lock(threading.RLock())
        last = str(worker.name).rsplit("-", 1)[-1]
        self.rank = int(last) if self._workers_per_node > 1 and last.isdigit() else 0
        if self._is_local:
            # A group of its own: a terminal's Ctrl-C then reaches the launcher only, and when the launcher
            # dies the kernel hangs up this group, even if the worker is stopped.
            os.setpgid(0, 0)
        self._before = handle_signals(self._note_signal).get(signal.SIGTERM)

    def _note_signal(self, _number: int, frame: Any) -> None:
        self._stop()
        if callable(self._before):
            self._before(signal.SIGTERM, frame)  # Dask closes its worker on SIGTERM only

    def transition(self, key: Any, start: str, finish: str, **_details: Any) -> None:
        """Stops the run of a cancelled task, for example when its launcher has died."""
        is_ours = self.launch is not None and str(key).startswith(self.launch)
        if is_ours and start == "executing" and finish == "released":
            self._stop()

    async def teardown(self, worker: Any) -> None:  # noqa: ARG002
        """Runs when the worker closes, also after the connection to the scheduler has broken."""
        await self.leave(None)

    async def leave(self, launch: str | None) -> None:
        """Makes the run of a launch save, waits until it has, and starts no other; None: of all."""
        if launch is None:
            self.is_closing = True
        else:
            self.left.add(launch)
        leaving = self.launch
        if leaving is not None and launch in (None, leaving):
            end = time.monotonic() + SECONDS_TO_SAVE
            while self.launch == leaving and time.monotonic() < end:
                self._stop()  # repeatedly, because the run may just be starting
                await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    def _stop(self) -> None:
        """Asks the run to save; ends the process if it cannot save."""
        ask_to_stop()
        end_if_it_cannot_save()


class LetsRunsSave(NannyPlugin):
    """Lets a worker's run save before Dask ends the worker, which otherwise has a few seconds."""

    name = f"{NAME}-nanny"
    idempotent = True

    async def teardown(self, nanny: Any) -> None:
        """Runs when the worker's nanny closes."""
        if nanny.is_alive():
            with contextlib.suppress(Exception):  # a stopped or dead worker cannot save
                async with asyncio.timeout(SECONDS_TO_SAVE):
                    await nanny.rpc(nanny.worker_address).run(
                        function=pickle.dumps(leave), args=pickle.dumps((None,)), wait=True
                    )


async def _let_save(worker: Any) -> None:
    """Adds our plugins to a worker that others started, and to its nanny.

    Its scheduler would add them to workers that lack this project, too, which could not start any more.
    """
    await worker.plugin_add(plugin=LaunchWorker(workers_per_node=1, is_local=False))
    if worker.nanny:
        with contextlib.suppress(Exception):  # a preempted machine leaves less time
            async with asyncio.timeout(_SECONDS_TO_PREPARE):
                await worker.rpc(worker.nanny).plugin_add(plugin=pickle.dumps(LetsRunsSave()))


async def leave(launch: str | None, dask_worker: Any) -> None:
    """Makes a worker leave a launch, or all; called by the launcher, or by the worker's nanny."""
    await dask_worker.plugins[NAME].leave(launch)


def carry_out(
    launch: str, calls: Sequence[Call], journal: str, context: LaunchContext
) -> tuple[dict[str, Outcome], float]:
    """Carries out a chunk in this worker, as a Dask task; see `worker.carry_out_calls`.

    Dask may call a task again: a result that was not fetched yet is lost with its worker, and somebody else's
    cluster may retry by itself. Attempts in the chunk's journal are then returned as the result; only the
    launcher retries.

    Raises `LostWorkerError` if a worker that is gone had begun a run of the chunk.
    """
    worker = get_worker()
    with _ONE_AT_A_TIME:
        if NAME not in worker.plugins and worker.status is Status.running:
            sync(worker.loop, _let_save, worker)
        plugin: Any = worker.plugins.get(NAME)
        if plugin is None or plugin.is_closing:  # a closing worker has no plugins
            raise BlamelessLossError("its worker is leaving")
        outcomes: dict[str, Outcome] = {}
        for attempt in read_journal(file_of_journal(context.root, journal)):
            if attempt.outcome is None:
                raise LostWorkerError(f"attempt {attempt.attempt} at {attempt.path} has no end")
            outcomes[attempt.path] = attempt.outcome, attempt.error
        plugin.launch = launch
        try:
            if outcomes or launch in plugin.left:
                return outcomes, 0.0
            return carry_out_calls(calls, context, plugin.rank, journal)
        finally:
            plugin.launch = None
