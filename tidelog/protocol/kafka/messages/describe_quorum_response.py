"""DescribeQuorumResponse, versions 0 to 2. Generated from DescribeQuorumResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    write_array,
    write_compact_length,
    write_compact_string,
)
from tidelog.types import LeaderEpoch

_w_H = Struct(">H").pack
_w_h = Struct(">h").pack
_w_i = Struct(">i").pack
_w_iuqqq = Struct(">i16sqqq").pack
_w_ih = Struct(">ih").pack
_w_ihiiq = Struct(">ihiiq").pack
_w_iiq = Struct(">iiq").pack
_w_iq = Struct(">iq").pack
_w_iqqq = Struct(">iqqq").pack


class ReplicaState(Structure):
    """A structure of DescribeQuorumResponse."""

    __slots__ = (
        "replica_id",
        "log_end_offset",
        "replica_directory_id",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
    )
    __match_args__ = (
        "replica_id",
        "log_end_offset",
        "replica_directory_id",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
    )

    def __init__(
        self,
        replica_id: int,
        log_end_offset: int,
        replica_directory_id: UUID = NO_UUID,
        last_fetch_timestamp: int = -1,
        last_caught_up_timestamp: int = -1,
    ) -> None:
        # The ID of the replica.
        self.replica_id: Final = replica_id
        # The last known log end offset of the follower or -1 if it is unknown.
        self.log_end_offset: Final = log_end_offset
        # The replica directory ID of the replica.
        self.replica_directory_id: Final = replica_directory_id
        # The last known leader wall clock time time when a follower fetched from the leader. This is reported as -1
        # both for the current leader or if it is unknown for a voter.
        self.last_fetch_timestamp: Final = last_fetch_timestamp
        # The leader wall clock append time of the offset for which the follower made the most recent fetch request.
        # This is reported as the current time for the leader and -1 if unknown for a voter.
        self.last_caught_up_timestamp: Final = last_caught_up_timestamp


class PartitionData(Structure):
    """A structure of DescribeQuorumResponse."""

    __slots__ = (
        "partition_index",
        "error_code",
        "leader_id",
        "leader_epoch",
        "high_watermark",
        "current_voters",
        "observers",
        "error_message",
    )
    __match_args__ = (
        "partition_index",
        "error_code",
        "leader_id",
        "leader_epoch",
        "high_watermark",
        "current_voters",
        "observers",
        "error_message",
    )

    def __init__(
        self,
        partition_index: int,
        error_code: int,
        leader_id: int,
        leader_epoch: LeaderEpoch,
        high_watermark: int,
        current_voters: tuple[ReplicaState, ...],
        observers: tuple[ReplicaState, ...],
        error_message: str | None = "",
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The partition error code.
        self.error_code: Final = error_code
        # The ID of the current leader or -1 if the leader is unknown.
        self.leader_id: Final = leader_id
        # The latest known leader epoch.
        self.leader_epoch: Final = leader_epoch
        # The high water mark.
        self.high_watermark: Final = high_watermark
        # The current voters of the partition.
        self.current_voters: Final = current_voters
        # The observers of the partition.
        self.observers: Final = observers
        # The error message, or null if there was no error.
        self.error_message: Final = error_message


class TopicData(Structure):
    """A structure of DescribeQuorumResponse."""

    __slots__ = ("topic_name", "partitions")
    __match_args__ = ("topic_name", "partitions")

    def __init__(
        self,
        topic_name: str,
        partitions: tuple[PartitionData, ...],
    ) -> None:
        # The topic name.
        self.topic_name: Final = topic_name
        # The partition data.
        self.partitions: Final = partitions


class Listener(Structure):
    """A structure of DescribeQuorumResponse."""

    __slots__ = ("name", "host", "port")
    __match_args__ = ("name", "host", "port")

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
    ) -> None:
        # The name of the endpoint.
        self.name: Final = name
        # The hostname.
        self.host: Final = host
        # The port.
        self.port: Final = port


class Node(Structure):
    """A structure of DescribeQuorumResponse."""

    __slots__ = ("node_id", "listeners")
    __match_args__ = ("node_id", "listeners")

    def __init__(
        self,
        node_id: int,
        listeners: tuple[Listener, ...],
    ) -> None:
        # The ID of the associated node.
        self.node_id: Final = node_id
        # The listeners of this controller.
        self.listeners: Final = listeners


class DescribeQuorumResponse(Structure):
    """The message."""

    __slots__ = ("error_code", "topics", "error_message", "nodes")
    __match_args__ = ("error_code", "topics", "error_message", "nodes")

    def __init__(
        self,
        error_code: int,
        topics: tuple[TopicData, ...],
        error_message: str | None = "",
        nodes: tuple[Node, ...] = (),
    ) -> None:
        # The top level error code.
        self.error_code: Final = error_code
        # The response from the describe quorum API.
        self.topics: Final = topics
        # The error message, or null if there was no error.
        self.error_message: Final = error_message
        # The nodes in the quorum.
        self.nodes: Final = nodes


def _write_replica_state_0(out: Output, value: ReplicaState) -> None:
    if value.replica_directory_id != NO_UUID:
        raise inexpressible("ReplicaState.replica_directory_id")
    out += _w_iq(value.replica_id, value.log_end_offset)
    out.append(0)


def _write_partition_data_0(out: Output, value: PartitionData) -> None:
    out += _w_ihiiq(value.partition_index, value.error_code, value.leader_id, value.leader_epoch, value.high_watermark)
    write_array(out, value.current_voters, write_compact_length, _write_replica_state_0)
    write_array(out, value.observers, write_compact_length, _write_replica_state_0)
    out.append(0)


def _write_topic_data_0(out: Output, value: TopicData) -> None:
    write_compact_string(out, value.topic_name)
    write_array(out, value.partitions, write_compact_length, _write_partition_data_0)
    out.append(0)


def _write_describe_quorum_response_0(out: Output, value: DescribeQuorumResponse) -> None:
    if value.nodes != ():
        raise inexpressible("DescribeQuorumResponse.nodes")
    out += _w_h(value.error_code)
    write_array(out, value.topics, write_compact_length, _write_topic_data_0)
    out.append(0)


def _write_replica_state_1(out: Output, value: ReplicaState) -> None:
    if value.replica_directory_id != NO_UUID:
        raise inexpressible("ReplicaState.replica_directory_id")
    out += _w_iqqq(value.replica_id, value.log_end_offset, value.last_fetch_timestamp, value.last_caught_up_timestamp)
    out.append(0)


def _write_partition_data_1(out: Output, value: PartitionData) -> None:
    out += _w_ihiiq(value.partition_index, value.error_code, value.leader_id, value.leader_epoch, value.high_watermark)
    write_array(out, value.current_voters, write_compact_length, _write_replica_state_1)
    write_array(out, value.observers, write_compact_length, _write_replica_state_1)
    out.append(0)


def _write_topic_data_1(out: Output, value: TopicData) -> None:
    write_compact_string(out, value.topic_name)
    write_array(out, value.partitions, write_compact_length, _write_partition_data_1)
    out.append(0)


def _write_describe_quorum_response_1(out: Output, value: DescribeQuorumResponse) -> None:
    if value.nodes != ():
        raise inexpressible("DescribeQuorumResponse.nodes")
    out += _w_h(value.error_code)
    write_array(out, value.topics, write_compact_length, _write_topic_data_1)
    out.append(0)


def _write_replica_state_2(out: Output, value: ReplicaState) -> None:
    out += _w_iuqqq(
        value.replica_id,
        value.replica_directory_id.bytes,
        value.log_end_offset,
        value.last_fetch_timestamp,
        value.last_caught_up_timestamp,
    )
    out.append(0)


def _write_partition_data_2(out: Output, value: PartitionData) -> None:
    out += _w_ih(value.partition_index, value.error_code)
    write_compact_string(out, value.error_message)
    out += _w_iiq(value.leader_id, value.leader_epoch, value.high_watermark)
    write_array(out, value.current_voters, write_compact_length, _write_replica_state_2)
    write_array(out, value.observers, write_compact_length, _write_replica_state_2)
    out.append(0)


def _write_topic_data_2(out: Output, value: TopicData) -> None:
    write_compact_string(out, value.topic_name)
    write_array(out, value.partitions, write_compact_length, _write_partition_data_2)
    out.append(0)


def _write_listener_2(out: Output, value: Listener) -> None:
    write_compact_string(out, value.name)
    write_compact_string(out, value.host)
    out += _w_H(value.port)
    out.append(0)


def _write_node_2(out: Output, value: Node) -> None:
    out += _w_i(value.node_id)
    write_array(out, value.listeners, write_compact_length, _write_listener_2)
    out.append(0)


def _write_describe_quorum_response_2(out: Output, value: DescribeQuorumResponse) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    write_array(out, value.topics, write_compact_length, _write_topic_data_2)
    write_array(out, value.nodes, write_compact_length, _write_node_2)
    out.append(0)


DESCRIBE_QUORUM_RESPONSE: Final = MessageCodec(
    DescribeQuorumResponse,
    55,
    readers={},
    writers={
        0: _write_describe_quorum_response_0,
        1: _write_describe_quorum_response_1,
        2: _write_describe_quorum_response_2,
    },
    flexible_from=0,
)
