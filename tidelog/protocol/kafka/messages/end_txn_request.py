"""EndTxnRequest, versions 0 to 5. Generated from EndTxnRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_compact_string,
    read_string,
    skip_tags,
)
from tidelog.types import ProducerId

_r_qht = Struct(">qh?").unpack_from


class EndTxnRequest(Structure):
    """The message."""

    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "committed")
    __match_args__ = ("transactional_id", "producer_id", "producer_epoch", "committed")

    def __init__(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: int,
        committed: bool,
    ) -> None:
        # The ID of the transaction to end.
        self.transactional_id: Final = transactional_id
        # The producer ID.
        self.producer_id: Final = producer_id
        # The current epoch associated with the producer.
        self.producer_epoch: Final = producer_epoch
        # True if the transaction was committed, false if it was aborted.
        self.committed: Final = committed


def _read_end_txn_request_0(data: Data, at: int) -> tuple[EndTxnRequest, int]:
    transactional_id, at = read_string(data, at)
    producer_id, producer_epoch, committed = _r_qht(data, at)
    at += 11
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch, committed=committed
    ), at


def _read_end_txn_request_3(data: Data, at: int) -> tuple[EndTxnRequest, int]:
    transactional_id, at = read_compact_string(data, at)
    producer_id, producer_epoch, committed = _r_qht(data, at)
    at += 11
    at = skip_tags(data, at)
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch, committed=committed
    ), at


END_TXN_REQUEST: Final = MessageCodec(
    EndTxnRequest,
    26,
    readers={
        0: _read_end_txn_request_0,
        1: _read_end_txn_request_0,
        2: _read_end_txn_request_0,
        3: _read_end_txn_request_3,
        4: _read_end_txn_request_3,
        5: _read_end_txn_request_3,
    },
    writers={},
    flexible_from=3,
)
