"""What was found out about each topic, found out again only where something has changed.

A look at every partition of a large cluster takes a tenth of a second of the event loop, and is repeated while most of
them stay as they are. An image never changes, so `is` shows which topics are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from replication.controller.image import EMPTY, ClusterImage, TopicState
from tidelog.types import TopicId

T = TypeVar("T")


class TopicCache(Generic[T]):
    """The findings of one function."""

    def __init__(self, find: Callable[[ClusterImage, TopicState], T]) -> None:
        """find: depends on the topic and on the nodes of the image, and on nothing else."""
        self._find = find
        self._image = EMPTY
        self._found: dict[TopicId, T] = {}

    def of(self, image: ClusterImage) -> Iterable[T]:
        """What is found out about each topic of the image, in their order."""
        last, found = self._image, self._found
        self._image = image
        if image.nodes is not last.nodes:
            found = {}
        elif image.topics is last.topics:
            return found.values()
        self._found = {
            topic_id: found[topic_id]
            if topic_id in found and last.topics[topic_id] is topic
            else self._find(image, topic)
            for topic_id, topic in image.topics.items()
        }
        return self._found.values()
