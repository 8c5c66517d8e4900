"""CreateTopicsRequest, versions 2 to 7. Generated from CreateTopicsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_length,
    read_nullable_compact_string,
    read_nullable_string,
    read_numbers,
    read_string,
    skip_tags,
)

_r_i = Struct(">i").unpack_from
_r_it = Struct(">i?").unpack_from
_r_ih = Struct(">ih").unpack_from


class CreatableReplicaAssignment(Structure):
    """A structure of CreateTopicsRequest."""

    __slots__ = ("partition_index", "broker_ids")
    __match_args__ = ("partition_index", "broker_ids")

    def __init__(
        self,
        partition_index: int,
        broker_ids: tuple[int, ...],
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The brokers to place the partition on.
        self.broker_ids: Final = broker_ids


class CreatableTopicConfig(Structure):
    """A structure of CreateTopicsRequest."""

    __slots__ = ("name", "value")
    __match_args__ = ("name", "value")

    def __init__(
        self,
        name: str,
        value: str | None,
    ) -> None:
        # The configuration name.
        self.name: Final = name
        # The configuration value.
        self.value: Final = value


class CreatableTopic(Structure):
    """A structure of CreateTopicsRequest."""

    __slots__ = ("name", "num_partitions", "replication_factor", "assignments", "configs")
    __match_args__ = ("name", "num_partitions", "replication_factor", "assignments", "configs")

    def __init__(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        assignments: tuple[CreatableReplicaAssignment, ...],
        configs: tuple[CreatableTopicConfig, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The number of partitions to create in the topic, or -1 if we are either specifying a manual partition
        # assignment or using the default partitions.
        self.num_partitions: Final = num_partitions
        # The number of replicas to create for each partition in the topic, or -1 if we are either specifying a manual
        # partition assignment or using the default replication factor.
        self.replication_factor: Final = replication_factor
        # The manual partition assignment, or the empty array if we are using automatic assignment.
        self.assignments: Final = assignments
        # The custom topic configurations to set.
        self.configs: Final = configs


class CreateTopicsRequest(Structure):
    """The message."""

    __slots__ = ("topics", "timeout_ms", "validate_only")
    __match_args__ = ("topics", "timeout_ms", "validate_only")

    def __init__(
        self,
        topics: tuple[CreatableTopic, ...],
        timeout_ms: int,
        validate_only: bool,
    ) -> None:
        # The topics to create.
        self.topics: Final = topics
        # How long to wait in milliseconds before timing out the request.
        self.timeout_ms: Final = timeout_ms
        # If true, check that the topics can be created as specified, but don't create anything.
        self.validate_only: Final = validate_only


def _read_creatable_replica_assignment_2(data: Data, at: int) -> tuple[CreatableReplicaAssignment, int]:
    (partition_index,) = _r_i(data, at)
    at += 4
    broker_ids, at = read_numbers(data, at, read_length, "i")
    return CreatableReplicaAssignment(partition_index=partition_index, broker_ids=broker_ids), at


def _read_creatable_topic_config_2(data: Data, at: int) -> tuple[CreatableTopicConfig, int]:
    name, at = read_string(data, at)
    value, at = read_nullable_string(data, at)
    return CreatableTopicConfig(name=name, value=value), at


def _read_creatable_topic_2(data: Data, at: int) -> tuple[CreatableTopic, int]:
    name, at = read_string(data, at)
    num_partitions, replication_factor = _r_ih(data, at)
    at += 6
    assignments, at = read_array(data, at, read_length, _read_creatable_replica_assignment_2)
    configs, at = read_array(data, at, read_length, _read_creatable_topic_config_2)
    return CreatableTopic(
        name=name,
        num_partitions=num_partitions,
        replication_factor=replication_factor,
        assignments=assignments,
        configs=configs,
    ), at


def _read_create_topics_request_2(data: Data, at: int) -> tuple[CreateTopicsRequest, int]:
    topics, at = read_array(data, at, read_length, _read_creatable_topic_2)
    timeout_ms, validate_only = _r_it(data, at)
    at += 5
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only), at


def _read_creatable_replica_assignment_5(data: Data, at: int) -> tuple[CreatableReplicaAssignment, int]:
    (partition_index,) = _r_i(data, at)
    at += 4
    broker_ids, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return CreatableReplicaAssignment(partition_index=partition_index, broker_ids=broker_ids), at


def _read_creatable_topic_config_5(data: Data, at: int) -> tuple[CreatableTopicConfig, int]:
    name, at = read_compact_string(data, at)
    value, at = read_nullable_compact_string(data, at)
    at = skip_tags(data, at)
    return CreatableTopicConfig(name=name, value=value), at


def _read_creatable_topic_5(data: Data, at: int) -> tuple[CreatableTopic, int]:
    name, at = read_compact_string(data, at)
    num_partitions, replication_factor = _r_ih(data, at)
    at += 6
    assignments, at = read_array(data, at, read_compact_length, _read_creatable_replica_assignment_5)
    configs, at = read_array(data, at, read_compact_length, _read_creatable_topic_config_5)
    at = skip_tags(data, at)
    return CreatableTopic(
        name=name,
        num_partitions=num_partitions,
        replication_factor=replication_factor,
        assignments=assignments,
        configs=configs,
    ), at


def _read_create_topics_request_5(data: Data, at: int) -> tuple[CreateTopicsRequest, int]:
    topics, at = read_array(data, at, read_compact_length, _read_creatable_topic_5)
    timeout_ms, validate_only = _r_it(data, at)
    at += 5
    at = skip_tags(data, at)
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only), at


CREATE_TOPICS_REQUEST: Final = MessageCodec(
    CreateTopicsRequest,
    19,
    readers={
        2: _read_create_topics_request_2,
        3: _read_create_topics_request_2,
        4: _read_create_topics_request_2,
        5: _read_create_topics_request_5,
        6: _read_create_topics_request_5,
        7: _read_create_topics_request_5,
    },
    writers={},
    flexible_from=5,
)
