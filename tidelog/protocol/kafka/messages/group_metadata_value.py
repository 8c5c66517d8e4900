"""GroupMetadataValue, versions 0 to 4. Generated from GroupMetadataValue.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
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
    write_array,
    write_bytes,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)
from tidelog.types import Millis

_r_i = Struct(">i").unpack_from
_w_i = Struct(">i").pack
_r_ii = Struct(">ii").unpack_from
_w_ii = Struct(">ii").pack
_r_q = Struct(">q").unpack_from
_w_q = Struct(">q").pack


class MemberMetadata(Structure):
    """A structure of GroupMetadataValue."""

    __slots__ = (
        "member_id",
        "client_id",
        "client_host",
        "session_timeout",
        "subscription",
        "assignment",
        "group_instance_id",
        "rebalance_timeout",
    )
    __match_args__ = (
        "member_id",
        "client_id",
        "client_host",
        "session_timeout",
        "subscription",
        "assignment",
        "group_instance_id",
        "rebalance_timeout",
    )

    def __init__(
        self,
        member_id: str,
        client_id: str,
        client_host: str,
        session_timeout: int,
        subscription: bytes,
        assignment: bytes,
        group_instance_id: str | None = None,
        rebalance_timeout: int = -1,
    ) -> None:
        # The member id.
        self.member_id: Final = member_id
        # The client id.
        self.client_id: Final = client_id
        # The client host.
        self.client_host: Final = client_host
        # The session timeout.
        self.session_timeout: Final = session_timeout
        # The subscription.
        self.subscription: Final = subscription
        # The assignment.
        self.assignment: Final = assignment
        # The group instance id.
        self.group_instance_id: Final = group_instance_id
        # The rebalance timeout.
        self.rebalance_timeout: Final = rebalance_timeout


class GroupMetadataValue(Structure):
    """The message."""

    __slots__ = ("protocol_type", "generation", "protocol", "leader", "members", "current_state_timestamp")
    __match_args__ = ("protocol_type", "generation", "protocol", "leader", "members", "current_state_timestamp")

    def __init__(
        self,
        protocol_type: str,
        generation: int,
        protocol: str | None,
        leader: str | None,
        members: tuple[MemberMetadata, ...],
        current_state_timestamp: Millis = Millis(-1),
    ) -> None:
        # The protocol type.
        self.protocol_type: Final = protocol_type
        # The generation id.
        self.generation: Final = generation
        # The protocol name.
        self.protocol: Final = protocol
        # The leader id.
        self.leader: Final = leader
        # The group members.
        self.members: Final = members
        # The timestamp of the last state change.
        self.current_state_timestamp: Final = current_state_timestamp


def _read_member_metadata_0(data: Data, at: int) -> tuple[MemberMetadata, int]:
    member_id, at = read_string(data, at)
    client_id, at = read_string(data, at)
    client_host, at = read_string(data, at)
    (session_timeout,) = _r_i(data, at)
    at += 4
    subscription, at = read_bytes(data, at, read_length)
    assignment, at = read_bytes(data, at, read_length)
    return MemberMetadata(
        member_id=member_id,
        client_id=client_id,
        client_host=client_host,
        session_timeout=session_timeout,
        subscription=subscription,
        assignment=assignment,
    ), at


def _read_group_metadata_value_0(data: Data, at: int) -> tuple[GroupMetadataValue, int]:
    protocol_type, at = read_string(data, at)
    (generation,) = _r_i(data, at)
    at += 4
    protocol, at = read_nullable_string(data, at)
    leader, at = read_nullable_string(data, at)
    members, at = read_array(data, at, read_length, _read_member_metadata_0)
    return GroupMetadataValue(
        protocol_type=protocol_type, generation=generation, protocol=protocol, leader=leader, members=members
    ), at


def _read_member_metadata_1(data: Data, at: int) -> tuple[MemberMetadata, int]:
    member_id, at = read_string(data, at)
    client_id, at = read_string(data, at)
    client_host, at = read_string(data, at)
    rebalance_timeout, session_timeout = _r_ii(data, at)
    at += 8
    subscription, at = read_bytes(data, at, read_length)
    assignment, at = read_bytes(data, at, read_length)
    return MemberMetadata(
        member_id=member_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout=rebalance_timeout,
        session_timeout=session_timeout,
        subscription=subscription,
        assignment=assignment,
    ), at


def _read_group_metadata_value_1(data: Data, at: int) -> tuple[GroupMetadataValue, int]:
    protocol_type, at = read_string(data, at)
    (generation,) = _r_i(data, at)
    at += 4
    protocol, at = read_nullable_string(data, at)
    leader, at = read_nullable_string(data, at)
    members, at = read_array(data, at, read_length, _read_member_metadata_1)
    return GroupMetadataValue(
        protocol_type=protocol_type, generation=generation, protocol=protocol, leader=leader, members=members
    ), at


def _read_group_metadata_value_2(data: Data, at: int) -> tuple[GroupMetadataValue, int]:
    protocol_type, at = read_string(data, at)
    (generation,) = _r_i(data, at)
    at += 4
    protocol, at = read_nullable_string(data, at)
    leader, at = read_nullable_string(data, at)
    (current_state_timestamp,) = _r_q(data, at)
    at += 8
    members, at = read_array(data, at, read_length, _read_member_metadata_1)
    return GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=current_state_timestamp,
        members=members,
    ), at


def _read_member_metadata_3(data: Data, at: int) -> tuple[MemberMetadata, int]:
    member_id, at = read_string(data, at)
    group_instance_id, at = read_nullable_string(data, at)
    client_id, at = read_string(data, at)
    client_host, at = read_string(data, at)
    rebalance_timeout, session_timeout = _r_ii(data, at)
    at += 8
    subscription, at = read_bytes(data, at, read_length)
    assignment, at = read_bytes(data, at, read_length)
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout=rebalance_timeout,
        session_timeout=session_timeout,
        subscription=subscription,
        assignment=assignment,
    ), at


def _read_group_metadata_value_3(data: Data, at: int) -> tuple[GroupMetadataValue, int]:
    protocol_type, at = read_string(data, at)
    (generation,) = _r_i(data, at)
    at += 4
    protocol, at = read_nullable_string(data, at)
    leader, at = read_nullable_string(data, at)
    (current_state_timestamp,) = _r_q(data, at)
    at += 8
    members, at = read_array(data, at, read_length, _read_member_metadata_3)
    return GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=current_state_timestamp,
        members=members,
    ), at


def _read_member_metadata_4(data: Data, at: int) -> tuple[MemberMetadata, int]:
    member_id, at = read_compact_string(data, at)
    group_instance_id, at = read_nullable_compact_string(data, at)
    client_id, at = read_compact_string(data, at)
    client_host, at = read_compact_string(data, at)
    rebalance_timeout, session_timeout = _r_ii(data, at)
    at += 8
    subscription, at = read_bytes(data, at, read_compact_length)
    assignment, at = read_bytes(data, at, read_compact_length)
    at = skip_tags(data, at)
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout=rebalance_timeout,
        session_timeout=session_timeout,
        subscription=subscription,
        assignment=assignment,
    ), at


def _read_group_metadata_value_4(data: Data, at: int) -> tuple[GroupMetadataValue, int]:
    protocol_type, at = read_compact_string(data, at)
    (generation,) = _r_i(data, at)
    at += 4
    protocol, at = read_nullable_compact_string(data, at)
    leader, at = read_nullable_compact_string(data, at)
    (current_state_timestamp,) = _r_q(data, at)
    at += 8
    members, at = read_array(data, at, read_compact_length, _read_member_metadata_4)
    at = skip_tags(data, at)
    return GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=current_state_timestamp,
        members=members,
    ), at


def _write_member_metadata_0(out: Output, value: MemberMetadata) -> None:
    write_string(out, value.member_id)
    write_string(out, value.client_id)
    write_string(out, value.client_host)
    out += _w_i(value.session_timeout)
    write_bytes(out, value.subscription, write_length)
    write_bytes(out, value.assignment, write_length)


def _write_group_metadata_value_0(out: Output, value: GroupMetadataValue) -> None:
    write_string(out, value.protocol_type)
    out += _w_i(value.generation)
    write_string(out, value.protocol)
    write_string(out, value.leader)
    write_array(out, value.members, write_length, _write_member_metadata_0)


def _write_member_metadata_1(out: Output, value: MemberMetadata) -> None:
    write_string(out, value.member_id)
    write_string(out, value.client_id)
    write_string(out, value.client_host)
    out += _w_ii(value.rebalance_timeout, value.session_timeout)
    write_bytes(out, value.subscription, write_length)
    write_bytes(out, value.assignment, write_length)


def _write_group_metadata_value_1(out: Output, value: GroupMetadataValue) -> None:
    write_string(out, value.protocol_type)
    out += _w_i(value.generation)
    write_string(out, value.protocol)
    write_string(out, value.leader)
    write_array(out, value.members, write_length, _write_member_metadata_1)


def _write_group_metadata_value_2(out: Output, value: GroupMetadataValue) -> None:
    write_string(out, value.protocol_type)
    out += _w_i(value.generation)
    write_string(out, value.protocol)
    write_string(out, value.leader)
    out += _w_q(value.current_state_timestamp)
    write_array(out, value.members, write_length, _write_member_metadata_1)


def _write_member_metadata_3(out: Output, value: MemberMetadata) -> None:
    write_string(out, value.member_id)
    write_string(out, value.group_instance_id)
    write_string(out, value.client_id)
    write_string(out, value.client_host)
    out += _w_ii(value.rebalance_timeout, value.session_timeout)
    write_bytes(out, value.subscription, write_length)
    write_bytes(out, value.assignment, write_length)


def _write_group_metadata_value_3(out: Output, value: GroupMetadataValue) -> None:
    write_string(out, value.protocol_type)
    out += _w_i(value.generation)
    write_string(out, value.protocol)
    write_string(out, value.leader)
    out += _w_q(value.current_state_timestamp)
    write_array(out, value.members, write_length, _write_member_metadata_3)


def _write_member_metadata_4(out: Output, value: MemberMetadata) -> None:
    write_compact_string(out, value.member_id)
    write_compact_string(out, value.group_instance_id)
    write_compact_string(out, value.client_id)
    write_compact_string(out, value.client_host)
    out += _w_ii(value.rebalance_timeout, value.session_timeout)
    write_bytes(out, value.subscription, write_compact_length)
    write_bytes(out, value.assignment, write_compact_length)
    out.append(0)


def _write_group_metadata_value_4(out: Output, value: GroupMetadataValue) -> None:
    write_compact_string(out, value.protocol_type)
    out += _w_i(value.generation)
    write_compact_string(out, value.protocol)
    write_compact_string(out, value.leader)
    out += _w_q(value.current_state_timestamp)
    write_array(out, value.members, write_compact_length, _write_member_metadata_4)
    out.append(0)


GROUP_METADATA_VALUE: Final = MessageCodec(
    GroupMetadataValue,
    2,
    readers={
        0: _read_group_metadata_value_0,
        1: _read_group_metadata_value_1,
        2: _read_group_metadata_value_2,
        3: _read_group_metadata_value_3,
        4: _read_group_metadata_value_4,
    },
    writers={
        0: _write_group_metadata_value_0,
        1: _write_group_metadata_value_1,
        2: _write_group_metadata_value_2,
        3: _write_group_metadata_value_3,
        4: _write_group_metadata_value_4,
    },
)
