"""Shared by all tests: their tiers, where the real data are, and how commands are run."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from multiberts.tests.browser import CHROMIUM, Browser
from multiberts.tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent

# The environment that every command sets for itself, before anything imports TensorFlow.
importlib.import_module("multiberts.runs.environment")

# What `--quick` leaves out: Python reports these to audit hooks.
_SLOW_IMPORTS = {"keras", "tensorflow"}
_STARTS = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
# What it leaves out, too: beginnings of the names of tests that take seconds, or whose threads
# start processes.
_TAKES_SECONDS = (
    "benchmarks/test_b3_experiment.py",
    "bert/checkpoint/test_hugging_face.py",
    "bert/test_tokenization.py",
    "docs/test_worked_example.py",
    "evaluate/imports/",
    "evaluate/metrics/test_ranks.py",
    "evaluate/metrics/test_squad.py",
    "finetune/squad/",
    "launch/estimate/test_estimate.py::test_ten_thousand_runs",
    "launch/estimate/test_work.py::test_products_by_an_independent_count",
    "launch/plan/test_experiment.py::test_ten_thousand_runs",
    "launch/status/test_snapshot.py::test_ten_thousand_runs",
    "launch/status/test_plan_report.py",
    "launch/tpu/",
    "launch/workers/",
    "pretrain/corpus/test_counterfactual.py::test_rule_puts",
    "pretrain/corpus/test_documents.py::test_real_files",
    "pretrain/corpus/test_preparation.py",
    "pretrain/corpus/test_runners.py",
    "pretrain/world/",
    "runs/bucket/test_objects.py",
    "stats/b3/test_model.py",
    "stats/test_corrections.py::test_adjusted_equals_statsmodels",
    "stats/variance/test_crossing.py",
    "stats/compare/test_designs.py::test_clusters",
    "stats/compare/test_designs.py::test_missing_cells",
    "stats/compare/test_designs.py::test_ranks",
    "stats/bootstrap/test_published.py",
    "stats/instances/test_figures.py",
    "stats/instances/test_instance_level.py::test_the_null_excess",
    "stats/instances/test_variance_by_bias.py",
    "stats/paper/",
    "stats/report/",
    "stats/test_calibration.py",
    "test_names.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="skip a test at the point where it starts a process or imports TensorFlow",
    )


def pytest_collection(session: pytest.Session) -> None:
    # Not earlier: a session may ask `uname` for the processor when it starts.
    config = session.config
    # pytest-xdist's own process starts the workers, which run the tests.
    runs_tests = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if config.getoption("quick") and runs_tests:
        sys.addaudithook(_skip_what_takes_long)


def _skip_what_takes_long(event: str, arguments: tuple[object, ...]) -> None:
    # In another thread a skip would be lost, and the test would wait for the thread.
    if threading.current_thread() is not threading.main_thread():
        return
    if event == "import" and str(arguments[0]).partition(".")[0] in _SLOW_IMPORTS:
        pytest.skip("imports TensorFlow", allow_module_level=True)
    elif event in _STARTS:
        pytest.skip("starts a process", allow_module_level=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sorts the launcher's tests first: they often wait, and leave cores to the others."""
    if config.getoption("quick"):
        long = [item for item in items if _name(item).startswith(_TAKES_SECONDS)]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    items.sort(key=lambda item: "launch" not in item.path.parts)


def _name(item: pytest.Item) -> str:
    return item.nodeid.removeprefix("tests/")


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
