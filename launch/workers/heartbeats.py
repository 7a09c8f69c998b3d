"""Processes that write heartbeats to a pipe, so that one that is stopped or hangs is noticed and ended.

    python -m multiberts.launch.workers.heartbeats pretrain --gin_file=... SECONDS PIPE

runs a command that does so.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

# Until its first heartbeat a process may be silent this many times as long, as it imports libraries.
_PATIENCE_AT_START = 10
# Heartbeats per allowed silence.
HEARTBEATS = 6


class WatchedProcess:
    """A process of this machine that is killed when it is silent.

    Attributes:
      has_spoken: whether it has written a heartbeat.
      was_silent: whether it was killed for its silence.
    """

    def __init__(self, command: Sequence[str], silent_seconds: float):
        """Starts it.

        Args:
          command: gets the descriptor of the pipe as a last argument.
          silent_seconds: without a heartbeat for so long it is killed.
        """
        self._pipe, writing = os.pipe()
        os.set_blocking(self._pipe, False)
        os.set_blocking(writing, False)
        self._silent_seconds = silent_seconds
        self.process = subprocess.Popen([*command, str(writing)], pass_fds=[writing])
        os.close(writing)
        self.has_spoken = self.was_silent = False
        self._heard = time.monotonic()

    def poll(self) -> int | None:
        """Returns the exit status, None while it runs; kills the process if it is silent for long."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._pipe, 4096):
                self.has_spoken, self._heard = True, time.monotonic()
        patience = 1 if self.has_spoken else _PATIENCE_AT_START
        if time.monotonic() - self._heard > patience * self._silent_seconds:
            self.was_silent = True
            self.process.kill()
        return self.process.poll()

    def close(self) -> None:
        os.close(self._pipe)


def write_heartbeat(pipe: int) -> None:
    """Writes one heartbeat; OSError where nobody watches any more."""
    with contextlib.suppress(BlockingIOError):  # the watching process reads nothing now
        os.write(pipe, b".")


def _write_heartbeats(pipe: int, seconds: float) -> None:
    with contextlib.suppress(OSError):
        while True:
            write_heartbeat(pipe)
            time.sleep(seconds)


if __name__ == "__main__":
    from multiberts.runs.command_line.command import main

    *_arguments, _seconds, _pipe = sys.argv[1:]
    threading.Thread(
        target=_write_heartbeats, args=(int(_pipe), float(_seconds)), daemon=True
    ).start()
    main(_arguments)
