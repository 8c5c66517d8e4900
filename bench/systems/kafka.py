"""Apache Kafka: three KRaft nodes, each broker and controller, with heaps of 1 GB and Kafka's own options of the JVM.

Replication 3, min.insync.replicas 2, defaults otherwise: records are acknowledged from the page cache of the in-sync
replicas. The jars are those that `make interop` fetches with Maven. A topic that syncs each record has
`flush.messages=1`.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from bench.systems.system import (
    HOST,
    NODES,
    PeerMissing,
    System,
    SystemFailed,
    answers,
    dies_with_us,
    need_clients,
)
from node.process.free_ports import free_ports

LIBS: Final = "TIDELOG_KAFKA_LIBS"
"""The variable that names the directory with the jars."""
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
_LOGGING: Final = """status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %p %m (%c{1})%n%throwable
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""
PRODUCER_TOOL: Final = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_TOOL: Final = "org.apache.kafka.tools.ConsumerPerformance"


class Kafka(System):
    name = "Kafka"
    clients = ("librdkafka", "aiokafka")
    can_fsync = can_tail = True

    def __init__(self, directory: Path) -> None:
        self._java = find_java()
        self._libs = _libs()
        need_clients()
        super().__init__(directory)
        ports = iter(free_ports(2 * NODES))
        self._ports = [(next(ports), next(ports)) for _ in range(NODES)]
        (directory / "log4j2.properties").write_text(_LOGGING)

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
        (jar,) = self._libs.glob("kafka_2.13-*.jar")
        return jar.stem.removeprefix("kafka_2.13-")

    def start(self) -> None:
        for number, name in enumerate(self._nodes):
            properties = self.directory / f"{name}.properties"
            properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings(number).items()))
            self.tool("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties))
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
        jcmd = str(Path(self._java).resolve().with_name("jcmd"))
        for command in ("GC.run", "GC.heap_info"):
            done = subprocess.run([jcmd, str(pid), command], capture_output=True, text=True, timeout=60, check=False)
        found = re.search(r"used (\d+)K", done.stdout)
        if found is None:
            raise SystemFailed(f"{jcmd} does not say how much heap is used: {(done.stdout + done.stderr)[-500:]}")
        return int(found[1]) * 1024

    def _start_node(self, name: str) -> None:
        command = self._command((*_HEAP, *_JVM), "kafka.Kafka", str(self.directory / f"{name}.properties"))
        self.children.start(name, command)

    def _wait_serves(self, number: int) -> None:
        self.children.wait_until(self._nodes[number], lambda: answers(f"{HOST}:{self._ports[number][0]}"))

    def _command(self, options: tuple[str, ...], main: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        return [self._java, *options, logging, "-cp", f"{self._libs}/*", main, *arguments]

    def tool(self, main: str, *arguments: str, seconds: float = 120) -> str:
        """Run one of Kafka's tools to its end. Returns its output; raises SystemFailed."""
        command = dies_with_us(self._command(("-Xmx512m",), main, *arguments))
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
        if done.returncode:
            raise SystemFailed(f"{main}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout

    def java_produce(self, topic: str, value_bytes: int, records: int) -> float:
        """Records per second that ProducerPerformance reports, without keys."""
        configuration = self.directory / "producer.properties"
        configuration.write_text(f"bootstrap.servers={self.bootstrap}\nacks=all\nlinger.ms=5\n")
        output = self.tool(
            PRODUCER_TOOL,
            *("--topic", topic, "--num-records", str(records), "--record-size", str(value_bytes)),
            *("--throughput", "-1", "--producer.config", str(configuration)),
        )
        return produced(output)

    def java_consume(self, topic: str, records: int) -> float:
        """Records per second that ConsumerPerformance reports, without the time to join its group."""
        arguments = ("--bootstrap-server", self.bootstrap, "--topic", topic, "--messages", str(records))
        return consumed(self.tool(CONSUMER_TOOL, *arguments))


def produced(output: str) -> float:
    """The last rate that ProducerPerformance printed."""
    rates = re.findall(r"([\d.]+) records/sec", output)
    if not rates:
        raise SystemFailed(f"no rate in: {output[-500:]}")
    return float(rates[-1])


def consumed(output: str) -> float:
    """`fetch.nMsg.sec`, the last column that ConsumerPerformance prints."""
    lines = [line for line in output.splitlines() if re.match(r"\d{4}-", line)]
    if not lines:
        raise SystemFailed(f"no figures in: {output[-500:]}")
    return float(lines[-1].split(", ")[-1])


def find_java() -> str:
    """The command. Raises PeerMissing."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin/java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise PeerMissing("no Java 17; Debian: apt install openjdk-17-jre-headless")
    return java


def _libs() -> Path:
    libs = Path(os.environ.get(LIBS, ""))
    if not os.environ.get(LIBS) or not list(libs.glob("kafka_2.13-*.jar")):
        raise PeerMissing(
            "its jars are not fetched: `make bench PEER=kafka` fetches them with Maven (apt install maven)"
        )
    return libs
