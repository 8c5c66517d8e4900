"""The bytes of Kafka's consumer protocol, as members of the protocol type `consumer` write and read them."""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack, unpack_from

from tidelog.protocol.kafka.messages import consumer_protocol_assignment as assignments
from tidelog.protocol.kafka.messages import consumer_protocol_subscription as subscriptions
from tidelog.types import PartitionIndex

Partition = tuple[str, int]


def _by_topic(places: Iterable[Partition]) -> dict[str, tuple[PartitionIndex, ...]]:
    found: dict[str, tuple[PartitionIndex, ...]] = {}
    for topic, partition in sorted(places):
        found[topic] = (*found.get(topic, ()), PartitionIndex(partition))
    return found


def subscription(topics: Iterable[str], owned: Iterable[Partition] = (), version: int = 1) -> bytes:
    """What a member subscribes to and has, from version 1 on."""
    parts = tuple(subscriptions.TopicPartition(*each) for each in _by_topic(owned).items()) if version else ()
    said = subscriptions.ConsumerProtocolSubscription(tuple(topics), None, parts)
    return pack(">h", version) + subscriptions.CONSUMER_PROTOCOL_SUBSCRIPTION.encode(said, min(version, 3))


def assigned(places: Iterable[Partition], version: int = 1) -> bytes:
    """The bytes of an assignment."""
    parts = tuple(assignments.TopicPartition(*each) for each in _by_topic(places).items())
    said = assignments.ConsumerProtocolAssignment(parts, None)
    return pack(">h", version) + assignments.CONSUMER_PROTOCOL_ASSIGNMENT.encode(said, version)


def places_in(assignment: bytes) -> set[Partition]:
    """The partitions of an assignment."""
    if not assignment:
        return set()
    said, _ = assignments.CONSUMER_PROTOCOL_ASSIGNMENT.decode(assignment, unpack_from(">h", assignment)[0], 2)
    return {(each.topic, partition) for each in said.assigned_partitions for partition in each.partitions}


def owned_in(metadata: bytes) -> set[Partition]:
    """The partitions that a member has, by its subscription."""
    version = unpack_from(">h", metadata)[0]
    said, _ = subscriptions.CONSUMER_PROTOCOL_SUBSCRIPTION.decode(metadata, version, 2)
    return {(each.topic, partition) for each in said.owned_partitions for partition in each.partitions}
