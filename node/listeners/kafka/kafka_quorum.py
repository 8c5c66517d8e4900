"""DescribeQuorum of Kafka's protocol: the replicas of the metadata log, for `kafka-metadata-quorum`.

Sources: KIP-595, KIP-836 (times), KIP-853 (directories and addresses).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from node.api.admin_requests import DescribeQuorumAnswer, DescribeQuorumRequest, QuorumReplica
from node.api.table import ADMIN_DESCRIBE_QUORUM
from node.listeners.kafka.error_codes import NONE, code_of
from node.listeners.kafka.exchange import KafkaApi
from tidelog.errors import TidelogError, UnknownTopicOrPartition
from tidelog.protocol.kafka.message_codec import NO_UUID
from tidelog.protocol.kafka.messages import describe_quorum_request as asked
from tidelog.protocol.kafka.messages.describe_quorum_response import (
    DESCRIBE_QUORUM_RESPONSE,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from tidelog.types import METADATA_TOPIC, NO_LEADER_EPOCH, NO_NODE

_DIRECTORIES_FROM: Final = 2
"""Version from which replicas have directories and addresses, and errors a text."""


def _read(_message: asked.DescribeQuorumRequest, _version: int) -> DescribeQuorumRequest:
    return DescribeQuorumRequest()


def _write(message: asked.DescribeQuorumRequest, answer: DescribeQuorumAnswer, version: int) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        NONE,
        tuple(
            TopicData(
                topic.topic_name,
                tuple(
                    _partition(each.partition_index, answer, version)
                    if (topic.topic_name, each.partition_index) == (METADATA_TOPIC, 0)
                    else _unknown(topic.topic_name, each.partition_index)
                    for each in topic.partitions
                ),
            )
            for topic in message.topics
        ),
        error_message=None,
        nodes=tuple(map(_node, answer.voters)) if version >= _DIRECTORIES_FROM else (),
    )


def _partition(index: int, answer: DescribeQuorumAnswer, version: int) -> PartitionData:
    return PartitionData(
        index,
        NONE,
        answer.leader_id,
        answer.leader_epoch,
        answer.high_watermark,
        _replicas(answer.voters, version),
        _replicas(answer.observers, version),
        error_message=None,
    )


def _replicas(replicas: Iterable[QuorumReplica], version: int) -> tuple[ReplicaState, ...]:
    return tuple(
        ReplicaState(
            each.node_id,
            each.log_end_offset,
            each.directory_id if version >= _DIRECTORIES_FROM else NO_UUID,
            each.last_fetch_ms,
            each.last_caught_up_ms,
        )
        for each in replicas
    )


def _node(voter: QuorumReplica) -> Node:
    listeners = voter.listeners.items()
    # Java refuses other letters: "String must be UPPERCASE".
    named = (Listener(name.upper(), address.host, address.port) for name, address in listeners)
    return Node(voter.node_id, tuple(named))


def _unknown(topic: str, partition: int) -> PartitionData:
    error = UnknownTopicOrPartition(f"{topic}-{partition} is not the metadata log, which is {METADATA_TOPIC}-0")
    return PartitionData(partition, code_of(error), NO_NODE, NO_LEADER_EPOCH, -1, (), (), error_message=error.message)


def _refuse(_message: object, error: TidelogError, _version: int) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(code_of(error), (), error_message=error.message)


DESCRIBE_QUORUM: Final = KafkaApi(
    range(3),
    asked.DESCRIBE_QUORUM_REQUEST,
    DESCRIBE_QUORUM_RESPONSE,
    ADMIN_DESCRIBE_QUORUM,
    _read,
    _write,
    _refuse,
)
