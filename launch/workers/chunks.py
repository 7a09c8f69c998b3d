"""The queue of runs: which can start, and which of them one worker carries out together.

A chunk is all fine-tuning of one pre-training seed on one task, because its runs share tokenised examples
and compiled steps, which a worker caches. Every other run is a chunk by itself. Early stages come first,
and within a stage the longest chunk, so that no long one remains at the end; for the same reason chunks
shrink towards the end.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from multiberts.launch.plan.planned_run import STAGES, PlannedRun

_RANKS = {stage: rank for rank, stage in enumerate(STAGES)}
# Rank of a stage from outside the project.
_FIRST = -1

Key = tuple[Any, ...]


@dataclass(frozen=True)
class RunChunk:
    """Runs that one worker carries out one after the other."""

    name: str
    runs: tuple[PlannedRun, ...]


class WaitingRuns:
    """The runs of a plan that are waiting to be carried out."""

    def __init__(
        self,
        plan: Sequence[PlannedRun],
        done: Iterable[str],
        seconds: Mapping[str, float] | None = None,
    ):
        """Sorts a plan's runs into those that can start and those that cannot yet.

        Args:
          plan: every run after its parents.
          seconds: expected seconds of runs by path; other runs count by their number of steps, or as 1.
        """
        done = set(done)
        self._order = {run.path: number for number, run in enumerate(plan)}
        self._seconds = seconds or {}
        self._missing: dict[str, set[str]] = {}
        self._children: dict[str, list[PlannedRun]] = {}
        self._given_up: set[str] = set()
        # Runs that can start, by group. The heap orders the groups; only a group's newest entry counts.
        self._groups: dict[Key, list[PlannedRun]] = {}
        self._heap: list[tuple[int, float, int, Key, int]] = []
        self._num_ready = 0
        for run in plan:
            if run.path in done:
                continue
            missing = {parent.path for parent in run.parents if parent.path not in done}
            self._missing[run.path] = missing
            for parent in missing:
                self._children.setdefault(parent, []).append(run)
        self.add(run for run in plan if self._missing.get(run.path) == set())

    def take(self, workers: int) -> RunChunk | None:
        """Removes and returns the next chunk; None if nothing can start now.

        Args:
          workers: number of all workers. At first a chunk is a whole group, towards the end a part of one, so
            that each worker gets a share.
        """
        while self._heap:
            *_, key, size = heapq.heappop(self._heap)
            group = self._groups.get(key, [])
            if len(group) != size:
                continue  # an older entry of this group
            share = max(1, math.ceil(self._num_ready / workers))
            taken, left = group[:share], group[share:]
            del self._groups[key]
            self._num_ready -= len(group)
            self.add(left)
            return RunChunk(_name(taken), tuple(taken))
        return None

    def add(self, runs: Iterable[PlannedRun]) -> None:
        """Adds runs that can start, for the first time or for another attempt."""
        grown: dict[Key, None] = {}
        for run in runs:
            key = _key(run)
            self._groups.setdefault(key, []).append(run)
            self._num_ready += 1
            grown[key] = None
        for key in grown:
            group = self._groups[key]
            group.sort(key=lambda run: self._order[run.path])
            first = group[0]
            seconds = sum(
                self._seconds.get(run.path, run.parameters.get("num_steps") or 1.0) for run in group
            )
            place = (_RANKS.get(first.stage, _FIRST), -seconds, self._order[first.path])
            heapq.heappush(self._heap, (*place, key, len(group)))

    def note_done(self, run: PlannedRun) -> None:
        """Adds the runs that waited only for this one."""
        children = self._children.pop(run.path, [])
        for child in children:
            self._missing[child.path].discard(run.path)
        self.add(child for child in children if not self._missing[child.path])

    def give_up_after(self, run: PlannedRun) -> list[PlannedRun]:
        """Removes the descendants of a failed run; returns those that were not removed before."""
        given_up = []
        failed = [run]
        while failed:
            for child in self._children.pop(failed.pop().path, []):
                if child.path not in self._given_up:
                    self._given_up.add(child.path)
                    given_up.append(child)
                    failed.append(child)
        return sorted(given_up, key=lambda child: self._order[child.path])


def _key(run: PlannedRun) -> Key:
    """Grouping key: runs with equal keys share data and compiled steps."""
    if run.stage != "finetune":
        return (run.path,)
    return "finetune", str(run.parameters["task"]), _start(run)


def _start(run: PlannedRun) -> str:
    facts = run.facts
    if facts.get("pretrain_seed") is None:
        return str(run.parameters["checkpoint"])
    return f"{facts['procedure']} seed {facts['pretrain_seed']}"


def _name(runs: Sequence[PlannedRun]) -> str:
    if len(runs) == 1:
        return runs[0].name
    return f"finetune {runs[0].parameters['task']} {_start(runs[0])} ({len(runs)} runs)"
