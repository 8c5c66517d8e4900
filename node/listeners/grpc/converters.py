"""Conversions between the fields of values and of messages that do not follow from their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from node.api.admin_requests import TopicPartitionId
from node.api.fetch import isolation_of
from node.api.metadata import PartitionMetadata, SharedPartitions
from replication.controller.events import AcceptedIsr, AlteredPartition, ElectionType
from replication.controller.image import PartitionState
from tidelog.errors import TidelogError
from tidelog.protocol.message_mapping import Converter, MessageMapping
from tidelog.protocol.status import from_proto, to_proto
from tidelog.protocol.v1 import admin_pb2, controller_pb2
from tidelog.record_exchange import TopicReference
from tidelog.types import Isolation, PartitionKey, TopicPartition

_PARTITION: Final = MessageMapping(
    PartitionState, admin_pb2.PartitionMetadata.DESCRIPTOR, given=("topic_id", "directories")
)
_ALTERED_KEY: Final = MessageMapping(PartitionKey, controller_pb2.AlteredPartition.DESCRIPTOR)
_ACCEPTED: Final = MessageMapping(AcceptedIsr, controller_pb2.AlteredPartition.DESCRIPTOR)


def _write_partition(partition: PartitionMetadata) -> admin_pb2.PartitionMetadata:
    return admin_pb2.PartitionMetadata(offline=partition.offline, **_PARTITION.to_fields(partition.state))


def _write_partitions(partitions: SharedPartitions) -> Sequence[admin_pb2.PartitionMetadata]:
    if partitions.messages is None:
        partitions.messages = [_write_partition(partition) for partition in partitions]
    return partitions.messages


def _write_election(election: ElectionType) -> admin_pb2.ElectionType.ValueType:
    unclean = election is ElectionType.UNCLEAN
    return admin_pb2.ELECTION_TYPE_UNCLEAN if unclean else admin_pb2.ELECTION_TYPE_PREFERRED


def _read_election(number: int) -> ElectionType:
    # An unknown value is read as preferred, which loses no records.
    return ElectionType.UNCLEAN if number == admin_pb2.ELECTION_TYPE_UNCLEAN else ElectionType.PREFERRED


def _write_outcome(each: AlteredPartition) -> controller_pb2.AlteredPartition:
    key = _ALTERED_KEY.to_fields(each.key)
    if isinstance(each.outcome, TidelogError):
        return controller_pb2.AlteredPartition(error=to_proto(each.outcome), **key)
    return controller_pb2.AlteredPartition(**key, **_ACCEPTED.to_fields(each.outcome))


def _read_outcome(message: controller_pb2.AlteredPartition) -> AlteredPartition:
    outcome = from_proto(message.error) if message.HasField("error") else _ACCEPTED.from_message(message)
    return AlteredPartition(_ALTERED_KEY.from_message(message), outcome)


_PLACE: Final = MessageMapping(TopicPartitionId, admin_pb2.TopicPartitionId.DESCRIPTOR)


def _write_place(place: TopicPartition) -> dict[str, object]:
    if isinstance(place, TopicPartitionId):
        return _PLACE.to_fields(place)
    return {"topic": place.topic, "partition": place.partition}


CONVERTERS: Final[Mapping[object, Converter]] = {
    TopicPartition: Converter(_write_place, _PLACE.from_message),  # nodes also tell each other the id
    ElectionType: Converter(_write_election, _read_election),
    Isolation: Converter(int, isolation_of),
    TopicReference: Converter(),  # the messages have ids only
    SharedPartitions: Converter(write=_write_partitions),
    AlteredPartition: Converter(_write_outcome, _read_outcome),
}
