"""kafka-console of npm, a tool of the command line, looks at nodes, topics and settings, writes records and reads them.

Its client, @platformatic/kafka, needs the topic ids of Fetch 13 to read: before it, it takes the id for the name.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.kafka_ecosystem.programs import BUILT, Failed, committed, outcome
from tests.kafka_suites.suite import Effort, Nodes, Outcome, Suite

PROGRAM: Final = BUILT / "npm" / "node_modules" / ".bin" / "kafka-console"
_RECORDS_MAX: Final = 1_000
"""It waits for the answer to each."""


def _missing() -> str:
    return "" if PROGRAM.exists() else "it is not installed: `make kafka-ecosystem` does, with npm"


class _Console:
    def __init__(self, cluster: Nodes, home: Path) -> None:
        self._cluster, self._log = cluster, home / "kafka-console.log"

    def lines(self, *arguments: str, given: str = "") -> list[Any]:
        """The JSON of each line that a command prints. Raises Failed."""
        done = subprocess.run(
            [PROGRAM, "--brokers", self._cluster.kafka_bootstrap, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        with self._log.open("a") as log:
            log.write(f"{' '.join(arguments)}\n{done.stdout}{done.stderr}")
        if done.returncode:
            raise Failed(f"kafka-console {arguments[0]}: exit code {done.returncode}, {done.stderr[-400:]}")
        return [json.loads(line) for line in done.stdout.splitlines()]


def _run(cluster: Nodes, home: Path, effort: Effort) -> Iterator[Outcome]:
    console = _Console(cluster, home)
    records = min(effort.records, _RECORDS_MAX)
    yield outcome("nodes, topics and settings", lambda: _look(cluster, console))
    yield outcome("records are written once", lambda: _write(cluster, console, records))
    yield outcome("records are read once", lambda: _read(console, records))


def _look(cluster: Nodes, console: _Console) -> None:
    (metadata,) = console.lines("metadata")
    nodes = {f"{each['host']}:{each['port']}" for each in metadata["brokers"]}
    if nodes != set(cluster.kafka_bootstrap.split(",")):
        raise Failed(f"it sees the nodes {nodes}")
    console.lines("topic:create", "--partitions", "3", "--replicas", "3", "made")
    topics = console.lines("list")
    if sorted(topics) != ["made", "records"]:
        raise Failed(f"it lists the topics {topics}")
    (described,) = console.lines("config", "--resource", "topic", "--resourceName", "records")
    settings = {each["name"]: each["value"] for each in described["configs"]}
    if settings.get("min.insync.replicas") != "2":
        raise Failed(f"it sees the settings {settings}")


def _write(cluster: Nodes, console: _Console, records: int) -> None:
    values = [{"number": number} for number in range(records)]
    console.lines("produce", "records", given="".join(json.dumps({"value": value}) + "\n" for value in values))
    found = sorted(json.loads(row.value)["number"] for row in committed(cluster, "records"))
    if found != list(range(records)):
        raise Failed(f"{records} records were given to it, {len(found)} are there, {len(set(found))} distinct")


def _read(console: _Console, records: int) -> None:
    """By a member of a group, from the beginning to what was the end."""
    read = console.lines("consume", "records", "--from", "0", "--snapshot")
    found = sorted(each["value"]["number"] for each in read)
    if found != list(range(records)):
        raise Failed(f"{records} records are there, it has read {len(found)}, {len(set(found))} distinct")


CONSOLE: Final = Suite("console", _missing, _run, ("records",))
