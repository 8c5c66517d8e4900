"""Evens out the load of nodes: exchanges leaderships, then replicas, between a node with much load and one with little.

The load of a partition is bytes per second: what producers write, each of its replicas takes in; what consumers read,
its leader sends. Nodes report both (`ReplicaLog`).

Invariants:
  1. Numbers of replicas and of leaderships stay as even as they were, and no partition uses fewer racks: load is the
     last criterion, and a plan for the same cluster and the same load is empty.
  2. Only a node above the mean by a tenth, and by `SLACK`, gives something away. Load is a figure of the last minutes:
     to follow each change of it would move replicas to and fro.
  3. Leaderships move first: they move no bytes. Of the exchanges of replicas, that which gains the most for its bytes.

Cost: of 100 nodes with 50,000 partitions, some seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from typing import Final, NamedTuple, TypeAlias

from tidelog.types import NodeId

SHARE: Final = 0.1
"""A node is even enough that is above the mean by less than this share of it,"""

SLACK: Final = 1_000_000
"""or by fewer bytes per second than this: hardly any node notices them, and moves cost more."""

_TRIED: Final = 12
"""Partitions of each node that are tried: the ones with the most load, and with the least."""

_PASSES_MAX: Final = 20


class PartitionLoad(NamedTuple):
    """Bytes per second, and what it costs to move a replica."""

    bytes_in: int
    """Of producers: the load of each replica."""
    bytes_out: int
    """To consumers: the load of the leader besides."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A partition that the loaded node gives to the other one, and the one that it gets for that; None: none."""

    given: int
    taken: int | None
    gain: float
    """By how much the load of the loaded node comes closer to the mean, in bytes per second."""


_Find: TypeAlias = Callable[[NodeId, NodeId], _Exchange | None]


class LoadBalance:
    """The load of nodes while exchanges are planned."""

    def __init__(
        self,
        replicas: Sequence[list[NodeId]],
        loads: Sequence[PartitionLoad],
        targets: Collection[NodeId],
        rack_of: Mapping[NodeId, str],
    ) -> None:
        """replicas: of each partition, the preferred leader first; changed in place. targets: the nodes that take
        replicas."""
        self._replicas, self._loads = replicas, loads
        self._targets, self._rack_of = frozenset(targets), rack_of
        self._held: dict[NodeId, set[int]] = {node: set() for node in targets}
        self._led: dict[NodeId, set[int]] = {node: set() for node in targets}
        self.load: Counter[NodeId] = Counter()
        self._edges: dict[NodeId, list[tuple[list[int], list[int]]]] = {}
        for index in range(len(replicas)):
            self._count(index, 1)
        self._mean = sum(self.load[node] for node in targets) / max(1, len(targets))
        self._limit = self._mean + max(self._mean * SHARE, SLACK)
        self._step = (self._limit - self._mean) / 10
        """The least gain that is worth a change."""

    def even_out(self) -> None:
        """Change the replicas until no node is above the limit, or no exchange brings it closer."""
        for exchange, find in ((self._exchange_leaders, self._leaders), (self._exchange_replicas, self._pair)):
            for _ in range(_PASSES_MAX):
                if not self._improve(find, exchange):
                    break

    def _improve(self, find: _Find, exchange: Callable[[NodeId, NodeId, _Exchange], None]) -> bool:
        """One pass over the nodes above the limit. Returns whether any of them gave something away."""
        improved = False
        for source in self._sorted(node for node in self._targets if self.load[node] > self._limit)[::-1]:
            while self.load[source] > self._limit:
                below = self._sorted(node for node in self._targets if self.load[node] < self._mean)
                best = next(((node, found) for node in below if (found := find(source, node)) is not None), None)
                if best is None:
                    break
                exchange(source, *best)
                improved = True
        return improved

    def _sorted(self, nodes: Iterable[NodeId]) -> list[NodeId]:
        return sorted(nodes, key=lambda node: (self.load[node], node))

    # --- leaderships ----------------------------------------------------------------------------------------------

    def _leaders(self, source: NodeId, target: NodeId) -> _Exchange | None:
        """The exchange of leaderships that makes the two nodes most even."""
        gap = self.load[source] - self.load[target]
        given = [index for index in self._led[source] if target in self._replicas[index] and self._loads[index][1]]
        taken: list[int | None] = [index for index in self._led[target] if source in self._replicas[index]]
        if self._may_differ(self._led, source, target):
            taken.append(None)
        chosen: _Exchange | None = None
        few = nsmallest(_TRIED, taken, key=lambda index: (self._out(index), -1 if index is None else index))
        for index in nlargest(_TRIED, given, key=lambda index: (self._out(index), -index)):
            if not self._leads_evenly(index, self._led_by(index, target)):
                continue
            for other in few:
                change = self._out(index) - self._out(other)
                gain = min(change, gap - change)
                if gain < self._step or (chosen is not None and gain <= chosen.gain):
                    continue
                if other is None or self._leads_evenly(other, self._led_by(other, source)):
                    chosen = _Exchange(index, other, gain)
        return chosen

    def _out(self, index: int | None) -> int:
        return 0 if index is None else self._loads[index].bytes_out

    def _led_by(self, index: int, leader: NodeId) -> list[NodeId]:
        replicas = list(self._replicas[index])
        place = replicas.index(leader)
        replicas[0], replicas[place] = replicas[place], replicas[0]
        return replicas

    def _exchange_leaders(self, source: NodeId, target: NodeId, exchange: _Exchange) -> None:
        self._set(exchange.given, self._led_by(exchange.given, target))
        if exchange.taken is not None:
            self._set(exchange.taken, self._led_by(exchange.taken, source))

    # --- replicas -------------------------------------------------------------------------------------------------

    def _pair(self, source: NodeId, target: NodeId) -> _Exchange | None:
        """The exchange of two replicas that gains the most for its bytes: of two leaders, or of two followers."""
        gap = self.load[source] - self.load[target]
        excess = self.load[source] - self._mean
        chosen: _Exchange | None = None
        best = 0.0
        for leads, ((heavy, _), (_, light)) in enumerate(
            zip(self._edges_of(source), self._edges_of(target), strict=True)
        ):
            given = [index for index in heavy if self._may_move(index, source, target)]
            taken: list[int | None] = [index for index in light if self._may_move(index, target, source)]
            if self._may_differ(self._held, source, target) and (
                not leads or self._may_differ(self._led, source, target)
            ):
                taken.append(None)
            for index in given:
                for other in taken:
                    change = self._weight(index, leads) - (0 if other is None else self._weight(other, leads))
                    gain = min(change, gap - change, excess)
                    size = self._loads[index].size_bytes + (0 if other is None else self._loads[other].size_bytes)
                    worth = gain / (size + 1)
                    if gain >= self._step and worth > best and self._stay_even(index, other, source, target):
                        best, chosen = worth, _Exchange(index, other, gain)
        return chosen

    def _edges_of(self, node: NodeId) -> list[tuple[list[int], list[int]]]:
        """Of the partitions that the node follows, and of those that it leads: the ones with the most load, and those
        with the least and, of these, the smallest."""
        if (known := self._edges.get(node)) is not None:
            return known
        found = []
        for leads, indexes in enumerate((self._held[node] - self._led[node], self._led[node])):
            heavy = nlargest(_TRIED, indexes, key=lambda index: (self._weight(index, leads), -index))
            light = nsmallest(
                _TRIED, indexes, key=lambda index: (self._weight(index, leads), self._loads[index].size_bytes, index)
            )
            found.append((heavy, light))
        self._edges[node] = found
        return found

    def _weight(self, index: int, leads: int) -> int:
        load = self._loads[index]
        return load.bytes_in + load.bytes_out * leads

    def _may_move(self, index: int, leaving: NodeId, joining: NodeId) -> bool:
        """Whether the node may get the replica of the other one: the partition uses no fewer racks then."""
        replicas = self._replicas[index]
        if joining in replicas:
            return False
        own, rack = self._rack(leaving), self._rack(joining)
        others = [self._rack(node) for node in replicas if node != leaving]
        return rack == own or rack not in others or own in others

    def _stay_even(self, given: int, taken: int | None, source: NodeId, target: NodeId) -> bool:
        """Whether both partitions are led as evenly as before."""
        return self._leads_evenly(given, self._moved(given, source, target)) and (
            taken is None or self._leads_evenly(taken, self._moved(taken, target, source))
        )

    def _moved(self, index: int, leaving: NodeId, joining: NodeId) -> list[NodeId]:
        return [joining if node == leaving else node for node in self._replicas[index]]

    def _exchange_replicas(self, source: NodeId, target: NodeId, exchange: _Exchange) -> None:
        self._set(exchange.given, self._moved(exchange.given, source, target))
        if exchange.taken is not None:
            self._set(exchange.taken, self._moved(exchange.taken, target, source))

    # --- evenness and counts --------------------------------------------------------------------------------------

    def _rack(self, node: NodeId) -> str:
        return self._rack_of.get(node, "")

    def _may_differ(self, sets: Mapping[NodeId, set[int]], source: NodeId, target: NodeId) -> bool:
        """Whether the source may have one less, and the target one more: it has the most, and the target the fewest."""
        counts = [len(sets[node]) for node in self._targets]
        return min(counts) == len(sets[target]) < len(sets[source]) == max(counts)

    def _leads_evenly(self, index: int, replicas: Sequence[NodeId]) -> bool:
        """Whether the partition would still be led by a node that leads at most one more than each of its followers, or
        was not before: else the next plan would undo the change."""
        return self._spread(replicas) <= max(1, self._spread(self._replicas[index]))

    def _spread(self, replicas: Sequence[NodeId]) -> int:
        """How many more partitions the leader leads than the follower that leads the fewest."""
        led = [len(self._led[node]) for node in replicas if node in self._targets]
        return len(self._led.get(replicas[0], ())) - min(led, default=0)

    def _set(self, index: int, replicas: list[NodeId]) -> None:
        self._count(index, -1)
        self._replicas[index][:] = replicas
        self._count(index, 1)

    def _count(self, index: int, sign: int) -> None:
        bytes_in, bytes_out, _ = self._loads[index]
        for place, node in enumerate(self._replicas[index]):
            self.load[node] += sign * (bytes_in if place else bytes_in + bytes_out)
            if node not in self._targets:
                continue
            for sets in (self._held,) if place else (self._held, self._led):
                (sets[node].add if sign > 0 else sets[node].discard)(index)
            self._edges.pop(node, None)
