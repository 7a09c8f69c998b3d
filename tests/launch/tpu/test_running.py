"""Looking after a plan on Cloud TPU: one look at a time, over failures, and with nothing left behind."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from multiberts.launch.markers.attempts import attempts_of, begin_attempt
from multiberts.launch.markers.lease import Lease
from multiberts.launch.plan.graph import complete
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.tpu import running
from multiberts.launch.tpu.client import LABEL, OUR_LABEL, Provisioner
from multiberts.launch.tpu.places import Places
from multiberts.launch.tpu.reconcile import Beat
from multiberts.launch.tpu.settings import TpuSettings
from multiberts.runs.bucket.mirror import Mirror
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import write_atomically
from multiberts.runs.plan_marker import read_plan
from multiberts.tests.patience import PATIENCE

pytestmark = pytest.mark.processes

MakeService = Callable[..., Any]


class Pace(TpuSettings):
    backoff_seconds = 0.0
    node_heartbeat_seconds = 0.1
    device_kind = "CPU"


class Impatient(Pace):
    boot_minutes = 0.0
    max_failures = 3


def make_run(root: Path, number: int = 0, **changes: Any) -> PlannedRun:
    """A pre-training run on a corpus that is done."""
    corpus = PlannedRun("prepare", "prepare text", {}, (), "c" * 64, "corpora/text")
    if not corpus.done(root):
        made = RunDirectory(root / corpus.path, stage="prepare", parameters={})
        with made:
            write_atomically(made.path / "vocab.txt", "[PAD]\n")
            made.finish(["vocab.txt"])
    from multiberts.launch.plan.planned_run import Output

    parameters = {"corpus": Output(corpus), "pretrain_seed": number, "num_steps": 4, **changes}
    return PlannedRun(
        "pretrain",
        f"pretrain base seed {number}",
        parameters,
        (corpus,),
        hashlib.sha256(str(number).encode()).hexdigest(),
        f"pretrain/base/seed_{number}",
    )


@pytest.fixture(scope="module", autouse=True)
def packed_once() -> Iterator[None]:
    """Packs the program for the first look of all, as its files stay the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "pack", functools.cache(running.pack))
        yield


@pytest.fixture
def look(tmp_path: Path) -> Callable[..., Any]:
    """One look at a plan: `look(service, plan, **changes)`."""

    def once(service: Any, plan: list[PlannedRun], **changes: Any) -> Any:
        arguments = {
            "root": str(tmp_path / "root"),
            "project": "some-project",
            "zones": ["zone-a", "zone-b"],
            "accelerator_type": "v4-8",
            "bucket": f"file://{tmp_path}/bucket",
            "once": True,
            "python": sys.executable,
            "provisioner": Provisioner("some-project", service.client(), 2.0),
            "dollars_per_hour": 3.6,
        }
        arguments |= changes
        names = {field.name for field in dataclasses.fields(TpuSettings)}
        pace = arguments.pop("pace", Pace)
        settings = pace(**{name: arguments.pop(name) for name in names & arguments.keys()})
        return running.run_on_tpu(plan=plan, settings=settings, **arguments)

    return once


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Waits for something to be so."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def test_single_looks_take_a_run_from_nothing_to_done(
    make_service: MakeService, look: Callable[..., Any], tmp_path: Path
) -> None:
    """As from cron, each in what might be another process; the node's end is written by the test."""
    service, root = make_service(), tmp_path / "root"
    run = make_run(root)
    for _ in range(4):
        assert look(service, [run], python="/bin/true") == []
    assert len(service.created) == len(service.resources()) == 1
    [attempt] = attempts_of(root)[run.path]
    assert (attempt.engine, attempt.zone, attempt.device) == ("tpu", "zone-a", "v4-8")
    assert attempt.job == service.created[0]
    assert (attempt.ended, attempt.dollars_per_hour) == (None, 3.6)
    assert [planned.path for planned in read_plan(root)] == [run.path]
    # What a node would have left in the bucket.
    places = Places(f"file://{tmp_path}/bucket")
    assert (tmp_path / "bucket" / "corpora" / "text" / "DONE").exists()
    with Mirror(places.run(run)) as mirror:
        done = RunDirectory(mirror.path, stage="pretrain", parameters={"x": 1})
        with done:
            write_atomically(done.path / "checkpoints" / "step_4" / "weights", b"w" * 100)
            write_atomically(done.path / "state" / "step_2.npz", b"s")
            done.finish(["checkpoints/step_4/weights"])
    for _ in range(4):
        assert look(service, [run], python="/bin/true") == []
    assert service.resources() == []
    assert run.done(root)
    assert (root / run.path / "checkpoints" / "step_4" / "weights").read_bytes() == b"w" * 100
    assert not (root / run.path / "state").exists()
    [attempt] = attempts_of(root)[run.path]
    assert attempt.outcome == "done"
    calls = len(service.created)
    assert look(service, [run], python="/bin/true") == []
    assert len(service.created) == calls == 1


def test_a_run_that_the_trainer_refuses_is_given_up_with_its_words(
    make_service: MakeService, look: Callable[..., Any], tmp_path: Path
) -> None:
    """The real node and the real trainer, on a corpus that is none."""
    service, root = make_service(), tmp_path / "root"
    run = make_run(root, model={"hidden_size": 32}, warmup_steps=0)
    failures = until(lambda: look(service, [run]))
    assert [failure.run for failure in failures] == [run]
    assert failures[0].is_user_error
    assert f"file://{tmp_path}/bucket/corpora/text" in failures[0].message
    assert failures[0].log is not None
    assert "CPU answer to JAX" in failures[0].log.read_text()
    assert [one.outcome for one in attempts_of(root)[run.path]] == ["failed"]
    until(lambda: look(service, [run]) and not service.resources())
    assert len(service.created) == 1


def test_attempts_end(make_service: MakeService, look: Callable[..., Any], tmp_path: Path) -> None:
    """Nodes that never say a word are replaced so often and no oftener, and only one run pays for it."""
    service, root = make_service(), tmp_path / "root"
    runs = [make_run(root, number) for number in range(2)]
    changes = {"python": "/bin/true", "pace": Impatient}
    failures = until(lambda: (f := look(service, runs, **changes)) and len(f) == 2 and f)
    first, second = failures
    message = "3 attempts in a row failed; "
    assert first.message.startswith(message) and "no heartbeat 0 minutes" in first.message
    assert [one.outcome for one in attempts_of(root)[first.run.path]] == ["lost"] * 3
    assert first.run.name in second.message and message in second.message
    assert (first.attempts, second.attempts) == (3, 0)
    assert len(service.created) == 3
    until(lambda: look(service, runs, **changes) and not service.resources())


def test_one_run_goes_first_and_then_as_many_as_allowed(
    make_service: MakeService, look: Callable[..., Any], tmp_path: Path
) -> None:
    service, root = make_service(), tmp_path / "root"
    runs = [make_run(root, number) for number in range(4)]
    for _ in range(3):
        look(service, runs, python="/bin/true", max_nodes=3)
    assert len(service.created) == 1
    # Its first steps are in the bucket.
    now = time.time()
    beat = dataclasses.asdict(Beat("training", booted=now, time=now, progressed=now, step=10))
    places = Places(f"file://{tmp_path}/bucket")
    places.bucket.write(places.beat(runs[0], 1), json.dumps(beat).encode())
    with Mirror(places.run(runs[0])) as mirror:
        (mirror.path / "metrics.jsonl").write_text('{"step": 10, "loss": 1.0}\n')
    for _ in range(3):
        look(service, runs, python="/bin/true", max_nodes=3)
    assert len(service.created) == 3
    assert runs[3].path not in attempts_of(root)


def test_a_node_that_boots_again_after_maintenance_has_cost_money_since_its_first_boot(
    make_service: MakeService, look: Callable[..., Any], tmp_path: Path
) -> None:
    service, root, run = make_service(), tmp_path / "root", make_run(tmp_path / "root")
    for _ in range(3):
        look(service, [run], python="/bin/true")
    [before] = attempts_of(root)[run.path]
    assert before.dollars_per_hour == 3.6
    [name] = service.resources()
    service.maintain(name)
    now = time.time()
    word = dataclasses.asdict(Beat("training", now + 3600, now + 3600, now + 3600, step=10))
    places = Places(f"file://{tmp_path}/bucket")
    places.bucket.write(places.beat(run, 1), json.dumps(word).encode())
    assert look(service, [run], python="/bin/true") == []
    [after] = attempts_of(root)[run.path]
    assert (after.started, after.ended) == (before.started, None)


def test_ctrl_c_says_what_trains_on_and_what_it_costs(
    make_service: MakeService,
    look: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("multiberts.launch.tpu.running._pause", interrupt)
    run = make_run(tmp_path / "root")
    with pytest.raises(KeyboardInterrupt):
        look(make_service(), [run], python="/bin/true", once=False)
    name = Places(f"file://{tmp_path}/bucket").name(run)
    assert f"$3.60 per hour each: {name} in zone-a;" in capsys.readouterr().out


def test_above_the_budget_nodes_are_deleted(
    make_service: MakeService, look: Callable[..., Any], tmp_path: Path
) -> None:
    service, root = make_service(), tmp_path / "root"
    run = make_run(root)
    changes = {"python": "/bin/true", "dollars_per_hour": 3600.0, "budget": 0.5}
    failures = until(lambda: look(service, [run], **changes))
    assert "of the budget of $0.50" in failures[0].message
    assert len(attempts_of(root)[run.path]) == 1
    until(lambda: look(service, [run], **changes) and not service.resources())


def test_a_plan_estimated_above_the_budget_is_refused_beforehand(
    make_service: MakeService, look: Callable[..., Any], tmp_path: Path
) -> None:
    """A seed of the release takes a slice of four chips of v4 three days."""
    service = make_service()
    base = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
    release = {
        "corpus": "text", "procedure": "base", "pretrain_seed": 0,
        "model": {**base, "intermediate_size": 3072, "max_position_embeddings": 512},
        "num_steps": 2_000_000, "batch_size": 256, "sequence_length": 512,
        "max_predictions_per_sequence": 80, "checkpoint_steps": [], "compute_dtype": "bfloat16",
    }  # fmt: skip
    changes = complete("pretrain", "seed 0", release)
    del changes["corpus"], changes["pretrain_seed"]
    run = make_run(tmp_path / "root", **changes)
    with pytest.raises(UserError, match="v4-8.* budget of 100.00 dollars"):
        look(service, [run], dollars_per_hour=None, budget=100.0)
    assert not service.created and not attempts_of(tmp_path / "root")


def test_a_call_whose_answer_is_lost_makes_no_second_node(
    make_service: MakeService, look: Callable[..., Any], tmp_path: Path
) -> None:
    """The launcher dies after the marker, before or after the call."""
    service, root = make_service(), tmp_path / "root"
    run = make_run(root)
    begin_attempt(root, run.path, engine="tpu", zone="zone-b", host="x", pid=0)
    look(service, [run], python="/bin/true")
    look(service, [run], python="/bin/true")
    assert [name.split("/")[3] for name in service.created] == ["zone-b"]
    [attempt] = attempts_of(root)[run.path]
    assert attempt.attempt == 1 and attempt.job == service.created[0]


def test_every_reported_refusal_is_survived_and_none_counts(
    make_service: MakeService, look: Callable[..., Any], tmp_path: Path
) -> None:
    """The real client and markers through every answer that users report, to a node that boots."""
    from multiberts.tests.launch.tpu.rehearsal.service import (
        INTERNAL,
        NO_QUOTA,
        PRECONDITION,
        STOCK_OUTS,
        Mishaps,
    )

    answers = (NO_QUOTA, *STOCK_OUTS, INTERNAL, INTERNAL, INTERNAL, PRECONDITION)
    service = make_service(Mishaps(answers=answers, looks_provisioning=2, looks_deleting=2))
    root, run = tmp_path / "root", make_run(tmp_path / "root")
    until(lambda: look(service, [run], python="/bin/true") == [] and service.nodes() is not None
          and any("PROVISIONING" not in name for name in service.resources())
          and attempts_of(root)[run.path][-1].dollars_per_hour)  # fmt: skip
    attempts = attempts_of(root)[run.path]
    kinds = [(one.error or {}).get("kind") for one in attempts]
    stock_outs = ["Stockout"] * 4 + ["Internal", "Stockout"]
    # Three equal answers at creation are one attempt; the zone is left then.
    assert kinds == ["Quota", *stock_outs, "Internal", None]
    assert [one.dollars_per_hour for one in attempts] == [None] * 8 + [3.6]
    zones = [(one.zone or "")[-1] for one in attempts]
    assert zones == list("abababba" + "b")
    assert len(service.resources()) == 1


def test_a_quota_of_zero_is_reported_to_a_person_once(
    make_service: MakeService,
    look: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from multiberts.tests.launch.tpu.rehearsal.service import NO_QUOTA, Mishaps

    service = make_service(Mishaps(answers=[NO_QUOTA] * 3))
    look(service, [make_run(tmp_path / "root")], zones=["zone-a"])
    assert capsys.readouterr().out.count("zone-a: a quota of 0") == 1


def test_resources_of_no_planned_run_are_deleted_and_foreign_ones_are_not(
    make_service: MakeService, look: Callable[..., Any], tmp_path: Path
) -> None:
    from google.cloud import tpu_v2

    service, root = make_service(), tmp_path / "root"
    places = Places(f"file://{tmp_path}/bucket")
    parent = "projects/some-project/locations/zone-b"
    labels = {
        "stray": {LABEL: OUR_LABEL, "experiment": places.experiment},
        "another-experiment": {LABEL: OUR_LABEL, "experiment": "another"},
        "foreign": {"experiment": places.experiment},
    }
    for name, given in labels.items():
        node = tpu_v2.Node(labels=given)
        spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=parent, node_id=name, node=node)
        resource = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
        service.add(f"{parent}/queuedResources/{name}", resource)
    for _ in range(3):
        look(service, [make_run(root)], python="/bin/true")
    names = {name.rsplit("/", 1)[1] for name in service.resources()}
    assert names == {"another-experiment", "foreign", places.name(make_run(root))}


def test_bad_requests_are_one_line_and_create_nothing(
    make_service: MakeService, look: Callable[..., Any], tmp_path: Path
) -> None:
    service, root = make_service(), tmp_path / "root"
    run = make_run(root)
    for changes, message in (
        ({"zones": ["zone-q"]}, "zones names 'zone-q'"),
        ({"bucket": "my-bucket"}, "bucket is 'my-bucket'"),
        ({"zones": []}, "zones is empty"),
        ({"patience_minutes": 0}, "patience_minutes is 0"),
        ({"accelerator_type": "v6e-8"}, "accelerator_type names 'v6e-8'"),
        ({"accelerator_type": "v9-8"}, r"'v9-8', .*google\.toml"),
        ({"accelerator_type": "v4-32"}, "several machines; .*v4-8"),
    ):
        with pytest.raises(UserError, match=message):
            look(service, [run], **changes)
    with Lease(root), pytest.raises(UserError, match="launched by process"):
        look(service, [run])
    assert service.created == []
    assert not (tmp_path / "bucket").exists()
