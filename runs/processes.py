"""Whether a process of this machine is alive, and the same one as before."""

from __future__ import annotations

# Times of creation are rounded to the ticks of the kernel's clock.
_SECONDS_OF_ROUNDING = 1.0


def creation_time(pid: int) -> float | None:
    """Returns when a process was created, in Unix seconds; None if it has ended.

    A process that has ended and waits for its parent to take note of it (a zombie) counts as ended. Of
    processes that may not be looked into the time is 0.

    Args:
      pid: of a process of this machine.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return float(process.create_time())
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return 0.0


def process_is_alive(pid: int, created: float | None = None) -> bool:
    """Returns whether a process runs.

    Args:
      pid: of a process of this machine.
      created: when it was created, in Unix seconds, so that another process with the same number is not
        taken for it; None: any process with that number.
    """
    found = creation_time(pid)
    return found is not None and (created is None or abs(found - created) <= _SECONDS_OF_ROUNDING)
