"""Who works alone: locks of the kernel, and the holder of a lease as its marker has it.

A lease is of an experiment's root, of a run in a bucket, or of a run on a file system without locks.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, parse_json_fields
from multiberts.runs.parameters import Range
from multiberts.runs.processes import creation_time, process_is_alive

# Errors of `flock` on Lustre, and on NFS without its lock service.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}

# Up to the year 4147; calendars end soon after.
UnixSeconds = Annotated[float, Range(least=0, most=2**36)]


class NoLocksError(UserError):
    """The file system has no locks."""


def lock_file(descriptor: int, path: PathLike, *, wait: bool = False, shared: bool = False) -> bool:
    """Locks an open file until it is closed, which the kernel does however the process ends.

    Returns False if another process holds the lock, unless it shall `wait` until that releases it.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        refused = NoLocksError if error.errno in _NO_LOCKS else UserError
        raise refused(
            f"cannot lock {path}: {error.strerror}; give a folder on another file system"
        ) from error
    return True


def boot_id() -> str:
    """Returns an identifier of this machine since its start."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """A process that holds a lease, by default this one.

    Attributes:
      owner: another name for each time that the lease was taken.
      machine: boot id of the machine, as cloud providers reuse the names of machines.
      created: the process's `runs.processes.creation_time`; None where it is not known.
      started, renewed: Unix seconds by the holder's clock, which may be wrong.
      seconds_until_stale: others may take the lease over after this time without a renewal.
    """

    owner: str
    host: str = dataclasses.field(default_factory=socket.gethostname)
    machine: str = dataclasses.field(default_factory=boot_id)
    pid: int = dataclasses.field(default_factory=os.getpid)
    created: float | None = dataclasses.field(default_factory=lambda: creation_time(os.getpid()))
    started: UnixSeconds
    renewed: UnixSeconds = dataclasses.field(default_factory=time.time)
    seconds_until_stale: float

    @classmethod
    def parse(cls, content: str | bytes, where: str, cure: str) -> Holder:
        values = parse_json_fields(content, where, _KINDS, cure)
        fields: dict[str, Any] = {name: values.get(name) for name in _KINDS}
        return cls(**fields)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self)) + "\n"

    @property
    def is_here(self) -> bool:
        # Containers of one machine have its boot id, and see no processes of each other.
        return (self.host, self.machine) == (socket.gethostname(), boot_id())

    def is_gone(self) -> bool:
        return self.is_here and not process_is_alive(self.pid, self.created)


_KINDS = get_type_hints(Holder, include_extras=True)
