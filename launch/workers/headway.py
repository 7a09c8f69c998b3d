"""Says how far a launch has come: a bar on terminals, elsewhere a line for each bundle that ends."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from multiberts.launch.workers.bundles import Bundle

_BYTES_OF_TAIL = 64 * 1024


class Headway:
    """How far a launch has come, for people, while the block runs."""

    def __init__(self, root: Path, total: int, done: int):
        """Shows nothing yet.

        Args:
          root: the experiment's root.
          total: runs of the plan.
          done: those that were done before.
        """
        from tqdm import tqdm

        self._root = root
        self._total = total
        self._bar = tqdm(total=total, initial=done, unit="run", disable=None)

    def __enter__(self) -> Headway:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.set_postfix_str("", refresh=False)
        self._bar.close()

    def tell(self, bundle: Bundle, seconds: float, done: int) -> None:
        """Says that a bundle has ended, where there is no bar.

        Args:
          bundle: which.
          seconds: how long it took.
          done: how many runs are done now.
        """
        if self._bar.disable:
            print(f"[{done}/{self._total}] {bundle.name}: {seconds:.0f} s", flush=True)

    def show(self, running: Sequence[Bundle], done: Collection[str]) -> None:
        """Shows what is being carried out.

        Args:
          running: the bundles.
          done: paths of the runs known to be done.
        """
        if self._bar.disable:
            return
        within = (run for bundle in running for run in bundle.runs if run.path not in done)
        self._bar.n = len(done) + sum(run.done(self._root) for run in within)
        self._bar.set_postfix_str(" | ".join(map(self._in_words, running)))

    def _in_words(self, bundle: Bundle) -> str:
        """A bundle in a few words, with the step that a pre-training has reached."""
        run = bundle.runs[0]
        if run.stage != "pretrain":
            return bundle.name
        entry = _last_entry(self._root / run.path / "metrics.jsonl")
        if entry is None:
            return bundle.name
        return f"{bundle.name} {entry['step']}/{run.parameters['num_steps']}"


def _last_entry(path: Path) -> dict[str, Any] | None:
    """The last whole line of a metrics file that is being written."""
    try:
        with open(path, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _BYTES_OF_TAIL))
            lines = stream.read().splitlines()
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and "step" in entry:
                return entry
    return None
