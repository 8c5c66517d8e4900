"""Codecs of the Controller service (controller.proto) that are not derived."""

from __future__ import annotations

from typing import Any, Final

from node.listeners.grpc.codec import ApiCodec
from node.listeners.grpc.converters import read_election, write_election
from node.listeners.grpc.derived_codec import Conversion
from node.metadata.message_mapping import MessageMapping
from node.requests.types import controller as apis
from node.requests.types.administration import ChangedPartitions
from replication.controller.events import AlterPartition, AlterReassignments, ElectLeaders, Reassignment
from tidelog.errors import TidelogError
from tidelog.protocol import methods, status
from tidelog.protocol.v1 import admin_pb2, controller_pb2
from tidelog.types import NodeId, PartitionKey

_KEY: Final = MessageMapping(PartitionKey, admin_pb2.TopicPartitionId.DESCRIPTOR)
_ALTERED_KEY: Final = MessageMapping(PartitionKey, controller_pb2.AlteredPartition.DESCRIPTOR)
_ACCEPTED: Final = MessageMapping(apis.AcceptedIsr, controller_pb2.AlteredPartition.DESCRIPTOR)


def _write_elect_leaders(asked: ElectLeaders) -> admin_pb2.ElectLeadersRequest:
    return admin_pb2.ElectLeadersRequest(
        type=write_election(asked.election),
        partitions=[_write_key(key) for key in asked.keys],
        validate_only=asked.validate_only,
    )


def _read_elect_leaders(message: admin_pb2.ElectLeadersRequest) -> ElectLeaders:
    keys = tuple(map(_KEY.from_message, message.partitions))
    return ElectLeaders(read_election(message.type), keys, message.validate_only)


def _write_reassignments(asked: AlterReassignments) -> admin_pb2.AlterPartitionReassignmentsRequest:
    return admin_pb2.AlterPartitionReassignmentsRequest(
        partitions=[
            admin_pb2.PartitionReassignment(
                partition=_write_key(each.key), replicas=each.replicas, cancel=each.replicas is None
            )
            for each in asked.reassignments
        ]
    )


def _read_reassignments(message: admin_pb2.AlterPartitionReassignmentsRequest) -> AlterReassignments:
    return AlterReassignments(
        tuple(
            Reassignment(_KEY.from_message(each.partition), None if each.cancel else tuple(map(NodeId, each.replicas)))
            for each in message.partitions
        )
    )


def _write_altered(answer: apis.AlterPartitionAnswer) -> controller_pb2.AlterPartitionResponse:
    return controller_pb2.AlterPartitionResponse(partitions=[_write_outcome(each) for each in answer.partitions])


def _write_outcome(each: apis.ProposalOutcome) -> controller_pb2.AlteredPartition:
    key = _ALTERED_KEY.to_fields(each.key)
    if isinstance(each.outcome, TidelogError):
        return controller_pb2.AlteredPartition(error=status.to_proto(each.outcome), **key)
    return controller_pb2.AlteredPartition(**key, **_ACCEPTED.to_fields(each.outcome))


def _read_altered(message: controller_pb2.AlterPartitionResponse) -> apis.AlterPartitionAnswer:
    return apis.AlterPartitionAnswer(
        tuple(
            apis.ProposalOutcome(
                _ALTERED_KEY.from_message(each),
                status.from_proto(each.error) if each.HasField("error") else _ACCEPTED.from_message(each),
            )
            for each in message.partitions
        )
    )


def _write_key(key: PartitionKey) -> admin_pb2.TopicPartitionId:
    return admin_pb2.TopicPartitionId(**_KEY.to_fields(key))


_PROPOSALS: Final = Conversion(AlterPartition, controller_pb2.AlterPartitionRequest)
_ELECTED: Final = Conversion(ChangedPartitions, admin_pb2.ElectLeadersResponse)
_REASSIGNED: Final = Conversion(ChangedPartitions, admin_pb2.AlterPartitionReassignmentsResponse)

CONTROLLER_CODECS: Final[tuple[ApiCodec[Any, Any], ...]] = (
    ApiCodec(
        apis.CONTROLLER_ALTER_PARTITION,
        methods.CONTROLLER_ALTER_PARTITION,
        _PROPOSALS.read,
        _write_altered,
        _PROPOSALS.write,
        _read_altered,
    ),
    ApiCodec(
        apis.CONTROLLER_ELECT_LEADERS,
        methods.CONTROLLER_ELECT_LEADERS,
        _read_elect_leaders,
        _ELECTED.write,
        _write_elect_leaders,
        _ELECTED.read,
    ),
    ApiCodec(
        apis.CONTROLLER_ALTER_PARTITION_REASSIGNMENTS,
        methods.CONTROLLER_ALTER_PARTITION_REASSIGNMENTS,
        _read_reassignments,
        _REASSIGNED.write,
        _write_reassignments,
        _REASSIGNED.read,
    ),
)
