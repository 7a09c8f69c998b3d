"""A pool of workers on Parsl's high-throughput executor, watched so that nothing hangs and nothing stays.

Parsl hands out work through a process of its own, the interchange, to pools of workers that its providers
start. What is added here: every such process leaves with the launcher (`launch.workers.guardian`), a dead
interchange or pool is noticed, and blocks that end are replaced while there is work.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil

from multiberts.launch.workers.engines import Engine, shell_lines
from multiberts.launch.workers.guardian import SECONDS_TO_SAVE, VARIABLE, watch_this_process
from multiberts.launch.workers.worker import Call, Place, carry_out_calls, environment_of_workers
from multiberts.runs.errors import UserError

SECONDS_TO_END = 5.0
SECONDS_TO_ANSWER = 10.0
# A socket's path has some hundred characters at most, of which multiprocessing takes its share.
LONGEST_PLACE_OF_SOCKETS = 60
# Until a block that nobody needs is given back.
SECONDS_OF_IDLENESS = 60.0
# Blocks in a row that end before any run has begun: more would not help.
MOST_BLOCKS_IN_VAIN = 3

_INTERCHANGE = "parsl.executors.high_throughput.interchange"
_POOL = "parsl.executors.high_throughput.process_worker_pool"
# The placeholders are Parsl's; those in double braces it fills in for each block.
_POOL_COMMAND = (
    "exec PYTHON -m multiberts.launch.workers.guardian "
    + _POOL
    + " {debug} {max_workers_per_node} -a {addresses} "
    "-p {prefetch_capacity} -c {cores_per_worker} -m {mem_per_worker} --poll {poll_period} "
    "--port={worker_port} --cert_dir '{cert_dir}' --logdir='{logdir}' --logconf={logconf} "
    "--block_id={{block_id}} --hb_period={heartbeat_period} {address_probe_timeout_string} "
    "--hb_threshold={heartbeat_threshold} --drain_period={drain_period} "
    "--cpu-affinity {cpu_affinity} {enable_mpi_mode} --mpi-launcher={mpi_launcher} "
    "--available-accelerators {accelerators}"
)


class PoolLostError(Exception):
    """The pool has broken down: what it carried out is lost, and another pool can be started."""


class Pool:
    """Workers, from the first run to the last.

    Usage:

        pool = Pool(engine, root, owner, place)
        future = pool.submit(calls)
        ...
        pool.look_after(outstanding=1)   # now and then
        pool.close()
    """

    def __init__(self, engine: Engine, place: Place, owner: str):
        """Starts the interchange, and on this machine the workers.

        Args:
          engine: how to get workers.
          place: what the workers are told.
          owner: of the launcher's lease.

        Raises:
          UserError: the engine takes no block, or the root has a path it cannot use.
          PoolLostError: the interchange does not start.
        """
        self._engine = engine
        self._place = place
        self._folder = _folder(engine, place.root)
        watch = watch_this_process(
            os.path.abspath(place.root),
            owner,
            folder=str(self._folder) if engine.is_local else None,
        )
        # Parsl gives its processes titles, which shall not take the environment's place.
        self._watch = {VARIABLE: watch.spelled(), "SPT_NOENV": "1"}
        self._blocks: dict[str, float] = {}  # the engine's jobs, and when each was asked for
        self._groups: list[int] = []  # process groups of this machine's pools
        self._in_vain = 0  # blocks in a row that ended before any run had begun
        self._why = ""
        self._has_worked = False
        self._next_look = 0.0
        _keep_quiet(self._folder)
        try:
            self._executor = self._make_executor()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        try:
            self._executor.start()
        except Exception as error:
            self.close()
            raise PoolLostError(f"the interchange did not start: {error}") from error
        try:
            self.look_after(outstanding=1)
        except BaseException:
            self.close()
            raise

    def submit(self, calls: Sequence[Call]) -> Future[Any]:
        """Has a worker carry out runs; gives what `launch.workers.worker.carry_out_calls` returns."""
        return self._executor.submit(carry_out_calls, {}, list(calls), self._place)

    def look_after(self, outstanding: int) -> list[str]:
        """Sees that everything is alive, and asks for as many blocks as there is work for.

        Args:
          outstanding: how many bundles are submitted and not finished.

        Returns:
          The engine's jobs that have ended since the last look: what they did is over.

        Raises:
          PoolLostError: the interchange, or this machine's pool, has died.
          UserError: the engine refuses blocks, or they end before they do anything.
        """
        interchange = self._executor.interchange_proc
        if interchange is None or interchange.poll() is not None:
            raise PoolLostError("the process that hands out work (Parsl's interchange) died")
        now = time.monotonic()
        if now < self._next_look:
            return []
        self._next_look = now + self._engine.poll_seconds
        per_block = self._engine.workers_per_node * self._engine.nodes_per_block
        wanted = min(self._engine.max_blocks, math.ceil(outstanding / per_block))
        for _ in range(wanted - len(self._blocks)):
            self._add_block()
        self._give_back(len(self._blocks) - wanted)
        # Replaced at the next look, when it is known whether they did anything.
        ended = self._forget_ended_blocks()
        self._hold(ended)
        return ended

    def note_alive(self) -> None:
        """To be told when a worker has begun a run: the engine's blocks do work."""
        self._in_vain = 0
        self._has_worked = True

    def ask_to_stop(self) -> None:
        """Has workers save and leave; returns when they have, or their time is up."""
        end = time.monotonic() + SECONDS_TO_SAVE
        if not self._engine.is_local:
            self._cancel_blocks()
            while self._blocks and time.monotonic() < end:
                time.sleep(min(1.0, self._engine.poll_seconds))
                self._forget_ended_blocks()
            return
        # Asked again and again: a worker may have been between two runs.
        while self._processes() and time.monotonic() < end:
            self._signal(signal.SIGTERM)
            time.sleep(0.2)
        self._signal(signal.SIGKILL)

    def abandon(self) -> None:
        """Ends everything without waiting for it."""
        if self._engine.is_local:
            self._signal(signal.SIGTERM)
        else:
            self._cancel_blocks()
        interchange = self._executor.interchange_proc
        if interchange is not None and interchange.poll() is None:
            interchange.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        """Ends workers that have nothing left to do, and all that was started for them."""
        if self._engine.is_local:
            self._signal(signal.SIGTERM)
            end = time.monotonic() + SECONDS_TO_END
            while self._processes() and time.monotonic() < end:
                time.sleep(0.02)
            self._signal(signal.SIGKILL)
        else:
            self._cancel_blocks()
        with contextlib.suppress(Exception):  # what has died cannot be shut down, and need not be
            self._executor.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make_executor(self) -> Any:
        from parsl.executors import HighThroughputExecutor

        engine = self._engine
        environment = {**environment_of_workers(engine.threads), **self._watch}
        if engine.is_local and len(str(self._folder)) <= LONGEST_PLACE_OF_SOCKETS:
            # What killed processes leave there is removed with the folder.
            environment["TMPDIR"] = str(self._folder)
        provider = engine.provider(shell_lines(engine, environment))
        provider.script_dir = str(self._folder / "blocks")
        Path(provider.script_dir).mkdir()
        settings = [f"{name}={value}" for name, value in self._watch.items()]
        executor = HighThroughputExecutor(
            label="pool",
            provider=provider,
            launch_cmd=_POOL_COMMAND.replace("PYTHON", shlex.quote(engine.python)),
            # Absolute: the environment's programs need not be in the PATH.
            interchange_launch_cmd=[
                *["/usr/bin/env", *settings],
                *[sys.executable, "-m", "multiberts.launch.workers.guardian", _INTERCHANGE],
            ],
            address=engine.address,
            max_workers_per_node=engine.workers_per_node,
            # The number of workers is ours to decide, not the number of cores'.
            cores_per_worker=1e-3,
            heartbeat_period=engine.heartbeat_period,
            heartbeat_threshold=engine.heartbeat_threshold,
            block_error_handler=False,
        )
        executor.run_dir = str(self._folder)
        executor.run_id = self._folder.name
        executor.log_config = None
        return executor

    def _add_block(self) -> None:
        if self._in_vain >= MOST_BLOCKS_IN_VAIN:
            raise UserError(
                f"{self._in_vain} times in a row workers of engine {self._engine.name!r} ended before "
                f"they did anything{self._why}; correct run.engine_options"
            )
        started = self._executor.scale_out_facade(1)
        if not started:
            states = reversed(self._executor.status_facade.values())
            message = next((state.message for state in states if state.message), "no reason given")
            self._in_vain, self._why = self._in_vain + 1, f" ({message})"
            if self._has_worked:
                return  # what worked before may work again
            raise UserError(
                f"engine {self._engine.name!r} refuses to start workers: {message}; correct "
                "run.engine_options"
            )
        job = self._executor.blocks_to_job_id[started[0]]
        self._blocks[job] = time.monotonic()
        if self._engine.is_local:
            self._groups.append(os.getpgid(int(job)))

    def _forget_ended_blocks(self) -> list[str]:
        """Asks the engine which blocks are still there; returns the jobs of those that are not."""
        jobs = list(self._blocks)
        states = self._executor.provider.status(jobs) if jobs else []
        ended = []
        for job, state in zip(jobs, states, strict=True):
            if not state.terminal:
                continue
            del self._blocks[job]
            ended.append(job)
            self._in_vain, self._why = self._in_vain + 1, _last_line(state.stderr_path)
            if self._engine.is_local:
                raise PoolLostError(f"the pool of workers died{self._why}")
        return ended

    def _give_back(self, count: int) -> None:
        """Ends so many blocks, if there are any that have been idle for long."""
        if count < 1 or self._engine.is_local:
            return
        busy: set[str] = set()
        idle: set[str] = set()
        for manager in self._ask("MANAGERS"):
            is_idle = manager["tasks"] == 0 and manager["idle_duration"] > SECONDS_OF_IDLENESS
            (idle if is_idle else busy).add(manager["block_id"])
        jobs = [self._executor.blocks_to_job_id[block] for block in sorted(idle - busy)]
        jobs = [job for job in jobs if job in self._blocks][:count]
        self._hold(jobs)
        if jobs:
            self._executor.provider.cancel(jobs)
        for job in jobs:
            del self._blocks[job]

    def _hold(self, jobs: Sequence[str]) -> None:
        """Has the interchange give nothing more to the pools of some jobs."""
        blocks = {self._executor.job_ids_to_block[job] for job in jobs}
        for manager in self._ask("MANAGERS") if blocks else []:
            if manager["block_id"] in blocks:
                self._ask(["HOLD_MANAGER", manager["manager"]])

    def _ask(self, command: str | list[str]) -> Any:
        """Asks the interchange, which may have died meanwhile."""
        try:
            return self._executor.command_client.run(command, timeout_s=SECONDS_TO_ANSWER)
        except Exception as error:
            raise PoolLostError(f"Parsl's interchange does not answer: {error}") from error

    def _cancel_blocks(self) -> None:
        if self._blocks:
            with contextlib.suppress(Exception):  # the guardians end what could not be cancelled
                self._executor.provider.cancel(list(self._blocks))

    def _signal(self, number: signal.Signals) -> None:
        """Sends a signal to all processes of this machine's pools, each a group of its own."""
        for group in self._groups:
            if group != os.getpgrp():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, number)

    def _processes(self) -> list[int]:
        """The processes of this machine's pools that run."""
        found = []
        for pid in psutil.pids() if self._groups else []:
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                is_ours = os.getpgid(pid) in self._groups
                if is_ours and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    found.append(pid)
        return found


def _folder(engine: Engine, root: str) -> Path:
    """Where Parsl keeps its certificates, scripts and logs while the pool is there."""
    if engine.is_local:
        return Path(tempfile.mkdtemp(prefix="launch-"))
    folder = Path(root).absolute() / "launch" / "parsl"
    if not all(character.isalnum() or character in "/._-+=@" for character in str(folder)):
        raise UserError(
            f"launch.root {folder.parents[1]} has characters that shell scripts of engine "
            f"{engine.name!r} cannot hold; choose a path without them"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _keep_quiet(folder: Path) -> None:
    """Sends what Parsl logs to a file, in place of standard error."""
    logger = logging.getLogger("parsl")
    logger.propagate = False
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.addHandler(logging.FileHandler(folder / "launcher.log", delay=True))


def _last_line(path: str | None) -> str:
    """The last line of a file in brackets, or nothing."""
    with contextlib.suppress(OSError, TypeError):
        lines = Path(str(path)).read_text(errors="replace").strip().splitlines()
        if path is not None and lines:
            return f" ({lines[-1].strip()})"
    return ""
