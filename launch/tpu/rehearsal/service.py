"""A Cloud TPU service in this process, for rehearsals: gRPC, the real messages, mishaps by script.

It answers for `google.cloud.tpu.v2.Tpu`, Operations and Locations, so the unmodified client works
against it. Its nodes are processes of this machine that really run the start-up script.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
from google.cloud import tpu_v2
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import any_pb2

from multiberts.launch.tpu.node import METADATA_VARIABLE

# Read by the start-up script: the folder for all that it writes.
FOLDER_VARIABLE = "NODE_FOLDER"

# Enumerations of the client library, whose members no type checker knows.
_STATES: Any = tpu_v2.QueuedResourceState.State
_NODE_STATES: Any = tpu_v2.Node.State
_HEALTH: Any = tpu_v2.Node.Health


@dataclasses.dataclass
class Mishaps:
    """What goes wrong, and how often.

    Attributes:
      unavailable_every: every n-th call is answered with UNAVAILABLE; 0: none.
      outage: how many calls in a row, from the tenth on, are answered so.
      quota_errors: how many requests to create are refused, before any is accepted.
      stockouts: zones in which a request waits and never gets a node.
      failures: how many accepted requests fail afterwards for lack of capacity.
    """

    unavailable_every: int = 0
    outage: int = 0
    quota_errors: int = 0
    stockouts: tuple[str, ...] = ()
    failures: int = 0


class Metadata:
    """A node's metadata server: it says whether the node is being preempted."""

    def __init__(self) -> None:
        self.is_preempted = False
        self._server: ThreadingHTTPServer | None = None

    def open(self) -> str:
        """Starts it, and returns its `host:port`."""
        metadata = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(str(metadata.is_preempted).upper().encode())

            def log_message(self, *_: object) -> None:
                """Prints nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
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
        folder: Path,
        environment: dict[str, str] | None = None,
        mishaps: Mishaps | None = None,
        seconds_to_provision: float = 0.2,
    ):
        """Starts nothing yet.

        Args:
          zones: the accelerator types that each offers.
          runtime_versions: offered everywhere.
          folder: for the nodes' scripts.
          environment: of the nodes; None: this process's own.
          mishaps: what goes wrong.
          seconds_to_provision: from a request to its node.
        """
        self._zones = zones
        self._runtime_versions = runtime_versions
        self._folder = folder
        self._environment = environment
        self._mishaps = mishaps or Mishaps()
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
            ("google.longrunning.Operations", operations_pb2, {"GetOperation": _finished}),
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
            if state == _STATES.DELETING:
                del self._held[name]
            elif state == _STATES.ACCEPTED and age > self._seconds_to_provision / 2:
                _set_state(held.resource, "WAITING_FOR_RESOURCES")
            elif state == _STATES.WAITING_FOR_RESOURCES and age > self._seconds_to_provision:
                self._provision(name, held)

    def _provision(self, name: str, held: _Held) -> None:
        """Gives a resource its node, unless a mishap prevents it."""
        zone = name.split("/")[3]
        if zone in self._mishaps.stockouts:
            return
        if self._mishaps.failures:
            self._mishaps.failures -= 1
            _set_state(held.resource, "FAILED")
            error = held.resource.state.failed_data.error
            error.code, error.message = 8, f"There is no more capacity in the zone {zone}"
            return
        spec = held.resource.tpu.node_spec[0]
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

    def _create(self, request: tpu_v2.CreateQueuedResourceRequest) -> operations_pb2.Operation:
        self._check_zone(request.parent)
        if self._mishaps.quota_errors:
            self._mishaps.quota_errors -= 1
            raise _RefusedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota limit 'TPUPerProject' has been exceeded"
            )
        name = f"{request.parent}/queuedResources/{request.queued_resource_id}"
        if name in self._held:
            if self._held[name].request_id == request.request_id:
                return _operation(name)
            raise _RefusedError(grpc.StatusCode.ALREADY_EXISTS, f"{name} already exists")
        resource = tpu_v2.QueuedResource(request.queued_resource)
        resource.name = name
        resource.create_time = _now()
        _set_state(resource, "ACCEPTED")
        self._held[name] = _Held(resource, request.request_id)
        self.created.append(name)
        return _operation(name)

    def _delete(self, request: tpu_v2.DeleteQueuedResourceRequest) -> operations_pb2.Operation:
        held = self._found(request.name)
        if not request.force and held.resource.state.state == _STATES.ACTIVE:
            raise _RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION, f"{request.name} has nodes; use force"
            )
        end_node(held.process)
        held.metadata.close()
        _set_state(held.resource, "DELETING")
        return _operation(request.name)

    def _list(
        self, request: tpu_v2.ListQueuedResourcesRequest
    ) -> tpu_v2.ListQueuedResourcesResponse:
        self._check_zone(request.parent)
        found = [
            held.resource
            for name, held in self._held.items()
            if name.startswith(f"{request.parent}/")
        ]
        return tpu_v2.ListQueuedResourcesResponse(queued_resources=found)

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


def _operation(name: str) -> operations_pb2.Operation:
    """Returns an operation in progress, so that the client asks again."""
    return operations_pb2.Operation(name=f"{name}/operations/1", done=False)


def _finished(request: operations_pb2.GetOperationRequest) -> operations_pb2.Operation:
    packed = any_pb2.Any()
    packed.Pack(tpu_v2.QueuedResource.pb(tpu_v2.QueuedResource(name=request.name)))
    return operations_pb2.Operation(name=request.name, done=True, response=packed)


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
