"""Every row of the table, and what must hold however states follow each other."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiberts.launch.markers.attempts import Attempt
from multiberts.launch.tpu.client import EXPERIMENT, LABEL, OUR_LABEL, Node, Resource
from multiberts.launch.tpu.reconcile import (
    Action,
    Beat,
    Create,
    Delete,
    End,
    Finish,
    GiveUp,
    Observation,
    Show,
    Wait,
    after_refusal,
    decide,
    next_zone,
    seconds_to_wait,
)
from multiberts.launch.tpu.settings import TpuSettings
from multiberts.tests.launch.tpu.plan_simulation import Cloud, FewLooks, simulate

NOW = 1_000_000.0


class Hurried(TpuSettings):
    heartbeat_minutes = 15.0


class Insistent(Hurried):
    max_failures = 1000


SETTINGS = Hurried(
    project="p",
    zones=("a", "b", "c"),
    accelerator_type="v4-8",
    bucket="memory://b",
    patience_minutes=10,
)
LABELS = {LABEL: OUR_LABEL, EXPERIMENT: "x"}


def resource(
    state: str, zone: str = "a", age: float = 10.0, code: int = 0, message: str = ""
) -> Resource:
    return Resource("run-1", zone, state, NOW - age, LABELS, code, message)


def attempt(number: int = 1, zone: str = "a", **changes: Any) -> Attempt:
    fields: dict[str, Any] = {
        "attempt": number,
        "path": "pretrain/run",
        "engine": "tpu",
        "host": "run-1",
        "pid": 0,
        "job": "projects/p/locations/a/queuedResources/run-1",
        "device": "v4-8",
        "zone": zone,
        "dollars_per_hour": None,
        "started": NOW - 100,
        "ended": None,
        "outcome": None,
        "error": None,
        "log": None,
    }
    return Attempt(**{**fields, **changes})


def over(number: int, outcome: str, kind: str = "", zone: str = "a", ago: float = 1.0) -> Attempt:
    error = {"kind": kind, "message": f"{kind} it was"} if kind else None
    return attempt(number, zone, ended=NOW - ago, outcome=outcome, error=error)


def word(phase: str = "training", age: float = 5.0, **changes: Any) -> Beat:
    fields = {"booted": NOW - 5000, "time": NOW - age, "progressed": NOW - age, "step": 7}
    return Beat(**{"phase": phase, **fields, **changes})


NODE = Node("READY", "HEALTHY", NOW - 5000)
TAKEN = dataclasses.replace(NODE, state="PREEMPTED")
REPAIRED = dataclasses.replace(NODE, health="UNHEALTHY_MAINTENANCE")
OPEN = (attempt(),)

ROWS: list[tuple[str, Observation, Action | type]] = [
    # DONE: delete the resource; finished.
    ("done, trains", Observation(NOW, True, (resource("ACTIVE"),), (), OPEN), Delete),
    ("done, ends", Observation(NOW, True, (resource("ACTIVE"),), (), OPEN, NODE, word()), Wait),
    (
        "done, ended",
        Observation(NOW, True, (resource("ACTIVE"),), (), OPEN, NODE, word("done")),
        Delete,
    ),
    (
        "done, stuck",
        Observation(NOW, True, (resource("ACTIVE"),), (), OPEN, NODE, word(age=90.0)),
        Delete,
    ),
    ("done, waits", Observation(NOW, True, (resource("ACCEPTED", "b"),), (), OPEN), Delete),
    ("done, attempt open", Observation(NOW, True, (), (), OPEN), End("done")),
    (
        "done, being deleted",
        Observation(NOW, True, (resource("DELETING"),), (), (over(1, "done"),)),
        Wait("run-1 is being deleted"),
    ),
    (
        "done, a zone unseen",
        Observation(NOW, True, (), ("b",), (over(1, "done"),)),
        Wait("b does not answer"),
    ),
    ("done, nothing left", Observation(NOW, True, (), (), (over(1, "done"),)), Finish()),
    # Nothing: create, within limits.
    ("nothing yet", Observation(NOW), Create(1, "a")),
    ("a zone unseen", Observation(NOW, False, (), ("c",)), Wait("c does not answer")),
    (
        "call not confirmed",
        Observation(NOW, attempts=(attempt(job=None, zone="b"),)),
        Create(1, "b"),
    ),
    ("gone", Observation(NOW, attempts=OPEN), End),
    ("gone after it failed", Observation(NOW, attempts=OPEN, beat=word("failed", error=None)), End),
    (
        "preempted before",
        Observation(NOW, attempts=(over(3, "preempted", "Preempted"),)),
        Create(4, "a"),
    ),
    (
        "stock-out before",
        Observation(NOW, attempts=(over(3, "failed", "Stockout"),)),
        Create(4, "b"),
    ),
    (
        "quota before, last zone",
        Observation(NOW, attempts=(over(3, "failed", "Quota", "c"),)),
        Create(4, "a"),
    ),
    ("crash just before", Observation(NOW, attempts=(over(1, "failed", "Crashed"),)), Wait),
    (
        "crash long before",
        Observation(NOW, attempts=(over(1, "failed", "Crashed", ago=61),)),
        Create(2, "a"),
    ),
    ("bad input", Observation(NOW, attempts=(over(1, "failed", "UserError"),)), GiveUp),
    (
        "preempted again and again",
        Observation(NOW, attempts=tuple(over(n, "preempted") for n in range(1, 600))),
        Create(600, "a"),
    ),
    (
        "refused by every zone, again and again",
        Observation(
            NOW, attempts=tuple(over(n, "failed", "Refused", "abc"[n % 3]) for n in range(1, 16))
        ),
        GiveUp,
    ),
    (
        "the request of an attempt that is over came through",
        Observation(NOW, False, (resource("ACTIVE"),), (), (over(1, "failed", "Internal"),)),
        Delete(resource("ACTIVE")),
    ),
    # Waiting states: wait; past patience delete.
    ("creating", Observation(NOW, False, (resource("CREATING"),), (), OPEN), Wait),
    ("accepted", Observation(NOW, False, (resource("ACCEPTED"),), (), OPEN), Wait),
    ("provisioning", Observation(NOW, False, (resource("PROVISIONING"),), (), OPEN), Wait),
    ("queued", Observation(NOW, False, (resource("WAITING_FOR_RESOURCES"),), (), OPEN), Wait),
    (
        "queued too long",
        Observation(NOW, False, (resource("WAITING_FOR_RESOURCES", age=601),), (), OPEN),
        Delete(
            resource("WAITING_FOR_RESOURCES", age=601),
            "failed",
            {"kind": "Stockout", "message": "no node in a within 10 minutes"},
        ),
    ),
    (
        "provisioning is never cut short",
        Observation(NOW, False, (resource("PROVISIONING", age=9999),), (), OPEN),
        Wait,
    ),
    # Active.
    (
        "trains",
        Observation(NOW, False, (resource("ACTIVE"),), (), OPEN, NODE, word()),
        Show(word()),
    ),
    ("boots", Observation(NOW, False, (resource("ACTIVE"),), (), OPEN), Wait("booting in a")),
    (
        "never spoke",
        Observation(NOW, False, (resource("ACTIVE", age=9999),), (), OPEN, NODE),
        Delete,
    ),
    (
        "silent",
        Observation(NOW, False, (resource("ACTIVE"),), (), OPEN, NODE, word(age=901)),
        Delete,
    ),
    (
        "no step",
        Observation(NOW, False, (resource("ACTIVE"),), (), OPEN, NODE, word(progressed=NOW - 901)),
        Delete,
    ),
    (
        "boots, and its node cannot be looked up",
        Observation(NOW, False, (resource("ACTIVE", age=1e6),), (), OPEN),
        Wait("booting in a"),
    ),
    (
        "in maintenance",
        Observation(NOW, False, (resource("ACTIVE"),), (), OPEN, REPAIRED, word(age=3600)),
        Wait("in maintenance in a for 60 minutes"),
    ),
    (
        "in maintenance, as was announced",
        Observation(
            NOW, False, (resource("ACTIVE"),), (), OPEN, NODE, word(age=3600, maintenance="NOW")
        ),
        Wait("in maintenance in a for 60 minutes"),
    ),
    (
        "in maintenance for ever",
        Observation(NOW, False, (resource("ACTIVE"),), (), OPEN, REPAIRED, word(age=15000)),
        Delete,
    ),
    (
        "taken, node says",
        Observation(NOW, False, (resource("ACTIVE"),), (), OPEN, TAKEN, word()),
        Delete,
    ),
    (
        "taken, saved",
        Observation(NOW, False, (resource("ACTIVE"),), (), OPEN, NODE, word("preempted")),
        Delete,
    ),
    # Suspending, suspended, failed: delete.
    (
        "suspended",
        Observation(NOW, False, (resource("SUSPENDED"),), (), OPEN, None, word()),
        Delete,
    ),
    (
        "suspending, saves",
        Observation(NOW, False, (resource("SUSPENDING"),), (), OPEN, None, word()),
        Wait("preempted in a, still saving"),
    ),
    (
        "suspending, silent",
        Observation(NOW, False, (resource("SUSPENDING"),), (), OPEN, None, word(age=61)),
        Delete,
    ),
    ("failed", Observation(NOW, False, (resource("FAILED"),), (), OPEN), Delete),
    ("being deleted", Observation(NOW, False, (resource("DELETING"),), (), OPEN), Wait),
]


@pytest.mark.parametrize(("seen", "expected"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS])
def test_row(seen: Observation, expected: Action | type) -> None:
    action = decide(seen, SETTINGS)
    if isinstance(expected, type):
        assert isinstance(action, expected), action
    else:
        assert action == expected


def ended(state: str, code: int = 0, message: str = "", **seen: Any) -> Observation:
    found = resource(state, code=code, message=message)
    return Observation(NOW, False, (found,), (), OPEN, **seen)


@pytest.mark.parametrize(
    ("seen", "outcome", "kind"),
    [
        (Observation(NOW, True, (resource("ACTIVE"),), (), OPEN), "done", None),
        (ended("SUSPENDED", beat=word()), "preempted", "Preempted"),
        (ended("SUSPENDED"), "failed", "NoNode"),
        (ended("FAILED", 8, "There is no more capacity in the zone"), "failed", "Stockout"),
        (ended("FAILED", 8, "Insufficient reserved capacity."), "failed", "Stockout"),
        (ended("FAILED", 8, "Quota 'X' exceeded. Limit: 8.0"), "failed", "Quota"),
        (ended("FAILED", 5, "Reservation not found"), "failed", "Stockout"),
        (ended("FAILED", 5, "network 'x' was not found"), "failed", "Refused"),
        (ended("FAILED", 13, "an internal error has occurred"), "failed", "Internal"),
        (ended("FAILED", 9, "cannot be done now"), "failed", "Busy"),
        (ended("FAILED", 3, "bad image"), "failed", "Refused"),
        (ended("FAILED", 13, "its host died", beat=word()), "failed", "Failed"),
        (ended("ACTIVE", node=NODE, beat=word(age=1e4)), "lost", "Silent"),
        (ended("ACTIVE", node=REPAIRED, beat=word(age=1e5)), "preempted", "Maintenance"),
        (ended("ACTIVE", node=dataclasses.replace(NODE, state="CREATING")), "lost", "NoNode"),
        (
            ended(
                "ACTIVE", beat=word("failed", error={"kind": "UserError", "message": "no corpus"})
            ),
            "failed",
            "UserError",
        ),
    ],
)
def test_how_an_attempt_ended(seen: Observation, outcome: str, kind: str | None) -> None:
    action = decide(seen, SETTINGS)
    assert isinstance(action, Delete)
    assert action.outcome == outcome
    assert (action.error or {}).get("kind") == kind


def test_health_is_reported_of_a_silent_node() -> None:
    ill = Node("READY", "UNHEALTHY_TENSORFLOW", NOW - 5000, "no answer")
    action = decide(
        Observation(NOW, False, (resource("ACTIVE"),), (), OPEN, ill, word(age=1800)), SETTINGS
    )
    assert isinstance(action, Delete) and action.error is not None
    assert "30 minutes" in action.error["message"]
    assert "READY, UNHEALTHY_TENSORFLOW no answer" in action.error["message"]


def test_budget_deletes_what_runs_and_makes_nothing_new() -> None:
    wanted = dataclasses.replace(SETTINGS, budget=10.0)
    running = Observation(NOW, False, (resource("ACTIVE"),), (), OPEN, NODE, word(), spent=10.01)
    action = decide(running, wanted)
    assert isinstance(action, Delete) and (action.error or {})["kind"] == "Budget"
    assert decide(dataclasses.replace(running, spent=9.99), wanted) == Show(word())
    nothing = Observation(NOW, attempts=(over(1, "preempted"),), spent=12.5)
    action = decide(nothing, wanted)
    assert isinstance(action, GiveUp) and action.is_user_error
    assert "$12.50 of the budget of $10.00" in action.message


def test_of_two_resources_of_a_run_the_last_attempts_is_kept() -> None:
    two = (resource("ACTIVE", "a", age=50), resource("ACTIVE", "b", age=5))
    for zone, other in (("a", 1), ("b", 0)):
        action = decide(
            Observation(NOW, False, two, (), (attempt(zone=zone),), NODE, word()), SETTINGS
        )
        assert action == Delete(two[other])


def test_pauses_grow_and_zones_take_turns() -> None:
    wanted = SETTINGS
    crashes = [over(n, "failed", "Crashed") for n in range(1, 10)]
    pauses = [seconds_to_wait(crashes[:count], wanted) for count in range(10)]
    assert pauses == [0, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    attempts: list[Attempt] = []
    zones, pauses = [], []
    for number in range(1, 8):
        zones.append(next_zone(attempts, wanted.zones))
        pauses.append(seconds_to_wait(attempts, wanted))
        attempts.append(over(number, "failed", "Stockout", zones[-1]))
    assert zones == ["a", "b", "c", "a", "b", "c", "a"]
    assert pauses == [0, 0, 0, 60, 0, 0, 120]
    attempts.append(over(8, "preempted", "Preempted", "b"))
    assert next_zone(attempts, wanted.zones) == "b"
    assert seconds_to_wait(attempts, wanted) == 0


def test_a_zone_that_errs_is_asked_again_and_then_left() -> None:
    """The report: at creation zone a was asked eight times and zone b never."""
    asked, errors = attempt(job=None), []
    for _ in range(3):
        error, has_ended = after_refusal(asked, "Internal", "an internal error has occurred")
        errors.append(has_ended)
        asked = dataclasses.replace(asked, error=error)
        assert decide(Observation(NOW, attempts=(asked,)), SETTINGS) == Create(1, "a")
    assert errors == [False, False, True]
    left = dataclasses.replace(asked, ended=NOW - 1, outcome="failed")
    assert decide(Observation(NOW, attempts=(left,)), SETTINGS) == Create(2, "b")
    # Another error begins to count again; a stock-out leaves at once.
    assert after_refusal(asked, "Busy", "not now") == (
        {"kind": "Busy", "message": "not now", "times": "1"},
        False,
    )
    assert after_refusal(asked, "Stockout", "no capacity")[1]
    # Of resources that end so, each is an attempt.
    failed = [over(n, "failed", "Internal", ago=61 * (4 - n)) for n in range(1, 4)]
    zones = [next_zone(failed[:count], SETTINGS.zones) for count in range(1, 4)]
    assert zones == ["a", "a", "b"]
    pauses = [seconds_to_wait(failed[:count], SETTINGS) for count in range(1, 4)]
    assert pauses == [60, 60, 60]


def test_a_queue_of_weeks_ends_nothing() -> None:
    waiting = resource("WAITING_FOR_RESOURCES", age=1e6)
    one_zone = dataclasses.replace(SETTINGS, zones=("a",))
    assert isinstance(decide(Observation(NOW, False, (waiting,), (), OPEN), one_zone), Wait)
    for kind in ("Quota", "Stockout", "Internal", "Busy", "Unreachable", "NoNode"):
        refused = tuple(over(n, "failed", kind, ago=1e4) for n in range(1, 501))
        assert decide(Observation(NOW, attempts=refused), one_zone) == Create(501, "a")


def test_failures_in_a_row_end_it_and_the_zones_do_not_count() -> None:
    kinds = ["Crashed", "Stockout", "Accelerator", "Quota", "Silent", "Crashed", "Internal", "Gone"]
    attempts = tuple(over(n, "failed", kind, ago=1e5) for n, kind in enumerate(kinds, start=1))
    action = decide(Observation(NOW, attempts=attempts), SETTINGS)
    assert isinstance(action, GiveUp) and not action.is_user_error
    assert action.message.startswith("5 attempts ") and action.message.endswith("Gone it was")
    assert isinstance(decide(Observation(NOW, attempts=attempts[:-1]), SETTINGS), Create)
    broken = (
        *attempts[:6],
        over(7, "preempted"),
        *(over(8 + n, "lost", ago=1e5) for n in range(4)),
    )
    assert isinstance(decide(Observation(NOW, attempts=broken), SETTINGS), Create)


def test_a_plan_survives_five_weeks_of_all_that_users_report() -> None:
    """Nodes of two zones live a day, those of the third half an hour."""
    wanted = FewLooks("p", ("a", "b", "c"), "v4-8", "memory://b", max_nodes=4)
    lives = {"a": 24.0, "b": 24.0, "c": 0.5}
    found = simulate(wanted, Cloud(lives, hours_of_training=60.0, nodes_per_zone=2), seeds=5)
    assert (found.done, found.given_up) == (5, 0)
    assert (found.most_before, found.most_nodes) == (1, 4)
    assert found.refused_deletions > 0
    # 300 hours of training, and what preemptions cost.
    assert 300 < found.node_hours < 360 and found.days > 14
    assert {"Quota", "Stockout", "Internal", "Preempted", "done"} <= found.ends.keys()


STATES = [
    "CREATING",
    "ACCEPTED",
    "PROVISIONING",
    "WAITING_FOR_RESOURCES",
    "ACTIVE",
    "SUSPENDING",
    "SUSPENDED",
    "FAILED",
]
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("state"), st.sampled_from(STATES)),
        st.tuples(st.just("beat"), st.sampled_from(["training", "failed", "preempted", "done"])),
        st.tuples(st.just("unseen"), st.sampled_from(["a", "b", "c"])),
        st.tuples(st.just("vanish"), st.none()),
        st.tuples(st.just("lose answer"), st.none()),
        st.tuples(st.just("time"), st.sampled_from([1.0, 700.0, 4000.0])),
        st.tuples(st.just("done"), st.none()),
        st.tuples(st.just("look"), st.none()),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(EVENTS)
def test_never_two_resources_and_only_ours_deleted(events: list[tuple[str, Any]]) -> None:
    """A simulated cloud in which states follow each other as they like."""
    wanted = Insistent(**vars(SETTINGS))
    now, done, beat, lose = NOW, False, None, False
    cloud: dict[str, Resource] = {}
    attempts: list[Attempt] = []
    for event, value in events:
        unseen: tuple[str, ...] = ()
        if event == "state" and cloud:
            zone = next(iter(cloud))
            if cloud[zone].state != "DELETING":
                cloud[zone] = dataclasses.replace(cloud[zone], state=value)
        elif event == "beat":
            beat = Beat(value, now, now, now, error={"kind": "Crashed", "message": "x"})
        elif event == "unseen":
            unseen = (value,)
        elif event == "vanish":
            cloud.clear()
        elif event == "lose answer":
            lose = True
        elif event == "time":
            now += value
        elif event == "done":
            done = True
        shown = tuple(one for one in cloud.values() if one.zone not in unseen)
        action = decide(Observation(now, done, shown, unseen, tuple(attempts), None, beat), wanted)
        match action:
            case Create(number, zone):
                assert not done and not unseen
                assert not cloud, "a second resource of one run"
                if not attempts or attempts[-1].attempt != number:
                    assert all(one.ended is not None for one in attempts)
                    assert number == len(attempts) + 1
                    attempts.append(attempt(number, zone, job=None))
                    beat = None
                cloud[zone] = Resource("run-1", zone, "ACCEPTED", now, LABELS)
                if lose:
                    lose = False  # the call came through, its answer did not
                else:
                    attempts[-1] = dataclasses.replace(attempts[-1], job="job")
            case Delete(found, outcome, error):
                assert found.labels[LABEL] == OUR_LABEL
                assert cloud[found.zone] == found and found.state != "DELETING"
                cloud[found.zone] = dataclasses.replace(found, state="DELETING")
                if outcome is not None and attempts and attempts[-1].ended is None:
                    attempts[-1] = dataclasses.replace(
                        attempts[-1], ended=now, outcome=outcome, error=error
                    )
            case End(outcome, error):
                assert not cloud or unseen
                attempts[-1] = dataclasses.replace(
                    attempts[-1], ended=now, outcome=outcome, error=error
                )
            case Finish():
                assert done and not cloud and not unseen
                assert all(one.ended is not None for one in attempts)
            case GiveUp():
                raise AssertionError("nothing here is final")
            case Wait() | Show():
                pass
        for zone, one in list(cloud.items()):
            if one.state == "DELETING" and not isinstance(action, Delete):
                del cloud[zone]
        assert len(cloud) <= 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(STATES), max_size=8))
def test_left_alone_after_done_nothing_stays(states: list[str]) -> None:
    """From any set of resources, deleting goes on until nothing is left."""
    zones = "abc"
    cloud = [
        Resource(f"run-{number}", zones[number % 3], state, NOW, LABELS)
        for number, state in enumerate(states)
    ]
    attempts = [attempt()]
    for _ in range(len(states) + 2):
        action = decide(Observation(NOW, True, tuple(cloud), (), tuple(attempts)), SETTINGS)
        if isinstance(action, Finish):
            break
        if isinstance(action, Delete):
            cloud.remove(action.resource)
            attempts[-1] = dataclasses.replace(attempts[-1], ended=NOW, outcome="done")
        else:
            assert action == End("done")
            attempts[-1] = dataclasses.replace(attempts[-1], ended=NOW, outcome="done")
    assert action == Finish() and cloud == []
