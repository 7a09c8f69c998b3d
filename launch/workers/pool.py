"""A pool of workers on Dask, which starts them, talks to them, and replaces those that are lost.

On this machine and on Slurm the scheduler lives in the launcher's process. Here the workers are its children
(`LocalCluster`), on Slurm they come in jobs (`workers.slurm`). Any other Dask cluster is used by the address
of its scheduler. A bundle of runs is one task (`workers.in_dask.carry_out`).
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import datetime
import logging
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from multiberts.launch.workers.engines import DaskOptions, Engine, SlurmOptions
from multiberts.launch.workers.mark import VARIABLE, mark_of_this_process
from multiberts.launch.workers.slurm import SlurmJobs, name_of_jobs, script_of_jobs
from multiberts.launch.workers.worker import Call, LostWorkerError, WorkerPlace
from multiberts.runs.console import progress
from multiberts.runs.dask_cluster import connect, first_cause, import_distributed
from multiberts.runs.environment import ATTENTION, ENGINE, PRECISION
from multiberts.runs.errors import UserError
from multiberts.runs.files import remove

# Below the root; it exists as long as the pool, on Slurm with the workers' keys.
FOLDER = "launch/dask"
KEYS = "tls_ca_file"
SECONDS_TO_END = 5.0
SECONDS_BETWEEN_LOOKS = 0.5
# On this machine; a worker that is ended starts again in seconds.
SECONDS_WITHOUT_WORKERS = 600.0
# For Dask's own ends of connections and processes, which wait for stopped ones.
_SECONDS_TO_CLOSE = 10
_WORKER_PROCESS = "Dask Worker process"
_LOGGERS = ("distributed", "tornado", "asyncio")

# Errors of a task whose worker, or whose connection, is gone.
_LOST = ("KilledWorker", "CancelledError", "FutureCancelledError", "CommClosedError")

# Workers read these, too: on other machines from their environment.
_SETTINGS_OF_WORKERS = {
    # Stages may have processes of their own.
    "distributed.worker.daemon": False,
    # It would look at the training thread every 10 ms.
    "distributed.worker.profile.enabled": False,
    "distributed.worker.use-file-locking": False,
    "distributed.comm.timeouts.connect": "60s",
}


class Pool:
    """Workers, from the first run to the last; `num_workers` are connected now.

    Usage:

        pool = Pool(engine, place, silent_seconds=90)
        future = pool.submit(calls, known)
        ...
        pool.look_after(outstanding=1)   # now and then
        pool.end(seconds=5)
    """

    def __init__(
        self, engine: Engine, place: WorkerPlace, silent_seconds: float, *, dashboard: bool = False
    ):
        """Starts a scheduler, and on this machine its workers; or connects to another cluster's.

        Args:
          silent_seconds: a worker without a heartbeat for so long is ended.
          dashboard: whether Dask's live pages are served, at this machine's own address.
        """
        self._engine = engine
        self._place = place
        self._name = f"launch-{place.owner}"
        self._number = 0
        self._waiting: collections.deque[tuple[Future[Any], list[Call], list[int]]] = (
            collections.deque()
        )
        self._running: dict[str, tuple[Any, Future[Any]]] = {}
        self._changing = threading.Lock()
        self._had_workers = time.monotonic()
        self._next_look = 0.0
        self.num_workers = 0
        self._cluster: Any = None
        self._client: Any = None
        self._jobs: SlurmJobs | None = None
        self._folder = _folder(engine, place.root)
        self._stack = contextlib.ExitStack()
        try:
            self._start(silent_seconds, dashboard)
        except BaseException:
            self.end(0)
            raise

    def _start(self, silent_seconds: float, dashboard: bool) -> None:
        engine, options = self._engine, self._engine.options
        mark = mark_of_this_process(os.path.abspath(self._place.root), self._place.owner)
        environment = {
            **environment_of_workers(engine.threads, options.compute),
            **{
                f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value)
                for name, value in _SETTINGS_OF_WORKERS.items()
            },
            "DASK_LOGGING__DISTRIBUTED": "critical",
            # Dask gives its processes titles, which would overwrite the environment that `leftovers` reads.
            "SPT_NOENV": "1",
            VARIABLE: mark.to_string(),
        }
        if not isinstance(options, DaskOptions):
            # Processes of this machine inherit it.
            self._stack.enter_context(_environment(environment))
        distributed = import_distributed()
        if dashboard and find_spec("bokeh") is None:
            raise UserError(
                "run.dashboard needs the package bokeh, which is not installed; install "
                "multiberts[dashboard]"
            )
        import dask

        _silence(self._stack)
        self._stack.enter_context(
            dask.config.set(
                {
                    **_SETTINGS_OF_WORKERS,
                    "distributed.nanny.pre-spawn-environ": {},
                    # A lost worker is reported at once; the launcher decides what is tried again.
                    "distributed.scheduler.allowed-failures": 0,
                    "distributed.scheduler.worker-ttl": f"{silent_seconds}s",
                    "distributed.scheduler.active-memory-manager.start": False,
                    # A worker that starts again slower than this would be given up for ever.
                    "distributed.deploy.lost-worker-timeout": "1h",
                    "temporary-directory": str(self._folder),
                }
            )
        )
        if isinstance(options, DaskOptions):
            self._client = connect(options.scheduler, "run.engine_options['scheduler']")
            _say_what_differs(self._client, options.scheduler, silent_seconds)
        else:
            self._cluster = self._make_cluster(distributed, dashboard)
            self._client = distributed.Client(self._cluster, set_as_default=False)
            if dashboard:
                progress(f"Dask's dashboard: {self._cluster.dashboard_link}")
        from multiberts.launch.workers.in_dask import LaunchWorker, LetsRunsSave

        try:
            self._client.register_plugin(LaunchWorker(engine.workers_per_node, engine.is_local))
            if not engine.is_local:
                self._client.register_plugin(LetsRunsSave())
        except Exception as error:
            raise self._unable(error) from error
        self.num_workers = len(self._names_of_workers())
        if isinstance(options, SlurmOptions):
            name = name_of_jobs(self._place.root, self._place.owner)
            self._jobs = SlurmJobs(
                options,
                script=script_of_jobs(
                    options,
                    self._cluster.scheduler_address,
                    name=name,
                    workers=engine.workers_per_node,
                    environment=environment,
                    folder=str(self._folder),
                    security=self._cluster.security,
                ),
                name=name,
                folder=self._folder,
                workers=self._names_of_workers,
            )

    def _make_cluster(self, distributed: Any, dashboard: bool) -> Any:
        """Returns a scheduler in this process with, on this machine, its workers."""
        engine, options = self._engine, self._engine.options
        _start_resource_tracker()
        keys = self._make_keys(distributed)

        def start() -> Any:
            return distributed.LocalCluster(
                n_workers=engine.workers_per_node if engine.is_local else 0,
                threads_per_worker=1,
                # Else Dask stops a worker at 95 % of its share of the memory, which the machine may have.
                memory_limit=0,
                local_directory=str(self._folder),
                host=options.host,
                # Its HTTP server takes port 8787 of all interfaces otherwise, without a dashboard, too.
                dashboard_address="127.0.0.1:8787" if dashboard else "127.0.0.1:0",
                # Importing its own pages would take a worker as long as all the rest of its start.
                worker_dashboard_address="127.0.0.1:0" if dashboard else None,
                scheduler_kwargs={"dashboard": dashboard},
                security=keys,
                silence_logs=False,
            )

        with contextlib.suppress(RuntimeError):
            return start()
        try:
            # Once more: a worker that is killed while it starts ends the whole cluster.
            return start()
        except RuntimeError as error:
            raise UserError(
                f"engine {engine.name!r} cannot start: {first_cause(error)}; see whether this machine has "
                "memory, processes and ports left"
            ) from error

    def _make_keys(self, distributed: Any) -> Any:
        """Returns keys of this launch alone, which workers and scheduler show to each other."""
        keys = make_keys()
        for name, text in keys.items():
            if not self._engine.is_local:
                keys[name] = str(self._folder / name)
                (self._folder / name).touch(mode=0o600)
                (self._folder / name).write_text(text)
        for role in ("scheduler", "client"):
            for kind in ("cert", "key"):
                keys[f"tls_{role}_{kind}"] = keys[f"tls_worker_{kind}"]
        return distributed.Security(require_encryption=True, **keys)

    def submit(self, calls: Sequence[Call], known: Sequence[int]) -> Future[Any]:
        """Submits runs to a worker; the future returns what `worker.carry_out_calls` does.

        It raises `LostWorkerError` where the worker died or is silent.

        Args:
          known: how many attempts at each of them there were before.
        """
        ours: Future[Any] = Future()
        self._waiting.append((ours, list(calls), list(known)))
        self._feed()
        return ours

    def _feed(self) -> None:
        """Gives Dask one bundle per worker, as one that only waits for a worker is lost with it, too."""
        from multiberts.launch.workers.in_dask import carry_out

        with self._changing:
            if self._client.status != "running":
                return  # it connects again, or `look_after` gives up
            while self._waiting and len(self._running) < self.num_workers:
                ours, calls, known = self._waiting.popleft()
                self._number += 1
                key = f"{self._name}-{self._number}"
                task = self._client.submit(
                    carry_out, self._name, calls, known, self._place, key=key, pure=False
                )
                self._running[key] = task, ours
                task.add_done_callback(self._take)

    def _take(self, task: Any) -> None:
        """Passes on what a task returned; called in a thread of Dask's."""
        with self._changing:
            _, ours = self._running.pop(task.key)
        try:
            ours.set_result(task.result())
        except LostWorkerError as error:
            ours.set_exception(error)
        except BaseException as error:
            if type(error).__name__ in _LOST:
                # Until it is seen again: Dask would queue the next bundle at a worker that is busy.
                self.num_workers = max(0, self.num_workers - 1)
                ours.set_exception(LostWorkerError(str(error)))
            else:  # errors of runs are outcomes
                ours.set_exception(self._unable(error))
        with contextlib.suppress(Exception):  # the pool may be closing
            self._feed()

    def _unable(self, error: BaseException) -> UserError:
        return UserError(
            f"the workers of engine {self._engine.name!r} cannot carry out runs "
            f"({type(error).__name__}: {first_cause(error)}); they need this version of the project, and "
            "what it requires"
        )

    def look_after(self, outstanding: int) -> None:
        """Sees that there are workers, and gives them what waits.

        Args:
          outstanding: how many bundles are submitted and not finished.
        """
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + SECONDS_BETWEEN_LOOKS
        if self._client.status in ("closed", "closing"):
            raise UserError(
                f"the scheduler of engine {self._engine.name!r} is gone; start it, and give the same "
                "command, which resumes from here"
            )
        self.num_workers = len(self._names_of_workers())
        if self.num_workers:
            self._had_workers = now
        elif self._engine.is_local and now - self._had_workers > SECONDS_WITHOUT_WORKERS:
            raise UserError(
                f"no worker has started for {SECONDS_WITHOUT_WORKERS:.0f} s; see whether this machine has "
                "memory, processes and ports left"
            )
        if self._jobs is not None:
            self._jobs.look_after(-(-outstanding // self._engine.workers_per_node))
        self._feed()

    def _names_of_workers(self) -> dict[str, bool]:
        """Returns whether each worker that is connected has a bundle, by its name."""
        if self._cluster is not None:
            found: dict[str, bool] = self._cluster.sync(_look_at_workers, self._cluster.scheduler)
            return found
        try:
            info = self._client.scheduler_info(n_workers=-1)
        except Exception:  # it is gone, or connects again
            return {}
        # While the client connects again, there is nothing in it.
        workers = info.get("workers", {})
        return {str(worker["name"]): False for worker in workers.values()}

    def end(self, seconds: float) -> None:
        """Asks all workers to save; on this machine and on Slurm, ends them and removes the pool's folder.

        Args:
          seconds: how long to wait for them. 0: do not wait.
        """
        with self._changing:
            self._waiting.clear()
        if self._jobs is not None:
            self._jobs.stop_looking()
        if self._client is not None:
            self._let_workers_save(seconds)
        if self._jobs is not None:
            self._jobs.cancel()
        with contextlib.suppress(Exception):
            if self._client is not None:
                self._client.close(timeout=2)
        with contextlib.suppress(Exception):
            if self._cluster is not None:
                self._cluster.close(timeout=_SECONDS_TO_CLOSE)
        for child in multiprocessing.active_children():
            # Python would wait for it when this process ends.
            if self._engine.is_local and child.name.startswith(_WORKER_PROCESS):
                child.kill()
        self._stack.close()
        if not isinstance(self._engine.options, DaskOptions):
            shutil.rmtree(self._folder, ignore_errors=True)

    def _let_workers_save(self, seconds: float) -> None:
        from multiberts.launch.workers.in_dask import leave

        if self._engine.is_local and self._cluster is not None:
            for nanny in list(self._cluster.workers.values()):
                nanny.close_gracefully()  # or it would start a worker again that has left
                with contextlib.suppress(OSError, TypeError):
                    os.kill(nanny.pid, signal.SIGCONT)  # a stopped one hears nothing

        def ask() -> None:
            with contextlib.suppress(Exception):
                self._client.run(leave, self._name, wait=False, on_error="ignore")

        with self._changing:
            running = [ours for _, ours in self._running.values()]
        if running:
            # In a thread, as it waits for answers, which a stopped worker does not give.
            threading.Thread(target=ask, daemon=True).start()
            concurrent.futures.wait(running, timeout=seconds)


def make_keys() -> dict[str, str]:
    """Returns a key and its certificate in PEM, by the names of `distributed.Security`.

    `Security.temporary()` makes them valid from now on, so that a node whose clock is a second behind refuses
    its launcher. Here no clock counts: a launch ends long before its keys could.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "multiberts")])
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=datetime.datetime(1970, 1, 2),
        not_valid_after=datetime.datetime(2100, 1, 1),
    )
    certificate = builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return {"tls_ca_file": certificate, "tls_worker_cert": certificate, "tls_worker_key": secret}


async def _look_at_workers(scheduler: Any) -> dict[str, bool]:
    return {str(one.name): bool(one.processing) for one in scheduler.running}


def _say_what_differs(client: Any, address: str, silent_seconds: float) -> None:
    """Says what a cluster that others started does otherwise than ours."""

    # A function within a function travels as a whole: that scheduler need not have this project.
    def settings(dask_scheduler: Any) -> dict[str, Any]:
        import dask

        return {
            "allowed-failures": dask_scheduler.allowed_failures,
            "worker-ttl": dask_scheduler.worker_ttl,
            "lost-worker-timeout": dask.config.get("distributed.deploy.lost-worker-timeout", None),
            "threads": max((one.nthreads for one in dask_scheduler.workers.values()), default=1),
        }

    try:
        found = client.run_on_scheduler(settings)
    except Exception as error:
        progress(f"the settings of {address} cannot be read ({first_cause(error)})")
        return
    ttl = found["worker-ttl"]
    if ttl is None or ttl > silent_seconds:
        after = "never" if ttl is None else f"only after {ttl:.0f} to {2 * ttl:.0f} s"
        progress(
            f"{address}: a worker that is stopped or hangs is noticed {after} (worker-ttl; "
            f"run.silent_seconds is {silent_seconds:.0f})"
        )
    if found["allowed-failures"]:
        progress(
            f"{address}: a bundle whose worker dies before it begins is passed on up to "
            f"{found['allowed-failures']} times before it counts as lost (allowed-failures)"
        )
    if found["lost-worker-timeout"] != "1h":
        progress(
            f"{address}: a worker that is away for {found['lost-worker-timeout']} may be given up by its "
            "cluster manager (lost-worker-timeout)"
        )
    if found["threads"] > 1:
        progress(f"{address}: of {found['threads']} threads of a worker only one is used")


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def environment_of_workers(threads: int, compute: str | None = None) -> dict[str, str]:
    """Returns the environment variables that libraries read when a worker imports them.

    Args:
      threads: each worker's share of the cores.
      compute: the library that trains and predicts; None: that of this process's environment, if any.
    """
    chosen = {name: os.environ.get(name) for name in (ENGINE, ATTENTION, PRECISION)}
    chosen[ENGINE] = compute or chosen[ENGINE]
    return {
        **{name: value for name, value in chosen.items() if value},
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": "1",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
    }


def _start_resource_tracker() -> None:
    """Starts Python's helper of processes so that it outlives a hang-up, as it does SIGTERM and Ctrl-C.

    Otherwise a launcher that saves after one prints that its helper died, and a traceback of another.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN) if is_main else None
    resource_tracker.ensure_running()
    if before is not None:
        signal.signal(signal.SIGHUP, before)


def _silence(stack: contextlib.ExitStack) -> None:
    """Keeps Dask's log from standard error; it sets levels of its own when it is imported."""
    for name in [name for name in logging.root.manager.loggerDict if name.startswith(_LOGGERS)]:
        logger = logging.getLogger(name)
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)


def _folder(engine: Engine, root: str) -> Path:
    """Makes the folder for keys, logs and workers' files."""
    folder = Path(root).absolute() / FOLDER
    if isinstance(engine.options, DaskOptions):
        return folder
    is_plain = all(character.isalnum() or character in "/._-+=@" for character in str(folder))
    if not (engine.is_local or is_plain):
        raise UserError(
            f"launch.root {folder.parents[1]} has characters that shell scripts of engine "
            f"{engine.name!r} cannot hold; choose a path without them"
        )
    # One that was killed has left it, and this launcher has the lease.
    with contextlib.suppress(OSError):
        remove(folder)
    folder.mkdir(parents=True, mode=0o700)  # it holds keys
    return folder
