"""Placement of a new topic's replicas: round robin over nodes, alternating between racks; checks of replicas that
somebody names instead.

Invariants:
  1. The replicas of a partition are on different nodes, and on different racks as far as there are enough racks.
  2. Leaders are spread evenly: over n partitions each node is the preferred leader of floor(n / nodes) partitions, or
     one more.
  3. The followers of one leader are spread over the other nodes from round to round.
The first node and the order within a rack are random, so that small topics do not all start on the same node.
Source: the behaviour of Kafka's rack-aware assignment (KIP-36); own algorithm.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from replication.controller.image import ClusterImage, NodeRegistration
from tidelog.errors import InvalidReplicaAssignment
from tidelog.types import DirectoryId, NodeId


def place(
    racks: Mapping[NodeId, str], partitions: int, replication_factor: int, rng: random.Random
) -> list[tuple[NodeId, ...]]:
    """The replicas of each partition, the preferred leader first.

    racks: the rack of each usable node ("" is a rack too). replication_factor: 1 to the number of nodes.
    """
    assert 1 <= replication_factor <= len(racks)
    ring = alternate(racks, rng)
    start = rng.randrange(len(ring))
    return [
        _replicas(ring, racks, start + index, index // len(ring), replication_factor) for index in range(partitions)
    ]


def refuse_replicas(
    image: ClusterImage, partition: str, replicas: Sequence[NodeId], present: Collection[NodeId] = ()
) -> None:
    """Raise InvalidReplicaAssignment if the partition cannot have these replicas now. present: those that it has."""
    if not replicas or len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(
            f"{partition}: invalid replicas {list(replicas)}: name at least one, each only once"
        )
    for node_id in replicas:
        node = image.nodes.get(node_id)
        if node is None:
            raise InvalidReplicaAssignment(f"{partition} cannot have a replica on node {node_id}: it is not registered")
        if node_id not in present and (node.fenced or node.draining):
            why = "fenced" if node.fenced else "being stopped"
            raise InvalidReplicaAssignment(f"{partition} cannot get a replica on node {node_id} now: the node is {why}")


def alternate(racks: Mapping[NodeId, str], rng: random.Random) -> list[NodeId]:
    """All nodes in an order that changes the rack at each step as long as possible."""
    by_rack: dict[str, list[NodeId]] = {}
    for node in sorted(racks):
        by_rack.setdefault(racks[node], []).append(node)
    names = sorted(by_rack)
    rng.shuffle(names)
    for name in names:
        rng.shuffle(by_rack[name])
    ring: list[NodeId] = []
    while len(ring) < len(racks):
        # The rack with the most remaining nodes goes first, so that its nodes do not end up in a row.
        left = sorted((name for name in names if by_rack[name]), key=lambda name: -len(by_rack[name]))
        ring.extend(by_rack[name].pop() for name in left)
    return ring


def _replicas(
    ring: list[NodeId], racks: Mapping[NodeId, str], first: int, shift: int, count: int
) -> tuple[NodeId, ...]:
    """The leader at position `first` of the ring, then followers from there, shifted by `shift`, new racks first."""
    leader = ring[first % len(ring)]
    others = [ring[(first + 1 + step) % len(ring)] for step in range(len(ring) - 1)]
    if others:
        turn = shift % len(others)
        others = others[turn:] + others[:turn]
    chosen = [leader]
    seen = Counter((racks[leader],))
    while len(chosen) < count:
        follower = min(others, key=lambda node: seen[racks[node]])  # the first of the least used rack
        others.remove(follower)
        chosen.append(follower)
        seen[racks[follower]] += 1
    return tuple(chosen)


class DirectoryChooser:
    """Chooses the log directory of a node for the next replica: the one with the fewest replicas, ties in the node's
    order."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._counts: Counter[DirectoryId] | None = None

    def choose(self, node: NodeRegistration) -> DirectoryId:
        """The chosen directory. It is counted for the next choice."""
        if len(node.directories) == 1:
            return node.directories[0].directory_id
        counts = self._count()
        chosen = min(
            (directory.directory_id for directory in node.directories), key=lambda directory_id: counts[directory_id]
        )
        counts[chosen] += 1
        return chosen

    def _count(self) -> Counter[DirectoryId]:
        if self._counts is None:
            self._counts = Counter(_directories(self._image))
        return self._counts


def _directories(image: ClusterImage) -> Iterable[DirectoryId]:
    for partition in image.partitions():
        yield from partition.directories
