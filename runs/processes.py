"""Facts about processes: whether one is alive, and the same as before; its cores, and its code."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_ROOMS = ("bert", "evaluate", "finetune", "launch", "pretrain", "runs", "stats")

# Times are rounded to the ticks of the kernel's clock.
_SECONDS_OF_ROUNDING = 0.02


def creation_time(pid: int) -> float | None:
    """Returns when a process was created, or None if it has ended.

    In seconds since the machine was booted where the kernel says so, as on Linux: the same number
    however often the clock is set meanwhile. Elsewhere in Unix seconds. A process that has ended and
    waits for its parent to take note of it (a zombie) counts as ended.
    """
    try:
        # The name, in parentheses, may hold anything; the state follows it, the time is 19 fields on.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZXx" else int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return None
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return None
    except psutil.AccessDenied:
        return 0.0


def process_is_alive(pid: int, created: float | None = None) -> bool:
    """Returns whether a process runs.

    Args:
      created: its `creation_time`, so that another process with the same number is not taken for it;
        None: any process with that number.
    """
    now = creation_time(pid)
    return now is not None and (created is None or abs(now - created) <= _SECONDS_OF_ROUNDING)


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def code_digest() -> str:
    """Returns the digest of this process's code: the first value of `code_digest_on_disk()`.

    A process keeps the modules that it has imported, whatever is installed or pulled later.
    """
    return code_digest_on_disk()


def code_digest_on_disk() -> str:
    """Returns the SHA-256, in hexadecimal, of the names and bytes of all Python files of this package."""
    digest = hashlib.sha256()
    for path in sorted(path for room in _ROOMS for path in (_PACKAGE / room).rglob("*.py")):
        digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
