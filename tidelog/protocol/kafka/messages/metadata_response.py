"""MetadataResponse, versions 0 to 13. Generated from MetadataResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    NO_UUID,
    Output,
    Structure,
    inexpressible,
    not_null,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_numbers,
    write_string,
)
from tidelog.types import LeaderEpoch

_w_ut = Struct(">16s?").pack
_w_t = Struct(">?").pack
_w_h = Struct(">h").pack
_w_hii = Struct(">hii").pack
_w_hiii = Struct(">hiii").pack
_w_i = Struct(">i").pack


class MetadataResponseBroker(Structure):
    """A structure of MetadataResponse."""

    __slots__ = ("node_id", "host", "port", "rack")
    __match_args__ = ("node_id", "host", "port", "rack")

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        rack: str | None = None,
    ) -> None:
        # The broker ID.
        self.node_id: Final = node_id
        # The broker hostname.
        self.host: Final = host
        # The broker port.
        self.port: Final = port
        # The rack of the broker, or null if it has not been assigned to a rack.
        self.rack: Final = rack


class MetadataResponsePartition(Structure):
    """A structure of MetadataResponse."""

    __slots__ = (
        "error_code",
        "partition_index",
        "leader_id",
        "replica_nodes",
        "isr_nodes",
        "leader_epoch",
        "offline_replicas",
    )
    __match_args__ = (
        "error_code",
        "partition_index",
        "leader_id",
        "replica_nodes",
        "isr_nodes",
        "leader_epoch",
        "offline_replicas",
    )

    def __init__(
        self,
        error_code: int,
        partition_index: int,
        leader_id: int,
        replica_nodes: tuple[int, ...],
        isr_nodes: tuple[int, ...],
        leader_epoch: LeaderEpoch = LeaderEpoch(-1),
        offline_replicas: tuple[int, ...] = (),
    ) -> None:
        # The partition error, or 0 if there was no error.
        self.error_code: Final = error_code
        # The partition index.
        self.partition_index: Final = partition_index
        # The ID of the leader broker.
        self.leader_id: Final = leader_id
        # The set of all nodes that host this partition.
        self.replica_nodes: Final = replica_nodes
        # The set of nodes that are in sync with the leader for this partition.
        self.isr_nodes: Final = isr_nodes
        # The leader epoch of this partition.
        self.leader_epoch: Final = leader_epoch
        # The set of offline replicas of this partition.
        self.offline_replicas: Final = offline_replicas


class MetadataResponseTopic(Structure):
    """A structure of MetadataResponse."""

    __slots__ = ("error_code", "name", "partitions", "topic_id", "is_internal", "topic_authorized_operations")
    __match_args__ = ("error_code", "name", "partitions", "topic_id", "is_internal", "topic_authorized_operations")

    def __init__(
        self,
        error_code: int,
        name: str | None,
        partitions: tuple[MetadataResponsePartition, ...],
        topic_id: UUID = NO_UUID,
        is_internal: bool = False,
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        # The topic error, or 0 if there was no error.
        self.error_code: Final = error_code
        # The topic name. Null for non-existing topics queried by ID. This is never null when ErrorCode is zero. One
        # of Name and TopicId is always populated.
        self.name: Final = name
        # Each partition in the topic.
        self.partitions: Final = partitions
        # The topic id. Zero for non-existing topics queried by name. This is never zero when ErrorCode is zero. One
        # of Name and TopicId is always populated.
        self.topic_id: Final = topic_id
        # True if the topic is internal.
        self.is_internal: Final = is_internal
        # 32-bit bitfield to represent authorized operations for this topic.
        self.topic_authorized_operations: Final = topic_authorized_operations


class MetadataResponse(Structure):
    """The message."""

    __slots__ = (
        "brokers",
        "topics",
        "throttle_time_ms",
        "cluster_id",
        "controller_id",
        "cluster_authorized_operations",
        "error_code",
    )
    __match_args__ = (
        "brokers",
        "topics",
        "throttle_time_ms",
        "cluster_id",
        "controller_id",
        "cluster_authorized_operations",
        "error_code",
    )

    def __init__(
        self,
        brokers: tuple[MetadataResponseBroker, ...],
        topics: tuple[MetadataResponseTopic, ...],
        throttle_time_ms: int = 0,
        cluster_id: str | None = None,
        controller_id: int = -1,
        cluster_authorized_operations: int = -2147483648,
        error_code: int = 0,
    ) -> None:
        # A list of brokers present in the cluster.
        self.brokers: Final = brokers
        # Each topic in the response.
        self.topics: Final = topics
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The cluster ID that responding broker belongs to.
        self.cluster_id: Final = cluster_id
        # The ID of the controller broker.
        self.controller_id: Final = controller_id
        # 32-bit bitfield to represent authorized operations for this cluster.
        self.cluster_authorized_operations: Final = cluster_authorized_operations
        # The top-level error code, or 0 if there was no error.
        self.error_code: Final = error_code


def _write_metadata_response_broker_0(out: Output, value: MetadataResponseBroker) -> None:
    out += _w_i(value.node_id)
    write_string(out, value.host)
    out += _w_i(value.port)


def _write_metadata_response_partition_0(out: Output, value: MetadataResponsePartition) -> None:
    out += _w_hii(value.error_code, value.partition_index, value.leader_id)
    write_numbers(out, value.replica_nodes, write_length, "i")
    write_numbers(out, value.isr_nodes, write_length, "i")


def _write_metadata_response_topic_0(out: Output, value: MetadataResponseTopic) -> None:
    if value.topic_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponseTopic.topic_authorized_operations")
    out += _w_h(value.error_code)
    write_string(out, not_null(value.name, "MetadataResponseTopic.name"))
    write_array(out, value.partitions, write_length, _write_metadata_response_partition_0)


def _write_metadata_response_0(out: Output, value: MetadataResponse) -> None:
    if value.cluster_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponse.cluster_authorized_operations")
    write_array(out, value.brokers, write_length, _write_metadata_response_broker_0)
    write_array(out, value.topics, write_length, _write_metadata_response_topic_0)


def _write_metadata_response_broker_1(out: Output, value: MetadataResponseBroker) -> None:
    out += _w_i(value.node_id)
    write_string(out, value.host)
    out += _w_i(value.port)
    write_string(out, value.rack)


def _write_metadata_response_topic_1(out: Output, value: MetadataResponseTopic) -> None:
    if value.topic_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponseTopic.topic_authorized_operations")
    out += _w_h(value.error_code)
    write_string(out, not_null(value.name, "MetadataResponseTopic.name"))
    out += _w_t(value.is_internal)
    write_array(out, value.partitions, write_length, _write_metadata_response_partition_0)


def _write_metadata_response_1(out: Output, value: MetadataResponse) -> None:
    if value.cluster_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponse.cluster_authorized_operations")
    write_array(out, value.brokers, write_length, _write_metadata_response_broker_1)
    out += _w_i(value.controller_id)
    write_array(out, value.topics, write_length, _write_metadata_response_topic_1)


def _write_metadata_response_2(out: Output, value: MetadataResponse) -> None:
    if value.cluster_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponse.cluster_authorized_operations")
    write_array(out, value.brokers, write_length, _write_metadata_response_broker_1)
    write_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.topics, write_length, _write_metadata_response_topic_1)


def _write_metadata_response_3(out: Output, value: MetadataResponse) -> None:
    if value.cluster_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponse.cluster_authorized_operations")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.brokers, write_length, _write_metadata_response_broker_1)
    write_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.topics, write_length, _write_metadata_response_topic_1)


def _write_metadata_response_partition_5(out: Output, value: MetadataResponsePartition) -> None:
    out += _w_hii(value.error_code, value.partition_index, value.leader_id)
    write_numbers(out, value.replica_nodes, write_length, "i")
    write_numbers(out, value.isr_nodes, write_length, "i")
    write_numbers(out, value.offline_replicas, write_length, "i")


def _write_metadata_response_topic_5(out: Output, value: MetadataResponseTopic) -> None:
    if value.topic_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponseTopic.topic_authorized_operations")
    out += _w_h(value.error_code)
    write_string(out, not_null(value.name, "MetadataResponseTopic.name"))
    out += _w_t(value.is_internal)
    write_array(out, value.partitions, write_length, _write_metadata_response_partition_5)


def _write_metadata_response_5(out: Output, value: MetadataResponse) -> None:
    if value.cluster_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponse.cluster_authorized_operations")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.brokers, write_length, _write_metadata_response_broker_1)
    write_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.topics, write_length, _write_metadata_response_topic_5)


def _write_metadata_response_partition_7(out: Output, value: MetadataResponsePartition) -> None:
    out += _w_hiii(value.error_code, value.partition_index, value.leader_id, value.leader_epoch)
    write_numbers(out, value.replica_nodes, write_length, "i")
    write_numbers(out, value.isr_nodes, write_length, "i")
    write_numbers(out, value.offline_replicas, write_length, "i")


def _write_metadata_response_topic_7(out: Output, value: MetadataResponseTopic) -> None:
    if value.topic_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponseTopic.topic_authorized_operations")
    out += _w_h(value.error_code)
    write_string(out, not_null(value.name, "MetadataResponseTopic.name"))
    out += _w_t(value.is_internal)
    write_array(out, value.partitions, write_length, _write_metadata_response_partition_7)


def _write_metadata_response_7(out: Output, value: MetadataResponse) -> None:
    if value.cluster_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponse.cluster_authorized_operations")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.brokers, write_length, _write_metadata_response_broker_1)
    write_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.topics, write_length, _write_metadata_response_topic_7)


def _write_metadata_response_topic_8(out: Output, value: MetadataResponseTopic) -> None:
    out += _w_h(value.error_code)
    write_string(out, not_null(value.name, "MetadataResponseTopic.name"))
    out += _w_t(value.is_internal)
    write_array(out, value.partitions, write_length, _write_metadata_response_partition_7)
    out += _w_i(value.topic_authorized_operations)


def _write_metadata_response_8(out: Output, value: MetadataResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.brokers, write_length, _write_metadata_response_broker_1)
    write_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.topics, write_length, _write_metadata_response_topic_8)
    out += _w_i(value.cluster_authorized_operations)


def _write_metadata_response_broker_9(out: Output, value: MetadataResponseBroker) -> None:
    out += _w_i(value.node_id)
    write_compact_string(out, value.host)
    out += _w_i(value.port)
    write_compact_string(out, value.rack)
    out.append(0)


def _write_metadata_response_partition_9(out: Output, value: MetadataResponsePartition) -> None:
    out += _w_hiii(value.error_code, value.partition_index, value.leader_id, value.leader_epoch)
    write_numbers(out, value.replica_nodes, write_compact_length, "i")
    write_numbers(out, value.isr_nodes, write_compact_length, "i")
    write_numbers(out, value.offline_replicas, write_compact_length, "i")
    out.append(0)


def _write_metadata_response_topic_9(out: Output, value: MetadataResponseTopic) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, not_null(value.name, "MetadataResponseTopic.name"))
    out += _w_t(value.is_internal)
    write_array(out, value.partitions, write_compact_length, _write_metadata_response_partition_9)
    out += _w_i(value.topic_authorized_operations)
    out.append(0)


def _write_metadata_response_9(out: Output, value: MetadataResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.brokers, write_compact_length, _write_metadata_response_broker_9)
    write_compact_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.topics, write_compact_length, _write_metadata_response_topic_9)
    out += _w_i(value.cluster_authorized_operations)
    out.append(0)


def _write_metadata_response_topic_10(out: Output, value: MetadataResponseTopic) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, not_null(value.name, "MetadataResponseTopic.name"))
    out += _w_ut(value.topic_id.bytes, value.is_internal)
    write_array(out, value.partitions, write_compact_length, _write_metadata_response_partition_9)
    out += _w_i(value.topic_authorized_operations)
    out.append(0)


def _write_metadata_response_10(out: Output, value: MetadataResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.brokers, write_compact_length, _write_metadata_response_broker_9)
    write_compact_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.topics, write_compact_length, _write_metadata_response_topic_10)
    out += _w_i(value.cluster_authorized_operations)
    out.append(0)


def _write_metadata_response_11(out: Output, value: MetadataResponse) -> None:
    if value.cluster_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponse.cluster_authorized_operations")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.brokers, write_compact_length, _write_metadata_response_broker_9)
    write_compact_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.topics, write_compact_length, _write_metadata_response_topic_10)
    out.append(0)


def _write_metadata_response_topic_12(out: Output, value: MetadataResponseTopic) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.name)
    out += _w_ut(value.topic_id.bytes, value.is_internal)
    write_array(out, value.partitions, write_compact_length, _write_metadata_response_partition_9)
    out += _w_i(value.topic_authorized_operations)
    out.append(0)


def _write_metadata_response_12(out: Output, value: MetadataResponse) -> None:
    if value.cluster_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponse.cluster_authorized_operations")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.brokers, write_compact_length, _write_metadata_response_broker_9)
    write_compact_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.topics, write_compact_length, _write_metadata_response_topic_12)
    out.append(0)


def _write_metadata_response_13(out: Output, value: MetadataResponse) -> None:
    if value.cluster_authorized_operations != -2147483648:
        raise inexpressible("MetadataResponse.cluster_authorized_operations")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.brokers, write_compact_length, _write_metadata_response_broker_9)
    write_compact_string(out, value.cluster_id)
    out += _w_i(value.controller_id)
    write_array(out, value.topics, write_compact_length, _write_metadata_response_topic_12)
    out += _w_h(value.error_code)
    out.append(0)


METADATA_RESPONSE: Final = MessageCodec(
    MetadataResponse,
    3,
    readers={},
    writers={
        0: _write_metadata_response_0,
        1: _write_metadata_response_1,
        2: _write_metadata_response_2,
        3: _write_metadata_response_3,
        4: _write_metadata_response_3,
        5: _write_metadata_response_5,
        6: _write_metadata_response_5,
        7: _write_metadata_response_7,
        8: _write_metadata_response_8,
        9: _write_metadata_response_9,
        10: _write_metadata_response_10,
        11: _write_metadata_response_11,
        12: _write_metadata_response_12,
        13: _write_metadata_response_13,
    },
    flexible_from=9,
)
