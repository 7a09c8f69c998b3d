"""What belongs to nobody: attempts that go on without their launcher, runs that no plan names."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from multiberts.launch.markers.attempts import Attempt
from multiberts.launch.markers.lease import Holder
from multiberts.runs.files import UNFINISHED_SUFFIX, PathLike
from multiberts.runs.processes import creation_time

# Folders of an experiment in which no run lies.
FOLDERS_WITHOUT_RUNS = {"launch", "logs"}
MARKERS_OF_A_RUN = {"DONE", "config.gin"}

# These go on without a launcher: whoever reconciles next looks after them, and gives the sign of life.
ENGINES_WITHOUT_LAUNCHER = {"tpu"}
SECONDS_BETWEEN_RECONCILIATIONS = 3600.0


def is_alive(attempt: Attempt, now: float) -> bool:
    """Returns whether an attempt goes on: not ended, not silent, and if it is here, its process
    runs.
    """
    if attempt.ended is not None:
        return False
    if attempt.engine in ENGINES_WITHOUT_LAUNCHER:
        return now - attempt.heartbeat <= SECONDS_BETWEEN_RECONCILIATIONS
    if attempt.is_silent(now):
        return False
    return attempt.host != socket.gethostname() or has_process(attempt)


def has_process(attempt: Attempt) -> bool:
    """Returns whether the process of an attempt on this machine runs, and is not another one with
    its number.
    """
    created = creation_time(attempt.pid)
    # The clock may be set between the two, so some seconds are allowed.
    return created is not None and created <= attempt.started + 5


def orphaned(
    attempts: Iterable[Attempt], planned: Collection[str], holder: Holder | None
) -> list[Attempt]:
    """Those of the living attempts whose launcher is gone.

    Args:
      attempts: that are alive.
      planned: paths of all planned runs.
      holder: who launches now, or None.
    """
    found = []
    for attempt in attempts:
        # A launcher starts its workers after it has the lease.
        is_led = holder is not None and attempt.started >= holder.started
        if attempt.path not in planned or not (
            is_led or attempt.engine in ENGINES_WITHOUT_LAUNCHER
        ):
            found.append(attempt)
    return found


def unplanned_directories(root: PathLike, planned: Collection[str]) -> list[str]:
    """Directories of runs below the root that no plan names, relative to it and sorted.

    Nothing within a run's directory is looked at, and no link is followed.
    """
    inner = {str(parent) for path in planned for parent in Path(path).parents}
    return sorted(_unplanned(str(root), "", set(planned), inner))


def _unplanned(root: str, folder: str, planned: set[str], inner: set[str]) -> Iterator[str]:
    try:
        with os.scandir(os.path.join(root, folder)) as entries:
            present = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:
        return
    # The root itself may be a run, but not of this plan's making.
    if folder and folder not in inner and any(name in MARKERS_OF_A_RUN for name, _ in present):
        yield folder
        return
    for name, is_folder in present:
        path = f"{folder}/{name}" if folder else name
        if not is_folder or name.endswith(UNFINISHED_SUFFIX) or path in planned:
            continue
        if name.startswith(".") or (not folder and name in FOLDERS_WITHOUT_RUNS):
            continue
        yield from _unplanned(root, path, planned, inner)
