"""Counts the calls of the file system that this process makes: on networks they are what costs."""

from __future__ import annotations

import builtins
import collections
import contextlib
import io
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

# How many calls of the kernel a function makes: `open` looks, reads to the end and closes, too.
_CALLS = {
    **dict.fromkeys([(io, "open"), (builtins, "open")], 7),
    **dict.fromkeys([(os, "scandir"), (os, "listdir")], 5),
    **{
        (os, name): 1
        for name in (
            *(
                "stat",
                "lstat",
                "fstat",
                "open",
                "read",
                "write",
                "close",
                "fsync",
                "utime",
                "mkdir",
            ),
            *("rename", "replace", "unlink", "rmdir", "symlink", "readlink"),
        )
    },
}


@contextlib.contextmanager
def counted_calls() -> Iterator[collections.Counter[str]]:
    """Yields how often each function is called in the block, in calls of the kernel."""
    counts: collections.Counter[str] = collections.Counter()

    def counting(name: str, function: Callable[..., Any], calls: int) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            counts[name] += calls
            return function(*arguments, **named)

        return call

    with contextlib.ExitStack() as stack:
        for (module, name), calls in _CALLS.items():
            counting_one = counting(name, getattr(module, name), calls)
            stack.enter_context(mock.patch.object(module, name, counting_one))
        yield counts
