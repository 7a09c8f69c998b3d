"""The log of a training run: `metrics.jsonl`, and the same numbers as TensorBoard scalars."""

from __future__ import annotations

import collections
import errno
import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from multiberts.runs.errors import UserError
from multiberts.runs.files import write_atomically

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"

# The first part of the names of values measured on text that is not trained on.
HELD_OUT = "held_out_"

_LOSSES_KEPT = 10


class TrainingLog:
    """Lines of numbers by step, without gaps or doubles however often the run was killed.

    `metrics.jsonl` is what counts. TensorBoard's file is made from it anew whenever a run goes on:
    event files can only grow, and would keep the steps that are trained again.
    """

    def __init__(
        self, directory: Path, step: int, *, tensorboard: bool = False, writes: bool = True
    ):
        """Opens the log to go on after `step`, dropping lines of later steps.

        Args:
          directory: of the run.
          step: finished updates; 0 drops every line.
          tensorboard: whether to write `directory/tensorboard` too.
          writes: False in processes that leave writing to another, but watch the same losses.

        Raises:
          UserError: the disk is full or the directory cannot be written.
        """
        self._path = directory / METRICS
        self._losses: collections.deque[float] = collections.deque(maxlen=_LOSSES_KEPT)
        lines = _up_to(self._path, step)
        self._handle = _opened(self._path, lines) if writes else None
        self._events = None
        if tensorboard and writes:
            from multiberts.bert.training.event_file import EventFile

            self._events = EventFile(directory / TENSORBOARD)
        for line in lines:
            self._note(line)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a line.

        Raises:
          UserError: the disk is full or the file cannot be written.
        """
        line = {"step": step, **values, "time": round(time.time(), 3)}
        data = (json.dumps(line) + "\n").encode()
        try:
            if self._handle and self._handle.write(data) != len(data):
                raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise cannot_write(self._path, error) from error
        self._note(line)
        if self._events:
            self._events.flush()

    def mean_of_last_losses(self) -> float | None:
        """The mean of `loss` over the last ten lines that have one; None before there are ten."""
        if len(self._losses) < _LOSSES_KEPT:
            return None
        return sum(self._losses) / _LOSSES_KEPT

    def _note(self, line: Mapping[str, Any]) -> None:
        if "loss" in line:
            self._losses.append(line["loss"])
        if self._events:
            self._events.add(line)

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle:
            self._handle.close()
        if self._events:
            self._events.close()


def cannot_write(path: Path, error: Exception) -> UserError:
    """The refusal of a log's directory or file, from an error of the system or of TensorFlow."""
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return UserError(
        f"cannot write {path}: {reason}; free some space or choose another run_dir, then run the "
        "same command again: it goes on from the last saved state"
    )


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a `metrics.jsonl`, also of one that is being written.

    Args:
      path: the file; a missing one has no lines.
    """
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:  # the line being written when the process was killed
            continue
        if isinstance(line, dict) and "step" in line:
            lines.append(line)
    return lines


def _up_to(path: Path, step: int) -> list[dict[str, Any]]:
    """The lines up to the step resumed from: those after it will be written again."""
    # What is written at step 0 comes before the first update, and is written again with it.
    return [line for line in read_metrics(path) if line["step"] <= step and step > 0]


def _opened(path: Path, kept: list[dict[str, Any]]) -> IO[bytes]:
    """Opens a log to add to, cut down to the lines that are kept."""
    if path.exists():
        write_atomically(path, "".join(json.dumps(line) + "\n" for line in kept))
    try:
        # Unbuffered: a kill loses nothing, and a failed write is not tried again on closing.
        return open(path, "ab", buffering=0)
    except OSError as error:
        raise cannot_write(path, error) from error
