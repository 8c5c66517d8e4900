"""EndTxnResponse, versions 0 to 5. Generated from EndTxnResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
)
from tidelog.types import ProducerId

_w_ih = Struct(">ih").pack
_w_ihqh = Struct(">ihqh").pack


class EndTxnResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code", "producer_id", "producer_epoch")
    __match_args__ = ("throttle_time_ms", "error_code", "producer_id", "producer_epoch")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        producer_id: ProducerId = ProducerId(-1),
        producer_epoch: int = -1,
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The producer ID.
        self.producer_id: Final = producer_id
        # The current epoch associated with the producer.
        self.producer_epoch: Final = producer_epoch


def _write_end_txn_response_0(out: Output, value: EndTxnResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)


def _write_end_txn_response_3(out: Output, value: EndTxnResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    out.append(0)


def _write_end_txn_response_5(out: Output, value: EndTxnResponse) -> None:
    out += _w_ihqh(value.throttle_time_ms, value.error_code, value.producer_id, value.producer_epoch)
    out.append(0)


END_TXN_RESPONSE: Final = MessageCodec(
    EndTxnResponse,
    26,
    readers={},
    writers={
        0: _write_end_txn_response_0,
        1: _write_end_txn_response_0,
        2: _write_end_txn_response_0,
        3: _write_end_txn_response_3,
        4: _write_end_txn_response_3,
        5: _write_end_txn_response_5,
    },
    flexible_from=3,
)
