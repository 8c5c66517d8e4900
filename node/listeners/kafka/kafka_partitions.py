"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments of Kafka's protocol: who leads a partition,
and where its replicas are.

Sources: KIP-183, KIP-460 (elections), KIP-455, KIP-860 (reassignments).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from node.api.admin_requests import (
    AlterReassignmentsRequest,
    ChangedPartitions,
    ElectLeadersRequest,
    ListReassignmentsAnswer,
    ListReassignmentsRequest,
    PartitionReassignment,
    TopicPartitionId,
)
from node.api.table import (
    ADMIN_ALTER_PARTITION_REASSIGNMENTS,
    ADMIN_ELECT_LEADERS,
    ADMIN_LIST_PARTITION_REASSIGNMENTS,
)
from node.listeners.kafka.error_codes import NONE, code_of
from node.listeners.kafka.exchange import KafkaApi
from replication.controller.events import ElectionType
from tidelog.cluster_descriptions import PartitionResult, ReassignmentDescription
from tidelog.errors import ElectionNotNeeded, InvalidRequest, TidelogError
from tidelog.protocol.kafka.messages import alter_partition_reassignments_request as to_move
from tidelog.protocol.kafka.messages import elect_leaders_request as to_elect
from tidelog.protocol.kafka.messages import list_partition_reassignments_request as to_list
from tidelog.protocol.kafka.messages.alter_partition_reassignments_response import (
    ALTER_PARTITION_REASSIGNMENTS_RESPONSE,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidelog.protocol.kafka.messages.elect_leaders_response import (
    ELECT_LEADERS_RESPONSE,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from tidelog.protocol.kafka.messages.elect_leaders_response import (
    PartitionResult as ElectedPartition,
)
from tidelog.protocol.kafka.messages.list_partition_reassignments_response import (
    LIST_PARTITION_REASSIGNMENTS_RESPONSE,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidelog.types import NodeId, PartitionIndex

# --- ElectLeaders ---

_ELECTIONS: Final = {0: ElectionType.PREFERRED, 1: ElectionType.UNCLEAN}
"""Kafka's numbers."""

_ERROR_FROM: Final = 1
"""Version from which the whole answer may have an error. Before it, only each partition has."""


def _read_elect(message: to_elect.ElectLeadersRequest, _version: int) -> ElectLeadersRequest:
    if message.election_type not in _ELECTIONS:
        raise InvalidRequest(f"election type {message.election_type}: it must be 0 (preferred) or 1 (unclean)")
    partitions = tuple(_places(message))
    if message.topic_partitions is not None and not partitions:  # to the handler, no partitions are all of them
        raise InvalidRequest("the request names no partition: name one or more, or null for all of them")
    return ElectLeadersRequest(_ELECTIONS[message.election_type], partitions)


def _places(message: to_elect.ElectLeadersRequest) -> Iterable[TopicPartitionId]:
    return (
        TopicPartitionId(topic.topic, PartitionIndex(each))
        for topic in message.topic_partitions or ()
        for each in topic.partitions
    )


def _write_elected(
    message: to_elect.ElectLeadersRequest, answer: ChangedPartitions, _version: int
) -> ElectLeadersResponse:
    results: Sequence[PartitionResult] = answer.partitions
    if message.topic_partitions is None:  # a tool that asks for all partitions takes this error for a failure
        results = [each for each in results if not isinstance(each.error, ElectionNotNeeded)]
    return ElectLeadersResponse(0, _elected(results), NONE)


def _elected(results: Iterable[PartitionResult]) -> tuple[ReplicaElectionResult, ...]:
    return tuple(
        ReplicaElectionResult(
            topic,
            tuple(
                ElectedPartition(each.partition.partition, code_of(each.error), _text_of(each.error))
                for each in partitions
            ),
        )
        for topic, partitions in groupby(results, key=lambda each: each.partition.topic)
    )


def _text_of(error: TidelogError | None) -> str | None:
    return None if error is None else error.message


def _refuse_elect(message: to_elect.ElectLeadersRequest, error: TidelogError, version: int) -> ElectLeadersResponse:
    results = _elected(PartitionResult(each, error) for each in _places(message))
    return ElectLeadersResponse(0, results, code_of(error) if version >= _ERROR_FROM else NONE)


ELECT_LEADERS: Final = KafkaApi(
    range(3),
    to_elect.ELECT_LEADERS_REQUEST,
    ELECT_LEADERS_RESPONSE,
    ADMIN_ELECT_LEADERS,
    _read_elect,
    _write_elected,
    _refuse_elect,
)


# --- AlterPartitionReassignments ---


def _read_move(message: to_move.AlterPartitionReassignmentsRequest, _version: int) -> AlterReassignmentsRequest:
    return AlterReassignmentsRequest(
        tuple(
            PartitionReassignment(
                TopicPartitionId(topic.name, PartitionIndex(each.partition_index)),
                replicas if message.allow_replication_factor_change else (),
                cancel=each.replicas is None,
                replacements=() if message.allow_replication_factor_change else replicas,
            )
            for topic in message.topics
            for each in topic.partitions
            for replicas in (tuple(map(NodeId, each.replicas or ())),)
        )
    )


def _write_moved(
    message: to_move.AlterPartitionReassignmentsRequest, answer: ChangedPartitions, _version: int
) -> AlterPartitionReassignmentsResponse:
    errors = (each.error for each in answer.partitions)
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=message.allow_replication_factor_change,
        error_code=NONE,
        error_message=None,
        responses=tuple(
            ReassignableTopicResponse(
                topic.name,
                tuple(_moved(each.partition_index, next(errors)) for each in topic.partitions),
            )
            for topic in message.topics
        ),
    )


def _moved(partition: int, error: TidelogError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(partition, code_of(error), _text_of(error))


def _refuse_move(
    message: to_move.AlterPartitionReassignmentsRequest, error: TidelogError, _version: int
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=message.allow_replication_factor_change,
        error_code=code_of(error),
        error_message=error.message,
        responses=(),
    )


ALTER_PARTITION_REASSIGNMENTS: Final = KafkaApi(
    range(2),
    to_move.ALTER_PARTITION_REASSIGNMENTS_REQUEST,
    ALTER_PARTITION_REASSIGNMENTS_RESPONSE,
    ADMIN_ALTER_PARTITION_REASSIGNMENTS,
    _read_move,
    _write_moved,
    _refuse_move,
)


# --- ListPartitionReassignments ---


def _read_list(_message: object, _version: int) -> ListReassignmentsRequest:
    return ListReassignmentsRequest()


def _write_listed(
    message: to_list.ListPartitionReassignmentsRequest, answer: ListReassignmentsAnswer, _version: int
) -> ListPartitionReassignmentsResponse:
    wanted = None if message.topics is None else {each.name: {*each.partition_indexes} for each in message.topics}
    moving = (
        each
        for each in answer.partitions
        if wanted is None or each.partition.partition in wanted.get(each.partition.topic, ())
        if each.in_progress  # Kafka's tools take each entry for a reassignment that has begun
    )
    return ListPartitionReassignmentsResponse(
        0,
        NONE,
        None,
        tuple(
            OngoingTopicReassignment(topic, tuple(map(_ongoing, partitions)))
            for topic, partitions in groupby(moving, key=lambda each: each.partition.topic)
        ),
    )


def _ongoing(moving: ReassignmentDescription) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(moving.partition.partition, moving.replicas, moving.adding, moving.removing)


def _refuse_list(_message: object, error: TidelogError, _version: int) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(0, code_of(error), error.message, ())


LIST_PARTITION_REASSIGNMENTS: Final = KafkaApi(
    range(1),
    to_list.LIST_PARTITION_REASSIGNMENTS_REQUEST,
    LIST_PARTITION_REASSIGNMENTS_RESPONSE,
    ADMIN_LIST_PARTITION_REASSIGNMENTS,
    _read_list,
    _write_listed,
    _refuse_list,
)
