"""Conversions between the fields of values and of messages that do not follow from their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from node.metadata.message_mapping import Converter, MessageMapping
from node.requests.types.fetch import isolation_of
from node.requests.types.metadata import PartitionMetadata
from replication.controller.events import ElectionType
from replication.controller.image import PartitionState
from tidelog.errors import TidelogError
from tidelog.protocol.status import from_proto, to_proto
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import Isolation

_PARTITION: Final = MessageMapping(
    PartitionState, admin_pb2.PartitionMetadata.DESCRIPTOR, given=("topic_id", "directories")
)


def _write_partition(partition: PartitionMetadata) -> admin_pb2.PartitionMetadata:
    return admin_pb2.PartitionMetadata(offline=partition.offline, **_PARTITION.to_fields(partition.state))


def write_election(election: ElectionType) -> admin_pb2.ElectionType.ValueType:
    """The protobuf value of an election type."""
    unclean = election is ElectionType.UNCLEAN
    return admin_pb2.ELECTION_TYPE_UNCLEAN if unclean else admin_pb2.ELECTION_TYPE_PREFERRED


def read_election(number: int) -> ElectionType:
    """The election type of a protobuf value. An unknown value is read as preferred, which loses no records."""
    return ElectionType.UNCLEAN if number == admin_pb2.ELECTION_TYPE_UNCLEAN else ElectionType.PREFERRED


CONVERTERS: Final[Mapping[object, Converter]] = {
    TidelogError: Converter(to_proto, from_proto),
    ElectionType: Converter(write_election, read_election),
    Isolation: Converter(int, isolation_of),
    PartitionMetadata: Converter(write=_write_partition),
}
