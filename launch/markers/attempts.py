"""Markers of attempts: which worker carries out which run, since when, and how it ended.

They are in journals, `<root>/launch/attempts/<journal>.jsonl`: one per chunk of runs, because calls are
expensive on a network file system. A line is a whole attempt as JSON, written when it begins
and when it ends; the last line about an attempt counts. The file's time of change is the heartbeat of its
open attempt: the worker touches it. A file per attempt in a folder per run is an earlier version's journal.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import os
import socket
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

from multiberts.launch.plan.planned_run import fitting_name
from multiberts.runs.console import warn
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, open_marker, parse_json_fields
from multiberts.runs.lease_holder import Holder, UnixSeconds
from multiberts.runs.processes import creation_time, process_is_alive

FOLDER = "launch/attempts"
SECONDS_BETWEEN_HEARTBEATS = 15.0
# A worker counts as dead after this time without a heartbeat.
SECONDS_OF_SILENCE = 90.0
# The same for an attempt that needs no launcher: each look at it is a heartbeat.
SECONDS_BETWEEN_LOOKS = 24 * 3600.0

EngineName = Literal["local", "slurm", "dask", "skypilot"]

OUTCOMES = ("done", "failed", "preempted", "lost")

_warn_once = functools.cache(warn)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one run.

    Attributes:
      attempt: number of the attempt, from 1.
      path: the run's directory, relative to the root.
      engine: `local`, `slurm`, `dask`, `skypilot`.
      host, pid: the process that carries it out.
      job: the job of Slurm or SkyPilot; None without one.
      device: such as `cpu` or `gpu 0`.
      started, ended: Unix seconds; `ended` is None while it runs.
      outcome: one of `OUTCOMES`; None while it runs.
      error: `kind` and `message`, or None.
      log: file of its output, relative to the root, or None.
      created: the process's `runs.processes.creation_time`; None if unknown.
      owner: the launcher that started it, as its lease names it; None if it needs no launcher.
      heartbeat: Unix seconds of the last sign of life; not stored in the file, nor is `journal`.
      journal: the attempt's file, relative to `FOLDER`.
    """

    attempt: int
    path: str
    engine: str
    host: str
    pid: int
    job: str | None = None
    device: str | None = None
    started: UnixSeconds = 0.0
    ended: UnixSeconds | None = None
    outcome: str | None = None
    error: dict[str, str] | None = None
    log: str | None = None
    created: float | None = None
    owner: str | None = None
    heartbeat: float = 0.0
    journal: str = ""

    @property
    def needs_launcher(self) -> bool:
        """Returns whether it ends with its launcher; SkyPilot's jobs do not."""
        return self.engine != "skypilot"

    @property
    def where(self) -> str:
        """Returns engine, device and host, as far as they are known."""
        return " · ".join(part for part in (self.engine, self.device, self.host) if part)

    def is_silent(self, now: float) -> bool:
        """Returns whether it has not ended and has given no sign of life for a long time."""
        longest = SECONDS_OF_SILENCE if self.needs_launcher else SECONDS_BETWEEN_LOOKS
        return self.ended is None and now - self.heartbeat > longest

    def is_alive(self, now: float) -> bool:
        """Returns whether it runs: not ended, not silent, and its process alive if it is on this machine."""
        if self.ended is not None or self.is_silent(now):
            return False
        return self.host != socket.gethostname() or self.has_process()

    def has_process(self) -> bool:
        """Returns whether its process on this machine is alive, and not another one with the same number."""
        return process_is_alive(self.pid, self.created)


_KINDS = {
    name: kind
    for name, kind in get_type_hints(Attempt, include_extras=True).items()
    if name not in ("heartbeat", "journal")
}


def file_of_journal(root: PathLike, journal: str) -> Path:
    return Path(root) / FOLDER / journal


def make_journal(root: PathLike, journal: str) -> str:
    """Creates an empty journal if it does not exist; returns its name."""
    file = file_of_journal(root, journal)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return journal


def begin_attempt(root: PathLike, path: str, *, engine: str, **facts: Any) -> Attempt:
    """Records that an attempt begins now.

    Args:
      facts: further fields of `Attempt`. Defaults: `host` and `pid` of this process, a `journal` of this run
        alone, `attempt` 1.
    """
    now = time.time()
    is_here = "host" not in facts
    facts = {"host": socket.gethostname(), "pid": os.getpid(), **facts}
    facts["created"] = creation_time(facts["pid"]) if is_here else None
    if "journal" not in facts:
        facts["journal"] = make_journal(
            root, fitting_name(path.strip("/").replace("/", "---")) + ".jsonl"
        )
    facts = {"attempt": 1, "started": now, "heartbeat": now, **facts}
    attempt = Attempt(path=path, engine=engine, **facts)
    write_attempt(root, attempt)
    return attempt


def end_attempt(
    root: PathLike,
    attempt: Attempt,
    outcome: str,
    error: dict[str, str] | None = None,
    ended: float | None = None,
) -> Attempt:
    """Records how an attempt ended, and returns it.

    Args:
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
    """Appends an attempt to its journal, whole or not at all."""
    # The leading newline ends a line that a crash has cut. No flush to the disk: after a crash only DONE
    # counts.
    line = f"\n{json.dumps({name: getattr(attempt, name) for name in _KINDS})}\n".encode()
    # Closed each time: network file systems show others only closed files.
    with open(file_of_journal(root, attempt.journal), "ab", buffering=0) as stream:
        size = stream.seek(0, os.SEEK_END)
        if stream.write(line) < len(line):
            stream.truncate(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), stream.name)


def attempts_of(root: PathLike) -> dict[str, list[Attempt]]:
    """Returns all attempts of an experiment by the path of the run, in order."""
    attempts: dict[str, list[Attempt]] = {}

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise UserError(
                f"cannot read {error.filename}: {error.strerror}; move it away"
            ) from error

    for folder, folders, names in os.walk(os.path.join(root, FOLDER), onerror=refuse):
        for name in sorted([*folders, *names]):
            if name.endswith((".jsonl", ".json")):
                for attempt in read_journal(os.path.join(folder, name)):
                    attempts.setdefault(attempt.path, []).append(attempt)
    for of_run in attempts.values():
        of_run.sort(key=lambda attempt: (attempt.attempt, attempt.started))
    return attempts


def read_journal(file: PathLike) -> list[Attempt]:
    """Returns the attempts in a journal in the order in which they began; none if it does not exist.

    Skips a line without an end, which is being written, and warns of a damaged one.
    """
    try:
        with open_marker(file) as stream:
            # From the open file, so that time and content belong together.
            heartbeat = os.fstat(stream.fileno()).st_mtime
            lines = stream.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except UserError as error:
        _warn_once(str(error))
        return []
    # A line begins with the number and path of its attempt.
    newest = {line.partition(b'"engine"')[0]: number for number, line in enumerate(lines) if line}
    cure = "the line is ignored; delete it"
    attempts = []
    for number in newest.values():
        try:
            line = parse_json_fields(lines[number], f"{file} line {number + 1}", _KINDS, cure)
        except UserError as error:
            _warn_once(str(error))
            continue
        fields: dict[str, Any] = {name: line.get(name) for name in _KINDS}
        journal = str(file).rpartition(f"{FOLDER}/")[2]
        attempts.append(Attempt(**fields, heartbeat=heartbeat, journal=journal))
    return attempts


def orphaned(
    attempts: Iterable[Attempt], planned: Collection[str], holder: Holder | None
) -> list[Attempt]:
    """Returns the living attempts whose launcher is gone or which are in no plan.

    Args:
      holder: who holds the lease now, or None.
    """
    return [
        each
        for each in attempts
        if each.path not in planned
        or (each.needs_launcher and (holder is None or each.owner != holder.owner))
    ]
