"""Tracks what `durability=page-cache` guarantees: committed records are lost only when all machines that had them lose
power.

Invariants: a node whose machine has lost power is in doubt, per partition, until it is admitted to the in-sync set
again. While the in-sync and the eligible set have a member that is not in doubt, nothing may be lost. Not here: the
checks of such a partition (checkers.py).
"""

from __future__ import annotations

from replication.controller.image import ClusterImage
from tidelog.types import Durability, PartitionKey


class Caches:
    """The page caches of all machines, as far as partitions depend on them."""

    def __init__(self) -> None:
        self._in_doubt: dict[PartitionKey, set[int]] = {}

    def power_lost(self, node: int, image: ClusterImage) -> list[PartitionKey]:
        """Unsynced data of the machine may be lost. Returns partitions that may have lost records because of it."""
        for topic in image.topics.values():
            if topic.durability is Durability.PAGE_CACHE:
                for state in topic.partitions:
                    if node in state.replicas:
                        self._in_doubt.setdefault(state.key, set()).add(node)
        return self._without_a_sure_copy(image)

    def image_moved(self, before: ClusterImage, after: ClusterImage) -> list[PartitionKey]:
        """The committed metadata have changed. Returns partitions that may have lost records because of it."""
        for key, nodes in self._in_doubt.items():
            old, new = before.partition(key), after.partition(key)
            if old is not None and new is not None:
                nodes -= set(new.isr) - {*old.isr, *old.elr}
        return self._without_a_sure_copy(after)

    def _without_a_sure_copy(self, image: ClusterImage) -> list[PartitionKey]:
        found = []
        for key, nodes in self._in_doubt.items():
            state = image.partition(key)
            if nodes and state is not None and nodes.issuperset((*state.isr, *state.elr)):
                found.append(key)
        return found
