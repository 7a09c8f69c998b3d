"""What commands print: results, the progress of long work, and warnings."""

from __future__ import annotations

import sys


def report(text: str = "") -> None:
    """Prints a result on standard output at once."""
    print(text, flush=True)


def progress(text: str) -> None:
    """Prints what happens while a command works, one line on standard error."""
    print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Prints a warning, one line on standard error."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def error(text: str) -> None:
    """Prints what was wrong, one line on standard error."""
    print(f"error: {text}", file=sys.stderr, flush=True)
