"""The mark of every process of a launch on this machine, by which the next launch finds what one left.

It is the environment variable `LAUNCH_WATCH`, which processes inherit from their launcher.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass

from multiberts.runs.processes import creation_time

VARIABLE = "LAUNCH_WATCH"


@dataclass(frozen=True)
class Mark:
    """The launcher that a process belongs to.

    Attributes:
      root: the experiment's root, an absolute path.
      created: its `runs.processes.creation_time`, which differs for a later process with the same id.
    """

    root: str
    owner: str
    pid: int
    created: float

    def to_string(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def mark_of_this_process(root: str, owner: str) -> Mark:
    pid = os.getpid()
    return Mark(root, owner, pid, creation_time(pid) or 0.0)
