"""The one kind of error a user is meant to read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class UserError(Exception):
    """Bad input: one line saying what was found, where, what was expected, and the cure.

    Commands print the line on standard error and exit with status 2; nothing has been written.

    Example:
      >>> try:
      ...     raise UserError("text.txt is empty; give a file with text in it")
      ... except UserError as error:
      ...     print(f"error: {error}")
      error: text.txt is empty; give a file with text in it
    """

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))


def check_values(function: str, rows: Iterable[tuple[str, Any, bool, str]]) -> None:
    """Refuses the first parameter of a command whose value cannot be used.

    Args:
      function: name of the command's function, as in Gin.
      rows: of each parameter its name, its value, whether that is valid, and what is expected.

    Raises:
      UserError: naming the parameter, its value and what is expected.

    Example:
      >>> try:
      ...     check_values("prepare", [("dupe_factor", 0, False, "at least 1, or None")])
      ... except UserError as error:
      ...     print(error)
      prepare.dupe_factor is 0, expected at least 1, or None; change it
    """
    for name, value, is_valid, expected in rows:
        if not is_valid:
            raise UserError(f"{function}.{name} is {value!r}, expected {expected}; change it")
