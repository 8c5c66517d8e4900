"""TxnOffsetCommitResponse, versions 0 to 5. Generated from TxnOffsetCommitResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    write_length,
    write_string,
)

_w_i = Struct(">i").pack
_w_ih = Struct(">ih").pack


class TxnOffsetCommitResponsePartition(Structure):
    """A structure of TxnOffsetCommitResponse."""

    __slots__ = ("partition_index", "error_code")
    __match_args__ = ("partition_index", "error_code")

    def __init__(
        self,
        partition_index: int,
        error_code: int,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code


class TxnOffsetCommitResponseTopic(Structure):
    """A structure of TxnOffsetCommitResponse."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[TxnOffsetCommitResponsePartition, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The responses for each partition in the topic.
        self.partitions: Final = partitions


class TxnOffsetCommitResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "topics")
    __match_args__ = ("throttle_time_ms", "topics")

    def __init__(
        self,
        throttle_time_ms: int,
        topics: tuple[TxnOffsetCommitResponseTopic, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The responses for each topic.
        self.topics: Final = topics


def _write_txn_offset_commit_response_partition_0(out: Output, value: TxnOffsetCommitResponsePartition) -> None:
    out += _w_ih(value.partition_index, value.error_code)


def _write_txn_offset_commit_response_topic_0(out: Output, value: TxnOffsetCommitResponseTopic) -> None:
    write_string(out, value.name)
    write_array(out, value.partitions, write_length, _write_txn_offset_commit_response_partition_0)


def _write_txn_offset_commit_response_0(out: Output, value: TxnOffsetCommitResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_length, _write_txn_offset_commit_response_topic_0)


def _write_txn_offset_commit_response_partition_3(out: Output, value: TxnOffsetCommitResponsePartition) -> None:
    out += _w_ih(value.partition_index, value.error_code)
    out.append(0)


def _write_txn_offset_commit_response_topic_3(out: Output, value: TxnOffsetCommitResponseTopic) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partitions, write_compact_length, _write_txn_offset_commit_response_partition_3)
    out.append(0)


def _write_txn_offset_commit_response_3(out: Output, value: TxnOffsetCommitResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_compact_length, _write_txn_offset_commit_response_topic_3)
    out.append(0)


TXN_OFFSET_COMMIT_RESPONSE: Final = MessageCodec(
    TxnOffsetCommitResponse,
    28,
    readers={},
    writers={
        0: _write_txn_offset_commit_response_0,
        1: _write_txn_offset_commit_response_0,
        2: _write_txn_offset_commit_response_0,
        3: _write_txn_offset_commit_response_3,
        4: _write_txn_offset_commit_response_3,
        5: _write_txn_offset_commit_response_3,
    },
    flexible_from=3,
)
