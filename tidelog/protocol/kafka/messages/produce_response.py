"""ProduceResponse, versions 3 to 13. Generated from ProduceResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    write_length,
    write_string,
    write_tags,
)
from tidelog.types import LeaderEpoch

_w_u = Struct(">16s").pack
_w_i = Struct(">i").pack
_w_ihqq = Struct(">ihqq").pack
_w_ihqqq = Struct(">ihqqq").pack
_w_ii = Struct(">ii").pack


class BatchIndexAndErrorMessage(Structure):
    """A structure of ProduceResponse."""

    __slots__ = ("batch_index", "batch_index_error_message")
    __match_args__ = ("batch_index", "batch_index_error_message")

    def __init__(
        self,
        batch_index: int,
        batch_index_error_message: str | None,
    ) -> None:
        # The batch index of the record that caused the batch to be dropped.
        self.batch_index: Final = batch_index
        # The error message of the record that caused the batch to be dropped.
        self.batch_index_error_message: Final = batch_index_error_message


class LeaderIdAndEpoch(Structure):
    """A structure of ProduceResponse."""

    __slots__ = ("leader_id", "leader_epoch")
    __match_args__ = ("leader_id", "leader_epoch")

    def __init__(
        self,
        leader_id: int,
        leader_epoch: LeaderEpoch,
    ) -> None:
        # The ID of the current leader or -1 if the leader is unknown.
        self.leader_id: Final = leader_id
        # The latest known leader epoch.
        self.leader_epoch: Final = leader_epoch


_LEADER_ID_AND_EPOCH = LeaderIdAndEpoch(-1, LeaderEpoch(-1))


class PartitionProduceResponse(Structure):
    """A structure of ProduceResponse."""

    __slots__ = (
        "index",
        "error_code",
        "base_offset",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
        "error_message",
        "current_leader",
    )
    __match_args__ = (
        "index",
        "error_code",
        "base_offset",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
        "error_message",
        "current_leader",
    )

    def __init__(
        self,
        index: int,
        error_code: int,
        base_offset: int,
        log_append_time_ms: int,
        log_start_offset: int = -1,
        record_errors: tuple[BatchIndexAndErrorMessage, ...] = (),
        error_message: str | None = None,
        current_leader: LeaderIdAndEpoch = _LEADER_ID_AND_EPOCH,
    ) -> None:
        # The partition index.
        self.index: Final = index
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The base offset.
        self.base_offset: Final = base_offset
        # The timestamp returned by broker after appending the messages. If CreateTime is used for the topic, the
        # timestamp will be -1.  If LogAppendTime is used for the topic, the timestamp will be the broker local time
        # when the messages are appended.
        self.log_append_time_ms: Final = log_append_time_ms
        # The log start offset.
        self.log_start_offset: Final = log_start_offset
        # The batch indices of records that caused the batch to be dropped.
        self.record_errors: Final = record_errors
        # The global error message summarizing the common root cause of the records that caused the batch to be
        # dropped.
        self.error_message: Final = error_message
        # The leader broker that the producer should use for future requests.
        self.current_leader: Final = current_leader


class TopicProduceResponse(Structure):
    """A structure of ProduceResponse."""

    __slots__ = ("partition_responses", "name", "topic_id")
    __match_args__ = ("partition_responses", "name", "topic_id")

    def __init__(
        self,
        partition_responses: tuple[PartitionProduceResponse, ...],
        name: str = "",
        topic_id: UUID = NO_UUID,
    ) -> None:
        # Each partition that we produced to within the topic.
        self.partition_responses: Final = partition_responses
        # The topic name.
        self.name: Final = name
        # The unique topic ID
        self.topic_id: Final = topic_id


class NodeEndpoint(Structure):
    """A structure of ProduceResponse."""

    __slots__ = ("node_id", "host", "port", "rack")
    __match_args__ = ("node_id", "host", "port", "rack")

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        rack: str | None,
    ) -> None:
        # The ID of the associated node.
        self.node_id: Final = node_id
        # The node's hostname.
        self.host: Final = host
        # The node's port.
        self.port: Final = port
        # The rack of the node, or null if it has not been assigned to a rack.
        self.rack: Final = rack


class ProduceResponse(Structure):
    """The message."""

    __slots__ = ("responses", "throttle_time_ms", "node_endpoints")
    __match_args__ = ("responses", "throttle_time_ms", "node_endpoints")

    def __init__(
        self,
        responses: tuple[TopicProduceResponse, ...],
        throttle_time_ms: int,
        node_endpoints: tuple[NodeEndpoint, ...] = (),
    ) -> None:
        # Each produce response.
        self.responses: Final = responses
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # Endpoints for all current-leaders enumerated in PartitionProduceResponses, with errors
        # NOT_LEADER_OR_FOLLOWER.
        self.node_endpoints: Final = node_endpoints


def _write_partition_produce_response_3(out: Output, value: PartitionProduceResponse) -> None:
    if value.current_leader is not _LEADER_ID_AND_EPOCH and value.current_leader != _LEADER_ID_AND_EPOCH:
        raise inexpressible("PartitionProduceResponse.current_leader")
    out += _w_ihqq(value.index, value.error_code, value.base_offset, value.log_append_time_ms)


def _write_topic_produce_response_3(out: Output, value: TopicProduceResponse) -> None:
    write_string(out, value.name)
    write_array(out, value.partition_responses, write_length, _write_partition_produce_response_3)


def _write_produce_response_3(out: Output, value: ProduceResponse) -> None:
    if value.node_endpoints != ():
        raise inexpressible("ProduceResponse.node_endpoints")
    write_array(out, value.responses, write_length, _write_topic_produce_response_3)
    out += _w_i(value.throttle_time_ms)


def _write_partition_produce_response_5(out: Output, value: PartitionProduceResponse) -> None:
    if value.current_leader is not _LEADER_ID_AND_EPOCH and value.current_leader != _LEADER_ID_AND_EPOCH:
        raise inexpressible("PartitionProduceResponse.current_leader")
    out += _w_ihqqq(value.index, value.error_code, value.base_offset, value.log_append_time_ms, value.log_start_offset)


def _write_topic_produce_response_5(out: Output, value: TopicProduceResponse) -> None:
    write_string(out, value.name)
    write_array(out, value.partition_responses, write_length, _write_partition_produce_response_5)


def _write_produce_response_5(out: Output, value: ProduceResponse) -> None:
    if value.node_endpoints != ():
        raise inexpressible("ProduceResponse.node_endpoints")
    write_array(out, value.responses, write_length, _write_topic_produce_response_5)
    out += _w_i(value.throttle_time_ms)


def _write_batch_index_and_error_message_8(out: Output, value: BatchIndexAndErrorMessage) -> None:
    out += _w_i(value.batch_index)
    write_string(out, value.batch_index_error_message)


def _write_partition_produce_response_8(out: Output, value: PartitionProduceResponse) -> None:
    if value.current_leader is not _LEADER_ID_AND_EPOCH and value.current_leader != _LEADER_ID_AND_EPOCH:
        raise inexpressible("PartitionProduceResponse.current_leader")
    out += _w_ihqqq(value.index, value.error_code, value.base_offset, value.log_append_time_ms, value.log_start_offset)
    write_array(out, value.record_errors, write_length, _write_batch_index_and_error_message_8)
    write_string(out, value.error_message)


def _write_topic_produce_response_8(out: Output, value: TopicProduceResponse) -> None:
    write_string(out, value.name)
    write_array(out, value.partition_responses, write_length, _write_partition_produce_response_8)


def _write_produce_response_8(out: Output, value: ProduceResponse) -> None:
    if value.node_endpoints != ():
        raise inexpressible("ProduceResponse.node_endpoints")
    write_array(out, value.responses, write_length, _write_topic_produce_response_8)
    out += _w_i(value.throttle_time_ms)


def _write_batch_index_and_error_message_9(out: Output, value: BatchIndexAndErrorMessage) -> None:
    out += _w_i(value.batch_index)
    write_compact_string(out, value.batch_index_error_message)
    out.append(0)


def _write_partition_produce_response_9(out: Output, value: PartitionProduceResponse) -> None:
    if value.current_leader is not _LEADER_ID_AND_EPOCH and value.current_leader != _LEADER_ID_AND_EPOCH:
        raise inexpressible("PartitionProduceResponse.current_leader")
    out += _w_ihqqq(value.index, value.error_code, value.base_offset, value.log_append_time_ms, value.log_start_offset)
    write_array(out, value.record_errors, write_compact_length, _write_batch_index_and_error_message_9)
    write_compact_string(out, value.error_message)
    out.append(0)


def _write_topic_produce_response_9(out: Output, value: TopicProduceResponse) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partition_responses, write_compact_length, _write_partition_produce_response_9)
    out.append(0)


def _write_produce_response_9(out: Output, value: ProduceResponse) -> None:
    if value.node_endpoints != ():
        raise inexpressible("ProduceResponse.node_endpoints")
    write_array(out, value.responses, write_compact_length, _write_topic_produce_response_9)
    out += _w_i(value.throttle_time_ms)
    out.append(0)


def _write_leader_id_and_epoch_10(out: Output, value: LeaderIdAndEpoch) -> None:
    out += _w_ii(value.leader_id, value.leader_epoch)
    out.append(0)


def _write_partition_produce_response_10(out: Output, value: PartitionProduceResponse) -> None:
    out += _w_ihqqq(value.index, value.error_code, value.base_offset, value.log_append_time_ms, value.log_start_offset)
    write_array(out, value.record_errors, write_compact_length, _write_batch_index_and_error_message_9)
    write_compact_string(out, value.error_message)
    tags: list[tuple[int, Output]] = []
    if value.current_leader is not _LEADER_ID_AND_EPOCH and value.current_leader != _LEADER_ID_AND_EPOCH:
        tagged = Output()
        _write_leader_id_and_epoch_10(tagged, value.current_leader)
        tags.append((0, tagged))
    write_tags(out, tags)


def _write_topic_produce_response_10(out: Output, value: TopicProduceResponse) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partition_responses, write_compact_length, _write_partition_produce_response_10)
    out.append(0)


def _write_node_endpoint_10(out: Output, value: NodeEndpoint) -> None:
    out += _w_i(value.node_id)
    write_compact_string(out, value.host)
    out += _w_i(value.port)
    write_compact_string(out, value.rack)
    out.append(0)


def _write_produce_response_10(out: Output, value: ProduceResponse) -> None:
    write_array(out, value.responses, write_compact_length, _write_topic_produce_response_10)
    out += _w_i(value.throttle_time_ms)
    tags: list[tuple[int, Output]] = []
    if value.node_endpoints != ():
        tagged = Output()
        write_array(tagged, value.node_endpoints, write_compact_length, _write_node_endpoint_10)
        tags.append((0, tagged))
    write_tags(out, tags)


def _write_topic_produce_response_13(out: Output, value: TopicProduceResponse) -> None:
    out += _w_u(value.topic_id.bytes)
    write_array(out, value.partition_responses, write_compact_length, _write_partition_produce_response_10)
    out.append(0)


def _write_produce_response_13(out: Output, value: ProduceResponse) -> None:
    write_array(out, value.responses, write_compact_length, _write_topic_produce_response_13)
    out += _w_i(value.throttle_time_ms)
    tags: list[tuple[int, Output]] = []
    if value.node_endpoints != ():
        tagged = Output()
        write_array(tagged, value.node_endpoints, write_compact_length, _write_node_endpoint_10)
        tags.append((0, tagged))
    write_tags(out, tags)


PRODUCE_RESPONSE: Final = MessageCodec(
    ProduceResponse,
    0,
    readers={},
    writers={
        3: _write_produce_response_3,
        4: _write_produce_response_3,
        5: _write_produce_response_5,
        6: _write_produce_response_5,
        7: _write_produce_response_5,
        8: _write_produce_response_8,
        9: _write_produce_response_9,
        10: _write_produce_response_10,
        11: _write_produce_response_10,
        12: _write_produce_response_10,
        13: _write_produce_response_13,
    },
    flexible_from=9,
)
