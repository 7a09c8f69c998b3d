"""Dask, imported where it is asked for only: schedulers by their address, calls on workers with this code.

The keys for an address with `tls://` are those of Dask's configuration; docs/clusters.md has the variables.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import itertools
import pickle
import re
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from multiberts.runs.console import note_once, progress, warn
from multiberts.runs.errors import UserError, counted
from multiberts.runs.processes import code_digest, code_digest_on_disk

SECONDS_TO_ANSWER = 9.0
SECONDS_BETWEEN_LOOKS = 0.5
# Time without a usable worker, after which a message or an error says why.
SECONDS_OF_SILENCE = 30.0
_IS_PRIVATE = re.compile(r"(tls|wss|gateway|inproc)://|\w+://(127\.|\[::1\]:)")
_warn_once = functools.cache(warn)

# Reasons why a worker cannot run a call; other reasons are errors.
_STARTED_EARLIER = "its process was started with other code of this project"
_OTHER_FILES = "its machine has other code of this project"

# Outcome of a call: (reason for a refusal, error, result).
_Answer = tuple[str | None, Exception | None, Any]

# Errors of a task whose worker or connection is lost.
_LOST = ("KilledWorker", "CancelledError", "FutureCancelledError", "CommClosedError")


class LostWorkerError(Exception):
    """The worker of a call is lost."""


class BlamelessLossError(LostWorkerError):
    """It is not for the call that its worker is gone: that was leaving, or the scheduler is lost."""


def connect(address: str, setting: str) -> Any:
    """Returns a client of a scheduler, which has answered within `SECONDS_TO_ANSWER`."""
    import distributed

    async def ask() -> None:
        keys = distributed.Security().get_connection_args("client")
        # A little less, as its error has the cause.
        seconds = 0.8 * SECONDS_TO_ANSWER
        async with (
            asyncio.timeout(SECONDS_TO_ANSWER),
            distributed.rpc(address, timeout=seconds, connection_args=keys) as scheduler,
        ):
            await scheduler.identity(n_workers=0)

    try:
        # A client that could not connect may stay, and keep its process from ending.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, ask()).result()
        if not _IS_PRIVATE.match(distributed.comm.resolve_address(address)):
            _warn_once(
                f"{setting} is {address!r}, which has no TLS: anyone who can reach it can run code in your "
                "name; start the cluster with keys, and give its tls:// address (docs/clusters.md)"
            )
        return distributed.Client(address, set_as_default=False)
    except Exception as error:  # each protocol has its own
        raise UserError(
            f"{setting} is {address!r}, which does not answer ({first_cause(error)}); check the address, "
            "and the keys in Dask's configuration"
        ) from error


def first_cause(error: BaseException) -> str:
    """Returns the message of the first cause of an error that has one, in one line."""
    message = ""
    cause: BaseException | None = error
    while cause is not None:
        message = " ".join(str(cause).split()) or message
        cause = cause.__cause__
    return message or type(error).__name__


def call_if_same(digest: str, call: bytes) -> _Answer:
    """Calls a pickled function in a worker whose code has the launcher's digest."""
    of_process = code_digest()
    # Modules that are not imported yet come from this path.
    if _on_disk(second=int(time.monotonic())) != digest:
        return _OTHER_FILES, None, None
    if of_process != digest:
        return _STARTED_EARLIER, None, None
    function, arguments = pickle.loads(call)
    try:
        return None, None, function(*arguments)
    except Exception as error:
        error.add_note(traceback.format_exc())  # pickling drops the traceback
        return None, error, None


@functools.lru_cache(maxsize=1)
def _on_disk(second: int) -> str:  # noqa: ARG001
    """Returns the digest of the files, read once a second at most, as calls may be many and short."""
    return code_digest_on_disk()


# Each task is `eval` of this text, so that `call_if_same` is looked for in the worker alone, when it runs.
# Dask imports a function of a task in the scheduler, too, which may lack it. One that travels as a whole is
# bytecode, which kills a worker of another version of Python.
_TASK = f"__import__({__name__!r}, fromlist=['']).{call_if_same.__name__}(digest, call)"


@dataclasses.dataclass(eq=False)
class Workers:
    """The workers of a scheduler, each of which has one call at a time.

    Only workers with this process's code get calls; others are reported. Call `look_after` regularly until
    all futures are done.

    Attributes:
      name: name of the cluster, for messages.
      prefix: prefix of its tasks' keys, unique to this client.
      are_own: whether this process started the workers; then a difference in code means that the files
        have changed since.
      losses: retries of a call whose worker is lost.
      waiting_for: returns the missing resource when no worker can run a call.
    """

    client: Any
    name: str
    prefix: str
    _: dataclasses.KW_ONLY
    are_own: bool = False
    losses: int = 0
    waiting_for: Callable[[], str] = lambda: "a worker that connects"

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: collections.deque[_Call] = collections.deque()
        self._running: dict[str, tuple[Any, _Call]] = {}
        self._workers: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        # Workers whose threads are other clients', those of them with a call, and how many tasks wait.
        self._busy: set[str] = set()
        self._behind: set[str] = set()
        self._num_ready: dict[str, int] = {}
        self._changing = threading.Lock()
        self._next_look = 0.0
        self._silent_since: float | None = None
        self.had_workers = time.monotonic()
        self._said = ""
        self.look_after()

    @property
    def names(self) -> Mapping[str, bool]:
        """Returns whether each worker has a call, by its name; those that refuse are left out."""
        with self._changing:
            return {
                name: address in self._running
                for address, name in self._workers.items()
                if address not in self._refused
            }

    @property
    def running(self) -> dict[str, Future[Any]]:
        """Returns the calls that workers have, by the worker's address."""
        with self._changing:
            return {address: call.future for address, (_, call) in self._running.items()}

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Submits a call of a module's function; its future gets the result, error or `LostWorkerError`."""
        call = _Call(pickle.dumps((function, arguments)), self.losses)
        self._waiting.append(call)
        self._feed()
        return call.future

    def drop_waiting(self) -> None:
        with self._changing:
            self._waiting.clear()

    def look_after(self) -> None:
        """Sees which workers there are, and gives them what waits; to be called now and then.

        After `SECONDS_OF_SILENCE` without a usable worker it reports what is missing. It raises UserError if
        all those that there are refuse, or if the scheduler is gone.
        """
        if time.monotonic() < self._next_look:
            return
        workers: dict[str, Any] | None = None  # by address; None: the scheduler does not answer
        with contextlib.suppress(Exception):
            if self.client.status == "running":
                ask, most = self.client.scheduler.identity, SECONDS_TO_ANSWER
                answer = self.client.sync(ask, n_workers=-1, callback_timeout=most)
                # First those that no other client keeps busy.
                by_load = sorted(answer["workers"].items(), key=lambda item: _num_tasks(item[1]))
                workers = dict(by_load)
        self._silent_since = (self._silent_since or time.monotonic()) if workers is None else None
        if self.client.status in ("closed", "closing") or self._has_missed_the_end():
            raise UserError(
                f"the scheduler of {self.name} is gone; start it, and give the same command, which resumes "
                "from here"
            )
        lost = []
        with self._changing:
            self._workers = {
                address: str(worker["name"])
                for address, worker in (workers or {}).items()
                if worker["status"] == "running"
            }
            if workers is not None:
                lost = [task for at, (task, _) in self._running.items() if at not in workers]
                self._refused = {at: why for at, why in self._refused.items() if at in workers}
                self._busy = {
                    at
                    for at, worker in workers.items()
                    if at not in self._running and _num_tasks(worker) >= worker["nthreads"]
                }
                self._num_ready = {at: _num_tasks(tasks, "ready") for at, tasks in workers.items()}
        with contextlib.suppress(Exception):  # without a scheduler the next look says so
            for task in lost:
                task.cancel()  # it would wait for that very worker
        self._feed()
        self._say()
        self._next_look = time.monotonic() + SECONDS_BETWEEN_LOOKS

    def _has_missed_the_end(self) -> bool:
        """Returns whether the scheduler is gone, and the client has neither closed nor connected again."""
        import dask
        from distributed.comm import get_address_host_port

        timeout = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
        if self._silent_since is None or time.monotonic() - self._silent_since < 2 * timeout:
            return False  # until then it may
        # One that is stopped is silent, too, but its machine connects.
        with contextlib.suppress(OSError):
            at = get_address_host_port(self.client.scheduler.address)
            socket.create_connection(at, SECONDS_TO_ANSWER).close()
            return bool(self.client.status != "running")
        return True

    def _feed(self) -> None:
        """Assigns a waiting call to each idle worker."""
        with self._changing:
            if self.client.status != "running":
                return  # it connects again, or `look_after` gives up
            for address in self._workers:
                if not self._waiting or address in self._running or address in self._refused:
                    continue
                call = self._waiting[0]
                task = self.client.submit(
                    eval,
                    _TASK,
                    {"digest": code_digest(), "call": call.content},
                    key=f"{self.prefix}-{next(self._numbers)}",
                    workers=[address],
                    pure=False,
                )
                self._waiting.popleft()
                self._running[address] = task, call
                self._behind.discard(address)
                self._behind |= {address} & self._busy
                task.add_done_callback(functools.partial(self._take, address, call))

    def _take(self, address: str, call: _Call, task: Any) -> None:
        """Passes on the outcome of a task; called in a thread of Dask."""
        try:
            refusal, error, result = task.result()
        except BaseException as problem:
            refusal = error = result = None
            if type(problem).__name__ not in _LOST:
                refusal = f"{type(problem).__name__}: {first_cause(problem)}"
            elif getattr(problem, "reason", None) == "scheduler-connection-lost":
                error = BlamelessLossError("the connection to Dask's scheduler was lost")
            else:
                error = LostWorkerError(
                    "its worker was lost (killed, out of memory, hung, or cut off)"
                )
        is_lost = isinstance(error, LostWorkerError)
        goes_on = refusal is not None or (is_lost and call.losses > 0)
        with self._changing:
            del self._running[address]
            if is_lost:
                self._workers.pop(address, None)
            if refusal is not None:
                self._refused[address] = refusal
                name = self._workers.get(address, address)
                note_once(f"worker {name} of {self.name} gets no work: {refusal}")
            if goes_on:
                call.losses -= is_lost
                self._waiting.appendleft(call)
        if not goes_on and error is not None:
            call.future.set_exception(error)
        elif not goes_on:
            call.future.set_result(result)
        with contextlib.suppress(Exception):  # the client may be closing
            self._feed()

    def _say(self) -> None:
        """Reports what it is waiting for, or raises UserError if waiting cannot help."""
        with self._changing:
            reasons = sorted(set(self._refused.values()))
            behind = {at for at in self._behind & self._running.keys() if self._num_ready.get(at)}
            busy = self._busy - self._running.keys() | behind
            num_able = len(self._workers.keys() - self._refused.keys() - busy)
        if self.are_own and {_STARTED_EARLIER, _OTHER_FILES} & set(reasons):
            raise UserError(
                "the project's code has changed since this process was started; the same command resumes "
                "with the code as it is now, in Python after a restart"
            )
        now = time.monotonic()
        if num_able:
            if self._said:
                progress(f"{counted(num_able, 'worker')} of {self.name} can work; going on")
            self._said, self.had_workers = "", now
        elif now - self.had_workers > SECONDS_OF_SILENCE:
            if reasons and not busy:
                raise UserError(
                    f"no worker of {self.name} can work ({'; '.join(reasons)}); see that their machines "
                    "have this project's code as it is here, and what it requires, that their processes are "
                    "started anew with it, and give the same command"
                )
            missing = "tasks of other clients" if busy else self.waiting_for()
            missing = "its scheduler, which is silent" if self._silent_since else missing
            if missing != self._said:
                progress(f"no worker of {self.name} can work; waiting for {missing}")
                self._said = missing


@dataclasses.dataclass
class _Call:
    """A submitted call."""

    content: bytes
    losses: int
    future: Future[Any] = dataclasses.field(default_factory=Future)


def _num_tasks(worker: Mapping[str, Any], state: str = "executing") -> int:
    """Counts the tasks of all clients that a worker has in a state."""
    return int(worker["metrics"].get("task_counts", {}).get(state, 0))
