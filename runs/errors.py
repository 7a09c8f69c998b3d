"""The one kind of error a user is meant to read."""

from __future__ import annotations


class UserError(Exception):
    """Bad input: one line saying what was found, where, what was expected, and the cure.

    Commands print the line on standard error and exit with status 2; nothing has been written.
    """

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))
