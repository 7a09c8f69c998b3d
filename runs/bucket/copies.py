"""Copies of what lies in a bucket: of inputs and finished runs, and of a stage's arguments while it runs."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from multiberts.runs import files
from multiberts.runs.bucket import mirror
from multiberts.runs.bucket.objects import (
    Bucket,
    BucketUnreachableError,
    LocalCopyError,
    MirrorLostError,
    is_url,
)
from multiberts.runs.directory import DONE, LOCK, read_done
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import with_texts
from multiberts.runs.preemption import PreemptedError

# Facts that change with an object's content; each service has some of them.
_CONTENT = ("md5Hash", "crc32c", "generation", "ETag", "etag", "mtime", "created", "size")
RUN_DIR = "run_dir"

# These are passed to other programs, which read buckets themselves.
_PASSED_ON = {"scheduler", "datasets_dir"}


def fetch(url: str) -> Path:
    """Copies a finished run, a folder or one file from a bucket, unless an earlier copy is still the same."""
    bucket = Bucket(url)
    path = mirror.local_copy(bucket)
    files.make_private(path.parent)
    if mirror.read_manifest(bucket) is not None:
        fetch_run(bucket, path)
        return path

    # Not a run: one object, or all below the URL.
    single = bucket.facts()
    objects = {"": single} if single is not None else bucket.list()
    for name in objects:
        if name and not files.is_name_inside(name):
            raise UserError(
                f"{bucket.url} holds {name!r}, which lies outside the folder; rename it"
            )
    if not objects:
        raise UserError(f"{bucket.url} does not exist; check the path")
    notes = path.with_name(path.name + ".objects.json")
    contents = json.dumps(
        {
            name: " ".join(f"{fact}={facts[fact]}" for fact in _CONTENT if fact in facts)
            for name, facts in sorted(objects.items())
        }
    )
    sizes = {name: facts.get("size") for name, facts in objects.items()}
    is_known = notes.is_file() and notes.read_bytes() == contents.encode()
    if is_known and _has_sizes(path, sizes):
        return path
    with files.replaced(path) as unfinished:
        for name in objects:
            bucket.get(name, unfinished / name if name else unfinished)
    files.write_atomically(notes, contents)
    return path


def fetch_run(bucket: Bucket, path: Path) -> None:
    """Copies a finished run from a bucket into a directory, DONE last."""
    done, entries = bucket.read(DONE), mirror.read_manifest(bucket)
    if done is None or entries is None:
        raise UserError(f"{bucket.url} is a run that has not finished; finish it first")
    marker = path / DONE
    wanted = {name: entry for name, entry in entries.items() if not name.startswith("state/")}
    sizes = {name: entry["bytes"] for name, entry in wanted.items()}
    if marker.exists() and marker.read_bytes() == done and _has_sizes(path, sizes):
        return
    mirror.restore(bucket, path, wanted)
    files.write_atomically(marker, done)


def push_finished(path: Path, url: str) -> None:
    """Copies a finished run to a bucket, unless it is there."""
    bucket, marker = Bucket(url), path / DONE
    if not marker.is_file():
        raise UserError(f"{path} is a run that has not finished; finish it first")
    done = marker.read_bytes()
    there = bucket.read(DONE)
    if there == done:
        return
    if there is not None:
        raise UserError(f"{url} holds another run than {path}; choose another folder of the bucket")
    bucket.check_writable()
    entries = {}
    for file in sorted(path.rglob("*")):
        name = str(file.relative_to(path))
        if file.is_file() and name not in (DONE, LOCK) and not name.startswith("state/"):
            size, digest = file.stat().st_size, files.sha256_of_file(file)
            entries[name] = mirror.Entry(bytes=size, sha256=digest, object=name)
    for name, recorded in read_done(path).items():
        if name not in entries or entries[name]["sha256"] != recorded["sha256"]:
            raise UserError(
                f"{path / name} is missing or is not what {marker} says; remove {marker} and run the same "
                "command to make it again"
            )
    for name in entries:
        bucket.put(path / name, name)
    bucket.write(mirror.MANIFEST, mirror.manifest_of(entries, ""))
    bucket.write(DONE, done)


def push_input(path: Path, url: str) -> None:
    """Copies a finished run or a checkpoint to a URL that its content names, unless it is there."""
    if (path / DONE).is_file():
        push_finished(path, url)
        return
    bucket = Bucket(url)
    sizes = {name: facts.get("size") for name, facts in bucket.list().items()}
    for file in sorted(path.iterdir()):
        if file.is_file() and sizes.get(file.name) != file.stat().st_size:
            bucket.put(file, file.name)


def _has_sizes(path: Path, sizes: Mapping[str, int | None]) -> bool:
    """Returns whether a copy still has all its files: programs that clean caches remove single ones."""
    copies = ((path / name if name else path, size) for name, size in sizes.items())
    return all(file.is_file() and size in (None, file.stat().st_size) for file, size in copies)


@contextlib.contextmanager
def local_arguments(arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Replaces arguments with paths in a bucket by local copies.

    Inputs are fetched first. `run_dir` becomes a local copy, which is pushed now and then and when
    the block ends, however it ends.
    """
    url_of_path: dict[str, str] = {}

    def local_copy(name: str, value: str) -> str:
        if name in (RUN_DIR, *_PASSED_ON) or not is_url(value):
            return value
        if name.startswith("output"):
            raise UserError(
                f"{name} is {value!r}, expected a local path, because only run_dir may be written to a "
                "bucket; copy the result there"
            )
        path = str(fetch(value))
        url_of_path[path] = value.rstrip("/")
        return path

    try:
        with contextlib.ExitStack() as stack:
            located = {
                name: with_texts(functools.partial(local_copy, name), value)
                for name, value in arguments.items()
            }
            if is_url(arguments.get(RUN_DIR)):
                copy = mirror.Mirror(arguments[RUN_DIR], url_of_path)
                url_of_path[str(copy.path)] = arguments[RUN_DIR].rstrip("/")
                stack.enter_context(copy)
                located[RUN_DIR] = str(copy.path)
            yield located
    except UserError as error:
        message = str(error)
        if not isinstance(error, LocalCopyError):
            for path in sorted(url_of_path, key=len, reverse=True):
                message = message.replace(path, url_of_path[path])
        if isinstance(error, BucketUnreachableError | MirrorLostError):
            # The input may be right: a supervisor can start the command again.
            raise PreemptedError(message) from error
        if message == str(error):
            raise
        raise type(error)(message) from error
