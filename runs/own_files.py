"""Files that this process made and did not remove: one of them that is gone was removed by somebody else.

A mirror pushes a removal to its bucket only if the run made it. Job systems clean a job's HOME while its
trainer still saves: when absence alone counted as a removal, that emptied the run's bucket.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

# Held while a directory is swapped for its successor, so that nobody takes the moment between for a loss.
SWAPPING = threading.RLock()
_OPEN: list[OwnFiles] = []


class OwnFiles(contextlib.AbstractContextManager["OwnFiles"]):
    """The files below a folder that this process makes and removes while the block runs.

    `runs.files.replaced` and `runs.files.remove` report to it.

    Attributes:
      removed: names that this process removed and did not make again.
      removed_folder: whether this process removed the folder itself.

    Example:
      >>> from multiberts.runs.files import remove, write_atomically
      >>> with OwnFiles(Path("run")) as files:
      ...     for name in ("old", "new"):
      ...         write_atomically(f"run/{name}", "x")
      ...     remove("run/old")
      ...     Path("run/new").unlink()  # as somebody else would
      ...     files.lost()
      ['new']
    """

    def __init__(self, folder: Path):
        """Args:
        folder: whose files count, at any depth.
        """
        self._folder = os.path.abspath(folder)
        self._made: set[str] = set()
        self.removed: set[str] = set()
        self.removed_folder = False

    def __enter__(self) -> OwnFiles:
        _OPEN.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _OPEN.remove(self)

    def lost(self, names: Iterable[str] = ()) -> list[str]:
        """Returns the files that are gone though this process did not remove them, sorted.

        Args:
          names: of files that were there before the block, relative to the folder; those that were made in
            it count anyway.
        """
        with SWAPPING:
            return sorted(
                name
                for name in self._made.union(names) - self.removed
                if not os.path.isfile(f"{self._folder}/{name}")
            )

    def _note(self, path: Path, *, removed: bool) -> None:
        place = os.path.abspath(path)
        if os.path.commonpath([place, self._folder]) != self._folder:
            return
        names = {os.path.relpath(file, self._folder) for file in _files_at(place)}
        with SWAPPING:
            if removed:
                self._made -= names
                self.removed |= names
                self.removed_folder |= place == self._folder
            else:
                self._made |= names
                self.removed -= names


def note_removal(path: Path) -> None:
    """Notes a file, or all files of a directory, that this process is about to remove."""
    for files in _OPEN:
        files._note(path, removed=True)


def note_creation(path: Path) -> None:
    """Notes a file, or all files of a directory, that this process has just made."""
    for files in _OPEN:
        files._note(path, removed=False)


def _files_at(place: str) -> Iterator[str]:
    if os.path.isdir(place) and not os.path.islink(place):
        for folder, _, names in os.walk(place):
            yield from (os.path.join(folder, name) for name in names)
    elif os.path.lexists(place):
        yield place
