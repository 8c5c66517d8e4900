"""InitProducerIdRequest, versions 0 to 6. Generated from InitProducerIdRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_nullable_compact_string,
    read_nullable_string,
    skip_tags,
)
from tidelog.types import ProducerId

_r_i = Struct(">i").unpack_from
_r_iqh = Struct(">iqh").unpack_from
_r_iqhtt = Struct(">iqh??").unpack_from


class InitProducerIdRequest(Structure):
    """The message."""

    __slots__ = (
        "transactional_id",
        "transaction_timeout_ms",
        "producer_id",
        "producer_epoch",
        "enable2_pc",
        "keep_prepared_txn",
    )
    __match_args__ = (
        "transactional_id",
        "transaction_timeout_ms",
        "producer_id",
        "producer_epoch",
        "enable2_pc",
        "keep_prepared_txn",
    )

    def __init__(
        self,
        transactional_id: str | None,
        transaction_timeout_ms: int,
        producer_id: ProducerId = ProducerId(-1),
        producer_epoch: int = -1,
        enable2_pc: bool = False,
        keep_prepared_txn: bool = False,
    ) -> None:
        # The transactional id, or null if the producer is not transactional.
        self.transactional_id: Final = transactional_id
        # The time in ms to wait before aborting idle transactions sent by this producer. This is only relevant if a
        # TransactionalId has been defined.
        self.transaction_timeout_ms: Final = transaction_timeout_ms
        # The producer id. This is used to disambiguate requests if a transactional id is reused following its
        # expiration.
        self.producer_id: Final = producer_id
        # The producer's current epoch. This will be checked against the producer epoch on the broker, and the request
        # will return an error if they do not match.
        self.producer_epoch: Final = producer_epoch
        # True if the client wants to enable two-phase commit (2PC) protocol for transactions.
        self.enable2_pc: Final = enable2_pc
        # True if the client wants to keep the currently ongoing transaction instead of aborting it.
        self.keep_prepared_txn: Final = keep_prepared_txn


def _read_init_producer_id_request_0(data: Data, at: int) -> tuple[InitProducerIdRequest, int]:
    transactional_id, at = read_nullable_string(data, at)
    (transaction_timeout_ms,) = _r_i(data, at)
    at += 4
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms), at


def _read_init_producer_id_request_2(data: Data, at: int) -> tuple[InitProducerIdRequest, int]:
    transactional_id, at = read_nullable_compact_string(data, at)
    (transaction_timeout_ms,) = _r_i(data, at)
    at += 4
    at = skip_tags(data, at)
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms), at


def _read_init_producer_id_request_3(data: Data, at: int) -> tuple[InitProducerIdRequest, int]:
    transactional_id, at = read_nullable_compact_string(data, at)
    transaction_timeout_ms, producer_id, producer_epoch = _r_iqh(data, at)
    at += 14
    at = skip_tags(data, at)
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=transaction_timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    ), at


def _read_init_producer_id_request_6(data: Data, at: int) -> tuple[InitProducerIdRequest, int]:
    transactional_id, at = read_nullable_compact_string(data, at)
    transaction_timeout_ms, producer_id, producer_epoch, enable2_pc, keep_prepared_txn = _r_iqhtt(data, at)
    at += 16
    at = skip_tags(data, at)
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=transaction_timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        enable2_pc=enable2_pc,
        keep_prepared_txn=keep_prepared_txn,
    ), at


INIT_PRODUCER_ID_REQUEST: Final = MessageCodec(
    InitProducerIdRequest,
    22,
    readers={
        0: _read_init_producer_id_request_0,
        1: _read_init_producer_id_request_0,
        2: _read_init_producer_id_request_2,
        3: _read_init_producer_id_request_3,
        4: _read_init_producer_id_request_3,
        5: _read_init_producer_id_request_3,
        6: _read_init_producer_id_request_6,
    },
    writers={},
    flexible_from=2,
)
