"""Programs that use Kafka, unmodified, at three real nodes: librdkafka and aiokafka write and read, together with ours.

The clients of Java and others run in `make interop`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

import tidelog
from node.process.local_cluster import LocalCluster
from tests.certificates import Authority, settings_of
from tests.kafka_nodes import QUICK_FAILOVER, QUICK_GROUPS, kafka_cluster
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType

pytestmark = pytest.mark.integration

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
WAYS = tuple(product(CODECS, ACKS))
"""How a client may be told to write."""
RECORDS = 20
"""With each."""
FIRST_MS = 1_700_000_000_000
HEADERS = (("trace", b"\x00\x01"), ("empty", b""))
WAIT_S = 20.0


@dataclass(frozen=True, order=True)
class Read:
    """A record as a client has read it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


cluster = kafka_cluster(QUICK_FAILOVER, QUICK_GROUPS)


def records_of(way: tuple[str, str], count: int = RECORDS) -> list[tuple[bytes, bytes, int]]:
    """The keys, values and timestamps that a client writes in this way."""
    codec, acks = way
    return [
        (b"key-%d" % number, f"{codec}-{acks}-{number}-".encode() + b"." * 50, FIRST_MS + number)
        for number in range(count)
    ]


ALL = sorted(value for way in WAYS for _, value, _ in records_of(way))


# --- clients ------------------------------------------------------------------------------------------------------


def librdkafka(cluster: LocalCluster, **settings: object) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.kafka_bootstrap, "log_level": 0, **settings}


def ensure_sent(error: object, _message: object) -> None:
    """Raised where the producer is asked for reports."""
    assert error is None, error


def write_with_librdkafka(cluster: LocalCluster, topic: str) -> None:
    for codec, acks in WAYS:
        producer = confluent_kafka.Producer(
            librdkafka(cluster, **{"compression.type": codec, "acks": acks, "linger.ms": 2})
        )
        for key, value, timestamp in records_of((codec, acks)):
            producer.produce(topic, value, key, timestamp=timestamp, headers=list(HEADERS), on_delivery=ensure_sent)
        assert producer.flush(WAIT_S) == 0


def read_with_librdkafka(cluster: LocalCluster, topic: str, count: int) -> list[Read]:
    consumer = confluent_kafka.Consumer(librdkafka(cluster, **{"group.id": "unused", "enable.auto.commit": False}))
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found: list[Read] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), WAIT_S)
        assert messages, f"{len(found)} of {count} records came"
        for each in messages:
            assert each.error() is None, each.error()
            headers = tuple(each.headers() or ())
            found.append(Read(each.partition(), each.offset(), each.key(), each.value(), each.timestamp()[1], headers))
    consumer.close()
    return sorted(found)


async def write_with_aiokafka(cluster: LocalCluster, topic: str) -> None:
    for codec, acks in WAYS:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=cluster.kafka_bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == "all" else int(acks),
        ) as producer:
            sent = [
                await producer.send(topic, value, key, timestamp_ms=timestamp, headers=list(HEADERS))
                for key, value, timestamp in records_of((codec, acks))
            ]
            await producer.flush()
            await asyncio.gather(*sent)


async def read_with_aiokafka(cluster: LocalCluster, topic: str, count: int) -> list[Read]:
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=cluster.kafka_bootstrap) as consumer:
        partitions = [aiokafka.TopicPartition(topic, each) for each in range(PARTITIONS)]
        consumer.assign(partitions)
        for each in partitions:
            consumer.seek(each, 0)
        found: list[Read] = []
        async with asyncio.timeout(WAIT_S):
            while len(found) < count:
                for messages in (await consumer.getmany(timeout_ms=1_000)).values():
                    found += [
                        Read(m.partition, m.offset, m.key, m.value, m.timestamp, tuple(m.headers)) for m in messages
                    ]
        return sorted(found)


async def write_with_tidelog(cluster: LocalCluster, topic: str) -> None:
    """With acks=1 instead of 0: what nobody has acknowledged may be lost when the producer is closed."""
    for codec, acks in WAYS:
        async with tidelog.Producer(
            cluster.bootstrap, compression=codec, acks=acks.replace("0", "1"), enable_idempotence=acks == "all"
        ) as producer:
            sent = [
                await producer.enqueue(topic, value, key, HEADERS, timestamp=timestamp)
                for key, value, timestamp in records_of((codec, acks))
            ]
            await asyncio.gather(*sent)


async def read_with_tidelog(cluster: LocalCluster, topic: str, count: int) -> list[Read]:
    async with tidelog.Consumer(cluster.bootstrap) as consumer:
        consumer.assign(await consumer.partitions(topic))
        found: list[Read] = []
        async with asyncio.timeout(WAIT_S):
            while len(found) < count:
                for each in await consumer.poll():
                    assert each.timestamp is not None
                    found.append(
                        Read(each.partition, each.offset, each.key, each.value, each.timestamp, tuple(each.headers))
                    )
        return sorted(found)


async def in_thread(cluster: LocalCluster, topic: str) -> None:
    await asyncio.to_thread(write_with_librdkafka, cluster, topic)


WRITERS: dict[str, Callable[[LocalCluster, str], Any]] = {
    "librdkafka": in_thread,
    "aiokafka": write_with_aiokafka,
    "tidelog": write_with_tidelog,
}


# --- stories ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", WRITERS)
async def test_what_one_client_writes_all_read(cluster: LocalCluster, writer: str) -> None:
    """Five codecs, each with acks 0, 1 and all; keys, headers and timestamps."""
    topic = f"from-{writer}"
    await asyncio.to_thread(cluster.create_topic, topic, PARTITIONS)
    await WRITERS[writer](cluster, topic)
    ours = await read_with_tidelog(cluster, topic, len(ALL))
    assert sorted(each.value or b"" for each in ours) == ALL
    assert {each.headers for each in ours} == {HEADERS}
    written = {(value, key, timestamp) for way in WAYS for key, value, timestamp in records_of(way)}
    assert {(each.value, each.key, each.timestamp) for each in ours} == written
    assert await read_with_aiokafka(cluster, topic, len(ALL)) == ours
    assert await asyncio.to_thread(read_with_librdkafka, cluster, topic, len(ALL)) == ours


async def test_a_key_has_one_partition_whichever_client_writes_it(cluster: LocalCluster) -> None:
    """With each client's own default, and with ours set to that of librdkafka (docs/kafka.md)."""
    await asyncio.to_thread(cluster.create_topic, "keyed", 7)
    keys = [b"customer-%d" % number for number in range(50)]
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.kafka_bootstrap) as producer:
        sent = [await producer.send("keyed", b"", key) for key in keys]
        await producer.flush()
        javas = [(await each).partition for each in sent]
    librdkafkas = await asyncio.to_thread(_partitions_of, keys, librdkafka(cluster))
    murmur2 = librdkafka(cluster, partitioner="murmur2_random")
    assert await asyncio.to_thread(_partitions_of, keys, murmur2) == javas != librdkafkas
    for ours, theirs in ((tidelog.Producer(cluster.bootstrap), javas), (like_librdkafka(cluster), librdkafkas)):
        async with ours:
            delivery = await (await ours.enqueue_many("keyed", keys, keys=keys))
        assert [each.partition for each in delivery.results()] == theirs


def like_librdkafka(cluster: LocalCluster) -> tidelog.Producer:
    return tidelog.Producer(cluster.bootstrap, partitioner="crc32")


def _partitions_of(keys: list[bytes], settings: dict[str, Any]) -> list[int]:
    """Where librdkafka with these settings writes each key."""
    producer, found = confluent_kafka.Producer(settings), dict[bytes, int]()

    def note(error: object, message: Any) -> None:
        assert error is None, error
        found[message.key()] = message.partition()

    for key in keys:
        producer.produce("keyed", b"", key, on_delivery=note)
    assert producer.flush(WAIT_S) == 0
    return [found[key] for key in keys]


async def test_times_and_ends_are_found(cluster: LocalCluster) -> None:
    """A time is looked up within a compressed batch, not at its first record. A position that the log does not have
    leads to its start."""
    await asyncio.to_thread(cluster.create_topic, "times", 1)

    def story() -> None:
        producer = confluent_kafka.Producer(librdkafka(cluster, **{"compression.type": "zstd", "linger.ms": 200}))
        for _, value, timestamp in records_of(("zstd", "all"), 100):
            producer.produce("times", value, timestamp=timestamp)
        assert producer.flush(WAIT_S) == 0
        consumer = confluent_kafka.Consumer(
            librdkafka(cluster, **{"group.id": "unused", "auto.offset.reset": "earliest", "enable.auto.commit": False})
        )
        asked = [confluent_kafka.TopicPartition("times", 0, FIRST_MS + at) for at in (0, 57, 99, 100)]
        found = [consumer.offsets_for_times([each], timeout=WAIT_S)[0].offset for each in asked]
        assert found == [0, 57, 99, confluent_kafka.OFFSET_END]
        assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition("times", 0), WAIT_S) == (0, 100)
        consumer.assign([confluent_kafka.TopicPartition("times", 0, 5_000)])
        first = consumer.poll(WAIT_S)
        assert first is not None and first.error() is None
        assert first.offset() == 0
        consumer.close()

    await asyncio.to_thread(story)


async def test_a_topic_that_does_not_exist_is_an_error(cluster: LocalCluster) -> None:
    def story() -> None:
        admin = AdminClient(librdkafka(cluster))
        listing = admin.list_topics("nothing", timeout=WAIT_S)
        assert listing.topics["nothing"].error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
        addresses = sorted(f"{each.host}:{each.port}" for each in listing.brokers.values())
        assert ",".join(addresses) == ",".join(sorted(cluster.kafka_bootstrap.split(",")))
        assert listing.cluster_id == cluster.describe(0).cluster_id

    await asyncio.to_thread(story)


async def test_idempotent_producers_follow_the_leader(cluster: LocalCluster) -> None:
    """A node is killed under load: each record that was sent is in the log once, and in order."""
    topics = ("moved-librdkafka", "moved-aiokafka")
    for topic in topics:
        await asyncio.to_thread(cluster.create_topic, topic, PARTITIONS, min_insync_replicas="2")
    values = [b"%d" % number for number in range(1_500)]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.to_thread(_write_in_order, cluster, topics[0], values))
        tasks.create_task(_write_in_order_with_aiokafka(cluster, topics[1], values))
        await asyncio.to_thread(cluster.kill, 1)
    cluster.start_node(1)
    for topic in topics:
        read = await read_with_tidelog(cluster, topic, len(values))
        for partition in range(PARTITIONS):
            assert [each.value for each in read if each.partition == partition] == values[partition::PARTITIONS]
    await asyncio.to_thread(cluster.wait_healthy, 60)


def _write_in_order(cluster: LocalCluster, topic: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer(
        librdkafka(cluster, **{"enable.idempotence": True, "linger.ms": 1, "retry.backoff.ms": 50})
    )
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=ensure_sent)
        producer.poll(0.0005)
    assert producer.flush(30) == 0


async def _write_in_order_with_aiokafka(cluster: LocalCluster, topic: str, values: list[bytes]) -> None:
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.kafka_bootstrap, enable_idempotence=True, retry_backoff_ms=50
    ) as producer:
        sent = [await producer.send(topic, value, partition=number % PARTITIONS) for number, value in enumerate(values)]
        await producer.flush()
        await asyncio.gather(*sent)


async def test_members_of_different_clients_share_a_group(cluster: LocalCluster) -> None:
    """librdkafka reads alone and commits, shares the partitions with aiokafka, and leaves them to it."""
    await asyncio.to_thread(cluster.create_topic, "shared", PARTITIONS)
    await write_with_aiokafka(cluster, "shared")
    member = confluent_kafka.Consumer(
        librdkafka(
            cluster,
            **{
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "roundrobin",
                "heartbeat.interval.ms": 100,
                "session.timeout.ms": 6_000,
            },
        )
    )
    member.subscribe(["shared"])
    committed = await asyncio.to_thread(_read_all_and_commit, member)
    other = aiokafka.AIOKafkaConsumer(
        "shared", bootstrap_servers=cluster.kafka_bootstrap, group_id="readers", heartbeat_interval_ms=100
    )
    starting = asyncio.get_running_loop().create_task(other.start())  # ends when it has an assignment
    async with asyncio.timeout(WAIT_S):
        while not (other.assignment() and len(member.assignment()) == PARTITIONS - len(other.assignment())):
            await asyncio.to_thread(member.poll, 0.05)
        await starting
        await asyncio.to_thread(member.close)
        while len(other.assignment()) < PARTITIONS:
            await other.getmany(timeout_ms=50)
        assert {each.partition: await other.committed(each) for each in other.assignment()} == committed
    await other.stop()


def _read_all_and_commit(member: confluent_kafka.Consumer) -> dict[int, int]:
    """The committed offsets, which are the ends of the partitions."""
    found: dict[int, int] = {}
    for _ in ALL:
        message = member.poll(WAIT_S)
        assert message is not None and message.error() is None
        found[message.partition()] = message.offset() + 1
    committed = member.commit(asynchronous=False) or []
    assert {each.partition: each.offset for each in committed} == found
    return found


async def test_topics_are_created_and_deleted(cluster: LocalCluster) -> None:
    """By librdkafka, and deleted by our client, so that both see the same topics."""

    def story() -> None:
        admin = AdminClient(librdkafka(cluster))
        created = admin.create_topics([NewTopic("made", 2, 3, config={"retention.ms": "1000"})])
        created["made"].result(WAIT_S)
        cluster.wait_until(lambda: all(_has_made(cluster)), within_s=WAIT_S, what="all nodes know the topic")
        assert len(admin.list_topics("made", timeout=WAIT_S).topics["made"].partitions) == 2
        resource = ConfigResource(ConfigResource.Type.TOPIC, "made")
        settings = admin.describe_configs([resource])[resource].result(WAIT_S)
        assert (settings["retention.ms"].value, settings["retention.ms"].is_default) == ("1000", False)
        assert (settings["cleanup.policy"].value, settings["cleanup.policy"].is_default) == ("delete", True)
        refused = admin.create_topics([NewTopic("made", 2, 3)])["made"].exception(WAIT_S)
        assert refused is not None
        assert refused.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
        admin.delete_topics(["made"])["made"].result(WAIT_S)
        # The answer comes when the node that was asked has applied it; ours may ask another one.
        cluster.wait_until(lambda: not any(_has_made(cluster)), within_s=WAIT_S, what="no node knows the topic")

    await asyncio.to_thread(story)
    async with tidelog.Admin(cluster.bootstrap) as admin:
        assert "made" not in [each.name for each in await admin.list_topics()]


def _has_made(cluster: LocalCluster) -> list[bool]:
    """Whether each node knows the topic."""
    return ["made" in [each.name for each in cluster.metadata(node.node_id).topics] for node in cluster.nodes]


@pytest.mark.deep  # a cluster of its own
async def test_clients_prove_their_identity_by_certificates(tmp_path: Path) -> None:
    """What one of them may do, the ACLs say: bob may read, and not write."""
    authority = Authority(tmp_path / "certificates")
    node = authority.node()
    settings = {
        "listener.security.protocol.map": ["KAFKA:SSL"],
        "allow.everyone.if.no.acl.found": False,
        "super.users": ["User:ANONYMOUS", "User:CN=alice"],
        **settings_of(node),
    }
    with LocalCluster(tmp_path / "cluster", 1, kafka=True, settings=settings) as secured:
        secured.wait_healthy(60)
        await asyncio.to_thread(secured.create_topic, "orders", 1, 1)
        async with tidelog.Admin(secured.bootstrap) as admin:
            await admin.create_acls(ACLS)
        await asyncio.to_thread(_use_certificates, secured, authority)


ACLS = [
    AclBinding(kind, name, PatternType.LITERAL, "User:CN=bob", "*", AclOperation.READ, AclPermission.ALLOW)
    for kind, name in ((ResourceType.TOPIC, "orders"), (ResourceType.GROUP, "unused"))
]
"""librdkafka looks for the coordinator of a consumer's group even if the consumer commits nothing."""


def _use_certificates(secured: LocalCluster, authority: Authority) -> None:
    def settings(name: str) -> dict[str, Any]:
        files = authority.client(name)
        return librdkafka(
            secured,
            **{
                "security.protocol": "SSL",
                "ssl.ca.location": str(files.ca),
                "ssl.certificate.location": str(files.certificate),
                "ssl.key.location": str(files.key),
            },
        )

    value, refused = b"x" * 1_000_000, list[int]()
    for name in ("alice", "bob"):
        producer = confluent_kafka.Producer({**settings(name), "message.max.bytes": 2_000_000})
        producer.produce("orders", value, on_delivery=lambda error, _: refused.append(error.code()) if error else None)
        assert producer.flush(WAIT_S) == 0
    assert refused == [confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED]
    consumer = confluent_kafka.Consumer({**settings("bob"), "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    message = consumer.poll(WAIT_S)
    assert message is not None and message.error() is None
    assert message.value() == value
    consumer.close()
