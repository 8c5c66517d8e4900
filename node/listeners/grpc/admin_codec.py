"""Codecs of the Admin service (admin.proto)."""

from __future__ import annotations

from typing import Any, Final

from node.listeners.grpc.codec import ApiCodec
from node.listeners.grpc.derived_codec import ERRORS, Conversion, derived
from node.metadata.message_mapping import Converter, MessageMapping
from node.requests.types import administration as apis
from node.requests.types.metadata import (
    ADMIN_GET_METADATA,
    GetMetadataAnswer,
    GetMetadataRequest,
    PartitionMetadata,
)
from replication.controller.events import ElectionType
from replication.controller.image import PartitionState
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2

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


_METADATA_ANSWER: Final = Conversion(
    GetMetadataAnswer,
    admin_pb2.GetMetadataResponse,
    {**ERRORS, PartitionMetadata: Converter(write=_write_partition)},
)

ADMIN_CODECS: Final[tuple[ApiCodec[Any, Any], ...]] = (
    ApiCodec(
        ADMIN_GET_METADATA,
        methods.ADMIN_GET_METADATA,
        Conversion(GetMetadataRequest, admin_pb2.GetMetadataRequest).read,
        _METADATA_ANSWER.write,
    ),
    derived(apis.ADMIN_CREATE_TOPIC, methods.ADMIN_CREATE_TOPIC),
    derived(apis.ADMIN_DELETE_TOPIC, methods.ADMIN_DELETE_TOPIC),
    derived(apis.ADMIN_DESCRIBE_CLUSTER, methods.ADMIN_DESCRIBE_CLUSTER),
    derived(
        apis.ADMIN_ELECT_LEADERS,
        methods.ADMIN_ELECT_LEADERS,
        {**ERRORS, ElectionType: Converter(write_election, read_election)},
    ),
    derived(apis.ADMIN_ALTER_PARTITION_REASSIGNMENTS, methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS),
    derived(apis.ADMIN_LIST_PARTITION_REASSIGNMENTS, methods.ADMIN_LIST_PARTITION_REASSIGNMENTS),
    derived(apis.ADMIN_INCREMENTAL_ALTER_CONFIGS, methods.ADMIN_INCREMENTAL_ALTER_CONFIGS),
    derived(apis.ADMIN_CREATE_PARTITIONS, methods.ADMIN_CREATE_PARTITIONS),
    derived(apis.ADMIN_UPDATE_FEATURES, methods.ADMIN_UPDATE_FEATURES),
    derived(apis.ADMIN_EXPLAIN_PARTITIONS, methods.ADMIN_EXPLAIN_PARTITIONS),
    derived(apis.ADMIN_DESCRIBE_LOG_DIRS, methods.ADMIN_DESCRIBE_LOG_DIRS),
    derived(apis.ADMIN_EXPLAIN_RESTART, methods.ADMIN_EXPLAIN_RESTART),
    derived(apis.ADMIN_REMOVE_VOTER, methods.ADMIN_REMOVE_VOTER),
)
