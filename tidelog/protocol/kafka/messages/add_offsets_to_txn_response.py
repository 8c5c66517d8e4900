"""AddOffsetsToTxnResponse, versions 0 to 4. Generated from AddOffsetsToTxnResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
)

_w_ih = Struct(">ih").pack


class AddOffsetsToTxnResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code")
    __match_args__ = ("throttle_time_ms", "error_code")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
    ) -> None:
        # Duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The response error code, or 0 if there was no error.
        self.error_code: Final = error_code


def _write_add_offsets_to_txn_response_0(out: Output, value: AddOffsetsToTxnResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)


def _write_add_offsets_to_txn_response_3(out: Output, value: AddOffsetsToTxnResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    out.append(0)


ADD_OFFSETS_TO_TXN_RESPONSE: Final = MessageCodec(
    AddOffsetsToTxnResponse,
    25,
    readers={},
    writers={
        0: _write_add_offsets_to_txn_response_0,
        1: _write_add_offsets_to_txn_response_0,
        2: _write_add_offsets_to_txn_response_0,
        3: _write_add_offsets_to_txn_response_3,
        4: _write_add_offsets_to_txn_response_3,
    },
    flexible_from=3,
)
