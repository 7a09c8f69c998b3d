"""Runs many independent tasks: in worker processes of this machine, or on a cluster of Dask.

A task is a function of its arguments alone that writes files and returns something small, so the outcome
does not depend on the worker, nor on how many there are. Results come back in the order of the tasks,
and of several errors the first task's is raised.

Every machine of a cluster needs this project and what it requires, and must see the sources and the run
directory under the same paths (a shared or mounted file system): tasks read and write files there, and
through Dask go their names alone. docs/clusters.md says how clusters are started.
"""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from multiberts.runs.console import ProgressBar
from multiberts.runs.dask_cluster import (
    SECONDS_BETWEEN_LOOKS,
    LostWorkerError,
    Workers,
    connect,
)
from multiberts.runs.errors import UserError
from multiberts.runs.processes import available_cores

Task = TypeVar("Task")
Result = TypeVar("Result")

# Losses of workers per task, before it is given up.
_MOST_LOSSES = 3


class LocalRunner:
    """Worker processes of this machine; one worker, or one task, stays in this process."""

    def __init__(self, num_workers: int | None = None):
        """Starts nothing yet.

        Args:
          num_workers: processes; None: one for each core that this process may use.
        """
        self._num_workers = num_workers or available_cores()

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], purpose: str
    ) -> list[Result]:
        """Returns `[function(task) for task in tasks]`.

        Args:
          function: a function of a module, or a `functools.partial` of one.
          tasks: its arguments, which can be pickled.
          purpose: a word for the progress bar.
        """
        workers = min(self._num_workers, len(tasks))
        if workers <= 1:
            bar = ProgressBar(tasks, purpose, unit=" parts", disable=len(tasks) < 2)
            return [function(task) for task in bar]
        context = multiprocessing.get_context("spawn")
        # Workers hold the reading end; when this process closes its end, or dies, they leave.
        reader, writer = context.Pipe(duplex=False)
        with (
            reader,
            writer,
            ProcessPoolExecutor(workers, context, _start_worker, (reader,)) as pool,
        ):
            try:
                futures = [pool.submit(function, task) for task in tasks]
                bar = ProgressBar(futures, purpose, unit=" parts")
                return [future.result() for future in bar]
            except BrokenProcessPool as error:
                raise UserError(
                    f"a worker process died while making {purpose}, perhaps for lack of memory; run "
                    "the same command again (finished shards are kept), with fewer "
                    "prepare.num_workers"
                ) from error
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                writer.close()
                raise


def _start_worker(lifeline: multiprocessing.connection.Connection) -> None:
    """Prepares a worker: it ignores Ctrl-C, keeps to one core, and exits with the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"

    def exit_with_driver() -> None:
        multiprocessing.connection.wait([lifeline])
        os._exit(1)

    threading.Thread(target=exit_with_driver, daemon=True).start()


class DaskRunner:
    """The workers of a cluster of Dask that others have started, as far as they have this process's code."""

    def __init__(self, scheduler: str):
        """Sees whether it answers.

        Args:
          scheduler: its address, such as `tls://10.0.0.7:8786`.
        """
        self._scheduler = scheduler
        self._connect = functools.partial(connect, scheduler, "prepare.scheduler")
        self._connect().close()

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], purpose: str
    ) -> list[Result]:
        """As `LocalRunner.run`; every task goes to the cluster, and again if its worker is lost."""
        with self._connect() as client:
            cluster = f"the cluster at {self._scheduler}"
            workers = Workers(client, cluster, client.id, losses=_MOST_LOSSES)
            futures = [workers.submit(function, task) for task in tasks]
            results = []
            for future in ProgressBar(futures, purpose, unit=" parts"):
                workers.look_after()
                while not wait([future], SECONDS_BETWEEN_LOOKS).done:
                    workers.look_after()
                try:
                    results.append(future.result())
                except LostWorkerError as error:
                    raise UserError(
                        f"workers of the cluster died while making {purpose}, perhaps for lack of memory; "
                        "run the same command again (finished shards are kept)"
                    ) from error
            return results


Runner = LocalRunner | DaskRunner
