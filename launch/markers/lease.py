"""The lease of an experiment: one launcher per root, across processes and machines.

On one machine a file lock decides, which the kernel releases with the process; across machines
`launch/lease.json`, which the holder renews (`runs.bucket.lease`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from multiberts.runs.bucket.lease import DAMAGED, Lease
from multiberts.runs.bucket.objects import Bucket, BucketUnreachableError
from multiberts.runs.console import note_once
from multiberts.runs.files import PathLike, open_marker
from multiberts.runs.lease_holder import Holder, NoLocksError, lock_file

FILE = "launch/lease.json"
LOCK = "launch/.lock"
SECONDS_UNTIL_STALE = 90.0


@contextlib.contextmanager
def launching(root: PathLike) -> Iterator[Lease]:
    """Holds the right to launch an experiment while the block runs."""
    lock = Path(root) / LOCK
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        raise BucketUnreachableError(
            f"cannot write {lock.parent}: {error.strerror}; choose another launch.root"
        ) from error
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(os.close, descriptor)
        lease = Lease(
            Bucket(f"file://{lock.parent.absolute()}"),
            SECONDS_UNTIL_STALE,
            name=Path(FILE).name,
            place=str(root),
            verb="launched",
            setting="launch.root",
            may_vanish=True,
        )
        holder = read_lease(root)  # refuses anything but a file, such as a pipe
        try:
            if not lock_file(descriptor, lock):
                raise lease.refusal(holder)
            if holder is not None and holder.is_here:
                # Its lock was free, so it is gone, even if its pid lives, or launches another root.
                (Path(root) / FILE).unlink(missing_ok=True)
        except NoLocksError as error:
            reason = str(error).partition("; ")[0]
            note_once(f"{reason}: only {FILE}, which is renewed, keeps other launchers out")
        lease.acquire()
        cleanup.callback(lease.release)
        yield lease


def read_lease(root: PathLike) -> Holder | None:
    """Returns who holds the lease or held it last; None if no launcher has left a marker."""
    path = Path(root) / FILE
    try:
        with open_marker(path) as stream:
            return Holder.parse(stream.read(), str(path), DAMAGED)
    except FileNotFoundError:
        return None


def launcher_at_a_glance(root: PathLike) -> Holder | None:
    """Returns who seems to launch the experiment now, by one look; None if nobody does.

    A launcher on another machine counts while its marker is young by the disk's clock: good enough to show,
    not to decide.
    """
    holder = read_lease(root)
    if holder is None or holder.is_gone():
        return None
    with contextlib.suppress(FileNotFoundError):
        age = time_of_disk(root) - (Path(root) / FILE).stat().st_mtime
        return holder if holder.is_here or age <= SECONDS_UNTIL_STALE else None
    return None


def time_of_disk(root: PathLike) -> float:
    """Returns the Unix time by the clock of the root's disk, such as a file server's.

    Where the root is read-only, by this machine's clock, which may differ by minutes.
    """
    lock = Path(root) / LOCK
    with contextlib.suppress(OSError):
        os.utime(lock)
        return lock.stat().st_mtime
    return time.time()
