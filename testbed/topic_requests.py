"""Requests to change one topic, and what their answers say."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence

from tidelog.protocol.status import sound
from tidelog.protocol.v1 import admin_pb2


def creating(
    name: str, partitions: int = 1, replication_factor: int = 1, configs: Mapping[str, str] | None = None
) -> admin_pb2.CreateTopicsRequest:
    topic = admin_pb2.CreateTopic(
        name=name, partitions=partitions, replication_factor=replication_factor, configs=configs
    )
    return admin_pb2.CreateTopicsRequest(topics=[topic])


def deleting(name: str = "", topic_id: bytes = b"") -> admin_pb2.DeleteTopicsRequest:
    return admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.DeleteTopic(name=name, topic_id=topic_id)])


def growing(topic: str, count: int) -> admin_pb2.CreatePartitionsRequest:
    return admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.CreatePartitions(name=topic, count=count)])


def altering(topic: str, changes: Sequence[admin_pb2.ConfigChange] = ()) -> admin_pb2.IncrementalAlterConfigsRequest:
    return admin_pb2.IncrementalAlterConfigsRequest(topics=[admin_pb2.AlterConfigs(name=topic, changes=changes)])


def changed(answer: admin_pb2.ChangedTopics) -> admin_pb2.ChangedTopic:
    """What became of the topic. Raises its error."""
    [topic] = answer.topics
    return sound(topic)


async def changed_by(call: Awaitable[admin_pb2.ChangedTopics]) -> admin_pb2.ChangedTopic:
    return changed(await call)
