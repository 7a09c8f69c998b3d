"""When the whole plan ends and what it costs: from the estimates in its marker and the times of done runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from multiberts.launch.estimate.estimate import wall_seconds
from multiberts.launch.markers.attempts import Attempt
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.status.progress import seconds_of
from multiberts.runs.plan_marker import MarkedRun


@dataclass(frozen=True)
class Forecast:
    """The rest of a plan.

    Attributes:
      seconds: on devices, of all runs that are not done; None where some has no estimate.
      dollars: of the same.
      wall_seconds: until the last run ends, with as many runs at a time as run now; None where none runs.
      at_a_time: how many run now.
    """

    seconds: float | None
    dollars: float | None
    wall_seconds: float | None
    at_a_time: int


def forecast_of(
    plan: Sequence[MarkedRun],
    states: Mapping[str, str],
    attempts: Mapping[str, Sequence[Attempt]],
    known: Mapping[str, float],
    now: float,
) -> Forecast:
    """Estimates what is left of a plan.

    A run takes what the plan's marker estimated, times how much longer than estimated the done runs of its
    stage took.

    Args:
      plan: every run after its parents.
      states: by path, `launch.status.snapshot.STATES`.
      attempts: by path.
      known: seconds that running runs are known to need yet, by path.
      now: Unix seconds.
    """
    factors = _factors(plan, states, attempts, now)
    seconds, dollars, is_known = {}, 0.0, True
    for run in plan:
        if states[run.path] == "done":
            continue
        if run.estimate is None:
            is_known = False
            continue
        estimated = float(run.estimate["seconds"])
        whole = estimated * factors.get(run.stage, 1.0)
        spent = seconds_of(attempts[run.path][-1], now) if states[run.path] == "running" else 0.0
        seconds[run.path] = known.get(run.path, max(0.0, whole - spent))
        if estimated:
            dollars += float(run.estimate["dollars"]) * seconds[run.path] / estimated
    at_a_time = sum(state == "running" for state in states.values())
    ends = is_known and at_a_time and not {"failed", "blocked"} & set(states.values())
    return Forecast(
        sum(seconds.values()) if is_known else None,
        dollars if is_known else None,
        wall_seconds(_linked(plan), seconds, {"": at_a_time}, lambda _: "") if ends else None,
        at_a_time,
    )


def _factors(
    plan: Sequence[MarkedRun],
    states: Mapping[str, str],
    attempts: Mapping[str, Sequence[Attempt]],
    now: float,
) -> dict[str, float]:
    """Returns by stage how much longer than estimated its done runs took."""
    took: dict[str, float] = {}
    expected: dict[str, float] = {}
    for run in plan:
        if states[run.path] == "done" and run.estimate is not None and run.path in attempts:
            seconds = sum(seconds_of(attempt, now) for attempt in attempts[run.path])
            took[run.stage] = took.get(run.stage, 0.0) + seconds
            expected[run.stage] = expected.get(run.stage, 0.0) + float(run.estimate["seconds"])
    return {stage: took[stage] / expected[stage] for stage in took if expected[stage]}


def _linked(plan: Sequence[MarkedRun]) -> list[PlannedRun]:
    """Returns the runs with the runs before them, as estimates take them."""
    found: dict[str, PlannedRun] = {}
    for run in plan:
        parents = tuple(found[path] for path in run.parents if path in found)
        found[run.path] = PlannedRun(run.stage, run.name, {}, parents, run.identity, run.path)
    return list(found.values())
