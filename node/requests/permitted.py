"""The replicas and topics that a request names, for callers with permission for them, and the cluster."""

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
from tidelog.record_exchange import TopicReference
from tidelog.security.acls import CLUSTER_NAME, OPERATIONS, AclOperation, ResourceType
from tidelog.types import TopicId

InTopic = TypeVar("InTopic", FetchedOffset, NamedPartition)


def locate_permitted(
    manager: ReplicaManager, context: RequestContext, api: Api[Any, Any], topic: TopicReference, index: int
) -> Replica:
    """As `ReplicaRegistry.locate`. Raises TopicAuthorizationFailed for a caller without permission, also instead of an
    error that reveals something about the topic: for a name also whether there is such a topic."""
    try:
        replica = manager.registry.locate(topic, index, context.listener)
    except TidelogError:
        name = topic if isinstance(topic, str) else _name_of(manager, topic)
        refusal = None if name is None else _refusal(context, api, topic, name)
        if refusal is not None:
            raise refusal from None
        raise
    ensure_permitted(context, api, topic, replica)
    return replica


def ensure_permitted(context: RequestContext, api: Api[Any, Any], topic: TopicReference, replica: Replica) -> None:
    """Raises TopicAuthorizationFailed for a caller without permission. topic: as the caller named it."""
    refusal = _refusal(context, api, topic, replica.name.topic)
    if refusal is not None:
        raise refusal


def _name_of(manager: ReplicaManager, topic_id: bytes) -> str | None:
    topic = manager.image.topics.get(TopicId(UUID(bytes=topic_id))) if len(topic_id) == 16 else None
    return None if topic is None else topic.name


def _refusal(context: RequestContext, api: Api[Any, Any], topic: TopicReference, name: str) -> TidelogError | None:
    return context.authorizer.topic_refusal(context, api, name, by_id=isinstance(topic, bytes))


def ensure_topic_permitted(context: RequestContext, api: Api[Any, Any], topic: str, *, by_id: bool = False) -> None:
    """Raises TopicAuthorizationFailed for a caller without permission for a topic that is answered by itself."""
    refusal = context.authorizer.topic_refusal(context, api, topic, by_id=by_id)
    if refusal is not None:
        raise refusal


def ensure_cluster_permitted(context: RequestContext, api: Api[Any, Any], operation: AclOperation) -> None:
    """Raises ClusterAuthorizationFailed for a caller without permission for a part of a request that needs it."""
    refusal = context.authorizer.resource_refusal(context, api, operation, ResourceType.CLUSTER, CLUSTER_NAME)
    if refusal is not None:
        raise refusal


def ensure_group_permitted(context: RequestContext, api: Api[Any, Any], operation: AclOperation, group: str) -> None:
    """Raises GroupAuthorizationFailed for a caller without permission for a group that is answered by itself."""
    refusal = context.authorizer.resource_refusal(context, api, operation, ResourceType.GROUP, group)
    if refusal is not None:
        raise refusal


def permitted_operations(context: RequestContext, resource_type: ResourceType, name: str) -> tuple[AclOperation, ...]:
    """What the caller may do with a resource that it may describe; nothing with another one, as in Kafka."""
    if not context.authorizer.allows(context, AclOperation.DESCRIBE, resource_type, name):
        return ()
    operations = sorted(OPERATIONS[resource_type])
    return tuple(each for each in operations if context.authorizer.allows(context, each, resource_type, name))


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
