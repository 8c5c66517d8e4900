"""A topic whose history is in S3, at three real nodes and a real S3 server, both of which are killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from node.process.local_cluster import LocalCluster
from tests.integration.tiered_cluster import START_S, create_tiered_topic, tiering_settings
from tests.tiering.s3_gateway import BUCKET, S3Gateway, running_gateway
from tidelog import Consumer, Producer
from tidelog.errors import TransactionAborted

pytestmark = pytest.mark.integration

TOPIC, PARTITIONS = "orders", 2
PLACES = [(TOPIC, partition) for partition in range(PARTITIONS)]
SEGMENT_BYTES = 50_000
RECORD_BYTES = 1_000
IN_TRANSACTION = 10
"""Records of a transaction. Every third one is aborted."""
WAIT_S = 30.0


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[S3Gateway]:
    with running_gateway(tmp_path / "s3") as gateway:
        yield gateway


@pytest.fixture
def cluster(tmp_path: Path, gateway: S3Gateway) -> Iterator[LocalCluster]:
    """Three nodes, and a topic whose copied segments leave the nodes at once."""
    settings = {
        **tiering_settings(f"s3://{BUCKET}/tide"),
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 2,
        "remote.log.cache.max.bytes": 1 << 20,  # less than the history: readers need the store
        "broker.session.timeout.ms": 4_000,
    }
    home = tmp_path / "nodes"
    with LocalCluster(home, settings=settings, environment=gateway.environment(), kafka=True) as cluster:
        create_tiered_topic(cluster, TOPIC, PARTITIONS, segment_bytes=SEGMENT_BYTES)
        yield cluster


def leader(cluster: LocalCluster, partition: int) -> int:
    running = next(node for node in cluster.nodes if node.running)
    (topic,) = cluster.metadata(running.node_id, TOPIC).topics
    return int(topic.partitions[partition].leader)


# --- who writes ---------------------------------------------------------------------------------------------------


@dataclass
class Writer:
    """What one producer has sent to one partition: a transaction, or what it flushes at once, after the other."""

    name: str
    partition: int
    bootstrap: str
    sent: list[tuple[range, bool]] = field(default_factory=list)
    """The numbers of the records of each, and whether they were committed."""
    ends: bool = False
    """Set to end it."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def values(self) -> tuple[range, list[bytes]]:
        """The next records."""
        first = self.sent[-1][0].stop if self.sent else 0
        numbers = range(first, first + IN_TRANSACTION)
        return numbers, [f"{self.name}-{number}-".encode().ljust(RECORD_BYTES, b".") for number in numbers]

    @property
    def committed(self) -> list[int]:
        return [number for numbers, is_committed in self.sent if is_committed for number in numbers]

    async def run(self) -> None:
        raise NotImplementedError

    async def until_more(self, count: int) -> None:
        """Until so many further records are committed."""
        goal = len(self.committed) + count
        async with asyncio.timeout(120):
            while len(self.committed) < goal:
                self._changed.clear()
                await self._changed.wait()

    def ended(self, numbers: range, *, is_committed: bool) -> None:
        self.sent.append((numbers, is_committed))
        self._changed.set()


class IdempotentWriter(Writer):
    async def run(self) -> None:
        async with Producer(self.bootstrap, acks="all", delivery_timeout_ms=120_000) as producer:
            while not self.ends:
                numbers, values = self.values()
                await asyncio.gather(*[producer.send(TOPIC, value, partition=self.partition) for value in values])
                self.ended(numbers, is_committed=True)
                await asyncio.sleep(0.1)  # the nodes share these cores


class TransactionalWriter(Writer):
    async def run(self) -> None:
        async with Producer(self.bootstrap, transactional_id=self.name) as producer:
            while not self.ends:
                numbers, values = self.values()
                commits = len(self.sent) % 3 != 2
                try:
                    async with producer.transaction() as txn:
                        for value in values:
                            await txn.enqueue(TOPIC, value, partition=self.partition)
                        if not commits:
                            await producer.flush()
                            raise LookupError("the application gives up")
                except (LookupError, TransactionAborted):
                    self.ended(numbers, is_committed=False)
                else:
                    self.ended(numbers, is_committed=True)


class KafkaWriter(Writer):
    """librdkafka, unmodified, in a thread."""

    async def run(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": self.name, "linger.ms": 2, "log_level": 0}
        )
        await asyncio.to_thread(producer.init_transactions, WAIT_S)
        while not self.ends:
            numbers, values = self.values()
            commits = len(self.sent) % 3 != 2
            is_committed = await asyncio.to_thread(self._transaction, producer, values, commits=commits)
            self.ended(numbers, is_committed=is_committed)

    def _transaction(self, producer: confluent_kafka.Producer, values: list[bytes], *, commits: bool) -> bool:
        """Returns True if it was committed."""
        producer.begin_transaction()
        try:
            for value in values:
                producer.produce(TOPIC, value, partition=self.partition)
            producer.flush(WAIT_S)  # otherwise an abort drops them before they are sent
            if commits:
                self._repeated(producer.commit_transaction)
                return True
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
        self._repeated(producer.abort_transaction)
        return False

    @staticmethod
    def _repeated(end: Callable[[float], None]) -> None:
        while True:
            try:
                end(WAIT_S)
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise
            else:
                return


@asynccontextmanager
async def writing(*writers: Writer) -> AsyncIterator[None]:
    """While the block runs; leaving it waits for their last outcome."""
    async with asyncio.TaskGroup() as tasks:
        for writer in writers:
            tasks.create_task(writer.run())
        try:
            yield
        finally:
            for writer in writers:
                writer.ends = True


# --- who reads ----------------------------------------------------------------------------------------------------

Values = list[tuple[int, bytes]]
"""Partition and value, in the order of reading."""


def ensure_exact(values: Values, writers: Sequence[Writer]) -> None:
    """Each writer's committed records were read once and in order, and nothing else."""
    found: dict[str, list[int]] = {writer.name: [] for writer in writers}
    partitions = {writer.name: writer.partition for writer in writers}
    for partition, value in values:
        name, number, _ = value.decode().split("-", 2)
        assert partition == partitions[name]
        found[name].append(int(number))
    for writer in writers:
        read = found[writer.name]
        assert read == sorted(set(read)), f"{writer.name}: read twice, or out of order"
        lost = sorted({*writer.committed} - {*read})
        assert not lost, f"{writer.name}: {len(lost)} of {len(writer.committed)} records were lost: {lost[:20]}"
        assert {*read} <= {*writer.committed}, f"{writer.name}: records of aborted transactions were read"


class OurReader:
    """Small buffers, so that it needs the store all the time."""

    def __init__(self, consumer: Consumer) -> None:
        self.values: Values = []
        self._consumer = consumer

    async def read(self, count: int) -> None:
        """Until there are so many, from the first one on."""
        async with asyncio.timeout(120):
            while len(self.values) < count:
                await self._poll()

    async def read_rest(self) -> None:
        """Up to the present end."""
        ends = await self._consumer.end_offsets(PLACES)
        async with asyncio.timeout(120):
            while any([await self._consumer.position(place) < end for place, end in ends.items()]):
                await self._poll()

    async def _poll(self) -> None:
        records = await self._consumer.poll(max_records=20, timeout=0.5)
        self.values += [(int(each.partition), each.value or b"") for each in records]


class KafkaReader:
    """librdkafka, with small buffers likewise."""

    def __init__(self, consumer: confluent_kafka.Consumer) -> None:
        self.values: Values = []
        self._ended: set[int] = set()
        self._consumer = consumer

    async def read(self, count: int) -> None:
        await asyncio.to_thread(self._read, lambda: len(self.values) >= count)

    async def read_rest(self) -> None:
        await asyncio.to_thread(self._read, lambda: len(self._ended) == PARTITIONS)

    def _read(self, is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            message = self._consumer.poll(120)
            assert message is not None, f"{len(self.values)} records came"
            error, partition = message.error(), message.partition() or 0
            if error is None:
                self._ended.discard(partition)
                self.values.append((partition, message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(partition)
            else:
                assert error.retriable() or error.code() == KafkaError._TRANSPORT, error


Readers = tuple[OurReader, KafkaReader]


@asynccontextmanager
async def reading(cluster: LocalCluster) -> AsyncIterator[Readers]:
    """One of each, at the first record."""
    kafka = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 30_000,
            "queued.max.messages.kbytes": 60,
            "log_level": 0,
        }
    )
    kafka.assign([confluent_kafka.TopicPartition(*place, 0) for place in PLACES])
    try:
        async with Consumer(
            cluster.bootstrap, isolation="read_committed", fetch_bytes=30_000, buffer_bytes=60_000
        ) as ours:
            ours.assign(PLACES)
            yield OurReader(ours), KafkaReader(kafka)
    finally:
        await asyncio.to_thread(kafka.close)


async def together(reads: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*reads)


async def ensure_all_is_there(cluster: LocalCluster, writers: Sequence[Writer]) -> None:
    async with reading(cluster) as readers:
        await together(reader.read(sum(len(writer.committed) for writer in writers)) for reader in readers)
        await together(reader.read_rest() for reader in readers)
        for reader in readers:
            ensure_exact(reader.values, writers)


# --- the story ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def without(cluster: LocalCluster, gateway: S3Gateway, *victims: str) -> AsyncIterator[None]:
    """The victims are killed, and started again behind the block."""
    killed = leader(cluster, 0) if "leader" in victims else None
    if killed is not None:
        await asyncio.to_thread(cluster.kill, killed)
    if "store" in victims:
        gateway.kill()
    yield
    if "store" in victims:
        gateway.start()
    if killed is not None:
        cluster.start_node(killed)
    await asyncio.to_thread(cluster.wait_healthy, START_S)


def objects(gateway: S3Gateway) -> list[str]:
    """Start offsets of the objects of segments, with their partitions."""
    return [
        f"{file.parent.name}/{file.name[:20]}" for file in gateway.bucket.glob("tide/**/*.segment") if file.is_file()
    ]


def more_than(gateway: S3Gateway, count: int) -> Callable[[], bool]:
    return lambda: len(objects(gateway)) > count


def all_left(cluster: LocalCluster) -> bool:
    """True once every node has less than two closed segments of each partition."""
    folders = [node.data / f"{TOPIC}-{partition}" for node in cluster.nodes for partition in range(PARTITIONS)]
    return all(len([*folder.glob("*.log")]) <= 2 for folder in folders)


FAULTS: tuple[tuple[str, ...], ...] = (("leader",), ("store",), ("leader", "store"))


@pytest.mark.deep
async def test_leaders_and_the_store_are_killed_while_history_is_written_and_read(
    cluster: LocalCluster, gateway: S3Gateway
) -> None:
    """Goal: with history in S3 nothing is lost, read twice or out of order, and no record of an aborted transaction is
    read, whatever is killed. Method: three producers (idempotent, transactional, and librdkafka's transactional one)
    write small segments; the leader, the S3 server, and both are killed while segments are copied, and started again.
    Then, with the segments gone from the nodes, our client and librdkafka read from the first record on while the same
    are killed. Passed: both have exactly the committed records, in order, as have readers that begin afterwards; every
    segment has one object."""
    writers = (
        IdempotentWriter("idempotent", 0, cluster.bootstrap),
        TransactionalWriter("transactional", 0, cluster.bootstrap),
        KafkaWriter("librdkafka", 1, cluster.kafka_bootstrap),
    )
    async with writing(*writers):
        for victims in FAULTS:
            await until(cluster, more_than(gateway, len(objects(gateway))), "a segment is being copied")
            async with without(cluster, gateway, *victims):
                for writer in writers:  # whether there is a store or not
                    await writer.until_more(3 * IN_TRANSACTION)
    await ensure_all_is_there(cluster, writers)
    await until(cluster, lambda: all_left(cluster), "copied segments leave the nodes")

    total = sum(len(writer.committed) for writer in writers)
    async with reading(cluster) as readers:
        for number, victims in enumerate(FAULTS):
            await together(reader.read(total * (2 * number + 1) // 7) for reader in readers)
            async with without(cluster, gateway, *victims):
                if "store" not in victims:
                    await together(reader.read(total * (2 * number + 2) // 7) for reader in readers)
        await together(reader.read_rest() for reader in readers)
        for reader in readers:
            ensure_exact(reader.values, writers)
    await ensure_all_is_there(cluster, writers)
    await until(cluster, lambda: len(objects(gateway)) == len({*objects(gateway)}), "failed copies are removed")


async def until(cluster: LocalCluster, reached: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(cluster.wait_until, reached, within_s=START_S, what=what)
