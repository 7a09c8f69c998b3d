"""Calls of functions in a process of their own: with another engine, or before JAX has its devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from multiberts.tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[1]

_CODE = """
import importlib, json, sys
module, name = sys.argv[1].split(":")
function = getattr(importlib.import_module(f"multiberts.tests.{module}"), name)
print("\\n" + json.dumps(function(*json.loads(sys.argv[2]))))
"""


def start(function: str, *arguments: Any, **environment: str) -> subprocess.Popen[str]:
    """Starts a call of `module:function` below `tests`; arguments and result are what JSON can say."""
    return subprocess.Popen(
        [sys.executable, "-c", _CODE, function, json.dumps(arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def results(*processes: subprocess.Popen[str]) -> list[Any]:
    """The result of each call; no process outlives it."""
    try:
        found = []
        for process in processes:
            output, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, errors[-3000:]
            found.append(json.loads(output.splitlines()[-1]))
        return found
    finally:
        for process in processes:
            process.kill()


def call(function: str, *arguments: Any, **environment: str) -> Any:
    """Calls a function in a process of its own."""
    return results(start(function, *arguments, **environment))[0]
