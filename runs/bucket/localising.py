"""Arguments of a stage with what lies in a bucket replaced by local copies, while it runs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from multiberts.runs.bucket import objects
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import with_texts
from multiberts.runs.preemption import PreemptedError

RUN_DIR = "run_dir"

# These are passed to other programs, which read buckets themselves.
_PASSED_ON = {"scheduler", "datasets_dir"}


@contextlib.contextmanager
def local_arguments(arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Replaces arguments with paths in a bucket by local copies.

    Inputs are fetched first. `run_dir` becomes a local copy, which is pushed now and then and when
    the block ends, however it ends.
    """
    url_of_path: dict[str, str] = {}

    def local_copy(name: str, value: str) -> str:
        if name in (RUN_DIR, *_PASSED_ON) or not objects.is_url(value):
            return value
        if name.startswith("output"):
            raise UserError(
                f"{name} is {value!r}, expected a local path, because only run_dir may be written to a "
                "bucket; copy the result there"
            )
        from multiberts.runs.bucket.copies import fetch

        path = str(fetch(value))
        url_of_path[path] = value.rstrip("/")
        return path

    try:
        with contextlib.ExitStack() as stack:
            located = {
                name: with_texts(functools.partial(local_copy, name), value)
                for name, value in arguments.items()
            }
            if objects.is_url(arguments.get(RUN_DIR)):
                from multiberts.runs.bucket.mirror import Mirror

                mirror = Mirror(arguments[RUN_DIR], url_of_path)
                url_of_path[str(mirror.path)] = arguments[RUN_DIR].rstrip("/")
                stack.enter_context(mirror)
                located[RUN_DIR] = str(mirror.path)
            yield located
    except UserError as error:
        message = str(error)
        if not isinstance(error, objects.LocalCopyError):
            for path in sorted(url_of_path, key=len, reverse=True):
                message = message.replace(path, url_of_path[path])
        if isinstance(error, objects.BucketUnreachableError | objects.MirrorLostError):
            # The input may be right: a supervisor can start the command again.
            raise PreemptedError(message) from error
        if message == str(error):
            raise
        raise type(error)(message) from error
