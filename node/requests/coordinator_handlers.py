"""Handlers of the Coordinators service: which node coordinates a group or a transactional id. Any node answers.

Not here: the coordinators (node/coordinators/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from node.api.table import COORDINATORS_FIND_COORDINATOR
from node.coordinators.internal_topics import InternalTopic, InternalTopics, coordinator_node
from node.requests.context import RequestContext
from node.requests.group_checks import ensure_group_id, ensure_transactional_id
from node.runtime.limits import ensure_few
from replication.controller.image import ClusterImage, TopicState
from replication.coordination.group_requests import (
    CoordinatorType,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
    FoundCoordinator,
)
from replication.coordination.partitioning import partition_of
from tidelog.errors import CoordinatorNotAvailable, TidelogError, UnsupportedVersion
from tidelog.security.acls import AclOperation, ResourceType
from tidelog.values import dataclass

_RESOURCES: Final = {
    CoordinatorType.GROUP: ResourceType.GROUP,
    CoordinatorType.TRANSACTION: ResourceType.TRANSACTIONAL_ID,
}


@dataclass(frozen=True, slots=True)
class CoordinatorTopics:
    """The internal topics of groups and of transactions."""

    groups: InternalTopic
    transactions: InternalTopic


class CoordinatorHandlers:
    """One method for each API of the Coordinators service."""

    def __init__(
        self, topics: InternalTopics, settings: CoordinatorTopics, *, image: Callable[[], ClusterImage]
    ) -> None:
        """settings: how the topics are created. image: the newest image of this node."""
        self._topics, self._settings, self._image = topics, settings, image

    async def find_coordinator(self, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorAnswer:
        """The coordinator of each key. Creates the internal topic if a key is valid and permitted."""
        ensure_few(request.keys, "keys")
        refused = {key: self._refusal(request.type, key, context) for key in dict.fromkeys(request.keys)}
        topic: TopicState | None = None
        if None in refused.values():
            is_group = request.type is CoordinatorType.GROUP
            wanted = self._settings.groups if is_group else self._settings.transactions
            try:
                topic = await self._topics.ensure(wanted)
            except (CoordinatorNotAvailable, UnsupportedVersion) as error:
                refused = {key: refusal or error for key, refusal in refused.items()}
        return FindCoordinatorAnswer(
            tuple(_found(key, refused[key], topic, self._image(), context.listener) for key in request.keys)
        )

    def _refusal(self, kind: CoordinatorType, key: str, context: RequestContext) -> TidelogError | None:
        try:
            if kind is CoordinatorType.GROUP:
                ensure_group_id(key)
            else:
                ensure_transactional_id(key)
        except TidelogError as error:
            return error
        return context.authorizer.resource_refusal(
            context, COORDINATORS_FIND_COORDINATOR, AclOperation.DESCRIBE, _RESOURCES[kind], key
        )


def _found(
    key: str, refusal: TidelogError | None, topic: TopicState | None, image: ClusterImage, listener: str
) -> FoundCoordinator:
    if refusal is not None or topic is None:
        return FoundCoordinator(key, refusal)
    topic = image.topics.get(topic.topic_id, topic)
    partition = partition_of(key, len(topic.partitions))
    try:
        return FoundCoordinator(key, None, coordinator_node(image, topic, partition, listener))
    except CoordinatorNotAvailable as error:
        return FoundCoordinator(key, error)
