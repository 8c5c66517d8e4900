"""The bytes that members of classic groups with the protocol type `consumer` exchange: what one subscribes to, and what
it is assigned.

    subscription   int16 version, topic names, ..., from version 1 the partitions that the member has, from 3 its rack
    assignment     int16 version, topic names with partitions, ...

Bytes of a newer version begin with the fields of the newest one known here, and are read as that. Members of a classic
group may use other bytes, which are then unknown; in a consumer group the coordinator reads and writes them.
Source: Kafka's ConsumerProtocol, ConsumerProtocolSubscription and ConsumerProtocolAssignment.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, Protocol, TypeVar
from uuid import UUID

from replication.coordination.groups.assignments import AssignedTopics, as_topics
from replication.coordination.groups.topic_catalog import TopicCatalog
from tidelog.protocol.kafka.message_codec import MalformedMessage, MessageCodec
from tidelog.protocol.kafka.messages.consumer_protocol_assignment import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    ConsumerProtocolAssignment,
    TopicPartition,
)
from tidelog.protocol.kafka.messages.consumer_protocol_subscription import (
    CONSUMER_PROTOCOL_SUBSCRIPTION,
    ConsumerProtocolSubscription,
)
from tidelog.types import PartitionIndex, TopicId

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of groups of consumers."""

_ELEMENTS_MAX: Final = 100_000
"""Topics and partitions of one member; of one with more, nothing is known."""

_VERSION: Final = Struct(">h")

V = TypeVar("V", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


class NamedPartitions(Protocol):
    """Partitions of a topic by its name."""

    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> Iterable[int]: ...


def subscription_in(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """What a member subscribes to; None if the bytes are not of this protocol."""
    return _in(CONSUMER_PROTOCOL_SUBSCRIPTION, metadata)


def assignment_in(assignment: bytes) -> ConsumerProtocolAssignment | None:
    """What a member is assigned; None if the bytes are not of this protocol, or there are none."""
    return _in(CONSUMER_PROTOCOL_ASSIGNMENT, assignment)


def _in(codec: MessageCodec[V], data: bytes) -> V | None:
    version = _version_of(data)
    if version is None:
        return None
    try:
        return codec.decode(data, version, _VERSION.size, elements_max=_ELEMENTS_MAX)[0]
    except MalformedMessage:
        return None


def _version_of(data: bytes) -> int | None:
    if len(data) < _VERSION.size:
        return None
    version: int = _VERSION.unpack_from(data)[0]
    return None if version < 0 else min(version, CONSUMER_PROTOCOL_ASSIGNMENT.versions[-1])


def existing(named: Iterable[NamedPartitions], catalog: TopicCatalog) -> AssignedTopics:
    """Those of some partitions that exist."""
    found: dict[UUID, set[int]] = {}
    for each in named:
        topic = catalog.get(each.topic)
        if topic is not None:
            found.setdefault(topic.topic_id, set()).update(n for n in each.partitions if 0 <= n < topic.partitions)
    return as_topics(found)


def assignment_bytes(assigned: AssignedTopics, metadata: bytes, catalog: TopicCatalog) -> bytes:
    """An assignment for a member with this subscription, in the same version. Topics that were deleted are left out."""
    topics = catalog.image.topics
    named = tuple(
        TopicPartition(topics[TopicId(each.topic_id)].name, tuple(map(PartitionIndex, each.partitions)))
        for each in assigned
        if each.topic_id in topics
    )
    version = _version_of(metadata) or 0
    return _VERSION.pack(version) + CONSUMER_PROTOCOL_ASSIGNMENT.encode(
        ConsumerProtocolAssignment(named, None), version
    )
