"""A plan of 25 seeds on Cloud TPU through weeks without quota or machines, in simulated time.

`python -m benchmarks.tpu_plan_simulation`. The decisions are those of `launch.tpu.reconcile`; the cloud is a
few lines: a quota that is granted after some days, zones that run out of machines, and nodes that are
preempted at random. All rates are assumptions, and nothing here has met the real service.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

from multiberts.launch.estimate.prices import load_prices
from multiberts.launch.markers.attempts import Attempt
from multiberts.launch.tpu.client import ACTIVE, LABEL, OUR_LABEL, Resource
from multiberts.launch.tpu.reconcile import (
    Action,
    Beat,
    Create,
    Delete,
    End,
    Finish,
    GiveUp,
    Seen,
    decide,
    reason_to_hold,
)
from multiberts.launch.tpu.settings import TpuSettings

_HOUR = 3600.0
_DAY = 24 * _HOUR


@dataclasses.dataclass(frozen=True)
class Cloud:
    """What the simulated service and its zones do.

    Attributes:
      days_without_quota: at the start, every request is refused for so long.
      days_without_machines: after that, requests wait for so long and get nothing.
      machines: how many nodes there are at a time afterwards.
      hours_to_preemption: mean of a node's life.
      hours_of_training: of a seed.
      hours_lost: with each preemption, for booting and for steps since the last state.
    """

    days_without_quota: float = 7.0
    days_without_machines: float = 7.0
    machines: int = 8
    hours_to_preemption: float = 24.0
    hours_of_training: float = 78.0
    hours_lost: float = 0.4


@dataclasses.dataclass
class _Run:
    """One seed: its attempts, its resource, and the hours that it has trained."""

    attempts: list[Attempt] = dataclasses.field(default_factory=list)
    resource: Resource | None = None
    beat: Beat | None = None
    trained: float = 0.0
    end: Finish | GiveUp | None = None


@dataclasses.dataclass
class Outcome:
    """What came of the plan.

    Attributes:
      days: until no run was left.
      done, given_up: numbers of seeds.
      node_hours: of all nodes.
      most_nodes: at a time; before any seed had trained: `most_before`.
      most_attempts: of one seed; `with_node` of them at most had a node.
      ends: how often attempts ended how.
    """

    days: float = 0.0
    done: int = 0
    given_up: int = 0
    node_hours: float = 0.0
    most_nodes: int = 0
    most_before: int = 0
    most_attempts: int = 0
    with_node: int = 0
    ends: Counter[str] = dataclasses.field(default_factory=Counter)


def simulate(settings: TpuSettings, cloud: Cloud, seeds: int = 25, seed: int = 0) -> Outcome:
    """Carries a plan out, look after look.

    Args:
      settings: of the launcher; `poll_seconds` is the time between looks.
      cloud: what happens.
      seeds: of the plan.
      seed: of the chance.
    """
    chance, runs, outcome = random.Random(seed), [_Run() for _ in range(seeds)], Outcome()
    now = 0.0
    while any(run.end is None for run in runs):
        is_proven = any(run.trained > 0 for run in runs)
        for run in runs:
            if run.end is None:
                _pass_time(run, now, settings.poll_seconds, cloud, chance, runs)
        for run in runs:
            if run.end is not None:
                continue
            done = run.trained >= cloud.hours_of_training
            resources = () if run.resource is None else (run.resource,)
            seen = Seen(now, done, resources, (), tuple(run.attempts), None, run.beat)
            action = decide(seen, settings)
            in_use = sum(other.resource is not None for other in runs)
            if isinstance(action, Create) and reason_to_hold(in_use, is_proven, settings):
                continue
            _carry_out(run, action, now, cloud)
        nodes = sum(run.resource is not None and run.resource.state == ACTIVE for run in runs)
        outcome.node_hours += nodes * settings.poll_seconds / _HOUR
        outcome.most_nodes = max(outcome.most_nodes, nodes)
        if not is_proven:
            outcome.most_before = max(outcome.most_before, nodes)
        now += settings.poll_seconds
    outcome.days = now / _DAY
    outcome.done = sum(isinstance(run.end, Finish) for run in runs)
    outcome.given_up = seeds - outcome.done
    for run in runs:
        kinds = [(one.error or {}).get("kind", one.outcome) for one in run.attempts]
        outcome.ends.update(kind or "" for kind in kinds)
        outcome.most_attempts = max(outcome.most_attempts, len(kinds))
        with_node = sum(kind not in ("Quota", "Stockout") for kind in kinds)
        outcome.with_node = max(outcome.with_node, with_node)
    return outcome


def _pass_time(
    run: _Run, now: float, seconds: float, cloud: Cloud, chance: random.Random, runs: list[_Run]
) -> None:
    """Brings a run's resource to where it is one look later."""
    found = run.resource
    if found is None:
        return
    if found.state == "DELETING":
        run.resource = None
    elif found.state == ACTIVE:
        if chance.random() < seconds / _HOUR / cloud.hours_to_preemption:
            run.resource, run.beat = dataclasses.replace(found, state="SUSPENDED"), None
            run.trained = max(0.0, run.trained - cloud.hours_lost)
        else:
            run.trained += seconds / _HOUR
            is_done = run.trained >= cloud.hours_of_training
            run.beat = Beat("done" if is_done else "training", found.created, now, now, 1)
    elif now >= (cloud.days_without_quota + cloud.days_without_machines) * _DAY:
        nodes = sum(one.resource is not None and one.resource.state == ACTIVE for one in runs)
        if nodes < cloud.machines:
            run.resource = dataclasses.replace(found, state=ACTIVE, created=now)


def _carry_out(run: _Run, action: Action, now: float, cloud: Cloud) -> None:
    match action:
        case Create(number, zone):
            run.beat = None
            opened = Attempt(
                number, "run", "tpu", "node", 0, "job", "v4-8", zone, None, now, None, None, None, None
            )  # fmt: skip
            run.attempts.append(opened)
            if now < cloud.days_without_quota * _DAY:
                _end(run, now, "failed", {"kind": "Quota", "message": "no quota"})
            else:
                run.resource = Resource(
                    "run", zone, "WAITING_FOR_RESOURCES", now, {LABEL: OUR_LABEL}
                )
        case Delete(resource, outcome, error):
            run.resource = dataclasses.replace(resource, state="DELETING")
            if outcome is not None:
                _end(run, now, outcome, error)
        case End(outcome, error):
            _end(run, now, outcome, error)
        case Finish() | GiveUp():
            run.end = action


def _end(run: _Run, now: float, outcome: str, error: dict[str, str] | None) -> None:
    run.attempts[-1] = dataclasses.replace(
        run.attempts[-1], ended=now, outcome=outcome, error=error
    )


def main() -> None:
    """Prints a line per set of zones."""
    price = load_prices().device("v4-8").dollars_per_hour(spot=True)
    print(
        "25 seeds, v4-8; a week without quota, a week without machines, 8 nodes, 24 h to preemption"
    )
    for zones in (["a"], ["a", "b", "c"]):
        settings = TpuSettings("p", zones, "v4-8", "v", "gs://b", max_nodes=8, poll_seconds=300.0)
        found = simulate(settings, Cloud())
        ends = ", ".join(f"{kind} {count}" for kind, count in found.ends.most_common())
        print(
            f"zones {', '.join(zones)}: {found.done} done, {found.given_up} given up in "
            f"{found.days:.1f} days; "
            f"{found.node_hours:.0f} node-hours (25 x {Cloud().hours_of_training:.0f} = 1950 without "
            f"preemptions), ${found.node_hours * price:,.0f} at an assumed ${price:.2f}; at most "
            f"{found.most_nodes} nodes, {found.most_before} before any had trained; up to "
            f"{found.most_attempts} attempts of a seed, {found.with_node} with a node ({ends})"
        )


if __name__ == "__main__":
    main()
