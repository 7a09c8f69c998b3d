"""A pool of workers: an engine provides blocks, and the workers in them connect to the launcher.

A block is one job of the engine: processes of this machine, a Slurm job, a pod. On each of its nodes
`launch.workers.node` keeps worker processes running. Each of them connects to the launcher, takes a bundle
of runs, sends heartbeats while it carries them out, returns how they went, and takes the next bundle.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import os
import queue
import secrets
import shlex
import shutil
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from multiberts.launch.workers.channel import WELCOME, Channel
from multiberts.launch.workers.engines import Engine
from multiberts.launch.workers.guardian import SECONDS_TO_SAVE, VARIABLE, watch_this_process
from multiberts.launch.workers.node import POOL_VARIABLE, PoolAddress
from multiberts.launch.workers.worker import Call, Place, environment_of_workers
from multiberts.runs.errors import UserError

SECONDS_TO_END = 5.0
# A socket's path has about a hundred characters at most, of which multiprocessing takes its share.
MAX_LENGTH_OF_SOCKET_FOLDER = 60
# A block that is idle for so long is given back.
SECONDS_OF_IDLENESS = 60.0
# After so many blocks in a row of which no worker connected, another block would not help.
MAX_FAILED_BLOCK_STARTS = 3
# A silent worker is ended by its node first, then by the launcher.
_PATIENCE_OF_LAUNCHER = 2
_SECONDS_TO_GREET = 60.0


class LostWorkerError(Exception):
    """The worker that carried out a bundle has died or is silent."""


class LocalBlocks:
    """Blocks that are processes of this machine, with the interface of a provider of Parsl."""

    def __init__(self, folder: Path, environment: Mapping[str, str]):
        """Starts nothing yet.

        Args:
          folder: for what the blocks print.
          environment: further variables of the blocks.
        """
        self._environment = {**os.environ, **environment}
        self._errors = folder / "errors"
        self._blocks: dict[str, subprocess.Popen[bytes]] = {}

    def submit(self, command: str, _tasks_per_node: int, _job_name: str) -> str:
        """Starts a block in a process group of its own; returns its name."""
        with open(self._errors, "ab") as stream:
            block = subprocess.Popen(
                shlex.split(command),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                process_group=0,
            )
        self._blocks[str(block.pid)] = block
        return str(block.pid)

    def last_error(self) -> str:
        """Returns the last line that the blocks printed, in brackets."""
        return _last_line(self._errors)

    def has_ended(self, job: str) -> bool:
        """Returns whether the first process of a block has ended."""
        return self._blocks[job].poll() is not None

    def cancel(self, jobs: Sequence[str], number: int = signal.SIGTERM) -> None:
        """Sends a signal to all processes of blocks, and wakes stopped ones to receive it."""
        for job in jobs:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(job), number)
                os.killpg(int(job), signal.SIGCONT)

    def end(self, seconds: float) -> None:
        """Asks all processes to exit, and kills those that are left after so many seconds."""
        jobs = list(self._blocks)
        self.cancel(jobs)
        end = time.monotonic() + seconds
        while self._processes() and time.monotonic() < end:
            time.sleep(0.02)
        if seconds:
            self.cancel(jobs, signal.SIGKILL)
            # What they computed then counts as this process's, for `time` and the like.
            for block in self._blocks.values():
                block.wait()

    def _processes(self) -> list[int]:
        """Returns the processes of the blocks that run."""
        groups = {int(job) for job in self._blocks}
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, psutil.Error):
                is_ours = os.getpgid(pid) in groups
                if is_ours and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    found.append(pid)
        return found


@dataclass
class _Block:
    """A job of the engine.

    Attributes:
      job: its name at the engine.
      has_worked: whether one of its workers has connected.
      busy: how many of its workers carry out runs.
      idle_since: when the last of them finished, by the monotonic clock.
      is_leaving: whether its workers get no more bundles.
    """

    job: str
    has_worked: bool = False
    busy: int = 0
    idle_since: float = field(default_factory=time.monotonic)
    is_leaving: bool = False


class Pool:
    """Workers, from the first run to the last.

    Usage:

        pool = Pool(engine, place, silent_seconds=90)
        future = pool.submit(calls)
        ...
        pool.look_after(outstanding=1)   # now and then
        pool.end(seconds=5)
    """

    def __init__(self, engine: Engine, place: Place, silent_seconds: float):
        """Starts the first block.

        Args:
          engine: how to get workers.
          place: sent to the workers.
          silent_seconds: a worker without a heartbeat for so long is ended.

        Raises:
          UserError: the engine refuses blocks, or cannot use the path of the root.
        """
        self._engine = engine
        self._place = place
        self._silent_seconds = silent_seconds
        self._blocks: dict[int, _Block] = {}
        self._num_blocks = 0
        self._failed_starts = 0
        self._next_look = 0.0
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Sequence[Call]]] = queue.SimpleQueue()
        self._changing = threading.Lock()  # of blocks, which every conversation counts in
        self._token = secrets.token_hex(32)
        self._server = _Server(("127.0.0.1" if engine.is_local else "", 0), _Conversation)
        self._server.pool = self
        self._folder = _folder(engine, place.root)
        try:
            self._provider = self._make_provider()
            threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
            self.look_after(outstanding=1)
        except BaseException:
            self.end(0)
            raise

    def _make_provider(self) -> Any:
        engine = self._engine
        folder = str(self._folder) if engine.is_local else None
        root, owner = os.path.abspath(self._place.root), self._place.owner
        watch = watch_this_process(root, owner, folder=folder)
        address = PoolAddress(
            hosts=[engine.options.address] if engine.options.address else _addresses(),
            port=self._server.server_address[1],
            token=self._token,
            workers=engine.workers_per_node,
            silent_seconds=self._silent_seconds,
        )
        environment = {
            **environment_of_workers(engine.threads, engine.options.compute),
            VARIABLE: watch.spelled(),
            POOL_VARIABLE: json.dumps(dataclasses.asdict(address)),
        }
        if engine.is_local:
            if len(str(self._folder)) <= MAX_LENGTH_OF_SOCKET_FOLDER:
                # What killed processes leave there is removed with the folder.
                environment["TMPDIR"] = str(self._folder)
            return LocalBlocks(self._folder, environment)
        _keep_quiet(self._folder)
        provider = engine.options.provider(engine.shell_lines(environment))
        provider.script_dir = str(self._folder / "blocks")
        Path(provider.script_dir).mkdir()
        return provider

    def submit(self, calls: Sequence[Call]) -> Future[Any]:
        """Submits runs to a worker; the future returns what `worker.carry_out_calls` does.

        It raises `LostWorkerError` where the worker died or is silent.
        """
        future: Future[Any] = Future()
        self._waiting.put((future, list(calls)))
        return future

    def look_after(self, outstanding: int) -> None:
        """Replaces blocks that have ended, and asks for as many as there is work for.

        Args:
          outstanding: how many bundles are submitted and not finished.

        Raises:
          UserError: the engine refuses blocks, or they end before a worker connects.
        """
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + self._engine.options.poll_seconds
        self._forget_ended_blocks()
        needed = math.ceil(outstanding / self._engine.workers_per_block)
        wanted = min(self._engine.options.max_blocks, needed)
        for _ in range(wanted - len(self._blocks)):
            self._add_block()
        self._give_back(len(self._blocks) - wanted)

    def end(self, seconds: float) -> None:
        """Asks all workers to save and exit, and removes the pool's folder.

        Args:
          seconds: how long to wait for them; those of this machine are then killed. 0: do not wait.
        """
        self._server.shutdown()
        self._server.server_close()
        provider = getattr(self, "_provider", None)
        if isinstance(provider, LocalBlocks):
            provider.end(seconds)
        elif provider is not None:
            self._cancel(list(self._blocks))
            end = time.monotonic() + seconds
            while seconds >= SECONDS_TO_SAVE and self._blocks and time.monotonic() < end:
                time.sleep(min(1.0, self._engine.options.poll_seconds))
                self._forget_ended_blocks()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _add_block(self) -> None:
        number = self._num_blocks
        python = shlex.quote(self._engine.options.python)
        command = f"{python} -m multiberts.launch.workers.node {number}"
        if not self._engine.is_local:
            command = f"exec {command}"  # in place of the shell, which gets the signals
        try:
            job = str(self._provider.submit(command, 1, f"block-{number}"))
        except Exception as error:  # each provider has its own errors
            self._note_failed_start(f" ({str(error).strip()})", "refuses to start workers")
            return
        self._num_blocks += 1
        self._blocks[number] = _Block(job)

    def _note_failed_start(self, why: str, what: str) -> None:
        self._failed_starts += 1
        if self._failed_starts >= MAX_FAILED_BLOCK_STARTS or not self._num_blocks:
            raise UserError(
                f"engine {self._engine.name!r} {what}{why} ({self._failed_starts} in a row); correct "
                "run.engine_options"
            )

    def _forget_ended_blocks(self) -> None:
        """Asks the engine which blocks have ended, and drops them."""
        for number, (has_ended, why) in self._ended_blocks().items():
            if not has_ended:
                continue
            block = self._blocks.pop(number)
            if not block.has_worked:
                self._note_failed_start(why, "ended its workers before they connected")

    def _ended_blocks(self) -> dict[int, tuple[bool, str]]:
        """Returns whether each block has ended, and why."""
        numbers = list(self._blocks)
        jobs = [self._blocks[number].job for number in numbers]
        if isinstance(self._provider, LocalBlocks):
            local = self._provider
            ended = [(local.has_ended(job), local.last_error()) for job in jobs]
        else:
            states = self._provider.status(jobs) if jobs else []
            ended = [
                (state.terminal, state.terminal and _last_line(state.stderr_path))
                for state in states
            ]
        return dict(zip(numbers, ended, strict=True))

    def _give_back(self, count: int) -> None:
        """Ends up to `count` blocks that have been idle for long."""
        if count < 1 or self._engine.is_local:
            return
        with self._changing:
            long_ago = time.monotonic() - SECONDS_OF_IDLENESS
            idle = [
                number
                for number, block in self._blocks.items()
                if block.has_worked and not block.busy and block.idle_since < long_ago
            ]
            for number in idle[:count]:
                self._blocks[number].is_leaving = True
        self._cancel(idle[:count])
        for number in idle[:count]:
            del self._blocks[number]

    def _cancel(self, numbers: Sequence[int]) -> None:
        if numbers:
            with contextlib.suppress(Exception):  # those that have ended cannot be cancelled
                self._provider.cancel([self._blocks[number].job for number in numbers])

    def serve(self, connection: socket.socket) -> None:
        """Gives a worker bundles until it or the launcher exits; runs in one thread for each worker."""
        connection.settimeout(_SECONDS_TO_GREET)
        try:
            channel = Channel(connection, self._token, is_launcher=True)
            number = channel.receive()
            channel.send(WELCOME)
        except (OSError, ValueError, SyntaxError):
            return  # a stranger
        block = self._blocks.get(number)
        if block is None:
            return
        block.has_worked = True
        self._failed_starts = 0
        while not block.is_leaving:
            try:
                future, calls = self._waiting.get(timeout=0.5)
            except queue.Empty:
                continue
            with self._changing:
                if block.is_leaving:
                    self._waiting.put((future, calls))
                    return
                block.busy += 1
            try:
                future.set_result(self._carried_out(calls, channel))
            except OSError as error:
                if isinstance(error, TimeoutError):
                    # Its node has not ended it either, so the node is lost.
                    self._cancel([number] if number in self._blocks else [])
                future.set_exception(LostWorkerError(str(error)))
                return
            except Exception as error:
                future.set_exception(error)
                return
            finally:
                block.busy -= 1
                block.idle_since = time.monotonic()

    def _carried_out(self, calls: Sequence[Call], channel: Channel) -> Any:
        """Sends runs to a worker, and waits for their outcomes."""
        channel.connection.settimeout(_PATIENCE_OF_LAUNCHER * self._silent_seconds)
        channel.send(
            ([dataclasses.astuple(call) for call in calls], dataclasses.astuple(self._place))
        )
        while True:
            outcome = channel.receive()
            if outcome is not None:  # a heartbeat
                return outcome


class _Server(socketserver.ThreadingTCPServer):
    """Accepts the workers of a pool."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    pool: Pool


class _Conversation(socketserver.BaseRequestHandler):
    """Serves one worker."""

    server: _Server

    def handle(self) -> None:
        """Gives the worker bundles."""
        self.server.pool.serve(self.request)


def _addresses() -> list[str]:
    """Returns this machine's name and addresses, as nodes may reach it."""
    found = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == socket.AF_INET
    ]
    return [socket.getfqdn(), *sorted(found, key=lambda address: address.startswith("127."))]


def _folder(engine: Engine, root: str) -> Path:
    """Makes the folder for scripts and logs, which exists as long as the pool."""
    if engine.is_local:
        return Path(tempfile.mkdtemp(prefix="launch-"))
    folder = Path(root).absolute() / "launch" / "parsl"
    if not all(character.isalnum() or character in "/._-+=@" for character in str(folder)):
        raise UserError(
            f"launch.root {folder.parents[1]} has characters that shell scripts of engine "
            f"{engine.name!r} cannot hold; choose a path without them"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)  # its scripts hold the token
    return folder


def _keep_quiet(folder: Path) -> None:
    """Redirects Parsl's log from standard error to a file."""
    logger = logging.getLogger("parsl")
    logger.propagate = False
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.addHandler(logging.FileHandler(folder / "launcher.log", delay=True))


def _last_line(path: str | Path | None) -> str:
    """Returns the last line of a file in brackets; nothing if there is none."""
    with contextlib.suppress(OSError):
        lines = Path(path or "").read_text(errors="replace").strip().splitlines()
        return f" ({lines[-1].strip()})" if lines else ""
    return ""
