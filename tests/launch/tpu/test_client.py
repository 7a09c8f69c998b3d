"""The real client library against the service of rehearsals: what is asked, and what comes back."""

from __future__ import annotations

import ast
import dataclasses
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.tpu import client
from multiberts.launch.tpu.client import (
    LABEL,
    OUR_LABEL,
    Provisioner,
    Resource,
    TpuError,
    kind_of,
    needs_person,
    request_id,
)
from multiberts.launch.tpu.places import Places
from multiberts.launch.tpu.running import preflight
from multiberts.launch.tpu.settings import TpuSettings, generation_of, google_names
from multiberts.launch.tpu.startup import startup_script
from multiberts.runs.errors import UserError

pytestmark = pytest.mark.processes

MakeService = Callable[..., Any]


SETTINGS = TpuSettings(
    project="some-project",
    zones=["zone-a", "zone-b"],
    accelerator_type="v4-8",
    bucket="memory://bucket",
)


def create(cloud: Provisioner, attempt: int = 1, script: str = "sleep 60") -> None:
    cloud.create(
        SETTINGS,
        zone="zone-a",
        name="mb-1-2",
        request=request_id("salt", "mb-1-2", attempt),
        startup_script=script,
        labels={"experiment": "1", "attempt": str(attempt)},
    )


def provisioner(service: Any, seconds_to_retry: float = 5.0) -> Provisioner:
    return Provisioner("some-project", service.client(), seconds_to_retry)


def state_after(cloud: Provisioner, zone: str, *wanted: str) -> str:
    """The state of our resource once it is one of those wanted."""
    for _ in range(200):
        states = {one.name: one.state for one in cloud.resources(zone)}
        found = states.get("mb-1-2", "absent")
        if found in wanted:
            return found
        time.sleep(0.02)
    raise AssertionError(found)


def test_from_a_request_to_a_node_that_runs_the_script_and_away(
    make_service: MakeService, tmp_path: Path
) -> None:
    cloud = provisioner(make_service())
    witness = tmp_path / "witness"
    before = time.time()
    create(cloud, script=f'echo "$NODE_FOLDER" >{witness}; sleep 60')
    assert state_after(cloud, "zone-a", "ACTIVE") == "ACTIVE"
    [resource] = cloud.resources("zone-a")
    assert resource.labels == {LABEL: OUR_LABEL, "experiment": "1", "attempt": "1"}
    assert before <= resource.created <= time.time()
    node = cloud.node(resource)
    assert node is not None and (node.state, node.health) == ("READY", "HEALTHY")
    assert before <= node.created <= time.time()
    while not witness.exists() or not witness.read_text():
        time.sleep(0.02)
    assert witness.read_text().strip() == str(tmp_path / "nodes" / "mb-1-2-1")
    assert cloud.resources("zone-b") == []
    cloud.delete(resource)
    assert state_after(cloud, "zone-a", "absent") == "absent"
    assert cloud.node(resource) is None
    cloud.delete(resource)  # gone already


def test_the_same_attempt_makes_one_resource(make_service: MakeService) -> None:
    service = make_service()
    cloud = provisioner(service)
    create(cloud)
    create(cloud)
    create(cloud, attempt=2)  # exists already, and is ours
    assert len(service.created) == len(service.resources()) == 1
    assert request_id("s", "a", 1) == request_id("s", "a", 1)
    ids = {
        request_id(salt, name, number) for salt in "st" for name in "ab" for number in (1, 2, 12)
    }
    assert len(ids) == 12


def test_a_name_that_is_taken_is_looked_at(make_service: MakeService) -> None:
    """An older resource of that name is being deleted, or it is somebody else's."""
    from google.cloud import tpu_v2

    service = make_service()
    cloud = provisioner(service)
    create(cloud)
    state_after(cloud, "zone-a", "ACTIVE")
    [held] = service._held.values()
    held.resource.state = tpu_v2.QueuedResourceState(
        state=tpu_v2.QueuedResourceState.State.DELETING
    )
    service._advance = lambda: None  # deleting takes its time
    with pytest.raises(TpuError, match="still being deleted") as error:
        create(cloud, attempt=2)
    assert error.value.kind == "Busy"
    held.resource.tpu.node_spec[0].node.labels = {LABEL: "somebody else"}
    with pytest.raises(TpuError, match="exists and is not ours") as error:
        create(cloud, attempt=2)
    assert error.value.kind == "Refused"


def test_only_what_has_our_label_is_seen_or_deleted(make_service: MakeService) -> None:
    from google.cloud import tpu_v2

    service = make_service()
    cloud = provisioner(service)
    parent = "projects/some-project/locations/zone-a"
    node = tpu_v2.Node(labels={LABEL: "somebody else"})
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=parent, node_id="x", node=node)
    foreign = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
    service.add(f"{parent}/queuedResources/x", foreign)
    service.add(f"{parent}/queuedResources/bare", tpu_v2.QueuedResource())
    assert cloud.resources("zone-a") == []
    for name in ("x", "bare"):
        found = Resource(name, "zone-a", "ACTIVE", 0.0, {LABEL: "somebody else"})
        with pytest.raises(ValueError, match=f"{name} .* launched-by"):
            cloud.delete(found)
    assert len(service.resources()) == 2
    assert "delete" not in service.calls


def service_module() -> Any:
    from multiberts.tests.launch.tpu.rehearsal import service

    return service


def test_refusals_have_their_kind_by_code(make_service: MakeService) -> None:
    """The five messages that users report, and the other codes, wherever they come."""
    answers = service_module()
    expected = {
        answers.NO_QUOTA: "Quota",
        answers.INTERNAL: "Internal",
        answers.PRECONDITION: "Busy",
        **{one: "Internal" if one.code == 13 else "Stockout" for one in answers.STOCK_OUTS},
    }
    assert sorted(one.code for one in expected) == [5, 8, 8, 8, 8, 8, 9, 13, 13]
    for answer, kind in expected.items():
        cloud = provisioner(make_service(answers.Mishaps(answers=(answer,))))
        if answer.where == "resource":
            create(cloud)
            assert state_after(cloud, "zone-a", "FAILED") == "FAILED"
            [failed] = cloud.resources("zone-a")
            assert (failed.code, failed.failure) == (answer.code, kind)
            assert failed.message == answer.message.format(zone="zone-a")
        else:
            with pytest.raises(TpuError) as error:
                create(cloud)
            assert error.value.kind == kind
            assert answer.message.format(zone="zone-a") in str(error.value)
    with pytest.raises(TpuError, match="not found or unauthorized") as error:
        provisioner(make_service()).resources("zone-z")
    assert error.value.kind == "Refused"


def test_a_quota_of_zero_and_billing_need_a_person() -> None:
    for message in ("Quota 'X' exceeded. Limit: 0", "exceeded.  Limit: 0.0 in region us-east1."):
        assert "a quota of 0" in (needs_person(message) or "")
    assert "billing account" in (needs_person("Billing is disabled for project 1") or "")
    for message in ("Limit: 4 in zone us-central1-a", "Limit: 0.5", "There is no more capacity"):
        assert needs_person(message) is None
    assert kind_of(7, "This API method requires billing to be enabled") == "Refused"


def test_what_is_being_made_refuses_deletion(make_service: MakeService) -> None:
    cloud = provisioner(make_service(service_module().Mishaps(looks_provisioning=3)))
    create(cloud)
    assert state_after(cloud, "zone-a", "PROVISIONING") == "PROVISIONING"
    [resource] = cloud.resources("zone-a")
    assert resource.is_provisioning
    with pytest.raises(TpuError, match="not supported when state is PROVISIONING") as error:
        cloud.delete(resource)
    assert error.value.kind == "Busy"
    assert state_after(cloud, "zone-a", "ACTIVE") == "ACTIVE"
    cloud.delete(resource)


def test_a_node_without_an_address_left_fails_for_want_of_quota(make_service: MakeService) -> None:
    cloud = provisioner(make_service(service_module().Mishaps(addresses=0)))
    create(cloud)
    assert state_after(cloud, "zone-a", "FAILED") == "FAILED"
    [failed] = cloud.resources("zone-a")
    assert failed.failure == "Quota" and "IN_USE_ADDRESSES" in failed.message


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"name": "mb_1"}, "mb_1"),
        ({"name": "mb-" + "x" * 61}, "mb-xxx"),
        ({"labels": {"experiment": "A"}}, "experiment"),
        ({"startup_script": "#" * 300_000}, "metadata of 30"),
        ({"settings": dataclasses.replace(SETTINGS, accelerator_type="v4-16")}, "v4-16"),
        ({"settings": dataclasses.replace(SETTINGS, runtime_version="made-up")}, "made-up"),
    ],
)
def test_the_service_checks_requests_as_the_real_one_does(
    make_service: MakeService, changes: dict[str, Any], found: str
) -> None:
    request = {
        "settings": SETTINGS, "zone": "zone-a", "name": "mb-1-2", "request": request_id("s", "n", 1),
        "startup_script": "true", "labels": {"experiment": "1"},
    }  # fmt: skip
    cloud = provisioner(make_service())
    with pytest.raises(TpuError, match=f"received a bad request: .*{found}") as error:
        cloud.create(**{**request, **changes})
    assert error.value.kind == "Refused"


@pytest.mark.parametrize("name", [one for one in google_names() if generation_of(f"{one}-8")])
def test_every_slice_of_the_file_is_asked_for_in_requests_that_pass(
    tmp_path: Path, name: str
) -> None:
    """With its own zones and software, and the names and labels that a plan gives."""
    generation = generation_of(f"{name}-8")
    assert generation is not None
    slices = f"{name}-{generation['largest']}"
    zones = dict.fromkeys(generation["zones"], (slices,))
    settings = TpuSettings("p", list(zones), slices, f"file://{tmp_path}/bucket")
    settings.check()
    places = Places(settings.bucket)
    run = PlannedRun(
        "pretrain", "seed 24", {}, (), "f" * 64, "pretrain/multiberts/seed_24-ffffffff"
    )
    with service_module().TpuService(
        zones=zones, runtime_versions=(generation["runtime_version"],), folder=tmp_path,
        seconds_to_provision=3600,
    ) as service:  # fmt: skip
        cloud = Provisioner("p", service.client())
        for zone in zones:
            cloud.create(
                settings, zone=zone, name=places.name(run), request=request_id("s", "n", 1),
                startup_script=startup_script(
                    settings, places, run, 1, zone=zone, source=("gs://b/x", "0" * 64), arguments={}
                ),
                labels=places.labels(run, 1),
            )  # fmt: skip
        assert len(service.resources()) == len(zones)


def test_google_names_stand_in_one_file_and_the_client() -> None:
    """No other module of the launcher has a state, slice or software of Google's in its code."""
    from google.cloud import tpu_v2

    states = {
        *tpu_v2.QueuedResourceState.State.__members__,
        *tpu_v2.Node.State.__members__,
        *tpu_v2.Node.Health.__members__,
    } - {"UNKNOWN"}
    tables = [table for table in google_names().values() if isinstance(table, dict)]
    names = {table["runtime_version"] for table in tables if "runtime_version" in table}
    slices = re.compile(rf"({'|'.join(google_names())})-\d+")
    launch = Path(client.__file__).parents[1]
    for file in launch.rglob("*.py"):
        if file.name in ("client.py", "slurm.py"):  # Slurm's states have some of the same names
            continue
        tree = ast.parse(file.read_text())
        spared = {
            id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
        }  # docstrings
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in spared
            ):
                found = {node.value} & (states | names) or slices.fullmatch(node.value)
                assert not found, f"{file}:{node.lineno}: {node.value}"


def test_calls_are_repeated_until_the_service_answers(make_service: MakeService) -> None:
    Mishaps = service_module().Mishaps
    service = make_service(Mishaps(unavailable_every=2))
    cloud = provisioner(service)
    for zone in ("zone-a", "zone-b", "zone-c"):
        assert cloud.resources(zone) == []
    create(cloud)
    assert len(service.resources()) == 1
    assert len(service.refused) >= 3
    gone = provisioner(make_service(Mishaps(unavailable_every=1)), seconds_to_retry=0.2)
    with pytest.raises(TpuError) as error:
        gone.resources("zone-a")
    assert error.value.kind == "Unreachable"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zones": ["zone-a", "zone-z"]}, r"'zone-z', .*\(zone-a, zone-b, zone-c\)"),
        (
            {"accelerator_type": "v4-16"},
            r"'v4-16', .* zone-a offers \(v4-8\)",
        ),
        ({"bucket": "bucket"}, "'bucket' is not a place"),
        ({"bucket": "file:///dev/null/x"}, r"no permission .*file:///dev/null/x"),
    ],
)
def test_what_is_not_on_offer_is_one_line(
    make_service: MakeService, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    service = make_service()
    wanted = dataclasses.replace(SETTINGS, bucket=f"file://{tmp_path}")
    preflight(provisioner(service), wanted)
    with pytest.raises(UserError, match=message) as error:
        preflight(provisioner(service), dataclasses.replace(wanted, **changes))
    assert "\n" not in str(error.value)
    assert service.created == []


def test_software_that_a_zone_does_not_list_is_a_warning(
    make_service: MakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By report the service's list lacks software that it takes."""
    service = make_service(unlisted_versions=("tpu-vm-x",))
    wanted = dataclasses.replace(
        SETTINGS, bucket=f"file://{tmp_path}", zones=["zone-a"], runtime_version="tpu-vm-x"
    )
    preflight(provisioner(service), wanted)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: zone-a ")
    assert "runtime_version 'tpu-vm-x' (it lists tpu-ubuntu2204-base)" in line


def test_the_accelerator_is_looked_for_in_every_zone(
    make_service: MakeService, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="'v4-16', .*zone-a"):
        preflight(
            provisioner(make_service()),
            dataclasses.replace(
                SETTINGS,
                zones=["zone-b", "zone-a"],
                accelerator_type="v4-16",
                bucket=f"file://{tmp_path}",
            ),
        )
