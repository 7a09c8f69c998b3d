"""Errors for bad data; all other modules of `stats` may import this one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

from multiberts.runs.errors import UserError, in_keywords, nearest


class DataError(UserError, ValueError):
    """Raised for data that cannot be compared: a `ValueError` in Python, a one-line message in commands."""


class UnknownKeyword(DataError, TypeError):
    """Raised for an unknown keyword; a `TypeError`, as in Python."""


class UndefinedScore(DataError):
    """Raised for an arm without a score, such as 0/0 in every run."""


@contextmanager
def as_data_errors(where: str = "", which: str = "") -> Iterator[None]:
    """Raises errors about bad input as `DataError`, prefixed with `where` and with keywords instead of flags.

    Args:
      which: function with these keywords; see `in_keywords`.
    """
    try:
        yield
    except (UserError, ValueError) as error:
        line = str(error) if isinstance(error, DataError) else in_keywords(str(error), which)
        kind = UndefinedScore if isinstance(error, UndefinedScore) else DataError
        raise kind(f"{where}: {line}" if where else line) from error


def check_choice(name: str, value: object, choices: Any) -> None:
    """Refuses a value that is not in a `Literal`."""
    if value not in get_args(choices):
        raise DataError(f"found {name} {value!r}, expected one of {', '.join(get_args(choices))}")


def check_keywords(function: str, keywords: Iterable[str], parameters: Sequence[str]) -> None:
    for name in keywords:
        if name not in parameters:
            raise UnknownKeyword(f"{function} has no keyword {name}; {nearest(name, parameters)}")
