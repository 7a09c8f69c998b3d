"""Arms that several comparisons share: each is read, clustered and bootstrapped once."""

from __future__ import annotations

from typing import Any

import numpy as np

from multiberts.evaluate.readers.rows import ArmTable
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.metrics import MetricLike
from multiberts.stats.reading import arm_of, table_of
from multiberts.stats.runs_table import Arm, clustered
from multiberts.stats.settings import Missing


class SharedArms:
    """Remembers what was made of each arm; one comparison alone has one of its own.

    Everything is known by the identity of the data, which it keeps alive for that.
    """

    def __init__(self) -> None:
        self._known: dict[tuple, tuple[Any, Any]] = {}

    def _once(self, key: tuple, kept: Any, make: Any) -> Any:
        if key not in self._known:
            self._known[key] = make(), kept
        return self._known[key][0]

    def table(self, name: str, data: Any, metric: MetricLike | None) -> ArmTable:
        """Returns the table of runs by examples; see `stats.reading.table_of`."""
        table: ArmTable = self._once(
            ("table", id(data), metric), data, lambda: table_of(name, data, metric)
        )
        return table

    def read(self, name: str, data: Any, labels: Any, metric: MetricLike, missing: Missing) -> Arm:
        """Returns the arm of the data; see `stats.reading.arm_of`."""
        table = self.table(name, data, metric)
        found: Arm = self._once(
            ("read", id(table), id(labels), metric, missing),
            (table, labels),
            lambda: arm_of(name, table, labels, metric=metric, missing=missing),
        )
        return found

    def clustered(self, arm: Arm, values: Any, name: str, called: str) -> Arm:
        """Returns the arm with its examples in clusters; see `stats.runs_table.clustered`."""
        # Clusters of different names may be the same groups of examples.
        key = tuple(np.asarray(values).tolist())
        found: Arm = self._once(
            ("clustered", id(arm), key, called), arm, lambda: clustered(arm, values, name, called)
        )
        return found

    def job(
        self,
        arm: Arm,
        metric: MetricLike,
        pool: str | None,
        examples: str | None,
    ) -> ScoreJob:
        """Returns the bootstrap of an arm's score, which remembers its replicates."""
        found: ScoreJob = self._once(
            ("job", id(arm), metric, pool, examples),
            arm,
            lambda: ScoreJob(arm, metric, pool, examples),
        )
        return found
