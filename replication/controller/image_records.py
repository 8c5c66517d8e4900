"""An image as records: what a snapshot of the metadata log holds, and the shortest log that makes the same image.

Kept true: applied to the empty image as one batch, the records make an equal image, but for its offset. A registration
carries its node epoch itself then, since that is no longer where its record lies.
Left to others: bytes and files (node/metadata/metadata_snapshots.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from replication.controller.image import ClusterImage, NodeRegistration, PartitionState
from replication.controller.metadata import (
    NO_REGISTRATION,
    ClusterRecord,
    MetadataRecord,
    NodeRegistrationRecord,
    NodeStateSnapshot,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    VotersRecord,
)
from tidelog.types import NO_NODE


def records_of(image: ClusterImage) -> Iterator[MetadataRecord]:
    """Everything in the image, in an order in which it can be applied."""
    yield ClusterRecord(image.cluster_id, image.feature_level)
    yield VotersRecord(image.voters)
    for node in image.nodes.values():
        yield _registration(node)
    for topic in image.topics.values():
        yield TopicRecord(topic.name, topic.topic_id, topic.configs)
        for state in topic.partitions:
            yield _partition(state)
    if image.next_producer_id:
        yield ProducerIdsRecord(NO_NODE, NO_REGISTRATION, image.next_producer_id)


def _registration(node: NodeRegistration) -> NodeRegistrationRecord:
    return NodeRegistrationRecord(
        node.node_id,
        node.incarnation,
        node.listeners,
        node.rack,
        node.boot_id,
        node.directories,
        NodeStateSnapshot(
            node.node_epoch, node.fenced, node.draining, node.former_directories, node.offline_directories
        ),
    )


def _partition(state: PartitionState) -> PartitionRecord:
    return PartitionRecord(
        state.topic_id,
        state.partition,
        state.replicas,
        state.directories,
        state.isr,
        state.elr,
        state.last_known_elr,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        state.adding,
        state.removing,
    )
