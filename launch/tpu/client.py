"""The Cloud TPU service: the calls that the launcher needs, and plain records of the answers.

Only this module knows google-cloud-tpu, whose interface is frozen and will have a successor, and only it
and google.toml know Google's names of states, error codes, accelerators and software.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from multiberts.launch.tpu.settings import TpuSettings, google_names
from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    from google.cloud import tpu_v2

# Marks what this program created; nothing without it is ever deleted.
LABEL = "launched-by"
OUR_LABEL = "multiberts-launch"
# Further labels.
EXPERIMENT = "experiment"
RUN = "run"
ATTEMPT = "attempt"

# States of a queued resource that the launcher waits through; PROVISIONING is apart, as it refuses deletion.
_WAITING = frozenset({"CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES"})
_TAKEN = frozenset({"PREEMPTED", "TERMINATED", "STOPPED", "STOPPING", "DELETING"})
_IN_MAINTENANCE = frozenset({"REPAIRING", "RESTARTING"})

# Kinds of google.rpc.Code; all others are refusals.
_EXHAUSTED, _NOT_FOUND, _PRECONDITION, _INTERNAL, _UNAVAILABLE = 8, 5, 9, 13, 14
_KINDS = {
    _PRECONDITION: "Busy",
    10: "Busy",  # ABORTED: two calls met
    2: "Internal",
    _INTERNAL: "Internal",
    1: "Unreachable",
    4: "Unreachable",
    _UNAVAILABLE: "Unreachable",
}
# Kinds that may pass: the same is asked again before the zone is left.
PASSING = frozenset({"Busy", "Internal", "Unreachable"})

# Advice where a project is refused.
RIGHTS = (
    "check project and zones, that the Cloud TPU API (tpu.googleapis.com) is enabled, and that you have "
    "the role TPU Admin"
)

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_SECONDS_FOR_A_CALL = 60.0
# For the service to accept a request; what follows shows in the list of resources.
_SECONDS_TO_ACCEPT = 60.0

_NAMESPACE = uuid.UUID("6f1f0d0e-6a53-4b0f-9d0a-3f1f4f7b2c55")


class TpuError(Exception):
    """A call failed; `kind` is that of `kind_of`."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


def kind_of(code: int, message: str) -> str:
    """Returns what a failure leads to: by its code, and by words only where one code has two meanings.

    Returns:
      `Stockout` (no machine is left), `Quota` (none is allowed), `Busy`, `Internal` or `Unreachable` (may
      pass), or `Refused`.

    Example:
      >>> kind_of(8, "Quota 'X' exceeded. Limit: 4"), kind_of(8, "Insufficient reserved capacity")
      ('Quota', 'Stockout')
      >>> kind_of(5, "Reservation not found"), kind_of(5, "network x was not found")
      ('Stockout', 'Refused')
    """
    lowered = message.lower()
    if code == _EXHAUSTED:
        return "Quota" if "quota" in lowered else "Stockout"
    # Spot requests get this answer where no machine is left, though nothing was reserved.
    if code == _NOT_FOUND and "reservation" in lowered:
        return "Stockout"
    return _KINDS.get(code, "Refused")


def needs_person(message: str) -> str | None:
    """Returns what only a person can do about a refusal, if waiting cures nothing."""
    if re.search(r"\blimit:?\s*0(\.0+)?(?!\.?\d)", message, re.IGNORECASE):
        return f"a quota of 0 needs a person who asks for more at {google_names()['console']}"
    if "billing" in message.lower():
        return "billing is off, and needs a person who links a billing account to the project"
    return None


@dataclasses.dataclass(frozen=True)
class Node:
    """A machine with a TPU.

    Attributes:
      state: the service's word, such as `READY` or `PREEMPTED`.
      health: the service's word, such as `HEALTHY`.
      created: Unix seconds.
    """

    state: str
    health: str
    created: float
    message: str = ""

    @property
    def is_ready(self) -> bool:
        return self.state == "READY"

    @property
    def is_taken(self) -> bool:
        return self.state in _TAKEN

    @property
    def is_in_maintenance(self) -> bool:
        """Returns whether Google works on it; afterwards it boots again."""
        return self.state in _IN_MAINTENANCE or self.health == "UNHEALTHY_MAINTENANCE"


@dataclasses.dataclass(frozen=True)
class Resource:
    """A queued resource of ours.

    Attributes:
      state: the service's word, such as `ACTIVE`.
      created: Unix seconds.
      code, message: what went wrong, where the service says so.
    """

    name: str
    zone: str
    state: str
    created: float
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    code: int = 0
    message: str = ""

    @property
    def is_waiting(self) -> bool:
        """Returns whether it stands in the queue, and costs nothing."""
        return self.state in _WAITING

    @property
    def is_provisioning(self) -> bool:
        """Returns whether its node is being made; meanwhile it cannot be deleted."""
        return self.state == "PROVISIONING"

    @property
    def is_active(self) -> bool:
        return self.state == "ACTIVE"

    @property
    def is_suspending(self) -> bool:
        return self.state == "SUSPENDING"

    @property
    def is_suspended(self) -> bool:
        """Returns whether its node is taken away; until it is deleted it counts against the quota."""
        return self.state == "SUSPENDED"

    @property
    def has_failed(self) -> bool:
        """Returns whether the service gave it up; until it is deleted it counts against the quota."""
        return self.state == "FAILED"

    @property
    def is_deleting(self) -> bool:
        return self.state == "DELETING"

    @property
    def failure(self) -> str:
        """Returns the kind of its failure; see `kind_of`."""
        return kind_of(self.code, self.message)


class Provisioner:
    """Queued resources of one project."""

    def __init__(
        self,
        project: str,
        client: tpu_v2.TpuClient | None = None,
        seconds_to_retry: float = 60.0,
    ):
        """Opens no connection.

        Args:
          client: None: one with this machine's credentials.
          seconds_to_retry: how long a call is repeated while the service is unavailable.
        """
        self.project = project
        # Its methods have no types.
        self._client: Any = _default_client() if client is None else client
        from google.api_core import exceptions, retry

        self._options: dict[str, Any] = {
            "timeout": _SECONDS_FOR_A_CALL,
            "retry": retry.Retry(
                predicate=retry.if_exception_type(
                    exceptions.ServiceUnavailable, exceptions.DeadlineExceeded
                ),
                initial=0.5,
                timeout=seconds_to_retry,
            ),
        }

    def create(
        self,
        settings: TpuSettings,
        *,
        zone: str,
        name: str,
        request: str,
        startup_script: str,
        labels: Mapping[str, str],
    ) -> None:
        """Asks for one single-host slice; the same request again changes nothing.

        Args:
          settings: accelerator, software, network and price class of the node.
          name: of the queued resource and of its node.
          request: from `request_id`; distinguishes a new request from a repeated one.
          labels: of the node, in addition to ours.

        Raises:
          TpuError: it was not accepted.
        """
        from google.api_core import exceptions
        from google.cloud import tpu_v2

        parent = self._parent(zone)
        node: dict[str, Any] = {
            "accelerator_type": settings.accelerator_type,
            "runtime_version": settings.software,
            "labels": {**labels, LABEL: OUR_LABEL},
            "metadata": {"startup-script": startup_script},
            "network_config": {
                "network": settings.network or "",
                "subnetwork": settings.subnetwork or "",
                "enable_external_ips": settings.external_ips,
            },
        }
        if settings.service_account is not None:
            node["service_account"] = {"email": settings.service_account, "scope": [_SCOPE]}
        spec = {"parent": parent, "node_id": name, "node": node}
        resource = tpu_v2.QueuedResource(tpu={"node_spec": [spec]})
        if settings.spot:
            resource.spot = tpu_v2.QueuedResource.Spot()
        call = tpu_v2.CreateQueuedResourceRequest(
            parent=parent,
            queued_resource_id=name,
            queued_resource=resource,
            request_id=request,
        )
        with _clear_errors():
            try:
                operation = self._client.create_queued_resource(call, **self._options)
                with contextlib.suppress(TimeoutError, exceptions.RetryError):
                    operation.result(timeout=_SECONDS_TO_ACCEPT)
            except exceptions.AlreadyExists:
                self._check_existing(f"{parent}/queuedResources/{name}", zone)

    def _check_existing(self, name: str, zone: str) -> None:
        """Looks at the resource whose name is taken.

        Raises:
          TpuError: it is somebody else's, or it is being deleted: then the name is free in a while.
        """
        found = _resource(self._client.get_queued_resource(name=name, **self._options), zone)
        if found.labels.get(LABEL) != OUR_LABEL:
            raise TpuError("Refused", f"{name} exists and is not ours")
        if found.is_deleting:
            raise TpuError("Busy", f"{name} is still being deleted")

    def resources(self, zone: str) -> list[Resource]:
        """Returns all queued resources of ours in a zone.

        Raises:
          TpuError: the service does not answer, or the zone is unknown.
        """
        with _clear_errors():
            found = self._client.list_queued_resources(parent=self._parent(zone), **self._options)
            resources = [_resource(one, zone) for one in found]
        return [one for one in resources if one.labels.get(LABEL) == OUR_LABEL]

    def delete(self, resource: Resource) -> None:
        """Deletes a queued resource with its node; one that is gone already is left.

        Raises:
          TpuError: the service does not answer, or does not delete it in this state.
        """
        from google.api_core import exceptions
        from google.cloud import tpu_v2

        if resource.labels.get(LABEL) != OUR_LABEL:
            raise ValueError(f"{resource.name} does not have the label {LABEL}={OUR_LABEL}")
        name = f"{self._parent(resource.zone)}/queuedResources/{resource.name}"
        with _clear_errors(), contextlib.suppress(exceptions.NotFound):
            self._client.delete_queued_resource(
                tpu_v2.DeleteQueuedResourceRequest(name=name, force=True),
                **self._options,
            )

    def node(self, resource: Resource) -> Node | None:
        """Returns the node of a queued resource; None before there is one."""
        from google.api_core import exceptions

        with _clear_errors():
            try:
                found = self._client.get_node(
                    name=f"{self._parent(resource.zone)}/nodes/{resource.name}",
                    **self._options,
                )
            except exceptions.NotFound:
                return None
        message = found.health_description
        return Node(found.state.name, found.health.name, found.create_time.timestamp(), message)

    def zones(self) -> list[str]:
        from google.cloud.location import locations_pb2

        request = locations_pb2.ListLocationsRequest(name=f"projects/{self.project}", page_size=500)
        with _clear_errors():
            found = self._client.list_locations(request, **self._options)
        return sorted(location.location_id for location in found.locations)

    def accelerator_types(self, zone: str) -> list[str]:
        return self._offered("list_accelerator_types", zone)

    def runtime_versions(self, zone: str) -> list[str]:
        """Returns software that a zone offers; by reports of users the service's list lacks some of it."""
        return self._offered("list_runtime_versions", zone)

    def _offered(self, call: str, zone: str) -> list[str]:
        with _clear_errors():
            found = getattr(self._client, call)(parent=self._parent(zone), **self._options)
            return sorted(one.name.rsplit("/", 1)[1] for one in found)

    def _parent(self, zone: str) -> str:
        return f"projects/{self.project}/locations/{zone}"


def request_id(salt: str, name: str, attempt: int) -> str:
    """Returns an id that is the same for the same attempt, so that a repeated call creates nothing."""
    return str(uuid.uuid5(_NAMESPACE, f"{salt}/{name}#{attempt}"))


def _resource(found: tpu_v2.QueuedResource, zone: str) -> Resource:
    specs = list(found.tpu.node_spec)
    state = found.state
    return Resource(
        name=found.name.rsplit("/", 1)[1],
        zone=zone,
        state=state.state.name,
        created=found.create_time.timestamp() if found.create_time else 0.0,
        labels=dict(specs[0].node.labels) if specs else {},
        code=state.failed_data.error.code if "failed_data" in state else 0,
        message=state.failed_data.error.message if "failed_data" in state else "",
    )


def _default_client() -> Any:
    try:
        from google.auth.exceptions import DefaultCredentialsError
        from google.cloud import tpu_v2
    except ImportError as error:
        raise UserError(
            f"Cloud TPU needs google-cloud-tpu ({error}); install multiberts[cloud]"
        ) from error
    try:
        return tpu_v2.TpuClient()
    except DefaultCredentialsError as error:
        raise UserError(
            "nobody is signed in to Google Cloud here; run `gcloud auth application-default "
            "login`, or set GOOGLE_APPLICATION_CREDENTIALS to a service account's key"
        ) from error


@contextlib.contextmanager
def _clear_errors() -> Iterator[None]:
    """Turns the client's errors into ours."""
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except exceptions.RetryError as error:
        raise TpuError("Unreachable", str(error)) from error
    except exceptions.GoogleAPICallError as error:
        status = error.grpc_status_code
        code = getattr(status, "value", (_INTERNAL,))[0]
        raise TpuError(kind_of(code, error.message or ""), error.message or str(error)) from error
    except GoogleAuthError as error:
        raise TpuError("Refused", f"signing in failed: {error}") from error
