"""A cache of arms, so that each arm of several comparisons is read, clustered and bootstrapped once."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from multiberts.evaluate.readers.rows import ArmTable
from multiberts.stats.bootstrap.replicates import ScoreJob
from multiberts.stats.metrics import MetricLike
from multiberts.stats.reading import arm_of, labelled, labels_of, runs_or_examples, table_of
from multiberts.stats.runs_table import Arm, clustered
from multiberts.stats.settings import Missing

_Cached = TypeVar("_Cached")


class SharedArms:
    """Caches the tables and jobs of each arm.

    Keys are the ids of the data; the cache holds references, so that ids are not reused.

    Args:
      copies: whether arrays are copied, because their owner may change them before a number is asked for.
    """

    def __init__(self, copies: bool = False) -> None:
        self._cache: dict[tuple, tuple[Any, Any]] = {}
        self._copies = copies

    def _once(self, key: tuple, source: Any, make: Callable[[], _Cached]) -> _Cached:
        if key not in self._cache:
            self._cache[key] = make(), source
        return cast("_Cached", self._cache[key][0])

    def table(
        self, name: str, data: Any, metric: MetricLike | None, labels: Any = None, drawn: Any = None
    ) -> ArmTable:
        """Returns the table of runs by examples, of these labels; `drawn` are the resampled units."""
        key: tuple = ("table", id(data), metric)
        table = self._once(key, data, lambda: table_of(name, data, metric))
        if labels is None:
            return runs_or_examples(name, table, metric, drawn)
        by_id = self._once(("labels", id(labels)), labels, lambda: labels_of(labels))
        key = "labelled", id(table), id(by_id), metric is not None
        return self._once(
            key, (table, by_id), lambda: labelled(name, table, by_id, has_metric=metric is not None)
        )

    def read(self, name: str, data: Any, metric: MetricLike, missing: Missing) -> Arm:
        """Returns the arm of the data; see `stats.reading.arm_of`."""
        table = self.table(name, data, metric)
        key = "read", id(table), metric, missing

        def make() -> Arm:
            arm = arm_of(name, table, metric=metric, missing=missing)
            if not self._copies or isinstance(data, str | os.PathLike):
                return arm
            return replace(arm, predictions=arm.predictions.copy(), labels=arm.labels.copy())

        return self._once(key, table, make)

    def clustered(self, arm: Arm, values: Any, name: str, called: str) -> Arm:
        """Returns the arm with its examples in clusters; see `stats.runs_table.clustered`."""
        # The key is the content, because clusters of different names can be the same groups of examples.
        key = "clustered", id(arm), tuple(np.asarray(values).tolist()), called
        return self._once(key, arm, lambda: clustered(arm, values, name, called))

    def job(self, arm: Arm, metric: MetricLike, pool: str | None, examples: str | None) -> ScoreJob:
        """Returns the bootstrap job of an arm's score, which caches its replicates."""
        key = "job", id(arm), metric, pool, examples
        return self._once(key, arm, lambda: ScoreJob(arm, metric, pool, examples))
