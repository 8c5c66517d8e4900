"""Metadata and DescribeCluster of Kafka's protocol: nodes, topics, partitions and leaders.

Addresses are those of the listener on which the client has connected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final
from uuid import UUID

from node.api.metadata import GetMetadataAnswer, GetMetadataRequest, PartitionMetadata, TopicMetadata
from node.api.table import ADMIN_GET_METADATA
from node.listeners.kafka.error_codes import NONE, code_of
from node.listeners.kafka.exchange import NO_OPERATIONS, KafkaApi
from tidelog.errors import LeaderNotAvailable, NodeNotAvailable, TidelogError
from tidelog.protocol.kafka.message_codec import NO_UUID
from tidelog.protocol.kafka.messages import describe_cluster_request as asked_cluster
from tidelog.protocol.kafka.messages import metadata_request as asked_metadata
from tidelog.protocol.kafka.messages.describe_cluster_response import (
    DESCRIBE_CLUSTER_RESPONSE,
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from tidelog.protocol.kafka.messages.metadata_response import (
    METADATA_RESPONSE,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.security.acls import AclOperation
from tidelog.types import INTERNAL_TOPICS, NO_NODE, NodeId

_NULL_IS_ALL_FROM: Final = 1
"""Version from which null stands for all topics; before it, an empty list does."""

_NAME_MAY_BE_NULL_FROM: Final = 12
"""Version from which an unknown topic id is answered without a name."""

_ERROR_FROM: Final = 13
"""Version from which the whole answer may have an error. Before it, the connection of a refused request is closed."""


def _read_metadata(message: asked_metadata.MetadataRequest, version: int) -> GetMetadataRequest:
    topics = message.topics or ()
    return GetMetadataRequest(
        tuple(each.name for each in topics if each.name is not None),
        tuple(each.topic_id.bytes for each in topics if each.name is None),
        all_topics=message.topics is None or (not topics and version < _NULL_IS_ALL_FROM),
        with_topic_operations=message.include_topic_authorized_operations,
        with_cluster_operations=message.include_cluster_authorized_operations,
        creates_missing=message.allow_auto_topic_creation,
    )


def _write_metadata(_message: object, answer: GetMetadataAnswer, version: int) -> MetadataResponse:
    """Raises NodeNotAvailable if no node is in service."""
    if not answer.nodes:
        # By an answer that names topics and no node librdkafka forgets every address, and asks nobody again.
        raise NodeNotAvailable(
            f"{ADMIN_GET_METADATA}: no node is in service, as far as this one knows: use another, or try again later"
        )
    reachable = {each.node_id for each in answer.nodes}
    return MetadataResponse(
        tuple(
            MetadataResponseBroker(each.node_id, each.endpoint.host, each.endpoint.port, each.rack or None)
            for each in answer.nodes
        ),
        tuple(_topic(each, reachable, version) for each in answer.topics),
        cluster_id=answer.cluster_id,
        controller_id=_controller(answer, reachable),
        cluster_authorized_operations=_bits(answer.operations),
    )


def _bits(operations: Iterable[AclOperation] | None) -> int:
    """Permitted operations: a bit for each, by its number."""
    return NO_OPERATIONS if operations is None else sum(1 << each for each in operations)


def _controller(answer: GetMetadataAnswer, reachable: Collection[NodeId]) -> NodeId:
    """The node for changes of topics. Each node forwards them, and programs take -1 for a broken cluster."""
    return answer.controller_id if answer.controller_id in reachable else min(reachable, default=NO_NODE)


def _topic(topic: TopicMetadata, reachable: Collection[NodeId], version: int) -> MetadataResponseTopic:
    name = topic.name or (None if version >= _NAME_MAY_BE_NULL_FROM else "")
    return MetadataResponseTopic(
        code_of(topic.error),
        name,
        tuple(_partition(each, reachable) for each in topic.partitions),
        topic_id=UUID(bytes=topic.topic_id) if len(topic.topic_id) == 16 else NO_UUID,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=_bits(topic.operations),
    )


def _partition(partition: PartitionMetadata, reachable: Collection[NodeId]) -> MetadataResponsePartition:
    state = partition.state
    # Without the error, clients take a leader -1 for the truth, and its epoch for a step back.
    leads = state.leader in reachable
    return MetadataResponsePartition(
        NONE if leads else LeaderNotAvailable.code,
        state.partition,
        state.leader if leads else NO_NODE,
        state.replicas,
        state.isr,
        state.leader_epoch,
        tuple(partition.offline),
    )


def _refuse_metadata(_message: object, error: TidelogError, version: int) -> MetadataResponse | None:
    return None if version < _ERROR_FROM else MetadataResponse((), (), error_code=code_of(error))


METADATA: Final = KafkaApi(
    range(14),
    asked_metadata.METADATA_REQUEST,
    METADATA_RESPONSE,
    ADMIN_GET_METADATA,
    _read_metadata,
    _write_metadata,
    _refuse_metadata,
)


# --- DescribeCluster ---


def _read_describe_cluster(message: asked_cluster.DescribeClusterRequest, _version: int) -> GetMetadataRequest:
    return GetMetadataRequest(with_cluster_operations=message.include_cluster_authorized_operations)


def _write_cluster(_message: object, answer: GetMetadataAnswer, _version: int) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        0,
        NONE,
        None,
        answer.cluster_id,
        _controller(answer, {each.node_id for each in answer.nodes}),
        tuple(
            DescribeClusterBroker(each.node_id, each.endpoint.host, each.endpoint.port, each.rack or None)
            for each in answer.nodes
        ),
        _bits(answer.operations),
    )


def _refuse_describe_cluster(_message: object, error: TidelogError, _version: int) -> DescribeClusterResponse:
    return DescribeClusterResponse(0, code_of(error), error.message, "", NO_NODE, (), NO_OPERATIONS)


DESCRIBE_CLUSTER: Final = KafkaApi(
    range(2),
    asked_cluster.DESCRIBE_CLUSTER_REQUEST,
    DESCRIBE_CLUSTER_RESPONSE,
    ADMIN_GET_METADATA,
    _read_describe_cluster,
    _write_cluster,
    _refuse_describe_cluster,
)
