"""Files in a bucket: whole objects by name below one URL, `gs://bucket/path` or any other of fsspec's.

Where the service allows it (Cloud Storage, and for tests `file://` and `memory://`) an object can be
written on the condition that nobody has written it since one looked.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from multiberts.runs.errors import UserError
from multiberts.runs.files import UNFINISHED_SUFFIX, make_private
from multiberts.runs.lease_holder import NoLocksError, lock_file

_URL = re.compile(r"(?P<protocol>[a-z][a-z0-9+]*)://(?P<path>.*)")

# These begin with `<word>://` but are not folders of files.
_NO_BUCKETS = {"http", "https"}
_CLOUD_STORAGE = {"gs", "gcs"}
_MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_CONDITIONAL = {*_CLOUD_STORAGE, "file", "memory"}

# Permissions for restoring, pushing and tidying a run. Overwriting counts as deleting.
_PERMISSIONS = [f"storage.objects.{name}" for name in ("create", "delete", "get", "list")]

# Much longer than a conditional write takes.
_SECONDS_UNTIL_LEFT = 30.0

# Within this process; other processes see no `memory://`.
_MEMORY = threading.Lock()


class BucketUnreachableError(UserError):
    """The service does not answer; the input may be right, so the command can be tried again."""


class LocalCopyError(UserError):
    """A run's local copy and its bucket do not belong together; the message names both."""


class MirrorLostError(LocalCopyError):
    """Somebody removed a run's local copy, or files of it, beneath the run; the same command resumes."""


def is_url(value: object) -> bool:
    """Returns whether a parameter's value names something in a bucket rather than a local path."""
    match = _URL.fullmatch(value) if isinstance(value, str) else None
    return match is not None and match["protocol"] not in _NO_BUCKETS


class Bucket:
    """The objects below a URL.

    Attributes:
      url: without a slash at the end.
      protocol: such as `gs`.
      path: path of the URL, without protocol and outer slashes.
    """

    def __init__(self, url: str):
        match = _URL.fullmatch(url)
        if match is None or not is_url(url) or not match["path"].strip("/"):
            raise UserError(
                f"{url!r} is not a place in a bucket; expected a URL such as gs://bucket/folder"
            )
        self.url = url.rstrip("/")
        self.protocol = match["protocol"]
        self.path = match["path"].strip("/")
        self._filesystem, self._root = _filesystem(self.protocol, self.url)

    def check_writable(self) -> None:
        """Refuses a bucket that is missing, may not be written, or can hold no lease; writes nothing."""
        if self.protocol not in _CONDITIONAL:
            raise UserError(
                f"{self.url}: runs can be kept in {', '.join(sorted(_CONDITIONAL))} buckets, for "
                f"{self.protocol}:// has no conditional writes here; inputs may lie there"
            )
        if self.protocol == "file":
            root = Path(self._root)
            existing = next(path for path in (root, *root.parents) if path.exists())
            if not existing.is_dir() or not os.access(existing, os.W_OK):
                raise UserError(f"no permission to write {self.url}; choose another folder")
        if self.protocol not in _CLOUD_STORAGE:
            return
        query = "&".join(f"permissions={name}" for name in _PERMISSIONS)
        path, name = f"b/{{}}/iam/testPermissions?{query}", self.path.partition("/")[0]
        with self._clear_errors():
            answer = self._filesystem.call("GET", path, name, json_out=True)
        missing = sorted({*_PERMISSIONS} - {*answer.get("permissions", [])})
        if missing:
            raise UserError(
                f"no permission for {self._root_url()}: {', '.join(missing)} not granted; ask for the role "
                "Storage Object Admin on it, or choose another bucket"
            )

    def read(self, name: str) -> bytes | None:
        """Returns an object's content; None if there is none."""
        with self._clear_errors(), contextlib.suppress(*_MISSING):
            return bytes(self._filesystem.cat_file(self._at(name)))
        return None

    def write(self, name: str, data: bytes) -> None:
        with self._clear_errors(), self._whole(name) as path:
            self._filesystem.pipe_file(path, data)

    def put(self, file: Path, name: str) -> None:
        """Writes a whole object from a local file."""
        with self._clear_errors(), self._whole(name) as path:
            self._filesystem.put_file(str(file), path)

    def get(self, name: str, file: Path) -> None:
        """Reads an object (the one that the URL names if `name` is empty) into a local file.

        Folders that are missing are made for their owner alone.
        """
        make_private(file.parent)
        with self._clear_errors():
            self._filesystem.get_file(self._at(name), str(file))

    def list(self) -> dict[str, dict[str, Any]]:
        """Returns all objects below the URL, by name, with `size` and the service's other facts."""
        facts_by_path: dict[str, dict[str, Any]] = {}
        with self._clear_errors(), contextlib.suppress(FileNotFoundError):
            facts_by_path = self._filesystem.find(self._root, detail=True)
        prefix = self._root.rstrip("/") + "/"
        return {
            path.removeprefix(prefix): facts
            for path, facts in facts_by_path.items()
            if path.startswith(prefix) and not path.endswith("/")
        }

    def facts(self) -> dict[str, Any] | None:
        """Returns the service's facts on the one object that the URL names; None if it is not an object."""
        with self._clear_errors(), contextlib.suppress(FileNotFoundError):
            facts: dict[str, Any] = self._filesystem.info(self._root)
            return facts if facts["type"] == "file" else None
        return None

    def remove(self, names: Iterable[str]) -> None:
        """Removes objects; one that is gone already is not an error."""
        with self._clear_errors():
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._filesystem.rm_file(self._at(name))

    def read_version(self, name: str) -> tuple[bytes, str] | tuple[None, None]:
        """Returns an object's content and the name of its version; two None if there is none."""
        if self.protocol not in _CLOUD_STORAGE:
            data = self.read(name)
            return (None, None) if data is None else (data, hashlib.sha256(data).hexdigest())
        bucket, key = self._at(name).split("/", 1)
        with self._clear_errors():
            while True:
                try:
                    facts = self._filesystem.call("GET", "b/{}/o/{}", bucket, key, json_out=True)
                except FileNotFoundError:
                    return None, None
                version = facts["generation"]
                # It was overwritten meanwhile: read again.
                with contextlib.suppress(FileNotFoundError):
                    return self._filesystem.cat_file(f"{bucket}/{key}", generation=version), version

    def write_if(self, name: str, data: bytes, version: str | None) -> str | None:
        """Writes an object if it still has the version that was read.

        Args:
          data: the whole content, another than before.
          version: expected version, from `read_version`; None: the object must not exist.

        Returns:
          The new version; None if somebody else has written it.
        """
        if self.protocol not in _CLOUD_STORAGE:
            with self._locked(name):
                if self.read_version(name)[1] != version:
                    return None
                self.write(name, data)
            return hashlib.sha256(data).hexdigest()
        bucket, key = self._at(name).split("/", 1)
        uploads = self._filesystem.base.replace("/storage/v1/", "/upload/storage/v1/")
        url, kind = f"{uploads}b/{bucket}/o", {"Content-Type": "application/json"}
        query = {"uploadType": "media", "name": key, "ifGenerationMatch": version or "0"}
        with self._clear_errors():
            try:
                answer = self._filesystem.call(
                    "POST", url, **query, headers=kind, data=data, json_out=True
                )
                return str(answer["generation"])
            except FileExistsError:
                # The first answer may have been lost and the write repeated: the object is ours all the same.
                content, written = self.read_version(name)
                return written if content == data else None

    def remove_if(self, name: str, version: str) -> None:
        """Removes an object if it still has the version that was read."""
        if self.protocol not in _CLOUD_STORAGE:
            with self._locked(name):
                if self.read_version(name)[1] == version:
                    self.remove([name])
            return
        bucket, key = self._at(name).split("/", 1)
        with self._clear_errors(), contextlib.suppress(FileNotFoundError, FileExistsError):
            self._filesystem.call("DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=version)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Locks an object against conditional writes, where the service has none."""
        if self.protocol == "memory":
            with _MEMORY:
                yield
            return
        lock = Path(self._at(name) + ".lock")
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise UserError(
                f"cannot write {self.url}: {error.strerror}; choose another folder"
            ) from error
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptor)
            try:
                lock_file(descriptor, lock, wait=True)
            except NoLocksError:
                stack.enter_context(self._made_alone(f"{lock}.made"))
            yield

    @contextlib.contextmanager
    def _made_alone(self, path: str) -> Iterator[None]:
        """Makes a file that is not there, and removes it: a lock for file systems that have none."""
        end = time.monotonic() + _SECONDS_UNTIL_LEFT
        while True:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
                break
            if time.monotonic() > end:
                raise UserError(
                    f"{path} was left by a process that was stopped; if nothing writes {self.url}, remove it"
                )
            time.sleep(0.05)
        try:
            yield
        finally:
            os.unlink(path)

    @contextlib.contextmanager
    def _whole(self, name: str) -> Iterator[str]:
        """Yields a path to write an object to, so that it appears whole."""
        path = self._at(name)
        if self.protocol != "file":
            yield path
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        unfinished = f"{path}.{os.getpid()}{UNFINISHED_SUFFIX}"
        try:
            yield unfinished
            os.replace(unfinished, path)
        finally:
            Path(unfinished).unlink(missing_ok=True)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _root_url(self) -> str:
        return f"{self.protocol}://{self.path.partition('/')[0]}"

    @contextlib.contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except UserError:
            raise
        except FileNotFoundError as error:
            raise UserError(
                f"{self._root_url()} does not exist, or has lost objects of {self.url}; check the name, "
                "or create the bucket"
            ) from error
        except Exception as error:
            # Every service has its own kinds of errors; users get one line.
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            is_refused = str(getattr(error, "code", "")) in ("401", "403")
            if is_refused or isinstance(error, PermissionError) or reason.startswith("Forbidden"):
                raise UserError(
                    f"no permission for {self.url} ({reason}); sign in with `gcloud auth "
                    "application-default login`, or ask for the role Storage Object Admin"
                ) from error
            more_space = "free some space or choose another directory"
            cure = more_space if self.protocol == "file" else "check the network"
            raise BucketUnreachableError(
                f"cannot reach {self.url}: {reason}; {cure}, then run the same command again"
            ) from error


def _filesystem(protocol: str, url: str) -> tuple[Any, str]:
    """Returns fsspec's file system for a URL, without a cache of listings, and the path there."""
    # The plain client of Cloud Storage: the one for zonal buckets first asks for the kind of each bucket.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    import fsspec

    if protocol == "file":  # where `url_to_fs` would split a path at `::`
        return fsspec.filesystem("file"), os.path.abspath(url.removeprefix("file://"))
    # It prints whole tracebacks of errors that we report in one line.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    is_emulated = protocol in _CLOUD_STORAGE and os.environ.get("STORAGE_EMULATOR_HOST")
    options = {"token": "anon"} if is_emulated else {}
    try:
        return cast("tuple[Any, str]", fsspec.url_to_fs(url, use_listings_cache=False, **options))
    except (ImportError, ValueError) as error:
        raise UserError(
            f"{url}: {str(error).splitlines()[0]}; install multiberts[cloud] for gs://, or "
            "fsspec's package for other buckets"
        ) from error
