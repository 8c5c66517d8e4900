"""Changes that a node forwards to the active controller, and answers once it has applied them itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import Final, TypeVar

from node.api import admin_requests as admin
from node.api import config_requests
from node.api.api import Answered, Api, Asked
from node.metadata.metadata_log import MetadataLog
from node.requests.context import RequestContext
from node.requests.controller_client import ControllerClient
from node.requests.one_by_one import one_by_one
from replication.controller import events, snapshot_events
from replication.controller.image import ClusterImage
from tidelog.errors import InvalidTopic, RequestTimedOut, TidelogError
from tidelog.types import INTERNAL_TOPICS

Altered = TypeVar(
    "Altered",
    events.AclsCreated,
    events.AclsDeleted,
    events.ScramCredentialsAltered,
    events.ClientQuotasAltered,
    events.GroupConfigsAltered,
    events.NodeUnregistered,
    events.CordonAltered,
    snapshot_events.TopicSnapshotChanged,
)
"""An answer with the offset up to which the metadata log must be applied for the change to be visible."""

TopicChange = TypeVar(
    "TopicChange",
    events.CreateTopic,
    events.DeleteTopic,
    events.CreatePartitions,
    events.AlterConfigs,
    config_requests.AlteredResource,
)

CHANGE_MS: Final = 15_000
"""After this time the outcome of a change is unknown."""


class ForwardedChanges:
    """For handlers, which are derived from it."""

    def __init__(self, metadata: MetadataLog, controller: ControllerClient) -> None:
        self._metadata, self._controller = metadata, controller

    async def _forward(self, api: Api[Asked, Answered], request: Asked, context: RequestContext) -> Answered:
        return await self._controller.forward(api, request, timeout_ms=CHANGE_MS, principal=context.principal)

    async def _alter(self, api: Api[Asked, Altered], request: Asked, context: RequestContext, what: str) -> Altered:
        """Forward; respond when this node has applied the change. what: was done, for the error if it has not."""
        answer = await self._forward(api, request, context)
        await self._applied(lambda image: image.offset >= answer.metadata_offset, what)
        return answer

    async def _change_topic(
        self, api: Api[Asked, admin.ChangedTopics], request: Asked, context: RequestContext, done: str
    ) -> events.ChangedTopic:
        """Forward a request about one topic; respond when this node has applied it. done: what was, for the error if it
        has not."""
        [changed] = (await self._forward(api, request, context)).topics
        what = f"topic {changed.name} was {done}"
        await self._applied(lambda image: image.offset >= changed.metadata_offset, what)
        return changed

    async def _applied(self, seen: Callable[[ClusterImage], bool], what: str) -> None:
        try:
            async with asyncio.timeout(CHANGE_MS / 1_000):
                await self._metadata.wait_until(lambda: seen(self._metadata.image))
        except TimeoutError:
            raise RequestTimedOut(
                f"{what}, but this node has not applied it within {CHANGE_MS} ms; check again, or query another node"
            ) from None


async def each_topic(
    topics: Sequence[TopicChange],
    change: Callable[[TopicChange], Awaitable[events.ChangedTopic]],
    context: RequestContext,
) -> admin.ChangedTopics:
    """Change each topic on its own, in the order of the request."""
    outcomes = await one_by_one(topics, "topics", attrgetter("name"), change, context)
    return admin.ChangedTopics(
        tuple(
            events.ChangedTopic(topic.name, outcome) if isinstance(outcome, TidelogError) else outcome
            for topic, outcome in zip(topics, outcomes, strict=True)
        )
    )


def ensure_not_internal(topic: str, why: str) -> None:
    """Raise InvalidTopic for an internal topic of coordinators, which clients may only read. why: the change is
    refused. Appends are refused by the log (storage/log/log_writer.py)."""
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"{topic} is an internal topic of the cluster, and this change is refused: {why}")
