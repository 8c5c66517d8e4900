"""TxnOffsetCommitRequest, versions 0 to 5. Generated from TxnOffsetCommitRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    read_nullable_compact_string,
    read_nullable_string,
    read_string,
    skip_tags,
)
from tidelog.types import ProducerId

_r_iq = Struct(">iq").unpack_from
_r_iqi = Struct(">iqi").unpack_from
_r_qh = Struct(">qh").unpack_from
_r_qhi = Struct(">qhi").unpack_from


class TxnOffsetCommitRequestPartition(Structure):
    """A structure of TxnOffsetCommitRequest."""

    __slots__ = ("partition_index", "committed_offset", "committed_metadata", "committed_leader_epoch")
    __match_args__ = ("partition_index", "committed_offset", "committed_metadata", "committed_leader_epoch")

    def __init__(
        self,
        partition_index: int,
        committed_offset: int,
        committed_metadata: str | None,
        committed_leader_epoch: int = -1,
    ) -> None:
        # The index of the partition within the topic.
        self.partition_index: Final = partition_index
        # The message offset to be committed.
        self.committed_offset: Final = committed_offset
        # Any associated metadata the client wants to keep.
        self.committed_metadata: Final = committed_metadata
        # The leader epoch of the last consumed record.
        self.committed_leader_epoch: Final = committed_leader_epoch


class TxnOffsetCommitRequestTopic(Structure):
    """A structure of TxnOffsetCommitRequest."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[TxnOffsetCommitRequestPartition, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The partitions inside the topic that we want to commit offsets for.
        self.partitions: Final = partitions


class TxnOffsetCommitRequest(Structure):
    """The message."""

    __slots__ = (
        "transactional_id",
        "group_id",
        "producer_id",
        "producer_epoch",
        "topics",
        "generation_id",
        "member_id",
        "group_instance_id",
    )
    __match_args__ = (
        "transactional_id",
        "group_id",
        "producer_id",
        "producer_epoch",
        "topics",
        "generation_id",
        "member_id",
        "group_instance_id",
    )

    def __init__(
        self,
        transactional_id: str,
        group_id: str,
        producer_id: ProducerId,
        producer_epoch: int,
        topics: tuple[TxnOffsetCommitRequestTopic, ...],
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None:
        # The ID of the transaction.
        self.transactional_id: Final = transactional_id
        # The ID of the group.
        self.group_id: Final = group_id
        # The current producer ID in use by the transactional ID.
        self.producer_id: Final = producer_id
        # The current epoch associated with the producer ID.
        self.producer_epoch: Final = producer_epoch
        # Each topic that we want to commit offsets for.
        self.topics: Final = topics
        # The generation of the consumer.
        self.generation_id: Final = generation_id
        # The member ID assigned by the group coordinator.
        self.member_id: Final = member_id
        # The unique identifier of the consumer instance provided by end user.
        self.group_instance_id: Final = group_instance_id


def _read_txn_offset_commit_request_partition_0(data: Data, at: int) -> tuple[TxnOffsetCommitRequestPartition, int]:
    partition_index, committed_offset = _r_iq(data, at)
    at += 12
    committed_metadata, at = read_nullable_string(data, at)
    return TxnOffsetCommitRequestPartition(
        partition_index=partition_index, committed_offset=committed_offset, committed_metadata=committed_metadata
    ), at


def _read_txn_offset_commit_request_topic_0(data: Data, at: int) -> tuple[TxnOffsetCommitRequestTopic, int]:
    name, at = read_string(data, at)
    partitions, at = read_array(data, at, read_length, _read_txn_offset_commit_request_partition_0)
    return TxnOffsetCommitRequestTopic(name=name, partitions=partitions), at


def _read_txn_offset_commit_request_0(data: Data, at: int) -> tuple[TxnOffsetCommitRequest, int]:
    transactional_id, at = read_string(data, at)
    group_id, at = read_string(data, at)
    producer_id, producer_epoch = _r_qh(data, at)
    at += 10
    topics, at = read_array(data, at, read_length, _read_txn_offset_commit_request_topic_0)
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=topics,
    ), at


def _read_txn_offset_commit_request_partition_2(data: Data, at: int) -> tuple[TxnOffsetCommitRequestPartition, int]:
    partition_index, committed_offset, committed_leader_epoch = _r_iqi(data, at)
    at += 16
    committed_metadata, at = read_nullable_string(data, at)
    return TxnOffsetCommitRequestPartition(
        partition_index=partition_index,
        committed_offset=committed_offset,
        committed_leader_epoch=committed_leader_epoch,
        committed_metadata=committed_metadata,
    ), at


def _read_txn_offset_commit_request_topic_2(data: Data, at: int) -> tuple[TxnOffsetCommitRequestTopic, int]:
    name, at = read_string(data, at)
    partitions, at = read_array(data, at, read_length, _read_txn_offset_commit_request_partition_2)
    return TxnOffsetCommitRequestTopic(name=name, partitions=partitions), at


def _read_txn_offset_commit_request_2(data: Data, at: int) -> tuple[TxnOffsetCommitRequest, int]:
    transactional_id, at = read_string(data, at)
    group_id, at = read_string(data, at)
    producer_id, producer_epoch = _r_qh(data, at)
    at += 10
    topics, at = read_array(data, at, read_length, _read_txn_offset_commit_request_topic_2)
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=topics,
    ), at


def _read_txn_offset_commit_request_partition_3(data: Data, at: int) -> tuple[TxnOffsetCommitRequestPartition, int]:
    partition_index, committed_offset, committed_leader_epoch = _r_iqi(data, at)
    at += 16
    committed_metadata, at = read_nullable_compact_string(data, at)
    at = skip_tags(data, at)
    return TxnOffsetCommitRequestPartition(
        partition_index=partition_index,
        committed_offset=committed_offset,
        committed_leader_epoch=committed_leader_epoch,
        committed_metadata=committed_metadata,
    ), at


def _read_txn_offset_commit_request_topic_3(data: Data, at: int) -> tuple[TxnOffsetCommitRequestTopic, int]:
    name, at = read_compact_string(data, at)
    partitions, at = read_array(data, at, read_compact_length, _read_txn_offset_commit_request_partition_3)
    at = skip_tags(data, at)
    return TxnOffsetCommitRequestTopic(name=name, partitions=partitions), at


def _read_txn_offset_commit_request_3(data: Data, at: int) -> tuple[TxnOffsetCommitRequest, int]:
    transactional_id, at = read_compact_string(data, at)
    group_id, at = read_compact_string(data, at)
    producer_id, producer_epoch, generation_id = _r_qhi(data, at)
    at += 14
    member_id, at = read_compact_string(data, at)
    group_instance_id, at = read_nullable_compact_string(data, at)
    topics, at = read_array(data, at, read_compact_length, _read_txn_offset_commit_request_topic_3)
    at = skip_tags(data, at)
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=topics,
    ), at


TXN_OFFSET_COMMIT_REQUEST: Final = MessageCodec(
    TxnOffsetCommitRequest,
    28,
    readers={
        0: _read_txn_offset_commit_request_0,
        1: _read_txn_offset_commit_request_0,
        2: _read_txn_offset_commit_request_2,
        3: _read_txn_offset_commit_request_3,
        4: _read_txn_offset_commit_request_3,
        5: _read_txn_offset_commit_request_3,
    },
    writers={},
    flexible_from=3,
)
