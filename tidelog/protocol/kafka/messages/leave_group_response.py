"""LeaveGroupResponse, versions 0 to 5. Generated from LeaveGroupResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    inexpressible,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)

_w_h = Struct(">h").pack
_w_ih = Struct(">ih").pack


class MemberResponse(Structure):
    """A structure of LeaveGroupResponse."""

    __slots__ = ("member_id", "group_instance_id", "error_code")
    __match_args__ = ("member_id", "group_instance_id", "error_code")

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        error_code: int,
    ) -> None:
        # The member ID to remove from the group.
        self.member_id: Final = member_id
        # The group instance ID to remove from the group.
        self.group_instance_id: Final = group_instance_id
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code


class LeaveGroupResponse(Structure):
    """The message."""

    __slots__ = ("error_code", "throttle_time_ms", "members")
    __match_args__ = ("error_code", "throttle_time_ms", "members")

    def __init__(
        self,
        error_code: int,
        throttle_time_ms: int = 0,
        members: tuple[MemberResponse, ...] = (),
    ) -> None:
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # List of leaving member responses.
        self.members: Final = members


def _write_leave_group_response_0(out: Output, value: LeaveGroupResponse) -> None:
    if value.members != ():
        raise inexpressible("LeaveGroupResponse.members")
    out += _w_h(value.error_code)


def _write_leave_group_response_1(out: Output, value: LeaveGroupResponse) -> None:
    if value.members != ():
        raise inexpressible("LeaveGroupResponse.members")
    out += _w_ih(value.throttle_time_ms, value.error_code)


def _write_member_response_3(out: Output, value: MemberResponse) -> None:
    write_string(out, value.member_id)
    write_string(out, value.group_instance_id)
    out += _w_h(value.error_code)


def _write_leave_group_response_3(out: Output, value: LeaveGroupResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.members, write_length, _write_member_response_3)


def _write_member_response_4(out: Output, value: MemberResponse) -> None:
    write_compact_string(out, value.member_id)
    write_compact_string(out, value.group_instance_id)
    out += _w_h(value.error_code)
    out.append(0)


def _write_leave_group_response_4(out: Output, value: LeaveGroupResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.members, write_compact_length, _write_member_response_4)
    out.append(0)


LEAVE_GROUP_RESPONSE: Final = MessageCodec(
    LeaveGroupResponse,
    13,
    readers={},
    writers={
        0: _write_leave_group_response_0,
        1: _write_leave_group_response_1,
        2: _write_leave_group_response_1,
        3: _write_leave_group_response_3,
        4: _write_leave_group_response_4,
        5: _write_leave_group_response_4,
    },
    flexible_from=4,
)
