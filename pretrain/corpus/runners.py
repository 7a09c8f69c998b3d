"""Runs many independent tasks: in worker processes of this machine, or on Apache Beam.

A task is a function of its arguments alone that writes files and returns something small, so the outcome
does not depend on the worker, nor on how many there are. Results come back in the order of the tasks,
and of several errors the first task's is raised.

Beam takes the same tasks to other machines (`requirements-beam.txt`; imported only where it is asked
for). Every machine needs this project and what it requires, and must see the sources and the run directory
under the same paths (a shared or mounted file system): tasks read and write files there, and through the
pipeline go their names alone. What names a cluster goes into pipeline options:

* one machine: `--runner=DirectRunner`, with `--direct_num_workers=8` and
  `--direct_running_mode=multi_processing`;
* Flink: `--runner=FlinkRunner`, with `--flink_master=http://host:8081`;
* Spark: `--runner=SparkRunner`, with `--spark_master_url=spark://host:7077`;
* Dataflow: `--runner=DataflowRunner`, with `--project`, `--region`, `--temp_location=gs://...` and
  `--sdk_container_image` (this project in it; needs Beam's extra packages `apache-beam[gcp]`).

The first is what the tests run.
"""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Protocol, TypeVar

from multiberts.runs.console import ProgressBar
from multiberts.runs.errors import UserError
from multiberts.runs.files import remove

# Workers log their start and end, in several lines each; an option given later wins.
_QUIET = "--default_sdk_harness_log_level=WARNING"

Task = TypeVar("Task")
Result = TypeVar("Result")


class Runner(Protocol):
    """Something that runs tasks."""

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        purpose: str,
    ) -> list[Result]:
        """Returns `[function(task) for task in tasks]`.

        Args:
          function: a function of a module, or a `functools.partial` of one.
          tasks: its arguments, which can be pickled.
          purpose: a word for the progress bar.

        Raises:
          UserError: a task was refused; the first one's error.
        """
        ...


class LocalRunner:
    """Worker processes of this machine; one worker, or one task, stays in this process."""

    def __init__(self, num_workers: int | None = None):
        """Starts nothing yet.

        Args:
          num_workers: processes; None: one for each core that this process may use.
        """
        self._num_workers = num_workers or _available_cores()

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        purpose: str,
    ) -> list[Result]:
        """As `Runner.run`."""
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


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start_worker(lifeline: multiprocessing.connection.Connection) -> None:
    """Prepares a worker: it ignores Ctrl-C, keeps to one core, and exits with the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"

    def exit_with_driver() -> None:
        multiprocessing.connection.wait([lifeline])
        os._exit(1)

    threading.Thread(target=exit_with_driver, daemon=True).start()


class BeamRunner:
    """An Apache Beam pipeline for each set of tasks: `Create | Reshuffle | Map`."""

    def __init__(self, pipeline_options: Sequence[str], scratch: Path):
        """Checks that Beam is there.

        Args:
          pipeline_options: as on a Beam command line, such as `--runner=FlinkRunner`.
          scratch: a directory of this command alone that all machines see, for the results of
            tasks; it is there while a pipeline runs.

        Raises:
          UserError: Beam is not installed, or knows no such runner.
        """
        try:
            import apache_beam as beam
            from apache_beam.options.pipeline_options import PipelineOptions

            options = PipelineOptions([_QUIET, *pipeline_options])
            beam.Pipeline(options=options)  # refuses runners that are not there, and what they lack
        except ModuleNotFoundError as error:
            raise UserError(
                f"Apache Beam is not installed ({error}); run `pip install -r requirements-beam.txt` "
                "in this environment, or leave out --runner"
            ) from error
        except (ValueError, ImportError) as error:
            raise UserError(
                f"Apache Beam refuses {' '.join(pipeline_options)}: {' '.join(str(error).split())}; "
                "change --runner or --pipeline_option"
            ) from error
        self._options = options
        self._scratch = scratch

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        purpose: str,
    ) -> list[Result]:
        """As `Runner.run`; every task goes to Beam."""
        import apache_beam as beam

        logging.getLogger("apache_beam").setLevel(logging.WARNING)
        remove(self._scratch)  # what a kill left
        self._scratch.mkdir(parents=True)
        try:
            with beam.Pipeline(options=self._options) as pipeline:
                _ = (
                    pipeline
                    | "Tasks" >> beam.Create(list(enumerate(tasks)))
                    | "Spread" >> beam.Reshuffle()
                    | purpose.capitalize() >> beam.Map(_run_and_keep, function, self._scratch)
                )
            return [_kept(self._scratch / str(number)) for number in range(len(tasks))]
        finally:
            remove(self._scratch)


def _run_and_keep(
    numbered: tuple[int, Task], function: Callable[[Task], Result], results: Path
) -> None:
    """Runs a task on a worker; the result, or the user's error, goes into a file.

    Beam may run a task twice, and would wrap an error in a page of its own.
    """
    number, task = numbered
    try:
        outcome: tuple[Result | None, str | None] = (function(task), None)
    except UserError as error:
        outcome = (None, str(error))
    with tempfile.NamedTemporaryFile(dir=results, delete=False) as handle:
        pickle.dump(outcome, handle)
    os.replace(handle.name, results / str(number))


def _kept(path: Path) -> Result:  # type: ignore[type-var]
    result, error = pickle.loads(path.read_bytes())
    if error is not None:
        raise UserError(error)
    found: Result = result
    return found
