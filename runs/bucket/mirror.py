"""A run directory in a bucket: worked on in a local copy, pushed whole file by whole file.

A stage sees local paths only. At the start the copy is made what the bucket's manifest lists, no
more and no less. While the stage runs, whole files are pushed now and then: first the files, then a
manifest that lists them with sizes and checksums, then DONE; after it the state of training is
removed. A run that resumes fetches its state and its logs; kept checkpoints stay in the bucket. A file
that the manifest in the bucket lists is never overwritten by other content: until the next manifest that
lies next to it, under a name of this holder's own. So a run resumes from a copy of any moment. Only what the
run itself removed leaves the bucket: once the local copy has lost anything else, nothing more is pushed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from multiberts.runs import console, files
from multiberts.runs.bucket.lease import LEASE, Lease, LeaseLostError
from multiberts.runs.bucket.objects import Bucket, LocalCopyError, MirrorLostError
from multiberts.runs.directory import CONFIG, DONE, LOCK, UNFETCHED, RecordedFile, read_done
from multiberts.runs.errors import UserError
from multiberts.runs.lease_holder import UnixSeconds
from multiberts.runs.preemption import OPEN_BLOCKS, ask_to_stop, preemption_notice

MANIFEST = "MANIFEST.json"
SECONDS_BETWEEN_PUSHES = 30.0

# Environment variables: the folder that local copies lie in, and seconds between pushes.
FOLDER_VARIABLE = "RUNS_MIRROR"
PUSH_VARIABLE = "RUNS_PUSH_SECONDS"

# Listed first, so that the log lines and checkpoints that a state needs are pushed with it.
_STATE = "state"
# Files that a resumed run does not fetch.
_CHECKPOINTS = "checkpoints/"
# Files that may still grow are read into memory before they are pushed.
_BYTES_READ_AT_ONCE = 64 * 2**20


class Entry(RecordedFile):
    """A file's entry in the manifest: its content, and the name of its object."""

    object: str


def local_copy(bucket: Bucket) -> Path:
    """Returns the path of the local copy of a URL."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = os.environ.get(FOLDER_VARIABLE) or Path(cache) / "multiberts" / "mirror"
    folder = Path(folder).expanduser()
    if folder.exists():
        facts = folder.stat()
        if facts.st_uid != os.getuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UserError(
                f"{folder} belongs to another user or may be written by others, who could change what "
                f"this run reads; run chmod go-w on it, or set {FOLDER_VARIABLE} to a folder of your own"
            )
    return folder / bucket.protocol / bucket.path


def manifest_of(entries: dict[str, Entry], owner: str) -> bytes:
    listed = dict(sorted(entries.items()))
    content = {"version": 1, "owner": owner, "time": time.time(), "files": listed}
    return (json.dumps(content, indent=1) + "\n").encode()


def read_manifest(bucket: Bucket) -> dict[str, Entry] | None:
    """Returns the files of a run in a bucket, by name; None where no run was pushed."""
    pushed = last_push(bucket)
    return None if pushed is None else pushed[0]


def last_push(bucket: Bucket) -> tuple[dict[str, Entry], float] | None:
    """Returns the files of a run in a bucket, and when they were pushed (Unix seconds)."""
    data = bucket.read(MANIFEST)
    return None if data is None else _parsed(bucket, data)


def restore(
    bucket: Bucket,
    path: Path,
    entries: dict[str, Entry],
    wants: Callable[[str], bool] = lambda _: True,
) -> None:
    """Makes a local copy hold what a manifest lists and `wants`, by name, and nothing else."""
    for file in list(path.rglob("*")):
        name = str(file.relative_to(path))
        is_ours = name == LOCK or not file.is_file() or _holds(file, entries.get(name))
        if file.is_symlink() or not is_ours:
            file.unlink()  # of a link only the link, and nothing is written through it
    # A folder that is there counts as written.
    for folder, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    for name, entry in entries.items():
        file = path / name
        if file.exists() or not wants(name):
            continue
        unfinished = file.with_name(file.name + files.UNFINISHED_SUFFIX)
        bucket.get(entry["object"], unfinished)
        if not _holds(unfinished, entry):
            files.remove(unfinished)
            raise UserError(
                f"{bucket.url}/{entry['object']} is not what {bucket.url}/{MANIFEST} says; put it back, or "
                "remove the whole folder to start again"
            )
        os.replace(unfinished, file)


class Mirror:
    """A run directory in a bucket, and `path`, its local copy while the block runs."""

    def __init__(self, url: str, url_of_path: Mapping[str, str] = MappingProxyType({})):
        """Prepares a mirror; `url_of_path`: URLs that the configuration there names for local copies."""
        self._bucket = Bucket(url)
        self.path = local_copy(self._bucket)
        # Where it is, the local copy was pushed: an empty bucket is then not that of a new run.
        self._pushed_marker = self.path.with_name(f"{self.path.name}.pushed")
        self._url_of_path = url_of_path
        self._lease = Lease(self._bucket)
        self._seconds = float(os.environ.get(PUSH_VARIABLE, SECONDS_BETWEEN_PUSHES))
        self._entries: dict[str, Entry] = {}
        self._version: str | None = None
        self._done: bytes | None = None
        self._pushed_as: dict[str, tuple[tuple[int, int], str]] = {}
        self._unfetched: set[str] = set()
        self._is_finished = False
        self._holds_lease = False
        self._local_files = files.OwnFiles(self.path)
        self._folder = -1
        self._lost: UserError | None = None
        self._ended = threading.Event()
        self._pusher: threading.Thread | None = None

    def __enter__(self) -> Mirror:
        """Takes the lease and restores what was pushed; a finished run is only restored."""
        if self._bucket.read(DONE) is None:  # otherwise most often nothing will change
            self._take_lease()
        try:
            self._restore()
        except BaseException:
            self._lease.release()
            raise
        # Held open, so that no other folder gets its number.
        self._folder = os.open(self.path, os.O_RDONLY)
        self._local_files.__enter__()
        if self._holds_lease:
            self._pusher = threading.Thread(target=self._push_now_and_then, daemon=True)
            self._pusher.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Pushes new files and releases the lease."""
        # Machines say more than once that they are taken, and the second time must not end the push.
        with preemption_notice():
            self._ended.set()
            if self._pusher is not None:
                self._pusher.join()
            try:
                if self._lost is not None:
                    raise self._lost from error
                if not self._holds_lease and error is None:
                    self._check_local_copy([DONE])
                    if (self.path / DONE).read_bytes() != self._done:
                        # It was done and was made again, as a report of new predictions. Its old marker goes
                        # first: it does not cover the new files.
                        self._check_local_copy(self._entries)
                        self._take_lease()
                        self._bucket.remove([DONE])
                if self._holds_lease:
                    self.push()
            finally:
                self._local_files.__exit__()
                os.close(self._folder)
                with contextlib.suppress(UserError):
                    self._lease.release()

    def _take_lease(self) -> None:
        self._bucket.check_writable()
        self._lease.acquire()
        self._holds_lease = True

    def push(self) -> None:
        """Pushes all files that are new or have changed."""
        is_done = (self.path / DONE).exists()
        self._push_files()
        if not is_done:
            return
        # A finished run lies there as it does here, each file under its own name.
        while any(
            name != entry["object"] for name, entry in self._entries.items() if not _is_state(name)
        ):
            self._push_files()
        for name, recorded in read_done(self.path).items():
            if name not in self._entries or self._entries[name]["sha256"] != recorded["sha256"]:
                raise self._lost_copy(name)
        self._lease.check()
        self._bucket.put(self.path / DONE, DONE)
        # Only now the state can go.
        self._is_finished = True
        self._push_files()

    def _push_files(self) -> None:
        self._check_local_copy(self._entries)
        # States first; once all is done none, as they go.
        has_ended = (self.path / DONE).exists()
        states, all_files = (
            sorted(str(file.relative_to(self.path)) for file in folder.rglob("*") if file.is_file())
            for folder in (self.path / _STATE, self.path)
        )
        names = [
            name
            for name in dict.fromkeys([*states, *all_files])
            if name not in (DONE, LOCK, UNFETCHED)
            and files.UNFINISHED_SUFFIX not in name
            and not (has_ended and _is_state(name))
        ]
        entries = {name: entry for name in names if (entry := self._pushed(name)) is not None}
        # Again: it may have been removed meanwhile, before its files were read.
        self._check_local_copy({*self._entries, *names})
        is_ending = (self.path / DONE).exists() and not self._is_finished
        for name, entry in self._entries.items():
            leaves = name in self._local_files.removed
            if _is_state(name):
                # Until DONE is in the bucket, a restart from there needs the state.
                leaves = self._is_finished or (leaves and not is_ending)
            if name in self._unfetched or not leaves:
                entries.setdefault(name, entry)
        if entries == self._entries and self._version is not None:
            return
        self._lease.check()
        manifest = manifest_of(entries, self._lease.owner)
        version = self._bucket.write_if(MANIFEST, manifest, self._version)
        if version is None:
            raise LeaseLostError(
                f"{self._bucket.url}/{MANIFEST} was written by another process, which continues; "
                "nothing more is written from here"
            )
        listed = {entry["object"] for entry in entries.values()}
        unlisted = {entry["object"] for entry in self._entries.values()} - listed
        self._entries, self._version = entries, version
        with contextlib.suppress(OSError):  # the copy was just removed, which the next push says
            self._pushed_marker.touch()
        self._bucket.remove(unlisted)

    def _check_local_copy(self, names: Iterable[str]) -> None:
        """Refuses to push a copy from which somebody else removed files, or which another one has replaced.

        `names` are of files that were there; those never fetched and states of a finished run do not count.
        """
        if self._local_files.removed_folder:
            return
        is_there = False  # neither if it, or a mount above it, was taken away
        with contextlib.suppress(OSError):
            is_there = os.path.samestat(self.path.stat(), os.fstat(self._folder))
        if not is_there:
            raise self._lost_copy("the whole folder")
        has_ended = (self.path / DONE).exists()
        lost = self._local_files.lost(
            name
            for name in names
            if name not in self._unfetched and not (has_ended and _is_state(name))
        )
        if lost:
            raise self._lost_copy(CONFIG if CONFIG in lost else lost[0])

    def _lost_copy(self, removed: str) -> MirrorLostError:
        return MirrorLostError(
            f"somebody removed {removed} from {self.path}, the local copy of {self._bucket.url}: nothing "
            "more is pushed, and the bucket keeps what it has; the same command resumes from there"
        )

    def _pushed(self, name: str) -> Entry | None:
        """Pushes a file if it changed; returns None if it is gone."""
        listed, file = self._entries.get(name), self.path / name
        try:
            details = file.stat()
            stamp = (details.st_size, details.st_mtime_ns)
            has_own_name = listed is not None and listed["object"] == name
            if listed and has_own_name and self._pushed_as.get(name) == (stamp, listed["sha256"]):
                return listed
            data = file.read_bytes() if details.st_size <= _BYTES_READ_AT_ONCE else None
            if data is not None and name == CONFIG:
                # It names URLs, not local copies: of inputs, content is compared, not paths.
                for path in sorted(self._url_of_path, key=len, reverse=True):
                    data = data.replace(path.encode(), self._url_of_path[path].encode())
            digest = (
                files.sha256_of_file(file) if data is None else hashlib.sha256(data).hexdigest()
            )
            size = details.st_size if data is None else len(data)
            if listed and has_own_name and listed["sha256"] == digest:
                self._pushed_as[name] = (stamp, digest)
                return listed
            target = f"{name}@{self._lease.owner[:8]}" if has_own_name else name
            self._lease.check()
            if data is None:
                self._bucket.put(file, target)
            else:
                self._bucket.write(target, data)
            after = file.stat()
        except FileNotFoundError:
            return None
        if data is None and (after.st_size, after.st_mtime_ns) != stamp:
            return listed  # it changed during the push: the next push takes it
        self._pushed_as[name] = (stamp, digest)
        return Entry(bytes=size, sha256=digest, object=target)

    def _restore(self) -> None:
        manifest, self._version = self._bucket.read_version(MANIFEST)
        if manifest is None:
            ours = {LEASE, f"{LEASE}.lock", f"{MANIFEST}.lock"}
            others = sorted(set(self._bucket.list()) - ours)
            if others:
                raise UserError(
                    f"{self._bucket.url} holds other files ({others[0]}) and no {MANIFEST}; choose an "
                    "empty or new run_dir"
                )
            if self._pushed_marker.exists() and (self.path / CONFIG).exists():
                raise LocalCopyError(
                    f"{self._bucket.url} is empty, but {self.path}, its local copy, was pushed there before; "
                    "put the bucket's files back (is it mounted?), or remove the local copy, too, to start "
                    "again"
                )
        else:
            self._entries, _ = _parsed(self._bucket, manifest)
        self._done = self._bucket.read(DONE)

        def wants(name: str) -> bool:
            # To resume a run its state is enough; checkpoints are never changed.
            is_later = name.startswith(_CHECKPOINTS) and self._entries[name]["object"] == name
            return self._done is not None or not is_later

        restore(self._bucket, self.path, self._entries, wants)
        files.make_private(self.path)
        self._unfetched = {name for name in self._entries if not (self.path / name).exists()}
        if self._unfetched:
            entries = {name: self._entries[name] for name in sorted(self._unfetched)}
            files.write_atomically(self.path / UNFETCHED, json.dumps({"outputs": entries}))
        if self._done is not None:
            (self.path / DONE).write_bytes(self._done)

    def _push_now_and_then(self) -> None:
        while not self._ended.wait(self._seconds):
            try:
                self.push()
            except (LeaseLostError, MirrorLostError) as error:
                self._lost = error
                # The stage stops as on SIGTERM or, where it cannot save, as on Ctrl-C; then this is raised.
                if OPEN_BLOCKS:
                    ask_to_stop()
                elif not self._ended.is_set():
                    os.kill(os.getpid(), signal.SIGINT)
                return
            except UserError as error:
                console.progress(f"{error} (tried again in {self._seconds:.0f} s)")


def _is_state(name: str) -> bool:
    return name.startswith(f"{_STATE}/")


def _holds(file: Path, entry: Entry | None) -> bool:
    if entry is None or file.stat().st_size != entry["bytes"]:
        return False
    return files.sha256_of_file(file) == entry["sha256"]


def _parsed(bucket: Bucket, data: bytes) -> tuple[dict[str, Entry], float]:
    where = f"{bucket.url}/{MANIFEST}"
    cure = "put it back, or remove the whole folder to start again"
    kinds = {"files": dict[str, Entry], "time": UnixSeconds}
    fields = files.parse_json_fields(data, where, kinds, cure)
    entries: dict[str, Entry] = fields["files"]
    for name in [*entries, *(entry["object"] for entry in entries.values())]:
        if not files.is_name_inside(name):
            raise UserError(f"{where} lists {name!r}, which lies outside the folder; {cure}")
    return entries, fields["time"]
