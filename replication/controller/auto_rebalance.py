"""When the replicas of a cluster are to be evened out without a command: `cluster.rebalance = "auto"`.

Invariants:
  1. No plan while something is queued or moving, a node is not in service, or a replica is not in sync: a failure is
     not answered with more load, and what an operator does is not crossed.
  2. The nodes must have been uneven for the whole delay: several nodes that join one after the other get one plan.
  3. One plan for one cluster. A plan leaves nodes uneven where racks allow nothing else, and is not made again before
     another node takes replicas, or there are more or fewer of them. So plans never follow each other in circles.
  4. After a move of a plan was cancelled there is no further plan before other nodes take replicas, or are in other
     racks: what an operator ended does not begin again because a topic was created.

What one process remembers of this may be lost: a plan for an even cluster is empty. Not here: the plan
(tidelog/balancing/move_planner.py), its execution (move_queue.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, TypeAlias

from replication.controller.image import ClusterImage, PartitionState, TopicState
from replication.controller.topic_cache import TopicCache
from tidelog.types import Millis, NodeId, PartitionKey
from tidelog.values import dataclass

DIFFERENCE_MIN: Final = 3
"""Replicas by which two nodes must differ at least. A plan leaves a difference of one where racks do not forbid it, and
one topic that is created or deleted may add one: that moves nothing."""

SHARE_MIN: Final = 0.1
"""The same as a share of the mean: hundreds of replicas are even enough if they differ by a few."""

PAUSE_MS: Final = 30_000
"""Before another plan, after one of which nothing could be queued: a plan for a large cluster takes seconds."""

Takers: TypeAlias = frozenset[tuple[NodeId, str]]
"""The nodes that take replicas, and their racks."""


class AutoRebalance:
    """Decides when a plan is due."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._uneven_since: Millis | None = None
        self._not_before = Millis(0)
        self._planned: tuple[Takers, int] | None = None
        """The nodes that took replicas, and the number of replicas, for which there was a plan."""
        self._takers: Takers = frozenset()
        """At the last look."""
        self._moves: dict[PartitionKey, _PlannedMove] = {}
        """Those of the last plan, until all have ended."""
        self._shares = TopicCache(lambda _image, topic: _share_of(topic))
        self._looked: tuple[ClusterImage, Evenness] | None = None
        self.is_held = False
        """A move of the last plan was cancelled."""

    def is_due(self, image: ClusterImage, at: Millis) -> bool:
        """Whether a plan is to be made now. Asked again and again; `at` never decreases."""
        look = self.look(image)
        if look.takers != self._takers:
            self._takers, self._moves, self.is_held = look.takers, {}, False
        if look.is_settled and self._moves:
            self.is_held = any(move.was_cancelled(image.partition(key)) for key, move in self._moves.items())
            self._moves = {}
        if self.is_held or not (look.is_settled and look.is_uneven) or (look.takers, look.replicas) == self._planned:
            self._uneven_since = None
            return False
        if self._uneven_since is None:
            self._uneven_since = at
        return at - self._uneven_since >= self._delay_ms and at >= self._not_before

    def planned(self, image: ClusterImage, moves: Mapping[PartitionKey, tuple[NodeId, ...]], *, is_whole: bool) -> None:
        """A plan was made for this image. moves: the new replicas by those that are queued. is_whole: these are all
        moves of the plan; the rest needs another plan."""
        before = {key: state for key in moves if (state := image.partition(key)) is not None}
        self._moves = {key: _PlannedMove(frozenset(state.replicas), moves[key]) for key, state in before.items()}
        self._uneven_since = None
        if is_whole:
            look = self.look(image)
            self._planned = look.takers, look.replicas

    def failed(self, at: Millis) -> None:
        """A plan was made, and none of its moves is queued."""
        # Without the pause, and with a delay of 0, a large cluster would plan for ever.
        self._uneven_since, self._not_before = None, Millis(at + PAUSE_MS)

    def forget(self) -> None:
        """Another controller is the active one."""
        self._planned, self._uneven_since, self._moves, self.is_held = None, None, {}, False

    def look(self, image: ClusterImage) -> Evenness:
        """What counts of an image. Only topics that have changed since the last look are looked at again."""
        last = self._looked
        if last is None or last[0].topics is not image.topics or last[0].nodes is not image.nodes:
            last = self._looked = image, _look_at(image, self._shares)
        return last[1]


@dataclass(frozen=True, slots=True)
class Evenness:
    """What counts of an image."""

    is_settled: bool
    """All nodes are in service, all replicas in sync, and nothing moves or is to move."""
    is_uneven: bool
    """The nodes that take replicas have so different numbers of them that it is worth moving some."""
    takers: Takers
    replicas: int


@dataclass(frozen=True, slots=True)
class _PlannedMove:
    """A queued move of a plan."""

    before: frozenset[NodeId]
    after: tuple[NodeId, ...]

    def was_cancelled(self, state: PartitionState | None) -> bool:
        """Whether the partition has the nodes that it had. One that has others was moved by somebody else, and one
        whose topic was deleted has none."""
        # The order does not count: what returns from a move in progress may be in another one than before.
        return state is not None and state.replicas != self.after and self.before == {*state.replicas}


@dataclass(frozen=True, slots=True)
class _TopicReplicas:
    """What one topic adds."""

    is_at_rest: bool
    held: Counter[NodeId]
    """The replicas of each node."""


def _share_of(topic: TopicState) -> _TopicReplicas:
    return _TopicReplicas(_is_at_rest(topic), Counter(node for state in topic.partitions for node in state.replicas))


def _is_at_rest(topic: TopicState) -> bool:
    return not any(
        state.queued or state.adding or state.removing or len(state.isr) < len(state.replicas)
        for state in topic.partitions
    )


def _are_in_service(image: ClusterImage) -> bool:
    return all(node.active for node in image.nodes.values())


def _look_at(image: ClusterImage, shares: TopicCache[_TopicReplicas]) -> Evenness:
    held: Counter[NodeId] = Counter()
    is_settled = _are_in_service(image)
    for share in shares.of(image):
        held.update(share.held)
        is_settled = is_settled and share.is_at_rest
    takers = frozenset((node.node_id, node.rack) for node in image.nodes.values() if not node.gets_no_replicas)
    counts = [held[node] for node, _ in takers]
    difference = max(counts, default=0) - min(counts, default=0)
    is_uneven = bool(counts) and difference >= max(DIFFERENCE_MIN, SHARE_MIN * sum(counts) / len(counts))
    return Evenness(is_settled, is_uneven, takers, held.total())
