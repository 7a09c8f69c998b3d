"""Provenance of a page: commit, versions, processor, and checksum and date of its data."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multiberts.runs.command_line.commands import command_of
from multiberts.runs.directory import CONFIG
from multiberts.runs.files import sha256_of_file


def data_facts(files: Sequence[Path], files_are: str) -> dict[str, str]:
    """Returns a checksum and a date of the data.

    It is the date of the newest file, not of the page, so that the same data give the same bytes.

    Args:
      files: files with the data, or with their checksums.
    """
    digests = sorted({sha256_of_file(file) for file in files})
    newest = max(file.stat().st_mtime for file in files)
    return {
        "Data": f"SHA-256 {hashlib.sha256(''.join(digests).encode()).hexdigest()} over the sorted "
        f"SHA-256 of {files_are} ({len(files)})",
        "Date of the data": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(newest)),
    }


def _commit() -> str:
    """Returns the commit of the package's checkout, or the reason why there is none."""
    here = Path(__file__).resolve().parents[2]
    git = ("git", "-C", str(here))
    try:
        options: dict[str, Any] = {"capture_output": True, "text": True, "check": True}
        commit = subprocess.run([*git, "rev-parse", "HEAD"], **options).stdout.strip()
        top = subprocess.run([*git, "rev-parse", "--show-toplevel"], **options).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"], **options
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return "not known: the package is installed, see its version"
    if Path(top).resolve() != here:
        return "not known: the package is installed, see its version"
    return f"{commit}, with changes that are not committed" if changed.strip() else commit


def made_with() -> dict[str, str]:
    """Returns the commit, processor, threads and versions that a page was made with."""
    packages = ("multiberts", "numpy", "scipy", "xarray", "matplotlib")
    threads = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return {
        "Commit": _commit(),
        "Processor": _processor(),
        "Processor cores": str(os.cpu_count()),
        **{name: value for name, value in threads.items() if value},
        "Python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def _processor() -> str:
    """Returns the name of the processor, or its architecture, such as x86_64."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def command_again(stage: str, where: str) -> str:
    """Returns what makes a page again: paths in its configuration are relative to where it was first made.

    Args:
      where: where the folder of the configuration lies.
    """
    return (
        f"multiberts {command_of(stage)} --gin_file=FOLDER/{CONFIG} --run_dir=again, from the folder where "
        f"this page was made; FOLDER is the one {where}"
    )
