"""A Cloud TPU service in this process, for rehearsals: gRPC, the real messages, mishaps by script.

It answers for `google.cloud.tpu.v2.Tpu`, Operations and Locations, so the unmodified client works
against it. Its nodes are processes of this machine that really run the start-up script.
"""

from __future__ import annotations

import dataclasses
import datetime
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.cloud import tpu_v2
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import any_pb2

from multiberts.launch.tpu.rehearsal.local_node import end_node, start_node

# Enumerations as the client library has them; no type checker knows their names.
_STATES: Any = tpu_v2.QueuedResourceState.State
_NODE_STATES: Any = tpu_v2.Node.State
_HEALTH: Any = tpu_v2.Node.Health


@dataclasses.dataclass
class Mishaps:
    """What goes wrong, in order and in numbers.

    Attributes:
      unavailable_every: every n-th call is answered with UNAVAILABLE; 0: none.
      outage: so many calls in a row, from the tenth on, are answered so.
      quota_errors: so many requests to create are refused, first of all.
      stockouts: zones in which a request waits and never gets a node.
      failures: so many requests that are accepted fail afterwards, for want of capacity.
    """

    unavailable_every: int = 0
    outage: int = 0
    quota_errors: int = 0
    stockouts: tuple[str, ...] = ()
    failures: int = 0


@dataclasses.dataclass
class _Held:
    """A queued resource and its node."""

    resource: tpu_v2.QueuedResource
    request_id: str
    process: subprocess.Popen[bytes] | None = None
    node: tpu_v2.Node | None = None


class TpuService:
    """The service, while the block runs.

    Attributes:
      address: `host:port`, without encryption.
      calls: names of the calls that were answered, in order.
      created: names of the resources that were made, in order.
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
        handlers = _handlers_of(
            {
                "CreateQueuedResource": self._guarded(self._create),
                "DeleteQueuedResource": self._guarded(self._delete),
                "GetQueuedResource": self._guarded(self._get),
                "ListQueuedResources": self._guarded(self._list),
                "GetNode": self._guarded(self._get_node),
                "ListAcceleratorTypes": self._guarded(self._types),
                "ListRuntimeVersions": self._guarded(self._versions),
                "GetOperation": self._guarded(_finished),
                "ListLocations": self._guarded(self._places),
            }
        )
        self._server.add_generic_rpc_handlers(handlers)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        self._server.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.stop(None)
        with self._using:
            for held in self._held.values():
                end_node(held.process)

    def client(self) -> tpu_v2.TpuClient:
        """Returns the unmodified client, connected to this service."""
        from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

        channel = grpc.insecure_channel(self.address)
        return tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))

    def nodes(self) -> dict[str, Path]:
        """Folders of the nodes that run, by the resource's whole name."""
        with self._using:
            return {
                name: self._folder / _name_of_node(held.resource)
                for name, held in self._held.items()
                if held.process is not None and held.process.poll() is None
            }

    def resources(self) -> list[str]:
        """Whole names of all queued resources there are."""
        with self._using:
            return list(self._held)

    def add(self, name: str, resource: tpu_v2.QueuedResource) -> None:
        """Adds a resource that somebody else made."""
        with self._using:
            resource.name, resource.create_time = name, _now()
            _set_state(resource, "ACTIVE")
            self._held[name] = _Held(resource, "")

    def preempt(self, name: str, seconds_of_notice: float) -> None:
        """Takes a node away: SIGTERM to the start-up script's processes, then SIGKILL.

        Args:
          name: the resource's whole name.
          seconds_of_notice: between the two; 0: no SIGTERM.
        """
        held = self._held[name]
        with self._using:
            _set_state(held.resource, "SUSPENDING")
        end_node(held.process, seconds_of_notice)
        with self._using:
            if held.node is not None:
                held.node.state = _NODE_STATES["PREEMPTED"]
            if held.resource.state.state == _STATES.SUSPENDING:
                _set_state(held.resource, "SUSPENDED")

    def _guarded(self, function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        """Returns a call that now and then is not answered, and whose refusals have their status."""

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
                    self._go_on()
                    return function(request)
                except _RefusedError as refusal:
                    context.abort(refusal.status, str(refusal))

        return call

    def _go_on(self) -> None:
        """Moves every resource on to the state it has by now."""
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
        """Gives a resource its node, or not."""
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
            self._environment,
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
        _set_state(held.resource, "DELETING")
        return _operation(request.name)

    def _get(self, request: tpu_v2.GetQueuedResourceRequest) -> tpu_v2.QueuedResource:
        return self._found(request.name).resource

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

    def _get_node(self, request: tpu_v2.GetNodeRequest) -> tpu_v2.Node:
        for held in self._held.values():
            if held.node is not None and held.node.name == request.name:
                return held.node
        raise _RefusedError(grpc.StatusCode.NOT_FOUND, f"{request.name} does not exist")

    def _types(
        self, request: tpu_v2.ListAcceleratorTypesRequest
    ) -> tpu_v2.ListAcceleratorTypesResponse:
        zone = self._check_zone(request.parent)
        return tpu_v2.ListAcceleratorTypesResponse(
            accelerator_types=[tpu_v2.AcceleratorType(type_=name) for name in self._zones[zone]]
        )

    def _versions(
        self, request: tpu_v2.ListRuntimeVersionsRequest
    ) -> tpu_v2.ListRuntimeVersionsResponse:
        self._check_zone(request.parent)
        return tpu_v2.ListRuntimeVersionsResponse(
            runtime_versions=[
                tpu_v2.RuntimeVersion(version=name) for name in self._runtime_versions
            ]
        )

    def _places(
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
    """Another one for each attempt."""
    spec = resource.tpu.node_spec[0]
    return f"{spec.node_id}-{spec.node.labels.get('attempt', '')}"


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _set_state(resource: tpu_v2.QueuedResource, state: str) -> None:
    resource.state = tpu_v2.QueuedResourceState(state=_STATES[state])


def _operation(name: str) -> operations_pb2.Operation:
    """Returns one that is under way: the client asks again."""
    return operations_pb2.Operation(name=f"{name}/operations/1", done=False)


def _finished(request: operations_pb2.GetOperationRequest) -> operations_pb2.Operation:
    packed = any_pb2.Any()
    packed.Pack(tpu_v2.QueuedResource.pb(tpu_v2.QueuedResource(name=request.name)))
    return operations_pb2.Operation(name=request.name, done=True, response=packed)


Handler = Callable[[Any, grpc.ServicerContext], Any]

_OPERATION = operations_pb2.Operation

# By service and call, the messages in and out.
_MESSAGES: dict[str, dict[str, tuple[Any, Any]]] = {
    "google.cloud.tpu.v2.Tpu": {
        "CreateQueuedResource": (tpu_v2.CreateQueuedResourceRequest, _OPERATION),
        "DeleteQueuedResource": (tpu_v2.DeleteQueuedResourceRequest, _OPERATION),
        "GetQueuedResource": (tpu_v2.GetQueuedResourceRequest, tpu_v2.QueuedResource),
        "ListQueuedResources": (
            tpu_v2.ListQueuedResourcesRequest,
            tpu_v2.ListQueuedResourcesResponse,
        ),
        "GetNode": (tpu_v2.GetNodeRequest, tpu_v2.Node),
        "ListAcceleratorTypes": (
            tpu_v2.ListAcceleratorTypesRequest,
            tpu_v2.ListAcceleratorTypesResponse,
        ),
        "ListRuntimeVersions": (
            tpu_v2.ListRuntimeVersionsRequest,
            tpu_v2.ListRuntimeVersionsResponse,
        ),
    },
    "google.longrunning.Operations": {
        "GetOperation": (operations_pb2.GetOperationRequest, _OPERATION)
    },
    "google.cloud.location.Locations": {
        "ListLocations": (locations_pb2.ListLocationsRequest, locations_pb2.ListLocationsResponse)
    },
}


def _handlers_of(calls: Mapping[str, Handler]) -> tuple[grpc.GenericRpcHandler, ...]:
    """Returns what a gRPC server needs to answer.

    Args:
      calls: for every call of the three services, who answers it.
    """
    return tuple(
        grpc.method_handlers_generic_handler(
            service,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    calls[name], _reader(request), _writer(answer)
                )
                for name, (request, answer) in methods.items()
            },
        )
        for service, methods in _MESSAGES.items()
    )


def _reader(message: Any) -> Any:
    """Messages of the client library have their own methods, unlike those of Protocol Buffers."""
    return message.deserialize if hasattr(message, "deserialize") else message.FromString


def _writer(message: Any) -> Any:
    return message.serialize if hasattr(message, "serialize") else message.SerializeToString
