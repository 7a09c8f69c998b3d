"""Where an experiment's things lie in a bucket, and what its resources are called."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.tpu.client import ATTEMPT, EXPERIMENT, RUN
from multiberts.launch.tpu.reconcile import Beat
from multiberts.runs.bucket.copies import push_finished
from multiberts.runs.bucket.objects import Bucket, is_url
from multiberts.runs.directory import fingerprint

# Arguments of pre-training that name directories of finished runs.
_INPUTS = ("corpus", "evaluation_corpus", "initial_checkpoint")

# Stands for the experiment's root where its runs' arguments are asked for.
_ROOT = "/the-root-of-the-experiment"


class Places:
    """One experiment in a bucket.

    Attributes:
      url: of the experiment, without a slash at the end.
      bucket: what lies there.
    """

    def __init__(self, url: str):
        """Opens no connection.

        Raises:
          UserError: no URL of a bucket.
        """
        self.bucket = Bucket(url)
        self.url = self.bucket.url
        self.experiment = hashlib.sha256(self.url.encode()).hexdigest()[:16]

    def run(self, run: PlannedRun) -> str:
        """Returns the URL of a run's directory."""
        return f"{self.url}/{run.path}"

    def beat(self, run: PlannedRun, attempt: int) -> str:
        """Returns the URL of what the node of an attempt tells of itself."""
        return f"{self.url}/{_of_attempt('beats', run, attempt)}.json"

    def log(self, run: PlannedRun, attempt: int) -> str:
        """Returns the URL of what the node of an attempt printed."""
        return f"{self.url}/{_of_attempt('logs', run, attempt)}.log"

    def read_beat(self, run: PlannedRun, attempt: int) -> Beat | None:
        """Returns what the node of an attempt last told of itself; None before it did."""
        data = self.bucket.read(f"{_of_attempt('beats', run, attempt)}.json")
        if data is not None:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return Beat.from_fields(json.loads(data))
        return None

    def read_log(self, run: PlannedRun, attempt: int) -> bytes | None:
        """Returns what the node of an attempt printed, as far as it told."""
        return self.bucket.read(f"{_of_attempt('logs', run, attempt)}.log")

    def name(self, run: PlannedRun) -> str:
        """Of the queued resource of a run, and of its node."""
        return f"mb-{self.experiment[:8]}-{run.identity[:12]}"

    def labels(self, run: PlannedRun, attempt: int) -> dict[str, str]:
        """Of the node of an attempt."""
        return {EXPERIMENT: self.experiment, RUN: run.identity[:16], ATTEMPT: str(attempt)}

    def put_source(self, packed: bytes, digest: str) -> str:
        """Puts the packed program into the bucket, if it is not there; returns its URL."""
        name = f"launch/source-{digest[:16]}.tar.gz"
        if self.bucket.read(name) != packed:
            self.bucket.write(name, packed)
        return f"{self.url}/{name}"

    def put_inputs(self, run: PlannedRun, root: Path) -> dict[str, Any]:
        """Puts what a run reads into the bucket, where it is not there.

        Returns:
          The run's arguments, with URLs for paths.

        Raises:
          UserError: an input is missing, or the bucket cannot be written.
        """
        for parent in run.parents:
            push_finished(root / parent.path, f"{self.url}/{parent.path}")
        arguments: dict[str, Any] = self._located(run.arguments(_ROOT))
        for name in _INPUTS:
            path = arguments.get(name)
            if path is not None and not is_url(path):
                url = f"{self.url}/inputs/{fingerprint(path)[:16]}"
                push_finished(Path(path), url)
                arguments[name] = url
        return arguments

    def _located(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._located(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._located(item) for item in value]
        if isinstance(value, str) and value.startswith(f"{_ROOT}/"):
            return self.url + value.removeprefix(_ROOT)
        return value


def _of_attempt(kind: str, run: PlannedRun, attempt: int) -> str:
    return f"launch/{kind}/{run.path.replace('/', '---')}/{attempt}"
