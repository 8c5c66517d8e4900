"""The rules for making a topic: its name, its counts, where its replicas go.

Left to others: which settings exist and what they may be (a validator given to the controller).
"""

from __future__ import annotations

import random
import re
from typing import Final
from uuid import UUID

from replication.controller_events import CreateTopic, DeleteTopic
from replication.image import ClusterImage, TopicState
from replication.metadata import MetadataRecord, PartitionRecord, TopicRecord
from replication.placement import FolderChooser, place
from tidelog.errors import (
    InconsistentTopicId,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopic,
    TopicExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.types import METADATA_TOPIC, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId

NAME_LENGTH_MAX: Final = 249  # Kafka's: a folder name of at most 255 bytes with "-", an index, and a suffix
PARTITIONS_MAX: Final = 10_000  # a topic is one atomic batch of the metadata log: this bounds it to about 2 MB
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def refuse_impossible(image: ClusterImage, request: CreateTopic) -> None:
    """Raise what is wrong with the name or the counts."""
    name = request.name
    if len(name) > NAME_LENGTH_MAX or not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidTopic(
            f"the topic name {name[: NAME_LENGTH_MAX + 1]!r} is not allowed: use 1 to {NAME_LENGTH_MAX} of "
            "a-z A-Z 0-9 . _ - and not '.' or '..' alone"
        )
    if name == METADATA_TOPIC:
        raise InvalidTopic(f"the topic name {name} belongs to the metadata log: choose another")
    if name in image.topic_ids:
        raise TopicExists(f"topic {name} exists already, with id {image.topic_ids[name]}")
    if not 1 <= request.partitions <= PARTITIONS_MAX:
        raise InvalidPartitions(f"topic {name} cannot have {request.partitions} partitions: use 1 to {PARTITIONS_MAX}")
    usable = sum(not (node.fenced or node.draining) for node in image.nodes.values())
    if not 1 <= request.replication_factor <= usable:
        raise InvalidReplicationFactor(
            f"topic {name} cannot have {request.replication_factor} replicas: {usable} of {len(image.nodes)} "
            "registered nodes are usable now; start more nodes or ask for fewer replicas"
        )


def records_of(
    image: ClusterImage, request: CreateTopic, rng: random.Random
) -> tuple[TopicId, tuple[MetadataRecord, ...]]:
    """The topic's id and the records that make it. The request has passed `refuse_impossible`."""
    topic_id = TopicId(UUID(int=rng.getrandbits(128), version=4))
    racks = {node.node_id: node.rack for node in image.nodes.values() if not (node.fenced or node.draining)}
    chooser = FolderChooser(image)
    partitions = tuple(
        PartitionRecord(
            topic_id,
            PartitionIndex(index),
            replicas,
            folders=tuple(chooser.choose(image.nodes[node]) for node in replicas),
            isr=replicas,
            elr=(),
            last_known_elr=(),
            leader=replicas[0],
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
        )
        for index, replicas in enumerate(place(racks, request.partitions, request.replication_factor, rng))
    )
    return topic_id, (TopicRecord(request.name, topic_id, dict(request.configs)), *partitions)


def find(image: ClusterImage, request: DeleteTopic) -> TopicState:
    """The topic that a deletion means. Raises where there is none, or another life of it."""
    if not request.name and request.topic_id is not None:
        found = image.topics.get(request.topic_id)
        if found is None:
            raise UnknownTopicId(f"no topic has the id {request.topic_id}")
        return found
    topic = image.topic(request.name)
    if topic is None:
        raise UnknownTopicOrPartition(f"topic {request.name!r} does not exist")
    if request.topic_id not in (None, topic.topic_id):
        raise InconsistentTopicId(
            f"topic {request.name} has the id {topic.topic_id} now, not {request.topic_id}: it was made again"
        )
    return topic
