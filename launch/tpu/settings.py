"""What users set for Cloud TPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

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
# What nodes install, by the library that computes: TensorFlow in rehearsals alone.
REQUIREMENTS = {"tensorflow": "requirements.txt", "jax": "requirements-jax-tpu.txt"}

# Cores (v2 to v5p) or chips (v5litepod, v6e) of the largest slice that is one machine.
_LARGEST_OF_ONE_HOST = 8


@dataclasses.dataclass(frozen=True)
class TpuSettings:
    """Settings of Cloud TPU, as `run.engine_options`.

    Attributes:
      project: of Google Cloud.
      zones: in the order in which they are tried, such as `['us-central2-b']`.
      accelerator_type: a single-host slice, such as `v4-8`, `v5litepod-8`, `v6e-8`.
      runtime_version: of the node's software, such as `tpu-ubuntu2204-base`.
      bucket: URL below which everything is kept, such as `gs://my-bucket/my-experiment`; one per
        experiment.
      spot: whether nodes are preemptible, which costs less.
      patience_minutes: how long a request waits for a node before the next zone is tried; with one
        zone it waits for ever.
      heartbeat_minutes: a node without a heartbeat or a step for so long is deleted; about three
        times the time between two saved states.
      boot_minutes: until a node's first heartbeat.
      max_attempts: of one run; those that never had a node do not count.
      max_nodes: how many nodes there are at a time, after the first has trained; None: one per seed.
      max_failures: of one run in a row that were not the zone's fault; nodes cost money.
      backoff_seconds: before another attempt after a failure; doubled each time, up to an hour.
      budget: dollars for all nodes together, then they are deleted; None: no limit.
      dollars_per_hour: of a node; None: that of `launch/estimate/prices.toml`.
      service_account, network, subnetwork: of the nodes; None: the project's default ones.
      external_ips: whether nodes have addresses of their own; without, the network needs Private
        Google Access, and Cloud NAT or an image with `python`.
      poll_seconds: between looks.
      compute: the engine, whose pinned requirements nodes install: `jax`; in a rehearsal also `tensorflow`,
        which does not train on TPUs.
      python: an interpreter on the nodes that has all requirements; None: nodes install them.
      device_kind: what must compute before training starts: `TPU`; `CPU` or `GPU` in a rehearsal.
      node_folder: for all that a node writes.
      node_environment: further environment variables of the nodes.
      node_heartbeat_seconds: between heartbeats of a node.
      push_seconds: between pushes of a run to the bucket.
      silent_seconds: `run.silent_seconds`: a node ends a trainer without a heartbeat for so long.
    """

    project: str
    zones: Sequence[str]
    accelerator_type: str
    runtime_version: str
    bucket: str
    spot: bool = True
    patience_minutes: PositiveFloat = 120.0
    heartbeat_minutes: PositiveFloat = 45.0
    boot_minutes: NonNegativeFloat = 30.0
    max_attempts: PositiveInt = 100
    max_nodes: PositiveInt | None = None
    max_failures: PositiveInt = 5
    backoff_seconds: NonNegativeFloat = 60.0
    budget: NonNegativeFloat | None = None
    dollars_per_hour: NonNegativeFloat | None = None
    service_account: str | None = None
    network: str | None = None
    subnetwork: str | None = None
    external_ips: bool = True
    poll_seconds: PositiveFloat = 60.0
    compute: str = "jax"
    python: str | None = None
    device_kind: str = "TPU"
    node_folder: str = "/var/lib/multiberts"
    node_environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    node_heartbeat_seconds: PositiveFloat = 30.0
    push_seconds: PositiveFloat = 60.0
    silent_seconds: PositiveFloat = 90.0

    def check(self) -> None:
        """Refuses values that nothing can be done with.

        Raises:
          UserError: naming the first of them.
        """
        check_types("run.engine_options", vars(self), annotations_of(TpuSettings))
        if not self.zones:
            raise UserError(
                "zones is empty, expected at least one, such as ['us-central2-b']; name some"
            )
        kind, _, size = self.accelerator_type.rpartition("-")
        if kind and size.isdigit() and int(size) > _LARGEST_OF_ONE_HOST:
            raise UserError(
                f"accelerator_type is {self.accelerator_type!r}, a slice of several machines; a run in a "
                f"bucket is trained by one: ask for {kind}-{_LARGEST_OF_ONE_HOST}"
            )
        if self.compute == "tensorflow" and self.device_kind == "TPU":
            raise UserError(
                "compute is 'tensorflow', which does not train on TPUs; set compute = 'jax'"
            )
        if not is_url(self.bucket):
            raise UserError(
                f"bucket is {self.bucket!r}, expected a URL such as gs://bucket/experiment"
            )
        known = [name for name, file in REQUIREMENTS.items() if (PROJECT / file).is_file()]
        if self.compute not in known:
            raise UserError(
                f"compute is {self.compute!r}, expected one of {', '.join(known)}, for which there are "
                "requirements; name one of them"
            )
