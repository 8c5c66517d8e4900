"""UnregisterBrokerResponse, versions 0 to 0. Generated from UnregisterBrokerResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_compact_string,
)

_w_ih = Struct(">ih").pack


class UnregisterBrokerResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code", "error_message")
    __match_args__ = ("throttle_time_ms", "error_code", "error_message")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        error_message: str | None,
    ) -> None:
        # Duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The top-level error message, or `null` if there was no top-level error.
        self.error_message: Final = error_message


def _write_unregister_broker_response_0(out: Output, value: UnregisterBrokerResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.error_message)
    out.append(0)


UNREGISTER_BROKER_RESPONSE: Final = MessageCodec(
    UnregisterBrokerResponse,
    64,
    readers={},
    writers={0: _write_unregister_broker_response_0},
    flexible_from=0,
)
