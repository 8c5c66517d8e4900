"""SyncGroupResponse, versions 0 to 5. Generated from SyncGroupResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_bytes,
    write_compact_length,
    write_compact_string,
    write_length,
)

_w_h = Struct(">h").pack
_w_ih = Struct(">ih").pack


class SyncGroupResponse(Structure):
    """The message."""

    __slots__ = ("error_code", "assignment", "throttle_time_ms", "protocol_type", "protocol_name")
    __match_args__ = ("error_code", "assignment", "throttle_time_ms", "protocol_type", "protocol_name")

    def __init__(
        self,
        error_code: int,
        assignment: bytes,
        throttle_time_ms: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> None:
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The member assignment.
        self.assignment: Final = assignment
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The group protocol type.
        self.protocol_type: Final = protocol_type
        # The group protocol name.
        self.protocol_name: Final = protocol_name


def _write_sync_group_response_0(out: Output, value: SyncGroupResponse) -> None:
    out += _w_h(value.error_code)
    write_bytes(out, value.assignment, write_length)


def _write_sync_group_response_1(out: Output, value: SyncGroupResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_bytes(out, value.assignment, write_length)


def _write_sync_group_response_4(out: Output, value: SyncGroupResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_bytes(out, value.assignment, write_compact_length)
    out.append(0)


def _write_sync_group_response_5(out: Output, value: SyncGroupResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.protocol_type)
    write_compact_string(out, value.protocol_name)
    write_bytes(out, value.assignment, write_compact_length)
    out.append(0)


SYNC_GROUP_RESPONSE: Final = MessageCodec(
    SyncGroupResponse,
    14,
    readers={},
    writers={
        0: _write_sync_group_response_0,
        1: _write_sync_group_response_1,
        2: _write_sync_group_response_1,
        3: _write_sync_group_response_1,
        4: _write_sync_group_response_4,
        5: _write_sync_group_response_5,
    },
    flexible_from=4,
)
