"""Carries out a chunk: calls stages one by one, with a marker and a log for each."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multiberts.launch.estimate.accelerators import gpu_of_worker, visible_gpus
from multiberts.launch.markers.attempts import (
    SECONDS_BETWEEN_HEARTBEATS,
    Attempt,
    begin_attempt,
    end_attempt,
    file_of_journal,
)
from multiberts.launch.plan.planned_run import stage_function
from multiberts.runs.console import report
from multiberts.runs.directory import DONE, LOCK
from multiberts.runs.errors import UserError, disk_full_line, memory_error
from multiberts.runs.identity import check_promise, opened_code, promised
from multiberts.runs.lease_holder import lock_file
from multiberts.runs.preemption import PreemptedError, num_opened_blocks, preemption_notice
from multiberts.runs.processes import give_back_memory

# Time for another process, which is about to exit, to release a run.
SECONDS_TO_LET_GO = 120.0
# Time for runs to save when asked to stop; preempted machines have 30 to 120 s in all.
SECONDS_TO_SAVE = 100.0

Error = dict[str, str]
Outcome = tuple[str, Error | None]
# The kind of error after which no worker can continue.
DISK_FULL = "DiskFull"

# The current attempt, its root, and the number of preemption blocks opened before it.
_OPEN_ATTEMPTS: list[tuple[str, Attempt, int]] = []


@dataclass(frozen=True)
class Call:
    """One run, as a worker receives it.

    Attributes:
      path: the run's directory, relative to the root.
      log: file to append output to, relative to the root.
      promises: identities of its inputs in the plan, see `runs.identity.promised`.
    """

    path: str
    stage: str
    arguments: Mapping[str, Any]
    log: str
    attempt: int = 1
    promises: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchContext:
    """Facts about a launch that its workers need.

    Attributes:
      engine: `local`, `slurm`, `dask`.
      workers_per_accelerator: number of workers that share a GPU.
    """

    root: str
    engine: str
    owner: str
    workers_per_accelerator: int = 1


def carry_out_calls(
    calls: Sequence[Call], context: LaunchContext, rank: int, journal: str
) -> tuple[dict[str, Outcome], float]:
    """Carries out runs one by one.

    An error ends only its run; once the worker is asked to stop, no further run starts.

    Returns:
      (outcome, error) of each run that was started, by path; and the seconds of all.
    """
    started = time.monotonic()
    device = _take_device(rank, context.workers_per_accelerator)
    outcomes: dict[str, Outcome] = {}
    with preemption_notice() as should_stop:
        for call in calls:
            outcome = outcomes[call.path] = _carry_out(call, context, device, journal, should_stop)
            give_back_memory()
            if outcome[0] == "preempted" or should_stop():
                break
    return outcomes, time.monotonic() - started


def end_if_it_cannot_save() -> None:
    """Closes the marker of a run that handles no preemption notice, and ends this process.

    Such a run may be anywhere, even in a call that takes hours, and only the end of the process stops it. A
    run that has opened a preemption block leaves by itself, after it has saved and its marker is written.
    """
    for root, attempt, num_before in list(_OPEN_ATTEMPTS):
        if num_opened_blocks() == num_before:
            with contextlib.suppress(OSError):
                message = "asked to stop: it cannot save, so it will start again"
                error = {"kind": PreemptedError.__name__, "message": message}
                end_attempt(root, attempt, "preempted", error)
            os._exit(1)


def _carry_out(
    call: Call, context: LaunchContext, device: str, journal: str, should_stop: Callable[[], bool]
) -> Outcome:
    if (Path(context.root) / call.path / DONE).is_file():
        return "done", None
    try:
        attempt = begin_attempt(
            context.root,
            call.path,
            attempt=call.attempt,
            journal=journal,
            engine=context.engine,
            job=os.environ.get("SLURM_JOB_ID") if context.engine == "slurm" else None,
            device=device,
            log=call.log,
            owner=context.owner,
        )
        _OPEN_ATTEMPTS.append((context.root, attempt, num_opened_blocks()))
        with _beating(context.root, attempt):
            try:
                log = Path(context.root) / call.log
                log.parent.mkdir(parents=True, exist_ok=True)
                # A named pipe would wait for a reader.
                if os.path.lexists(log) and not log.is_file():
                    raise UserError(f"{log} is not a file; move it away")
                with open(log, "a", encoding="utf-8") as stream, _output_into(stream.fileno()):
                    outcome, error = _call(call, should_stop)
            except Exception as problem:  # the log cannot be written
                outcome, error = "failed", _described(problem)
        _OPEN_ATTEMPTS.clear()
        end_attempt(context.root, attempt, outcome, error)
    except OSError as problem:  # the marker cannot be written
        outcome, error = "failed", _described(problem)
    return outcome, error


def _call(call: Call, should_stop: Callable[[], bool]) -> Outcome:
    """Calls the stage; prints and returns its error, if any."""
    run_dir = call.arguments["run_dir"]
    report(f"--- {call.stage} {run_dir}")
    try:
        _wait_until_free(Path(run_dir) / LOCK)
        function = stage_function(call.stage)
        with promised(call.promises):
            if module := call.stage.rpartition(":")[0]:
                check_promise(opened_code(module))
            function(**call.arguments)
    except PreemptedError as error:
        report(str(error))
        return "preempted", {"kind": PreemptedError.__name__, "message": str(error)}
    except UserError as error:
        report(f"error: {error}")
        described = _described(error)
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        described = _described(error)
    else:
        return "done", None
    # An interrupted stage may raise any error; a real fault will come again.
    return "preempted" if should_stop() else "failed", described


def _described(error: BaseException) -> Error:
    line = disk_full_line(error)
    if line is not None:
        return {"kind": DISK_FULL, "message": line}
    # As an error for users it is not retried: the next attempt would meet the same limit.
    error = (isinstance(error, MemoryError) and memory_error(error)) or error
    kind = type(error).__name__
    message = (str(error).strip() or "no message").splitlines()[0]
    is_for_users = isinstance(error, UserError)
    return {
        "kind": UserError.__name__ if is_for_users else kind,
        "message": message if is_for_users else f"{kind}: {message}",
    }


def _wait_until_free(lock: Path) -> None:
    """Waits while another process, which lost its launcher and is about to exit, holds the run."""
    end = time.monotonic() + SECONDS_TO_LET_GO
    while lock.is_file() and time.monotonic() < end:
        with open(lock, "rb") as stream:
            try:
                if lock_file(stream.fileno(), lock, shared=True):
                    return
            except UserError:  # opening the run says why, or falls back to a lease
                return
        time.sleep(0.2)


@contextlib.contextmanager
def _beating(root: str, attempt: Attempt) -> Iterator[None]:
    """Writes heartbeats while the block runs."""
    ended = threading.Event()

    def beat_until_ended() -> None:
        while not ended.wait(SECONDS_BETWEEN_HEARTBEATS):
            with contextlib.suppress(FileNotFoundError):
                os.utime(file_of_journal(root, attempt.journal))

    thread = threading.Thread(target=beat_until_ended, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def _output_into(descriptor: int) -> Iterator[None]:
    """Redirects the output of this process and its libraries to an open file."""
    sys.stdout.flush()
    sys.stderr.flush()
    copies = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in copies:
            os.dup2(descriptor, number)
        yield
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # also on a full disk
            for number, copy in copies.items():
                os.dup2(copy, number)
                os.close(copy)


@functools.cache
def _take_device(rank: int, workers_per_accelerator: int) -> str:
    """Selects this worker's GPU, if any; returns the device's name for people."""
    gpu = gpu_of_worker(rank, visible_gpus(), workers_per_accelerator)
    if gpu is None:
        return "cpu"
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    if workers_per_accelerator > 1:
        os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    return f"gpu {gpu}"
