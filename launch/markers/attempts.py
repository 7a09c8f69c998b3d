"""Markers of attempts: which worker carries out which run, since when, and how it ended.

An attempt is a small JSON file, `launch/attempts/<run's path, / as --->/<number>.json` below the
experiment's root. The file's time of change is the heartbeat: the worker touches it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import socket
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

from multiberts.runs.console import warn
from multiberts.runs.errors import UserError
from multiberts.runs.files import UNFINISHED_SUFFIX, PathLike, open_marker, parse_json_fields
from multiberts.runs.lease_holder import Holder, UnixSeconds
from multiberts.runs.processes import creation_time, process_is_alive

FOLDER = "launch/attempts"
SECONDS_BETWEEN_HEARTBEATS = 15.0
# A worker without a heartbeat for so long is taken for dead.
SECONDS_OF_SILENCE = 90.0

EngineName = Literal["local", "slurm", "dask", "tpu"]
# Attempts of these engines continue without a launcher; who reconciles next gives the heartbeat.
ENGINES_WITHOUT_LAUNCHER = {"tpu"}
SECONDS_BETWEEN_RECONCILIATIONS = 3600.0

OUTCOMES = ("done", "failed", "preempted", "lost")


@dataclass(frozen=True)
class Attempt:
    """One attempt at one run.

    Attributes:
      attempt: its number, from 1.
      path: the run's directory, relative to the root.
      engine: `local`, `slurm`, `dask`, `tpu`.
      host, pid: of the process that carries it out.
      job: the engine's name of it, such as a Slurm job or a queued resource; None where it has none.
      device: that it runs on, such as `cpu` or `v4-8`.
      zone: of the cloud; None elsewhere.
      dollars_per_hour: price of the device; None where unknown.
      started, ended: Unix seconds; `ended` is None while it runs.
      outcome: one of `OUTCOMES`; None while it runs.
      error: `kind` and `message`, or None.
      log: the file it prints to, relative to the root, or None.
      created: the process's `runs.processes.creation_time`; None where it is not known.
      owner: of the lease of the launcher that started it; None where it needs no launcher.
      heartbeat: Unix seconds of the last sign of life; not part of the file's content.
    """

    attempt: int
    path: str
    engine: str
    host: str
    pid: int
    job: str | None = None
    device: str | None = None
    zone: str | None = None
    dollars_per_hour: float | None = None
    started: UnixSeconds = 0.0
    ended: UnixSeconds | None = None
    outcome: str | None = None
    error: dict[str, str] | None = None
    log: str | None = None
    created: float | None = None
    owner: str | None = None
    heartbeat: float = 0.0

    def is_silent(self, now: float) -> bool:
        """Returns whether it has not ended and gave no sign of life for long."""
        return self.ended is None and now - self.heartbeat > SECONDS_OF_SILENCE

    def is_alive(self, now: float) -> bool:
        """Returns whether it has not ended and is not silent, and if it is here, its process runs."""
        if self.ended is not None:
            return False
        if self.engine in ENGINES_WITHOUT_LAUNCHER:
            return now - self.heartbeat <= SECONDS_BETWEEN_RECONCILIATIONS
        if self.is_silent(now):
            return False
        return self.host != socket.gethostname() or self.has_process()

    def has_process(self) -> bool:
        """Returns whether its process on this machine runs, and is not another one with its number."""
        return process_is_alive(self.pid, self.created)


_KINDS = {
    name: kind
    for name, kind in get_type_hints(Attempt, include_extras=True).items()
    if name != "heartbeat"
}


def folder_of_attempts(root: PathLike, path: str) -> Path:
    return Path(root) / FOLDER / path.strip("/").replace("/", "---")


def file_of_attempt(root: PathLike, attempt: Attempt) -> Path:
    return folder_of_attempts(root, attempt.path) / f"{attempt.attempt}.json"


def begin_attempt(root: PathLike, path: str, *, engine: str, **facts: Any) -> Attempt:
    """Writes the marker of an attempt that begins now, numbered after those before it.

    Args:
      facts: further fields of `Attempt`; without `host` and `pid` it is this process's.
    """
    now = time.time()
    is_here = "host" not in facts
    facts = {"host": socket.gethostname(), "pid": os.getpid(), **facts}
    facts["created"] = creation_time(facts["pid"]) if is_here else None
    number = max((found.attempt for found in attempts_at(root, path)), default=0) + 1
    attempt = Attempt(number, path, engine, started=now, heartbeat=now, **facts)
    write_attempt(root, attempt)
    return attempt


def end_attempt(
    root: PathLike,
    attempt: Attempt,
    outcome: str,
    error: dict[str, str] | None = None,
    ended: float | None = None,
) -> Attempt:
    """Writes how an attempt ended, and returns it.

    Args:
      outcome: one of `OUTCOMES`.
      error: `kind` and `message`.
      ended: Unix seconds; None: now.
    """
    if outcome not in OUTCOMES:
        raise ValueError(f"{outcome!r} is none of {OUTCOMES}")
    ended = time.time() if ended is None else ended
    attempt = dataclasses.replace(attempt, outcome=outcome, error=error, ended=ended)
    write_attempt(root, attempt)
    return attempt


def write_attempt(root: PathLike, attempt: Attempt) -> None:
    """Writes the marker of an attempt, whole or not at all."""
    target = file_of_attempt(root, attempt)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A worker, and a launcher that gave it up, may write the same marker: each has its own temporary
    # file. Without a flush to the disk: after a crash of the machine only DONE counts.
    temporary = target.with_name(f"{target.name}.{os.getpid()}{UNFINISHED_SUFFIX}")
    try:
        temporary.write_text(json.dumps({name: getattr(attempt, name) for name in _KINDS}) + "\n")
        os.replace(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def close_open_attempts(root: PathLike, paths: Iterable[str], outcome: str) -> None:
    """Ends the attempts at some runs that no worker is left of; nodes of Cloud TPU end their own."""
    for path in paths:
        for attempt in attempts_at(root, path):
            if attempt.ended is None and attempt.engine != "tpu":
                end_attempt(root, attempt, outcome, ended=attempt.heartbeat)


def beat(root: PathLike, attempt: Attempt) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.utime(file_of_attempt(root, attempt))


def attempts_at(root: PathLike, path: str) -> list[Attempt]:
    return _read_folder(folder_of_attempts(root, path))


def attempts_of(root: PathLike) -> dict[str, list[Attempt]]:
    """Returns all attempts of an experiment, by the path of the run, in order."""
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(Path(root) / FOLDER) as folders:
        names = sorted(folder.path for folder in folders)
    return {attempts[0].path: attempts for attempts in map(_read_folder, names) if attempts}


def _read_folder(folder: PathLike) -> list[Attempt]:
    """Returns the attempts whose markers lie in a folder; of damaged ones a warning is printed."""
    attempts = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".json"):
                try:
                    attempts.append(read_attempt(entry.path))
                except FileNotFoundError:  # it has just been removed
                    continue
                except UserError as error:
                    _warn_once(str(error))
    return sorted(attempts, key=lambda attempt: attempt.attempt)


def read_attempt(path: PathLike) -> Attempt:
    """Returns the attempt of a marker."""
    with open_marker(path) as stream:
        # From the open file: time and content are then of the same marker, even if it is replaced now.
        heartbeat = os.fstat(stream.fileno()).st_mtime
        cure = "the file is ignored; delete it"
        found = parse_json_fields(stream.read(), str(path), _KINDS, cure)
    fields: dict[str, Any] = {name: found.get(name) for name in _KINDS}
    return Attempt(**fields, heartbeat=heartbeat)


@functools.cache
def _warn_once(text: str) -> None:
    warn(text)


def orphaned(
    attempts: Iterable[Attempt], planned: Collection[str], holder: Holder | None
) -> list[Attempt]:
    """Returns those of the living attempts whose launcher is gone, or that no plan names.

    Args:
      holder: of the lease now, or None.
    """
    owner = None if holder is None else holder.owner

    def is_led(attempt: Attempt) -> bool:
        has_launcher = owner is not None and attempt.owner == owner
        return has_launcher or attempt.engine in ENGINES_WITHOUT_LAUNCHER

    return [each for each in attempts if each.path not in planned or not is_led(each)]
