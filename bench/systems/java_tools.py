"""Kafka's own tools for measurements, which load any nodes that speak its protocol."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from bench.systems.system import PeerMissing, SystemFailed, dies_with_us

LIBS: Final = "TIDELOG_KAFKA_LIBS"
"""The variable that names the directory with the jars."""
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


class JavaTools:
    """The jars, and the runs of their programs."""

    def __init__(self, directory: Path) -> None:
        """directory: for configurations. Raises PeerMissing."""
        self.java = find_java()
        self._libs = _libs()
        self._directory = directory

    @property
    def version(self) -> str:
        """Kafka's."""
        (jar,) = self._libs.glob("kafka_2.13-*.jar")
        return jar.stem.removeprefix("kafka_2.13-")

    def command(self, options: tuple[str, ...], main: str, *arguments: str) -> list[str]:
        """A command that runs this class."""
        logging = self._directory / "log4j2.properties"
        logging.write_text(_LOGGING)
        return [
            self.java,
            *options,
            f"-Dlog4j2.configurationFile={logging}",
            "-cp",
            f"{self._libs}/*",
            main,
            *arguments,
        ]

    def run(self, main: str, *arguments: str, seconds: float = 120) -> str:
        """Run a tool to its end. Returns its output; raises SystemFailed."""
        command = dies_with_us(self.command(("-Xmx512m",), main, *arguments))
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
        if done.returncode:
            raise SystemFailed(f"{main}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout

    def produce(self, bootstrap: str, topic: str, value_bytes: int, records: int) -> float:
        """Records per second that ProducerPerformance reports, without keys."""
        configuration = self._directory / "producer.properties"
        configuration.write_text(f"bootstrap.servers={bootstrap}\nacks=all\nlinger.ms=5\n")
        output = self.run(
            PRODUCER_TOOL,
            *("--topic", topic, "--num-records", str(records), "--record-size", str(value_bytes)),
            *("--throughput", "-1", "--producer.config", str(configuration)),
        )
        return produced(output)

    def consume(self, bootstrap: str, topic: str, records: int) -> float:
        """Records per second that ConsumerPerformance reports, without the time to join its group."""
        return consumed(
            self.run(CONSUMER_TOOL, "--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(records))
        )


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
