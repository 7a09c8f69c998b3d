"""Output of commands: results, the progress of long work, and warnings."""

from __future__ import annotations

import errno
import functools
import math
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from tqdm import tqdm

# Unicode's categories: control, format (direction marks), half a character, ends of lines and paragraphs.
_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")

# Amount of output: quiet leaves progress out, verbose adds details.
_QUIET, _NORMAL, _VERBOSE = -1, 0, 1
_FLAGS = {"-q": _QUIET, "--quiet": _QUIET, "-v": _VERBOSE, "--verbose": _VERBOSE}
_verbosity = _NORMAL


def take_verbosity(arguments: Sequence[str]) -> list[str]:
    """Sets the verbosity from `-q` or `-v` and returns the other arguments."""
    global _verbosity  # of the process, like its standard error
    _verbosity = [_NORMAL, *(_FLAGS[text] for text in arguments if text in _FLAGS)][-1]
    return [text for text in arguments if text not in _FLAGS]


def is_verbose() -> bool:
    return _verbosity == _VERBOSE


class ProgressBar(tqdm):
    """A progress bar on a terminal; elsewhere a line every half minute, and none for short work."""

    INTERVAL = 30.0  # seconds

    def __init__(self, *arguments: Any, disable: bool = False, **options: Any):
        self._is_drawn = sys.stderr.isatty()
        if not self._is_drawn:
            # Check the clock at every update, so that no thread is needed.
            options |= dict.fromkeys(("delay", "mininterval", "maxinterval"), self.INTERVAL)
            options |= {"miniters": 1, "ascii": True}
        super().__init__(*arguments, disable=disable or _verbosity == _QUIET, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draws the bar, or prints it as a line."""
        if self._is_drawn:
            super().display(msg, pos)
        else:
            progress(msg or str(self))

    def close(self) -> None:
        """Finishes a drawn bar; printed lines need no end."""
        if not self._is_drawn:
            self.delay = math.inf
        super().close()


def report(text: str = "") -> None:
    _print(text, sys.stdout)


def progress(text: str) -> None:
    """Prints the progress of a command, one line on standard error; nothing with `-q`."""
    if _verbosity != _QUIET:
        _print(text, sys.stderr)


@functools.cache
def note_once(text: str) -> None:
    """Prints a note as `progress` does, once per process."""
    progress(f"note: {text}")


def detail(text: str) -> None:
    """Prints a detail of a run, one line on standard error; only with `-v`."""
    if is_verbose():
        _print(text, sys.stderr)


def warn(text: str) -> None:
    _print(f"warning: {text}", sys.stderr)


def error(text: str) -> None:
    _print(f"error: {text}", sys.stderr)


def _print(text: str, stream: TextIO) -> None:
    try:
        print(printable(text), file=stream, flush=True)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        # The terminal has hung up. The run must still save and exit as usual, but text that cannot be
        # flushed would change the exit status to 120.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


def joined(lines: Iterable[str]) -> str:
    """Joins lines after escaping line ends within them: one in a run's name could fake a result line."""
    return "\n".join(printable(line, kept="") for line in lines)


def printable(text: str, kept: str = "\n\t") -> str:
    """Escapes control characters, except `kept`, in a text for the terminal; for a name use `kept=""`.

    Names of files and runs come from other people: escape sequences could hide a line, direction marks
    could reverse it, and unusual line ends could start a new one.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character in kept or unicodedata.category(character) not in _STEERING
        else character.encode("unicode_escape").decode()
        for character in text
    )
