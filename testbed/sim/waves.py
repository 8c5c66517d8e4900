"""The rules of queued moves, watched in the committed metadata (replication/controller/move_queue.py).

  - Of the partitions that waves have begun to move, no node fetches more than `cluster.moves.per.node`.
  - A wave takes no replica away: a move removes the former ones at its end.

Not here: that the queue becomes empty once all faults have ended (healing.py).
"""

from __future__ import annotations

from collections import Counter

from node.replication_settings import ReplicationConfig
from replication.controller.image import ClusterImage, PartitionState
from testbed.sim.ledger import Violation
from tidelog.types import NodeId, PartitionKey


class Waves:
    """The moves in progress that were begun by waves."""

    def __init__(self) -> None:
        self.moves_per_node = ReplicationConfig().moves_per_node
        self.begun = 0
        """Moves since the start of the world."""
        self._adding: dict[PartitionKey, tuple[NodeId, ...]] = {}

    def moved(self, before: ClusterImage, after: ClusterImage) -> None:
        """Check what has begun between two images of the metadata. One step may contain several batches."""
        if before.topics is after.topics:
            return
        for topic_id, topic in after.topics.items():
            for state in topic.partitions if before.topics.get(topic_id) is not topic else ():
                self._look(f"{topic.name}-{state.partition}", before.partition(state.key), state)
        self._adding = {key: adding for key, adding in self._adding.items() if after.partition(key) is not None}
        for node, count in Counter(node for adding in self._adding.values() for node in adding).items():
            if count > self.moves_per_node:
                raise Violation(
                    f"node {node} fetches {count} partitions that waves have begun to move, and may fetch "
                    f"{self.moves_per_node}"
                )

    def _look(self, name: str, old: PartitionState | None, state: PartitionState) -> None:
        target = tuple(node for node in state.replicas if node not in state.removing)
        if (
            old is not None
            and old.queued
            and not (old.adding or state.queued)
            and state.adding
            and target == old.queued
        ):
            self.begun += 1
            self._adding[state.key] = state.adding
            if not set(old.replicas) <= set(state.replicas):
                raise Violation(f"{name}: a wave took replicas away, from {old.replicas} to {state.replicas}")
        elif self._adding.get(state.key) != state.adding:
            # Complete, cancelled, or replaced by a reassignment that no wave has begun.
            self._adding.pop(state.key, None)
