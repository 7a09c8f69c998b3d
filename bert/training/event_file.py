"""TensorBoard's file of a run: a TFRecord file of events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from multiberts.bert.training.log import HELD_OUT, cannot_write
from multiberts.runs.files import remove


class EventFile:
    """Scalars by step, written anew each time a run goes on."""

    def __init__(self, directory: Path):
        self._directory = directory
        try:
            remove(directory)
            directory.mkdir(parents=True)
            # A name of its own each time, so that a TensorBoard that is looking on sees a new file.
            self._path = directory / f"events.out.tfevents.{time.time_ns()}"
            self._writer = tf.io.TFRecordWriter(str(self._path))
            self._write(tf.compat.v1.Event(wall_time=time.time(), file_version="brain.Event:2"))
        except (OSError, tf.errors.OpError) as error:
            raise cannot_write(directory, error) from error

    def add(self, line: Mapping[str, Any]) -> None:
        """Adds the numbers of a line of `metrics.jsonl`."""
        summary = tf.compat.v1.Summary()
        for name, value in line.items():
            if name not in ("step", "time"):
                summary.value.add(tag=_tag(name), simple_value=value)
        self._write(
            tf.compat.v1.Event(wall_time=line.get("time", 0.0), step=line["step"], summary=summary)
        )

    def _write(self, event: Any) -> None:
        try:
            self._writer.write(event.SerializeToString())
        except tf.errors.OpError as error:
            raise cannot_write(self._path, error) from error

    def flush(self) -> None:
        """Hands what was added to the system."""
        try:
            self._writer.flush()
        except tf.errors.OpError as error:
            raise cannot_write(self._path, error) from error

    def close(self) -> None:
        """Closes the file; what cannot be written now was refused before, or is made anew."""
        try:
            self._writer.close()
        except tf.errors.OpError as error:
            raise cannot_write(self._path, error) from error


def _tag(name: str) -> str:
    """The name under which TensorBoard shows a value, with its group."""
    if name.startswith(HELD_OUT):
        return "held_out/" + name.removeprefix(HELD_OUT)
    return "training/" + name
