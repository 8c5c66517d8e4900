"""SyncGroupRequest, versions 0 to 5. Generated from SyncGroupRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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


class SyncGroupRequestAssignment(Structure):
    """A structure of SyncGroupRequest."""

    __slots__ = ("member_id", "assignment")
    __match_args__ = ("member_id", "assignment")

    def __init__(
        self,
        member_id: str,
        assignment: bytes,
    ) -> None:
        # The ID of the member to assign.
        self.member_id: Final = member_id
        # The member assignment.
        self.assignment: Final = assignment


class SyncGroupRequest(Structure):
    """The message."""

    __slots__ = (
        "group_id",
        "generation_id",
        "member_id",
        "assignments",
        "group_instance_id",
        "protocol_type",
        "protocol_name",
    )
    __match_args__ = (
        "group_id",
        "generation_id",
        "member_id",
        "assignments",
        "group_instance_id",
        "protocol_type",
        "protocol_name",
    )

    def __init__(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        assignments: tuple[SyncGroupRequestAssignment, ...],
        group_instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> None:
        # The unique group identifier.
        self.group_id: Final = group_id
        # The generation of the group.
        self.generation_id: Final = generation_id
        # The member ID assigned by the group.
        self.member_id: Final = member_id
        # Each assignment.
        self.assignments: Final = assignments
        # The unique identifier of the consumer instance provided by end user.
        self.group_instance_id: Final = group_instance_id
        # The group protocol type.
        self.protocol_type: Final = protocol_type
        # The group protocol name.
        self.protocol_name: Final = protocol_name


def _read_sync_group_request_assignment_0(data: Data, at: int) -> tuple[SyncGroupRequestAssignment, int]:
    member_id, at = read_string(data, at)
    assignment, at = read_bytes(data, at, read_length)
    return SyncGroupRequestAssignment(member_id=member_id, assignment=assignment), at


def _read_sync_group_request_0(data: Data, at: int) -> tuple[SyncGroupRequest, int]:
    group_id, at = read_string(data, at)
    (generation_id,) = _r_i(data, at)
    at += 4
    member_id, at = read_string(data, at)
    assignments, at = read_array(data, at, read_length, _read_sync_group_request_assignment_0)
    return SyncGroupRequest(
        group_id=group_id, generation_id=generation_id, member_id=member_id, assignments=assignments
    ), at


def _read_sync_group_request_3(data: Data, at: int) -> tuple[SyncGroupRequest, int]:
    group_id, at = read_string(data, at)
    (generation_id,) = _r_i(data, at)
    at += 4
    member_id, at = read_string(data, at)
    group_instance_id, at = read_nullable_string(data, at)
    assignments, at = read_array(data, at, read_length, _read_sync_group_request_assignment_0)
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=group_instance_id,
        assignments=assignments,
    ), at


def _read_sync_group_request_assignment_4(data: Data, at: int) -> tuple[SyncGroupRequestAssignment, int]:
    member_id, at = read_compact_string(data, at)
    assignment, at = read_bytes(data, at, read_compact_length)
    at = skip_tags(data, at)
    return SyncGroupRequestAssignment(member_id=member_id, assignment=assignment), at


def _read_sync_group_request_4(data: Data, at: int) -> tuple[SyncGroupRequest, int]:
    group_id, at = read_compact_string(data, at)
    (generation_id,) = _r_i(data, at)
    at += 4
    member_id, at = read_compact_string(data, at)
    group_instance_id, at = read_nullable_compact_string(data, at)
    assignments, at = read_array(data, at, read_compact_length, _read_sync_group_request_assignment_4)
    at = skip_tags(data, at)
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=group_instance_id,
        assignments=assignments,
    ), at


def _read_sync_group_request_5(data: Data, at: int) -> tuple[SyncGroupRequest, int]:
    group_id, at = read_compact_string(data, at)
    (generation_id,) = _r_i(data, at)
    at += 4
    member_id, at = read_compact_string(data, at)
    group_instance_id, at = read_nullable_compact_string(data, at)
    protocol_type, at = read_nullable_compact_string(data, at)
    protocol_name, at = read_nullable_compact_string(data, at)
    assignments, at = read_array(data, at, read_compact_length, _read_sync_group_request_assignment_4)
    at = skip_tags(data, at)
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=group_instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=assignments,
    ), at


SYNC_GROUP_REQUEST: Final = MessageCodec(
    SyncGroupRequest,
    14,
    readers={
        0: _read_sync_group_request_0,
        1: _read_sync_group_request_0,
        2: _read_sync_group_request_0,
        3: _read_sync_group_request_3,
        4: _read_sync_group_request_4,
        5: _read_sync_group_request_5,
    },
    writers={},
    flexible_from=4,
)
