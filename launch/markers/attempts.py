"""Markers of attempts: which worker carries out which run, since when, and how it ended.

An attempt is a small JSON file, `launch/attempts/<run's path, / as --->/<number>.json` below the
experiment's root. The file's time of change is the heartbeat: who carries out the run touches it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiberts.runs.files import UNFINISHED_SUFFIX, PathLike

FOLDER = "launch/attempts"
SECONDS_BETWEEN_HEARTBEATS = 15.0
# After so long without a heartbeat nobody carries out the run any more.
SECONDS_OF_SILENCE = 90.0

OUTCOMES = ("done", "failed", "preempted", "lost")


@dataclass(frozen=True)
class Attempt:
    """One attempt at one run.

    Attributes:
      attempt: its number, from 1.
      path: the run's directory, relative to the root.
      engine: `local`, `slurm`, `kubernetes`, `tpu`.
      host, pid: of the process that carries it out.
      job: the engine's name of it, such as a Slurm job or a queued resource; None where it has none.
      device: what it runs on, such as `cpu` or `v4-8`.
      zone: where in the cloud; None elsewhere.
      dollars_per_hour: price of the device; None where unknown.
      started, ended: Unix seconds; `ended` is None while it runs.
      outcome: one of `OUTCOMES`; None while it runs.
      error: `kind` and `message`, or None.
      log: the file it prints to, relative to the root, or None.
      heartbeat: Unix seconds of the last sign of life; not part of the file's content.
    """

    attempt: int
    path: str
    engine: str
    host: str
    pid: int
    job: str | None
    device: str | None
    zone: str | None
    dollars_per_hour: float | None
    started: float
    ended: float | None
    outcome: str | None
    error: dict[str, str] | None
    log: str | None
    heartbeat: float = 0.0

    def is_silent(self, now: float) -> bool:
        """Returns whether it has not ended and given no sign of life for long."""
        return self.ended is None and now - self.heartbeat > SECONDS_OF_SILENCE


_FIELDS = tuple(field.name for field in dataclasses.fields(Attempt) if field.name != "heartbeat")


def folder_of_attempts(root: PathLike, path: str) -> Path:
    """Returns where the attempts at a run lie."""
    return Path(root) / FOLDER / path.strip("/").replace("/", "---")


def file_of_attempt(root: PathLike, attempt: Attempt) -> Path:
    """Returns the marker of an attempt."""
    return folder_of_attempts(root, attempt.path) / f"{attempt.attempt}.json"


def begin_attempt(
    root: PathLike,
    path: str,
    *,
    engine: str,
    job: str | None = None,
    device: str | None = None,
    zone: str | None = None,
    dollars_per_hour: float | None = None,
    log: str | None = None,
    host: str | None = None,
    pid: int | None = None,
) -> Attempt:
    """Notes that a run is being carried out from now on.

    Args:
      root: the experiment's root.
      path: the run's directory, relative to the root.
      engine: the launcher's engine, such as `local`.
      job: its number on a cluster.
      device: what the run computes on.
      zone: where a cloud's machine is.
      dollars_per_hour: the price of the device.
      log: the file with all that the run prints.
      host: the machine that carries it out; None: this one.
      pid: the process that carries it out; None: this one.

    Returns:
      The attempt, numbered after those before it.
    """
    numbers = [attempt.attempt for attempt in attempts_at(root, path)]
    now = time.time()
    attempt = Attempt(
        attempt=max(numbers, default=0) + 1,
        path=path,
        engine=engine,
        host=socket.gethostname() if host is None else host,
        pid=os.getpid() if pid is None else pid,
        job=job,
        device=device,
        zone=zone,
        dollars_per_hour=dollars_per_hour,
        started=now,
        ended=None,
        outcome=None,
        error=None,
        log=log,
        heartbeat=now,
    )
    write_attempt(root, attempt)
    return attempt


def end_attempt(
    root: PathLike,
    attempt: Attempt,
    outcome: str,
    error: dict[str, str] | None = None,
    ended: float | None = None,
) -> Attempt:
    """Notes how an attempt ended.

    Args:
      root: the experiment's root.
      attempt: which.
      outcome: one of `OUTCOMES`.
      error: `kind` and `message` of what went wrong.
      ended: Unix seconds; None: now.

    Returns:
      The attempt as it is noted.
    """
    if outcome not in OUTCOMES:
        raise ValueError(f"{outcome!r} is none of {OUTCOMES}")
    ended = time.time() if ended is None else ended
    attempt = dataclasses.replace(attempt, outcome=outcome, error=error, ended=ended)
    write_attempt(root, attempt)
    return attempt


def write_attempt(root: PathLike, attempt: Attempt) -> None:
    """Writes the marker of an attempt in one piece."""
    target = file_of_attempt(root, attempt)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Two who write the same marker (a worker, and a launcher that gave it up) keep out of each
    # other's way. Without a flush to the disk: after a crash of the machine only DONE counts.
    temporary = target.with_name(f"{target.name}.{os.getpid()}{UNFINISHED_SUFFIX}")
    temporary.write_text(json.dumps({name: getattr(attempt, name) for name in _FIELDS}) + "\n")
    os.replace(temporary, target)


def beat(root: PathLike, attempt: Attempt) -> None:
    """Gives a sign of life."""
    with contextlib.suppress(FileNotFoundError):
        os.utime(file_of_attempt(root, attempt))


def attempts_at(root: PathLike, path: str) -> list[Attempt]:
    """Returns all attempts at a run, in order."""
    return _read_folder(str(folder_of_attempts(root, path)))


def attempts_of(root: PathLike) -> dict[str, list[Attempt]]:
    """Returns all attempts of an experiment, by the path of the run, in order."""
    found: dict[str, list[Attempt]] = {}
    try:
        with os.scandir(Path(root) / FOLDER) as folders:
            names = [folder.path for folder in folders]
    except FileNotFoundError:
        return found
    for name in sorted(names):
        attempts = _read_folder(name)
        if attempts:
            found[attempts[0].path] = attempts
    return found


def _read_folder(folder: str) -> list[Attempt]:
    """Returns the attempts whose markers lie in a folder; what is not a marker is passed over."""
    attempts = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".json"):
                    with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
                        with open(entry.path, encoding="utf-8") as stream:
                            heartbeat = os.fstat(stream.fileno()).st_mtime
                            values: dict[str, Any] = json.load(stream)
                        fields = {name: values[name] for name in _FIELDS}
                        attempts.append(Attempt(**fields, heartbeat=heartbeat))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(attempts, key=lambda attempt: attempt.attempt)
