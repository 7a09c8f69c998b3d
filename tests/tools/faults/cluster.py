"""Faults of clusters of Dask that others have started, and of this machine's workers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[3]
_LIMIT = 150.0  # seconds for a launcher, which may wait for ever
_STAGES = """
import os, time
from pathlib import Path
from multiberts.runs.directory import RunDirectory

def tell(*, run_dir, seconds=0.0, cut=False):
    print("begun", flush=True)
    run = RunDirectory(run_dir, stage="tell", parameters={}, inputs={})
    if run.done:
        return
    with run:
        if cut and not Path(run_dir + ".cut").exists():
            from distributed import get_worker
            Path(run_dir + ".cut").touch()
            get_worker().loop.add_callback(get_worker().batched_stream.abort)
            time.sleep(1000)
        time.sleep(seconds)
        from multiberts.runs.version_of_code import VERSION
        (Path(run_dir) / "told").write_text(str(VERSION))
        run.finish(["told"])
"""
_LAUNCH = "import sys; from multiberts.tests.launch.launchers import launch; launch(sys.argv.pop())"


def code_that_changes_while_this_machine_launches(scratch: Path) -> str:
    """Code is changed while local workers carry out runs."""
    code = _copy_of_code(scratch / "code")
    names = [f"run{number}" for number in range(6)]
    change = _when(scratch / "root" / "run0" / "told", lambda: _change(code))
    return _launch(scratch, code, names, {"workers": 1}, seconds=3.0, meanwhile=change)


def one_worker_of_other_code_among_good_ones(scratch: Path) -> str:
    """One of two workers has a copy of the project that differs."""
    code, other = _copy_of_code(scratch / "code"), _copy_of_code(scratch / "other")
    _change(other)
    with _cluster(scratch, [code, other]) as address:
        names = [f"run{number}" for number in range(4)]
        return _launch(scratch, code, names, _on(address), seconds=1.0)


def a_scheduler_without_the_project(scratch: Path) -> str:
    """The scheduler cannot import the project; its workers can."""
    code = _copy_of_code(scratch / "code")
    lacking = _without_project(scratch)
    with _cluster(scratch, [code], of_scheduler=lacking) as address:
        return _launch(scratch, code, ["run"], _on(address))


def a_scheduler_started_anew_while_a_launch_runs(scratch: Path) -> str:
    """The scheduler is killed and started again at the same address, as are its workers."""
    code = _copy_of_code(scratch / "code")
    port = _free_port()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.ExitStack())
        address = first.enter_context(_cluster(scratch, [code], port=port))

        def start_anew() -> None:
            first.close()
            stack.enter_context(_cluster(scratch, [code], port=port))

        change = _when(scratch / "root" / "run1", start_anew)
        return _launch(
            scratch, code, ["run0", "run1", "run2"], _on(address), seconds=4.0, meanwhile=change
        )


def a_cut_connection_of_a_local_worker(scratch: Path) -> str:
    """The connection of this machine's only worker to the scheduler is cut."""
    code = _copy_of_code(scratch / "code")
    return _launch(scratch, code, ["run0", "run1"], {"workers": 1}, cut=True)


def a_local_worker_that_hangs_as_it_starts(scratch: Path) -> str:
    """The first worker process of this machine hangs before it has begun; after 45 s it is killed."""
    code = _copy_of_code(scratch / "code")
    hanging = scratch / "hanging"
    (code / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "if any('spawn_main' in word for word in sys.orig_argv) and not os.path.exists(PATH):\n"
        "    open(PATH, 'w').write(str(os.getpid()))\n"
        "    time.sleep(1000)\n".replace("PATH", repr(str(hanging)))
    )
    started = time.monotonic()

    def end() -> bool:
        if time.monotonic() < started + 45 or not hanging.exists():
            return False
        os.kill(int(hanging.read_text()), signal.SIGKILL)
        return True

    return _launch(scratch, code, ["run0", "run1"], {"workers": 1}, meanwhile=end)


def addresses_where_no_scheduler_is(scratch: Path) -> str:
    """Nobody listens, somebody listens who says nothing, another protocol: for `launch run` and `prepare`."""
    code = _copy_of_code(scratch / "code")
    (scratch / "text.txt").write_text("One sentence.\nAnother one.\n")
    seen = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for address in (
            f"tcp://127.0.0.1:{_free_port()}",
            f"tcp://127.0.0.1:{silent.getsockname()[1]}",
            "http://127.0.0.1:8786",
        ):
            seen.append(f"launch, {address}: {_launch(scratch, code, ['run'], _on(address))}")
            seen.append(f"prepare, {address}: {_prepare(scratch, code, address)}")
    return "\n".join(seen)


def a_corpus_on_workers_without_the_project(scratch: Path) -> str:
    """`prepare --scheduler` where one of two workers, then each, lacks the project."""
    code = _copy_of_code(scratch / "code")
    (scratch / "text.txt").write_text("One sentence.\nAnother one.\n\n" * 50)
    with _cluster(scratch, [_without_project(scratch)]) as address:
        none = _prepare(scratch, code, address)
        with _worker(scratch, code, address):
            one = _prepare(scratch, code, address)
    return f"none has it: {none}\none of two has it: {one}"


def _copy_of_code(folder: Path) -> Path:
    """Returns a folder for PYTHONPATH that holds a copy of the project, which tells version 1."""
    ignored = shutil.ignore_patterns(
        ".*", "__pycache__", "docs", "benchmarks", "shared", "node_modules"
    )
    shutil.copytree(_PACKAGE, folder / "multiberts", ignore=ignored)
    (folder / "multiberts/runs/version_of_code.py").write_text("VERSION = 1\n")
    (folder / "stages.py").write_text(_STAGES)
    return folder


def _change(code: Path) -> None:
    (code / "multiberts/runs/version_of_code.py").write_text("VERSION = 2\n")


def _without_project(scratch: Path) -> Path:
    """Returns a folder for PYTHONPATH that hides an installed project."""
    folder = scratch / "without"
    (folder / "multiberts").mkdir(parents=True, exist_ok=True)
    (folder / "multiberts/__init__.py").write_text("raise ImportError('no multiberts here')\n")
    return folder


def _environment(code: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1"}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.contextmanager
def _process(scratch: Path, code: Path, until: str, *arguments: str) -> Iterator[None]:
    """A process of Dask, from when it has said that it is ready."""
    output = scratch / f"{time.monotonic_ns()}.output"
    with open(output, "wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=_environment(code),
            stdout=stream,
            stderr=stream,
            cwd=scratch,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + 60
        while until not in output.read_text():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(output.read_text())
            time.sleep(0.05)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def _cluster(
    scratch: Path,
    workers: Sequence[Path],
    *,
    of_scheduler: Path | None = None,
    port: int | None = None,
) -> Iterator[str]:
    """The address of a scheduler with workers, each with a folder of its own for PYTHONPATH."""
    port = port or _free_port()
    at = ("--host=127.0.0.1", f"--port={port}", "--dashboard-address=127.0.0.1:0")
    nowhere = scratch / "nowhere"
    nowhere.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        scheduler = ("distributed.cli.dask_scheduler", *at)
        code = of_scheduler or (workers[0] if workers else nowhere)
        stack.enter_context(_process(scratch, code, "Scheduler at", *scheduler))
        address = f"tcp://127.0.0.1:{port}"
        for number, folder in enumerate(workers):
            stack.enter_context(_worker(scratch, folder, address, f"worker-{number}"))
        yield address


def _worker(
    scratch: Path, code: Path, address: str, name: str = "late"
) -> contextlib.AbstractContextManager[None]:
    arguments = (f"--name={name}", "--nthreads=1", "--host=127.0.0.1", "--no-dashboard")
    return _process(
        scratch, code, "Registered to", "distributed.cli.dask_worker", address, *arguments
    )


def _on(address: str) -> dict[str, Any]:
    return {"engine": "dask", "engine_options": {"scheduler": address}}


def _when(path: Path, act: Callable[[], None]) -> Callable[[], bool]:
    """Returns a function that acts, and returns True, once a path exists."""

    def look() -> bool:
        if not path.exists():
            return False
        act()
        return True

    return look


def _launch(
    scratch: Path,
    code: Path,
    names: Sequence[str],
    settings: Mapping[str, Any],
    *,
    meanwhile: Callable[[], bool] = lambda: True,
    **parameters: Any,
) -> str:
    """Launches runs that tell which version of the code made them; returns what is seen."""
    root = scratch / "root"
    runs = [("stages:tell", name, parameters, []) for name in names]
    content = json.dumps({"runs": runs, "root": str(root), "workers": None, **settings})
    seen = _watch([sys.executable, "-c", _LAUNCH, content], code, meanwhile)
    told = [root / name / "told" for name in names]
    versions = ", ".join(path.read_text() for path in told if path.exists())
    done = sum((root / name / "DONE").exists() for name in names)
    return f"{seen}\n  {done} of {len(names)} runs are done, by code of version: {versions or '-'}"


def _prepare(scratch: Path, code: Path, address: str) -> str:
    corpus = scratch / f"corpus-{time.monotonic_ns()}"
    flags = {
        "run_dir": corpus,
        "sources": f"['{scratch / 'text.txt'}']",
        "source_format": "sentences",
        "vocabulary_size": 40,
        "sequence_length": 32,
        "scheduler": address,
    }
    command = [f"--{name}={value}" for name, value in flags.items()]
    seen = _watch([sys.executable, "-m", "multiberts", "prepare", *command], code)
    return f"{seen}\n  the corpus is {'' if (corpus / 'DONE').exists() else 'not '}there"


def _watch(command: Sequence[str], code: Path, meanwhile: Callable[[], bool] = lambda: True) -> str:
    """Runs a command to its end, or to the limit; returns status, seconds and last lines."""
    started = time.monotonic()
    output = code / f"{time.monotonic_ns()}.output"
    with open(output, "wb") as stream:
        process = subprocess.Popen(
            command,
            env=_environment(code),
            stdout=stream,
            stderr=stream,
            cwd=code,  # from where Python imports first
            start_new_session=True,
        )
    has_acted = False
    while process.poll() is None and time.monotonic() - started < _LIMIT:
        has_acted = has_acted or meanwhile()
        time.sleep(0.1)
    status = f"status {process.returncode}"
    if process.poll() is None:
        status = "still there, so it is killed,"
        # Its workers leave with it.
        process.kill()
        process.wait()
    seconds = time.monotonic() - started
    lines = [line for line in output.read_text(errors="replace").splitlines() if line.strip()]
    return "\n  ".join([f"{status} after {seconds:.1f} s", *[line[:300] for line in lines[-6:]]])
