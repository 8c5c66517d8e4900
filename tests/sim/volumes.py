"""Limits which volumes of a random world may be replaced by empty ones, so that its cluster survives.

Invariants: the last copy of a partition, also by records that are not committed yet, and a majority of the voters'
directories are never removed, and the next volume is replaced only when the node of the last one has recovered. Not
here: the times (nemesis.py), the replacement itself (world.py).
"""

from __future__ import annotations

from testbed.sim.world import Simulation
from tests.sim.quorum_stories import active, core
from tidelog.types import NodeId


class Volumes:
    """The volumes of a world."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._emptied: dict[int, int] = {}  # by node whose volume was replaced: the end of the metadata log then

    def empty_if_spare(self, node: int) -> None:
        """Replace a volume by an empty one, unless its node runs or is needed."""
        if not self._sim.machines[node].up and self._is_spare(node):
            self._emptied[node] = self._sim.image().offset
            self._sim.empty(node)

    def _is_spare(self, node: int) -> bool:
        image = self._sim.image()
        if not self._is_all_committed():
            return False
        self._emptied = {gone: since for gone, since in self._emptied.items() if not self._is_whole_again(gone, since)}
        entry = image.nodes.get(NodeId(node))
        if self._emptied or entry is None or not entry.fenced:
            return False
        if any(node in (*state.isr, *state.elr) for state in image.partitions()):
            return False
        keep = [voter for voter in image.voters if voter.node_id != node]
        return len(keep) > len(image.voters) // 2

    def _is_all_committed(self) -> bool:
        """Whether the metadata log of the active controller has no uncommitted record, which may name this node."""
        node = active(self._sim)
        controller = core(self._sim, node) if node >= 0 else None
        return controller is not None and controller.log.log_end == controller.log.high_watermark

    def _is_whole_again(self, node: int, since: int) -> bool:
        """Whether the node has registered its new directory and the directory has replaced the old one among the
        voters."""
        image = self._sim.image()
        entry = image.nodes[NodeId(node)]
        directories = {voter.directory_id for voter in image.voters if voter.node_id == node}
        return entry.node_epoch >= since and not entry.fenced and directories <= {entry.directories[0].directory_id}
