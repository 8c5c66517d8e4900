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

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._cluster = LocalCluster(directory, NODES)

    def start(self) -> None:
        self._cluster.start()
        self._cluster.wait_healthy()

    def stop(self) -> None:
        self._cluster.kill_all()

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self._cluster.nodes if node.running]

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def version(self) -> str:
        return tidelog.__version__

    def restart(self, pid: int) -> None:
        (node_id,) = [node.node_id for node in self._cluster.nodes if node.process is not None and node.pid == pid]
        self._cluster.kill(node_id)
        self._cluster.start_node(node_id)
        self._cluster.wait_healthy()

    def interpreter(self, kind: str) -> str:
        del kind
        return sys.executable
