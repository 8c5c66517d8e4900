"""AddPartitionsToTxnRequest, versions 0 to 5. Generated from AddPartitionsToTxnRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_length,
    read_numbers,
    read_string,
    skip_tags,
)
from tidelog.types import PartitionIndex, ProducerId

_r_qh = Struct(">qh").unpack_from
_r_qht = Struct(">qh?").unpack_from


class AddPartitionsToTxnTopic(Structure):
    """A structure of AddPartitionsToTxnRequest."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[PartitionIndex, ...],
    ) -> None:
        # The name of the topic.
        self.name: Final = name
        # The partition indexes to add to the transaction.
        self.partitions: Final = partitions


class AddPartitionsToTxnTransaction(Structure):
    """A structure of AddPartitionsToTxnRequest."""

    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "verify_only", "topics")
    __match_args__ = ("transactional_id", "producer_id", "producer_epoch", "verify_only", "topics")

    def __init__(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: int,
        verify_only: bool,
        topics: tuple[AddPartitionsToTxnTopic, ...],
    ) -> None:
        # The transactional id corresponding to the transaction.
        self.transactional_id: Final = transactional_id
        # Current producer id in use by the transactional id.
        self.producer_id: Final = producer_id
        # Current epoch associated with the producer id.
        self.producer_epoch: Final = producer_epoch
        # Boolean to signify if we want to check if the partition is in the transaction rather than add it.
        self.verify_only: Final = verify_only
        # The partitions to add to the transaction.
        self.topics: Final = topics


class AddPartitionsToTxnRequest(Structure):
    """The message."""

    __slots__ = (
        "transactions",
        "v3_and_below_transactional_id",
        "v3_and_below_producer_id",
        "v3_and_below_producer_epoch",
        "v3_and_below_topics",
    )
    __match_args__ = (
        "transactions",
        "v3_and_below_transactional_id",
        "v3_and_below_producer_id",
        "v3_and_below_producer_epoch",
        "v3_and_below_topics",
    )

    def __init__(
        self,
        transactions: tuple[AddPartitionsToTxnTransaction, ...] = (),
        v3_and_below_transactional_id: str = "",
        v3_and_below_producer_id: int = 0,
        v3_and_below_producer_epoch: int = 0,
        v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = (),
    ) -> None:
        # List of transactions to add partitions to.
        self.transactions: Final = transactions
        # The transactional id corresponding to the transaction.
        self.v3_and_below_transactional_id: Final = v3_and_below_transactional_id
        # Current producer id in use by the transactional id.
        self.v3_and_below_producer_id: Final = v3_and_below_producer_id
        # Current epoch associated with the producer id.
        self.v3_and_below_producer_epoch: Final = v3_and_below_producer_epoch
        # The partitions to add to the transaction.
        self.v3_and_below_topics: Final = v3_and_below_topics


def _read_add_partitions_to_txn_topic_0(data: Data, at: int) -> tuple[AddPartitionsToTxnTopic, int]:
    name, at = read_string(data, at)
    partitions, at = read_numbers(data, at, read_length, "i")
    return AddPartitionsToTxnTopic(name=name, partitions=partitions), at


def _read_add_partitions_to_txn_request_0(data: Data, at: int) -> tuple[AddPartitionsToTxnRequest, int]:
    v3_and_below_transactional_id, at = read_string(data, at)
    v3_and_below_producer_id, v3_and_below_producer_epoch = _r_qh(data, at)
    at += 10
    v3_and_below_topics, at = read_array(data, at, read_length, _read_add_partitions_to_txn_topic_0)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=v3_and_below_transactional_id,
        v3_and_below_producer_id=v3_and_below_producer_id,
        v3_and_below_producer_epoch=v3_and_below_producer_epoch,
        v3_and_below_topics=v3_and_below_topics,
    ), at


def _read_add_partitions_to_txn_topic_3(data: Data, at: int) -> tuple[AddPartitionsToTxnTopic, int]:
    name, at = read_compact_string(data, at)
    partitions, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return AddPartitionsToTxnTopic(name=name, partitions=partitions), at


def _read_add_partitions_to_txn_request_3(data: Data, at: int) -> tuple[AddPartitionsToTxnRequest, int]:
    v3_and_below_transactional_id, at = read_compact_string(data, at)
    v3_and_below_producer_id, v3_and_below_producer_epoch = _r_qh(data, at)
    at += 10
    v3_and_below_topics, at = read_array(data, at, read_compact_length, _read_add_partitions_to_txn_topic_3)
    at = skip_tags(data, at)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=v3_and_below_transactional_id,
        v3_and_below_producer_id=v3_and_below_producer_id,
        v3_and_below_producer_epoch=v3_and_below_producer_epoch,
        v3_and_below_topics=v3_and_below_topics,
    ), at


def _read_add_partitions_to_txn_transaction_4(data: Data, at: int) -> tuple[AddPartitionsToTxnTransaction, int]:
    transactional_id, at = read_compact_string(data, at)
    producer_id, producer_epoch, verify_only = _r_qht(data, at)
    at += 11
    topics, at = read_array(data, at, read_compact_length, _read_add_partitions_to_txn_topic_3)
    at = skip_tags(data, at)
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        verify_only=verify_only,
        topics=topics,
    ), at


def _read_add_partitions_to_txn_request_4(data: Data, at: int) -> tuple[AddPartitionsToTxnRequest, int]:
    transactions, at = read_array(data, at, read_compact_length, _read_add_partitions_to_txn_transaction_4)
    at = skip_tags(data, at)
    return AddPartitionsToTxnRequest(transactions=transactions), at


ADD_PARTITIONS_TO_TXN_REQUEST: Final = MessageCodec(
    AddPartitionsToTxnRequest,
    24,
    readers={
        0: _read_add_partitions_to_txn_request_0,
        1: _read_add_partitions_to_txn_request_0,
        2: _read_add_partitions_to_txn_request_0,
        3: _read_add_partitions_to_txn_request_3,
        4: _read_add_partitions_to_txn_request_4,
        5: _read_add_partitions_to_txn_request_4,
    },
    writers={},
    flexible_from=3,
)
