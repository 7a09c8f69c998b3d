"""Cloud TPU keeps to what the launcher expects of it: the rehearsal's service here, the real one where named.

Nobody has run this against Google's service yet. It reads only, with a project and a zone named:

    TPU_CONTRACT_PROJECT=my-project TPU_CONTRACT_ZONE=us-central2-b \\
        python -m pytest tests/launch/tpu/test_live_contract.py -rs

And makes one queued resource and deletes it, which may cost some cents, with TPU_CONTRACT_CREATE=v4-8 (what
the zone offers) besides; writes to a bucket with TPU_CONTRACT_BUCKET=gs://my-bucket/contract.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.launch.tpu.client import (
    LABEL,
    OUR_LABEL,
    Provisioner,
    Resource,
    TpuError,
    request_id,
)
from multiberts.launch.tpu.running import preflight
from multiberts.launch.tpu.settings import TpuSettings
from multiberts.runs.bucket.lease import BucketLease, LeaseLostError
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.errors import UserError
from multiberts.tests.patience import PATIENCE

pytestmark = pytest.mark.processes

PROJECT = os.environ.get("TPU_CONTRACT_PROJECT")
# Those of the service in this process, unless the real one is named.
ZONE = os.environ.get("TPU_CONTRACT_ZONE") if PROJECT else "zone-a"
CREATE = os.environ.get("TPU_CONTRACT_CREATE") if PROJECT else "v4-8"
BUCKET = os.environ.get("TPU_CONTRACT_BUCKET")

needs_zone = pytest.mark.skipif(not ZONE, reason="set TPU_CONTRACT_ZONE, too")
needs_consent = pytest.mark.skipif(
    not (ZONE and CREATE), reason="makes a node, which costs money: set TPU_CONTRACT_CREATE, too"
)


@pytest.fixture
def cloud(make_service: Callable[..., Any]) -> Provisioner:
    if PROJECT:
        return Provisioner(PROJECT)
    from multiberts.tests.launch.tpu.rehearsal.service import Mishaps

    mishaps = Mishaps(looks_provisioning=1, looks_deleting=2)
    return Provisioner("some-project", make_service(mishaps).client())


@needs_zone
def test_what_is_on_offer_can_be_listed(cloud: Provisioner) -> None:
    assert ZONE is not None
    assert ZONE in cloud.zones()
    types, versions = cloud.accelerator_types(ZONE), cloud.runtime_versions(ZONE)
    assert all("-" in name for name in types) and types
    assert versions
    print(f"{ZONE} offers {types} and {versions}")


@needs_zone
def test_what_does_not_exist_is_refused(cloud: Provisioner, tmp_path: Path) -> None:
    assert ZONE is not None
    assert "mb-never-made" not in {one.name for one in cloud.resources(ZONE)}
    missing = Resource("mb-never-made", ZONE, "", 0.0, {LABEL: OUR_LABEL})
    assert cloud.node(missing) is None
    cloud.delete(missing)
    with pytest.raises(TpuError) as error:
        cloud.resources("nowhere-central1-a")
    assert error.value.kind == "Refused"
    bucket = f"file://{tmp_path}"
    with pytest.raises(UserError, match="nowhere-central1-a"):
        preflight(cloud, TpuSettings(cloud.project, ["nowhere-central1-a"], "v4-8", bucket))


@needs_consent
def test_a_resource_is_made_seen_and_deleted(cloud: Provisioner, tmp_path: Path) -> None:
    assert ZONE is not None and CREATE is not None
    name = f"mb-contract-{uuid.uuid4().hex[:8]}"
    settings = TpuSettings(cloud.project, [ZONE], CREATE, f"file://{tmp_path}")
    for _ in range(2):  # the second time the same request: no second resource
        cloud.create(
            settings,
            zone=ZONE,
            name=name,
            request=request_id("contract", name, 1),
            startup_script="#!/bin/bash\necho contract\n",
            labels={"experiment": "contract"},
        )
    try:
        [mine] = [one for one in cloud.resources(ZONE) if one.name == name]
        assert _is_known(mine)
        assert abs(mine.created - time.time()) < 600
        assert mine.labels[LABEL] == OUR_LABEL and mine.labels["experiment"] == "contract"
    finally:
        own = Resource(name, ZONE, "", 0.0, {LABEL: OUR_LABEL})
        _until(lambda: _is_deleted(cloud, own))

    def has_gone() -> bool:
        mine = [one for one in cloud.resources(ZONE) if one.name == name]
        assert all(map(_is_known, mine))
        return not mine

    _until(has_gone)


def _is_known(resource: Resource) -> bool:
    """Whether its state is one that the launcher knows what to do in; exactly one is."""
    states = (
        resource.is_waiting, resource.is_provisioning, resource.is_active, resource.is_suspending,
        resource.is_suspended, resource.has_failed, resource.is_deleting,
    )  # fmt: skip
    return sum(states) == 1


def _is_deleted(cloud: Provisioner, resource: Resource) -> bool:
    """Whether the service accepts the deletion; while it makes the node it does not."""
    cloud.resources(resource.zone)
    try:
        cloud.delete(resource)
    except TpuError as error:
        if error.kind == "Busy":
            return False
        raise
    return True


def _until(condition: Callable[[], bool]) -> None:
    # The real service takes up to two hours.
    end, pause = time.monotonic() + (7200 if PROJECT else PATIENCE), 10 if PROJECT else 0.05
    while not condition():
        assert time.monotonic() < end
        time.sleep(pause)


def test_the_bucket_keeps_conditions() -> None:
    bucket = Bucket(f"{BUCKET or 'memory://contract'}/{uuid.uuid4().hex}")
    bucket.check_writable()
    version = bucket.write_if("x", b"one", None)
    assert version is not None
    assert bucket.write_if("x", b"two", None) is None
    assert bucket.read_version("x") == (b"one", version)
    bucket.remove_if("x", version)
    assert bucket.read("x") is None
    first, second = BucketLease(bucket), BucketLease(bucket)
    first.acquire()
    first.check()
    first.release()
    second.acquire()
    with pytest.raises(LeaseLostError):
        first.check()
    second.release()
    assert bucket.list() == {}
