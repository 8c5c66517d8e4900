"""DescribeTransactionsResponse, versions 0 to 0. Generated from DescribeTransactionsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_array,
    write_compact_length,
    write_compact_string,
    write_numbers,
)
from tidelog.types import PartitionIndex, ProducerId

_w_h = Struct(">h").pack
_w_i = Struct(">i").pack
_w_iqqh = Struct(">iqqh").pack


class TopicData(Structure):
    """A structure of DescribeTransactionsResponse."""

    __slots__ = ("topic", "partitions")
    __match_args__ = ("topic", "partitions")

    def __init__(
        self,
        topic: str,
        partitions: tuple[PartitionIndex, ...],
    ) -> None:
        # The topic name.
        self.topic: Final = topic
        # The partition ids included in the current transaction.
        self.partitions: Final = partitions


class TransactionState(Structure):
    """A structure of DescribeTransactionsResponse."""

    __slots__ = (
        "error_code",
        "transactional_id",
        "transaction_state",
        "transaction_timeout_ms",
        "transaction_start_time_ms",
        "producer_id",
        "producer_epoch",
        "topics",
    )
    __match_args__ = (
        "error_code",
        "transactional_id",
        "transaction_state",
        "transaction_timeout_ms",
        "transaction_start_time_ms",
        "producer_id",
        "producer_epoch",
        "topics",
    )

    def __init__(
        self,
        error_code: int,
        transactional_id: str,
        transaction_state: str,
        transaction_timeout_ms: int,
        transaction_start_time_ms: int,
        producer_id: ProducerId,
        producer_epoch: int,
        topics: tuple[TopicData, ...],
    ) -> None:
        # The error code.
        self.error_code: Final = error_code
        # The transactional id.
        self.transactional_id: Final = transactional_id
        # The current transaction state of the producer.
        self.transaction_state: Final = transaction_state
        # The timeout in milliseconds for the transaction.
        self.transaction_timeout_ms: Final = transaction_timeout_ms
        # The start time of the transaction in milliseconds.
        self.transaction_start_time_ms: Final = transaction_start_time_ms
        # The current producer id associated with the transaction.
        self.producer_id: Final = producer_id
        # The current epoch associated with the producer id.
        self.producer_epoch: Final = producer_epoch
        # The set of partitions included in the current transaction (if active). When a transaction is preparing to
        # commit or abort, this will include only partitions which do not have markers.
        self.topics: Final = topics


class DescribeTransactionsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "transaction_states")
    __match_args__ = ("throttle_time_ms", "transaction_states")

    def __init__(
        self,
        throttle_time_ms: int,
        transaction_states: tuple[TransactionState, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The current state of the transaction.
        self.transaction_states: Final = transaction_states


def _write_topic_data_0(out: Output, value: TopicData) -> None:
    write_compact_string(out, value.topic)
    write_numbers(out, value.partitions, write_compact_length, "i")
    out.append(0)


def _write_transaction_state_0(out: Output, value: TransactionState) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.transactional_id)
    write_compact_string(out, value.transaction_state)
    out += _w_iqqh(
        value.transaction_timeout_ms, value.transaction_start_time_ms, value.producer_id, value.producer_epoch
    )
    write_array(out, value.topics, write_compact_length, _write_topic_data_0)
    out.append(0)


def _write_describe_transactions_response_0(out: Output, value: DescribeTransactionsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.transaction_states, write_compact_length, _write_transaction_state_0)
    out.append(0)


DESCRIBE_TRANSACTIONS_RESPONSE: Final = MessageCodec(
    DescribeTransactionsResponse,
    65,
    readers={},
    writers={0: _write_describe_transactions_response_0},
    flexible_from=0,
)
