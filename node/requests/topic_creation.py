"""Topics that a client asks for and nobody has created (`auto.create.topics.enable`), and defaults of new topics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from node.api.admin_requests import ChangedTopics, CreateTopicsRequest
from node.api.metadata import GetMetadataRequest
from node.api.table import ADMIN_GET_METADATA
from node.requests.context import RequestContext
from node.requests.one_by_one import PARTS_MAX
from node.topic_defaults import TopicDefaults
from replication.controller.events import CreateTopic
from replication.controller.image import ClusterImage
from tidelog.errors import (
    InvalidTopic,
    TidelogError,
    TopicAuthorizationFailed,
    TopicExists,
    UnknownTopicOrPartition,
)
from tidelog.types import INTERNAL_TOPICS

_log = logging.getLogger("node.requests")

DEFAULT: Final = -1
"""In place of a number: the node's default."""


def unknown_topic(name: str) -> UnknownTopicOrPartition:
    """The error of a name that no topic has."""
    return UnknownTopicOrPartition(
        f"topic {name!r} does not exist, as far as this node knows: check its name (`tidelog topic list`), or create "
        f"it (`tidelog topic create {name}`)"
    )


class TopicCreation:
    """Creates them with the defaults of this node."""

    def __init__(self, defaults: TopicDefaults) -> None:
        self._defaults = defaults

    def with_defaults(self, topic: CreateTopic) -> CreateTopic:
        """The topic with a number wherever its creator names none."""
        if topic.assignments:  # they say both numbers
            return topic
        partitions, replicas = topic.partitions, topic.replication_factor
        return replace(
            topic,
            partitions=self._defaults.partitions if partitions == DEFAULT else partitions,
            replication_factor=self._defaults.replication_factor if replicas == DEFAULT else replicas,
        )

    def _among(self, request: GetMetadataRequest, image: ClusterImage, context: RequestContext) -> Sequence[str]:
        if not (request.creates_missing and self._defaults.creates_missing) or request.all_topics:
            return ()
        return [
            name
            for name in dict.fromkeys(request.topics)
            if image.topic(name) is None
            and name not in INTERNAL_TOPICS  # these are made with settings of their own
            and context.authorizer.topic_refusal(context, ADMIN_GET_METADATA, name) is None
        ][:PARTS_MAX]  # the client asks again for the others

    async def create(
        self,
        request: GetMetadataRequest,
        image: ClusterImage,
        create: Callable[[CreateTopicsRequest, RequestContext], Awaitable[ChangedTopics]],
        context: RequestContext,
    ) -> Mapping[str, TidelogError]:
        """Create the requested topics that do not exist, if the request and the node want that. create: the handler of
        requests that create topics, with its permissions and quotas. Returns why not, by name."""
        names = self._among(request, image, context)
        if not names:
            return {}
        asked = CreateTopicsRequest(tuple(CreateTopic(name, DEFAULT, DEFAULT, {}) for name in names))
        created = (await create(asked, context)).topics
        for each in created:
            if each.error is None:
                _log.info("topic %s is created: a client at listener %s asked for it", each.name, context.listener)
        # Another client may have been quicker; the topic is in the image then, or soon.
        return {
            each.name: _for_client(each.name, each.error)
            for each in created
            if each.error and not isinstance(each.error, TopicExists)
        }


def _for_client(name: str, error: TidelogError) -> TidelogError:
    """Why the topic was not created. As in Kafka, any other reason than these two is that there is no such topic, after
    which clients ask again: after the number of a quota or of a missing controller, Java's consumer waits for minutes.
    """
    if isinstance(error, InvalidTopic | TopicAuthorizationFailed):
        return error
    _log.info("topic %s, which a client asked for, was not created: %s", name, error.message)
    return UnknownTopicOrPartition(f"topic {name!r} does not exist, and could not be created now: {error.message}")
