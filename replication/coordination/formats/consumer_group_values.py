"""Values of the records of a consumer group that have structures in them (KIP-848): members, topics, assignments.

All are flexible and have one version.
Source: Kafka 4.1, the schemas of the group coordinator.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from replication.coordination.formats.fields import FieldReader, FieldWriter
from replication.coordination.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    PartitionRacks,
    SubscribedTopic,
    TopicPartitions,
)
from tidelog.types import Millis, PartitionIndex

_CLASSIC_MEMBER: Final = 0
"""Tag of the classic protocol in a member."""

_NULL: Final = -1
_PRESENT: Final = 1
"""The byte before a structure that may be null."""


# --- members ----------------------------------------------------------------------------------------------------


def read_member(reader: FieldReader, _: int) -> ConsumerGroupMemberMetadataValue:
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    names, regex = reader.array(FieldReader.string), reader.nullable_string()
    rebalance_timeout_ms, assignor = reader.int32(), reader.nullable_string()
    tagged = reader.tagged({_CLASSIC_MEMBER: _read_classic})
    return ConsumerGroupMemberMetadataValue(
        instance_id,
        rack_id,
        client_id,
        client_host,
        names,
        regex,
        rebalance_timeout_ms,
        assignor,
        tagged.get(_CLASSIC_MEMBER),
    )


def write_member(writer: FieldWriter, value: ConsumerGroupMemberMetadataValue, _: int) -> None:
    writer.string(value.instance_id)
    writer.string(value.rack_id)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.array(value.subscribed_topic_names, FieldWriter.string)
    writer.string(value.subscribed_topic_regex)
    writer.int32(value.rebalance_timeout_ms)
    writer.string(value.server_assignor)
    classic = value.classic_member_metadata
    writer.tagged([] if classic is None else [(_CLASSIC_MEMBER, partial(_write_classic, classic=classic))])


def _read_classic(reader: FieldReader) -> ClassicMemberMetadata | None:
    if reader.int8() == _NULL:
        return None
    classic = ClassicMemberMetadata(reader.int32(), reader.array(_read_protocol))
    reader.tagged({})
    return classic


def _write_classic(writer: FieldWriter, classic: ClassicMemberMetadata) -> None:
    writer.int8(_PRESENT)
    writer.int32(classic.session_timeout_ms)
    writer.array(classic.supported_protocols, _write_protocol)
    writer.tagged()


def _read_protocol(reader: FieldReader) -> ClassicProtocol:
    protocol = ClassicProtocol(reader.string(), reader.data())
    reader.tagged({})
    return protocol


def _write_protocol(writer: FieldWriter, protocol: ClassicProtocol) -> None:
    writer.string(protocol.name)
    writer.data(protocol.metadata)
    writer.tagged()


# --- topics -----------------------------------------------------------------------------------------------------


def read_topics(reader: FieldReader, _: int) -> ConsumerGroupPartitionMetadataValue:
    value = ConsumerGroupPartitionMetadataValue(reader.array(_read_topic))
    reader.tagged({})
    return value


def write_topics(writer: FieldWriter, value: ConsumerGroupPartitionMetadataValue, _: int) -> None:
    writer.array(value.topics, _write_topic)
    writer.tagged()


def _read_topic(reader: FieldReader) -> SubscribedTopic:
    topic = SubscribedTopic(reader.uuid(), reader.string(), reader.int32(), reader.array(_read_racks))
    reader.tagged({})
    return topic


def _write_topic(writer: FieldWriter, topic: SubscribedTopic) -> None:
    writer.uuid(topic.topic_id)
    writer.string(topic.topic_name)
    writer.int32(topic.num_partitions)
    writer.array(topic.partition_metadata, _write_racks)
    writer.tagged()


def _read_racks(reader: FieldReader) -> PartitionRacks:
    racks = PartitionRacks(PartitionIndex(reader.int32()), reader.array(FieldReader.string))
    reader.tagged({})
    return racks


def _write_racks(writer: FieldWriter, racks: PartitionRacks) -> None:
    writer.int32(racks.partition)
    writer.array(racks.racks, FieldWriter.string)
    writer.tagged()


def read_regular_expression(reader: FieldReader, _: int) -> ConsumerGroupRegularExpressionValue:
    value = ConsumerGroupRegularExpressionValue(
        reader.array(FieldReader.string), reader.int64(), Millis(reader.int64())
    )
    reader.tagged({})
    return value


def write_regular_expression(writer: FieldWriter, value: ConsumerGroupRegularExpressionValue, _: int) -> None:
    writer.array(value.topics, FieldWriter.string)
    writer.int64(value.version)
    writer.int64(value.timestamp)
    writer.tagged()


# --- assignments ------------------------------------------------------------------------------------------------


def read_target_assignment(reader: FieldReader, _: int) -> ConsumerGroupTargetAssignmentMemberValue:
    value = ConsumerGroupTargetAssignmentMemberValue(reader.array(_read_partitions))
    reader.tagged({})
    return value


def write_target_assignment(writer: FieldWriter, value: ConsumerGroupTargetAssignmentMemberValue, _: int) -> None:
    writer.array(value.topic_partitions, _write_partitions)
    writer.tagged()


def read_current_assignment(reader: FieldReader, _: int) -> ConsumerGroupCurrentMemberAssignmentValue:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        reader.int32(), reader.int32(), reader.int8(), reader.array(_read_partitions), reader.array(_read_partitions)
    )
    reader.tagged({})
    return value


def write_current_assignment(writer: FieldWriter, value: ConsumerGroupCurrentMemberAssignmentValue, _: int) -> None:
    writer.int32(value.member_epoch)
    writer.int32(value.previous_member_epoch)
    writer.int8(value.state)
    writer.array(value.assigned_partitions, _write_partitions)
    writer.array(value.partitions_pending_revocation, _write_partitions)
    writer.tagged()


def _read_partitions(reader: FieldReader) -> TopicPartitions:
    partitions = TopicPartitions(reader.uuid(), tuple(map(PartitionIndex, reader.array(FieldReader.int32))))
    reader.tagged({})
    return partitions


def _write_partitions(writer: FieldWriter, partitions: TopicPartitions) -> None:
    writer.uuid(partitions.topic_id)
    writer.array(partitions.partitions, FieldWriter.int32)
    writer.tagged()
