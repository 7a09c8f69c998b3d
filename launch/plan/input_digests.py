"""SHA-256 digests of input files, remembered between plans so that unchanged files are read once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

from multiberts.runs.directory import DONE, fingerprint
from multiberts.runs.errors import UserError
from multiberts.runs.files import UNFINISHED_SUFFIX, PathLike, read_json_fields, sha256_of_file

FILE = "launch/inputs.json"
# A file that changed this recently may change again within the clock's resolution.
SECONDS_UNTIL_SETTLED = 2.0


class InputDigests:
    """Digests of files and folders.

    A file counts as unchanged while its size, time of change and inode are the same.

    Attributes:
      files_read: number of files that were read, not remembered.
    """

    def __init__(self, memory: PathLike | None = None):
        """Loads the digests that an earlier plan saved.

        Args:
          memory: file of the digests; None: do not save them. A damaged file counts as empty.
        """
        self._memory = None if memory is None else Path(memory)
        self._of_files: dict[str, list[int | str]] = {}
        self._of_paths: dict[str, str] = {}
        self._has_news = False
        self.files_read = 0
        if self._memory is not None:
            with contextlib.suppress(UserError):
                self._of_files = read_json_fields(self._memory)

    def of(self, path: PathLike) -> str:
        """Returns the SHA-256 of a file, a finished run's outputs, or a folder's file names and contents."""
        key = str(path)
        if key not in self._of_paths:
            path = Path(path)
            if path.is_file():
                digest = self._file(path)
            elif (path / DONE).is_file():
                digest = fingerprint(path)
            elif path.is_dir():
                files = sorted(file for file in path.rglob("*") if file.is_file())
                listing = [f"{file.relative_to(path)} {self._file(file)}" for file in files]
                digest = hashlib.sha256("\n".join(listing).encode()).hexdigest()
            else:
                raise UserError(
                    f"{path} does not exist; check the path (DATA in the configuration)"
                )
            self._of_paths[key] = digest
        return self._of_paths[key]

    def keep(self) -> None:
        """Saves new digests, if the folder of the memory exists."""
        if self._memory is None or not self._has_news or not self._memory.parent.is_dir():
            return
        temporary = self._memory.with_name(f"{self._memory.name}.{os.getpid()}{UNFINISHED_SUFFIX}")
        # A lost memory only costs time: planning reads the files again.
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(self._of_files) + "\n")
            os.replace(temporary, self._memory)
            self._has_news = False

    def _file(self, path: Path) -> str:
        before = path.stat()
        state: list[int | str] = [before.st_size, before.st_mtime_ns, before.st_ino]
        name = str(path.absolute())
        *state_then, digest = self._of_files.get(name, [""])
        if state_then == state:
            return str(digest)
        digest = sha256_of_file(path)
        self.files_read += 1
        if time.time() - before.st_mtime > SECONDS_UNTIL_SETTLED:
            self._of_files[name] = [*state, digest]
            self._has_news = True
        return digest
