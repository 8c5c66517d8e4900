"""Three nodes of this checkout with default settings."""

from __future__ import annotations

import sys
from pathlib import Path

import tidelog
from bench.systems.system import NODES, System
from node.process.local_cluster import LocalCluster


class Tidelog(System):
    name = "Tidelog"
    clients: tuple[str, ...] = ("tidelog",)
    can_fsync = can_tail = True

    def __init__(self, directory: Path, *, tiered: bool = False) -> None:
        super().__init__(directory)
        self.cluster = LocalCluster(directory, NODES, tiered=tiered)

    def start(self) -> None:
        self.cluster.start()
        self.cluster.wait_healthy()

    def stop(self) -> None:
        self.cluster.kill_all()

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self.cluster.nodes if node.running]

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def version(self) -> str:
        return tidelog.__version__

    def restart(self, pid: int) -> None:
        (node_id,) = [node.node_id for node in self.cluster.nodes if node.process is not None and node.pid == pid]
        self.cluster.kill(node_id)
        self.cluster.start_node(node_id)
        self.cluster.wait_healthy()

    def interpreter(self, kind: str) -> str:
        del kind
        return sys.executable
