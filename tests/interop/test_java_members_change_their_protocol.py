"""Consumers in Java, at real nodes: a group rolls from the classic protocol to that of KIP-848 and back."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import Any

import confluent_kafka
import pytest

from node.process.local_cluster import LocalCluster
from tests.interop.kafka_tools import java_command
from tests.kafka_nodes import QUICK_GROUPS, kafka_cluster

pytestmark = pytest.mark.interop

PARTITIONS = 4
RECORDS = 40
"""Written at each stage."""
WAIT_S = 60.0
ASSIGNORS = "org.apache.kafka.clients.consumer"


cluster = kafka_cluster(
    QUICK_GROUPS,
    {
        "group.consumer.heartbeat.interval.ms": 200,
        "group.consumer.min.heartbeat.interval.ms": 200,
    },
)


class JavaMember:
    """Kafka's VerifiableConsumer, which prints what it is given and reads."""

    def __init__(self, group: JavaGroup, *options: str) -> None:
        self._group = group
        self.places: set[int] = set()
        command = java_command(
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", group.cluster.kafka_bootstrap, "--topic", group.name, "--group-id", group.name),
            *("--reset-policy", "earliest", *options),
        )
        command.insert(1, "-Dtidelog.log.level=off")
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8")
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._group.changed:
                self._take(json.loads(line))
                self._group.changed.notify_all()

    def _take(self, event: dict[str, Any]) -> None:
        named = {each["partition"] for each in event.get("partitions", ())}
        match event["name"]:
            case "partitions_assigned":
                self.places |= named
            case "partitions_revoked":
                self.places -= named
            case "records_consumed":
                for each in event["partitions"]:
                    self._group.read[each["partition"]] = max(
                        self._group.read[each["partition"]], each["maxOffset"] + 1
                    )

    def stop(self) -> None:
        """Close the consumer: it commits, gives everything up and leaves."""
        self._process.terminate()
        assert self._process.wait(WAIT_S) in (0, 143)
        self._reader.join()
        with self._group.changed:
            self._group.members.remove(self)


class JavaGroup:
    """A group, and how far each partition was read."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.changed = threading.Condition()
        self.members: list[JavaMember] = []
        self.read = dict.fromkeys(range(PARTITIONS), 0)
        self.written = 0

    def join(self, *options: str) -> JavaMember:
        member = JavaMember(self, *options)
        with self.changed:
            self.members.append(member)
        return member

    def write(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.cluster.kafka_bootstrap, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(self.name, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(WAIT_S) == 0
        self.written += RECORDS // PARTITIONS

    def settle(self) -> None:
        """Wait until each partition has one owner, each member has some, and everything is read."""
        self.write()
        with self.changed:
            assert self.changed.wait_for(self._is_settled, WAIT_S), ([each.places for each in self.members], self.read)

    def _is_settled(self) -> bool:
        owned = [each.places for each in self.members]
        shares = sum(map(len, owned))
        return all(owned) and shares == len(set().union(*owned)) == PARTITIONS == self._read_to_the_end

    @property
    def _read_to_the_end(self) -> int:
        return sum(offset == self.written for offset in self.read.values())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_a_group_of_java_rolls_to_the_new_protocol_and_back(cluster: LocalCluster, assignor: str) -> None:
    """Eager and cooperative members: no partition stays without a reader, or has two."""
    classic = ("--group-protocol", "classic", "--assignment-strategy", f"{ASSIGNORS}.{assignor}")
    new = ("--group-protocol", "consumer")
    group = JavaGroup(cluster, f"java-{assignor.lower()}")
    cluster.create_topic(group.name, PARTITIONS)
    try:
        first = group.join(*classic)
        group.settle()
        second = group.join(*new)
        group.settle()
        third = group.join(*classic)
        group.settle()
        first.stop()
        group.settle()
        third.stop()
        group.settle()
        group.join(*classic)
        group.settle()
        second.stop()
        group.settle()
    finally:
        for member in list(group.members):
            member.stop()
