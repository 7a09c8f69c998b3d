"""Dask, imported where it is asked for only, and clusters of it that others have started.

The keys for an address with `tls://` are those of Dask's configuration; docs/clusters.md has the variables.
"""

from __future__ import annotations

from typing import Any

from multiberts.runs.errors import UserError


def import_distributed() -> Any:
    """Returns the package `distributed`."""
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise UserError(
            f"the package {error.name} is not installed; install multiberts[launch]"
        ) from error
    return distributed


def connect(address: str, setting: str) -> Any:
    """Returns a client of a scheduler.

    Args:
      address: such as `tls://10.0.0.7:8786`.
    """
    distributed = import_distributed()
    try:
        return distributed.Client(address, set_as_default=False)
    except Exception as error:  # each protocol has its own
        raise UserError(
            f"{setting} is {address!r}, which does not answer ({first_cause(error)}); check the address, "
            "and the keys in Dask's configuration"
        ) from error


def first_cause(error: BaseException) -> str:
    """Returns the message of the first cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split()) or type(error).__name__
