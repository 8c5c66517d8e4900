"""Transactions of programs that use Kafka, at three real nodes: librdkafka and aiokafka, unmodified, and our client."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

import tidelog
from node.process.local_cluster import LocalCluster
from replication.coordination.partitioning import partition_of
from tests.kafka_nodes import QUICK_FAILOVER, QUICK_GROUPS, kafka_cluster
from tidelog.client.read_committed import IsolationName

pytestmark = pytest.mark.integration

PARTITIONS = 3
WAIT_S = 20.0
COMMITTED = [b"committed-%d" % number for number in range(30)]
ABORTED = [b"aborted-%d" % number for number in range(30)]


cluster = kafka_cluster(QUICK_FAILOVER, QUICK_GROUPS)


# --- clients ------------------------------------------------------------------------------------------------------


def librdkafka(cluster: LocalCluster, **settings: object) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.kafka_bootstrap, "log_level": 0, **settings}


def transactional(cluster: LocalCluster, name: str, **settings: object) -> confluent_kafka.Producer:
    """A producer of librdkafka that may begin a transaction."""
    producer = confluent_kafka.Producer(
        librdkafka(cluster, **{"transactional.id": name, "linger.ms": 2, "retry.backoff.ms": 50, **settings})
    )
    producer.init_transactions(WAIT_S)
    return producer


def ends_with_librdkafka(cluster: LocalCluster, topic: str, name: str) -> None:
    """One transaction is committed, and one aborted between the halves of another."""
    producer = transactional(cluster, name)
    for values, commits in ((COMMITTED[:20], True), (ABORTED, False), (COMMITTED[20:], True)):
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % PARTITIONS)
        if commits:
            producer.commit_transaction(WAIT_S)
        else:
            assert producer.flush(WAIT_S) == 0  # otherwise the records are dropped before they are sent
            producer.abort_transaction(WAIT_S)


async def ends_with_aiokafka(cluster: LocalCluster, topic: str, name: str) -> None:
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.kafka_bootstrap, transactional_id=name, retry_backoff_ms=50
    ) as producer:
        for values, commits in ((COMMITTED[:20], True), (ABORTED, False), (COMMITTED[20:], True)):
            await producer.begin_transaction()
            sent = [
                await producer.send(topic, value, partition=number % PARTITIONS) for number, value in enumerate(values)
            ]
            await asyncio.gather(*sent)
            await (producer.commit_transaction() if commits else producer.abort_transaction())


async def ends_with_tidelog(cluster: LocalCluster, topic: str, name: str) -> None:
    async with tidelog.Producer(cluster.bootstrap, transactional_id=name) as producer:
        for values, commits in ((COMMITTED[:20], True), (ABORTED, False), (COMMITTED[20:], True)):
            try:
                async with producer.transaction() as txn:
                    for number, value in enumerate(values):
                        await txn.send(topic, value, partition=number % PARTITIONS)
                    if not commits:
                        raise LookupError("the application gives up")
            except LookupError:
                assert not commits


async def in_thread(cluster: LocalCluster, topic: str, name: str) -> None:
    await asyncio.to_thread(ends_with_librdkafka, cluster, topic, name)


WRITERS: dict[str, Callable[[LocalCluster, str, str], Any]] = {
    "librdkafka": in_thread,
    "aiokafka": ends_with_aiokafka,
    "tidelog": ends_with_tidelog,
}


def read_with_librdkafka(cluster: LocalCluster, topic: str, count: int, isolation: str) -> list[bytes]:
    """All records up to the end of each partition."""
    consumer = confluent_kafka.Consumer(
        librdkafka(
            cluster,
            **{
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
            },
        )
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS or len(found) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(found)} of {count} records came"
        error = message.error()
        if error is None:
            found.append(message.value() or b"")
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition() or 0)
    consumer.close()
    return found


async def read_with_aiokafka(cluster: LocalCluster, topic: str, count: int, isolation: str) -> list[bytes]:
    async with aiokafka.AIOKafkaConsumer(
        bootstrap_servers=cluster.kafka_bootstrap, isolation_level=isolation
    ) as consumer:
        partitions = [aiokafka.TopicPartition(topic, each) for each in range(PARTITIONS)]
        consumer.assign(partitions)
        for each in partitions:
            consumer.seek(each, 0)
        found: list[bytes] = []
        async with asyncio.timeout(WAIT_S):
            while len(found) < count:
                for messages in (await consumer.getmany(timeout_ms=1_000)).values():
                    found += [message.value or b"" for message in messages]
        return found


async def read_with_tidelog(cluster: LocalCluster, topic: str, isolation: IsolationName) -> list[bytes]:
    """All records up to the end of each partition."""
    async with tidelog.Consumer(cluster.bootstrap, isolation=isolation) as consumer:
        places = await consumer.partitions(topic)
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        found: list[bytes] = []
        async with asyncio.timeout(WAIT_S):
            while any([await consumer.position(place) < ends[place] for place in places]):
                found += [record.value or b"" for record in await consumer.poll()]
        return found


async def seen_by_all(cluster: LocalCluster, topic: str, count: int, isolation: IsolationName) -> list[bytes]:
    """What the clients read, which is the same. count: of records, whose markers may still be on their way."""
    found = sorted(await read_with_aiokafka(cluster, topic, count, isolation))
    assert sorted(await read_with_tidelog(cluster, topic, isolation)) == found
    assert sorted(await asyncio.to_thread(read_with_librdkafka, cluster, topic, count, isolation)) == found
    return found


async def committed_by(cluster: LocalCluster, topic: str, count: int) -> list[bytes]:
    """What was committed, once so much is: a marker may still be on its way."""
    async with asyncio.timeout(WAIT_S):
        while len(found := await read_with_tidelog(cluster, topic, "read_committed")) < count:
            pass
    return sorted(found)


# --- ends ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", WRITERS)
async def test_what_one_client_commits_all_read_and_what_it_aborts_none(cluster: LocalCluster, writer: str) -> None:
    topic = f"ended-by-{writer}"
    await asyncio.to_thread(cluster.create_topic, topic, PARTITIONS)
    await WRITERS[writer](cluster, topic, topic)
    assert await seen_by_all(cluster, topic, len(COMMITTED), "read_committed") == sorted(COMMITTED)
    everything = sorted(COMMITTED + ABORTED)
    assert await seen_by_all(cluster, topic, len(everything), "read_uncommitted") == everything


async def test_readers_of_committed_records_wait_for_an_open_transaction(cluster: LocalCluster) -> None:
    await asyncio.to_thread(cluster.create_topic, "open", PARTITIONS)

    def story() -> None:
        producer = transactional(cluster, "open")
        producer.begin_transaction()
        producer.produce("open", b"first", partition=0)
        assert producer.flush(WAIT_S) == 0
        plain = confluent_kafka.Producer(librdkafka(cluster))
        plain.produce("open", b"second", partition=0)
        assert plain.flush(WAIT_S) == 0
        assert read_with_librdkafka(cluster, "open", 0, "read_committed") == []
        assert read_with_librdkafka(cluster, "open", 2, "read_uncommitted") == [b"first", b"second"]
        producer.commit_transaction(WAIT_S)

    await asyncio.to_thread(story)
    assert await seen_by_all(cluster, "open", 2, "read_committed") == [b"first", b"second"]


# --- fencing ------------------------------------------------------------------------------------------------------


async def test_a_newer_producer_fences_an_older_one_whatever_their_protocols(cluster: LocalCluster) -> None:
    """librdkafka, fenced by aiokafka, fenced by ours, fenced by librdkafka; each leaves an open transaction behind."""
    await asyncio.to_thread(cluster.create_topic, "fenced", PARTITIONS)
    first = await asyncio.to_thread(_open_with_librdkafka, cluster, b"of the first")

    second = aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.kafka_bootstrap, transactional_id="shared", retry_backoff_ms=50
    )
    await second.start()
    with pytest.raises(KafkaException) as fenced:
        await asyncio.to_thread(first.commit_transaction, WAIT_S)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    await second.begin_transaction()
    await second.send_and_wait("fenced", b"of the second", partition=0)

    async with tidelog.Producer(cluster.bootstrap, transactional_id="shared") as third:
        with pytest.raises(tidelog.errors.ProducerFenced):
            async with third.transaction() as txn:
                await txn.send("fenced", b"of the third", partition=0)
                with pytest.raises(aiokafka.errors.ProducerFenced):
                    await second.commit_transaction()
                last = await asyncio.to_thread(_open_with_librdkafka, cluster, b"of the last")
    await second.stop()
    await asyncio.to_thread(last.commit_transaction, WAIT_S)
    assert await seen_by_all(cluster, "fenced", 1, "read_committed") == [b"of the last"]


def _open_with_librdkafka(cluster: LocalCluster, value: bytes) -> confluent_kafka.Producer:
    """A producer that has written in a transaction."""
    producer = transactional(cluster, "shared")
    producer.begin_transaction()
    producer.produce("fenced", value, partition=0)
    assert producer.flush(WAIT_S) == 0
    return producer


async def test_a_transaction_that_times_out_is_aborted_and_its_producer_learns_it(cluster: LocalCluster) -> None:
    """As in Kafka: the coordinator raises the epoch, which is the same as a newer producer to the client."""
    await asyncio.to_thread(cluster.create_topic, "late", PARTITIONS)

    def story() -> None:
        producer = transactional(cluster, "late", **{"transaction.timeout.ms": 1_000})
        producer.begin_transaction()
        producer.produce("late", b"late", partition=0)
        assert producer.flush(WAIT_S) == 0
        consumer = confluent_kafka.Consumer(
            librdkafka(cluster, **{"group.id": "unused", "isolation.level": "read_committed"})
        )
        place = confluent_kafka.TopicPartition("late", 0)
        cluster.wait_until(
            lambda: consumer.get_watermark_offsets(place, WAIT_S)[1] == 2,
            within_s=WAIT_S,
            what="the coordinator has aborted the transaction",
        )
        consumer.close()
        with pytest.raises(KafkaException) as fenced:
            producer.commit_transaction(WAIT_S)
        assert fenced.value.args[0].fatal()

    await asyncio.to_thread(story)
    assert await read_with_tidelog(cluster, "late", "read_committed") == []
    assert await asyncio.to_thread(read_with_librdkafka, cluster, "late", 0, "read_committed") == []


# --- offsets ------------------------------------------------------------------------------------------------------


CLASSIC, KIP_848 = PROTOCOLS = ("classic", "consumer")
"""How a member belongs to its group."""

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def group_reader(cluster: LocalCluster, group: str, topic: str, protocol: str = CLASSIC) -> confluent_kafka.Consumer:
    times = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 100} if protocol == CLASSIC else {}
    consumer = confluent_kafka.Consumer(
        librdkafka(
            cluster,
            **{
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **times,
            },
        )
    )
    consumer.subscribe([topic])
    return consumer


def next_values(consumer: confluent_kafka.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), WAIT_S)
        assert messages, f"{len(found)} of {count} records came"
        for each in messages:
            assert each.error() is None, each.error()
            found.append(each.value() or b"")
    return found


@each_protocol
async def test_offsets_are_committed_with_the_records_or_not_at_all(cluster: LocalCluster, protocol: str) -> None:
    """librdkafka aborts what it has read and written, then commits it; aiokafka continues there, then our client."""
    source_topic, target, group = (f"{each}-{protocol}" for each in ("read", "written", "copiers"))
    for topic in (source_topic, target):
        await asyncio.to_thread(cluster.create_topic, topic, 1)
    values = [b"%d" % number for number in range(30)]

    def story() -> None:
        source = confluent_kafka.Producer(librdkafka(cluster))
        for value in values:
            source.produce(source_topic, value, partition=0)
        assert source.flush(WAIT_S) == 0
        consumer, producer = group_reader(cluster, group, source_topic, protocol), transactional(cluster, group)
        place = confluent_kafka.TopicPartition(source_topic, 0)
        for commits in (False, True):
            producer.begin_transaction()
            for value in next_values(consumer, 10):
                producer.produce(target, value, partition=0)
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
            if commits:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
                assert consumer.committed([place], WAIT_S)[0].offset == confluent_kafka.OFFSET_INVALID
                consumer.seek(confluent_kafka.TopicPartition(source_topic, 0, 0))
        assert consumer.committed([place], WAIT_S)[0].offset == 10
        consumer.close()

    await asyncio.to_thread(story)
    await _copy_with_aiokafka(cluster, source_topic, target, group, 10)
    await _copy_with_tidelog(cluster, source_topic, target, group, 10)
    assert await committed_by(cluster, target, len(values)) == sorted(values)


async def _copy_with_aiokafka(cluster: LocalCluster, source: str, target: str, group: str, count: int) -> None:
    async with (
        aiokafka.AIOKafkaConsumer(
            source, bootstrap_servers=cluster.kafka_bootstrap, group_id=group, enable_auto_commit=False
        ) as consumer,
        aiokafka.AIOKafkaProducer(
            bootstrap_servers=cluster.kafka_bootstrap, transactional_id=f"{group}-aiokafka", retry_backoff_ms=50
        ) as producer,
        producer.transaction(),
    ):
        async with asyncio.timeout(WAIT_S):
            messages = [await consumer.getone() for _ in range(count)]
        for each in messages:
            await producer.send(target, each.value, partition=0)
        place = aiokafka.TopicPartition(source, 0)
        await producer.send_offsets_to_transaction({place: messages[-1].offset + 1}, group)


async def _copy_with_tidelog(cluster: LocalCluster, source: str, target: str, group: str, count: int) -> None:
    async with (
        tidelog.Consumer(cluster.bootstrap, group=group, topics=[source], auto_commit=False) as consumer,
        tidelog.Producer(cluster.bootstrap, transactional_id=f"{group}-tidelog") as producer,
        producer.transaction() as txn,
    ):
        found: list[bytes] = []
        async with asyncio.timeout(WAIT_S):
            while len(found) < count:
                found += [record.value or b"" for record in await consumer.poll(max_records=count - len(found))]
        for value in found:
            await txn.send(target, value, partition=0)
        await txn.send_offsets(consumer)


@each_protocol
async def test_a_member_of_a_former_generation_commits_no_offsets(cluster: LocalCluster, protocol: str) -> None:
    """The group fences it (KIP-447): what it has read may be read by another member by now. It can abort and go on."""
    name = f"generations-{protocol}"
    await asyncio.to_thread(cluster.create_topic, name, 1)

    def story() -> None:
        source = confluent_kafka.Producer(librdkafka(cluster))
        source.produce(name, b"value")
        assert source.flush(WAIT_S) == 0
        former = group_reader(cluster, name, name, protocol)
        next_values(former, 1)
        member = former.consumer_group_metadata()
        positions = former.position(former.assignment())
        former.close()
        producer = transactional(cluster, name)
        producer.begin_transaction()
        producer.produce(name, b"never read")
        current = group_reader(cluster, name, name, protocol)
        next_values(current, 1)
        with pytest.raises(KafkaException) as refused:
            producer.send_offsets_to_transaction(positions, member, WAIT_S)
        assert refused.value.args[0].txn_requires_abort()
        producer.abort_transaction(WAIT_S)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(positions, current.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S)
        assert current.committed(positions, WAIT_S)[0].offset == 1
        current.close()

    await asyncio.to_thread(story)


# --- faults -------------------------------------------------------------------------------------------------------


@dataclass
class Pipeline:
    """librdkafka copies one topic into another, exactly once, in a thread of its own."""

    cluster: LocalCluster
    protocol: str
    name: str
    ends: bool = False
    """Set to end it."""
    copied: int = 0
    """Records whose transaction is committed, as far as the pipeline knows."""
    again: list[str] = field(default_factory=list)
    """Why transactions were aborted."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def run(self) -> None:
        consumer = group_reader(self.cluster, self.name, self.name, self.protocol)
        producer = transactional(self.cluster, self.name)
        while not self.ends:
            messages = [each for each in consumer.consume(20, 0.5) if each.error() is None]
            if not messages:
                continue
            try:
                self._copy(producer, consumer, messages)
            except KafkaException as failure:
                error = failure.args[0]
                self.again.append(str(error))
                assert error.txn_requires_abort(), error
                producer.abort_transaction(WAIT_S)
                _rewind(consumer)
            except _Stuck:
                self.again.append("librdkafka was stuck")
                producer = transactional(self.cluster, self.name)  # it fences the one that is stuck
                _rewind(consumer)
            else:
                with self.changed:
                    self.copied += len(messages)
                    self.changed.notify_all()
        consumer.close()

    def _copy(
        self,
        producer: confluent_kafka.Producer,
        consumer: confluent_kafka.Consumer,
        messages: list[confluent_kafka.Message],
    ) -> None:
        producer.begin_transaction()
        for each in messages:
            producer.produce(f"{self.name}-out", each.value(), partition=each.partition() or 0)
        positions = consumer.position(consumer.assignment())
        _send_offsets(producer, positions, consumer.consumer_group_metadata())
        while True:
            try:
                producer.commit_transaction(WAIT_S)
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise
            else:
                return

    def wait_copied(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.copied >= count, 60), f"stopped at {self.copied}: {self.again}"


class _Stuck(Exception):
    """A call of librdkafka has not returned long after its timeout."""


def _send_offsets(producer: confluent_kafka.Producer, positions: list[Any], group: object) -> None:
    """Send offsets in a thread that may be left behind. If the node that coordinated the group dies between two
    transactions, librdkafka 2.16 waits for it for some minutes, whatever the timeout (its issues 5511 and 5456): it has
    forgotten the node and still knows it as the coordinator."""
    failures: list[KafkaException] = []

    def send() -> None:
        try:
            producer.send_offsets_to_transaction(positions, group, WAIT_S)
        except KafkaException as failure:
            failures.append(failure)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(WAIT_S + 5)
    if sending.is_alive():
        raise _Stuck
    if failures:
        raise failures[0]


def _rewind(consumer: confluent_kafka.Consumer) -> None:
    """Read again what was read in a transaction that was aborted."""
    for each in consumer.committed(consumer.assignment(), WAIT_S):
        consumer.seek(confluent_kafka.TopicPartition(each.topic, each.partition, max(each.offset, 0)))


def coordinator_of(cluster: LocalCluster, topic: str, key: str) -> int:
    """The node that coordinates a group or transactional id."""
    node = next(node.node_id for node in cluster.nodes if node.running)
    (state,) = cluster.metadata(node, topic).topics
    return int(state.partitions[partition_of(key, len(state.partitions))].leader)


@pytest.mark.deep
@each_protocol
async def test_a_pipeline_is_exactly_once_while_the_nodes_that_coordinate_it_are_killed(
    cluster: LocalCluster, protocol: str
) -> None:
    """The node of the transactional id first, then that of the group; each in the middle of transactions, and waited
    for until it has caught up: that takes most of the time. `make test` has transactions under faults of our client."""
    name = f"piped-{protocol}"
    for topic in (name, f"{name}-out"):
        await asyncio.to_thread(cluster.create_topic, topic, PARTITIONS, min_insync_replicas="2")
    values = [b"%d" % number for number in range(1_200)]
    pipeline = Pipeline(cluster, protocol, name)

    def story() -> None:
        source = confluent_kafka.Producer(librdkafka(cluster, **{"enable.idempotence": True}))
        for internal, first in (("__transaction_state", 0), ("__consumer_offsets", 600)):
            for number in range(first, first + 600):
                source.produce(name, values[number], partition=number % PARTITIONS)
            assert source.flush(WAIT_S) == 0
            pipeline.wait_copied(first + 200)
            victim = coordinator_of(cluster, internal, name)
            cluster.kill(victim)
            pipeline.wait_copied(first + 600)
            cluster.start_node(victim)
            cluster.wait_healthy(60)

    def ended_story() -> None:
        try:
            story()
        finally:
            pipeline.ends = True

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.to_thread(pipeline.run))
        tasks.create_task(asyncio.to_thread(ended_story))
    copied = Counter(await seen_by_all(cluster, f"{name}-out", len(values), "read_committed"))
    assert Counter(values) - copied == Counter(), "records were lost"
    assert copied - Counter(values) == Counter(), "records were copied twice"
