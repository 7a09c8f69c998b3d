"""The watch over a trainer that makes no step: a small process of its own that ends it by SIGKILL.

    python -S -E stall_watch.py PID SECONDS PARAMETER < PIPE

Its parent writes a byte to the pipe after each step. No thread of the trainer could watch it: one that is
stopped, or holds Python's lock within a driver, runs none.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

# They end the trainer, which may save before; the watch ends with it.
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def killed_without_steps(
    seconds: float | None, parameter: str, after_step: Callable[[], bool]
) -> Iterator[Callable[[], bool]]:
    """Kills this process if a step takes too long while the block runs.

    Time during which the watch itself is stopped does not count: a machine that sleeps, a job or
    container that is suspended, Ctrl-Z.

    Args:
      seconds: the most from the block's begin to the first step, and from step to step; None: no watch.
      parameter: the name of `seconds`, for messages.
      after_step: called after each step.

    Yields:
      The same function, whose calls the watch hears.
    """
    if seconds is None:
        yield after_step
        return
    # Not at the top: the process that watches has the standard library alone.
    from multiberts.runs.console import note_once
    from multiberts.runs.errors import UserError

    pid = os.getpid()
    if pid == 1:
        raise UserError(
            f"{parameter} is {seconds:g}, but this is process 1 of its container, which no process in it can "
            "kill; start the container with an init (docker run --init), or leave the parameter out"
        )
    command = [sys.executable, "-S", "-E", __file__, str(pid), str(seconds), parameter]
    # Blocked signals are inherited, so there is no moment in which Ctrl-C ends the watch with a traceback.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        watch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert watch.stdin is not None
    pipe = watch.stdin.fileno()
    os.set_blocking(pipe, False)

    def heard() -> bool:
        try:
            os.write(pipe, b".")
        except BlockingIOError:  # the watch is stopped
            pass
        except OSError:
            note_once(f"the process that watches the steps has ended, so {parameter} has no effect")
        return after_step()

    with watch:
        try:
            yield heard
        finally:
            watch.kill()


def _watch(pid: int, seconds: float, parameter: str) -> None:
    """Kills the parent once it has been silent for so long; returns when it has ended."""
    silent_seconds, look = 0.0, min(1.0, seconds / 10)
    # A fork of the parent may hold the pipe open after its end.
    while os.getppid() == pid:
        # Looks are counted and no clock is read, which would go on while this process is stopped.
        if not select.select([0], [], [], look)[0]:
            silent_seconds += look
        elif os.read(0, 4096):
            silent_seconds = 0.0
        else:
            return
        if silent_seconds >= seconds:
            line = (
                f"error: no step for {seconds:g} s ({parameter}): process {pid} is killed; the same "
                "command resumes\n"
            )
            # What reads standard error may hang, too, and be what the parent waits for.
            if select.select([], [2], [], 1.0)[1]:
                with contextlib.suppress(OSError):
                    os.write(2, ("\n" * os.isatty(2) + line).encode())
            os.kill(pid, signal.SIGKILL)
            return


if __name__ == "__main__":
    _watch(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
