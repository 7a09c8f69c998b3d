"""A cluster of Dask that was started beforehand, as a user would: one scheduler, workers, TLS between all."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dask
import psutil
import pytest
from distributed import Security

from multiberts.tests.launch.launchers import wait_until
from multiberts.tests.tools import warm

_ROLES = ("scheduler", "worker", "client")


class DaskCluster:
    """Processes of `dask scheduler` and `dask worker`, while the block runs.

    Attributes:
      address: of the scheduler.
      environment: by which Dask finds the keys; docs/clusters.md has the same variables.
      workers: the processes of `dask worker`, each with one worker.
    """

    def __init__(
        self,
        folder: Path,
        num_workers: int = 2,
        *,
        are_forks: bool = True,
        have_nannies: bool = True,
        **environment: str,
    ):
        """Writes the keys.

        Args:
          folder: for keys and what is printed.
          num_workers: processes of `dask worker`.
          are_forks: whether the processes are forks of one that has imported Dask and this project, which
            saves each a second or two.
          have_nannies: whether each worker is another process, which `dask worker` starts and watches.
          environment: further variables of all processes.
        """
        self._folder = folder
        self._num_workers = num_workers
        self._are_forks = are_forks
        self._have_nannies = have_nannies
        keys = Security.temporary()
        files = {"CA_FILE": keys.tls_ca_file}
        for role in _ROLES:
            files[f"{role.upper()}__CERT"] = getattr(keys, f"tls_{role}_cert")
            files[f"{role.upper()}__KEY"] = getattr(keys, f"tls_{role}_key")
        self.environment = {**environment, "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"}
        for name, content in files.items():
            (folder / name).write_text(content)
            self.environment[f"DASK_DISTRIBUTED__COMM__TLS__{name}"] = str(folder / name)
        self.address = ""
        self.processes: list[subprocess.Popen[bytes] | warm.Process] = []

    def __enter__(self) -> DaskCluster:
        described = self._folder / "scheduler.json"
        file = ("--scheduler-file", str(described))
        self._start("scheduler", "--host=127.0.0.1", "--port=0", "--protocol=tls", *file)
        # The file is there before its content.
        assert wait_until(lambda: described.exists() and "}" in described.read_text()), self.said()
        self.address = json.loads(described.read_text())["address"]
        for _ in range(self._num_workers):
            self.add_worker(wait=False)
        self.wait_for_workers()
        return self

    def add_worker(self, wait: bool = True, **environment: str) -> None:
        """Starts another worker, `worker-<number>`.

        Args:
          environment: further variables of this one.
        """
        # Importing its own pages would take a worker as long as all the rest.
        name = f"--name=worker-{len(self.workers)}"
        options = [name, "--nthreads=1", "--host=127.0.0.1", "--no-dashboard"]
        if not self._have_nannies:
            options.append("--no-nanny")
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in environment.items():
                patch.setitem(self.environment, variable, value)
            self._start("worker", self.address, *options, f"--local-directory={self._folder}")
        if wait:
            self.wait_for_workers()

    def wait_for_workers(self) -> None:
        """Waits until all workers have connected at least once."""
        count = len(self.workers)
        assert wait_until(lambda: self.said().count("Registered to") >= count), self.said()

    def __exit__(self, *exception: object) -> None:
        # The scheduler last; a worker that is just starting again would wait for it. Where it is gone,
        # nannies would wait for it, too.
        seconds = 20 if self.processes[0].poll() is None else 0.1
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                children: list[psutil.Process] = []
                with contextlib.suppress(psutil.NoSuchProcess):  # it may end just now
                    children = psutil.Process(process.pid).children()
                process.kill()
                process.wait()
                for child in children:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()

    @property
    def workers(self) -> list[subprocess.Popen[bytes] | warm.Process]:
        return self.processes[1:]

    def said(self) -> str:
        return "".join(path.read_text() for path in sorted(self._folder.glob("*.output")))

    def _start(self, program: str, *arguments: str) -> None:
        given = [*arguments, "--dashboard-address=127.0.0.1:0"]
        variables = {**os.environ, **self.environment}
        with open(self._folder / f"{len(self.processes)}.output", "ab") as stream:
            out = stream.fileno()
            if self._are_forks:
                target = "multiberts.tests.tools.dask_program:run"
                process: subprocess.Popen[bytes] | warm.Process = warm.Process(
                    target, [program, given], environment=variables, stdout=out, stderr=out
                )
            else:
                process = subprocess.Popen(
                    [sys.executable, "-m", f"distributed.cli.dask_{program}", *given],
                    env=variables,
                    stdout=out,
                    stderr=out,
                )
        self.processes.append(process)


@contextlib.contextmanager
def keys_in_place(cluster: DaskCluster) -> Iterator[None]:
    """Lets this process and those it starts find the keys of a cluster."""
    with contextlib.ExitStack() as stack:
        stack.callback(dask.config.refresh)  # when the variables are gone, whatever happens
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        dask.config.refresh()
        yield
