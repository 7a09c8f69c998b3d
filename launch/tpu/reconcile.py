"""Decides what to do next about one run: a pure function of what is seen."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from multiberts.launch.markers.attempts import Attempt
from multiberts.launch.tpu.client import PASSING, Node, Resource
from multiberts.launch.tpu.settings import TpuSettings
from multiberts.runs.errors import counted

# Kinds of errors of attempts that never had a node that was ready: another zone may have one. They cost
# nothing, and a queue may last for weeks, so they do not count. `NoNode`: it was taken back before.
_WITHOUT_NODE = PASSING | {"Stockout", "Quota", "Refused", "NoNode"}
# How often the same is asked of a zone where the error may pass.
TIMES_ASKED = 3
# A node with a heartbeat this fresh is at work.
_FRESH_SECONDS = 60.0
_MAX_BACKOFF_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True)
class Beat:
    """A node's heartbeat, in the bucket.

    Attributes:
      phase: `checking`, `training`, `restarting`, `preempted`, `failed` or `done`.
      booted, time, progressed: Unix seconds of the boot, of this heartbeat, of the last new step.
      restarts: of the trainer since the boot.
      error: `kind` and `message` where it failed.
      maintenance: the event that the metadata server announces; empty: none.
    """

    phase: str
    booted: float
    time: float
    progressed: float
    step: int | None = None
    restarts: int = 0
    error: dict[str, str] | None = None
    maintenance: str = ""


@dataclasses.dataclass(frozen=True)
class Observation:
    """Observation of a run at one moment.

    Attributes:
      now: Unix seconds.
      done: whether its DONE is in the bucket.
      resources: of this run, in all zones that answered.
      unseen_zones: those that did not answer.
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
    """Look again later."""

    reason: str


@dataclasses.dataclass(frozen=True)
class Show:
    """Show the progress of training."""

    beat: Beat


@dataclasses.dataclass(frozen=True)
class Create:
    """Ask for a node, in a new attempt or in one whose request may be lost."""

    attempt: int
    zone: str


@dataclasses.dataclass(frozen=True)
class Delete:
    """Delete a resource, and record how its attempt ended unless `outcome` is None."""

    resource: Resource
    outcome: str | None = None
    error: dict[str, str] | None = None


@dataclasses.dataclass(frozen=True)
class End:
    """Record how an attempt ended whose resource is gone."""

    outcome: str
    error: dict[str, str] | None = None


@dataclasses.dataclass(frozen=True)
class Finish:
    """The run is done and nothing is left in the cloud."""


@dataclasses.dataclass(frozen=True)
class GiveUp:
    """Make no further attempt."""

    message: str
    is_user_error: bool = False


Action = Wait | Show | Create | Delete | End | Finish | GiveUp


def decide(seen: Observation, settings: TpuSettings) -> Action:
    """Returns the next thing to do about a run.

    | seen | action |
    |---|---|
    | DONE | let the trainer end; delete the resource; finish |
    | nothing | create, up to a number of failures or dollars, with back-off |
    | waiting | wait; past the patience delete, then the next zone, if there are several |
    | active, fresh heartbeat | show |
    | active, old or no heartbeat | look at the node's health, wait through maintenance, delete |
    | suspending, suspended, failed | delete, as they keep using quota (once it has saved) |
    """
    alive = [one for one in seen.resources if not one.is_deleting]
    last = seen.attempts[-1] if seen.attempts else None
    if seen.done and alive:
        # After DONE the trainer removes its state from the bucket and gives the lease back.
        if alive[0].is_active and _is_working(seen):
            return Wait(f"done in {alive[0].zone}, its trainer is ending")
        return Delete(alive[0], "done")
    if seen.done and last is not None and last.ended is None:
        return End("done")
    if len(alive) > 1:
        # A run may have several resources: keep that of the last attempt.
        zone = None if last is None else last.zone
        return Delete(min(alive, key=lambda one: (one.zone == zone, one.created)))
    if alive and last is not None and last.ended is not None:
        # The service refused the request and carried it out all the same: nobody would count its cost.
        return Delete(alive[0])
    if alive:
        return _with_resource(alive[0], seen, settings)
    if seen.resources:
        return Wait(f"{seen.resources[0].name} is being deleted")
    if seen.unseen_zones:
        return Wait(f"{', '.join(seen.unseen_zones)} does not answer")
    return Finish() if seen.done else _without_resource(seen, last, settings)


def reason_to_hold(nodes: int, is_proven: bool, settings: TpuSettings) -> str | None:
    """Returns why no further node is asked for now; None where one may be.

    One run goes first, until its first steps are in the bucket: what is wrong with rights, software or
    data then costs one node, not one per seed.

    Args:
      nodes: how many runs have a resource.
      is_proven: whether a run of the plan has trained.
      settings: `max_nodes`.

    Example:
      >>> settings = TpuSettings("p", ["z"], "v4-8", "gs://b", max_nodes=2)
      >>> reason_to_hold(1, False, settings)
      'waits for the first steps of the first run'
      >>> reason_to_hold(2, True, settings)
      'waits, for max_nodes = 2 are in use'
    """
    if nodes and not is_proven:
        return "waits for the first steps of the first run"
    if settings.max_nodes is not None and nodes >= settings.max_nodes:
        return f"waits, for max_nodes = {settings.max_nodes} are in use"
    return None


def next_zone(attempts: Sequence[Attempt], zones: Sequence[str]) -> str:
    """Returns the zone of the next attempt: that of the last, unless the zone was at fault."""
    if not attempts or attempts[-1].zone not in zones:
        return zones[0]
    place = list(zones).index(attempts[-1].zone or "")
    return zones[(place + _leaves_zone(attempts)) % len(zones)]


def _leaves_zone(attempts: Sequence[Attempt]) -> bool:
    """Returns whether the last attempt's zone had no node, and not only for a moment."""
    last, kind = attempts[-1], _kind(attempts[-1])
    if kind not in PASSING:
        return kind in _WITHOUT_NODE
    equal = itertools.takewhile(
        lambda one: (one.zone, _kind(one)) == (last.zone, kind), reversed(attempts)
    )
    return sum(times_asked(one) for one in equal) >= TIMES_ASKED


def times_asked(attempt: Attempt) -> int:
    """Returns how often the service has answered an attempt's request with the error it has."""
    return int((attempt.error or {}).get("times", 1))


def after_refusal(attempt: Attempt, kind: str, message: str) -> tuple[dict[str, str], bool]:
    """Returns the error to note of an attempt whose request was not accepted, and whether it has ended.

    One that may pass is asked again under the same request id, which makes no second node.
    """
    noted = {"kind": kind, "message": message}
    if kind not in PASSING:
        return noted, True
    is_equal = (attempt.error or {}).get("kind") == kind
    times = times_asked(attempt) + 1 if is_equal else 1
    return {**noted, "times": str(times)}, times >= TIMES_ASKED


def seconds_to_wait(attempts: Sequence[Attempt], settings: TpuSettings) -> float:
    """Returns the pause after the last attempt.

    There is none while some zone is untried; after each round of failures it doubles.
    """
    failed = _failures_in_a_row(attempts)
    if failed and _kind(attempts[-1]) in _WITHOUT_NODE:
        rounds, untried = divmod(failed, len(settings.zones))
        failed = 0 if untried and _leaves_zone(attempts) else max(1, rounds)
    if not failed:
        return 0.0
    return min(settings.backoff_seconds * 2.0 ** min(failed - 1, 30), _MAX_BACKOFF_SECONDS)


def _failures_in_a_row(attempts: Sequence[Attempt], left_out: frozenset[str] = frozenset()) -> int:
    """Returns how many of the last attempts failed, but for those with errors of some kinds."""
    outcomes = (one.outcome for one in reversed(attempts) if _kind(one) not in left_out)
    return sum(1 for _ in itertools.takewhile({"failed", "lost"}.__contains__, outcomes))


def _with_resource(resource: Resource, seen: Observation, settings: TpuSettings) -> Action:
    zone = resource.zone
    if settings.budget is not None and seen.spent >= settings.budget:
        return Delete(resource, "failed", _error("Budget", _over_budget(seen.spent, settings)))
    if resource.is_suspending and _is_working(seen):
        return Wait(f"preempted in {zone}, still saving")
    if resource.has_failed:
        message = resource.message or "the service gave no reason"
        return Delete(
            resource,
            "failed",
            _error("Failed" if _had_node(seen) else resource.failure, f"{zone}: {message}"),
        )
    if resource.is_suspending or resource.is_suspended:
        if _had_node(seen):
            return Delete(resource, "preempted", _error("Preempted", f"preempted in {zone}"))
        message = f"taken back in {zone} before its node was ready"
        return Delete(resource, "failed", _error("NoNode", message))
    minutes = (seen.now - resource.created) / 60
    if resource.is_waiting and minutes > settings.patience_minutes and len(settings.zones) > 1:
        message = f"no node in {zone} within {minutes:.0f} minutes"
        return Delete(resource, "failed", _error("Stockout", message))
    if resource.is_waiting or resource.is_provisioning:
        return Wait(f"{resource.state} in {zone} for {minutes:.0f} minutes")
    if resource.is_active:
        return _of_active(resource, seen, settings)
    return Wait(f"{resource.name} is in the state {resource.state}")


def _had_node(seen: Observation) -> bool:
    """Returns whether the last attempt's node has been ready: only then it cost money, and counts."""
    last = seen.attempts[-1] if seen.attempts else None
    is_priced = last is not None and last.dollars_per_hour is not None
    return is_priced or seen.beat is not None or (seen.node is not None and seen.node.is_ready)


def _is_working(seen: Observation) -> bool:
    """Returns whether a node's trainer still writes to the bucket; deleting it would cut that short."""
    beat = seen.beat
    if beat is None or beat.phase not in ("training", "restarting"):
        return False
    return seen.now - beat.time < _FRESH_SECONDS


def _of_active(resource: Resource, seen: Observation, settings: TpuSettings) -> Action:
    node, beat, zone = seen.node, seen.beat, resource.zone
    health = "" if node is None else f"; its node is {node.state}, {node.health} {node.message}"
    if node is not None and node.is_taken:
        message = health.removeprefix("; ")
        if _had_node(seen):
            return Delete(resource, "preempted", _error("Preempted", message))
        return Delete(resource, "failed", _error("NoNode", message))
    if beat is not None and beat.phase == "failed":
        return Delete(resource, "failed", beat.error)
    if beat is not None and beat.phase == "preempted":
        return Delete(resource, "preempted", _error("Preempted", f"preempted in {zone}"))
    if beat is None and node is None:
        return Wait(f"booting in {zone}")
    if beat is None:
        assert node is not None
        minutes, limit = (seen.now - node.created) / 60, settings.boot_minutes
        silence = f"no heartbeat {minutes:.0f} minutes after its boot"
    else:
        last = min(beat.time, max(beat.progressed, beat.booted))
        minutes, limit = (seen.now - last) / 60, settings.heartbeat_minutes
        silence = f"no heartbeat or step for {minutes:.0f} minutes"
    if minutes <= limit:
        return Wait(f"booting in {zone}") if beat is None else Show(beat)
    announced = beat.maintenance if beat is not None else ""
    if announced or (node is not None and node.is_in_maintenance):
        # The machine boots again afterwards, and training resumes; a new request would queue again.
        if minutes <= settings.maintenance_minutes:
            return Wait(f"in maintenance in {zone} for {minutes:.0f} minutes")
        message = f"{silence}, in maintenance {announced}".rstrip() + health
        return Delete(resource, "preempted", _error("Maintenance", message))
    return Delete(
        resource, "lost", _error("Silent" if _had_node(seen) else "NoNode", silence + health)
    )


def _without_resource(seen: Observation, last: Attempt | None, settings: TpuSettings) -> Action:
    if last is not None and last.ended is None:
        if last.job is None:
            return Create(last.attempt, last.zone or settings.zones[0])
        if seen.beat is not None and seen.beat.phase == "failed":
            return End("failed", seen.beat.error)
        kind = "Gone" if _had_node(seen) else "NoNode"
        return End("lost", _error(kind, f"{last.job} is gone, though nobody here deleted it"))
    message = ((last and last.error) or {}).get("message", "no reason known")
    if last is not None and _kind(last) == "UserError":
        return GiveUp(message, is_user_error=True)
    if settings.budget is not None and seen.spent >= settings.budget:
        return GiveUp(_over_budget(seen.spent, settings), is_user_error=True)
    failures = _failures_in_a_row(seen.attempts, _WITHOUT_NODE)
    if failures >= settings.max_failures:
        return GiveUp(f"{counted(failures, 'attempt')} in a row failed; the last: {message}")
    kinds = map(_kind, reversed(seen.attempts))
    refusals = sum(1 for _ in itertools.takewhile("Refused".__eq__, kinds))
    if refusals >= settings.max_failures * len(settings.zones):
        return GiveUp(f"{counted(refusals, 'request')} in a row were refused; the last: {message}")
    start = ((last and last.ended) or 0.0) + seconds_to_wait(seen.attempts, settings)
    if seen.now < start:
        return Wait(f"the next attempt starts in {start - seen.now:.0f} s")
    return Create((last.attempt if last else 0) + 1, next_zone(seen.attempts, settings.zones))


def _kind(attempt: Attempt) -> str:
    return (attempt.error or {}).get("kind", "")


def _error(kind: str, message: str) -> dict[str, str]:
    return {"kind": kind, "message": message.strip()}


def _over_budget(spent: float, settings: TpuSettings) -> str:
    return f"${spent:.2f} of the budget of ${settings.budget:.2f} are spent; raise --budget"
