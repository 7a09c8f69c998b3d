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


@contextlib.contextmanager
def killed_without_steps(
    seconds: float | None, parameter: str, after_step: Callable[[], bool]
) -> Iterator[Callable[[], bool]]:
    """Kills this process if it makes no step for some seconds while the block runs.

    Args:
      seconds: not counted while the watch is stopped, too, as by a machine's sleep, a job's suspension or
        Ctrl-Z; None: no watch.
      parameter: the name of `seconds`, for messages.

    Yields:
      The same function, whose calls the watch hears.
    """
    if seconds is None:
        yield after_step
        return
    pid = os.getpid()
    if pid == 1:
        from multiberts.runs.errors import UserError  # here, as the watch has no packages

        raise UserError(
            f"{parameter} is {seconds:g}, but nothing in a container can kill its process 1, which this is; "
            "start the container with an init (docker run --init), or leave the parameter out"
        )
    # Blocked signals are inherited: they end the trainer, which may save before, and the watch with it.
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    )
    try:
        watch = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__, str(pid), str(seconds), parameter],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
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
        except BrokenPipeError:
            from multiberts.runs.console import note_once

            note_once(
                f"the process that watches over {parameter} was ended; training goes on without"
            )
        return after_step()

    with watch:
        try:
            yield heard
        finally:
            watch.kill()


def _watch(pid: int, seconds: float, parameter: str) -> None:
    """Kills the parent once it has been silent for so long; returns when it has ended."""
    silent_seconds, look = 0.0, min(1.0, seconds / 10)
    while os.getppid() == pid:  # a fork of the parent may hold the pipe open after its end
        # Looks are counted and no clock is read, which would go on while this process is stopped.
        if not select.select([0], [], [], look)[0]:
            silent_seconds += look
        elif os.read(0, 4096):
            silent_seconds = 0.0
        else:
            return
        if silent_seconds >= seconds:
            line = f"error: no step for {seconds:g} s ({parameter}): process {pid} is killed; the same "
            # The reader of standard error may hang, too, and be the one that the parent waits for.
            if select.select([], [2], [], 1.0)[1]:
                with contextlib.suppress(OSError):
                    os.write(2, ("\n" * os.isatty(2) + line + "command resumes\n").encode())
            os.kill(pid, signal.SIGKILL)
            return


if __name__ == "__main__":
    _watch(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
