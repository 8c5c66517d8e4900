"""The replica that a request names, for callers with permission for its topic."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from node.api.api import Api
from node.replicas.replica import Replica
from node.replicas.replica_manager import ReplicaManager
from node.requests.context import RequestContext
from tidelog.errors import TidelogError
from tidelog.types import TopicId


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
