"""The topics of the cluster as groups see them: ids, partitions, racks, and a hash by which two states are
distinguished.

A group keeps the hash of its subscribed topics with its epoch: the coordinator that takes over finds out whether the
topics have changed since then (KIP-1101).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import xxhash

from replication.controller.image import EMPTY, ClusterImage, TopicState
from tidelog.types import NodeId, TopicId
from tidelog.values import dataclass

_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic."""

    topic_id: TopicId
    name: str
    partitions: int
    racks: tuple[frozenset[str], ...]
    """The racks of the replicas of each partition; empty if no node has a rack."""
    hash: int
    """Hash of all the other fields."""


class TopicCatalog:
    """The topics of the newest image. A topic's entry is computed when it is first used."""

    def __init__(self) -> None:
        self._image: ClusterImage = EMPTY
        self._racks: dict[NodeId, str] = {}
        self._topics: dict[str, tuple[TopicState, Topic]] = {}

    @property
    def image(self) -> ClusterImage:
        """The newest image."""
        return self._image

    @property
    def ids(self) -> Mapping[str, TopicId]:
        """The ids of all topics, by name."""
        return self._image.topic_ids

    def update(self, image: ClusterImage, watched: Iterable[str]) -> list[str]:
        """Take a newer image. Returns the names among `watched` whose topics were created, deleted or changed."""
        before = self._image
        racks = self._racks
        if image.nodes is not before.nodes:
            racks = {node_id: node.rack for node_id, node in image.nodes.items() if node.rack}
        racks_changed = racks != self._racks
        if image.topics is before.topics and not racks_changed:
            self._image = image
            return []
        candidates = [name for name in watched if racks_changed or before.topic(name) is not image.topic(name)]
        hashes = [self._hash_of(name) for name in candidates]
        self._image = image
        if racks_changed:
            self._racks = racks
            self._topics.clear()
        return [name for name, known in zip(candidates, hashes, strict=True) if self._hash_of(name) != known]

    def _hash_of(self, name: str) -> int:
        topic = self.get(name)
        return 0 if topic is None else topic.hash

    def get(self, name: str) -> Topic | None:
        """The topic that bears this name now, or None."""
        topic_id = self._image.topic_ids.get(name)
        if topic_id is None:
            self._topics.pop(name, None)
            return None
        state = self._image.topics[topic_id]
        known = self._topics.get(name)
        if known is not None and known[0] is state:
            return known[1]
        topic = self._topic(state)
        self._topics[name] = state, topic
        return topic

    def _topic(self, state: TopicState) -> Topic:
        racks: tuple[frozenset[str], ...] = ()
        if self._racks:
            racks = tuple(
                frozenset(self._racks[node] for node in partition.replicas if node in self._racks)
                for partition in state.partitions
            )
        described = (state.topic_id.hex, state.name, len(state.partitions), [sorted(each) for each in racks])
        digest = xxhash.xxh3_64_intdigest(repr(described).encode())
        return Topic(state.topic_id, state.name, len(state.partitions), racks, digest)

    def hash_of(self, names: Iterable[str]) -> int:
        """A signed number of 64 bits for the state of these topics; 0 if none of them exists. The order is the same
        for each caller and each process, whatever the order of the names."""
        total = 0
        for name in names:
            topic = self.get(name)
            if topic is not None:
                total += topic.hash
        total &= (1 << _BITS) - 1
        return total - (1 << _BITS) if total >> (_BITS - 1) else total
