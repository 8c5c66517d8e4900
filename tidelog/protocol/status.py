"""Errors on the wire: TidelogError <-> the message `Error` <-> a gRPC status with details.

An error of a whole call is sent as a gRPC status whose details (`grpc-status-details-bin`, a google.rpc.Status,
readable by every gRPC tool) contain one `tidelog.v1.Error`. An error of one partition is an `Error` in the answer. Both
preserve the class, the message and the leader's address; tests/client/test_status.py checks all errors. A status
without such details (the node was not reached, or a proxy answered) is mapped to a class by its status code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol, TypeVar

import grpc
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

import tidelog.tiering.remote_errors  # noqa: F401 (so that `by_code` knows their numbers)
from tidelog.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidRequest,
    RequestTimedOut,
    Retry,
    ThrottlingQuotaExceeded,
    TidelogError,
    UnknownServerError,
    UnsupportedVersion,
    by_code,
)
from tidelog.protocol.v1 import common_pb2
from tidelog.types import Endpoint, LeaderEpoch, NodeAddress, NodeId

M = TypeVar("M", bound=Message)

DETAILS_KEY: Final = "grpc-status-details-bin"
"""Trailing metadata key of the status details in gRPC."""

MESSAGE_BYTES_MAX: Final = 1_500
"""Bytes of an error's message on the wire. A status carries it three times, in trailing metadata, which gRPC limits to
8 KiB; a longer one would replace the error by another."""

_WRITTEN: Final = {
    True: common_pb2.WRITTEN_YES,
    False: common_pb2.WRITTEN_NO,
    None: common_pb2.WRITTEN_UNKNOWN,
}
_RETRY: Final = {
    Retry.NEVER: common_pb2.RETRY_CLASS_NEVER,
    Retry.LATER: common_pb2.RETRY_CLASS_LATER,
    Retry.ELSEWHERE: common_pb2.RETRY_CLASS_ELSEWHERE,
}
# gRPC's messages for a connection that was never established: nothing of the request was sent.
_NEVER_CONNECTED: Final = ("failed to connect", "empty address list")
_HTTP_STATUS: Final = "Received http2 header with status"
"""gRPC's message for an answer without a gRPC status: the other side is none of its servers."""
_NOT_RESOLVED: Final = ("name resolution", "dns resolution", "errors resolving", "address lookup failed")


class RpcError(Protocol):
    """The part of grpc.aio.AioRpcError that is used here."""

    def code(self) -> grpc.StatusCode: ...
    def details(self) -> str | None: ...
    def trailing_metadata(self) -> Iterable[Any] | None: ...


def to_proto(error: TidelogError) -> common_pb2.Error:
    """Return the error as a protobuf message."""
    message = common_pb2.Error(
        code=error.code,
        name=error.kafka_name or type(error).__name__,
        message=short_message(error),
        written=_WRITTEN[error.written],
        retry=_RETRY[error.retry],
    )
    if error.leader is not None:
        message.leader.CopyFrom(address_to_proto(error.leader))
    if isinstance(error, ThrottlingQuotaExceeded):
        message.throttle_time_ms = error.throttle_time_ms
    return message


def short_message(error: TidelogError) -> str:
    """Return the message of the error, cut to `MESSAGE_BYTES_MAX` bytes of UTF-8: it may quote a name that a caller
    chose."""
    text = error.message
    if len(text) <= MESSAGE_BYTES_MAX // 4:
        return text
    encoded = text[:MESSAGE_BYTES_MAX].encode(errors="replace")
    if len(encoded) <= MESSAGE_BYTES_MAX and len(text) <= MESSAGE_BYTES_MAX:
        return text
    return encoded[: MESSAGE_BYTES_MAX - len("…".encode())].decode(errors="ignore") + "…"


def from_proto(message: common_pb2.Error) -> TidelogError:
    """Return the error in an answer. An unknown number becomes UnknownServerError with the original name and
    message."""
    kind = by_code(message.code)
    text = message.message
    if kind is UnknownServerError and message.code != UnknownServerError.code:
        text = f"{text} (error {message.code}, {message.name}: unknown to this version of tidelog; update it)"
    error = kind(text, leader=address_from_proto(message.leader) if message.HasField("leader") else None)
    if isinstance(error, ThrottlingQuotaExceeded):
        error.throttle_time_ms = message.throttle_time_ms
    return error


def error_of(message: Any) -> TidelogError | None:
    """Return the error in the field `error` of an answer or of a part of it; None if there is none."""
    return from_proto(message.error) if message.HasField("error") else None


def sound(part: M) -> M:
    """Return a part of an answer. Raises the error in its field `error`."""
    error = error_of(part)
    if error is not None:
        raise error
    return part


def address_to_proto(address: NodeAddress) -> common_pb2.NodeAddress:
    """Return a node's address as a protobuf message."""
    return common_pb2.NodeAddress(
        node_id=address.node_id,
        host=address.endpoint.host,
        port=address.endpoint.port,
        rack=address.rack,
        leader_epoch=address.leader_epoch,
    )


def address_from_proto(message: common_pb2.NodeAddress) -> NodeAddress:
    """Return a node's address from a protobuf message."""
    return NodeAddress(
        NodeId(message.node_id), Endpoint(message.host, message.port), message.rack, LeaderEpoch(message.leader_epoch)
    )


def status_code(error: TidelogError) -> grpc.StatusCode:
    """Return the gRPC status for the error."""
    return grpc.StatusCode[error.status]


def to_details(error: TidelogError) -> bytes:
    """Return `grpc-status-details-bin` for the error: a google.rpc.Status that contains one Error."""
    packed = any_pb2.Any()
    packed.Pack(to_proto(error))
    code = status_code(error).value[0]
    status = _Status(code=code, message=short_message(error), details=[packed.SerializeToString()])
    return bytes(status.SerializeToString())


def from_details(details: bytes) -> TidelogError | None:
    """Return the error in the status details, or None if they contain no Error."""
    try:
        for detail in _Status.FromString(details).details:
            packed = any_pb2.Any.FromString(detail)
            message = common_pb2.Error()
            if packed.Unpack(message):
                return from_proto(message)
    except DecodeError:
        return None
    return None


def from_rpc_error(error: RpcError, *, address: object, phase: str) -> TidelogError:
    """Return the error for a failed call.

    address: the node, `host:port`. phase: the call, for the message ("Data.FetchStream"). Returns the error that the
    node sent. Without one, returns ConnectionFailed (nothing was sent), ConnectionLost (unknown whether the request was
    applied), RequestTimedOut, or the class for the status code.
    """
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            sent = from_details(value)
            if sent is not None:
                return sent
    cause = error.details() or "no cause given"
    where = f"{phase} at {address}"
    match error.code():
        case grpc.StatusCode.UNAVAILABLE if any(words in cause.lower() for words in _NOT_RESOLVED):
            reason = cause.rpartition(": ")[2].rstrip("]")
            return ConnectionFailed(
                f"{where}: the name does not resolve ({reason}). Check the address, which is given as bootstrap "
                "(`--bootstrap`) or advertised by a node, and DNS."
            )
        case grpc.StatusCode.UNAVAILABLE if any(words in cause.lower() for words in _NEVER_CONNECTED):
            reason = cause.rpartition(": ")[2]  # gRPC wraps it in several layers
            return ConnectionFailed(
                f"{where}: no connection ({reason}). Is a node running there, is this the address that it advertises, "
                "and does that listener speak gRPC (by default port 9192; 9092 is for clients of Kafka)?"
            )
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return ConnectionLost(f"{where}: the connection broke before the answer arrived ({cause}). Try again.")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return RequestTimedOut(f"{where}: no answer in time ({cause}). Try again, or raise the timeout.")
        case (
            grpc.StatusCode.UNIMPLEMENTED
            | grpc.StatusCode.PERMISSION_DENIED
            | grpc.StatusCode.UNAUTHENTICATED
            | grpc.StatusCode.INTERNAL
        ) if _HTTP_STATUS in cause:
            return ConnectionFailed(
                f"{where}: no node answers there, but an HTTP server or a proxy ({cause}). Check the address; gRPC "
                "takes a proxy from http_proxy and https_proxy, and none for the hosts in no_proxy."
            )
        case grpc.StatusCode.UNIMPLEMENTED:
            return UnsupportedVersion(f"{where}: the node does not support this call ({cause}). Upgrade the node.")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return InvalidRequest(f"{where}: rejected by a transport limit ({cause}). Send smaller messages.")
        case code:
            return UnknownServerError(f"{where}: {code.name} ({cause}). See the log of the node.")


def _status_type() -> Any:
    """Build google.rpc.Status here, because its package is not a dependency. `details` are Any in serialized form,
    which has the same wire format. A separate descriptor pool avoids conflicts with the real package."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="google/rpc/status.proto", package="google.rpc", syntax="proto3")
    message = file.message_type.add(name="Status")
    message.field.add(name="code", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    message.field.add(name="message", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    message.field.add(name="details", number=3, type=field.TYPE_BYTES, label=field.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("google.rpc.Status"))


_Status: Final = _status_type()
