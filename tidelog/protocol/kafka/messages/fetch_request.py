"""FetchRequest, versions 4 to 18. Generated from FetchRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    NO_UUID,
    Structure,
    check_tag,
    read_array,
    read_compact_length,
    read_compact_string,
    read_length,
    read_nullable_compact_string,
    read_numbers,
    read_string,
    read_tag,
    read_tag_count,
    skip_tags,
    uuid_of,
)
from tidelog.types import PartitionIndex

_r_u = Struct(">16s").unpack_from
_r_iiibii = Struct(">iiibii").unpack_from
_r_iiiib = Struct(">iiiib").unpack_from
_r_iiiibii = Struct(">iiiibii").unpack_from
_r_iiqiqi = Struct(">iiqiqi").unpack_from
_r_iiqqi = Struct(">iiqqi").unpack_from
_r_iq = Struct(">iq").unpack_from
_r_iqi = Struct(">iqi").unpack_from
_r_iqqi = Struct(">iqqi").unpack_from
_r_q = Struct(">q").unpack_from


class ReplicaState(Structure):
    """A structure of FetchRequest."""

    __slots__ = ("replica_id", "replica_epoch")
    __match_args__ = ("replica_id", "replica_epoch")

    def __init__(
        self,
        replica_id: int,
        replica_epoch: int,
    ) -> None:
        # The replica ID of the follower, or -1 if this request is from a consumer.
        self.replica_id: Final = replica_id
        # The epoch of this follower, or -1 if not available.
        self.replica_epoch: Final = replica_epoch


_REPLICA_STATE = ReplicaState(-1, -1)


class FetchPartition(Structure):
    """A structure of FetchRequest."""

    __slots__ = (
        "partition",
        "fetch_offset",
        "partition_max_bytes",
        "current_leader_epoch",
        "last_fetched_epoch",
        "log_start_offset",
        "replica_directory_id",
        "high_watermark",
    )
    __match_args__ = (
        "partition",
        "fetch_offset",
        "partition_max_bytes",
        "current_leader_epoch",
        "last_fetched_epoch",
        "log_start_offset",
        "replica_directory_id",
        "high_watermark",
    )

    def __init__(
        self,
        partition: PartitionIndex,
        fetch_offset: int,
        partition_max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        replica_directory_id: UUID = NO_UUID,
        high_watermark: int = 9223372036854775807,
    ) -> None:
        # The partition index.
        self.partition: Final = partition
        # The message offset.
        self.fetch_offset: Final = fetch_offset
        # The maximum bytes to fetch from this partition.  See KIP-74 for cases where this limit may not be honored.
        self.partition_max_bytes: Final = partition_max_bytes
        # The current leader epoch of the partition.
        self.current_leader_epoch: Final = current_leader_epoch
        # The epoch of the last fetched record or -1 if there is none.
        self.last_fetched_epoch: Final = last_fetched_epoch
        # The earliest available offset of the follower replica.  The field is only used when the request is sent by
        # the follower.
        self.log_start_offset: Final = log_start_offset
        # The directory id of the follower fetching.
        self.replica_directory_id: Final = replica_directory_id
        # The high-watermark known by the replica. -1 if the high-watermark is not known and 9223372036854775807 if
        # the feature is not supported.
        self.high_watermark: Final = high_watermark


class FetchTopic(Structure):
    """A structure of FetchRequest."""

    __slots__ = ("partitions", "topic", "topic_id")
    __match_args__ = ("partitions", "topic", "topic_id")

    def __init__(
        self,
        partitions: tuple[FetchPartition, ...],
        topic: str = "",
        topic_id: UUID = NO_UUID,
    ) -> None:
        # The partitions to fetch.
        self.partitions: Final = partitions
        # The name of the topic to fetch.
        self.topic: Final = topic
        # The unique topic ID.
        self.topic_id: Final = topic_id


class ForgottenTopic(Structure):
    """A structure of FetchRequest."""

    __slots__ = ("partitions", "topic", "topic_id")
    __match_args__ = ("partitions", "topic", "topic_id")

    def __init__(
        self,
        partitions: tuple[PartitionIndex, ...],
        topic: str = "",
        topic_id: UUID = NO_UUID,
    ) -> None:
        # The partitions indexes to forget.
        self.partitions: Final = partitions
        # The topic name.
        self.topic: Final = topic
        # The unique topic ID.
        self.topic_id: Final = topic_id


class FetchRequest(Structure):
    """The message."""

    __slots__ = (
        "max_wait_ms",
        "min_bytes",
        "max_bytes",
        "isolation_level",
        "topics",
        "cluster_id",
        "replica_id",
        "replica_state",
        "session_id",
        "session_epoch",
        "forgotten_topics_data",
        "rack_id",
    )
    __match_args__ = (
        "max_wait_ms",
        "min_bytes",
        "max_bytes",
        "isolation_level",
        "topics",
        "cluster_id",
        "replica_id",
        "replica_state",
        "session_id",
        "session_epoch",
        "forgotten_topics_data",
        "rack_id",
    )

    def __init__(
        self,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        topics: tuple[FetchTopic, ...],
        cluster_id: str | None = None,
        replica_id: int = -1,
        replica_state: ReplicaState = _REPLICA_STATE,
        session_id: int = 0,
        session_epoch: int = -1,
        forgotten_topics_data: tuple[ForgottenTopic, ...] = (),
        rack_id: str = "",
    ) -> None:
        # The maximum time in milliseconds to wait for the response.
        self.max_wait_ms: Final = max_wait_ms
        # The minimum bytes to accumulate in the response.
        self.min_bytes: Final = min_bytes
        # The maximum bytes to fetch.  See KIP-74 for cases where this limit may not be honored.
        self.max_bytes: Final = max_bytes
        # This setting controls the visibility of transactional records. Using READ_UNCOMMITTED (isolation_level = 0)
        # makes all records visible. With READ_COMMITTED (isolation_level = 1), non-transactional and COMMITTED
        # transactional records are visible. To be more concrete, READ_COMMITTED returns all data from offsets smaller
        # than the current LSO (last stable offset), and enables the inclusion of the list of aborted transactions in
        # the result, which allows consumers to discard ABORTED transactional records.
        self.isolation_level: Final = isolation_level
        # The topics to fetch.
        self.topics: Final = topics
        # The clusterId if known. This is used to validate metadata fetches prior to broker registration.
        self.cluster_id: Final = cluster_id
        # The broker ID of the follower, of -1 if this request is from a consumer.
        self.replica_id: Final = replica_id
        # The state of the replica in the follower.
        self.replica_state: Final = replica_state
        # The fetch session ID.
        self.session_id: Final = session_id
        # The fetch session epoch, which is used for ordering requests in a session.
        self.session_epoch: Final = session_epoch
        # In an incremental fetch request, the partitions to remove.
        self.forgotten_topics_data: Final = forgotten_topics_data
        # Rack ID of the consumer making this request.
        self.rack_id: Final = rack_id


def _read_fetch_partition_4(data: Data, at: int) -> tuple[FetchPartition, int]:
    partition, fetch_offset, partition_max_bytes = _r_iqi(data, at)
    at += 16
    return FetchPartition(partition=partition, fetch_offset=fetch_offset, partition_max_bytes=partition_max_bytes), at


def _read_fetch_topic_4(data: Data, at: int) -> tuple[FetchTopic, int]:
    topic, at = read_string(data, at)
    partitions, at = read_array(data, at, read_length, _read_fetch_partition_4)
    return FetchTopic(topic=topic, partitions=partitions), at


def _read_fetch_request_4(data: Data, at: int) -> tuple[FetchRequest, int]:
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = _r_iiiib(data, at)
    at += 17
    topics, at = read_array(data, at, read_length, _read_fetch_topic_4)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=topics,
    ), at


def _read_fetch_partition_5(data: Data, at: int) -> tuple[FetchPartition, int]:
    partition, fetch_offset, log_start_offset, partition_max_bytes = _r_iqqi(data, at)
    at += 24
    return FetchPartition(
        partition=partition,
        fetch_offset=fetch_offset,
        log_start_offset=log_start_offset,
        partition_max_bytes=partition_max_bytes,
    ), at


def _read_fetch_topic_5(data: Data, at: int) -> tuple[FetchTopic, int]:
    topic, at = read_string(data, at)
    partitions, at = read_array(data, at, read_length, _read_fetch_partition_5)
    return FetchTopic(topic=topic, partitions=partitions), at


def _read_fetch_request_5(data: Data, at: int) -> tuple[FetchRequest, int]:
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = _r_iiiib(data, at)
    at += 17
    topics, at = read_array(data, at, read_length, _read_fetch_topic_5)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=topics,
    ), at


def _read_forgotten_topic_7(data: Data, at: int) -> tuple[ForgottenTopic, int]:
    topic, at = read_string(data, at)
    partitions, at = read_numbers(data, at, read_length, "i")
    return ForgottenTopic(topic=topic, partitions=partitions), at


def _read_fetch_request_7(data: Data, at: int) -> tuple[FetchRequest, int]:
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _r_iiiibii(data, at)
    at += 25
    topics, at = read_array(data, at, read_length, _read_fetch_topic_5)
    forgotten_topics_data, at = read_array(data, at, read_length, _read_forgotten_topic_7)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=forgotten_topics_data,
    ), at


def _read_fetch_partition_9(data: Data, at: int) -> tuple[FetchPartition, int]:
    partition, current_leader_epoch, fetch_offset, log_start_offset, partition_max_bytes = _r_iiqqi(data, at)
    at += 28
    return FetchPartition(
        partition=partition,
        current_leader_epoch=current_leader_epoch,
        fetch_offset=fetch_offset,
        log_start_offset=log_start_offset,
        partition_max_bytes=partition_max_bytes,
    ), at


def _read_fetch_topic_9(data: Data, at: int) -> tuple[FetchTopic, int]:
    topic, at = read_string(data, at)
    partitions, at = read_array(data, at, read_length, _read_fetch_partition_9)
    return FetchTopic(topic=topic, partitions=partitions), at


def _read_fetch_request_9(data: Data, at: int) -> tuple[FetchRequest, int]:
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _r_iiiibii(data, at)
    at += 25
    topics, at = read_array(data, at, read_length, _read_fetch_topic_9)
    forgotten_topics_data, at = read_array(data, at, read_length, _read_forgotten_topic_7)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=forgotten_topics_data,
    ), at


def _read_fetch_request_11(data: Data, at: int) -> tuple[FetchRequest, int]:
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _r_iiiibii(data, at)
    at += 25
    topics, at = read_array(data, at, read_length, _read_fetch_topic_9)
    forgotten_topics_data, at = read_array(data, at, read_length, _read_forgotten_topic_7)
    rack_id, at = read_string(data, at)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=forgotten_topics_data,
        rack_id=rack_id,
    ), at


def _read_fetch_partition_12(data: Data, at: int) -> tuple[FetchPartition, int]:
    partition, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes = (
        _r_iiqiqi(data, at)
    )
    at += 32
    at = skip_tags(data, at)
    return FetchPartition(
        partition=partition,
        current_leader_epoch=current_leader_epoch,
        fetch_offset=fetch_offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=log_start_offset,
        partition_max_bytes=partition_max_bytes,
    ), at


def _read_fetch_topic_12(data: Data, at: int) -> tuple[FetchTopic, int]:
    topic, at = read_compact_string(data, at)
    partitions, at = read_array(data, at, read_compact_length, _read_fetch_partition_12)
    at = skip_tags(data, at)
    return FetchTopic(topic=topic, partitions=partitions), at


def _read_forgotten_topic_12(data: Data, at: int) -> tuple[ForgottenTopic, int]:
    topic, at = read_compact_string(data, at)
    partitions, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return ForgottenTopic(topic=topic, partitions=partitions), at


def _read_fetch_request_12(data: Data, at: int) -> tuple[FetchRequest, int]:
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _r_iiiibii(data, at)
    at += 25
    topics, at = read_array(data, at, read_compact_length, _read_fetch_topic_12)
    forgotten_topics_data, at = read_array(data, at, read_compact_length, _read_forgotten_topic_12)
    rack_id, at = read_compact_string(data, at)
    cluster_id: str | None = None
    tag_count, at = read_tag_count(data, at)
    for _ in range(tag_count):
        tag, at, end = read_tag(data, at)
        if tag == 0:
            cluster_id, at = read_nullable_compact_string(data, at)
        else:
            at = end
        check_tag(tag, at, end)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=forgotten_topics_data,
        rack_id=rack_id,
        cluster_id=cluster_id,
    ), at


def _read_fetch_topic_13(data: Data, at: int) -> tuple[FetchTopic, int]:
    (topic_id,) = _r_u(data, at)
    at += 16
    topic_id = uuid_of(topic_id)
    partitions, at = read_array(data, at, read_compact_length, _read_fetch_partition_12)
    at = skip_tags(data, at)
    return FetchTopic(topic_id=topic_id, partitions=partitions), at


def _read_forgotten_topic_13(data: Data, at: int) -> tuple[ForgottenTopic, int]:
    (topic_id,) = _r_u(data, at)
    at += 16
    topic_id = uuid_of(topic_id)
    partitions, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return ForgottenTopic(topic_id=topic_id, partitions=partitions), at


def _read_fetch_request_13(data: Data, at: int) -> tuple[FetchRequest, int]:
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _r_iiiibii(data, at)
    at += 25
    topics, at = read_array(data, at, read_compact_length, _read_fetch_topic_13)
    forgotten_topics_data, at = read_array(data, at, read_compact_length, _read_forgotten_topic_13)
    rack_id, at = read_compact_string(data, at)
    cluster_id: str | None = None
    tag_count, at = read_tag_count(data, at)
    for _ in range(tag_count):
        tag, at, end = read_tag(data, at)
        if tag == 0:
            cluster_id, at = read_nullable_compact_string(data, at)
        else:
            at = end
        check_tag(tag, at, end)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=forgotten_topics_data,
        rack_id=rack_id,
        cluster_id=cluster_id,
    ), at


def _read_replica_state_15(data: Data, at: int) -> tuple[ReplicaState, int]:
    replica_id, replica_epoch = _r_iq(data, at)
    at += 12
    at = skip_tags(data, at)
    return ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch), at


def _read_fetch_request_15(data: Data, at: int) -> tuple[FetchRequest, int]:
    max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _r_iiibii(data, at)
    at += 21
    topics, at = read_array(data, at, read_compact_length, _read_fetch_topic_13)
    forgotten_topics_data, at = read_array(data, at, read_compact_length, _read_forgotten_topic_13)
    rack_id, at = read_compact_string(data, at)
    cluster_id: str | None = None
    replica_state: ReplicaState = _REPLICA_STATE
    tag_count, at = read_tag_count(data, at)
    for _ in range(tag_count):
        tag, at, end = read_tag(data, at)
        if tag == 0:
            cluster_id, at = read_nullable_compact_string(data, at)
        elif tag == 1:
            replica_state, at = _read_replica_state_15(data, at)
        else:
            at = end
        check_tag(tag, at, end)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=forgotten_topics_data,
        rack_id=rack_id,
        cluster_id=cluster_id,
        replica_state=replica_state,
    ), at


def _read_fetch_partition_17(data: Data, at: int) -> tuple[FetchPartition, int]:
    partition, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes = (
        _r_iiqiqi(data, at)
    )
    at += 32
    replica_directory_id: UUID = NO_UUID
    tag_count, at = read_tag_count(data, at)
    for _ in range(tag_count):
        tag, at, end = read_tag(data, at)
        if tag == 0:
            (replica_directory_id,) = _r_u(data, at)
            at += 16
            replica_directory_id = uuid_of(replica_directory_id)
        else:
            at = end
        check_tag(tag, at, end)
    return FetchPartition(
        partition=partition,
        current_leader_epoch=current_leader_epoch,
        fetch_offset=fetch_offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=log_start_offset,
        partition_max_bytes=partition_max_bytes,
        replica_directory_id=replica_directory_id,
    ), at


def _read_fetch_topic_17(data: Data, at: int) -> tuple[FetchTopic, int]:
    (topic_id,) = _r_u(data, at)
    at += 16
    topic_id = uuid_of(topic_id)
    partitions, at = read_array(data, at, read_compact_length, _read_fetch_partition_17)
    at = skip_tags(data, at)
    return FetchTopic(topic_id=topic_id, partitions=partitions), at


def _read_fetch_request_17(data: Data, at: int) -> tuple[FetchRequest, int]:
    max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _r_iiibii(data, at)
    at += 21
    topics, at = read_array(data, at, read_compact_length, _read_fetch_topic_17)
    forgotten_topics_data, at = read_array(data, at, read_compact_length, _read_forgotten_topic_13)
    rack_id, at = read_compact_string(data, at)
    cluster_id: str | None = None
    replica_state: ReplicaState = _REPLICA_STATE
    tag_count, at = read_tag_count(data, at)
    for _ in range(tag_count):
        tag, at, end = read_tag(data, at)
        if tag == 0:
            cluster_id, at = read_nullable_compact_string(data, at)
        elif tag == 1:
            replica_state, at = _read_replica_state_15(data, at)
        else:
            at = end
        check_tag(tag, at, end)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=forgotten_topics_data,
        rack_id=rack_id,
        cluster_id=cluster_id,
        replica_state=replica_state,
    ), at


def _read_fetch_partition_18(data: Data, at: int) -> tuple[FetchPartition, int]:
    partition, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes = (
        _r_iiqiqi(data, at)
    )
    at += 32
    replica_directory_id: UUID = NO_UUID
    high_watermark: int = 9223372036854775807
    tag_count, at = read_tag_count(data, at)
    for _ in range(tag_count):
        tag, at, end = read_tag(data, at)
        if tag == 0:
            (replica_directory_id,) = _r_u(data, at)
            at += 16
            replica_directory_id = uuid_of(replica_directory_id)
        elif tag == 1:
            (high_watermark,) = _r_q(data, at)
            at += 8
        else:
            at = end
        check_tag(tag, at, end)
    return FetchPartition(
        partition=partition,
        current_leader_epoch=current_leader_epoch,
        fetch_offset=fetch_offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=log_start_offset,
        partition_max_bytes=partition_max_bytes,
        replica_directory_id=replica_directory_id,
        high_watermark=high_watermark,
    ), at


def _read_fetch_topic_18(data: Data, at: int) -> tuple[FetchTopic, int]:
    (topic_id,) = _r_u(data, at)
    at += 16
    topic_id = uuid_of(topic_id)
    partitions, at = read_array(data, at, read_compact_length, _read_fetch_partition_18)
    at = skip_tags(data, at)
    return FetchTopic(topic_id=topic_id, partitions=partitions), at


def _read_fetch_request_18(data: Data, at: int) -> tuple[FetchRequest, int]:
    max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _r_iiibii(data, at)
    at += 21
    topics, at = read_array(data, at, read_compact_length, _read_fetch_topic_18)
    forgotten_topics_data, at = read_array(data, at, read_compact_length, _read_forgotten_topic_13)
    rack_id, at = read_compact_string(data, at)
    cluster_id: str | None = None
    replica_state: ReplicaState = _REPLICA_STATE
    tag_count, at = read_tag_count(data, at)
    for _ in range(tag_count):
        tag, at, end = read_tag(data, at)
        if tag == 0:
            cluster_id, at = read_nullable_compact_string(data, at)
        elif tag == 1:
            replica_state, at = _read_replica_state_15(data, at)
        else:
            at = end
        check_tag(tag, at, end)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=forgotten_topics_data,
        rack_id=rack_id,
        cluster_id=cluster_id,
        replica_state=replica_state,
    ), at


FETCH_REQUEST: Final = MessageCodec(
    FetchRequest,
    1,
    readers={
        4: _read_fetch_request_4,
        5: _read_fetch_request_5,
        6: _read_fetch_request_5,
        7: _read_fetch_request_7,
        8: _read_fetch_request_7,
        9: _read_fetch_request_9,
        10: _read_fetch_request_9,
        11: _read_fetch_request_11,
        12: _read_fetch_request_12,
        13: _read_fetch_request_13,
        14: _read_fetch_request_13,
        15: _read_fetch_request_15,
        16: _read_fetch_request_15,
        17: _read_fetch_request_17,
        18: _read_fetch_request_18,
    },
    writers={},
    flexible_from=12,
)
