"""The schema registry Apicurio keeps its schemas in topics, and has them again after it was killed. Our clients use it
through the serializers of Confluent's library."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

from node.process.free_ports import free_ports
from node.process.local_cluster import HOST, LocalCluster
from tests.interop.kafka_tools import find_java
from tests.kafka_ecosystem.programs import BUILT, Failed, outcome, running, wait_until
from tests.kafka_suites.suite import Effort, Nodes, Outcome, Suite
from tidelog import sync
from tidelog.protocol.v1.common_pb2 import EpochEnd

APICURIO: Final = BUILT / "apicurio"
_SCHEMAS: Final = 10
_JAVA: Final = 21
_WAIT_S: Final = 60.0


def _missing() -> str:
    if not APICURIO.is_dir():
        return "it is not fetched: `make kafka-ecosystem` does, with Maven"
    version = subprocess.run([find_java(), "--version"], capture_output=True, text=True, check=False).stdout
    major = re.search(r"\d+", version)
    return "" if major and int(major[0]) >= _JAVA else f"it needs Java {_JAVA} or newer: name one by JAVA_HOME"


class _Registry:
    """One process of it, which can be killed and started again. It has the schemas in memory, and in a topic."""

    def __init__(self, cluster: Nodes, home: Path) -> None:
        (port,) = free_ports(1)
        self._log = home / "apicurio.log"
        self.url = f"http://{HOST}:{port}/apis/ccompat/v7"
        """Where it has the API of Confluent's registry."""
        settings = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": port,
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": cluster.kafka_bootstrap,
        }
        options = [f"-D{name}={value}" for name, value in settings.items()]
        self._command = [find_java(), "-Xmx512m", *options, "-jar", str(APICURIO / "quarkus-run.jar")]

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        with running(self._command, self._log) as process:
            wait_until(lambda: self.subjects() is not None, process, self._log)
            yield process

    def subjects(self) -> list[str] | None:
        """The names of all schemas; None while it starts."""
        try:
            return sorted(self._ask("/subjects"))
        except OSError:
            return None

    def wait_for(self, subjects: list[str], process: subprocess.Popen[bytes]) -> None:
        """Wait until it has these: it answers before it has read its topic. Raises Failed."""
        wait_until(lambda: self.subjects() == subjects, process, self._log)

    def register(self, subject: str) -> int:
        """Register a schema. Returns its id."""
        number = self._ask(f"/subjects/{subject}/versions", {"schema": _schema(subject)})["id"]
        return int(number)

    def schema(self, number: int) -> str:
        return str(self._ask(f"/schemas/ids/{number}")["schema"])

    def _ask(self, path: str, body: dict[str, str] | None = None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


def _schema(subject: str) -> str:
    field = {"name": "amount", "type": "long"}
    return json.dumps({"type": "record", "name": subject.replace("-", "_"), "fields": [field]})


def _run(cluster: Nodes, home: Path, effort: Effort) -> Iterator[Outcome]:
    yield outcome("schemas survive kill -9 of the registry", lambda: _register(_Registry(cluster, home)))
    if isinstance(cluster, LocalCluster):
        yield outcome(
            "records of our clients have schemas in it", lambda: _serialize(cluster, _Registry(cluster, home))
        )


def _register(registry: _Registry) -> None:
    with registry.running() as process:
        numbers = {subject: registry.register(subject) for subject in (f"order-{each}" for each in range(_SCHEMAS))}
        process.kill()
    with registry.running() as process:
        registry.wait_for(sorted(numbers), process)
        wrong = [
            subject
            for subject, number in numbers.items()
            if json.loads(registry.schema(number)) != json.loads(_schema(subject))
        ]
        if wrong:
            raise Failed(f"the schema of {wrong[0]} is not what was registered: {registry.schema(numbers[wrong[0]])}")


def _serialize(cluster: LocalCluster, registry: _Registry) -> None:
    with registry.running(), SchemaRegistryClient({"url": registry.url, "timeout": _WAIT_S}) as client:
        form = {"use.deprecated.format": False}
        order = json.dumps({"title": "Order", "type": "object", "properties": {"amount": {"type": "integer"}}})
        ways: dict[str, tuple[Any, Any, Any]] = {
            "avro": (AvroSerializer(client, _schema("order")), AvroDeserializer(client), {"amount": 7}),
            "json-schema": (JSONSerializer(order, client), JSONDeserializer(order), {"amount": 7}),
            "protobuf": (
                ProtobufSerializer(EpochEnd, client, form),
                ProtobufDeserializer(EpochEnd, form),
                EpochEnd(epoch=3, end_offset=20),
            ),
        }
        for topic, (serializer, deserializer, value) in ways.items():
            cluster.create_topic(topic)
            with sync.Producer(cluster.bootstrap, value_serializer=serializer) as producer:
                producer.send(topic, value)
            with sync.Consumer(cluster.bootstrap, value_deserializer=deserializer) as consumer:
                consumer.assign([(topic, 0)])
                found = [record.value for record in consumer.poll(timeout=_WAIT_S)]
            if found != [value]:
                raise Failed(f"{topic}: {value} was sent, and {found} read")


REGISTRY: Final = Suite("registry", _missing, _run)
