"""The real Cloud TPU service keeps to what the launcher expects of it. Nobody has run this yet.

Reads only, with a project and a zone named:

    TPU_CONTRACT_PROJECT=my-project TPU_CONTRACT_ZONE=us-central2-b \
        python -m pytest tests/launch/tpu/test_live_contract.py -rs

And makes one queued resource and deletes it, which may cost some cents, with TPU_CONTRACT_CREATE=v4-8 (what
the zone offers) and TPU_CONTRACT_RUNTIME=tpu-ubuntu2204-base besides; writes to a bucket with
TPU_CONTRACT_BUCKET=gs://my-bucket/contract.
"""

from __future__ import annotations

import os
import time
import uuid

import pytest

from multiberts.launch.tpu.client import (
    ACTIVE,
    DELETING,
    ENDED,
    LABEL,
    OUR_LABEL,
    WAITING,
    Provisioner,
    Resource,
    TpuError,
)
from multiberts.launch.tpu.running import preflight
from multiberts.launch.tpu.settings import TpuSettings
from multiberts.runs.bucket.lease import BucketLease, LeaseLostError
from multiberts.runs.bucket.objects import Bucket
from multiberts.runs.errors import UserError
from multiberts.tests.patience import PATIENCE

PROJECT = os.environ.get("TPU_CONTRACT_PROJECT")
ZONE = os.environ.get("TPU_CONTRACT_ZONE")
CREATE = os.environ.get("TPU_CONTRACT_CREATE")
RUNTIME = os.environ.get("TPU_CONTRACT_RUNTIME")
BUCKET = os.environ.get("TPU_CONTRACT_BUCKET")

needs_project = pytest.mark.skipif(
    not (PROJECT and ZONE),
    reason="needs a project of Google Cloud: set TPU_CONTRACT_PROJECT and TPU_CONTRACT_ZONE",
)
needs_consent = pytest.mark.skipif(
    not (PROJECT and ZONE and CREATE and RUNTIME),
    reason="makes a node, which costs money: set TPU_CONTRACT_CREATE and TPU_CONTRACT_RUNTIME, too",
)
needs_bucket = pytest.mark.skipif(
    not BUCKET, reason="writes to a bucket: set TPU_CONTRACT_BUCKET=gs://bucket/folder"
)


@pytest.fixture
def cloud() -> Provisioner:
    return Provisioner(PROJECT or "")


@needs_project
def test_what_is_on_offer_can_be_listed(cloud: Provisioner) -> None:
    assert ZONE is not None
    assert ZONE in cloud.zones()
    types, versions = cloud.accelerator_types(ZONE), cloud.runtime_versions(ZONE)
    assert all("-" in name for name in types) and types
    assert versions
    print(f"{ZONE} offers {types} and {versions}")


@needs_project
def test_states_of_resources_are_those_of_the_table(cloud: Provisioner) -> None:
    assert ZONE is not None
    for resource in cloud.resources(ZONE):
        assert resource.state in {*WAITING, *ENDED, ACTIVE, DELETING}
        assert resource.labels[LABEL] == OUR_LABEL
        assert resource.created > 1.6e9


@needs_project
def test_what_does_not_exist_is_refused(cloud: Provisioner) -> None:
    assert ZONE is not None
    assert "mb-never-made" not in {one.name for one in cloud.resources(ZONE)}
    missing = Resource("mb-never-made", ZONE, ACTIVE, 0.0, {LABEL: OUR_LABEL})
    assert cloud.node(missing) is None
    cloud.delete(missing)
    with pytest.raises(TpuError) as error:
        cloud.resources("nowhere-central1-a")
    assert error.value.kind == "Refused"
    with pytest.raises(UserError, match="nowhere-central1-a"):
        preflight(
            cloud,
            TpuSettings(
                project="some-project",
                zones=["nowhere-central1-a"],
                accelerator_type="v4-8",
                runtime_version="x",
                bucket="memory://contract",
            ),
        )


@needs_consent
def test_a_resource_is_made_seen_and_deleted(cloud: Provisioner) -> None:
    assert ZONE is not None and CREATE is not None and RUNTIME is not None
    name = f"mb-contract-{uuid.uuid4().hex[:8]}"
    settings = TpuSettings(cloud.project, [ZONE], CREATE, RUNTIME, "memory://contract")
    for _ in range(2):  # the second time the same request: no second resource
        cloud.create(
            settings,
            zone=ZONE,
            name=name,
            attempt=1,
            startup_script="#!/bin/bash\necho contract\n",
            labels={"experiment": "contract"},
        )
    try:
        [mine] = [one for one in cloud.resources(ZONE) if one.name == name]
        assert mine.state in {*WAITING, *ENDED, ACTIVE}
        assert abs(mine.created - time.time()) < 600
        assert mine.labels["experiment"] == "contract"
    finally:
        cloud.delete(
            Resource(name, ZONE, ACTIVE, 0.0, {LABEL: OUR_LABEL, "experiment": "contract"})
        )
    end = time.monotonic() + PATIENCE
    while name in {one.name for one in cloud.resources(ZONE)}:
        assert time.monotonic() < end
        time.sleep(10)


@needs_bucket
def test_the_bucket_keeps_conditions() -> None:
    assert BUCKET is not None
    bucket = Bucket(f"{BUCKET}/{uuid.uuid4().hex}")
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
