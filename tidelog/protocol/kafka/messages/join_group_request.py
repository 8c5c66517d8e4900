"""JoinGroupRequest, versions 0 to 9. Generated from JoinGroupRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_bytes,
    read_compact_length,
    read_compact_string,
    read_length,
    read_nullable_compact_string,
    read_nullable_string,
    read_string,
    skip_tags,
)

_r_i = Struct(">i").unpack_from
_r_ii = Struct(">ii").unpack_from


class JoinGroupRequestProtocol(Structure):
    """A structure of JoinGroupRequest."""

    __slots__ = ("name", "metadata")
    __match_args__ = ("name", "metadata")

    def __init__(
        self,
        name: str,
        metadata: bytes,
    ) -> None:
        # The protocol name.
        self.name: Final = name
        # The protocol metadata.
        self.metadata: Final = metadata


class JoinGroupRequest(Structure):
    """The message."""

    __slots__ = (
        "group_id",
        "session_timeout_ms",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "group_instance_id",
        "reason",
    )
    __match_args__ = (
        "group_id",
        "session_timeout_ms",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "group_instance_id",
        "reason",
    )

    def __init__(
        self,
        group_id: str,
        session_timeout_ms: int,
        member_id: str,
        protocol_type: str,
        protocols: tuple[JoinGroupRequestProtocol, ...],
        rebalance_timeout_ms: int = -1,
        group_instance_id: str | None = None,
        reason: str | None = None,
    ) -> None:
        # The group identifier.
        self.group_id: Final = group_id
        # The coordinator considers the consumer dead if it receives no heartbeat after this timeout in milliseconds.
        self.session_timeout_ms: Final = session_timeout_ms
        # The member id assigned by the group coordinator.
        self.member_id: Final = member_id
        # The unique name the for class of protocols implemented by the group we want to join.
        self.protocol_type: Final = protocol_type
        # The list of protocols that the member supports.
        self.protocols: Final = protocols
        # The maximum time in milliseconds that the coordinator will wait for each member to rejoin when rebalancing
        # the group.
        self.rebalance_timeout_ms: Final = rebalance_timeout_ms
        # The unique identifier of the consumer instance provided by end user.
        self.group_instance_id: Final = group_instance_id
        # The reason why the member (re-)joins the group.
        self.reason: Final = reason


def _read_join_group_request_protocol_0(data: Data, at: int) -> tuple[JoinGroupRequestProtocol, int]:
    name, at = read_string(data, at)
    metadata, at = read_bytes(data, at, read_length)
    return JoinGroupRequestProtocol(name=name, metadata=metadata), at


def _read_join_group_request_0(data: Data, at: int) -> tuple[JoinGroupRequest, int]:
    group_id, at = read_string(data, at)
    (session_timeout_ms,) = _r_i(data, at)
    at += 4
    member_id, at = read_string(data, at)
    protocol_type, at = read_string(data, at)
    protocols, at = read_array(data, at, read_length, _read_join_group_request_protocol_0)
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        member_id=member_id,
        protocol_type=protocol_type,
        protocols=protocols,
    ), at


def _read_join_group_request_1(data: Data, at: int) -> tuple[JoinGroupRequest, int]:
    group_id, at = read_string(data, at)
    session_timeout_ms, rebalance_timeout_ms = _r_ii(data, at)
    at += 8
    member_id, at = read_string(data, at)
    protocol_type, at = read_string(data, at)
    protocols, at = read_array(data, at, read_length, _read_join_group_request_protocol_0)
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        protocol_type=protocol_type,
        protocols=protocols,
    ), at


def _read_join_group_request_5(data: Data, at: int) -> tuple[JoinGroupRequest, int]:
    group_id, at = read_string(data, at)
    session_timeout_ms, rebalance_timeout_ms = _r_ii(data, at)
    at += 8
    member_id, at = read_string(data, at)
    group_instance_id, at = read_nullable_string(data, at)
    protocol_type, at = read_string(data, at)
    protocols, at = read_array(data, at, read_length, _read_join_group_request_protocol_0)
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=group_instance_id,
        protocol_type=protocol_type,
        protocols=protocols,
    ), at


def _read_join_group_request_protocol_6(data: Data, at: int) -> tuple[JoinGroupRequestProtocol, int]:
    name, at = read_compact_string(data, at)
    metadata, at = read_bytes(data, at, read_compact_length)
    at = skip_tags(data, at)
    return JoinGroupRequestProtocol(name=name, metadata=metadata), at


def _read_join_group_request_6(data: Data, at: int) -> tuple[JoinGroupRequest, int]:
    group_id, at = read_compact_string(data, at)
    session_timeout_ms, rebalance_timeout_ms = _r_ii(data, at)
    at += 8
    member_id, at = read_compact_string(data, at)
    group_instance_id, at = read_nullable_compact_string(data, at)
    protocol_type, at = read_compact_string(data, at)
    protocols, at = read_array(data, at, read_compact_length, _read_join_group_request_protocol_6)
    at = skip_tags(data, at)
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=group_instance_id,
        protocol_type=protocol_type,
        protocols=protocols,
    ), at


def _read_join_group_request_8(data: Data, at: int) -> tuple[JoinGroupRequest, int]:
    group_id, at = read_compact_string(data, at)
    session_timeout_ms, rebalance_timeout_ms = _r_ii(data, at)
    at += 8
    member_id, at = read_compact_string(data, at)
    group_instance_id, at = read_nullable_compact_string(data, at)
    protocol_type, at = read_compact_string(data, at)
    protocols, at = read_array(data, at, read_compact_length, _read_join_group_request_protocol_6)
    reason, at = read_nullable_compact_string(data, at)
    at = skip_tags(data, at)
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=group_instance_id,
        protocol_type=protocol_type,
        protocols=protocols,
        reason=reason,
    ), at


JOIN_GROUP_REQUEST: Final = MessageCodec(
    JoinGroupRequest,
    11,
    readers={
        0: _read_join_group_request_0,
        1: _read_join_group_request_1,
        2: _read_join_group_request_1,
        3: _read_join_group_request_1,
        4: _read_join_group_request_1,
        5: _read_join_group_request_5,
        6: _read_join_group_request_6,
        7: _read_join_group_request_6,
        8: _read_join_group_request_8,
        9: _read_join_group_request_8,
    },
    writers={},
    flexible_from=6,
)
