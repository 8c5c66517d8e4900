"""Apache Kafka: three KRaft nodes, each broker and controller, with heaps of 1 GB and Kafka's own options of the JVM.

Replication 3, min.insync.replicas 2, defaults otherwise: records are acknowledged from the page cache of the in-sync
replicas. The jars are those that `make interop` fetches with Maven. A topic that syncs each record has
`flush.messages=1`.
"""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path
from typing import Final

from bench.systems.java_tools import JavaTools
from bench.systems.system import HOST, NODES, System, SystemFailed, answers, need_clients
from node.process.free_ports import free_ports

_CLUSTER: Final = base64.urlsafe_b64encode(bytes(range(16))).decode().rstrip("=")
_HEAP: Final = ("-Xms1g", "-Xmx1g")
_JVM: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""Those of kafka-run-class.sh."""


class Kafka(System):
    name = "Kafka"
    clients = ("librdkafka", "aiokafka")
    can_fsync = can_tail = True

    def __init__(self, directory: Path) -> None:
        self.java = JavaTools(directory)
        need_clients()
        super().__init__(directory)
        ports = iter(free_ports(2 * NODES))
        self._ports = [(next(ports), next(ports)) for _ in range(NODES)]

    @property
    def _nodes(self) -> list[str]:
        return [f"node-{number}" for number in range(NODES)]

    @property
    def pids(self) -> list[int]:
        return self.children.pids(self._nodes)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{client}" for client, _ in self._ports)

    @property
    def version(self) -> str:
        return self.java.version

    def start(self) -> None:
        for number, name in enumerate(self._nodes):
            properties = self.directory / f"{name}.properties"
            properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings(number).items()))
            self.java.run("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties))
        for name in self._nodes:
            self._start_node(name)
        for number in range(NODES):
            self._wait_serves(number)

    def settings(self, number: int) -> dict[str, object]:
        """The contents of server.properties."""
        client, controller = self._ports[number]
        return {
            "process.roles": "broker,controller",
            "node.id": number,
            "controller.quorum.voters": ",".join(f"{voter}@{HOST}:{self._ports[voter][1]}" for voter in range(NODES)),
            "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{client}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.directory / f"data-{number}",
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "offsets.topic.replication.factor": 3,
            "transaction.state.log.replication.factor": 3,
            "auto.create.topics.enable": "false",
        }

    def restart(self, pid: int) -> None:
        name = self.children.name_of(pid)
        self.children.wait_dead(name)
        self._start_node(name)
        self._wait_serves(self._nodes.index(name))

    def memory_used(self) -> int:
        """Bytes of the heaps that are used after a garbage collection."""
        return sum(self._heap_used(pid) for pid in self.pids)

    def _heap_used(self, pid: int) -> int:
        jcmd = str(Path(self.java.java).resolve().with_name("jcmd"))
        for command in ("GC.run", "GC.heap_info"):
            done = subprocess.run([jcmd, str(pid), command], capture_output=True, text=True, timeout=60, check=False)
        found = re.search(r"used (\d+)K", done.stdout)
        if found is None:
            raise SystemFailed(f"{jcmd} does not say how much heap is used: {(done.stdout + done.stderr)[-500:]}")
        return int(found[1]) * 1024

    def _start_node(self, name: str) -> None:
        command = self.java.command((*_HEAP, *_JVM), "kafka.Kafka", str(self.directory / f"{name}.properties"))
        self.children.start(name, command)

    def _wait_serves(self, number: int) -> None:
        self.children.wait_until(self._nodes[number], lambda: answers(f"{HOST}:{self._ports[number][0]}"))
