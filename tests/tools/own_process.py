"""Calls of functions in a process of their own: with another engine, or before JAX has its devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from multiberts.tests.tools.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[2]

_CODE = """
import importlib, json, sys
module, name = sys.argv[1].split(":")
function = getattr(importlib.import_module(f"multiberts.tests.{module}"), name)
print("\\n" + json.dumps(function(*json.loads(sys.argv[2]))))
"""


def call(function: str, *arguments: Any, **environment: str) -> Any:
    """Calls `module:function` below `tests` in a process of its own, which does not outlive the call.

    Arguments and result are what JSON can say.
    """
    done = subprocess.run(
        [sys.executable, "-c", _CODE, function, json.dumps(arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
