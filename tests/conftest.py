"""Shared by all tests: where the real data are, and how commands are run."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# The environment that every command sets for itself, before anything imports TensorFlow.
importlib.import_module("multiberts.runs.environment")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The launcher's tests first: they often wait, and leave cores to those beside them."""
    items.sort(key=lambda item: "launch" not in item.path.parts)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the project; the test is skipped where it is absent."""
    path = Path(os.environ.get("DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"needs the real data, which are not at {path} (set DATA=folder)")
    return path


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `python *arguments` in the project's root and returns its status and output."""

    def run(*arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=timeout
        )

    return run
