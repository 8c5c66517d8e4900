"""Connect, distributed: a source writes the lines of a file exactly once, and a sink writes them to another file."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any, Final

from node.process.free_ports import free_ports
from node.process.local_cluster import HOST
from tests.kafka_ecosystem.programs import Failed, committed, jars_missing, java, outcome, running, wait_until
from tests.kafka_suites.suite import Effort, Nodes, Outcome, Suite

_CONNECTORS: Final = "org.apache.kafka.connect.file.FileStream"
_STRINGS: Final = "org.apache.kafka.connect.storage.StringConverter"
_INTERNAL: Final = ("config", "offset", "status")
"""Topics in which workers keep what they share; Connect creates them, compacted."""


class _Worker:
    """The only worker of a cluster, which can be killed and started again."""

    def __init__(self, cluster: Nodes, home: Path) -> None:
        self._log = home / "connect.log"
        self._configuration = home / "worker.properties"
        self._address = f"http://{HOST}:{free_ports(1)[0]}"
        settings = {
            "bootstrap.servers": cluster.kafka_bootstrap,
            "group.id": "connect-cluster",
            "exactly.once.source.support": "enabled",
            "key.converter": _STRINGS,
            "value.converter": _STRINGS,
            "listeners": self._address,
            # Otherwise the tasks of a killed worker start after five minutes.
            "scheduled.rebalance.max.delay.ms": 0,
            "consumer.isolation.level": "read_committed",
            "consumer.auto.offset.reset": "earliest",
        }
        for name in _INTERNAL:
            settings |= {f"{name}.storage.topic": f"connect-{name}", f"{name}.storage.replication.factor": 3}
        self._configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    @contextmanager
    def running(self) -> Iterator[Popen[bytes]]:
        command = java("org.apache.kafka.connect.cli.ConnectDistributed", str(self._configuration))
        with running(command, self._log) as process:
            wait_until(lambda: self._ask("/connectors") is not None, process, self._log)
            yield process

    def configure(self, connector: str, process: Popen[bytes], **settings: object) -> None:
        """Create a connector, and wait until its task runs. settings: with `_` for `.`."""
        config = {name.replace("_", "."): str(value) for name, value in settings.items()} | {"tasks.max": "1"}
        wait_until(lambda: self._ask(f"/connectors/{connector}/config", config) is not None, process, self._log)
        wait_until(lambda: self._runs(connector), process, self._log)

    def wait_until_committed(self, cluster: Nodes, topic: str, records: int, process: Popen[bytes]) -> None:
        wait_until(lambda: len(committed(cluster, topic)) >= records, process, self._log)

    def wait_until_written(self, path: Path, lines: int, process: Popen[bytes]) -> None:
        wait_until(lambda: path.exists() and len(path.read_bytes().splitlines()) >= lines, process, self._log)

    def _runs(self, connector: str) -> bool:
        tasks = (self._ask(f"/connectors/{connector}/status") or {}).get("tasks", [])
        failed = [task["trace"] for task in tasks if task["state"] == "FAILED"]
        if failed:
            raise Failed(f"the task of connector {connector} failed: {failed[0]}")
        return any(task["state"] == "RUNNING" for task in tasks)

    def _ask(self, path: str, body: dict[str, str] | None = None) -> Any:
        """What the worker answers; None while it cannot."""
        request = urllib.request.Request(
            self._address + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="GET" if body is None else "PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            # It starts, it rebalances, or the connector is not known to it yet.
            if error.code in {404, 409, 500, 503}:
                return None
            raise Failed(f"Connect answered {error.code} to {path}: {error.read().decode()}") from None
        except OSError:
            return None


def _run(cluster: Nodes, home: Path, effort: Effort) -> Iterator[Outcome]:
    worker = _Worker(cluster, home)
    lines = [f"line-{number}" for number in range(effort.records)]
    yield outcome("exactly-once source, killed in the middle", lambda: _source(cluster, worker, home, lines))
    yield outcome("sink", lambda: _sink(cluster, worker, home, lines))


def _source(cluster: Nodes, worker: _Worker, home: Path, lines: list[str]) -> None:
    path = home / "source.txt"
    half = len(lines) // 2
    with path.open("w") as file:
        file.writelines(f"{line}\n" for line in lines[:half])
        file.flush()
        with worker.running() as process:
            worker.configure(
                "lines",
                process,
                **{"connector.class": f"{_CONNECTORS}SourceConnector", "exactly.once.support": "required"},
                **{"file": path, "topic": "lines", "batch.size": 200},
            )
            worker.wait_until_committed(cluster, "lines", 1, process)
            file.writelines(f"{line}\n" for line in lines[half:])
            file.flush()
            process.kill()
    with worker.running() as process:
        worker.wait_until_committed(cluster, "lines", len(lines), process)
    _compare(lines, [row.value for row in committed(cluster, "lines")])


def _sink(cluster: Nodes, worker: _Worker, home: Path, lines: list[str]) -> None:
    path = home / "sink.txt"
    with worker.running() as process:
        settings = {"connector.class": f"{_CONNECTORS}SinkConnector", "file": path, "topics": "lines"}
        worker.configure("files", process, **settings)
        worker.wait_until_written(path, len(lines), process)
    _compare(lines, path.read_text().splitlines())


def _compare(expected: list[str], found: list[str]) -> None:
    """Every line once, whatever their order. Raises Failed."""
    if sorted(expected) != sorted(found):
        raise Failed(f"{len(expected)} lines, {len(found)} found, {len(set(expected) - set(found))} missing")


CONNECT: Final = Suite("connect", jars_missing, _run, ("lines",))
