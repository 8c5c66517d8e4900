"""The replicas and topics that a request names, for callers with permission for the topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar
from uuid import UUID

from node.api.api import Api
from node.replicas.replica import Replica
from node.replicas.replica_manager import ReplicaManager
from node.requests.context import RequestContext
from replication.coordination.group_requests import FetchedOffset, NamedPartition, OffsetToCommit
from tidelog.errors import TidelogError
from tidelog.security.acls import AclOperation
from tidelog.types import TopicId

InTopic = TypeVar("InTopic", FetchedOffset, NamedPartition)


def locate_permitted(
    manager: ReplicaManager, context: RequestContext, api: Api[Any, Any], topic_id: bytes, index: int
) -> Replica:
    """As `ReplicaManager.locate`. Raises TopicAuthorizationFailed for a caller without permission, also instead of an
    error that tells something about the topic."""
    try:
        replica = manager.registry.locate(topic_id, index, context.listener)
    except TidelogError:
        topic = manager.image.topics.get(TopicId(UUID(bytes=topic_id))) if len(topic_id) == 16 else None
        refusal = None if topic is None else context.authorizer.topic_refusal(context, api, topic.name, by_id=True)
        if refusal is not None:
            raise refusal from None
        raise
    ensure_permitted(context, api, replica)
    return replica


def ensure_permitted(context: RequestContext, api: Api[Any, Any], replica: Replica) -> None:
    """Raises TopicAuthorizationFailed for a caller without permission."""
    refusal = context.authorizer.topic_refusal(context, api, replica.name.topic, by_id=True)
    if refusal is not None:
        raise refusal


def refused_topics(
    context: RequestContext, api: Api[Any, Any], partitions: Iterable[OffsetToCommit | NamedPartition]
) -> dict[str, TidelogError]:
    """The topics of these partitions that the caller may not use. Each is checked, and recorded, once."""
    topics = dict.fromkeys(each.topic for each in partitions)
    refusals = {topic: context.authorizer.topic_refusal(context, api, topic) for topic in topics}
    return {topic: refusal for topic, refusal in refusals.items() if refusal is not None}


def described(context: RequestContext, partitions: Iterable[InTopic]) -> tuple[InTopic, ...]:
    """Those of the partitions, which the caller did not name, whose topic it may describe."""
    listed = tuple(partitions)
    topics = {each.topic for each in listed}
    shown = {topic for topic in topics if context.authorizer.allows_topic(context, AclOperation.DESCRIBE, topic)}
    return tuple(each for each in listed if each.topic in shown)
