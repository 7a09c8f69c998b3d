"""Our code that runs within Dask: the task that carries out a chunk, and plugins that let its runs save.

Dask calls tasks in a thread, where Python delivers no signals: SIGTERM, and Dask's wish to close a worker or
to cancel a task, reach the run as a notice (`runs.preemption.ask_to_stop`).
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

# Runs have the process's output and signals to themselves, so that a worker of Dask with several threads
# carries out one chunk at a time all the same.
_ONE_AT_A_TIME = threading.Lock()


class LaunchWorker(WorkerPlugin):
    """Lets a worker of Dask carry out runs, for any number of launches.

    Attributes:
      rank: of the worker among those that share a node, and so its GPUs; its name ends in it.
      launch: whose chunk it carries out now, or None.
      left: launches that start no more runs here.
      is_closing: whether nobody does.
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
        """Runs in the worker's event loop, its main thread unless a cluster is started in an unusual way."""
        code_digest()  # what it has imported is kept, whatever becomes of the files
        # The default lock is one among processes, of which a killed worker would leave a semaphore.
        tqdm.set_lock(threading.RLock())
        last = str(worker.name).rsplit("-", 1)[-1]
        self.rank = int(last) if self._workers_per_node > 1 and last.isdigit() else 0
        if self._is_local:
            # A terminal sends Ctrl-C to the launcher's group; the launcher decides what follows. When it
            # dies, the kernel hangs up a group of its own, even if its process is stopped.
            os.setpgid(0, 0)
        self._before = handle_signals(self._note_signal).get(signal.SIGTERM)

    def _note_signal(self, _number: int, frame: Any) -> None:
        self._stop()
        if callable(self._before):
            self._before(signal.SIGTERM, frame)  # Dask closes its worker on this one alone

    def transition(self, key: Any, start: str, finish: str, **_details: Any) -> None:
        """Stops the run whose task is cancelled, as when its launcher has died."""
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
                self._stop()  # again, as the run may just be beginning
                await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    def _stop(self) -> None:
        """Makes the run save; one that cannot save ends with the process."""
        ask_to_stop()
        end_if_it_cannot_save()


class LetsRunsSave(NannyPlugin):
    """Waits for a worker's run to save before the worker is ended, which has a few seconds otherwise."""

    name = f"{NAME}-nanny"
    idempotent = True

    async def teardown(self, nanny: Any) -> None:
        """Runs when the worker's nanny closes."""
        if nanny.is_alive():
            with contextlib.suppress(Exception):  # a worker that is stopped or gone cannot save
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
        with contextlib.suppress(Exception):  # then there is less time to save
            async with asyncio.timeout(_SECONDS_TO_PREPARE):
                await worker.rpc(worker.nanny).plugin_add(plugin=pickle.dumps(LetsRunsSave()))


async def leave(launch: str | None, dask_worker: Any) -> None:
    """Makes a worker leave a launch, or all; called by the launcher, or by the worker's nanny."""
    await dask_worker.plugins[NAME].leave(launch)


def carry_out(
    launch: str, calls: Sequence[Call], journal: str, context: LaunchContext
) -> tuple[dict[str, Outcome], float]:
    """Carries out a chunk in this worker, as a task of Dask; see `worker.carry_out_calls`.

    Dask may call a task again: its result stays where it was made until the launcher fetches it, and is
    lost with its worker; and a cluster of others may be set to try again by itself. Then the chunk's
    journal has attempts, which count: the launcher alone decides what is tried again.

    Where a worker has begun a run of the chunk before this one, and is gone, it raises `LostWorkerError`.
    """
    worker = get_worker()
    with _ONE_AT_A_TIME:
        if NAME not in worker.plugins and worker.status is Status.running:
            sync(worker.loop, _let_save, worker)
        plugin: Any = worker.plugins.get(NAME)
        if plugin is None or plugin.is_closing:  # a worker that closes has no plugins
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
