"""CreateTopics, DeleteTopics and CreatePartitions of Kafka's protocol. Every node accepts them, so no client must find
the controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from node.api.admin_requests import ChangedTopics, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from node.api.table import ADMIN_CREATE_PARTITIONS, ADMIN_CREATE_TOPICS, ADMIN_DELETE_TOPICS
from node.listeners.kafka.error_codes import code_of
from node.listeners.kafka.exchange import KafkaApi
from replication.controller.events import ChangedTopic, CreatePartitions, CreateTopic, DeleteTopic, ReplicaAssignment
from tidelog.errors import InvalidConfig, InvalidReplicaAssignment, ThrottlingQuotaExceeded, TidelogError
from tidelog.protocol.kafka.message_codec import NO_UUID
from tidelog.protocol.kafka.messages import create_partitions_request as to_grow
from tidelog.protocol.kafka.messages import create_topics_request as to_create
from tidelog.protocol.kafka.messages import delete_topics_request as to_delete
from tidelog.protocol.kafka.messages.create_partitions_response import (
    CREATE_PARTITIONS_RESPONSE,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from tidelog.protocol.kafka.messages.create_topics_response import (
    CREATE_TOPICS_RESPONSE,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from tidelog.protocol.kafka.messages.delete_topics_response import (
    DELETE_TOPICS_RESPONSE,
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from tidelog.types import NodeId, TopicId


def _throttle_time_ms(answer: ChangedTopics) -> int:
    """The time after which a quota allows the refused changes (KIP-599): a client without it repeats them at once."""
    errors = (each.error for each in answer.topics)
    return max((each.throttle_time_ms for each in errors if isinstance(each, ThrottlingQuotaExceeded)), default=0)


# --- CreateTopics ---


def _impossible(topic: to_create.CreatableTopic) -> TidelogError | None:
    """Why a topic cannot be a value; None if it can."""
    if [each.partition_index for each in _by_index(topic)] != list(range(len(topic.assignments))):
        return InvalidReplicaAssignment(
            f"topic {topic.name}: replicas must be assigned to each partition from 0 on, to each once"
        )
    unset = [each.name for each in topic.configs if each.value is None]
    return InvalidConfig(f"topic {topic.name}: {unset[0]} has no value; leave it out") if unset else None


def _by_index(topic: to_create.CreatableTopic) -> list[to_create.CreatableReplicaAssignment]:
    return sorted(topic.assignments, key=lambda each: each.partition_index)


def _value(topic: to_create.CreatableTopic, *, validate_only: bool) -> CreateTopic:
    return CreateTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {each.name: each.value for each in topic.configs if each.value is not None},
        validate_only,
        tuple(ReplicaAssignment(tuple(map(NodeId, each.broker_ids))) for each in _by_index(topic)),
    )


def _read_create(message: to_create.CreateTopicsRequest, _version: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        tuple(
            _value(topic, validate_only=message.validate_only) for topic in message.topics if _impossible(topic) is None
        )
    )


def _write_created(
    message: to_create.CreateTopicsRequest, answer: ChangedTopics, _version: int
) -> CreateTopicsResponse:
    changed = iter(answer.topics)
    return CreateTopicsResponse(_throttle_time_ms(answer), tuple(_created(topic, changed) for topic in message.topics))


def _created(topic: to_create.CreatableTopic, changed: Iterator[ChangedTopic]) -> CreatableTopicResult:
    impossible = _impossible(topic)
    if impossible is not None:
        return _not_created(topic, impossible)
    outcome = next(changed)
    if outcome.error is not None:
        return _not_created(topic, outcome.error)
    value = _value(topic, validate_only=True)
    return CreatableTopicResult(
        topic.name,
        code_of(None),
        None,
        outcome.topic_id or NO_UUID,
        num_partitions=value.partition_count,
        replication_factor=value.replica_count,
    )


def _not_created(topic: to_create.CreatableTopic, error: TidelogError) -> CreatableTopicResult:
    return CreatableTopicResult(topic.name, code_of(error), error.message)


def _refuse_create(message: to_create.CreateTopicsRequest, error: TidelogError, _version: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(0, tuple(_not_created(topic, error) for topic in message.topics))


CREATE_TOPICS: Final = KafkaApi(
    range(2, 8),
    to_create.CREATE_TOPICS_REQUEST,
    CREATE_TOPICS_RESPONSE,
    ADMIN_CREATE_TOPICS,
    _read_create,
    _write_created,
    _refuse_create,
)


# --- DeleteTopics ---

_IDS_FROM: Final = 6
"""Version from which a topic is named by its name or its id."""


def _named(message: to_delete.DeleteTopicsRequest, version: int) -> tuple[to_delete.DeleteTopicState, ...]:
    if version >= _IDS_FROM:
        return message.topics
    return tuple(to_delete.DeleteTopicState(name, NO_UUID) for name in message.topic_names)


def _read_delete(message: to_delete.DeleteTopicsRequest, version: int) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        tuple(
            DeleteTopic(topic.name or "", None if topic.name is not None else TopicId(topic.topic_id))
            for topic in _named(message, version)
        )
    )


def _write_deleted(message: to_delete.DeleteTopicsRequest, answer: ChangedTopics, version: int) -> DeleteTopicsResponse:
    pairs = zip(_named(message, version), answer.topics, strict=True)
    return DeleteTopicsResponse(_throttle_time_ms(answer), tuple(_deleted(topic, each.error) for topic, each in pairs))


def _deleted(topic: to_delete.DeleteTopicState, error: TidelogError | None) -> DeletableTopicResult:
    return DeletableTopicResult(topic.name, code_of(error), topic.topic_id, None if error is None else error.message)


def _refuse_delete(message: to_delete.DeleteTopicsRequest, error: TidelogError, version: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(0, tuple(_deleted(topic, error) for topic in _named(message, version)))


DELETE_TOPICS: Final = KafkaApi(
    range(1, 7),
    to_delete.DELETE_TOPICS_REQUEST,
    DELETE_TOPICS_RESPONSE,
    ADMIN_DELETE_TOPICS,
    _read_delete,
    _write_deleted,
    _refuse_delete,
)


# --- CreatePartitions ---


def _unassigned(topic: to_grow.CreatePartitionsTopic) -> InvalidReplicaAssignment | None:
    """Why a topic cannot be a value; None if it can."""
    if topic.assignments is None or topic.assignments:
        return None
    return InvalidReplicaAssignment(
        f"topic {topic.name}: the list of assigned replicas is empty; assign some to each new partition, or send null"
    )


def _further(topic: to_grow.CreatePartitionsTopic, *, validate_only: bool) -> CreatePartitions:
    if not topic.assignments or topic.count <= 0:  # a number that no topic can have is refused with or without replicas
        return CreatePartitions(topic.name, topic.count, validate_only)
    assignments = tuple(ReplicaAssignment(tuple(map(NodeId, each.broker_ids))) for each in topic.assignments)
    return CreatePartitions(topic.name, 0, validate_only, assignments, topic.count - len(assignments))


def _read_grow(message: to_grow.CreatePartitionsRequest, _version: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        tuple(
            _further(topic, validate_only=message.validate_only)
            for topic in message.topics
            if _unassigned(topic) is None
        )
    )


def _write_grown(
    message: to_grow.CreatePartitionsRequest, answer: ChangedTopics, _version: int
) -> CreatePartitionsResponse:
    changed = iter(answer.topics)
    return CreatePartitionsResponse(
        _throttle_time_ms(answer),
        tuple(_grown(topic, _unassigned(topic) or next(changed).error) for topic in message.topics),
    )


def _grown(topic: to_grow.CreatePartitionsTopic, error: TidelogError | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(topic.name, code_of(error), None if error is None else error.message)


def _refuse_grow(
    message: to_grow.CreatePartitionsRequest, error: TidelogError, _version: int
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(0, tuple(_grown(topic, error) for topic in message.topics))


CREATE_PARTITIONS: Final = KafkaApi(
    range(4),
    to_grow.CREATE_PARTITIONS_REQUEST,
    CREATE_PARTITIONS_RESPONSE,
    ADMIN_CREATE_PARTITIONS,
    _read_grow,
    _write_grown,
    _refuse_grow,
)
