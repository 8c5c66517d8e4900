"""AddOffsetsToTxnRequest, versions 0 to 4. Generated from AddOffsetsToTxnRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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

_r_qh = Struct(">qh").unpack_from


class AddOffsetsToTxnRequest(Structure):
    """The message."""

    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "group_id")
    __match_args__ = ("transactional_id", "producer_id", "producer_epoch", "group_id")

    def __init__(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: int,
        group_id: str,
    ) -> None:
        # The transactional id corresponding to the transaction.
        self.transactional_id: Final = transactional_id
        # Current producer id in use by the transactional id.
        self.producer_id: Final = producer_id
        # Current epoch associated with the producer id.
        self.producer_epoch: Final = producer_epoch
        # The unique group identifier.
        self.group_id: Final = group_id


def _read_add_offsets_to_txn_request_0(data: Data, at: int) -> tuple[AddOffsetsToTxnRequest, int]:
    transactional_id, at = read_string(data, at)
    producer_id, producer_epoch = _r_qh(data, at)
    at += 10
    group_id, at = read_string(data, at)
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch, group_id=group_id
    ), at


def _read_add_offsets_to_txn_request_3(data: Data, at: int) -> tuple[AddOffsetsToTxnRequest, int]:
    transactional_id, at = read_compact_string(data, at)
    producer_id, producer_epoch = _r_qh(data, at)
    at += 10
    group_id, at = read_compact_string(data, at)
    at = skip_tags(data, at)
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch, group_id=group_id
    ), at


ADD_OFFSETS_TO_TXN_REQUEST: Final = MessageCodec(
    AddOffsetsToTxnRequest,
    25,
    readers={
        0: _read_add_offsets_to_txn_request_0,
        1: _read_add_offsets_to_txn_request_0,
        2: _read_add_offsets_to_txn_request_0,
        3: _read_add_offsets_to_txn_request_3,
        4: _read_add_offsets_to_txn_request_3,
    },
    writers={},
    flexible_from=3,
)
