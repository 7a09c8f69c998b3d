"""What to do next about one run, from what can be seen: a pure function, which remembers nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from multiberts.launch.markers.attempts import Attempt
from multiberts.launch.tpu.client import (
    ACTIVE,
    DELETING,
    ENDED,
    WAITING,
    Node,
    Resource,
    kind_of_message,
)
from multiberts.runs.errors import UserError

# Errors of an attempt after which the next one is made in the next zone.
_OF_THE_ZONE = frozenset({"Stockout", "Quota", "Refused"})
# After which there is no next one.
_FINAL = frozenset({"UserError"})
# A node in one of these was taken away.
_TAKEN = frozenset({"PREEMPTED", "TERMINATED", "STOPPED", "STOPPING", "DELETING"})


@dataclasses.dataclass(frozen=True)
class TpuSettings:
    """What the user sets for Cloud TPU, as `run.engine_options`.

    Attributes:
      project: of Google Cloud.
      zones: in the order in which they are tried, such as `['us-central2-b']`.
      accelerator_type: a single-host slice, such as `v4-8`, `v5litepod-8`, `v6e-8`.
      runtime_version: of the node's software, such as `tpu-ubuntu2204-base`.
      bucket: URL below which all is kept, such as `gs://my-bucket/my-experiment`; one per experiment.
      spot: whether nodes may be taken away, for less money.
      patience_minutes: how long a request waits for a node before the next zone is tried.
      heartbeat_minutes: without a heartbeat or a step, a node is given up after this time; about
        three times the time between two saved states.
      boot_minutes: until a node's first heartbeat.
      max_attempts: of one run.
      max_failures: of one run in a row that were not the zone's fault.
      backoff_seconds: before a further attempt where one got nowhere; doubled each time.
      budget: dollars for all nodes together, then they are deleted; None: no limit.
      dollars_per_hour: of a node; None: that of `launch/prices.toml`.
      service_account, network, subnetwork: of the nodes; None: the project's default ones.
      poll_seconds: between looks.
      compute: `tensorflow` or `jax`: whose pinned requirements nodes install.
    """

    project: str
    zones: Sequence[str]
    accelerator_type: str
    runtime_version: str
    bucket: str
    spot: bool = True
    patience_minutes: float = 120.0
    heartbeat_minutes: float = 45.0
    boot_minutes: float = 30.0
    max_attempts: int = 100
    max_failures: int = 5
    backoff_seconds: float = 60.0
    budget: float | None = None
    dollars_per_hour: float | None = None
    service_account: str | None = None
    network: str | None = None
    subnetwork: str | None = None
    poll_seconds: float = 60.0
    compute: str = "tensorflow"

    def check(self) -> None:
        """Refuses numbers out of range.

        Raises:
          UserError: naming the first of them.
        """
        for name in ("patience_minutes", "heartbeat_minutes", "max_attempts", "poll_seconds"):
            value = getattr(self, name)
            if value <= 0:
                raise UserError(f"{name} is {value}, expected more than 0; correct it")

    def policy(self) -> Policy:
        """Returns how to look after runs."""
        return Policy(
            zones=tuple(self.zones),
            patience=self.patience_minutes * 60,
            seconds_until_stale=self.heartbeat_minutes * 60,
            seconds_to_boot=self.boot_minutes * 60,
            max_attempts=self.max_attempts,
            max_failures=self.max_failures,
            backoff=self.backoff_seconds,
            budget=self.budget,
        )


@dataclasses.dataclass(frozen=True)
class Policy:
    """How to go about it.

    Attributes:
      zones: in the order in which they are tried.
      patience: seconds that a request may wait for a node before the next zone is tried.
      seconds_until_stale: without a heartbeat or a step; about three checkpoint intervals.
      seconds_to_boot: until the first heartbeat.
      seconds_to_save: that a node which is being taken away may use, if its heartbeat is fresh.
      max_attempts: of one run.
      max_failures: of one run in a row that were not the zone's fault; nodes cost money.
      backoff: seconds before a further attempt where one got nowhere; doubled each time.
      longest_backoff: seconds at the most.
      budget: dollars for all runs together; None: no limit.
    """

    zones: Sequence[str]
    patience: float = 2 * 3600.0
    seconds_until_stale: float = 45 * 60.0
    seconds_to_boot: float = 30 * 60.0
    seconds_to_save: float = 60.0
    max_attempts: int = 100
    max_failures: int = 5
    backoff: float = 60.0
    longest_backoff: float = 3600.0
    budget: float | None = None


@dataclasses.dataclass(frozen=True)
class Beat:
    """What a node last told of itself, in the bucket.

    Attributes:
      phase: `checking`, `training`, `restarting`, `preempted`, `failed` or `done`.
      booted, time, progressed: Unix seconds: of the boot, of this word, of the last new step.
      step: that training has reached.
      restarts: of the trainer since the boot.
      error: `kind` and `message` where it failed.
    """

    phase: str
    booted: float
    time: float
    progressed: float
    step: int | None = None
    restarts: int = 0
    error: dict[str, str] | None = None

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Beat:
        """From what a node wrote."""
        return cls(**{field.name: fields[field.name] for field in dataclasses.fields(cls)})


@dataclasses.dataclass(frozen=True)
class Seen:
    """All that is known of a run at a moment.

    Attributes:
      now: Unix seconds.
      done: whether its DONE is in the bucket.
      resources: of this run, in all zones that answered.
      unseen_zones: those that did not answer.
      attempts: of this run, in order.
      node: of its active resource, if it was looked up.
      beat: of its last attempt.
      spent: dollars for all runs together so far.
    """

    now: float
    done: bool = False
    resources: tuple[Resource, ...] = ()
    unseen_zones: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    node: Node | None = None
    beat: Beat | None = None
    spent: float = 0.0


@dataclasses.dataclass(frozen=True)
class Wait:
    """Nothing to do but to look again later."""

    reason: str


@dataclasses.dataclass(frozen=True)
class Show:
    """It trains."""

    beat: Beat


@dataclasses.dataclass(frozen=True)
class Create:
    """Ask for a node, in a new attempt or in one whose call may not have come through."""

    attempt: int
    zone: str


@dataclasses.dataclass(frozen=True)
class Delete:
    """Delete a resource, and note how its attempt ended unless `outcome` is None."""

    resource: Resource
    outcome: str | None = None
    error: dict[str, str] | None = None


@dataclasses.dataclass(frozen=True)
class End:
    """Note how an attempt ended whose resource is gone."""

    outcome: str
    error: dict[str, str] | None = None


@dataclasses.dataclass(frozen=True)
class Finish:
    """All is done and nothing is left in the cloud."""


@dataclasses.dataclass(frozen=True)
class GiveUp:
    """No further attempt is made."""

    message: str
    is_user_error: bool = False


Action = Wait | Show | Create | Delete | End | Finish | GiveUp


def decide(seen: Seen, policy: Policy) -> Action:
    """Returns the next thing to do about a run.

    | seen | done |
    |---|---|
    | DONE | delete the resource; finished |
    | nothing | create, up to a number of attempts or dollars, with back-off |
    | waiting | wait; past the patience delete, then the next zone |
    | active, fresh heartbeat | show |
    | active, old or no heartbeat | look at the node's health, delete |
    | suspending, suspended, failed | delete, as they keep using quota (once it has saved) |
    """
    alive = [one for one in seen.resources if one.state != DELETING]
    if seen.done:
        return _after_done(seen, alive)
    if len(alive) > 1:
        return Delete(_superfluous(alive, seen.attempts))
    if alive:
        return _with_resource(alive[0], seen, policy)
    if seen.resources:
        return Wait(f"{seen.resources[0].name} is being deleted")
    if seen.unseen_zones:
        return Wait(f"{', '.join(seen.unseen_zones)} does not answer")
    return _without_resource(seen, policy)


def next_zone(attempts: Sequence[Attempt], zones: Sequence[str]) -> str:
    """Returns where the next attempt is made: where the last was, unless the zone itself was at
    fault.
    """
    if not attempts or attempts[-1].zone not in zones:
        return zones[0]
    last = attempts[-1]
    place = list(zones).index(last.zone or "")
    is_at_fault = (last.error or {}).get("kind") in _OF_THE_ZONE
    return zones[(place + is_at_fault) % len(zones)]


def seconds_to_wait(attempts: Sequence[Attempt], policy: Policy) -> float:
    """Returns the pause after the last attempt: none while there are zones untried, then longer and
    longer.
    """
    got_nowhere = 0
    for attempt in reversed(attempts):
        if attempt.outcome not in ("failed", "lost"):
            break
        got_nowhere += 1
    if got_nowhere == 0:
        return 0.0
    is_of_the_zone = (attempts[-1].error or {}).get("kind") in _OF_THE_ZONE
    rounds = got_nowhere // len(policy.zones) if is_of_the_zone else got_nowhere
    if rounds == 0 or (is_of_the_zone and got_nowhere % len(policy.zones)):
        return 0.0
    return min(policy.backoff * 2.0 ** min(rounds - 1, 30), policy.longest_backoff)


def _failures_in_a_row(attempts: Sequence[Attempt]) -> int:
    """Returns how many of the last attempts failed through no fault of a zone's."""
    count = 0
    for attempt in reversed(attempts):
        if (attempt.error or {}).get("kind") in _OF_THE_ZONE:
            continue
        if attempt.outcome not in ("failed", "lost"):
            break
        count += 1
    return count


def _after_done(seen: Seen, alive: Sequence[Resource]) -> Action:
    if alive:
        return Delete(alive[0], "done")
    if seen.attempts and seen.attempts[-1].ended is None:
        return End("done")
    if seen.resources:
        return Wait(f"{seen.resources[0].name} is being deleted")
    if seen.unseen_zones:
        return Wait(f"{', '.join(seen.unseen_zones)} does not answer")
    return Finish()


def _superfluous(alive: Sequence[Resource], attempts: Sequence[Attempt]) -> Resource:
    """Of several resources of one run, one that the last attempt did not make."""
    zone = attempts[-1].zone if attempts else None
    return min(alive, key=lambda one: (one.zone == zone, one.created))


def _with_resource(resource: Resource, seen: Seen, policy: Policy) -> Action:
    if policy.budget is not None and seen.spent >= policy.budget:
        return Delete(resource, "failed", _error("Budget", _over_budget(seen, policy)))
    if resource.state == "SUSPENDING" and _is_saving(seen, policy):
        return Wait(f"being taken away in {resource.zone}, saves")
    if resource.state in ENDED:
        return _of_ended(resource)
    if resource.state in WAITING:
        waited = seen.now - resource.created
        if waited > policy.patience:
            message = f"no node in {resource.zone} within {waited / 60:.0f} minutes"
            return Delete(resource, "failed", _error("Stockout", message))
        return Wait(f"{resource.state} in {resource.zone} for {waited / 60:.0f} minutes")
    if resource.state == ACTIVE:
        return _of_active(resource, seen, policy)
    return Wait(f"{resource.name} is in the state {resource.state}")


def _is_saving(seen: Seen, policy: Policy) -> bool:
    """Returns whether a node that is being taken away still pushes what it has; deleting would cut
    it short.
    """
    word = seen.beat
    if word is None or word.phase not in ("training", "restarting"):
        return False
    return seen.now - word.time < policy.seconds_to_save


def _of_ended(resource: Resource) -> Delete:
    if resource.state != "FAILED":
        return Delete(resource, "preempted", _error("Preempted", f"taken away in {resource.zone}"))
    message = resource.message or "the service gave no reason"
    return Delete(resource, "failed", _error(kind_of_message(message), message))


def _of_active(resource: Resource, seen: Seen, policy: Policy) -> Action:
    node, beat = seen.node, seen.beat
    health = "" if node is None else f"; its node is {node.state}, {node.health} {node.message}"
    if node is not None and node.state in _TAKEN:
        return Delete(resource, "preempted", _error("Preempted", health.removeprefix("; ")))
    if beat is None:
        since = resource.created if node is None else node.created
        if seen.now - since > policy.seconds_to_boot:
            message = (
                f"no sign of life {(seen.now - since) / 60:.0f} minutes after its boot{health}"
            )
            return Delete(resource, "lost", _error("Silent", message))
        return Wait(f"booting in {resource.zone}")
    if beat.phase == "failed":
        return Delete(resource, "failed", beat.error)
    if beat.phase == "preempted":
        return Delete(resource, "preempted", _error("Preempted", f"taken away in {resource.zone}"))
    silent = seen.now - min(beat.time, max(beat.progressed, beat.booted))
    if silent > policy.seconds_until_stale:
        message = f"no heartbeat or step for {silent / 60:.0f} minutes{health}"
        return Delete(resource, "lost", _error("Silent", message))
    return Show(beat)


def _without_resource(seen: Seen, policy: Policy) -> Action:
    last = seen.attempts[-1] if seen.attempts else None
    if last is not None and last.ended is None:
        if last.job is None:
            return Create(last.attempt, last.zone or policy.zones[0])
        if seen.beat is not None and seen.beat.phase == "failed":
            return End("failed", seen.beat.error)
        return End("lost", _error("Gone", f"{last.job} is gone, though nobody here deleted it"))
    if last is not None and (last.error or {}).get("kind") in _FINAL:
        return GiveUp((last.error or {}).get("message", ""), is_user_error=True)
    if policy.budget is not None and seen.spent >= policy.budget:
        return GiveUp(_over_budget(seen, policy), is_user_error=True)
    if len(seen.attempts) >= policy.max_attempts:
        reason = ((last and last.error) or {}).get("message", "no reason known")
        return GiveUp(f"{len(seen.attempts)} attempts were made; the last: {reason}")
    failures = _failures_in_a_row(seen.attempts)
    if failures >= policy.max_failures:
        reason = ((last and last.error) or {}).get("message", "no reason known")
        return GiveUp(f"{failures} attempts in a row failed; the last: {reason}")
    pause = seconds_to_wait(seen.attempts, policy)
    if last is not None and seen.now < (last.ended or 0.0) + pause:
        return Wait(f"the next attempt starts in {(last.ended or 0) + pause - seen.now:.0f} s")
    return Create((last.attempt if last else 0) + 1, next_zone(seen.attempts, policy.zones))


def _error(kind: str, message: str) -> dict[str, str]:
    return {"kind": kind, "message": message.strip()}


def _over_budget(seen: Seen, policy: Policy) -> str:
    return f"${seen.spent:.2f} of the budget of ${policy.budget:.2f} are spent; raise --budget"
