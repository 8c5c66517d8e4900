"""A log directory of a Kafka broker is opened by Tidelog, copied while the broker runs and after its clean stop.
Records, timestamps, transactions and producers are those that the broker reports."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from kafka import TopicPartition as KafkaPartition
from kafka.admin import KafkaAdminClient

from storage.directory.log_directory import LogDirectory
from storage.files.os_files import OsFiles
from storage.log.log import Log
from storage.log_config import LogConfig
from tests.interop.clients import Ends, Seen, kafka_ends, kafka_records, kafka_times, our_ends, our_records, our_times
from tests.interop.kafka_broker import Broker
from tests.storage.dumped import damage, events
from tests.storage.workbench import SetClock
from tidelog.types import Isolation, PartitionIndex, TopicPartition

pytestmark = pytest.mark.interop

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
SMALL = {"internal.segment.bytes": "6000", "index.interval.bytes": "300"}
TOPICS: dict[str, dict[str, str]] = {
    **{f"codec-{codec or 'none'}": SMALL for codec in CODECS},
    "stamped": {**SMALL, "message.timestamp.type": "LogAppendTime"},
    "recompressed": {**SMALL, "compression.type": "zstd"},
    "idempotent": SMALL,
    "txn": SMALL,
    "trimmed": SMALL,
    "defaults": {},
}


class Answers:
    """What the running broker reports about its logs."""

    def __init__(self, address: str) -> None:
        self.records: dict[Isolation, dict[str, list[Seen]]] = {
            isolation: kafka_records(address, TOPICS, isolation) for isolation in Isolation
        }
        self.ends: dict[str, Ends] = kafka_ends(address, TOPICS)
        seen = {topic: [seen.timestamp for seen in self.records[Isolation(0)][topic]] for topic in TOPICS}
        self.asked = {topic: [min(times), *times[::17], max(times) + 1] for topic, times in seen.items()}
        self.times = kafka_times(address, self.asked)
        self.producers = _producers(address)


def _producers(address: str) -> dict[str, set[tuple[int, ...]]]:
    """DescribeProducers: id, epoch, last sequence, first offset of the open transaction."""
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        found = admin.describe_producers([KafkaPartition(topic, 0) for topic in ("idempotent", "txn")])
    finally:
        admin.close()
    return {
        partition.topic: {
            (
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                -1 if producer.current_transaction_start_offset is None else producer.current_transaction_start_offset,
            )
            for producer in state.active_producers
        }
        for partition, state in found.items()
    }


async def write(address: str, now: int) -> None:
    """Records in every topic, by plain, idempotent and transactional producers."""
    rng = random.Random(3)
    for topic in TOPICS:
        codec = topic.removeprefix("codec-") if topic.startswith("codec-") else rng.choice(("gzip", "lz4"))
        producer = AIOKafkaProducer(
            bootstrap_servers=address,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=topic == "idempotent",
            linger_ms=2,
        )
        await producer.start()
        try:
            if topic != "txn":
                await send(producer, topic, rng, now, 120)
        finally:
            await producer.stop()
    await write_transactions(address, rng, now)


async def send(producer: AIOKafkaProducer, topic: str, rng: random.Random, now: int, count: int) -> None:
    for number in range(count):
        key = rng.choice((None, b"", b"key-%d" % rng.randrange(20)))
        value = rng.choice((None if key else b"", rng.randbytes(rng.randrange(120))))
        headers = [("kind", b"v"), ("kind", b"")] if rng.random() < 0.2 else None
        sent = producer.send(topic, value, key, partition=0, timestamp_ms=now + number * 50, headers=headers)
        await (await sent if rng.random() < 0.15 else sent)


async def write_transactions(address: str, rng: random.Random, now: int) -> None:
    """Three producers in turn; some of their transactions are aborted, and the last one stays open."""
    producers = [
        AIOKafkaProducer(bootstrap_servers=address, transactional_id=f"t{number}", transaction_timeout_ms=600_000)
        for number in range(3)
    ]
    for producer in producers:
        await producer.start()
    try:
        for turn in range(15):
            producer = producers[turn % 3]
            await producer.begin_transaction()
            await send(producer, "txn", rng, now + turn * 1_000, rng.randrange(1, 12))
            await (producer.abort_transaction() if rng.random() < 0.4 else producer.commit_transaction())
        await producers[0].begin_transaction()
        await (await producers[0].send("txn", b"undecided", partition=0))
    finally:
        for producer in producers:  # the coordinator is not informed
            await producer.stop()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Answers]]:
    """A running broker with records, and its answers about them."""
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    try:
        broker.create_topics(TOPICS)
        asyncio.run(write(broker.address, int(time.time() * 1000) - 600_000))
        admin = KafkaAdminClient(bootstrap_servers=broker.address)
        admin.delete_records({KafkaPartition("trimmed", 0): 61})
        admin.close()
        broker.wait_for_log_start("trimmed")
        yield broker, Answers(broker.address)
    finally:
        broker.kill()


def opened(root: Path) -> tuple[LogDirectory, dict[str, Log]]:
    """The logs of our topics in a copy of the broker's directory."""
    directory = LogDirectory(str(root), files=OsFiles(), clock=SetClock(int(time.time() * 1000)), rng=random.Random(1))

    def config_of(tp: TopicPartition, _: object) -> LogConfig:
        settings = {"segment.bytes" if name.startswith("internal") else name: v for name, v in TOPICS[tp.topic].items()}
        return LogConfig.from_topic(settings)

    partitions = {TopicPartition(topic, PartitionIndex(0)) for topic in TOPICS}
    logs = directory.load_logs(config_of, only=partitions.__contains__)
    for log in logs.values():
        log.advance_high_watermark(log.log_end_offset)
    return directory, {tp.topic: log for tp, log in logs.items()}


def compare(logs: dict[str, Log], kafka: Answers) -> None:
    for topic, log in logs.items():
        assert log.damage is None, topic
        for isolation in Isolation:
            assert our_records(log, isolation) == kafka.records[isolation][topic], (topic, isolation)
        assert our_ends(log) == kafka.ends[topic], topic
        assert our_times(log, kafka.asked[topic]) == kafka.times[topic], topic
        if topic in kafka.producers:
            ours = {
                (int(each.producer_id), each.epoch, each.last_sequence, int(each.transaction_start))
                for each in log.producers.state.active_producers()
            }
            assert ours == kafka.producers[topic], topic


def test_a_copy_of_the_running_brokers_directory_reads_the_same(stage: tuple[Broker, Answers], tmp_path: Path) -> None:
    """The copy is as a SIGKILL leaves it, and is recovered. The dump reads the directory while the broker writes."""
    broker, answers = stage
    assert damage(events(broker.directory)) == []
    copy = tmp_path / "copy"
    shutil.copytree(broker.directory, copy, ignore=shutil.ignore_patterns("*.tmp"))  # the broker renames them meanwhile
    directory, logs = opened(copy)
    assert not directory.identity.was_clean
    compare(logs, answers)
    directory.close()


def test_after_its_clean_stop_it_reads_the_same(stage: tuple[Broker, Answers], tmp_path: Path) -> None:
    """Kafka's indexes and snapshots are used as they are. Then Kafka opens the directory again after our clean stop."""
    broker, answers = stage
    broker.stop()
    assert damage(events(broker.directory)) == []
    directory, logs = opened(broker.directory)
    assert directory.identity.was_clean
    assert [note for note in directory.notes if "__" not in note] == []
    compare(logs, answers)
    directory.close_clean()

    broker.start()
    again = Answers(broker.address)
    assert again.records == answers.records
    assert again.times == answers.times
    assert {topic: ends[:3] for topic, ends in again.ends.items()} == {
        topic: ends[:3] for topic, ends in answers.ends.items()
    }
