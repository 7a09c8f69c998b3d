"""Facts about processes: whether one is alive, and the same as before; its cores, memory and code."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from pathlib import Path
from resource import RLIMIT_AS, getpagesize, getrlimit

from multiberts.runs import ROOMS

_PACKAGE = Path(__file__).resolve().parents[1]

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
    """Returns whether a process runs: the one with this `creation_time`, or any with that number."""
    now = creation_time(pid)
    return now is not None and (created is None or abs(now - created) <= _SECONDS_OF_ROUNDING)


def available_cores() -> int:
    """Returns the number of cores that this process may use: on macOS all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_bytes() -> int:
    """Returns an upper bound of the memory that this process can still get."""
    limits = [os.sysconf("SC_PHYS_PAGES") * getpagesize()]
    with contextlib.suppress(OSError):  # macOS has no /proc
        free = re.findall(r"(?:MemAvailable|SwapFree): *(\d+)", Path("/proc/meminfo").read_text())
        pages = Path("/proc/self/statm").read_text().split()
        mapped, resident = (int(number) * getpagesize() for number in pages[:2])
        limits = [sum(map(int, free)) << 10, getrlimit(RLIMIT_AS)[0] % (1 << 64) - mapped]
        for group in re.findall(r":(?:memory)?:(.*)", Path("/proc/self/cgroup").read_text()):
            for folder in (group, *Path(group).parents):
                for file in (f"{folder}/memory.max", f"memory{folder}/memory.limit_in_bytes"):
                    with contextlib.suppress(OSError, ValueError):  # without a limit "max"
                        limits.append(int(Path(f"/sys/fs/cgroup/{file}").read_text()) - resident)
    return max(0, min(limits))


def code_digest_on_disk() -> str:
    """Returns the SHA-256, in hexadecimal, of the names and bytes of all Python files of this package."""
    digest = hashlib.sha256()
    for path in sorted(path for room in ROOMS for path in (_PACKAGE / room).rglob("*.py")):
        digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


# Digest of this process's code: the first one, as a process keeps the modules that it has imported, whatever
# is installed or pulled later.
code_digest = functools.cache(code_digest_on_disk)
