"""JoinGroupResponse, versions 0 to 9. Generated from JoinGroupResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    inexpressible,
    not_null,
    write_array,
    write_bytes,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)

_w_t = Struct(">?").pack
_w_hi = Struct(">hi").pack
_w_ihi = Struct(">ihi").pack


class JoinGroupResponseMember(Structure):
    """A structure of JoinGroupResponse."""

    __slots__ = ("member_id", "metadata", "group_instance_id")
    __match_args__ = ("member_id", "metadata", "group_instance_id")

    def __init__(
        self,
        member_id: str,
        metadata: bytes,
        group_instance_id: str | None = None,
    ) -> None:
        # The group member ID.
        self.member_id: Final = member_id
        # The group member metadata.
        self.metadata: Final = metadata
        # The unique identifier of the consumer instance provided by end user.
        self.group_instance_id: Final = group_instance_id


class JoinGroupResponse(Structure):
    """The message."""

    __slots__ = (
        "error_code",
        "generation_id",
        "protocol_name",
        "leader",
        "member_id",
        "members",
        "throttle_time_ms",
        "protocol_type",
        "skip_assignment",
    )
    __match_args__ = (
        "error_code",
        "generation_id",
        "protocol_name",
        "leader",
        "member_id",
        "members",
        "throttle_time_ms",
        "protocol_type",
        "skip_assignment",
    )

    def __init__(
        self,
        error_code: int,
        generation_id: int,
        protocol_name: str | None,
        leader: str,
        member_id: str,
        members: tuple[JoinGroupResponseMember, ...],
        throttle_time_ms: int = 0,
        protocol_type: str | None = None,
        skip_assignment: bool = False,
    ) -> None:
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The generation ID of the group.
        self.generation_id: Final = generation_id
        # The group protocol selected by the coordinator.
        self.protocol_name: Final = protocol_name
        # The leader of the group.
        self.leader: Final = leader
        # The member ID assigned by the group coordinator.
        self.member_id: Final = member_id
        # The group members.
        self.members: Final = members
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The group protocol name.
        self.protocol_type: Final = protocol_type
        # True if the leader must skip running the assignment.
        self.skip_assignment: Final = skip_assignment


def _write_join_group_response_member_0(out: Output, value: JoinGroupResponseMember) -> None:
    write_string(out, value.member_id)
    write_bytes(out, value.metadata, write_length)


def _write_join_group_response_0(out: Output, value: JoinGroupResponse) -> None:
    if value.skip_assignment != False:
        raise inexpressible("JoinGroupResponse.skip_assignment")
    out += _w_hi(value.error_code, value.generation_id)
    write_string(out, not_null(value.protocol_name, "JoinGroupResponse.protocol_name"))
    write_string(out, value.leader)
    write_string(out, value.member_id)
    write_array(out, value.members, write_length, _write_join_group_response_member_0)


def _write_join_group_response_2(out: Output, value: JoinGroupResponse) -> None:
    if value.skip_assignment != False:
        raise inexpressible("JoinGroupResponse.skip_assignment")
    out += _w_ihi(value.throttle_time_ms, value.error_code, value.generation_id)
    write_string(out, not_null(value.protocol_name, "JoinGroupResponse.protocol_name"))
    write_string(out, value.leader)
    write_string(out, value.member_id)
    write_array(out, value.members, write_length, _write_join_group_response_member_0)


def _write_join_group_response_member_5(out: Output, value: JoinGroupResponseMember) -> None:
    write_string(out, value.member_id)
    write_string(out, value.group_instance_id)
    write_bytes(out, value.metadata, write_length)


def _write_join_group_response_5(out: Output, value: JoinGroupResponse) -> None:
    if value.skip_assignment != False:
        raise inexpressible("JoinGroupResponse.skip_assignment")
    out += _w_ihi(value.throttle_time_ms, value.error_code, value.generation_id)
    write_string(out, not_null(value.protocol_name, "JoinGroupResponse.protocol_name"))
    write_string(out, value.leader)
    write_string(out, value.member_id)
    write_array(out, value.members, write_length, _write_join_group_response_member_5)


def _write_join_group_response_member_6(out: Output, value: JoinGroupResponseMember) -> None:
    write_compact_string(out, value.member_id)
    write_compact_string(out, value.group_instance_id)
    write_bytes(out, value.metadata, write_compact_length)
    out.append(0)


def _write_join_group_response_6(out: Output, value: JoinGroupResponse) -> None:
    if value.skip_assignment != False:
        raise inexpressible("JoinGroupResponse.skip_assignment")
    out += _w_ihi(value.throttle_time_ms, value.error_code, value.generation_id)
    write_compact_string(out, not_null(value.protocol_name, "JoinGroupResponse.protocol_name"))
    write_compact_string(out, value.leader)
    write_compact_string(out, value.member_id)
    write_array(out, value.members, write_compact_length, _write_join_group_response_member_6)
    out.append(0)


def _write_join_group_response_7(out: Output, value: JoinGroupResponse) -> None:
    if value.skip_assignment != False:
        raise inexpressible("JoinGroupResponse.skip_assignment")
    out += _w_ihi(value.throttle_time_ms, value.error_code, value.generation_id)
    write_compact_string(out, value.protocol_type)
    write_compact_string(out, value.protocol_name)
    write_compact_string(out, value.leader)
    write_compact_string(out, value.member_id)
    write_array(out, value.members, write_compact_length, _write_join_group_response_member_6)
    out.append(0)


def _write_join_group_response_9(out: Output, value: JoinGroupResponse) -> None:
    out += _w_ihi(value.throttle_time_ms, value.error_code, value.generation_id)
    write_compact_string(out, value.protocol_type)
    write_compact_string(out, value.protocol_name)
    write_compact_string(out, value.leader)
    out += _w_t(value.skip_assignment)
    write_compact_string(out, value.member_id)
    write_array(out, value.members, write_compact_length, _write_join_group_response_member_6)
    out.append(0)


JOIN_GROUP_RESPONSE: Final = MessageCodec(
    JoinGroupResponse,
    11,
    readers={},
    writers={
        0: _write_join_group_response_0,
        1: _write_join_group_response_0,
        2: _write_join_group_response_2,
        3: _write_join_group_response_2,
        4: _write_join_group_response_2,
        5: _write_join_group_response_5,
        6: _write_join_group_response_6,
        7: _write_join_group_response_7,
        8: _write_join_group_response_7,
        9: _write_join_group_response_9,
    },
    flexible_from=6,
)
