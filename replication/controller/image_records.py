"""Converts an image to metadata records: the content of a snapshot of the metadata log.

Applied to the empty image as one batch, the records make an image that is equal except for its offset. A registration
record of a snapshot carries its node epoch, because the offset of the record is a different one.
Out of scope: encoding and files (node/metadata/metadata_snapshots.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from replication.controller.image import ClusterImage, NodeRegistration, partition_fields
from replication.controller.metadata_records import (
    NO_REGISTRATION,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ClusterRecord,
    GroupConfigsRecord,
    MetadataRecord,
    NodeCordonRecord,
    NodeRegistrationRecord,
    NodeStateSnapshot,
    PartitionRecord,
    ProducerIdsRecord,
    SaslSecretRecord,
    TopicRecord,
    VotersRecord,
)
from tidelog.types import NO_NODE


def records_of(image: ClusterImage) -> Iterator[MetadataRecord]:
    """All records of the image, in an order in which they can be applied."""
    yield ClusterRecord(image.cluster_id, image.feature_level)
    yield VotersRecord(image.voters)
    for node in image.nodes.values():
        yield _registration(node)
        if node.cordoned or node.cordoned_directories:
            yield NodeCordonRecord(node.node_id, node.cordoned, node.cordoned_directories)
    for topic in image.topics.values():
        yield TopicRecord(topic.name, topic.topic_id, topic.configs)
        for state in topic.partitions:
            yield PartitionRecord(*partition_fields(state))
    if image.next_producer_id:
        yield ProducerIdsRecord(NO_NODE, NO_REGISTRATION, image.next_producer_id)
    for binding in sorted(image.acls):
        yield AccessControlEntryRecord(binding)
    if image.sasl_secret:
        yield SaslSecretRecord(image.sasl_secret)
    yield from image.scram.values()
    for entity, values in image.quotas.items():
        yield ClientQuotaRecord(entity, values)
    for group_id, configs in image.group_configs.items():
        yield GroupConfigsRecord(group_id, configs)
    yield from image.topic_snapshots.values()


def _registration(node: NodeRegistration) -> NodeRegistrationRecord:
    state = NodeStateSnapshot(**{each.name: getattr(node, each.name) for each in fields(NodeStateSnapshot)})
    names = (each.name for each in fields(NodeRegistrationRecord) if each.name != "state")
    return NodeRegistrationRecord(**{name: getattr(node, name) for name in names}, state=state)
