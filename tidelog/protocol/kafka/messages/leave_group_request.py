"""LeaveGroupRequest, versions 0 to 5. Generated from LeaveGroupRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_length,
    read_nullable_compact_string,
    read_nullable_string,
    read_string,
    skip_tags,
)


class MemberIdentity(Structure):
    """A structure of LeaveGroupRequest."""

    __slots__ = ("member_id", "group_instance_id", "reason")
    __match_args__ = ("member_id", "group_instance_id", "reason")

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        reason: str | None = None,
    ) -> None:
        # The member ID to remove from the group.
        self.member_id: Final = member_id
        # The group instance ID to remove from the group.
        self.group_instance_id: Final = group_instance_id
        # The reason why the member left the group.
        self.reason: Final = reason


class LeaveGroupRequest(Structure):
    """The message."""

    __slots__ = ("group_id", "member_id", "members")
    __match_args__ = ("group_id", "member_id", "members")

    def __init__(
        self,
        group_id: str,
        member_id: str = "",
        members: tuple[MemberIdentity, ...] = (),
    ) -> None:
        # The ID of the group to leave.
        self.group_id: Final = group_id
        # The member ID to remove from the group.
        self.member_id: Final = member_id
        # List of leaving member identities.
        self.members: Final = members


def _read_leave_group_request_0(data: Data, at: int) -> tuple[LeaveGroupRequest, int]:
    group_id, at = read_string(data, at)
    member_id, at = read_string(data, at)
    return LeaveGroupRequest(group_id=group_id, member_id=member_id), at


def _read_member_identity_3(data: Data, at: int) -> tuple[MemberIdentity, int]:
    member_id, at = read_string(data, at)
    group_instance_id, at = read_nullable_string(data, at)
    return MemberIdentity(member_id=member_id, group_instance_id=group_instance_id), at


def _read_leave_group_request_3(data: Data, at: int) -> tuple[LeaveGroupRequest, int]:
    group_id, at = read_string(data, at)
    members, at = read_array(data, at, read_length, _read_member_identity_3)
    return LeaveGroupRequest(group_id=group_id, members=members), at


def _read_member_identity_4(data: Data, at: int) -> tuple[MemberIdentity, int]:
    member_id, at = read_compact_string(data, at)
    group_instance_id, at = read_nullable_compact_string(data, at)
    at = skip_tags(data, at)
    return MemberIdentity(member_id=member_id, group_instance_id=group_instance_id), at


def _read_leave_group_request_4(data: Data, at: int) -> tuple[LeaveGroupRequest, int]:
    group_id, at = read_compact_string(data, at)
    members, at = read_array(data, at, read_compact_length, _read_member_identity_4)
    at = skip_tags(data, at)
    return LeaveGroupRequest(group_id=group_id, members=members), at


def _read_member_identity_5(data: Data, at: int) -> tuple[MemberIdentity, int]:
    member_id, at = read_compact_string(data, at)
    group_instance_id, at = read_nullable_compact_string(data, at)
    reason, at = read_nullable_compact_string(data, at)
    at = skip_tags(data, at)
    return MemberIdentity(member_id=member_id, group_instance_id=group_instance_id, reason=reason), at


def _read_leave_group_request_5(data: Data, at: int) -> tuple[LeaveGroupRequest, int]:
    group_id, at = read_compact_string(data, at)
    members, at = read_array(data, at, read_compact_length, _read_member_identity_5)
    at = skip_tags(data, at)
    return LeaveGroupRequest(group_id=group_id, members=members), at


LEAVE_GROUP_REQUEST: Final = MessageCodec(
    LeaveGroupRequest,
    13,
    readers={
        0: _read_leave_group_request_0,
        1: _read_leave_group_request_0,
        2: _read_leave_group_request_0,
        3: _read_leave_group_request_3,
        4: _read_leave_group_request_4,
        5: _read_leave_group_request_5,
    },
    writers={},
    flexible_from=4,
)
