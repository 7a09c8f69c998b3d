"""A command of `multiberts` that cuts text into small shards; for `test_preparation.py`."""

from __future__ import annotations

import dask

from multiberts.pretrain.corpus import shards
from multiberts.runs.command_line.command import main


def run(shard_bytes: int, arguments: list[str]) -> None:
    """Runs it.

    Args:
      shard_bytes: of each shard.
      arguments: of `multiberts`.
    """
    dask.config.refresh()  # a warm process has read other variables when it started
    shards.SHARD_BYTES = shard_bytes
    main(arguments)
