"""DescribeGroupsResponse, versions 0 to 6. Generated from DescribeGroupsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    inexpressible,
    write_array,
    write_bytes,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)

_w_h = Struct(">h").pack
_w_i = Struct(">i").pack


class DescribedGroupMember(Structure):
    """A structure of DescribeGroupsResponse."""

    __slots__ = ("member_id", "client_id", "client_host", "member_metadata", "member_assignment", "group_instance_id")
    __match_args__ = (
        "member_id",
        "client_id",
        "client_host",
        "member_metadata",
        "member_assignment",
        "group_instance_id",
    )

    def __init__(
        self,
        member_id: str,
        client_id: str,
        client_host: str,
        member_metadata: bytes,
        member_assignment: bytes,
        group_instance_id: str | None = None,
    ) -> None:
        # The member id.
        self.member_id: Final = member_id
        # The client ID used in the member's latest join group request.
        self.client_id: Final = client_id
        # The client host.
        self.client_host: Final = client_host
        # The metadata corresponding to the current group protocol in use.
        self.member_metadata: Final = member_metadata
        # The current assignment provided by the group leader.
        self.member_assignment: Final = member_assignment
        # The unique identifier of the consumer instance provided by end user.
        self.group_instance_id: Final = group_instance_id


class DescribedGroup(Structure):
    """A structure of DescribeGroupsResponse."""

    __slots__ = (
        "error_code",
        "group_id",
        "group_state",
        "protocol_type",
        "protocol_data",
        "members",
        "error_message",
        "authorized_operations",
    )
    __match_args__ = (
        "error_code",
        "group_id",
        "group_state",
        "protocol_type",
        "protocol_data",
        "members",
        "error_message",
        "authorized_operations",
    )

    def __init__(
        self,
        error_code: int,
        group_id: str,
        group_state: str,
        protocol_type: str,
        protocol_data: str,
        members: tuple[DescribedGroupMember, ...],
        error_message: str | None = None,
        authorized_operations: int = -2147483648,
    ) -> None:
        # The describe error, or 0 if there was no error.
        self.error_code: Final = error_code
        # The group ID string.
        self.group_id: Final = group_id
        # The group state string, or the empty string.
        self.group_state: Final = group_state
        # The group protocol type, or the empty string.
        self.protocol_type: Final = protocol_type
        # The group protocol data, or the empty string.
        self.protocol_data: Final = protocol_data
        # The group members.
        self.members: Final = members
        # The describe error message, or null if there was no error.
        self.error_message: Final = error_message
        # 32-bit bitfield to represent authorized operations for this group.
        self.authorized_operations: Final = authorized_operations


class DescribeGroupsResponse(Structure):
    """The message."""

    __slots__ = ("groups", "throttle_time_ms")
    __match_args__ = ("groups", "throttle_time_ms")

    def __init__(
        self,
        groups: tuple[DescribedGroup, ...],
        throttle_time_ms: int = 0,
    ) -> None:
        # Each described group.
        self.groups: Final = groups
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms


def _write_described_group_member_0(out: Output, value: DescribedGroupMember) -> None:
    write_string(out, value.member_id)
    write_string(out, value.client_id)
    write_string(out, value.client_host)
    write_bytes(out, value.member_metadata, write_length)
    write_bytes(out, value.member_assignment, write_length)


def _write_described_group_0(out: Output, value: DescribedGroup) -> None:
    if value.error_message is not None:
        raise inexpressible("DescribedGroup.error_message")
    if value.authorized_operations != -2147483648:
        raise inexpressible("DescribedGroup.authorized_operations")
    out += _w_h(value.error_code)
    write_string(out, value.group_id)
    write_string(out, value.group_state)
    write_string(out, value.protocol_type)
    write_string(out, value.protocol_data)
    write_array(out, value.members, write_length, _write_described_group_member_0)


def _write_describe_groups_response_0(out: Output, value: DescribeGroupsResponse) -> None:
    write_array(out, value.groups, write_length, _write_described_group_0)


def _write_describe_groups_response_1(out: Output, value: DescribeGroupsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.groups, write_length, _write_described_group_0)


def _write_described_group_3(out: Output, value: DescribedGroup) -> None:
    if value.error_message is not None:
        raise inexpressible("DescribedGroup.error_message")
    out += _w_h(value.error_code)
    write_string(out, value.group_id)
    write_string(out, value.group_state)
    write_string(out, value.protocol_type)
    write_string(out, value.protocol_data)
    write_array(out, value.members, write_length, _write_described_group_member_0)
    out += _w_i(value.authorized_operations)


def _write_describe_groups_response_3(out: Output, value: DescribeGroupsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.groups, write_length, _write_described_group_3)


def _write_described_group_member_4(out: Output, value: DescribedGroupMember) -> None:
    write_string(out, value.member_id)
    write_string(out, value.group_instance_id)
    write_string(out, value.client_id)
    write_string(out, value.client_host)
    write_bytes(out, value.member_metadata, write_length)
    write_bytes(out, value.member_assignment, write_length)


def _write_described_group_4(out: Output, value: DescribedGroup) -> None:
    if value.error_message is not None:
        raise inexpressible("DescribedGroup.error_message")
    out += _w_h(value.error_code)
    write_string(out, value.group_id)
    write_string(out, value.group_state)
    write_string(out, value.protocol_type)
    write_string(out, value.protocol_data)
    write_array(out, value.members, write_length, _write_described_group_member_4)
    out += _w_i(value.authorized_operations)


def _write_describe_groups_response_4(out: Output, value: DescribeGroupsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.groups, write_length, _write_described_group_4)


def _write_described_group_member_5(out: Output, value: DescribedGroupMember) -> None:
    write_compact_string(out, value.member_id)
    write_compact_string(out, value.group_instance_id)
    write_compact_string(out, value.client_id)
    write_compact_string(out, value.client_host)
    write_bytes(out, value.member_metadata, write_compact_length)
    write_bytes(out, value.member_assignment, write_compact_length)
    out.append(0)


def _write_described_group_5(out: Output, value: DescribedGroup) -> None:
    if value.error_message is not None:
        raise inexpressible("DescribedGroup.error_message")
    out += _w_h(value.error_code)
    write_compact_string(out, value.group_id)
    write_compact_string(out, value.group_state)
    write_compact_string(out, value.protocol_type)
    write_compact_string(out, value.protocol_data)
    write_array(out, value.members, write_compact_length, _write_described_group_member_5)
    out += _w_i(value.authorized_operations)
    out.append(0)


def _write_describe_groups_response_5(out: Output, value: DescribeGroupsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.groups, write_compact_length, _write_described_group_5)
    out.append(0)


def _write_described_group_6(out: Output, value: DescribedGroup) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    write_compact_string(out, value.group_id)
    write_compact_string(out, value.group_state)
    write_compact_string(out, value.protocol_type)
    write_compact_string(out, value.protocol_data)
    write_array(out, value.members, write_compact_length, _write_described_group_member_5)
    out += _w_i(value.authorized_operations)
    out.append(0)


def _write_describe_groups_response_6(out: Output, value: DescribeGroupsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.groups, write_compact_length, _write_described_group_6)
    out.append(0)


DESCRIBE_GROUPS_RESPONSE: Final = MessageCodec(
    DescribeGroupsResponse,
    15,
    readers={},
    writers={
        0: _write_describe_groups_response_0,
        1: _write_describe_groups_response_1,
        2: _write_describe_groups_response_1,
        3: _write_describe_groups_response_3,
        4: _write_describe_groups_response_4,
        5: _write_describe_groups_response_5,
        6: _write_describe_groups_response_6,
    },
    flexible_from=5,
)
