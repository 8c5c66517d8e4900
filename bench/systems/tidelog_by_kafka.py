"""Three nodes of this checkout with a listener of Kafka's protocol, for the clients of Kafka."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from bench.systems.java_tools import JavaTools
from bench.systems.system import CLIENTS, NODES, need_clients
from bench.systems.tidelog_nodes import Tidelog
from node.process.local_cluster import LocalCluster

OWN: Final = "tidelog"
"""Our client, which reaches the same nodes by gRPC."""


class TidelogByKafka(Tidelog):
    clients = ("librdkafka", "aiokafka", OWN)
    topics_by = OWN
    """It says how durable a topic is, which Kafka's clients need not know."""

    def __init__(self, directory: Path) -> None:
        self.java = JavaTools(directory)
        need_clients()
        super().__init__(directory)
        self._cluster = LocalCluster(directory, NODES, kafka=True)

    @property
    def bootstrap(self) -> str:
        return self._cluster.kafka_bootstrap

    def bootstrap_of(self, kind: str) -> str:
        return self._cluster.bootstrap if kind == OWN else self.bootstrap

    def interpreter(self, kind: str) -> str:
        return sys.executable if kind == OWN else str(CLIENTS)
