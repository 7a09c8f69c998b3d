"""Shared by all tests: their tiers, where the real data are, and how commands are run."""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from multiberts.tests.tools import warm
from multiberts.tests.tools.browser import CHROMIUM, Browser
from multiberts.tests.tools.costs import Costs
from multiberts.tests.tools.environment import keep_a_login
from multiberts.tests.tools.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent

keep_a_login()
# The environment that every command sets for itself, before anything imports TensorFlow.
importlib.import_module("multiberts.runs.environment")
# NumPy's products in tests are small: a second thread would only burn a core while it waits for them.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# Tests neither read nor write programs in the user's cache, unless they name a folder.
os.environ["JAX_COMPILATION_CACHE_DIR"] = ""
# Python's 700 walked through TensorFlow and all that tests had left for a tenth of their CPU seconds.
gc.set_threshold(20_000)

# What `--quick` leaves out: Python reports these to audit hooks.
_SLOW_IMPORTS = {"keras", "tensorflow"}
_STARTS = {
    *("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"),
    warm.STARTS,
}
# Of a processor: a test that takes more is marked `seconds`.
_MOST_SECONDS = 5.0
# Names of what threads of the current test started.
_started_by_threads: list[str] = []
_BEGINNING = pytest.StashKey[float]()
_SERVERS = pytest.StashKey[contextlib.ExitStack]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="leave out what is marked `seconds` or `processes`, and skip a test at the point where it "
        "starts a process or imports TensorFlow",
    )
    parser.addoption("--costs", metavar="FILE", help="write the table of costs there, too")
    parser.addoption(
        "--units", metavar="FILE", help="fail where a folder costs more than FILE allows"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measures costs, and starts the servers of warm processes, which pytest-xdist's workers share."""
    config.pluginmanager.register(Costs(config.getoption("costs"), config.getoption("units")))
    config.stash[_SERVERS] = contextlib.ExitStack()
    if not (hasattr(config, "workerinput") or config.getoption("quick")):
        config.stash[_SERVERS].enter_context(warm.servers())


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_SERVERS].close()


def pytest_collection(session: pytest.Session) -> None:
    # Not earlier: a session may ask `uname` for the processor when it starts.
    config = session.config
    # pytest-xdist's own process starts the workers, which run the tests.
    runs_tests = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if config.getoption("quick") and runs_tests:
        sys.addaudithook(_skip_what_takes_long)


def _skip_what_takes_long(event: str, arguments: tuple[object, ...]) -> None:
    if event == "import" and str(arguments[0]).partition(".")[0] in _SLOW_IMPORTS:
        reason = "imports TensorFlow"
    elif event in _STARTS:
        reason = "starts a process"
    else:
        return
    if threading.current_thread() is threading.main_thread():
        pytest.skip(reason, allow_module_level=True)
    # Here a skip would be lost, and the test would wait for the thread.
    _started_by_threads.append(reason)


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEGINNING] = time.process_time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Keeps the marks of `--quick` true: a test without one starts nothing in threads, and is quick."""
    yield
    if not item.config.getoption("quick"):
        return
    seconds = time.process_time() - item.stash.get(_BEGINNING, time.process_time())
    if seconds > _MOST_SECONDS:
        # A warning, as the limit is that of an ordinary machine.
        warnings.warn(f"{item.nodeid} takes {seconds:.1f} s: mark it `seconds`", stacklevel=1)
    if _started_by_threads:
        reasons = ", ".join(sorted(set(_started_by_threads)))
        _started_by_threads.clear()
        pytest.fail(f"a thread of this test {reasons}: mark it `processes`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sorts the launcher's tests first: they often wait, and leave cores to the others."""
    if config.getoption("quick"):
        marked = [any(map(item.get_closest_marker, ("seconds", "processes"))) for item in items]
        config.hook.pytest_deselected(items=[*itertools.compress(items, marked)])
        items[:] = [item for item, is_marked in zip(items, marked, strict=True) if not is_marked]
    items.sort(key=lambda item: "launch" not in item.path.parts)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; a test is skipped where it is absent."""
    path = Path(os.environ.get("DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"needs the real data, which are not at {path} (set DATA=folder)")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A tab of headless Chromium; a test is skipped where it is not installed."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium, which is not installed (Debian: chromium)")
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `python *arguments` in the project's root and returns its status and output."""

    def run(*arguments: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=timeout
        )

    return run
