"""Processes: whether one is alive, and the same as before; its cores, memory and code; freed memory."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import sys
from pathlib import Path
from resource import RLIMIT_AS, getpagesize, getrlimit

from multiberts.runs import ROOMS

_PACKAGE = Path(__file__).resolve().parents[1]

# Times are rounded to the ticks of the kernel's clock.
_SECONDS_OF_ROUNDING = 0.02
# Names of `mallopt` in glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


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


def keep_freed_memory() -> bool:
    """Makes the C library keep what a training step frees, for the next step to use.

    A step on CPU takes and frees arrays of tens of megabytes (the scores of the vocabulary above
    all). glibc gives such arrays back to the system at once, which then clears every page anew: a
    third of a small model's step. Changes no number; the process stays as large as its largest
    step, until `give_back_memory` is called.

    Returns:
      Whether the allocator was changed, which needs Linux with glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    # Large arrays from the heap instead of mappings of their own, and a heap that never shrinks.
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, -1))


def give_back_memory() -> None:
    """Gives memory that is free within this process back to the system, between runs that share it.

    Tensors of many sizes leave holes in the C library's heap, which grows by hundreds of megabytes
    with every model although nothing is kept. Works with glibc; elsewhere this does nothing. The
    opposite of `keep_freed_memory`, which holds within a run.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
