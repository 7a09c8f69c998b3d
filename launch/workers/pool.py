"""A pool of workers on Dask, which starts them, talks to them, and replaces lost ones.

On this machine and on Slurm the scheduler is in the launcher's process; workers are its children
(`LocalCluster`) or run in Slurm jobs (`workers.slurm`). Any other Dask cluster is used by the address of its
scheduler. A chunk of runs is one Dask task (`workers.in_dask.carry_out`).
"""

from __future__ import annotations

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
from collections.abc import Sequence
from concurrent.futures import Future
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from multiberts.launch.workers.engines import DaskOptions, Engine, SlurmOptions
from multiberts.launch.workers.leftovers import FOLDER, VARIABLE, mark_of_this_process
from multiberts.launch.workers.slurm import SlurmJobs, name_of_jobs, script_of_jobs
from multiberts.launch.workers.worker import Call, LaunchContext
from multiberts.runs.console import progress
from multiberts.runs.dask_cluster import Workers, connect, first_cause
from multiberts.runs.environment import ATTENTION, ENGINE, PRECISION
from multiberts.runs.errors import UserError
from multiberts.runs.files import remove
from multiberts.runs.processes import code_digest

SECONDS_TO_END = 5.0
# Limit for workers of this machine, which restart in seconds.
SECONDS_WITHOUT_WORKERS = 600.0
# After this number of workers in a row that ended before they connected, give up.
_MAX_FAILED_STARTS = 20
# Afterwards the pool looks for workers only now and then.
_SECONDS_TO_START = 5
# Limit for Dask to close connections and processes; it would wait for stopped ones.
_SECONDS_TO_CLOSE = 10
_WORKER_PROCESS = "Dask Worker process"
_LOGGERS = ("distributed", "tornado", "asyncio")

# Workers on other machines read these from their environment.
_SETTINGS_OF_WORKERS = {
    # Stages may start processes.
    "distributed.worker.daemon": False,
    # Dask's profiler would interrupt the training thread every 10 ms.
    "distributed.worker.profile.enabled": False,
    "distributed.worker.use-file-locking": False,
    "distributed.comm.timeouts.connect": "60s",
}
_SETTINGS = {
    **_SETTINGS_OF_WORKERS,
    "distributed.nanny.pre-spawn-environ": {},
    # Report a lost worker at once: the launcher decides what is tried again.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.active-memory-manager.start": False,
    # Dask would give up for ever a worker that restarts slower than this.
    "distributed.deploy.lost-worker-timeout": "1h",
}


class Pool:
    """Workers, from the first run to the last.

    Usage:

        pool = Pool(engine, context, silent_seconds=90)
        future = pool.submit(calls, journal)
        ...
        pool.look_after(outstanding=1)   # now and then
        pool.end(seconds=5)
    """

    def __init__(
        self,
        engine: Engine,
        context: LaunchContext,
        silent_seconds: float,
        *,
        dashboard: bool = False,
    ):
        """Starts a scheduler, and workers if they are here; or connects to another cluster."""
        self._engine = engine
        self._context = context
        self._name = f"launch-{context.owner}"
        self._cluster: Any = None
        self._client: Any = None
        self._workers: Any = None
        self._jobs: SlurmJobs | None = None
        self._failed_starts = 0
        self._folder = Path(context.root).absolute() / FOLDER
        self._stack = contextlib.ExitStack()
        if not isinstance(engine.options, DaskOptions):
            # A folder for keys, logs and workers' files.
            is_plain = all(c.isalnum() or c in "/._-+=@" for c in str(self._folder))
            if not (engine.is_local or is_plain):
                raise UserError(
                    f"launch.root {self._folder.parents[1]} has characters that shell scripts of engine "
                    f"{engine.name!r} cannot hold; choose a path without them"
                )
            # A killed launcher left it; this launcher has the lease.
            with contextlib.suppress(OSError):
                remove(self._folder)
            self._folder.mkdir(parents=True, mode=0o700)  # for keys
        try:
            self._start(silent_seconds, dashboard)
        except BaseException:
            self.end(0)
            raise

    def _start(self, silent_seconds: float, dashboard: bool) -> None:
        # The workers' environment.
        code_digest()  # before a worker is started
        engine, options = self._engine, self._engine.options
        mark = mark_of_this_process(os.path.abspath(self._context.root), self._context.owner)
        environment = {
            **environment_of_workers(engine.threads, options.compute),
            **{
                f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value)
                for name, value in _SETTINGS_OF_WORKERS.items()
            },
            "DASK_LOGGING__DISTRIBUTED": "critical",
            # Dask's process titles would overwrite the environment that `leftovers` reads.
            "SPT_NOENV": "1",
            VARIABLE: mark.to_string(),
        }
        if not isinstance(options, DaskOptions):
            # Workers on this machine inherit it.
            before = {name: os.environ[name] for name in environment if name in os.environ}
            self._stack.callback(os.environ.update, before)
            for name in environment:
                self._stack.callback(os.environ.pop, name, None)
            os.environ.update(environment)

        # Only errors of Dask, which sets log levels when it is imported.
        import dask
        import distributed

        if dashboard and find_spec("bokeh") is None:
            raise UserError(
                "run.dashboard needs the package bokeh, which is not installed; install "
                "multiberts[dashboard]"
            )
        for name in [name for name in logging.root.manager.loggerDict if name.startswith(_LOGGERS)]:
            logger = logging.getLogger(name)
            self._stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        settings = {
            **_SETTINGS,
            "distributed.scheduler.worker-ttl": f"{silent_seconds}s",
            "temporary-directory": str(self._folder),
        }
        self._stack.enter_context(dask.config.set(settings))

        # The scheduler: ours, with its workers if they are here, or another cluster's.
        cluster = f"engine {engine.name!r}"
        if isinstance(options, DaskOptions):
            self._client = connect(options.scheduler, "run.engine_options['scheduler']")
            cluster = f"the cluster at {options.scheduler}"
            ttl = self._client.run_on_scheduler(dask.config.get, "distributed.scheduler.worker-ttl")
            seconds = dask.utils.parse_timedelta(ttl)
            if seconds is None or seconds > silent_seconds:
                after = f"only after {seconds:.0f} to {2 * seconds:.0f} s" if seconds else "never"
                progress(
                    f"note: in {cluster} a worker that is stopped or hangs is noticed {after} (worker-ttl; "
                    f"run.silent_seconds is {silent_seconds:.0f})"
                )
        else:
            self._cluster = self._make_cluster(distributed, dashboard)
            self._client = distributed.Client(self._cluster, set_as_default=False)
            if dashboard:
                progress(f"Dask's dashboard: {self._cluster.dashboard_link}")
            from multiberts.launch.workers.in_dask import LaunchWorker, LetsRunsSave

            self._client.register_plugin(LaunchWorker(engine.workers_per_node, engine.is_local))
            if engine.is_local:
                self._cluster.scale(engine.workers_per_node)
                with contextlib.suppress(TimeoutError):
                    self._client.wait_for_workers(engine.workers_per_node, _SECONDS_TO_START)
            else:
                self._client.register_plugin(LetsRunsSave())

        waiting_for = "one to start" if engine.is_local else "one to connect"
        # The workers, on Slurm in jobs.
        self._workers = Workers(
            self._client,
            cluster,
            self._name,
            are_own=self._cluster is not None,
            waiting_for=lambda: self._jobs.waiting_for() if self._jobs else waiting_for,
        )
        if isinstance(options, SlurmOptions):
            name = name_of_jobs(self._context.root, self._context.owner)
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
                workers=lambda: self._workers.names,
            )

    def _make_cluster(self, distributed: Any, dashboard: bool) -> Any:
        """Returns a scheduler in this process, without workers."""
        # Python's resource tracker must survive SIGHUP, as it does SIGTERM and Ctrl-C: else a launcher that
        # saves after SIGHUP prints that its tracker died, and a traceback.
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN) if is_main else None
        resource_tracker.ensure_running()
        if before is not None:
            signal.signal(signal.SIGHUP, before)

        # Keys of this launch, by which workers and scheduler know each other; in files for nodes.
        keys = make_keys()
        if not self._engine.is_local:
            for name, text in keys.items():
                file = self._folder / name
                file.touch(mode=0o600)
                file.write_text(text)
                keys[name] = str(file)
        for role in ("scheduler", "client"):
            for kind in ("cert", "key"):
                keys[f"tls_{role}_{kind}"] = keys[f"tls_worker_{kind}"]
        try:
            return distributed.LocalCluster(
                # It would wait for its workers, for ever if one hangs, and give up if one is killed.
                n_workers=0,
                threads_per_worker=1,
                # Otherwise Dask kills a worker at 95 % of its share of memory, though the machine has more.
                memory_limit=0,
                local_directory=str(self._folder),
                host=self._engine.options.host,
                # Otherwise its HTTP server listens on port 8787 of all interfaces, even without a dashboard.
                dashboard_address="127.0.0.1:8787" if dashboard else "127.0.0.1:0",
                # Importing the worker's pages would double the time of its start.
                worker_dashboard_address="127.0.0.1:0" if dashboard else None,
                scheduler_kwargs={"dashboard": dashboard},
                security=distributed.Security(require_encryption=True, **keys),
                silence_logs=False,
            )
        except RuntimeError as error:
            address = getattr(self._engine.options, "address", None)
            cure = "see whether this machine has memory, processes and ports left"
            if address:
                cure += f", and whether run.engine_options['address'], {address!r}, is its own"
            raise UserError(
                f"engine {self._engine.name!r} cannot start: {first_cause(error)}; {cure}"
            ) from error

    @property
    def num_workers(self) -> int:
        """Returns the number of connected workers that can work."""
        return len(self._workers.names)

    def submit(self, calls: Sequence[Call], journal: str) -> Future[Any]:
        """Submits runs to a worker; the future returns what `worker.carry_out_calls` does.

        It raises `LostWorkerError` where the worker died or is silent.

        Args:
          journal: journal of these runs' attempts, not shared with another chunk.
        """
        from multiberts.launch.workers.in_dask import carry_out

        future: Future[Any] = self._workers.submit(
            carry_out, self._name, list(calls), journal, self._context
        )
        return future

    def look_after(self, outstanding: int) -> None:
        """Keeps enough workers for the unfinished chunks, and submits waiting chunks."""
        self._workers.look_after()
        if self._jobs is not None:
            self._jobs.look_after(-(-outstanding // self._engine.workers_per_node))
        if not self._engine.is_local:
            return

        # Restart workers of this machine that Dask gave up: disconnected, or killed as they started.
        if time.monotonic() - self._workers.had_workers > SECONDS_WITHOUT_WORKERS:
            raise UserError(
                f"no worker has started for {SECONDS_WITHOUT_WORKERS:.0f} s; see whether this machine has "
                "memory, processes and ports left"
            )
        self._failed_starts *= not self.num_workers
        for name, nanny in list(self._cluster.workers.items()):
            if nanny.status.name in ("closed", "failed"):
                del self._cluster.workers[name]
                self._cluster.scale(self._engine.workers_per_node)
                self._failed_starts += 1
        if self._failed_starts >= _MAX_FAILED_STARTS:
            raise UserError(
                f"the last {self._failed_starts} workers ended as they started; what they printed says why "
                "(a script of yours must launch below `if __name__ == '__main__':`)"
            )

    def end(self, seconds: float) -> None:
        """Asks all workers to save; here and on Slurm also ends them and removes the pool's folder.

        Args:
          seconds: longest time to wait for them; 0: do not wait.
        """
        if self._jobs is not None:
            self._jobs.stop_looking()
        try:
            if self._workers is not None:
                from multiberts.launch.workers.in_dask import leave

                self._workers.drop_waiting()
                if self._engine.is_local and self._cluster is not None:
                    for nanny in list(self._cluster.workers.values()):
                        nanny.close_gracefully()  # or the nanny would restart a worker that has left
                        with contextlib.suppress(OSError, TypeError):
                            os.kill(
                                nanny.pid, signal.SIGCONT
                            )  # a stopped process receives no SIGTERM
                running = self._workers.running

                def ask() -> None:
                    with contextlib.suppress(Exception):
                        self._client.run(
                            leave, self._name, workers=list(running), wait=False, on_error="ignore"
                        )

                if running:
                    # In a thread, because it waits for answers, which a stopped worker does not give.
                    threading.Thread(target=ask, daemon=True).start()
                    concurrent.futures.wait(running.values(), timeout=seconds)
        finally:  # even a second Ctrl-C must not leave jobs behind
            if self._jobs is not None:
                self._jobs.cancel()
        with contextlib.suppress(Exception):
            if self._client is not None:
                self._client.close(timeout=2)
        with contextlib.suppress(Exception):
            if self._cluster is not None:
                self._cluster.close(timeout=_SECONDS_TO_CLOSE)
        for child in multiprocessing.active_children():
            # Otherwise Python waits for the thread at exit.
            if self._engine.is_local and child.name.startswith(_WORKER_PROCESS):
                child.kill()
        self._stack.close()
        if not isinstance(self._engine.options, DaskOptions):
            shutil.rmtree(self._folder, ignore_errors=True)


def make_keys() -> dict[str, str]:
    """Makes a key and its certificate in PEM, named as in `distributed.Security`.

    `Security.temporary()` makes them valid from now on, so that a node whose clock is a second behind refuses
    its launcher. These are valid at any time, which is safe because a launch is short.
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


def environment_of_workers(threads: int, compute: str | None = None) -> dict[str, str]:
    """Returns environment variables for the libraries that a worker imports."""
    chosen = {name: os.environ.get(name) for name in (ENGINE, ATTENTION, PRECISION)}
    chosen[ENGINE] = compute or chosen[ENGINE]
    return {
        **{name: value for name, value in chosen.items() if value},
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": "1",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
    }
