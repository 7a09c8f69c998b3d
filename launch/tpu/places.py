"""Where the files of an experiment lie in a bucket, and what its resources are called."""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

from multiberts.launch.plan.planned_run import PlannedRun, with_leaves
from multiberts.launch.tpu.client import ATTEMPT, EXPERIMENT, RUN
from multiberts.launch.tpu.reconcile import Beat
from multiberts.runs.bucket.copies import push_finished
from multiberts.runs.bucket.objects import Bucket, is_url
from multiberts.runs.directory import fingerprint

# Arguments of pre-training that name directories of finished runs.
_INPUTS = ("corpus", "evaluation_corpus", "initial_checkpoint")

# The object with a random number, made once, and the one that each look of a launcher changes.
_SALT = "launch/salt"
LOOK = "launch/look"
# Stands for the experiment's root where its runs' arguments are asked for.
_ROOT = "/the-root-of-the-experiment"


class Places:
    """One experiment in a bucket.

    Attributes:
      url: of the experiment, without a slash at the end.
      experiment: a hash of the URL, for labels.
    """

    def __init__(self, url: str):
        """Opens no connection."""
        self.bucket = Bucket(url)
        self.url = self.bucket.url
        self.experiment = hashlib.sha256(self.url.encode()).hexdigest()[:16]

    def run(self, run: PlannedRun) -> str:
        return f"{self.url}/{run.path}"

    def beat(self, run: PlannedRun, attempt: int) -> str:
        """Returns the name of the object with an attempt's last heartbeat."""
        return f"launch/beats/{run.path.replace('/', '---')}/{attempt}.json"

    def log(self, run: PlannedRun, attempt: int) -> str:
        """Returns the name of the object with what an attempt's node printed."""
        return f"launch/logs/{run.path.replace('/', '---')}/{attempt}.log"

    def read_beat(self, run: PlannedRun, attempt: int) -> Beat | None:
        """Returns the last heartbeat of an attempt's node; None before the first."""
        data = self.bucket.read(self.beat(run, attempt))
        if data is not None:
            with contextlib.suppress(ValueError, TypeError):
                return Beat(**json.loads(data))
        return None

    def name(self, run: PlannedRun) -> str:
        """Returns the name of a run's queued resource, and of its node."""
        return f"mb-{self.experiment[:8]}-{run.identity[:12]}"

    def labels(self, run: PlannedRun, attempt: int) -> dict[str, str]:
        return {EXPERIMENT: self.experiment, RUN: run.identity[:16], ATTEMPT: str(attempt)}

    def salt(self) -> str:
        """Returns a key that separates this experiment's requests from an earlier one's at the same URL."""
        self.bucket.write_if(_SALT, uuid.uuid4().hex.encode(), None)  # unless it is there
        found = self.bucket.read(_SALT)
        assert found is not None
        return found.decode()

    def put_source(self, packed: bytes) -> tuple[str, str]:
        """Puts the packed program into the bucket, if it is not there.

        Returns:
          Its URL, and its SHA-256 in hexadecimal.
        """
        digest = hashlib.sha256(packed).hexdigest()
        name = f"launch/source-{digest[:16]}.tar.gz"
        if self.bucket.read(name) != packed:
            self.bucket.write(name, packed)
        return f"{self.url}/{name}", digest

    def put_inputs(self, run: PlannedRun, root: Path) -> dict[str, Any]:
        """Puts the inputs of a run into the bucket, where they are not there.

        Returns:
          The run's arguments, with URLs for paths.
        """
        for parent in run.parents:
            push_finished(root / parent.path, f"{self.url}/{parent.path}")
        arguments: dict[str, Any] = with_leaves(run.arguments(_ROOT), self._located)
        for name in _INPUTS:
            path = arguments.get(name)
            if path is not None and not is_url(path):
                url = f"{self.url}/inputs/{fingerprint(path)[:16]}"
                push_finished(Path(path), url)
                arguments[name] = url
        return arguments

    def _located(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith(f"{_ROOT}/"):
            return self.url + value.removeprefix(_ROOT)
        return value
