"""Errors on the wire: TidelogError <-> the message `Error` <-> a gRPC status with details.

An error of a whole call travels as a gRPC status whose details (`grpc-status-details-bin`, a google.rpc.Status, as
every gRPC tool shows it) hold one `tidelog.v1.Error`; an error of one partition travels as an `Error` in the answer.
Both ways keep the class, the message and the leader's address; tests/client/test_status.py walks all errors through.
Where a status has no such details (the node was never reached, a proxy answered), the status itself decides the class.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

import grpc
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tidelog.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidRequest,
    NodeShuttingDown,
    RequestTimedOut,
    Retry,
    TidelogError,
    UnknownServerError,
    UnsupportedVersion,
    by_code,
)
from tidelog.protocol.v1 import common_pb2
from tidelog.types import Endpoint, LeaderEpoch, NodeAddress, NodeId

DETAILS_KEY: Final = "grpc-status-details-bin"
"""The trailing metadata in which gRPC carries the details of a status."""

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
# gRPC's own words for a connection that never came about: nothing of the request was sent.
_NEVER_CONNECTED: Final = ("failed to connect", "name resolution", "dns resolution", "empty address list")


class RpcError(Protocol):
    """What grpc.aio.AioRpcError offers, as far as it is needed here."""

    def code(self) -> grpc.StatusCode: ...
    def details(self) -> str | None: ...
    def trailing_metadata(self) -> Iterable[Any] | None: ...


def to_proto(error: TidelogError) -> common_pb2.Error:
    """The error as a message of an answer."""
    message = common_pb2.Error(
        code=error.code,
        name=error.kafka_name or type(error).__name__,
        message=error.message,
        written=_WRITTEN[error.written],
        retry=_RETRY[error.retry],
    )
    if error.leader is not None:
        message.leader.CopyFrom(address_to_proto(error.leader))
    return message


def from_proto(message: common_pb2.Error) -> TidelogError:
    """The error that an answer carries. A number that this version does not know becomes UnknownServerError, which
    keeps name and message."""
    kind = by_code(message.code)
    text = message.message
    if kind is UnknownServerError and message.code != UnknownServerError.code:
        text = f"{text} (error {message.code}, {message.name}: unknown to this version of tidelog; update it)"
    return kind(text, leader=address_from_proto(message.leader) if message.HasField("leader") else None)


def address_to_proto(address: NodeAddress) -> common_pb2.NodeAddress:
    """A node's address as a message."""
    return common_pb2.NodeAddress(
        node_id=address.node_id,
        host=address.endpoint.host,
        port=address.endpoint.port,
        rack=address.rack,
        leader_epoch=address.leader_epoch,
    )


def address_from_proto(message: common_pb2.NodeAddress) -> NodeAddress:
    """A node's address out of a message."""
    return NodeAddress(
        NodeId(message.node_id), Endpoint(message.host, message.port), message.rack, LeaderEpoch(message.leader_epoch)
    )


def status_code(error: TidelogError) -> grpc.StatusCode:
    """The gRPC status that the error travels with."""
    return grpc.StatusCode[error.status]


def to_details(error: TidelogError) -> bytes:
    """The bytes of `grpc-status-details-bin` for the error: a google.rpc.Status with one Error in it."""
    packed = any_pb2.Any()
    packed.Pack(to_proto(error))
    code = status_code(error).value[0]
    status = _Status(code=code, message=error.message, details=[packed.SerializeToString()])
    return bytes(status.SerializeToString())


def from_details(details: bytes) -> TidelogError | None:
    """The error in such bytes; None where they hold none of ours."""
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
    """What a failed call means.

    address: who was asked, `host:port`. phase: what was being done, for the message ("Data.FetchStream").
    Returns the error that the node sent; where none came from it, ConnectionFailed (nothing was sent), ConnectionLost
    (nobody can tell), RequestTimedOut, or what else the status says.
    """
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            sent = from_details(value)
            if sent is not None:
                return sent
    cause = error.details() or "no cause given"
    where = f"{phase} at {address}"
    match error.code():
        case grpc.StatusCode.UNAVAILABLE if any(words in cause.lower() for words in _NEVER_CONNECTED):
            reason = cause.rpartition(": ")[2]  # gRPC wraps it in several layers
            return ConnectionFailed(
                f"{where}: no connection ({reason}). Is a node running there, and is this the address it advertises?"
            )
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return ConnectionLost(f"{where}: the connection broke before the answer came ({cause}). Ask again.")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return RequestTimedOut(f"{where}: no answer in time ({cause}). Ask again, or allow more time.")
        case grpc.StatusCode.UNIMPLEMENTED:
            return UnsupportedVersion(f"{where}: the node does not know this call ({cause}). Update the node.")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return InvalidRequest(f"{where}: refused by a limit of the transport ({cause}). Send smaller messages.")
        case code:
            return UnknownServerError(f"{where}: {code.name} ({cause}). The node's log says more.")


def shutting_down(node: str) -> NodeShuttingDown:
    """The answer of a node that stops."""
    return NodeShuttingDown(f"{node} is stopping and takes no new requests; ask another node")


def _status_type() -> Any:
    """google.rpc.Status, made here because its package is no dependency of ours; `details` are Any in serialized form,
    which is the same on the wire. A pool of its own: whoever has the real package keeps it."""
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
