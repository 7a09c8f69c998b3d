"""The log of a training run: `metrics.jsonl`, and the same numbers as TensorBoard scalars."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.files import (
    PathLike,
    open_marker,
    parse_json_fields,
    remove,
    write_atomically,
)
from multiberts.runs.parameters import fits

METRICS = "metrics.jsonl"

# Prefix of the names of values measured on held-out text.
HELD_OUT = "held_out_"

# Values that must be finite.
_NUMBERS = ("time", "steps_per_second")

# The end of a log that `tail_of_metrics` reads.
_BYTES_OF_TAIL = 64 << 10


class TrainingLog(contextlib.AbstractContextManager["TrainingLog"]):
    """Numbers by step, without gaps or duplicates after any number of kills.

    `metrics.jsonl` is the record. TensorBoard's file is rewritten from it when a run resumes: event files
    are append-only and would keep the steps that are repeated.
    """

    def __init__(self, directory: Path, step: int, *, tensorboard: bool = False):
        """Opens the log to continue after `step`, dropping lines of later steps.

        Args:
          step: finished updates; 0 drops every line.
          tensorboard: whether to also write `directory/tensorboard`.
        """
        self._path = directory / METRICS
        # Entries of step 0 precede the first update and are rewritten with it.
        lines = [line for line in read_metrics(self._path) if line["step"] <= step > 0]
        if step and not self._path.exists():
            console.progress(f"warning: {self._path} is missing: it will begin after step {step}")
        self._handle = _opened(self._path, lines)
        self._events = EventFile(directory / "tensorboard") if tensorboard else None
        if self._events:
            for line in lines:
                self._events.add(line)

    def write(self, step: int, values: Mapping[str, float] | None) -> None:
        """Adds a line, unless there are no values."""
        if not values:
            return
        line = {"step": step, **values, "time": round(time.time(), 3)}
        data = (json.dumps(line) + "\n").encode()
        with refused_writes(self._path):
            if not os.fstat(self._handle.fileno()).st_nlink:
                raise UserError(
                    f"{self._path} was removed while it was being written; run the same command again: it "
                    "resumes from the last saved state"
                )
            if self._handle.write(data) != len(data):
                raise OSError(errno.ENOSPC, "No space left on device")
        if self._events:
            self._events.add(line)
            self._events.flush()

    def __exit__(self, *_: object) -> None:
        self._handle.close()
        if self._events:
            self._events.close()


class EventFile:
    """TensorBoard's file of a run, a TFRecord file of events; written anew when the run resumes."""

    def __init__(self, directory: Path):
        """Empties a directory and starts a file in it."""
        # Imported here, so that reading a log does not need TensorBoard.
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._new_event, self._new_summary = Event, Summary
        with refused_writes(directory):
            remove(directory)
            directory.mkdir(parents=True)
            # A new name each time, so that a running TensorBoard notices the file.
            self._path = directory / f"events.out.tfevents.{time.time_ns()}"
            self._writer = RecordWriter(_opened(self._path, []))
        self._write(wall_time=time.time(), file_version="brain.Event:2")

    def add(self, line: Mapping[str, Any]) -> None:
        """Adds the numbers of a line of `metrics.jsonl`."""
        summary = self._new_summary()
        for name, value in line.items():
            if name not in ("step", "time"):
                # TensorBoard shows values in groups.
                group = "held_out" if name.startswith(HELD_OUT) else "training"
                tag = f"{group}/{name.removeprefix(HELD_OUT)}"
                summary.value.add(tag=tag, simple_value=value)
        self._write(wall_time=line.get("time", 0.0), step=line["step"], summary=summary)

    def _write(self, **event: Any) -> None:
        with refused_writes(self._path):
            self._writer.write(self._new_event(**event).SerializeToString())

    def flush(self) -> None:
        """Flushes added events to the system."""
        with refused_writes(self._path):
            self._writer.flush()

    def close(self) -> None:
        with refused_writes(self._path):
            self._writer.close()


@contextlib.contextmanager
def refused_writes(path: Path) -> Iterator[None]:
    """Reports a system error for a log's directory or file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise UserError(
            f"cannot write {path}: {reason}; free some space or choose another run_dir, then run the "
            "same command again: it resumes from the last saved state"
        ) from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Reads the complete lines of a `metrics.jsonl`, which may still be written.

    Args:
      path: path of the file; a missing file has no lines.
    """
    return whole_lines(path.read_bytes().splitlines()) if path.exists() else []


def tail_of_metrics(path: PathLike) -> list[dict[str, Any]]:
    """Reads the last whole lines of a `metrics.jsonl` that may be growing: its last 64 KiB.

    Args:
      path: path of the file; a missing or unreadable file has no lines.
    """
    try:
        with open_marker(path) as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _BYTES_OF_TAIL))
            return whole_lines(stream.read().splitlines())
    except (OSError, UserError):
        return []


def whole_lines(texts: Iterable[bytes]) -> list[dict[str, Any]]:
    """Returns the lines that are objects of numbers with a step; an incomplete last line is left out.

    Args:
      texts: lines of a `metrics.jsonl`, UTF-8.

    Examples:
      >>> whole_lines([b'{"step": 100, "loss": 2.5}', b'{"step": 20'])
      [{'step': 100, 'loss': 2.5}]
    """
    lines = []
    for text in texts:
        with contextlib.suppress(UserError):
            line = parse_json_fields(text.decode(errors="replace"), METRICS, {"step": int})
            # A loss may be NaN.
            are_numbers = all(isinstance(value, (int, float)) for value in line.values())
            if are_numbers and fits([line.get(name, 0.0) for name in _NUMBERS], list[float]):
                lines.append(line)
    return lines


def _opened(path: Path, lines: list[dict[str, Any]]) -> io.FileIO:
    """Rewrites a log with the given lines and opens it for appending."""
    if path.exists():
        write_atomically(path, "".join(json.dumps(line) + "\n" for line in lines))
    with refused_writes(path):
        # Unbuffered: a kill loses nothing, and closing does not retry a failed write.
        return open(path, "ab", buffering=0)
