"""A Cloud TPU service in this process: gRPC, the real messages, refusals as users report them.

It answers for `google.cloud.tpu.v2.Tpu`, Operations and Locations, so the unmodified client works
against it. Its nodes are processes of this machine that really run the start-up script.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import re
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import grpc
from google.cloud import tpu_v2
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import any_pb2
from google.rpc import status_pb2

from multiberts.launch.tpu.node import METADATA_VARIABLE

# Read by the start-up script: the folder for all that it writes.
FOLDER_VARIABLE = "NODE_FOLDER"

# Enumerations of the client library, whose members no type checker knows.
_STATES: Any = tpu_v2.QueuedResourceState.State
_NODE_STATES: Any = tpu_v2.Node.State
_HEALTH: Any = tpu_v2.Node.Health


# States in which the real service deletes without `force`; with it also ACTIVE. It refuses all others.
_DELETABLE = ("ACCEPTED", "WAITING_FOR_RESOURCES", "SUSPENDED", "FAILED")
# As Google's pages give the patterns of names and labels.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL, _LABEL_VALUE = re.compile(r"[a-z][-_a-z0-9]{0,62}"), re.compile(r"[-_a-z0-9]{0,63}")
_BYTES_OF_METADATA = 256 * 1024


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer to a request for a slice.

    Attributes:
      code: of google.rpc.Code.
      message: `{zone}` stands for the zone.
      where: it comes at once (`call`), as the end of the operation, or as the end of the resource.
    """

    code: int
    message: str
    where: Literal["call", "operation", "resource"] = "resource"


# Stock-outs, as users report them.
STOCK_OUTS = (
    Answer(8, 'There is no more capacity in the zone "{zone}"'),
    Answer(
        8, "Insufficient reserved capacity. Contact customer support to increase your reservation."
    ),
    Answer(
        8,
        "ZONE_RESOURCE_POOL_EXHAUSTED: the slice is currently unavailable in {zone}.",
        "operation",
    ),
    Answer(8, "The zone '{zone}' does not have enough resources available.", "operation"),
    Answer(13, "an internal error has occurred"),
    Answer(5, "Reservation not found", "operation"),
)
NO_QUOTA = Answer(
    8, "Quota limit 'TPUV4sPodPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 0", "call"
)
INTERNAL = Answer(13, "Internal error encountered.", "call")
PRECONDITION = Answer(9, "The operation cannot be carried out now.", "operation")


@dataclasses.dataclass
class Mishaps:
    """What goes wrong, and how often.

    Attributes:
      unavailable_every: every n-th call is answered with UNAVAILABLE; 0: none.
      outage: how many calls in a row, from the tenth on, are answered so.
      answers: to the first requests to create, one each; later ones are accepted.
      stockouts: zones in which a request waits and never gets a node.
      looks_provisioning, looks_deleting: how many lists of resources show one in that state at least.
      addresses: how many nodes with an external address a region allows; None: any number.
    """

    unavailable_every: int = 0
    outage: int = 0
    answers: Sequence[Answer] = ()
    stockouts: tuple[str, ...] = ()
    looks_provisioning: int = 0
    looks_deleting: int = 0
    addresses: int | None = None


class Metadata:
    """A node's metadata server: it says whether the node is being preempted or maintained."""

    def __init__(self) -> None:
        self.is_preempted = False
        self.maintenance = "NONE"
        self._server: ThreadingHTTPServer | None = None

    def open(self) -> str:
        """Starts it, and returns its `host:port`."""
        metadata = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                keys = {
                    "/computeMetadata/v1/instance/preempted": str(metadata.is_preempted).upper(),
                    "/computeMetadata/v1/instance/maintenance-event": metadata.maintenance,
                }
                is_known = self.path in keys and self.headers["Metadata-Flavor"] == "Google"
                self.send_response(200 if is_known else 404)
                self.end_headers()
                self.wfile.write(keys.get(self.path, "").encode())

            def log_message(self, *_: object) -> None:
                """Prints nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stops it, if it runs."""
        server, self._server = self._server, None  # deletion and preemption may come together
        if server is not None:
            server.shutdown()
            server.server_close()


@dataclasses.dataclass
class _Held:
    """A queued resource and its node."""

    resource: tpu_v2.QueuedResource
    request_id: str
    process: subprocess.Popen[bytes] | None = None
    node: tpu_v2.Node | None = None
    metadata: Metadata = dataclasses.field(default_factory=lambda: Metadata())
    answer: Answer | None = None
    looks: int = 0


class TpuService:
    """The service, while the block runs.

    Attributes:
      address: `host:port`, without encryption.
      calls: names of all calls, in order.
      refused: names of those that were not answered.
      created: names of the resources that were created, in order.
    """

    def __init__(
        self,
        *,
        zones: Mapping[str, Sequence[str]],
        runtime_versions: tuple[str, ...],
        unlisted_versions: tuple[str, ...] = (),
        folder: Path,
        environment: dict[str, str] | None = None,
        mishaps: Mishaps | None = None,
        seconds_to_provision: float = 0.2,
    ):
        """Starts nothing yet.

        Args:
          zones: the accelerator types that each offers.
          runtime_versions: offered everywhere.
          unlisted_versions: offered, too, and missing in the list, as it is reported of the real one.
          folder: for the nodes' scripts.
          environment: of the nodes; None: this process's own.
          mishaps: what goes wrong.
          seconds_to_provision: from a request to its node.
        """
        self._zones = zones
        self._runtime_versions = runtime_versions
        self._unlisted_versions = unlisted_versions
        self._folder = folder
        self._environment = environment
        self._mishaps = mishaps or Mishaps()
        self._answers = list(self._mishaps.answers)
        self._operations: list[tuple[str, Answer | None]] = []
        self._seconds_to_provision = seconds_to_provision
        self._held: dict[str, _Held] = {}
        self._using = threading.RLock()
        self.address = ""
        self.calls: list[str] = []
        self.refused: list[str] = []
        self.created: list[str] = []

    def __enter__(self) -> TpuService:
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers(tuple(self._handlers()))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        self._server.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.stop(None)
        with self._using:
            for held in self._held.values():
                end_node(held.process)
                held.metadata.close()

    def client(self) -> tpu_v2.TpuClient:
        """Returns the unmodified client, connected to this service."""
        from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

        channel = grpc.insecure_channel(self.address)
        return tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))

    def nodes(self) -> dict[str, Path]:
        """Returns the folders of the nodes that run, by the resource's full name."""
        with self._using:
            return {
                name: self._folder / _name_of_node(held.resource)
                for name, held in self._held.items()
                if held.process is not None and held.process.poll() is None
            }

    def resources(self) -> list[str]:
        """Returns the full names of all queued resources."""
        with self._using:
            return list(self._held)

    def add(self, name: str, resource: tpu_v2.QueuedResource) -> None:
        """Adds a resource that somebody else made."""
        with self._using:
            resource.name, resource.create_time = name, _now()
            _set_state(resource, "ACTIVE")
            self._held[name] = _Held(resource, "")

    def preempt(self, name: str, seconds_of_notice: float, by_metadata: bool = False) -> None:
        """Preempts a node: SIGTERM to the start-up script's processes, then SIGKILL.

        Args:
          name: the resource's full name.
          seconds_of_notice: between the two; 0: no SIGTERM.
          by_metadata: the metadata server gives notice, and nobody sends SIGTERM.
        """
        held = self._held[name]
        with self._using:
            _set_state(held.resource, "SUSPENDING")
        if by_metadata and held.process is not None:
            held.metadata.is_preempted = True
            with contextlib.suppress(subprocess.TimeoutExpired):
                held.process.wait(seconds_of_notice)
            seconds_of_notice = 0.0
        end_node(held.process, seconds_of_notice)
        held.metadata.close()
        with self._using:
            if held.node is not None:
                held.node.state = _NODE_STATES["PREEMPTED"]
            if held.resource.state.state == _STATES.SUSPENDING:
                _set_state(held.resource, "SUSPENDED")

    def announce_maintenance(self, name: str) -> None:
        """Has a node's metadata server announce that its host will be maintained."""
        self._held[name].metadata.maintenance = "TERMINATE_ON_HOST_MAINTENANCE"

    def maintain(self, name: str) -> None:
        """Takes a node's host into repair."""
        node = self._held[name].node
        assert node is not None
        node.state, node.health = _NODE_STATES["REPAIRING"], _HEALTH["UNHEALTHY_MAINTENANCE"]

    def set_state(self, name: str, state: str) -> None:
        """Puts a resource into a state of the service."""
        with self._using:
            _set_state(self._held[name].resource, state)

    def _handlers(self) -> Iterator[grpc.GenericRpcHandler]:
        """Yields what a gRPC server needs to answer each service's calls."""
        for service, messages, calls in (
            (
                "google.cloud.tpu.v2.Tpu",
                tpu_v2,
                {
                    "CreateQueuedResource": self._create,
                    "DeleteQueuedResource": self._delete,
                    "ListQueuedResources": self._list,
                    "GetQueuedResource": self._get,
                    "GetNode": self._get_node,
                    "ListAcceleratorTypes": self._types,
                    "ListRuntimeVersions": self._versions,
                },
            ),
            ("google.longrunning.Operations", operations_pb2, {"GetOperation": self._finished}),
            (
                "google.cloud.location.Locations",
                locations_pb2,
                {"ListLocations": self._locations},
            ),
        ):
            handlers = {}
            for name, function in calls.items():
                request = getattr(messages, f"{name}Request")
                # Messages of the client library have other methods than those of Protocol Buffers.
                parse = getattr(request, "deserialize", None) or request.FromString
                handlers[name] = grpc.unary_unary_rpc_method_handler(
                    self._guarded(function), parse, _bytes
                )
            yield grpc.method_handlers_generic_handler(service, handlers)

    def _guarded(self, function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        """Returns a call that sometimes gets no answer, and whose refusals have their status."""

        def call(request: Any, context: grpc.ServicerContext) -> Any:
            with self._using:
                name = function.__name__.removeprefix("_")
                self.calls.append(name)
                number, every = len(self.calls), self._mishaps.unavailable_every
                is_out = 10 <= number < 10 + self._mishaps.outage
                if is_out or (every and number % every == 0):
                    self.refused.append(name)
                    context.abort(grpc.StatusCode.UNAVAILABLE, "the service is unavailable")
                try:
                    self._advance()
                    return function(request)
                except _RefusedError as refusal:
                    context.abort(refusal.status, str(refusal))

        return call

    def _advance(self) -> None:
        """Brings every resource to the state that it has by now."""
        now = time.time()
        for name, held in list(self._held.items()):
            state = held.resource.state.state
            age = now - held.resource.create_time.timestamp()
            if state == _STATES.DELETING and held.looks >= self._mishaps.looks_deleting:
                del self._held[name]
            elif state == _STATES.ACCEPTED and age > self._seconds_to_provision / 2:
                _set_state(held.resource, "WAITING_FOR_RESOURCES")
            elif state == _STATES.WAITING_FOR_RESOURCES and age > self._seconds_to_provision:
                self._provision(name, held)
            elif state == _STATES.PROVISIONING and held.looks >= self._mishaps.looks_provisioning:
                self._boot(name, held)

    def _provision(self, name: str, held: _Held) -> None:
        """Begins to make a resource's node, unless a mishap prevents it."""
        zone = name.split("/")[3]
        if zone in self._mishaps.stockouts:
            return
        if held.answer is not None:
            self._fail(held, held.answer.code, held.answer.message.format(zone=zone))
        else:
            held.looks = 0
            _set_state(held.resource, "PROVISIONING")
            if not self._mishaps.looks_provisioning:
                self._boot(name, held)

    def _boot(self, name: str, held: _Held) -> None:
        """Gives a resource its node, if its region has an external address for it."""
        region, spec = name.split("/")[3].rpartition("-")[0], held.resource.tpu.node_spec[0]
        taken = sum(
            other.node is not None and other_name.split("/")[3].startswith(f"{region}-")
            for other_name, other in self._held.items()
        )
        limit = self._mishaps.addresses
        if spec.node.network_config.enable_external_ips and limit is not None and taken >= limit:
            message = f"Quota 'IN_USE_ADDRESSES' exceeded. Limit: {limit}.0 in region {region}."
            self._fail(held, 8, message)
            return
        held.node = tpu_v2.Node(spec.node)
        held.node.name = f"{spec.parent}/nodes/{spec.node_id}"
        held.node.state = _NODE_STATES["READY"]
        held.node.health = _HEALTH["HEALTHY"]
        held.node.create_time = _now()
        held.process = start_node(
            self._folder / _name_of_node(held.resource),
            spec.node.metadata["startup-script"],
            {
                **(os.environ if self._environment is None else self._environment),
                METADATA_VARIABLE: held.metadata.open(),
            },
        )
        _set_state(held.resource, "ACTIVE")

    def _fail(self, held: _Held, code: int, message: str) -> None:
        _set_state(held.resource, "FAILED")
        error = held.resource.state.failed_data.error
        error.code, error.message = code, message

    def _check_request(self, request: tpu_v2.CreateQueuedResourceRequest, zone: str) -> None:
        """Refuses what the real service would call an invalid argument."""
        [spec] = request.queued_resource.tpu.node_spec
        node, labels = spec.node, spec.node.labels
        size = sum(len(key) + len(value.encode()) for key, value in node.metadata.items())
        software = (*self._runtime_versions, *self._unlisted_versions)
        for is_right, found in (
            (_NAME.fullmatch(request.queued_resource_id), request.queued_resource_id),
            (_NAME.fullmatch(spec.node_id), spec.node_id),
            (spec.parent == request.parent, spec.parent),
            (uuid.UUID(request.request_id).int != 0, request.request_id),
            (node.accelerator_type in self._zones[zone], node.accelerator_type),
            (node.runtime_version in software, node.runtime_version),
            (all(map(_LABEL.fullmatch, labels)), labels),
            (all(map(_LABEL_VALUE.fullmatch, labels.values())), labels),
            (size < _BYTES_OF_METADATA, f"metadata of {size} bytes"),
        ):
            if not is_right:
                raise _RefusedError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"Cloud TPU received a bad request: {found} is invalid",
                )

    def _create(self, request: tpu_v2.CreateQueuedResourceRequest) -> operations_pb2.Operation:
        zone = self._check_zone(request.parent)
        self._check_request(request, zone)
        name = f"{request.parent}/queuedResources/{request.queued_resource_id}"
        if name in self._held:
            if self._held[name].request_id == request.request_id:
                return self._operation(request.parent)
            raise _RefusedError(grpc.StatusCode.ALREADY_EXISTS, f"{name} already exists")
        answer = self._answers.pop(0) if self._answers else None
        if answer is not None and answer.where != "resource":
            answer = dataclasses.replace(answer, message=answer.message.format(zone=zone))
            if answer.where == "call":
                status = next(one for one in grpc.StatusCode if one.value[0] == answer.code)
                raise _RefusedError(status, answer.message)
            return self._operation(request.parent, answer)
        resource = tpu_v2.QueuedResource(request.queued_resource)
        resource.name = name
        resource.create_time = _now()
        _set_state(resource, "ACCEPTED")
        self._held[name] = _Held(resource, request.request_id, answer=answer)
        self.created.append(name)
        return self._operation(request.parent)

    def _delete(self, request: tpu_v2.DeleteQueuedResourceRequest) -> operations_pb2.Operation:
        held = self._found(request.name)
        state = held.resource.state.state.name
        if state not in _DELETABLE and not (request.force and state == "ACTIVE"):
            raise _RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"DeleteQueuedResource is not supported when state is {state} (must be one of "
                f"[{' '.join(_DELETABLE)}])",
            )
        end_node(held.process)
        held.metadata.close()
        held.node, held.looks = None, 0
        _set_state(held.resource, "DELETING")
        return self._operation(request.name.partition("/queuedResources/")[0])

    def _operation(self, parent: str, answer: Answer | None = None) -> operations_pb2.Operation:
        """Returns an operation in progress, so that the client asks again."""
        name = f"{parent}/operations/operation-{len(self._operations)}"
        self._operations.append((name, answer))
        return operations_pb2.Operation(name=name, done=False)

    def _finished(self, request: operations_pb2.GetOperationRequest) -> operations_pb2.Operation:
        answer = dict(self._operations)[request.name]
        if answer is not None:
            error = status_pb2.Status(code=answer.code, message=answer.message)
            return operations_pb2.Operation(name=request.name, done=True, error=error)
        packed = any_pb2.Any()
        packed.Pack(tpu_v2.QueuedResource.pb(tpu_v2.QueuedResource(name=request.name)))
        return operations_pb2.Operation(name=request.name, done=True, response=packed)

    def _list(
        self, request: tpu_v2.ListQueuedResourcesRequest
    ) -> tpu_v2.ListQueuedResourcesResponse:
        self._check_zone(request.parent)
        found = [held for name, held in self._held.items() if name.startswith(f"{request.parent}/")]
        for held in found:
            held.looks += 1
        shown = [held.resource for held in found]
        return tpu_v2.ListQueuedResourcesResponse(queued_resources=shown)

    def _get(self, request: tpu_v2.GetQueuedResourceRequest) -> tpu_v2.QueuedResource:
        return self._found(request.name).resource

    def _get_node(self, request: tpu_v2.GetNodeRequest) -> tpu_v2.Node:
        for held in self._held.values():
            if held.node is not None and held.node.name == request.name:
                return held.node
        raise _RefusedError(grpc.StatusCode.NOT_FOUND, f"{request.name} does not exist")

    def _types(self, request: Any) -> tpu_v2.ListAcceleratorTypesResponse:
        zone = self._check_zone(request.parent)
        named = [{"name": f"{request.parent}/acceleratorTypes/{one}"} for one in self._zones[zone]]
        return tpu_v2.ListAcceleratorTypesResponse(accelerator_types=named)

    def _versions(self, request: Any) -> tpu_v2.ListRuntimeVersionsResponse:
        self._check_zone(request.parent)
        parent = f"{request.parent}/runtimeVersions"
        named = [{"name": f"{parent}/{one}"} for one in self._runtime_versions]
        return tpu_v2.ListRuntimeVersionsResponse(runtime_versions=named)

    def _locations(
        self, _request: locations_pb2.ListLocationsRequest
    ) -> locations_pb2.ListLocationsResponse:
        return locations_pb2.ListLocationsResponse(
            locations=[locations_pb2.Location(location_id=zone) for zone in self._zones]
        )

    def _check_zone(self, parent: str) -> str:
        zone = parent.split("/")[3]
        if zone not in self._zones:
            raise _RefusedError(
                grpc.StatusCode.PERMISSION_DENIED, f"Location {zone} is not found or unauthorized"
            )
        return zone

    def _found(self, name: str) -> _Held:
        if name not in self._held:
            raise _RefusedError(grpc.StatusCode.NOT_FOUND, f"{name} does not exist")
        return self._held[name]


class _RefusedError(Exception):
    """Ends a call with a status."""

    def __init__(self, status: grpc.StatusCode, message: str):
        super().__init__(message)
        self.status = status


def _name_of_node(resource: tpu_v2.QueuedResource) -> str:
    """Returns a name that differs from attempt to attempt."""
    spec = resource.tpu.node_spec[0]
    return f"{spec.node_id}-{spec.node.labels.get('attempt', '')}"


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _set_state(resource: tpu_v2.QueuedResource, state: str) -> None:
    resource.state = tpu_v2.QueuedResourceState(state=_STATES[state])


def _bytes(answer: Any) -> bytes:
    serialize = getattr(type(answer), "serialize", None) or type(answer).SerializeToString
    return bytes(serialize(answer))


def start_node(
    folder: Path, script: str, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Boots a node as processes of this machine: the start-up script in a session of its own.

    Args:
      folder: stands for the node's disk.
      script: the start-up script.
      environment: of the node; None: this process's own.

    Returns:
      The shell that runs the script, or what the script put in its place.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "startup.sh"
    file.write_text(script)
    with open(folder / "console", "ab") as console:
        return subprocess.Popen(
            ["bash", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            env={
                **(os.environ if environment is None else environment),
                FOLDER_VARIABLE: str(folder),
            },
            start_new_session=True,
        )


def end_node(process: subprocess.Popen[bytes] | None, seconds_of_notice: float = 0.0) -> None:
    """Ends a node: SIGTERM to all its processes, then SIGKILL.

    Args:
      process: from `start_node`; None: nothing to do.
      seconds_of_notice: between the two; 0: no SIGTERM.
    """
    if process is None:
        return
    if seconds_of_notice:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds_of_notice)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
