"""`python -m` of a package's module in a warm process."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from multiberts.tests.tools import warm


def run(module: str, arguments: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs `python -m module *arguments`, with the module's name below the package."""
    process = warm.Process(f"{__name__}:_enter", [module, [*arguments]], **options)
    printed, errors = process.communicate()
    return subprocess.CompletedProcess([module, *arguments], process.wait(), printed, errors)


def _enter(module: str, arguments: list[str]) -> None:
    sys.argv = [module, *arguments]
    runpy.run_module(f"multiberts.{module}", run_name="__main__")
