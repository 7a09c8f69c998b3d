"""What a worker process does: calls stages one after the other, with a marker and a log for each."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from multiberts.launch.estimate.accelerators import gpu_of_worker, visible_gpus
from multiberts.launch.markers.attempts import (
    SECONDS_BETWEEN_HEARTBEATS,
    Attempt,
    beat,
    begin_attempt,
    end_attempt,
)
from multiberts.launch.plan.planned_run import stage_function
from multiberts.launch.workers.guardian import (
    SECONDS_TO_SAVE,
    leave_with_launcher,
    watch_from_environment,
)
from multiberts.runs.allocator import give_back_memory
from multiberts.runs.directory import DONE, LOCK
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import PreemptedError, preemption_notice

# For another process, which is about to leave, to let go of a run.
SECONDS_TO_LET_GO = 120.0

# Where an engine says which of its jobs this process belongs to.
_JOB_VARIABLES = {"slurm": "SLURM_JOB_ID"}

Error = dict[str, str]


@dataclass(frozen=True)
class Call:
    """One run as a worker gets it.

    Attributes:
      path: the run's directory, relative to the root.
      stage: key of `launch.plan.planned_run.STAGES`.
      arguments: of the stage's function.
      log: the file that its output is appended to, relative to the root.
    """

    path: str
    stage: str
    arguments: Mapping[str, Any]
    log: str


@dataclass(frozen=True)
class Place:
    """Where a worker works.

    Attributes:
      root: the experiment's root.
      engine: `local`, `slurm`, `kubernetes`.
      workers_per_accelerator: how many workers share a GPU.
    """

    root: str
    engine: str
    workers_per_accelerator: int = 1


def carry_out_calls(
    calls: Sequence[Call], place: Place
) -> tuple[list[tuple[str, Error | None]], float]:
    """Carries out runs one after the other.

    An error ends its run, not the others; but when the worker is asked to stop, the rest are not
    started.

    Args:
      calls: the runs.
      place: where.

    Returns:
      Of each run that was started, in order, the outcome and error as in its marker; and the seconds
      that all took.
    """
    started = time.monotonic()
    device = _settle(place)
    outcomes: list[tuple[str, Error | None]] = []
    with _asked_to_stop() as notice:
        for call in calls:
            outcomes.append(_carry_out(call, place, device, notice))
            give_back_memory()
            if outcomes[-1][0] == "preempted" or notice.has_come():
                break
    return outcomes, time.monotonic() - started


@dataclass
class _Notice:
    """Whether the worker was asked to stop.

    Attributes:
      has_come: tells it.
      interrupts: whether it ends what is being done, as a stage that does not save by itself.
    """

    has_come: Callable[[], bool]
    interrupts: bool = False


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[_Notice]:
    """Notes SIGTERM, so that markers are written; ends stages that do not note it themselves."""
    with preemption_notice() as noted:
        came: list[int] = []
        notice = _Notice(lambda: noted() or bool(came))

        def stop(number: int, frame: object) -> None:
            came.append(number)
            if notice.interrupts:
                raise PreemptedError("asked to stop: it cannot save, so it will start again")

        # The block before ours puts back what was there.
        signal.signal(signal.SIGTERM, stop)
        yield notice


def _carry_out(call: Call, place: Place, device: str, notice: _Notice) -> tuple[str, Error | None]:
    """Carries out one run; returns the outcome and the error."""
    if (Path(place.root) / call.path / DONE).is_file():
        return "done", None
    attempt = begin_attempt(
        place.root,
        call.path,
        engine=place.engine,
        job=os.environ.get(_JOB_VARIABLES.get(place.engine, "")),
        device=device,
        log=call.log,
    )
    outcome, error = "done", None
    with _beating(place.root, attempt):
        try:
            log = Path(place.root) / call.log
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "a", encoding="utf-8") as stream, _output_into(stream.fileno()):
                outcome, error = _call(call, notice)
        except Exception as problem:  # the log has no place
            outcome, error = "failed", _described(problem)
    end_attempt(place.root, attempt, outcome, error)
    return outcome, error


def _call(call: Call, notice: _Notice) -> tuple[str, Error | None]:
    """Calls the stage; what went wrong is printed and returned."""
    run_dir = call.arguments["run_dir"]
    print(f"--- {call.stage} {run_dir}", flush=True)
    try:
        notice.interrupts = True
        try:
            _wait_until_free(Path(run_dir) / LOCK)
            stage_function(call.stage)(**call.arguments)
        finally:
            notice.interrupts = False
    except PreemptedError as error:
        print(error, flush=True)
        return "preempted", {"kind": PreemptedError.__name__, "message": str(error)}
    except UserError as error:
        print(f"error: {error}", flush=True)
        described = {"kind": UserError.__name__, "message": str(error)}
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        described = _described(error)
    else:
        return "done", None
    # What was interrupted may say so in other words; if it is at fault, it will fail again.
    return "preempted" if notice.has_come() else "failed", described


def _described(error: BaseException) -> Error:
    kind = type(error).__name__
    message = (str(error).strip() or "no message").splitlines()[0]
    return {"kind": kind, "message": f"{kind}: {message}"}


def _wait_until_free(lock: Path) -> None:
    """Waits while another process, which lost its launcher and is about to leave, has the run."""
    end = time.monotonic() + SECONDS_TO_LET_GO
    while lock.is_file() and time.monotonic() < end:
        with open(lock, "rb") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return
            except OSError:
                time.sleep(0.2)


@contextlib.contextmanager
def _beating(root: str, attempt: Attempt) -> Iterator[None]:
    """Gives signs of life while the block runs."""
    ended = threading.Event()

    def beat_until_ended() -> None:
        while not ended.wait(SECONDS_BETWEEN_HEARTBEATS):
            beat(root, attempt)

    thread = threading.Thread(target=beat_until_ended, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def _output_into(descriptor: int) -> Iterator[None]:
    """Sends what this process and its libraries print to an open file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in kept:
            os.dup2(descriptor, number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


def environment_of_workers(threads: int) -> dict[str, str]:
    """What libraries read when a worker first imports them.

    Args:
      threads: each worker's share of the cores.
    """
    return {
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": "1",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
    }


# What this worker runs on, once it has settled.
_DEVICE: list[str] = []


def _settle(place: Place) -> str:
    """First thing in a worker: never outlive launcher and pool, and take its GPU.

    Returns:
      What it runs on, in words.
    """
    if _DEVICE:
        return _DEVICE[0]
    # A lock among threads: the default is one among processes, of which a worker that is ended
    # would leave a semaphore behind.
    tqdm.set_lock(threading.RLock())
    is_local = place.engine == "local"
    leave_with_launcher(
        watch_from_environment(), (lambda: os._exit(1)) if is_local else _save_and_leave
    )
    threading.Thread(target=_leave_after_pool, args=(os.getppid(),), daemon=True).start()
    rank = int(os.environ.get("PARSL_WORKER_RANK", "0"))
    gpu = gpu_of_worker(rank, visible_gpus(), place.workers_per_accelerator)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
        if place.workers_per_accelerator > 1:
            os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    _DEVICE.append("cpu" if gpu is None else f"gpu {gpu}")
    return _DEVICE[0]


def _leave_after_pool(pool: int) -> None:
    """Waits until the pool's process has ended, then leaves."""
    while os.getppid() == pool:
        time.sleep(0.5)
    _save_and_leave()


def _save_and_leave() -> None:
    """Has the run save, and leaves."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SECONDS_TO_SAVE)
    print(f"not saved within {SECONDS_TO_SAVE:.0f} s on {socket.gethostname()}", file=sys.stderr)
    os._exit(1)
