"""A plan of 25 seeds on Cloud TPU through five weeks and all that users report, in simulated time.

`make simulate-tpu`. The decisions are those of `launch.tpu.reconcile`, the refusals those of the rehearsal's
service. The cloud is a few lines: a week without quota, a week without machines, zones whose spot nodes
live for a day or for half an hour, requests that end with every code, nodes whose making refuses deletion and
takes an hour, deletions that take a while, a quota of addresses, and maintenance. All rates are assumptions,
and nothing here has met the real service.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Mapping

from multiberts.launch.estimate.prices import load_prices
from multiberts.launch.markers.attempts import Attempt
from multiberts.launch.tpu.client import LABEL, OUR_LABEL, Node, Resource, kind_of
from multiberts.launch.tpu.reconcile import (
    Action,
    Beat,
    Create,
    Delete,
    End,
    Finish,
    GiveUp,
    Observation,
    after_refusal,
    decide,
    reason_to_hold,
)
from multiberts.launch.tpu.settings import TpuSettings
from multiberts.tests.launch.tpu.rehearsal.service import (
    INTERNAL,
    NO_QUOTA,
    PRECONDITION,
    STOCK_OUTS,
    Answer,
)

_HOUR = 3600.0
_DAY = 24 * _HOUR
_ADDRESSES = Answer(8, "Quota 'IN_USE_ADDRESSES' exceeded. Limit: 3.0 in region {zone}")
_SILENCE = Answer(14, "the service is unavailable", "call")


@dataclasses.dataclass(frozen=True)
class Cloud:
    """What the simulated service and its zones do.

    Attributes:
      hours_of_life: mean of a node's life, by zone; each zone is in a region of its own.
      hours_of_training: of a seed.
      days_without_quota: at the start, every request is refused for so long.
      days_without_machines: after that, every request ends in one of the stock-outs.
      nodes_per_zone: by the quota of external addresses.
      share_refused: of later requests, which end with one of all answers.
      hours_to_boot: of a node, before it trains.
      hours_between_states: what a preemption loses at most.
      share_maintained: of a node's looks at which maintenance of two hours begins.
    """

    hours_of_life: Mapping[str, float]
    hours_of_training: float
    days_without_quota: float = 7.0
    days_without_machines: float = 7.0
    nodes_per_zone: int = 3
    share_refused: float = 0.3
    hours_to_boot: float = 0.15
    hours_between_states: float = 1 / 6
    share_maintained: float = 1e-4


@dataclasses.dataclass
class _Run:
    """One seed: its attempts, its resource, and the hours that it has trained and that are saved."""

    attempts: list[Attempt] = dataclasses.field(default_factory=list)
    resource: Resource | None = None
    node: Node | None = None
    beat: Beat | None = None
    answer: Answer | None = None
    until: float = 0.0
    trained: float = 0.0
    saved: float = 0.0
    end: Finish | GiveUp | None = None


@dataclasses.dataclass
class Outcome:
    """The end of the plan.

    Attributes:
      days: until no run was left.
      done, given_up: numbers of seeds.
      node_hours: of all nodes that were ready.
      most_nodes: at a time; before any seed had trained: `most_before`.
      most_attempts: of one seed; `with_node` of them at most had a node.
      ends: how often attempts ended how.
      refused_deletions: how many.
    """

    days: float = 0.0
    done: int = 0
    given_up: int = 0
    node_hours: float = 0.0
    most_nodes: int = 0
    most_before: int = 0
    most_attempts: int = 0
    with_node: int = 0
    refused_deletions: int = 0
    ends: Counter[str] = dataclasses.field(default_factory=Counter)


def simulate(settings: TpuSettings, cloud: Cloud, seeds: int = 25, seed: int = 0) -> Outcome:
    """Carries a plan out, look after look.

    Args:
      settings: of the launcher; `poll_seconds` is the time between looks.
      cloud: what happens.
      seeds: of the plan.
      seed: of the chance.
    """
    return _Simulation(settings, cloud, seeds, seed).carry_out()


class _Simulation:
    def __init__(self, settings: TpuSettings, cloud: Cloud, seeds: int, seed: int):
        self._settings = settings
        self._cloud = cloud
        self._chance = random.Random(seed)
        self._runs = [_Run() for _ in range(seeds)]
        self._outcome = Outcome()
        self._now = 0.0

    def carry_out(self) -> Outcome:
        """Looks until no run is left."""
        runs, outcome, seconds = self._runs, self._outcome, self._settings.poll_seconds
        while any(run.end is None for run in runs):
            is_proven = any(run.trained > 0 for run in runs)
            for run in runs:
                self._pass_time(run)
            for run in runs:
                if run.end is None:
                    self._look(run, is_proven)
            nodes = sum(run.node is not None for run in runs)
            outcome.node_hours += nodes * seconds / _HOUR
            outcome.most_nodes = max(outcome.most_nodes, nodes)
            if not is_proven:
                outcome.most_before = max(outcome.most_before, nodes)
            self._now += seconds
        outcome.days = self._now / _DAY
        outcome.done = sum(isinstance(run.end, Finish) for run in runs)
        outcome.given_up = len(runs) - outcome.done
        for run in runs:
            kinds = [(one.error or {}).get("kind", one.outcome or "") for one in run.attempts]
            outcome.ends.update(kinds)
            outcome.most_attempts = max(outcome.most_attempts, len(kinds))
            with_node = sum(one.dollars_per_hour is not None for one in run.attempts)
            outcome.with_node = max(outcome.with_node, with_node)
        return outcome

    def _pass_time(self, run: _Run) -> None:
        """Brings a run's resource to where it is one look later."""
        found = run.resource
        if found is None or self._now < run.until:
            return
        if found.is_deleting:
            run.resource = None
        elif found.is_suspending:
            self._set_state(run, "SUSPENDED")
        elif found.is_waiting:
            if run.answer is not None:
                self._fail(run, run.answer)
            else:
                # Making a node takes up to an hour, in which nobody can delete it.
                self._set_state(run, "PROVISIONING", self._chance.random() * _HOUR)
        elif found.is_provisioning:
            zone = found.zone
            taken = sum(
                one.node is not None and one.resource is not None and one.resource.zone == zone
                for one in self._runs
            )
            if taken >= self._cloud.nodes_per_zone:
                self._fail(run, _ADDRESSES)
            else:
                self._set_state(run, "ACTIVE")
                run.node = Node("READY", "HEALTHY", self._now)
                run.attempts[-1] = dataclasses.replace(run.attempts[-1], dollars_per_hour=1.0)
        elif found.is_active and run.node is not None:
            self._train(run, run.node, found.zone)

    def _train(self, run: _Run, node: Node, zone: str) -> None:
        cloud, hours = self._cloud, self._settings.poll_seconds / _HOUR
        chance = self._chance.random()
        if chance < hours / cloud.hours_of_life[zone]:
            self._set_state(run, "SUSPENDING")
            run.node, run.trained = None, run.saved
        elif chance > 1 - cloud.share_maintained:
            # Two hours without a heartbeat.
            run.node = dataclasses.replace(node, health="UNHEALTHY_MAINTENANCE")
            run.until, run.trained = self._now + 2 * _HOUR, run.saved
        elif self._now - node.created > cloud.hours_to_boot * _HOUR:
            run.node = dataclasses.replace(node, health="HEALTHY")
            run.trained += hours
            if run.trained - run.saved >= cloud.hours_between_states:
                run.saved = run.trained
            is_done = run.trained >= cloud.hours_of_training
            run.beat = Beat(
                "done" if is_done else "training", node.created, self._now, self._now, 1
            )

    def _set_state(self, run: _Run, state: str, seconds: float = 0.0) -> None:
        assert run.resource is not None
        run.resource = dataclasses.replace(run.resource, state=state)
        run.until = self._now + seconds

    def _fail(self, run: _Run, answer: Answer) -> None:
        assert run.resource is not None
        self._set_state(run, "FAILED")
        message = answer.message.format(zone=run.resource.zone)
        run.resource = dataclasses.replace(run.resource, code=answer.code, message=message)

    def _look(self, run: _Run, is_proven: bool) -> None:
        done = run.trained >= self._cloud.hours_of_training
        resources = () if run.resource is None else (run.resource,)
        seen = Observation(self._now, done, resources, (), tuple(run.attempts), run.node, run.beat)
        action = decide(seen, self._settings)
        in_use = sum(other.resource is not None for other in self._runs)
        is_held = reason_to_hold(in_use, is_proven, self._settings) is not None
        if not (isinstance(action, Create) and is_held):
            self._carry_out(run, action)

    def _carry_out(self, run: _Run, action: Action) -> None:
        match action:
            case Create(number, zone):
                if not run.attempts or run.attempts[-1].attempt != number:
                    run.beat = None
                    run.attempts.append(
                        Attempt(
                            number, "run", "tpu", "node", 0, None, "v4-8", zone, None, self._now,
                            None, None, None, None,
                        )
                    )  # fmt: skip
                self._ask(run, zone)
            case Delete(resource, outcome, error):
                if resource.is_provisioning or resource.is_suspending:
                    self._outcome.refused_deletions += 1
                    return
                # Deleting takes up to ten minutes.
                self._set_state(run, "DELETING", self._chance.random() * _HOUR / 6)
                run.node = None
                if outcome is not None:
                    self._end(run, outcome, error)
            case End(outcome, error):
                self._end(run, outcome, error)
            case Finish() | GiveUp():
                run.end = action

    def _ask(self, run: _Run, zone: str) -> None:
        cloud, days = self._cloud, self._now / _DAY
        answer = None
        if days < cloud.days_without_quota:
            answer = NO_QUOTA
        elif days < cloud.days_without_quota + cloud.days_without_machines:
            answer = self._chance.choice(STOCK_OUTS)
        elif self._chance.random() < cloud.share_refused:
            answer = self._chance.choice((*STOCK_OUTS, INTERNAL, PRECONDITION, _SILENCE))
        if answer is not None and answer.where != "resource":
            message = answer.message.format(zone=zone)
            kind = kind_of(answer.code, message)
            noted, has_ended = after_refusal(run.attempts[-1], kind, message)
            run.attempts[-1] = dataclasses.replace(run.attempts[-1], error=noted)
            if has_ended:
                self._end(run, "failed", noted)
            return
        run.answer = answer
        run.resource = Resource("run", zone, "WAITING_FOR_RESOURCES", self._now, {LABEL: OUR_LABEL})
        run.until = self._now
        run.attempts[-1] = dataclasses.replace(run.attempts[-1], job="job", error=None)

    def _end(self, run: _Run, outcome: str, error: dict[str, str] | None) -> None:
        run.attempts[-1] = dataclasses.replace(
            run.attempts[-1], ended=self._now, outcome=outcome, error=error
        )


class FewLooks(TpuSettings):
    """A look every ten minutes, which is a line in cron."""

    poll_seconds = 600.0


def main() -> None:
    """Prints a line per cloud."""
    device = load_prices().device("v5litepod-4")
    price, hours = device.dollars_per_hour(spot=True), 115.0
    print(
        "25 seeds, v5litepod-4; a week without quota, a week of stock-outs, then 3 nodes in each of 3 zones"
    )
    for lives in ((24.0, 24.0, 24.0), (24.0, 24.0, 0.5)):
        zones = dict(zip("abc", lives, strict=True))
        settings = FewLooks("p", list(zones), "v5litepod-4", "gs://b", max_nodes=9)
        found = simulate(settings, Cloud(zones, hours))
        ends = ", ".join(f"{kind} {count}" for kind, count in found.ends.most_common())
        print(
            f"nodes that live {lives} hours: {found.done} done, {found.given_up} given up in "
            f"{found.days:.1f} days; {found.node_hours:,.0f} node-hours ({25 * hours:,.0f} without "
            f"preemptions), ${found.node_hours * price:,.0f} at ${price:.2f}; at most "
            f"{found.most_nodes} nodes, {found.most_before} before any had trained; up to "
            f"{found.most_attempts} attempts of a seed, {found.with_node} with a node; "
            f"{found.refused_deletions} deletions refused ({ends})"
        )


if __name__ == "__main__":
    main()
