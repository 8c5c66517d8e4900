"""A local cluster whose nodes can be paused and cut off from each other, on disks that can be slow, full or broken,
with clocks that can be wrong.

Invariants: `heal` ends every fault that this object began; a node that is killed or stopped starts again on its data.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from node.process.local_cluster import LocalCluster, LocalNode
from testbed.disk_faults import DiskFaults, write_faults
from testbed.faulty_clock import write_offset
from testbed.links import Links, LinkShape

QUICK: Mapping[str, Any] = {
    "broker.session.timeout.ms": 1_500,
    "broker.heartbeat.interval.ms": 300,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}
"""Settings that shorten the waits of a test: a failed node is noticed soon, groups begin at once."""


class FaultyCluster(LocalCluster):
    """See node/process/local_cluster.py."""

    def __init__(
        self, directory: Path, nodes: int = 3, *, settings: Mapping[str, Any] | None = None, kafka: bool = True
    ) -> None:
        super().__init__(directory, nodes, settings={**QUICK, **(settings or {})}, inner=True, kafka=kafka)
        self._faults = [DiskFaults()] * nodes
        self._cuts: set[tuple[int, int]] = set()
        self._paused: set[int] = set()
        self._shaped: set[tuple[int, int]] = set()
        self._wrong_clocks: set[int] = set()
        inner = [(node.node_id, node.inner) for node in self.nodes if node.inner is not None]
        self._links = Links(inner, lambda number: self.nodes[number].pid if self.nodes[number].running else None)
        for node in self.nodes:
            node.between = self._links.address_of(node.node_id)
        self.write_configs()
        self._links.start()

    @staticmethod
    def _program(node: LocalNode) -> list[str]:
        return ["-m", "testbed.faulty_node", str(_faults_of(node)), str(_clock_of(node))]

    def close(self) -> None:
        """Kill all nodes, and end the links."""
        self.kill_all()
        self._links.close()

    def __exit__(self, *raised: object) -> None:
        self.close()

    # --- processes ---

    def start_node(self, node_id: int) -> None:
        """Start one node on the present contents of its directory; its disk keeps its faults."""
        super().start_node(node_id)
        self._paused.discard(node_id)
        self._count_out(node_id)

    def stop_node(self, node_id: int, timeout_s: float = 45) -> int:
        """Stop one node gracefully; one that is paused continues for that. Returns its exit code."""
        self.resume(node_id)
        return super().stop_node(node_id, timeout_s)

    def pause(self, node_id: int) -> None:
        """Stop the process where it is (SIGSTOP): its connections stay open, and nothing answers."""
        node = self.nodes[node_id]
        if not node.running:
            raise ValueError(f"node {node_id} cannot be paused: it does not run")
        os.kill(node.pid, signal.SIGSTOP)
        self._paused.add(node_id)
        self._count_out(node_id)

    def resume(self, node_id: int) -> None:
        """Continue a paused process; no effect on another one."""
        node = self.nodes[node_id]
        if node.running:
            os.kill(node.pid, signal.SIGCONT)
        self._paused.discard(node_id)
        self._count_out(node_id)

    # --- links ---

    def cut_off(self, node_id: int, *others: int) -> None:
        """Cut a node off from these others, in both directions; without others, from all. Clients still reach it."""
        self._cut(*(link for other in others or self._others(node_id) for link in ((node_id, other), (other, node_id))))
        self._count_out(node_id)

    def silence(self, node_id: int) -> None:
        """Cut a node off in one direction: nothing that it sends arrives at the others, what they send does."""
        self._cut(*((node_id, other) for other in self._others(node_id)))
        self._count_out(node_id)

    def shape(self, node_id: int, shape: LinkShape) -> None:
        """Let the links between a node and all others, in both directions, delay or limit what is sent."""
        links = [link for other in self._others(node_id) for link in ((node_id, other), (other, node_id))]
        self._links.shape(shape, *links)
        self._shaped.update(links)

    def _cut(self, *links: tuple[int, int]) -> None:
        self._cuts.update(links)
        self._links.cut(*links)

    def _others(self, node_id: int) -> list[int]:
        return [each.node_id for each in self.nodes if each.node_id != node_id]

    def reconnect(self, node_id: int) -> None:
        """End all cuts, delays and limits of a node's links."""
        for link in [each for each in self._cuts if node_id in each]:
            self._links.repair(*link)
            self._cuts.discard(link)
        shaped = {each for each in self._shaped if node_id in each}
        self._links.shape(LinkShape(), *shaped)
        self._shaped -= shaped
        for node in self.nodes:
            self._count_out(node.node_id)

    def _count_out(self, node_id: int) -> None:
        """Find out whether the node is paused, or reaches none of the others."""
        others = self._others(node_id)
        is_alone = bool(others) and all((node_id, other) in self._cuts for other in others)
        self.nodes[node_id].is_out = node_id in self._paused or is_alone

    # --- disks ---

    def slow_disk(self, node_id: int, sync_ms: float) -> None:
        """Let each sync on the disk of a node take so many milliseconds more; 0: none."""
        self._change_disk(node_id, replace(self._faults[node_id], sync_ms=sync_ms))

    def fill_disk(self, node_id: int, *, full: bool = True) -> None:
        """Leave no free space on the disk of a node, or make room again."""
        self._change_disk(node_id, replace(self._faults[node_id], is_full=full))

    def break_disk(self, node_id: int, write_errno: int) -> None:
        """Let each write and sync on the disk of a node fail with this error; 0: none."""
        self._change_disk(node_id, replace(self._faults[node_id], write_errno=write_errno))

    def _change_disk(self, node_id: int, faults: DiskFaults) -> None:
        self._faults[node_id] = faults
        write_faults(_faults_of(self.nodes[node_id]), faults)

    # --- clocks ---

    def set_clock(self, node_id: int, ahead_ms: int, drift: float = 0) -> None:
        """Let the wall clock of a node be so far ahead of the machine's (negative: behind), and get further ahead by
        so many seconds in each second; 0: right again."""
        write_offset(_clock_of(self.nodes[node_id]), ahead_ms, drift)
        (self._wrong_clocks.add if ahead_ms or drift else self._wrong_clocks.discard)(node_id)

    # --- the end of all faults ---

    @property
    def is_disturbed(self) -> bool:
        """Whether a fault lasts, or a node does not run."""
        faulty = any(faults != DiskFaults() for faults in self._faults)
        wrong = bool(self._cuts or self._shaped or self._wrong_clocks)
        return faulty or wrong or not all(node.is_expected for node in self.nodes)

    def heal(self) -> None:
        """End all faults, and start every node that does not run."""
        for node in self.nodes:
            self._change_disk(node.node_id, DiskFaults())
            self.set_clock(node.node_id, 0)
            self.reconnect(node.node_id)
            if node.running:
                self.resume(node.node_id)
            else:
                self.kill(node.node_id)  # it may have ended by itself
                self.start_node(node.node_id)


def _faults_of(node: LocalNode) -> Path:
    return node.directory / "disk-faults.json"


def _clock_of(node: LocalNode) -> Path:
    return node.directory / "clock-offset"
