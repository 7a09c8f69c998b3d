"""How long a plan takes from its first run to its last, with so many workers of each kind."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

from multiberts.launch.plan.planned_run import PlannedRun


def wall_seconds(
    plan: Sequence[PlannedRun],
    seconds: Mapping[str, float],
    workers: Mapping[str, int],
    pool_of: Callable[[PlannedRun], str],
) -> float:
    """Plays the plan through: whoever is free takes the next run whose parents are done.

    Args:
      plan: every run after its parents.
      seconds: of each run by its path; those not named are done already.
      workers: by pool, how many runs go on side by side.
      pool_of: the pool whose workers carry out a run.

    Returns:
      When the last run is done, in seconds from now.
    """
    left = [run for run in plan if run.path in seconds]
    pools = [pool_of(run) for run in left]
    number_of = {run.path: number for number, run in enumerate(left)}
    missing = [0] * len(left)
    children: list[list[int]] = [[] for _ in left]
    ready: dict[str, list[int]] = {pool: [] for pool in workers}
    for number, run in enumerate(left):
        parents = [number_of[parent.path] for parent in run.parents if parent.path in number_of]
        missing[number] = len(parents)
        for parent in parents:
            children[parent].append(number)
        if not parents:
            heapq.heappush(ready[pools[number]], number)
    free = dict(workers)
    running: list[tuple[float, int]] = []
    now = 0.0
    while True:
        for pool, numbers in ready.items():
            while numbers and free[pool]:
                number = heapq.heappop(numbers)
                free[pool] -= 1
                heapq.heappush(running, (now + seconds[left[number].path], number))
        if not running:
            return now
        now, number = heapq.heappop(running)
        free[pools[number]] += 1
        for child in children[number]:
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(ready[pools[child]], child)


def critical_seconds(plan: Sequence[PlannedRun], seconds: Mapping[str, float]) -> float:
    """Returns the longest chain of runs, each waiting for the one before: how long it takes at the
    least.

    Args:
      plan: as in `wall_seconds`.
      seconds: likewise.
    """
    ends: dict[str, float] = {}
    for run in plan:
        # Parents that are not in the plan are none of its time.
        before = max((ends.get(parent.path, 0.0) for parent in run.parents), default=0.0)
        ends[run.path] = before + seconds.get(run.path, 0.0)
    return max(ends.values(), default=0.0)
