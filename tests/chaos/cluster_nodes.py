"""What both runtimes answer in the same way: by asking a node over gRPC."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

from node.listeners.grpc.health import CAUGHT_UP, READY
from node.process.local_cluster import ClusterFailed, LocalCluster
from node.process.probe import ask
from tests.chaos.history import Probed
from tests.chaos.other_version import OtherVersion
from tidelog.errors import TidelogError

_POLL_S: Final = 0.05


class ClusterNodes:
    """The part of `Nodes` (nodes.py) that asks."""

    def __init__(self, cluster: LocalCluster, other: OtherVersion | None) -> None:
        self._asked = cluster
        self.other = other
        self.probed: list[Probed] = []
        self.count = len(cluster.nodes)

    def is_running(self, node: int) -> bool:
        return self._asked.nodes[node].running

    def pid(self, node: int) -> int:
        return self._asked.nodes[node].pid

    def is_ready(self, node: int) -> bool:
        return self._answers(node, READY)

    def has_caught_up(self, node: int) -> bool:
        return self._answers(node, CAUGHT_UP)

    def _answers(self, node: int, service: str) -> bool:
        with contextlib.suppress(TidelogError):
            return ask(str(self._asked.nodes[node].address), service, 1_000)
        return False

    def unfenced(self, asked: int) -> set[int]:
        return {each.address.node_id for each in self._asked.describe(asked).nodes if not each.fenced}

    def controller(self) -> int:
        return self._asked.describe(self._running()).controller_id

    def leaders(self, topic: str) -> dict[int, int]:
        (found,) = self._asked.metadata(self._running(), topic).topics
        return {each.partition: each.leader for each in found.partitions}

    def in_sync(self, topic: str) -> dict[int, list[int]]:
        (found,) = self._asked.metadata(self._running(), topic).topics
        return {each.partition: list(each.isr) for each in found.partitions}

    def create_topic(self, name: str, partitions: int, replicas: int, **configs: str) -> None:
        self._asked.create_topic(name, partitions, replicas, **configs)

    def wait_until(self, reached: Callable[[], object], within_s: float, what: str) -> None:
        """Unlike that of the cluster, it does not mind that other nodes have ended: a fault may have ended them."""
        deadline = time.monotonic() + within_s
        while True:
            with contextlib.suppress(TidelogError):
                if reached():
                    return
            if time.monotonic() > deadline:
                raise ClusterFailed(f"not within {within_s:g} s: {what}")
            time.sleep(_POLL_S)

    def ensure_running(self) -> None:
        dead = [node for node in self._asked.nodes if not node.running]
        if dead:
            raise ClusterFailed("\n".join(f"node {node.node_id} has ended:\n{node.log_tail()}" for node in dead))

    def wait_healthy(self, within_s: float) -> None:
        self.ensure_running()
        self._asked.wait_healthy(within_s)

    def _running(self) -> int:
        for node in range(self.count):
            if self.is_running(node):
                return node
        raise ClusterFailed("no node runs")
