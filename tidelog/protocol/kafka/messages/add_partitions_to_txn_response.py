"""AddPartitionsToTxnResponse, versions 0 to 5. Generated from AddPartitionsToTxnResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    inexpressible,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)

_w_i = Struct(">i").pack
_w_ih = Struct(">ih").pack


class AddPartitionsToTxnPartitionResult(Structure):
    """A structure of AddPartitionsToTxnResponse."""

    __slots__ = ("partition_index", "partition_error_code")
    __match_args__ = ("partition_index", "partition_error_code")

    def __init__(
        self,
        partition_index: int,
        partition_error_code: int,
    ) -> None:
        # The partition indexes.
        self.partition_index: Final = partition_index
        # The response error code.
        self.partition_error_code: Final = partition_error_code


class AddPartitionsToTxnTopicResult(Structure):
    """A structure of AddPartitionsToTxnResponse."""

    __slots__ = ("name", "results_by_partition")
    __match_args__ = ("name", "results_by_partition")

    def __init__(
        self,
        name: str,
        results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The results for each partition.
        self.results_by_partition: Final = results_by_partition


class AddPartitionsToTxnResult(Structure):
    """A structure of AddPartitionsToTxnResponse."""

    __slots__ = ("transactional_id", "topic_results")
    __match_args__ = ("transactional_id", "topic_results")

    def __init__(
        self,
        transactional_id: str,
        topic_results: tuple[AddPartitionsToTxnTopicResult, ...],
    ) -> None:
        # The transactional id corresponding to the transaction.
        self.transactional_id: Final = transactional_id
        # The results for each topic.
        self.topic_results: Final = topic_results


class AddPartitionsToTxnResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code", "results_by_transaction", "results_by_topic_v3_and_below")
    __match_args__ = ("throttle_time_ms", "error_code", "results_by_transaction", "results_by_topic_v3_and_below")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int = 0,
        results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = (),
        results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = (),
    ) -> None:
        # Duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The response top level error code.
        self.error_code: Final = error_code
        # Results categorized by transactional ID.
        self.results_by_transaction: Final = results_by_transaction
        # The results for each topic.
        self.results_by_topic_v3_and_below: Final = results_by_topic_v3_and_below


def _write_add_partitions_to_txn_partition_result_0(out: Output, value: AddPartitionsToTxnPartitionResult) -> None:
    out += _w_ih(value.partition_index, value.partition_error_code)


def _write_add_partitions_to_txn_topic_result_0(out: Output, value: AddPartitionsToTxnTopicResult) -> None:
    write_string(out, value.name)
    write_array(out, value.results_by_partition, write_length, _write_add_partitions_to_txn_partition_result_0)


def _write_add_partitions_to_txn_response_0(out: Output, value: AddPartitionsToTxnResponse) -> None:
    if value.results_by_transaction != ():
        raise inexpressible("AddPartitionsToTxnResponse.results_by_transaction")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results_by_topic_v3_and_below, write_length, _write_add_partitions_to_txn_topic_result_0)


def _write_add_partitions_to_txn_partition_result_3(out: Output, value: AddPartitionsToTxnPartitionResult) -> None:
    out += _w_ih(value.partition_index, value.partition_error_code)
    out.append(0)


def _write_add_partitions_to_txn_topic_result_3(out: Output, value: AddPartitionsToTxnTopicResult) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.results_by_partition, write_compact_length, _write_add_partitions_to_txn_partition_result_3)
    out.append(0)


def _write_add_partitions_to_txn_response_3(out: Output, value: AddPartitionsToTxnResponse) -> None:
    if value.results_by_transaction != ():
        raise inexpressible("AddPartitionsToTxnResponse.results_by_transaction")
    out += _w_i(value.throttle_time_ms)
    write_array(
        out, value.results_by_topic_v3_and_below, write_compact_length, _write_add_partitions_to_txn_topic_result_3
    )
    out.append(0)


def _write_add_partitions_to_txn_result_4(out: Output, value: AddPartitionsToTxnResult) -> None:
    write_compact_string(out, value.transactional_id)
    write_array(out, value.topic_results, write_compact_length, _write_add_partitions_to_txn_topic_result_3)
    out.append(0)


def _write_add_partitions_to_txn_response_4(out: Output, value: AddPartitionsToTxnResponse) -> None:
    if value.results_by_topic_v3_and_below != ():
        raise inexpressible("AddPartitionsToTxnResponse.results_by_topic_v3_and_below")
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.results_by_transaction, write_compact_length, _write_add_partitions_to_txn_result_4)
    out.append(0)


ADD_PARTITIONS_TO_TXN_RESPONSE: Final = MessageCodec(
    AddPartitionsToTxnResponse,
    24,
    readers={},
    writers={
        0: _write_add_partitions_to_txn_response_0,
        1: _write_add_partitions_to_txn_response_0,
        2: _write_add_partitions_to_txn_response_0,
        3: _write_add_partitions_to_txn_response_3,
        4: _write_add_partitions_to_txn_response_4,
        5: _write_add_partitions_to_txn_response_4,
    },
    flexible_from=3,
)
