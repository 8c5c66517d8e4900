"""Topics that a client asks for and nobody has created (`auto.create.topics.enable`), and defaults of new topics.

The client waits for them only shortly: other requests of its connection wait behind this one. If the controller takes
longer, the client is told that there is no such topic, and asks again, as in Kafka, where it always does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from node.api.admin_requests import ChangedTopics, CreateTopicsRequest
from node.api.metadata import GetMetadataRequest
from node.api.table import ADMIN_CREATE_TOPICS, ADMIN_GET_METADATA
from node.requests.context import RequestContext
from node.requests.one_by_one import PARTS_MAX
from node.topic_defaults import TopicDefaults
from replication.controller.events import ChangedTopic, CreateTopic
from replication.controller.image import ClusterImage
from tidelog.errors import (
    InvalidTopic,
    NotController,
    RequestTimedOut,
    TidelogError,
    TopicAuthorizationFailed,
    TopicExists,
    UnknownTopicOrPartition,
)
from tidelog.types import INTERNAL_TOPICS

_log = logging.getLogger("node.requests")

DEFAULT: Final = -1
"""In place of a number: the node's default."""

WAIT_MS: Final = 1_000
"""How long a request waits for the topics that it creates."""

FAILURES_MAX: Final = 100
"""Failures that are remembered, so that the next one of the same kind has no line."""


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
        self._failed: dict[tuple[str, str], type[TidelogError]] = {}
        """The last failures, by principal and topic."""

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
        outcomes: list[ChangedTopic] = []
        try:
            async with asyncio.timeout(WAIT_MS / 1_000):
                for name in names:
                    outcomes += (await create(_one(name), context)).topics
                    if isinstance(outcomes[-1].error, NotController | RequestTimedOut):
                        break  # the others would wait as long
        except TimeoutError:
            late = RequestTimedOut(f"the controller has not answered within {WAIT_MS} ms, and may still create it")
            outcomes.append(ChangedTopic(names[len(outcomes)], late))
        for outcome in outcomes:
            self._record(outcome, context)
        not_tried = RequestTimedOut(
            "the controller has not answered in time for others that the request names before it"
        )
        outcomes += [ChangedTopic(name, not_tried) for name in names[len(outcomes) :]]
        # Another client may have been quicker; the topic is in the image then, or soon.
        return {
            each.name: _for_client(each.name, each.error)
            for each in outcomes
            if each.error and not isinstance(each.error, TopicExists)
        }

    def _record(self, outcome: ChangedTopic, context: RequestContext) -> None:
        """Record a topic that was created, or may be, in the audit log, and write what became of it to the log of the
        node. What has failed is said once: its client asks several times in a second."""
        key, error = (context.principal, outcome.name), outcome.error
        if isinstance(error, TopicExists | TopicAuthorizationFailed):
            return  # the authorizer has recorded a denial
        is_known = error is not None and self._failed.get(key) is type(error)
        if error is None:
            self._failed.pop(key, None)
            _log.info("topic %s is created: %s at listener %s asked for it", outcome.name, *_who(context))
        elif not is_known:
            if len(self._failed) >= FAILURES_MAX:
                self._failed.clear()
            self._failed[key] = type(error)
            _log.info(
                "topic %s, for which %s at listener %s asked, was not created: %s",
                outcome.name,
                *_who(context),
                error.message,
            )
        if error is None or not is_known or error.written is not False:  # any attempt may have created it
            context.audit.changed(context, ADMIN_CREATE_TOPICS, _one(outcome.name), ChangedTopics((outcome,)))


def _one(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest((CreateTopic(name, DEFAULT, DEFAULT, {}),))


def _who(context: RequestContext) -> tuple[str, str]:
    return context.principal, context.listener


def _for_client(name: str, error: TidelogError) -> TidelogError:
    """Why the topic was not created. As in Kafka, any other reason than these two is that there is no such topic, after
    which clients ask again: after the number of a quota or of a missing controller, Java's consumer waits for minutes.
    """
    if isinstance(error, InvalidTopic | TopicAuthorizationFailed):
        return error
    return UnknownTopicOrPartition(f"topic {name!r} does not exist, and could not be created now: {error.message}")
