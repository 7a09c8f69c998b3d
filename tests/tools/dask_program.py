"""A scheduler or a worker of Dask in a warm process; for `dask_cluster.DaskCluster`."""

from __future__ import annotations

import importlib

import dask


def run(program: str, arguments: list[str]) -> None:
    """Runs `dask scheduler` or `dask worker`.

    Args:
      program: which of them.
      arguments: of its command line.
    """
    dask.config.refresh()  # the process has read other variables when it started
    importlib.import_module(f"distributed.cli.dask_{program}").main(arguments)
