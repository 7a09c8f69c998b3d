"""Settings of users for Cloud TPU."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from multiberts.runs.bucket.objects import is_url
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    annotations_of,
    check_types,
)

PROJECT = Path(__file__).resolve().parent.parent.parent


@functools.cache
def google_names() -> dict[str, Any]:
    """Returns the tables of `google.toml`: generations of TPUs by the beginning of their slices' names."""
    return tomllib.loads(Path(__file__).with_name("google.toml").read_text())


def generation_of(accelerator_type: str) -> dict[str, Any] | None:
    """Returns the table of a slice such as `v5litepod-4`; None where `google.toml` has none."""
    found = google_names().get(accelerator_type.rpartition("-")[0])
    return found if isinstance(found, dict) and "largest" in found else None


@dataclasses.dataclass(frozen=True)
class TpuSettings:
    """Settings of Cloud TPU, as `run.engine_options`.

    What only a rehearsal changes are class attributes below; it makes a subclass.

    Attributes:
      zones: in the order in which they are tried, such as `['us-central2-b']`.
      accelerator_type: a single-host slice, such as `v4-8`, `v5litepod-4`, `v6e-8`.
      bucket: URL below which everything is kept, such as `gs://my-bucket/my-experiment`; one per
        experiment.
      runtime_version: of the node's software; None: that of `launch/tpu/google.toml` for the slice.
      spot: whether nodes are preemptible, which costs less.
      patience_minutes: how long a request waits for a node before the next zone is tried; with one
        zone it waits for ever.
      max_nodes: how many nodes there are at a time, after the first has trained; None: one per seed.
      budget: dollars for all nodes together, then they are deleted; None: no limit.
      dollars_per_hour: of a node; None: that of `launch/estimate/prices.toml`.
      service_account, network, subnetwork: of the nodes; None: the project's default ones.
      external_ips: whether nodes have addresses of their own; without, the network needs Private
        Google Access, and Cloud NAT or an image with `python`.
      python: an interpreter on the nodes that has all requirements; None: nodes install them.
      silent_seconds: `run.silent_seconds`: a node ends a trainer without a heartbeat for so long.
    """

    project: str
    zones: Sequence[str]
    accelerator_type: str
    bucket: str
    runtime_version: str | None = None
    spot: bool = True
    patience_minutes: PositiveFloat = 120.0
    max_nodes: PositiveInt | None = None
    budget: NonNegativeFloat | None = None
    dollars_per_hour: NonNegativeFloat | None = None
    service_account: str | None = None
    network: str | None = None
    subnetwork: str | None = None
    external_ips: bool = True
    python: str | None = None
    silent_seconds: PositiveFloat = 90.0

    # Between looks, and before another attempt after a failure (doubled each time, up to an hour).
    poll_seconds: ClassVar[float] = 60.0
    backoff_seconds: ClassVar[float] = 60.0
    # How many attempts of a run in a row may fail with a node, and in each zone be refused.
    max_failures: ClassVar[int] = 5
    # Until a node's first heartbeat: installing takes minutes.
    boot_minutes: ClassVar[float] = 30.0
    # A node without a heartbeat or a new step for so long is deleted. A step of the log must come sooner.
    heartbeat_minutes: ClassVar[float] = 45.0
    # A node that Google repairs gives no sign for so long before it is given up.
    maintenance_minutes: ClassVar[float] = 240.0
    # A node that has ended waits so long for a look before it deletes itself.
    forgotten_minutes: ClassVar[float] = 60.0
    # Between heartbeats of a node, and between pushes of a run to the bucket.
    node_heartbeat_seconds: ClassVar[float] = 30.0
    push_seconds: ClassVar[float] = 60.0
    # Platform that must compute before training starts: a rehearsal has processors.
    device_kind: ClassVar[str] = "TPU"

    @property
    def software(self) -> str:
        known = generation_of(self.accelerator_type)
        return self.runtime_version or ("" if known is None else known["runtime_version"])

    def check(self) -> None:
        """Refuses values that nothing can be done with."""
        check_types("run.engine_options", vars(self), annotations_of(TpuSettings))
        if not self.zones:
            raise UserError(
                "zones is empty, expected at least one, such as ['us-central2-b']; name some"
            )
        kind, _, size = self.accelerator_type.rpartition("-")
        known = generation_of(self.accelerator_type)
        if known is not None and size.isdigit() and int(size) > known["largest"]:
            raise UserError(
                f"accelerator_type is {self.accelerator_type!r}, a slice of several machines; a run is "
                f"trained by one: ask for {kind}-{known['largest']}"
            )
        if not self.software:
            raise UserError(
                f"accelerator_type is {self.accelerator_type!r}, for which launch/tpu/google.toml has no "
                "runtime_version; set it"
            )
        if not is_url(self.bucket):
            raise UserError(
                f"bucket is {self.bucket!r}, expected a URL such as gs://bucket/experiment"
            )
