"""HeartbeatResponse, versions 0 to 4. Generated from HeartbeatResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
)

_w_h = Struct(">h").pack
_w_ih = Struct(">ih").pack


class HeartbeatResponse(Structure):
    """The message."""

    __slots__ = ("error_code", "throttle_time_ms")
    __match_args__ = ("error_code", "throttle_time_ms")

    def __init__(
        self,
        error_code: int,
        throttle_time_ms: int = 0,
    ) -> None:
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms


def _write_heartbeat_response_0(out: Output, value: HeartbeatResponse) -> None:
    out += _w_h(value.error_code)


def _write_heartbeat_response_1(out: Output, value: HeartbeatResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)


def _write_heartbeat_response_4(out: Output, value: HeartbeatResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    out.append(0)


HEARTBEAT_RESPONSE: Final = MessageCodec(
    HeartbeatResponse,
    12,
    readers={},
    writers={
        0: _write_heartbeat_response_0,
        1: _write_heartbeat_response_1,
        2: _write_heartbeat_response_1,
        3: _write_heartbeat_response_1,
        4: _write_heartbeat_response_4,
    },
    flexible_from=4,
)
