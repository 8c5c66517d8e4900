"""Kafka's own programs for system tests: what a client may expect, numbered records, and copies in transactions.

The tools of the command line have tests of their own in tests/interop.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.interop.kafka_tools import LIBS, java_command
from tests.kafka_suites.suite import PARTITIONS, Effort, Nodes, Outcome, Suite, Verdict

TOOLS: Final = "org.apache.kafka.tools"
NUMBERED_MAX: Final = 100_000
"""Of the tools that print a line for each record."""
_SECONDS: Final = 900


class _Failed(Exception):
    """A program failed, or a count is wrong; the text says which."""


def _missing() -> str:
    return "" if os.environ.get(LIBS) else "Kafka's jars are not fetched: `make kafka-suites` fetches them, with Maven"


class _Programs:
    """The programs, at one cluster. Their output is kept below `home`."""

    def __init__(self, cluster: Nodes, home: Path, effort: Effort) -> None:
        self._cluster, self._home = cluster, home
        self._records = min(effort.records, NUMBERED_MAX)

    def compatibility(self) -> None:
        """Each promise to clients that ClientCompatibilityTest knows."""
        yes = (
            "offsets-for-times",
            "cluster-id",
            "create-topics",
            "describe-acls",
            "describe-configs",
            "idempotent-producer",
        )
        options = [text for name in yes for text in (f"--{name}-supported", "True")]
        more = ("--expect-record-too-large-exception", "False")
        nodes = ("--num-cluster-nodes", str(len(self._cluster.nodes)))
        self._run("ClientCompatibilityTest", "--topic", "compatible", *options, *more, *nodes)

    def numbered(self, protocol: str) -> None:
        """Every record that VerifiableProducer saw acknowledged is read by VerifiableConsumer where it was written."""
        topic = f"numbered-{protocol}"
        sent = self._write(topic)
        lines = self._run(
            "VerifiableConsumer",
            *("--topic", topic, "--group-id", topic, "--group-protocol", protocol, "--reset-policy", "earliest"),
            *("--max-messages", str(len(sent)), "--verbose"),
        )
        read = {_place(each): each["value"] for each in lines if each["name"] == "record_data"}
        wrong = {place: value for place, value in sent.items() if read.get(place) != value}
        if wrong or len(read) != len(sent):
            raise _Failed(f"{len(sent)} records were acknowledged, {len(wrong)} not read in place, {len(read)} read")

    def copied(self) -> None:
        """TransactionalMessageCopier aborts transactions at random; the copies have each record once."""
        sent = self._write("copied")
        for partition in range(PARTITIONS):
            self._run(
                "TransactionalMessageCopier",
                *("--input-topic", "copied", "--input-partition", str(partition), "--output-topic", "copies"),
                *("--consumer-group", "copiers", "--transactional-id", f"copier-{partition}"),
                *("--transaction-size", "200", "--use-group-metadata", "--enable-random-aborts"),
                address="--broker-list",
            )
        copies = Counter(self._console("copies"))
        if copies != Counter(sent.values()):
            lost = len(Counter(sent.values()) - copies)
            raise _Failed(f"{len(sent)} records, {copies.total()} copies: {lost} are lost, {len(copies)} distinct")

    def performance(self) -> None:
        """The load tools of the command line."""
        settings = f"bootstrap.servers={self._cluster.kafka_bootstrap}"
        count = str(self._records)
        self._tool(
            "ProducerPerformance",
            *("--topic", "load", "--num-records", count, "--record-size", "100", "--throughput", "-1"),
            *("--producer-props", settings, "acks=all"),
        )
        self._run("ConsumerPerformance", "--topic", "load", "--messages", count)
        self._tool("EndToEndLatency", self._cluster.kafka_bootstrap, "load", "100", "all", "100")

    def _write(self, topic: str) -> dict[tuple[int, int], str]:
        """Write to an empty topic. Returns the values by partition and offset."""
        lines = self._run("VerifiableProducer", "--topic", topic, "--max-messages", str(self._records), "--acks", "-1")
        sent = {_place(each): each["value"] for each in lines if each["name"] == "producer_send_success"}
        if len(sent) != self._records:
            raise _Failed(f"{topic}: {len(sent)} of {self._records} records were acknowledged")
        return sent

    def _console(self, topic: str) -> list[str]:
        bounds = ("--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", "10000")
        printed = self._tool(
            "consumer.ConsoleConsumer", "--bootstrap-server", self._cluster.kafka_bootstrap, "--topic", topic, *bounds
        )
        return [line for line in printed.splitlines() if line.isdigit()]  # its log is on the same output

    def _run(self, tool: str, *arguments: str, address: str = "--bootstrap-server") -> list[dict[str, Any]]:
        """Run a program. Returns the objects that it printed."""
        printed = self._tool(tool, address, self._cluster.kafka_bootstrap, *arguments)
        return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]

    def _tool(self, tool: str, *arguments: str) -> str:
        command = java_command(f"{TOOLS}.{tool}", *arguments)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        with (self._home / f"{tool}.log").open("a") as log:
            log.write(done.stdout + done.stderr)
        if done.returncode:
            raise _Failed(f"{tool}: exit code {done.returncode}, {done.stderr[-400:]}")
        return done.stdout


def _place(record: dict[str, Any]) -> tuple[int, int]:
    return int(record["partition"]), int(record["offset"])


def _run(cluster: Nodes, home: Path, effort: Effort) -> Iterator[Outcome]:
    programs = _Programs(cluster, home, effort)
    tests: dict[str, Callable[[], None]] = {
        "ClientCompatibilityTest": programs.compatibility,
        "VerifiableProducer, VerifiableConsumer of a classic group": partial(programs.numbered, "classic"),
        "VerifiableProducer, VerifiableConsumer of a consumer group": partial(programs.numbered, "consumer"),
        "TransactionalMessageCopier with random aborts": programs.copied,
        "ProducerPerformance, ConsumerPerformance, EndToEndLatency": programs.performance,
    }
    for name, test in tests.items():
        began = time.monotonic()
        try:
            test()
        except (_Failed, subprocess.TimeoutExpired) as error:
            yield Outcome(name, Verdict.FAILED, time.monotonic() - began, str(error))
        else:
            yield Outcome(name, Verdict.PASSED, time.monotonic() - began)


JAVA: Final = Suite(
    "java", _missing, _run, ("compatible", "numbered-classic", "numbered-consumer", "copied", "copies", "load")
)
