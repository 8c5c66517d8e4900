"""Placement of a new topic's replicas: round robin over nodes, alternating between racks; checks of replicas that
somebody names instead.

Invariants:
  1. The replicas of a partition are on different nodes, and on different racks as far as there are enough racks.
  2. Fenced nodes get replicas only where the others do not suffice, and are no preferred leaders. Kafka gives racks
     precedence over this; but a node that is gone for good stays registered here, and would get a replica of each new
     partition because it has a rack of its own. Of the fenced nodes, those without any replica come last: a node that
     was emptied to be removed for good looks so.
  3. Leaders are spread evenly: over n partitions each unfenced node is the preferred leader of floor(n / nodes)
     partitions, or one more.
  4. The followers of one leader are spread over the other nodes from round to round.
The first node and the order within a rack are random, so that small topics do not all start on the same node.
Source: the behaviour of Kafka's rack-aware assignment (KIP-36, StripedReplicaPlacer); own algorithm.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from replication.controller.image import ClusterImage, NodeRegistration
from replication.controller.node_cordon import end_of_cordon
from tidelog.errors import InvalidReplicaAssignment
from tidelog.types import DirectoryId, NodeId


def place(
    racks: Mapping[NodeId, str],
    partitions: int,
    replication_factor: int,
    rng: random.Random,
    *,
    fenced: Collection[NodeId] = (),
    emptied: Collection[NodeId] = (),
) -> list[tuple[NodeId, ...]]:
    """The replicas of each partition, the preferred leader first.

    racks: the rack of each node that may have replicas ("" is a rack too). fenced: those that are fenced, not all.
    emptied: those of the fenced that have no replica of any partition.
    replication_factor: 1 to the number of nodes.
    """
    assert 1 <= replication_factor <= len(racks)
    ring = alternate({node: rack for node, rack in racks.items() if node not in fenced}, rng)
    start = rng.randrange(len(ring))
    last: list[list[NodeId]] = []
    if replication_factor > len(ring):
        absent = {node: rack for node, rack in racks.items() if node in fenced}
        last = [
            alternate({node: rack for node, rack in absent.items() if node not in emptied}, rng),
            alternate({node: rack for node, rack in absent.items() if node in emptied}, rng),
        ]
    return [
        _replicas(ring, last, racks, start + index, index // len(ring), replication_factor)
        for index in range(partitions)
    ]


def refuse_replicas(
    image: ClusterImage, partition: str, replicas: Sequence[NodeId], *, present: Collection[NodeId] = ()
) -> None:
    """Raise InvalidReplicaAssignment if the partition cannot have these replicas, whichever of the nodes run. present:
    those that it has."""
    if not replicas or len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(
            f"{partition}: invalid replicas {list(replicas)}: name at least one, each only once"
        )
    for node_id in replicas:
        if node_id not in image.nodes:
            raise InvalidReplicaAssignment(f"{partition} cannot have a replica on node {node_id}: it is not registered")
        node = image.nodes[node_id]
        if node.gets_no_replicas and node_id not in present:
            what = "the node is cordoned" if node.cordoned else "all of its log directories are cordoned"
            raise InvalidReplicaAssignment(
                f"{partition} cannot get a replica on node {node_id}: {what}; name another one, or end that first "
                f"({end_of_cordon(node)})"
            )


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
    ring: list[NodeId], last: Sequence[list[NodeId]], racks: Mapping[NodeId, str], first: int, shift: int, count: int
) -> tuple[NodeId, ...]:
    """The leader at position `first` of the ring, then followers from there, shifted by `shift`, new racks first; once
    the ring is used up, those of each list of `last` in turn, from position `first` on."""
    others = _turned(ring, first)
    leader = others.pop(0)
    chosen = [leader]
    seen = Counter((racks[leader],))
    for candidates in (_turned(others, shift), *(_turned(nodes, first) for nodes in last)):
        while candidates and len(chosen) < count:
            follower = min(candidates, key=lambda node: seen[racks[node]])  # the first of the least used rack
            candidates.remove(follower)
            chosen.append(follower)
            seen[racks[follower]] += 1
    return tuple(chosen)


def _turned(nodes: list[NodeId], by: int) -> list[NodeId]:
    """The same nodes in the same order, beginning at position `by`, round and round."""
    turn = by % len(nodes) if nodes else 0
    return nodes[turn:] + nodes[:turn]


class DirectoryChooser:
    """Chooses the log directory of a node for the next replica: of those that are not cordoned, the one with the fewest
    replicas, ties in the node's order. A replica that lost its directory on a node whose other ones are all cordoned
    gets one of these."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._counts: Counter[DirectoryId] | None = None

    def choose(self, node: NodeRegistration) -> DirectoryId:
        """The chosen directory. It is counted for the next choice."""
        # Without the second part a replica that exists could get no log again, and its partition would lack a copy.
        able = node.open_directories or node.directories
        if len(able) == 1:
            return able[0].directory_id
        counts = self._count()
        chosen = min((directory.directory_id for directory in able), key=lambda directory_id: counts[directory_id])
        counts[chosen] += 1
        return chosen

    def _count(self) -> Counter[DirectoryId]:
        if self._counts is None:
            self._counts = Counter(_directories(self._image))
        return self._counts


def _directories(image: ClusterImage) -> Iterable[DirectoryId]:
    for partition in image.partitions():
        yield from partition.directories
