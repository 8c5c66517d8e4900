"""Transactions of Apache Kafka's own clients, in Java, at real nodes: its copier, and its tools for transactions."""

from __future__ import annotations

import json
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from node.process.local_cluster import LocalCluster
from replication.coordination.partitioning import partition_of
from tests.interop.kafka_tools import java_command, run
from tests.kafka_nodes import QUICK_FAILOVER, QUICK_GROUPS, kafka_cluster
from tests.node.kafka_frames import both_ways, decoded, request_frame
from tidelog.clock import MachineClock
from tidelog.records import Record, build_batch
from tidelog.types import Millis, Offset

pytestmark = pytest.mark.interop

TOOLS = "org.apache.kafka.tools"
RECORDS = 2_000
TRANSACTION = 50
"""Records of a transaction."""

OLD_MS = 3_600_000


cluster = kafka_cluster(QUICK_FAILOVER, QUICK_GROUPS)


@pytest.fixture
def unverified(tmp_path: Path) -> Iterator[LocalCluster]:
    """A node that accepts what no coordinator knows, as Kafka before KIP-890."""
    settings = {"transaction.partition.verification.enable": False}
    with LocalCluster(tmp_path, nodes=1, kafka=True, settings=settings) as started:
        started.wait_healthy(60)
        started.create_topic("orders", replicas=1)
        yield started


def tool(cluster: LocalCluster, name: str, *arguments: str) -> str:
    printed, _ = run(f"{TOOLS}.{name}", "--bootstrap-server", cluster.kafka_bootstrap, *arguments, is_silent=True)
    return printed


def transactions(cluster: LocalCluster, *arguments: str) -> list[dict[str, str]]:
    """The rows of a table that `kafka-transactions` prints."""
    rows = [line.split() for line in tool(cluster, "TransactionsCommand", *arguments).splitlines()]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:] if row]


def written(cluster: LocalCluster, topic: str) -> Counter[str]:
    """What the producer of the tools has written: the numbers from 0 on."""
    cluster.create_topic(topic, 1, min_insync_replicas="2")
    cluster.create_topic(f"{topic}-copy", 1, min_insync_replicas="2")
    tool(cluster, "VerifiableProducer", "--topic", topic, "--max-messages", str(RECORDS), "--acks", "-1")
    return Counter(map(str, range(RECORDS)))


def copier(cluster: LocalCluster, topic: str) -> list[str]:
    """The command that copies a topic, and aborts a third of its transactions."""
    return java_command(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", cluster.kafka_bootstrap, "--input-topic", topic, "--output-topic", f"{topic}-copy"),
        *("--input-partition", "0", "--consumer-group", topic, "--transactional-id", topic),
        *("--transaction-size", str(TRANSACTION), "--group-mode", "--use-group-metadata", "--enable-random-aborts"),
    )


def copied(cluster: LocalCluster, topic: str) -> Counter[str]:
    """The committed records of a copy, up to its end."""
    bounds = ("--timeout-ms", "8000", "--from-beginning", "--isolation-level", "read_committed")
    return Counter(tool(cluster, "consumer.ConsoleConsumer", "--topic", f"{topic}-copy", *bounds).split())


def test_kafkas_copier_is_exactly_once_although_it_aborts_at_random(cluster: LocalCluster) -> None:
    """Above 10 s: three JVMs, and a reader that waits until nothing comes any more."""
    sent = written(cluster, "copied")
    done = subprocess.run(copier(cluster, "copied"), capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert copied(cluster, "copied") == sent
    has_own_epochs(cluster, "copied")


def has_own_epochs(cluster: LocalCluster, topic: str) -> None:
    """Each transaction of the copier had an epoch of its own (KIP-890)."""
    (active,) = transactions(cluster, "describe-producers", "--topic", f"{topic}-copy", "--partition", "0")
    assert int(active["ProducerEpoch"]) >= RECORDS // TRANSACTION


def test_kafkas_copier_is_exactly_once_while_its_coordinators_are_killed(cluster: LocalCluster) -> None:
    """Above 10 s: as the one above, with two elections."""
    sent = written(cluster, "faulty")
    victims = ["__transaction_state", "__consumer_offsets"]
    with subprocess.Popen(copier(cluster, "faulty"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        for line in running.stdout:
            progress = json.loads(line)
            if victims and progress["totalProcessed"] >= RECORDS // (2 * len(victims)):
                internal = victims.pop(0)
                (state,) = cluster.metadata(0, internal).topics
                victim = int(state.partitions[partition_of("faulty", len(state.partitions))].leader)
                cluster.kill(victim)
                cluster.start_node(victim)
                cluster.wait_healthy(60)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors[-3_000:]
    assert victims == []
    assert copied(cluster, "faulty") == sent
    has_own_epochs(cluster, "faulty")


def test_an_open_transaction_is_listed_and_described(cluster: LocalCluster) -> None:
    cluster.create_topic("open", 2)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.kafka_bootstrap, "transactional.id": "open", "log_level": 0}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("open", b"value", partition=1)
    assert producer.flush(20) == 0
    (listed,) = [each for each in transactions(cluster, "list") if each["TransactionalId"] == "open"]
    (described,) = transactions(cluster, "describe", "--transactional-id", "open")
    (state,) = cluster.metadata(0, "__transaction_state").topics
    coordinator = str(state.partitions[partition_of("open", len(state.partitions))].leader)
    assert (listed["TransactionState"], listed["Coordinator"]) == ("Ongoing", coordinator)
    assert (described["TransactionState"], described["CoordinatorId"]) == ("Ongoing", coordinator)
    assert described["TopicPartitions"] == "open-1"
    assert described["ProducerId"] == listed["ProducerId"]
    (active,) = transactions(cluster, "describe-producers", "--topic", "open", "--partition", "1")
    assert (active["ProducerId"], active["CurrentTransactionStartOffset"]) == (listed["ProducerId"], "0")
    for node in range(3):  # each replica tells what it has, and no transaction hangs
        hanging = ("find-hanging", "--broker-id", str(node), "--max-transaction-timeout", "0")
        assert transactions(cluster, *hanging) == []
    producer.commit_transaction(20)
    (active,) = transactions(cluster, "describe-producers", "--topic", "open", "--partition", "1")
    assert active["CurrentTransactionStartOffset"] == "None"


def test_a_hanging_transaction_is_found_and_aborted(unverified: LocalCluster) -> None:
    """It was written an hour ago by a producer that no coordinator knows, and would block readers for ever."""
    written_ms = Millis(MachineClock().wall_ms() - OLD_MS)
    batch = build_batch(
        [Record(Offset(0), written_ms, b"key", b"value")],
        producer_id=777,
        producer_epoch=3,
        base_sequence=0,
        is_transactional=True,
    )
    assert _produce(unverified, bytes(batch)) == 0
    find = ("find-hanging", "--topic", "orders")
    (hanging,) = transactions(unverified, *find)
    assert (hanging["ProducerId"], hanging["ProducerEpoch"], hanging["StartOffset"]) == ("777", "3", "0")
    abort = ("abort", "--topic", "orders", "--partition", "0", "--start-offset", "0")
    tool(unverified, "TransactionsCommand", *abort)
    assert transactions(unverified, *find) == []


def _produce(cluster: LocalCluster, batch: bytes) -> int:
    """Write a batch of a transaction as a client of Kafka would. Returns the number of the error."""
    module = both_ways("ProduceRequest").module
    data = (module.TopicProduceData(name="orders", partition_data=(module.PartitionProduceData(0, batch),)),)
    frame = request_frame("Produce", 9, module.ProduceRequest("unknown", -1, 10_000, data))
    address = cluster.nodes[0].kafka
    assert address is not None
    with socket.create_connection((address.host, address.port), 10) as client, client.makefile("rb") as answers:
        client.sendall(frame)
        size = int.from_bytes(answers.read(4), "big")
        (topic,) = decoded("Produce", 9, answers.read(size))[1].responses
        return int(topic.partition_responses[0].error_code)
