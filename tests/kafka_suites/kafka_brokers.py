"""Three brokers of Apache Kafka in place of nodes: what a suite fails at them too does not count."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from bench.systems.kafka import Kafka

AUTHORIZER: Final = "authorizer.class.name"
_WAIT_S: Final = 60


class KafkaBrokers(Kafka):
    """They are used as a LocalCluster is."""

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        """settings: as those of nodes. Raises PeerMissing."""
        super().__init__(directory)
        self._settings = dict(settings)
        if AUTHORIZER in settings:
            self._settings[AUTHORIZER] = f"org.apache.kafka.metadata.authorizer.{settings[AUTHORIZER]}"
            # Controllers vote before they know a rule. For clients, who have the same name, no rule counts then.
            self._settings["super.users"] = "User:ANONYMOUS"
        self.nodes = self._nodes
        self._killed: dict[int, int] = {}

    def settings(self, number: int) -> dict[str, object]:
        together = {**super().settings(number), **self._settings}
        return {key: str(value).lower() if isinstance(value, bool) else value for key, value in together.items()}

    @property
    def kafka_bootstrap(self) -> str:
        return self.bootstrap

    def create_topic(self, name: str, partitions: int = 1, replicas: int = 3, **configs: str) -> None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, partitions, replicas, config=settings)
        AdminClient({"bootstrap.servers": self.bootstrap}).create_topics([topic])[name].result(_WAIT_S)

    def kill(self, node_id: int) -> None:
        (self._killed[node_id],) = self.children.pids([self.nodes[node_id]])
        os.kill(self._killed[node_id], signal.SIGKILL)

    def start_node(self, node_id: int) -> None:
        self.restart(self._killed.pop(node_id))
