"""A command of `multiberts` that cuts text into small shards; for `test_preparation.py`."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import dask

from multiberts.pretrain.corpus import preparation, runners, shards
from multiberts.runs.command_line.command import main


def run(shard_bytes: int, arguments: list[str], num_shards: int | None = None) -> None:
    """Runs it; it writes the times of the shards that it joins to `<run_dir>.joined.json`.

    Args:
      shard_bytes: of each shard.
      arguments: of `multiberts`.
      num_shards: after so many are tokenised it kills itself; None: it goes on.
    """
    dask.config.refresh()  # a warm process has read other variables when it started
    shards.SHARD_BYTES = shard_bytes
    bar, join = runners.ProgressBar, preparation.join_token_stores

    def until_killed(futures: Sequence[Any], purpose: str, **options: Any) -> Iterator[Any]:
        for number, future in enumerate(bar(futures, purpose, **options)):
            if (purpose, number) == ("tokens", num_shards):
                os.kill(os.getpid(), signal.SIGKILL)
            yield future

    def join_and_note(run_dir: Path, stores: Sequence[Path], size: int) -> dict[str, int]:
        times = {store.name: store.stat().st_mtime_ns for store in stores}
        run_dir.with_name(f"{run_dir.name}.joined.json").write_text(json.dumps(times))
        return join(run_dir, stores, size)

    with (
        mock.patch.object(runners, "ProgressBar", until_killed),
        mock.patch.object(preparation, "join_token_stores", join_and_note),
    ):
        main(arguments)
