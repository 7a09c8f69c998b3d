"""What commands print: results, the progress of long work, and warnings."""

from __future__ import annotations

import math
import sys
import unicodedata
from typing import Any

from tqdm import tqdm

# Unicode's categories: control, format (direction marks), half a character, ends of lines and paragraphs.
_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")


class ProgressBar(tqdm):
    """A progress bar on a terminal; elsewhere a line every half minute, and none for short work.

    Takes the arguments of tqdm. Both go to standard error.
    """

    # In seconds.
    INTERVAL = 30.0

    def __init__(self, *arguments: Any, disable: bool = False, **options: Any):
        """See tqdm; `disable` shows nothing at all."""
        self._is_drawn = sys.stderr.isatty()
        if not self._is_drawn:
            # One update is enough to look at the clock, so that no thread has to.
            wait = self.INTERVAL
            options |= {"delay": wait, "mininterval": wait, "maxinterval": wait, "miniters": 1}
            options["ascii"] = True
        super().__init__(*arguments, disable=disable, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draws the bar, or prints it as a line of its own."""
        if self._is_drawn:
            super().display(msg, pos)
        else:
            progress(msg or str(self))

    def close(self) -> None:
        """Leaves the last state of a bar that is drawn; lines need no end."""
        if not self._is_drawn:
            self.delay = math.inf
        super().close()


def report(text: str = "") -> None:
    """Prints a result on standard output at once."""
    print(printable(text), flush=True)


def progress(text: str) -> None:
    """Prints what happens while a command works, one line on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Prints a warning, one line on standard error."""
    print(f"warning: {printable(text)}", file=sys.stderr, flush=True)


def error(text: str) -> None:
    """Prints what was wrong, one line on standard error."""
    print(f"error: {printable(text)}", file=sys.stderr, flush=True)


def printable(text: str) -> str:
    r"""Returns a text without characters that would steer the terminal, which are shown as escapes.

    Names of files and runs come from others: escape sequences could hide a line, direction marks could
    turn it round, and other line ends could begin a new one.

    Example:
      >>> print(printable("run\x1b[2J"))
      run\x1b[2J
    """
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in _STEERING
        else character.encode("unicode_escape").decode()
        for character in text
    )
