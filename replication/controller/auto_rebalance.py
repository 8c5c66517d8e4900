"""When the replicas of a cluster are to be evened out without a command: `cluster.rebalance = "auto"`.

Invariants:
  1. No plan while something is queued or moving, a node is not in service, or a replica is not in sync: a failure is
     not answered with more load, and what an operator does is not crossed.
  2. The nodes must have been uneven for the whole delay: several nodes that join one after the other get one plan.
  3. One plan for one cluster. A plan leaves nodes uneven where racks allow nothing else, and is not made again before
     another node takes replicas, or there are more or fewer of them. So plans never follow each other in circles.

What one process remembers of this may be lost: a plan for an even cluster is empty. Not here: the plan
(tidelog/balancing/move_planner.py), its execution (move_queue.py).
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

from replication.controller.image import ClusterImage
from tidelog.types import Millis, NodeId

DIFFERENCE_MIN: Final = 3
"""Replicas by which two nodes must differ at least. A plan leaves a difference of one where racks do not forbid it, and
one topic that is created or deleted may add one: that moves nothing."""

SHARE_MIN: Final = 0.1
"""The same as a share of the mean: hundreds of replicas are even enough if they differ by a few."""

_Shape: TypeAlias = tuple[frozenset[NodeId], int]


class AutoRebalance:
    """Decides when a plan is due."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._uneven_since: Millis | None = None
        self._planned: _Shape | None = None

    def is_due(self, image: ClusterImage, at: Millis) -> bool:
        """Whether a plan is to be made now. Asked again and again; `at` never decreases."""
        if not (is_settled(image) and is_uneven(image)) or _shape_of(image) == self._planned:
            self._uneven_since = None
            return False
        if self._uneven_since is None:
            self._uneven_since = at
        return at - self._uneven_since >= self._delay_ms

    def planned(self, image: ClusterImage) -> None:
        """A plan was made for this image, and all of it is queued."""
        self._planned, self._uneven_since = _shape_of(image), None

    def forget(self) -> None:
        """Another controller is the active one."""
        self._planned, self._uneven_since = None, None


def is_settled(image: ClusterImage) -> bool:
    """Whether all nodes are in service, all replicas in sync, and nothing moves or is to move."""
    return all(node.active for node in image.nodes.values()) and not any(
        state.queued or state.adding or state.removing or len(state.isr) < len(state.replicas)
        for state in image.partitions()
    )


def is_uneven(image: ClusterImage) -> bool:
    """Whether the nodes that take replicas have so different numbers of them that it is worth moving some."""
    taking, _ = _shape_of(image)
    held = Counter(node for state in image.partitions() for node in state.replicas)
    counts = [held[node] for node in taking]
    if not counts:
        return False
    return max(counts) - min(counts) >= max(DIFFERENCE_MIN, SHARE_MIN * sum(counts) / len(counts))


def _shape_of(image: ClusterImage) -> _Shape:
    taking = frozenset(node.node_id for node in image.nodes.values() if not node.gets_no_replicas)
    return taking, sum(len(state.replicas) for state in image.partitions())
