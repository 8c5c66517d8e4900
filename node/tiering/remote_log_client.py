"""Requests of a leader to the coordinators of remote segments, on this node or another one.

Not here: the coordinators (node/coordinators/remote_log_coordinators.py), when they are asked
(tiered_partition.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from node.api.api import Api
from node.api.peers import Peers
from node.api.table import (
    REMOTE_LOGS_BEGIN_COPY,
    REMOTE_LOGS_BEGIN_REMOTE_LOG,
    REMOTE_LOGS_DELETE_REMOTE_SEGMENTS,
    REMOTE_LOGS_FIND_ORPHANS,
    REMOTE_LOGS_FINISH_COPY,
    REMOTE_LOGS_FOLLOW_REMOTE_LOGS,
    REMOTE_LOGS_LIST_REMOTE_SEGMENTS,
)
from node.coordinators.internal_topics import InternalTopic, InternalTopics, coordinator_node
from node.coordinators.remote_log_coordinators import RemoteLogCoordinators
from node.tiering_settings import TieringConfig
from replication.controller import features
from replication.controller.image import MIN_INSYNC_REPLICAS, ClusterImage
from replication.coordination.remote_log_requests import (
    BeginCopy,
    BeginRemoteLog,
    DeleteRemoteSegments,
    FindOrphans,
    FinishCopy,
    FollowRemoteLogs,
    ListRemoteSegments,
    OrphansFound,
    RemoteObject,
    RemoteSegmentsPage,
    RemoteSegmentsPages,
    SegmentPlace,
)
from tidelog.types import REMOTE_LOG_METADATA_TOPIC, NodeId, PartitionIndex, PartitionKey

T = TypeVar("T")
ANSWER_MS: Final = 30_000
"""A decision is answered when it is committed."""

Change = BeginRemoteLog | BeginCopy | FinishCopy | DeleteRemoteSegments
_APIS: Final[dict[type[Any], Api[Any, Any]]] = {
    BeginRemoteLog: REMOTE_LOGS_BEGIN_REMOTE_LOG,
    BeginCopy: REMOTE_LOGS_BEGIN_COPY,
    FinishCopy: REMOTE_LOGS_FINISH_COPY,
    DeleteRemoteSegments: REMOTE_LOGS_DELETE_REMOTE_SEGMENTS,
    ListRemoteSegments: REMOTE_LOGS_LIST_REMOTE_SEGMENTS,
    FindOrphans: REMOTE_LOGS_FIND_ORPHANS,
    FollowRemoteLogs: REMOTE_LOGS_FOLLOW_REMOTE_LOGS,
}


class RemoteLogClient:
    """Its methods raise what the coordinator answers, CoordinatorNotAvailable and NotCoordinator while there is none,
    and ConnectionFailed and RequestTimedOut: then the change may have happened."""

    def __init__(
        self,
        me: NodeId,
        coordinators: RemoteLogCoordinators,
        topics: InternalTopics,
        config: TieringConfig,
        *,
        image: Callable[[], ClusterImage],
        listener: str,
        peers: Peers,
    ) -> None:
        """listener: of nodes."""
        self._me, self._coordinators, self._topics, self.config = me, coordinators, topics, config
        self._topic = InternalTopic(
            REMOTE_LOG_METADATA_TOPIC,
            config.partitions,
            config.replication_factor,
            configs={MIN_INSYNC_REPLICAS: str(config.min_isr)},
            feature_level=features.REMOTE_TIER,
            needed_for="the remote tier",
        )
        self._image, self._listener, self._peers = image, listener, peers

    async def ensure_topic(self) -> None:
        """Create `__remote_log_metadata` unless it exists. Raises as `InternalTopics.ensure`."""
        await self._topics.ensure(self._topic)

    async def change(self, request: Change) -> None:
        """Returns when the change is committed."""
        await self._ask(request.leader.key, request)

    async def pages(self, key: PartitionKey, after: SegmentPlace | None) -> AsyncIterator[RemoteSegmentsPage]:
        """The segments of a partition behind this one, page by page; all without one."""
        while True:
            page: RemoteSegmentsPage = await self._ask(key, ListRemoteSegments(key, after))
            yield page
            if not page.has_more:
                return
            after = page.end

    @property
    def sweeps_here(self) -> bool:
        """True on one node of the cluster: the leader of the first partition of the topic."""
        topic = self._image().topic(self._topic.name)
        return topic is not None and topic.partitions[PartitionIndex(0)].leader == self._me

    async def orphans(self, objects: Iterable[RemoteObject]) -> OrphansFound:
        """Those of these objects, which were listed before, that belong to no segment."""
        by_coordinator: dict[PartitionIndex, list[RemoteObject]] = {}
        for each in objects:
            by_coordinator.setdefault(self._coordinators.partition_of(each.key), []).append(each)
        orphans: list[RemoteObject] = []
        doubtful: list[RemoteObject] = []
        for _, asked in sorted(by_coordinator.items()):
            answer: OrphansFound = await self._ask(asked[0].key, FindOrphans(tuple(asked)))
            orphans += answer.objects
            doubtful += answer.doubtful
        return OrphansFound(tuple(orphans), tuple(doubtful))

    def coordinator_of(self, key: PartitionKey) -> PartitionIndex:
        """The partition of `__remote_log_metadata` for a partition. Raises CoordinatorNotAvailable: the topic does not
        exist yet."""
        return self._coordinators.partition_of(key)

    async def first_pages(self, lists: Sequence[ListRemoteSegments]) -> tuple[RemoteSegmentsPage, ...]:
        """The pages of some partitions with the same coordinator, at most FOLLOWED_MAX."""
        answer: RemoteSegmentsPages = await self._ask(lists[0].key, FollowRemoteLogs(tuple(lists)))
        return answer.pages

    async def _ask(self, key: PartitionKey, request: Any) -> Any:
        image = self._image()
        index = self.coordinator_of(key)
        topic = image.topic(self._topic.name)
        assert topic is not None, "it has this partition"
        node = coordinator_node(image, topic, index, self._listener)
        if node.node_id == self._me:
            if isinstance(request, FollowRemoteLogs):
                return await self._coordinators.follow(request)
            return await self._coordinators.submit(key, request)
        return await self._peers.call(node.endpoint, _APIS[type(request)], request, timeout_ms=ANSWER_MS)
