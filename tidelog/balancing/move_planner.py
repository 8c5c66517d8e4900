"""Plans moves of replicas, a pure function of the cluster: nodes are emptied, topics have their replication factor,
racks are used, and replicas, bytes, leaderships and load are even.

Invariants:
  1. The replicas of a partition are on different nodes. A move never lowers the number of racks that a partition uses.
  2. A node that takes no replicas gets none, and no leadership. It keeps what it has unless it is to be emptied.
  3. A partition whose replicas need no change is not named in the plan: a plan for a balanced cluster is empty.
  4. A replica that can stay, stays: only what a rule above, a difference of more than one replica between two nodes, or
     a node with far more load than others asks for is moved. With one rack, or none named, any two nodes that take
     replicas then differ by at most one.
  5. A lower replication factor removes replicas on nodes that take none before others.
  6. Of the replicas that may leave a node, one in a cordoned log directory goes first, then one in the directory with
     the most bytes. Log directories cause no further moves: a replica does not move within a node, and the controller
     chooses the directory of one that comes.

The steps are in the order of their weight: emptied nodes and replication factors, racks, replicas (the bytes are the
second criterion), leaderships, which move no bytes, load.
Cost: 100 nodes with 50,000 partitions take a few seconds.
Out of scope: what is done for the load (load_planner.py); the state of the cluster, and the execution
(cluster_balance.py).
Source: own algorithm; the goals are those of LinkedIn's Cruise Control.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from tidelog.balancing.load_planner import LoadBalance, PartitionLoad
from tidelog.errors import TooFewNodes
from tidelog.types import NodeId, TopicPartition

_NAMED_MAX: Final = 5
"""Partitions that an error names."""

_NEAREST: Final = 32
"""Partitions nearest to the wanted size that are tried before all others of the node."""

_LEADER_ROUNDS_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class BalancedNode:
    """A node of the cluster."""

    node_id: NodeId
    rack: str = ""
    """Nodes without one are in one rack."""
    takes_replicas: bool = True
    """It runs, is not cordoned, and is not to be emptied."""
    cordoned_dirs: frozenset[str] = frozenset()
    """Its cordoned log directories."""


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """A partition with its replicas, the preferred leader first."""

    partition: TopicPartition
    replicas: tuple[NodeId, ...]
    size_bytes: int = 0
    """Of each replica."""
    log_dirs: tuple[str, ...] = ()
    """The log directory of each replica, in the order of `replicas`, "" where it is unknown; empty: all are."""
    bytes_in: int = 0
    """Bytes per second that producers write: each replica takes them in."""
    bytes_out: int = 0
    """Bytes per second that consumers read from the leader."""


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """The replicas that a partition has and gets, the preferred leader first."""

    partition: TopicPartition
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]
    size_bytes: int = 0
    """Of each replica."""
    log_dirs: tuple[str, ...] = ()
    """As in PlacedPartition, in the order of `before`."""

    @property
    def leaving_dirs(self) -> dict[NodeId, str]:
        """The log directories in which replicas are removed, by node, as far as they are known."""
        known = zip(self.before, self.log_dirs, strict=False)
        return {node: log_dir for node, log_dir in known if log_dir and node not in self.after}

    @property
    def adding(self) -> tuple[NodeId, ...]:
        """The nodes that fetch the partition."""
        return tuple(node for node in self.after if node not in self.before)

    @property
    def moved_bytes(self) -> int:
        """What is fetched for it in total."""
        return self.size_bytes * len(self.adding)


def plan_moves(
    nodes: Iterable[BalancedNode],
    partitions: Sequence[PlacedPartition],
    *,
    emptied: Collection[NodeId] = (),
    emptied_dirs: Collection[tuple[NodeId, str]] = (),
    replication_factors: Mapping[str, int] | None = None,
    evens_out: bool = True,
    staying: Collection[TopicPartition] = (),
) -> list[ReplicaMove]:
    """The moves, in the order of the partitions.

    emptied: nodes that lose all replicas. emptied_dirs: log directories of nodes that do, to other nodes.
    replication_factors: of topics, by name; others keep theirs. evens_out: False: change only what the former ask for.
    staying: partitions to which these do not apply.

    Raises TooFewNodes, with their names, if partitions need more nodes than take replicas.
    """
    state = _Placement(nodes, partitions, emptied, emptied_dirs)
    if short := state.complete_all(replication_factors or {}, staying):
        names = [str(partition) for partition in short]
        more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        others = f"; so do {', '.join(names[1:_NAMED_MAX])}{more}" if len(names) > 1 else ""
        raise TooFewNodes(f"{next(iter(short.values()))}{others}")
    if evens_out:
        state.use_racks()
        state.even_replicas()
        state.even_leaders()
        state.even_load()
    return [
        ReplicaMove(placed.partition, placed.replicas, tuple(after), placed.size_bytes, placed.log_dirs)
        for placed, after in zip(partitions, state.replicas, strict=True)
        if tuple(after) != placed.replicas
    ]


def unplaceable(
    nodes: Iterable[BalancedNode],
    partitions: Sequence[PlacedPartition],
    emptied: Collection[NodeId],
    emptied_dirs: Collection[tuple[NodeId, str]] = (),
) -> dict[TopicPartition, str]:
    """The partitions that need more nodes than take replicas once some are emptied, with the reason."""
    return _Placement(nodes, partitions, emptied, emptied_dirs).complete_all({}, ())


class _Placement:
    """The replicas while they are planned."""

    def __init__(
        self,
        nodes: Iterable[BalancedNode],
        partitions: Sequence[PlacedPartition],
        emptied: Collection[NodeId],
        emptied_dirs: Collection[tuple[NodeId, str]],
    ) -> None:
        known = sorted(nodes, key=lambda node: node.node_id)
        self._racks = {node.node_id: node.rack for node in known}
        self._targets = [node.node_id for node in known if node.takes_replicas and node.node_id not in emptied]
        self._emptied, self._emptied_dirs = frozenset(emptied), frozenset(emptied_dirs)
        self._partitions = partitions
        self.replicas = [list(placed.replicas) for placed in partitions]
        self._cordoned = {node.node_id: node.cordoned_dirs for node in known}
        self._held: dict[NodeId, dict[str, list[tuple[int, int]]]] = {node.node_id: {} for node in known}
        """The partitions of each node and log directory as (bytes, index), sorted."""
        self._counts: Counter[NodeId] = Counter()
        self._bytes: Counter[NodeId] = Counter()
        self._dir_bytes: Counter[tuple[NodeId, str]] = Counter()
        for index, placed in enumerate(partitions):
            for node in placed.replicas:
                log_dir = self._dir_of(index, node)
                self._held.setdefault(node, {}).setdefault(log_dir, []).append((placed.size_bytes, index))
                self._count(node, log_dir, 1, placed.size_bytes)
        for log_dirs in self._held.values():
            for held in log_dirs.values():
                held.sort()

    # --- steps ----------------------------------------------------------------------------------------------------

    def complete_all(
        self, factors: Mapping[str, int], staying: Collection[TopicPartition]
    ) -> dict[TopicPartition, str]:
        """`complete` all partitions but those that stay. Returns why some could not be: after that, this placement is
        of no further use."""
        short: dict[TopicPartition, str] = {}
        for index, placed in enumerate(self._partitions):
            if placed.partition not in staying:
                try:
                    self.complete(index, factors.get(placed.partition.topic, len(placed.replicas)))
                except TooFewNodes as error:
                    short[placed.partition] = error.message
        return short

    def complete(self, index: int, factor: int) -> None:
        """Empty the nodes and log directories that are to be emptied, and give the partition this many replicas."""
        replicas = self.replicas[index]
        for node in [node for node in replicas if self._must_leave(index, node)]:
            substitute = self._best_target(index, without=node) if len(replicas) <= factor else None
            self._replace(index, node, substitute)
        while len(replicas) > factor:
            self._replace(index, self._dispensable(index), None)
        while len(replicas) < factor:
            self._add(index, self._best_target(index))

    def use_racks(self) -> None:
        """Move a replica out of a rack that has two of a partition, while another rack has none."""
        racks = {self._racks[node] for node in self._targets}
        for index, replicas in enumerate(self.replicas):
            used = Counter(map(self._rack, replicas))
            while len(used) < len(replicas) and racks - used.keys():
                crowded = [node for node in replicas if used[self._rack(node)] > 1]
                leaving = max(crowded, key=lambda node: (node != replicas[0], self._counts[node], node))
                self._replace(index, leaving, self._best_target(index, without=leaving))
                used = Counter(map(self._rack, replicas))

    def even_replicas(self) -> None:
        """Move replicas from the nodes with the most to those with the fewest, until no two differ by more than one, or
        the racks allow nothing more."""
        stuck: set[tuple[NodeId, NodeId]] = set()
        while (pair := self._uneven_pair(stuck)) is not None:
            source, target = pair
            index = self._movable(source, target)
            if index is None:
                # Later moves could free the pair again, but without this the loop need not end.
                stuck.update((source, node) for node in self._as_stuck(source, target))
            else:
                self._replace(index, source, target)

    def even_leaders(self) -> None:
        """Exchange the preferred leader with a follower that is the preferred leader of fewer partitions."""
        leads = Counter(replicas[0] for replicas in self.replicas if replicas)
        targets = set(self._targets)
        for _ in range(_LEADER_ROUNDS_MAX):
            is_even = True
            for replicas in self.replicas:
                able = [place for place in range(1, len(replicas)) if replicas[place] in targets]
                if not able:
                    continue
                place = min(able, key=lambda place: leads[replicas[place]])
                if leads[replicas[0]] - leads[replicas[place]] > 1:
                    leads[replicas[0]] -= 1
                    leads[replicas[place]] += 1
                    replicas[0], replicas[place] = replicas[place], replicas[0]
                    is_even = False
            if is_even:
                return

    def even_load(self) -> None:
        """Exchange leaderships and replicas of nodes with much load and little (load_planner.py)."""
        loads = [PartitionLoad(each.bytes_in, each.bytes_out, each.size_bytes) for each in self._partitions]
        LoadBalance(self.replicas, loads, self._targets, self._racks).even_out()

    # --- choices --------------------------------------------------------------------------------------------------

    def _rack(self, node: NodeId) -> str:
        return self._racks.get(node, "")

    def _must_leave(self, index: int, node: NodeId) -> bool:
        """True if the partition may have no replica on the node, because that or its log directory there is emptied."""
        return node in self._emptied or (node, self._dir_of(index, node)) in self._emptied_dirs

    def _dispensable(self, index: int) -> NodeId:
        """The replica that a lower replication factor removes: the preferred leader last, of the others one whose rack
        has another, then one in a cordoned log directory."""
        replicas = self.replicas[index]
        used = Counter(map(self._rack, replicas))
        targets = set(self._targets)
        return max(
            replicas,
            key=lambda node: (
                node not in targets,  # else a copy that works would go, and one on a node that is down would stay
                node != replicas[0],
                used[self._rack(node)] > 1,
                self._dir_of(index, node) in self._cordoned.get(node, ()),
                self._counts[node],
            ),
        )

    def _best_target(self, index: int, *, without: NodeId | None = None) -> NodeId:
        """The node for another replica of the partition: in the rack with the fewest of its replicas, then with the
        fewest replicas, then with the fewest bytes. without: a replica that leaves."""
        replicas = self.replicas[index]
        able = [node for node in self._targets if node not in replicas and not self._must_leave(index, node)]
        if not able:
            staying = len(replicas) - (without is not None)
            raise TooFewNodes(
                f"{self._partitions[index].partition} needs another node for a replica beside the {staying} that stay, "
                f"and only {len(self._targets)} nodes take replicas: start or uncordon another one, or ask for fewer "
                "replicas"
            )
        used = Counter(self._rack(node) for node in replicas if node != without)
        return min(able, key=lambda node: (used[self._rack(node)], self._counts[node], self._bytes[node], node))

    def _uneven_pair(self, stuck: Collection[tuple[NodeId, NodeId]]) -> tuple[NodeId, NodeId] | None:
        """The node with the most replicas and the one with the fewest that differ by more than one."""
        order = sorted(self._targets, key=lambda node: (self._counts[node], self._bytes[node], node))
        for source in reversed(order):
            for target in order:
                if self._counts[source] - self._counts[target] < 2:
                    break
                if (source, target) not in stuck:
                    return source, target
        return None

    def _movable(self, source: NodeId, target: NodeId) -> int | None:
        """The partition to move between two nodes: of the first log directory that has any, the one that makes the
        bytes of the nodes most even, as far as racks allow."""
        for log_dir in self._fullest_first(source):
            held = self._held[source][log_dir]
            middle = bisect_left(held, ((self._bytes[source] - self._bytes[target]) // 2, 0))
            near = (found for found in _outwards(held, middle) if self._may_move(found[1], source, target))
            best: tuple[int, int] | None = None
            for tried, (size, index) in enumerate(near):
                distance = abs(self._bytes[source] - self._bytes[target] - 2 * size)
                best = min(best or (distance, index), (distance, index))
                if tried >= _NEAREST:
                    break
            if best is not None:
                return best[1]
        return None

    def _fullest_first(self, node: NodeId) -> list[str]:
        """The log directories of a node: cordoned ones, then by their bytes and replicas; replicas that the plan brings
        to the node are last."""
        return sorted(
            self._held[node],
            key=lambda each: (
                each in self._cordoned.get(node, ()),
                each != "",
                self._dir_bytes[node, each],
                len(self._held[node][each]),
                each,
            ),
            reverse=True,
        )

    def _dir_of(self, index: int, node: NodeId) -> str:
        """The log directory of a replica; "" if it is unknown, also because the plan brings the replica."""
        placed = self._partitions[index]
        known = bool(placed.log_dirs) and node in placed.replicas
        return placed.log_dirs[placed.replicas.index(node)] if known else ""

    def _as_stuck(self, source: NodeId, target: NodeId) -> list[NodeId]:
        """The nodes to which nothing moves from the source, as nothing does to the target: the rest of its rack too, if
        only racks forbid it. Else each node of a large rack would cost a look at every partition of the source."""
        rack = self._rack(target)
        held = chain.from_iterable(self._held[source].values())
        if any(self._racks_allow(index, source, rack) for _, index in held):
            return [target]
        return [node for node in self._targets if self._rack(node) == rack]

    def _may_move(self, index: int, source: NodeId, target: NodeId) -> bool:
        return target not in self.replicas[index] and self._racks_allow(index, source, self._rack(target))

    def _racks_allow(self, index: int, source: NodeId, rack: str) -> bool:
        """True if the partition uses no fewer racks with a replica in this rack instead of that of the source."""
        own = self._rack(source)
        if rack == own:
            return True
        others = [self._rack(node) for node in self.replicas[index] if node != source]
        return rack not in others or own in others

    # --- changes --------------------------------------------------------------------------------------------------

    def _replace(self, index: int, leaving: NodeId, joining: NodeId | None) -> None:
        replicas, size, log_dir = self.replicas[index], self._partitions[index].size_bytes, self._dir_of(index, leaving)
        place = replicas.index(leaving)
        self._held[leaving][log_dir].remove((size, index))
        self._count(leaving, log_dir, -1, -size)
        del replicas[place]
        if joining is not None:
            self._add(index, joining, place)

    def _add(self, index: int, joining: NodeId, place: int | None = None) -> None:
        replicas, size = self.replicas[index], self._partitions[index].size_bytes
        log_dir = self._dir_of(index, joining)
        insort(self._held[joining].setdefault(log_dir, []), (size, index))
        self._count(joining, log_dir, 1, size)
        replicas.insert(len(replicas) if place is None else place, joining)

    def _count(self, node: NodeId, log_dir: str, replicas: int, size: int) -> None:
        self._counts[node] += replicas
        self._bytes[node] += size
        self._dir_bytes[node, log_dir] += size


def _outwards(held: Sequence[tuple[int, int]], middle: int) -> Iterator[tuple[int, int]]:
    """The entries from a position on, alternately upwards and downwards."""
    below, above = middle - 1, middle
    while below >= 0 or above < len(held):
        if above < len(held):
            yield held[above]
            above += 1
        if below >= 0:
            yield held[below]
            below -= 1
