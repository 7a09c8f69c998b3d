"""The calls of the Cloud TPU service as gRPC has them: in which service, and with which messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.cloud import tpu_v2
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2

Call = Callable[[Any, grpc.ServicerContext], Any]

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


def handlers_of(calls: Mapping[str, Call]) -> tuple[grpc.GenericRpcHandler, ...]:
    """What a gRPC server needs to answer.

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


def _reader(message: Any) -> Callable[[bytes], Any]:
    """Messages of the client library have their own ways beside those of Protocol Buffers."""
    return message.deserialize if hasattr(message, "deserialize") else message.FromString


def _writer(message: Any) -> Callable[[Any], bytes]:
    return message.serialize if hasattr(message, "serialize") else message.SerializeToString
