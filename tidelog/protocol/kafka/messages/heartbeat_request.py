"""HeartbeatRequest, versions 0 to 4. Generated from HeartbeatRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_compact_string,
    read_nullable_compact_string,
    read_nullable_string,
    read_string,
    skip_tags,
)

_r_i = Struct(">i").unpack_from


class HeartbeatRequest(Structure):
    """The message."""

    __slots__ = ("group_id", "generation_id", "member_id", "group_instance_id")
    __match_args__ = ("group_id", "generation_id", "member_id", "group_instance_id")

    def __init__(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None = None,
    ) -> None:
        # The group id.
        self.group_id: Final = group_id
        # The generation of the group.
        self.generation_id: Final = generation_id
        # The member ID.
        self.member_id: Final = member_id
        # The unique identifier of the consumer instance provided by end user.
        self.group_instance_id: Final = group_instance_id


def _read_heartbeat_request_0(data: Data, at: int) -> tuple[HeartbeatRequest, int]:
    group_id, at = read_string(data, at)
    (generation_id,) = _r_i(data, at)
    at += 4
    member_id, at = read_string(data, at)
    return HeartbeatRequest(group_id=group_id, generation_id=generation_id, member_id=member_id), at


def _read_heartbeat_request_3(data: Data, at: int) -> tuple[HeartbeatRequest, int]:
    group_id, at = read_string(data, at)
    (generation_id,) = _r_i(data, at)
    at += 4
    member_id, at = read_string(data, at)
    group_instance_id, at = read_nullable_string(data, at)
    return HeartbeatRequest(
        group_id=group_id, generation_id=generation_id, member_id=member_id, group_instance_id=group_instance_id
    ), at


def _read_heartbeat_request_4(data: Data, at: int) -> tuple[HeartbeatRequest, int]:
    group_id, at = read_compact_string(data, at)
    (generation_id,) = _r_i(data, at)
    at += 4
    member_id, at = read_compact_string(data, at)
    group_instance_id, at = read_nullable_compact_string(data, at)
    at = skip_tags(data, at)
    return HeartbeatRequest(
        group_id=group_id, generation_id=generation_id, member_id=member_id, group_instance_id=group_instance_id
    ), at


HEARTBEAT_REQUEST: Final = MessageCodec(
    HeartbeatRequest,
    12,
    readers={
        0: _read_heartbeat_request_0,
        1: _read_heartbeat_request_0,
        2: _read_heartbeat_request_0,
        3: _read_heartbeat_request_3,
        4: _read_heartbeat_request_4,
    },
    writers={},
    flexible_from=4,
)
