"""What commands print: results, the progress of long work, and warnings."""

from __future__ import annotations

import sys
import unicodedata


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

    Names of files and runs come from others: escape sequences could hide a line, and direction marks
    could turn it round.

    Example:
      >>> print(printable("run\x1b[2J"))
      run\x1b[2J
    """
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf")
        else character.encode("unicode_escape").decode()
        for character in text
    )
