"""InitProducerIdResponse, versions 0 to 6. Generated from InitProducerIdResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    inexpressible,
)
from tidelog.types import ProducerId

_w_ihqh = Struct(">ihqh").pack
_w_ihqhqh = Struct(">ihqhqh").pack


class InitProducerIdResponse(Structure):
    """The message."""

    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "producer_id",
        "producer_epoch",
        "ongoing_txn_producer_id",
        "ongoing_txn_producer_epoch",
    )
    __match_args__ = (
        "throttle_time_ms",
        "error_code",
        "producer_id",
        "producer_epoch",
        "ongoing_txn_producer_id",
        "ongoing_txn_producer_epoch",
    )

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        producer_id: ProducerId,
        producer_epoch: int,
        ongoing_txn_producer_id: int = -1,
        ongoing_txn_producer_epoch: int = -1,
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The current producer id.
        self.producer_id: Final = producer_id
        # The current epoch associated with the producer id.
        self.producer_epoch: Final = producer_epoch
        # The producer id for ongoing transaction when KeepPreparedTxn is used, -1 if there is no transaction ongoing.
        self.ongoing_txn_producer_id: Final = ongoing_txn_producer_id
        # The epoch associated with the  producer id for ongoing transaction when KeepPreparedTxn is used, -1 if there
        # is no transaction ongoing.
        self.ongoing_txn_producer_epoch: Final = ongoing_txn_producer_epoch


def _write_init_producer_id_response_0(out: Output, value: InitProducerIdResponse) -> None:
    if value.ongoing_txn_producer_id != -1:
        raise inexpressible("InitProducerIdResponse.ongoing_txn_producer_id")
    if value.ongoing_txn_producer_epoch != -1:
        raise inexpressible("InitProducerIdResponse.ongoing_txn_producer_epoch")
    out += _w_ihqh(value.throttle_time_ms, value.error_code, value.producer_id, value.producer_epoch)


def _write_init_producer_id_response_2(out: Output, value: InitProducerIdResponse) -> None:
    if value.ongoing_txn_producer_id != -1:
        raise inexpressible("InitProducerIdResponse.ongoing_txn_producer_id")
    if value.ongoing_txn_producer_epoch != -1:
        raise inexpressible("InitProducerIdResponse.ongoing_txn_producer_epoch")
    out += _w_ihqh(value.throttle_time_ms, value.error_code, value.producer_id, value.producer_epoch)
    out.append(0)


def _write_init_producer_id_response_6(out: Output, value: InitProducerIdResponse) -> None:
    out += _w_ihqhqh(
        value.throttle_time_ms,
        value.error_code,
        value.producer_id,
        value.producer_epoch,
        value.ongoing_txn_producer_id,
        value.ongoing_txn_producer_epoch,
    )
    out.append(0)


INIT_PRODUCER_ID_RESPONSE: Final = MessageCodec(
    InitProducerIdResponse,
    22,
    readers={},
    writers={
        0: _write_init_producer_id_response_0,
        1: _write_init_producer_id_response_0,
        2: _write_init_producer_id_response_2,
        3: _write_init_producer_id_response_2,
        4: _write_init_producer_id_response_2,
        5: _write_init_producer_id_response_2,
        6: _write_init_producer_id_response_6,
    },
    flexible_from=2,
)
