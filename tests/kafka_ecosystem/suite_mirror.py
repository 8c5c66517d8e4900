"""MirrorMaker 2, with the settings of docs/kafka.md, moves topics, records and groups from a Kafka broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from typing import Final

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.interop.kafka_broker import Broker
from tests.interop.kafka_tools import LIBS
from tests.kafka_ecosystem.programs import (
    Failed,
    committed,
    documented,
    jars_missing,
    java,
    outcome,
    running,
    wait_until,
    write_to,
)
from tests.kafka_suites.suite import PARTITIONS, Effort, Nodes, Outcome, Suite

_ADDRESSES: Final = {"kafka": "kafka-0.example.org:9092", "tidelog": "localhost:9092"}
_QUICK: Final = (
    "emit.checkpoints.interval.seconds = 1",
    "sync.group.offsets.interval.seconds = 1",
    "tidelog.scheduled.rebalance.max.delay.ms = 0",
)
"""Otherwise the offsets of groups follow once a minute, and the tasks of a killed MirrorMaker start after five."""
_RETENTION_MS: Final = "259200000"


def _missing() -> str:
    return jars_missing() or (
        "" if os.environ.get(LIBS) else f"{LIBS} names no jars of a broker: `make kafka-ecosystem`"
    )


def _run(cluster: Nodes, home: Path, effort: Effort) -> Iterator[Outcome]:
    own = home / "kafka"
    own.mkdir()
    broker = Broker(own)
    broker.start()
    try:
        broker.create_topics({"orders": {"retention.ms": _RETENTION_MS}, "lines": {}}, PARTITIONS)
        mirror = _Mirror(broker, cluster, home)
        yield outcome("topics, settings, records and a group move", lambda: mirror.move_group(effort.records))
        yield outcome("records are copied once, killed in the middle", lambda: mirror.copy(effort.records))
    finally:
        broker.stop()


class _Mirror:
    def __init__(self, broker: Broker, cluster: Nodes, home: Path) -> None:
        self._kafka, self._cluster, self._log = broker.address, cluster, home / "mirror.log"
        properties = home / "mm2.properties"
        settings = documented("Moving from a Kafka cluster", "properties", level=2)
        for name, address in (("kafka", self._kafka), ("tidelog", cluster.kafka_bootstrap)):
            settings = settings.replace(_ADDRESSES[name], address)
        properties.write_text("\n".join((settings, *_QUICK)) + "\n", encoding="utf-8")
        self._command = java("org.apache.kafka.connect.mirror.MirrorMaker", str(properties))

    def move_group(self, records: int) -> None:
        """A group in the middle of a topic continues at the nodes: it may see records again, and misses none."""
        values = [f"record-{number}" for number in range(records)]
        write_to(self._kafka, "orders", values)
        seen = _read_in_group(self._kafka, "earliest", is_half=True)
        with running(self._command, self._log) as process:
            self._wait_copied("orders", records, process)
            wait_until(self._has_group, process, self._log)
        copied = [row.value for row in committed(self._cluster, "orders")]
        if sorted(copied) != sorted(values):
            raise Failed(f"{records} records, {len(copied)} copied, {len(set(copied))} distinct")
        left = _read_in_group(self._cluster.kafka_bootstrap)
        missing = len(set(values) - {*seen, *left})
        if missing or len(left) == records:
            raise Failed(f"the group saw {len(seen)} of {records} records, then {len(left)}: {missing} are missing")
        self._check_settings()

    def copy(self, records: int) -> None:
        """Exactly once, though MirrorMaker is killed."""
        values = [f"line-{number}" for number in range(records)]
        half = records // 2
        write_to(self._kafka, "lines", values[:half])
        with running(self._command, self._log) as process:
            self._wait_copied("lines", 1, process)
            write_to(self._kafka, "lines", values[half:])
            process.kill()
        with running(self._command, self._log) as process:
            self._wait_copied("lines", records, process)
        copied = [row.value for row in committed(self._cluster, "lines")]
        if sorted(copied) != sorted(values):
            raise Failed(f"{records} records, {len(copied)} copied, {len(set(copied))} distinct")

    def _wait_copied(self, topic: str, records: int, process: Popen[bytes]) -> None:
        wait_until(
            lambda: self._has_topic(topic) and len(committed(self._cluster, topic)) >= records, process, self._log
        )

    def _has_topic(self, topic: str) -> bool:
        """An admin client asks for all topics: to ask for one would create it here."""
        client = AdminClient({"bootstrap.servers": self._cluster.kafka_bootstrap})
        return topic in client.list_topics(timeout=10).topics

    def _has_group(self) -> bool:
        """Whether the offsets of the group are there, of each partition."""
        consumer = _member(self._cluster.kafka_bootstrap, "error")
        try:
            partitions = [TopicPartition("orders", each) for each in range(PARTITIONS)]
            return all(each.offset >= 0 for each in consumer.committed(partitions, 10))
        finally:
            consumer.close()

    def _check_settings(self) -> None:
        client = AdminClient({"bootstrap.servers": self._cluster.kafka_bootstrap})
        resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
        found = client.describe_configs([resource])[resource].result(10)["retention.ms"].value
        partitions = len(client.list_topics("orders", 10).topics["orders"].partitions)
        if (found, partitions) != (_RETENTION_MS, PARTITIONS):
            raise Failed(f"the topic has retention.ms={found} and {partitions} partitions")


def _member(address: str, reset: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "baristas",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": reset,
        }
    )


def _read_in_group(address: str, reset: str = "error", *, is_half: bool = False) -> list[str]:
    """Continue the group to the end of the topic. reset: where it begins if it has no offsets. is_half: return and
    commit the first half of each partition."""
    consumer = _member(address, reset)
    values: dict[int, list[str]] = {each: [] for each in range(PARTITIONS)}
    open_ends = set(values)
    consumer.subscribe(["orders"])
    try:
        while open_ends:
            message = consumer.poll(30)
            if message is None:
                raise Failed(f"the group got nothing for 30 s: {open_ends} are not read to their ends")
            error, partition = message.error(), message.partition()
            if error is None:
                values[partition].append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                open_ends.discard(partition)
            else:
                raise Failed(f"the group: {error}")
        if is_half:
            values = {each: found[: len(found) // 2] for each, found in values.items()}
            offsets = [TopicPartition("orders", each, len(found)) for each, found in values.items()]
            consumer.commit(offsets=offsets, asynchronous=False)
    finally:
        consumer.close()
    return [value for found in values.values() for value in found]


MIRROR: Final = Suite("mirror", _missing, _run)
