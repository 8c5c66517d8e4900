"""A Kafka broker started on logs of ours recovers them and serves the same records, times and transactions."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from storage.checkpoints.checkpoint_file import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    encode_offsets,
    read_offsets,
)
from storage.checkpoints.directory_identity import CLEAN_SHUTDOWN
from storage.directory.log_directory import LogDirectory
from storage.files.os_files import OsFiles
from storage.log.log import Log
from tests.interop.clients import (
    console_records,
    kafka_ends,
    kafka_records,
    kafka_times,
    our_ends,
    our_records,
    our_times,
)
from tests.interop.kafka_broker import Broker
from tests.interop.our_logs import KINDS, World, open_world, write_all
from tests.storage.workbench import SetClock
from tidelog.types import Isolation, PartitionIndex, TopicPartition

pytestmark = pytest.mark.interop

BY_CONSOLE = {"v0-lz4", "upgraded"}
"""What only Kafka's own client can read."""
DERIVED = (".log", ".index", ".timeindex", ".txnindex")


class Theatre:
    """A stopped broker whose topics await our logs, and our logs, written for these topics' ids."""

    def __init__(self, home: Path) -> None:
        self.now = int(time.time() * 1000) - 3_600_000
        self.ours, self.left = home / "ours", home / "left"
        self.topics = sorted(KINDS)
        self.broker = Broker(home)
        self.broker.start()
        ids = self.broker.create_topics({topic: _settings(topic) for topic in self.topics})
        self.broker.stop()
        self.world = self._write(ids)

    def _write(self, ids: dict[str, UUID]) -> World:
        world = open_world(self.ours, now=self.now, topic_ids=ids)
        write_all(world)
        shutil.copytree(self.ours, self.left)
        world.directory.close_clean()
        return world

    def lay(self, *, recover: bool) -> None:
        """Put our partition directories in place of the broker's. recover: as a killed node leaves them, so that it
        reads all; else as a clean stop does, so that it believes our indexes, snapshots and recovery points."""
        for topic in self.topics:
            target = self.broker.directory / f"{topic}-0"
            shutil.rmtree(target)
            shutil.copytree((self.left if recover else self.ours) / f"{topic}-0", target)
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
            self._join(name, forget=recover and name == RECOVERY_POINT_CHECKPOINT)
        marker = self.broker.directory / CLEAN_SHUTDOWN
        if recover:
            marker.unlink()
        else:
            assert marker.exists()

    def _join(self, name: str, *, forget: bool) -> None:
        """A checkpoint of the broker's, with the lines of ours; forget: without any of these topics."""
        lines = read_offsets(OsFiles(), str(self.broker.directory / name))
        lines = {tp: offset for tp, offset in lines.items() if tp.topic not in self.topics}
        if not forget:
            lines |= read_offsets(OsFiles(), str(self.ours / name))
        (self.broker.directory / name).write_bytes(encode_offsets(lines))

    def open(self, root: Path) -> tuple[LogDirectory, dict[str, Log]]:
        """Our logs of these topics, as we open them from a copy."""
        directory = LogDirectory(
            str(root), files=OsFiles(), clock=SetClock(int(time.time() * 1000)), rng=random.Random(1)
        )
        wanted = [TopicPartition(topic, PartitionIndex(0)) for topic in self.topics]
        logs = directory.load_logs(lambda tp, _id: self.world.configs[tp.topic], only=wanted.__contains__)
        for log in logs.values():
            log.advance_high_watermark(log.log_end_offset)
        return directory, {tp.topic: log for tp, log in logs.items()}


def _settings(topic: str) -> dict[str, str]:
    """What of a topic's settings Kafka must know to serve it, and to rebuild its indexes as they were."""
    settings = {"internal.segment.bytes": "8000", "index.interval.bytes": "300", "segment.index.bytes": "1000"}
    if topic == "index-full":
        settings |= {"index.interval.bytes": "10", "segment.index.bytes": "60"}
    elif topic == "defaults":
        settings = {}
    elif topic.startswith("append-time"):
        settings["message.timestamp.type"] = "LogAppendTime"
    elif topic.startswith("compacted"):
        settings["cleanup.policy"] = "compact"
    return settings


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    made = Theatre(tmp_path_factory.mktemp("theatre"))
    yield made
    made.broker.kill()


def compare(theatre: Theatre, logs: dict[str, Log]) -> None:
    """The running broker and our logs: the same records for both isolation levels, the same ends, the same times."""
    address, topics = theatre.broker.address, theatre.topics
    for isolation in Isolation:
        served = kafka_records(address, [topic for topic in topics if topic not in BY_CONSOLE], isolation)
        for topic, records in served.items():
            assert records == our_records(logs[topic], isolation), (topic, isolation)
    for topic in BY_CONSOLE:
        ours = our_records(logs[topic], Isolation.READ_UNCOMMITTED)
        assert console_records(address, topic, len(ours)) == ours, topic
    ends = kafka_ends(address, topics)
    for topic in topics:
        assert ends[topic] == our_ends(logs[topic]), topic
    asked = {topic: times(logs[topic]) for topic in topics if logs[topic].log_end_offset}
    answered = kafka_times(address, asked)
    for topic, timestamps in asked.items():
        ours_then = our_times(logs[topic], timestamps)
        if topic.startswith("compacted"):  # Kafka says "none" where an empty batch still has the largest timestamp
            ours_then = [ours if kafkas else None for ours, kafkas in zip(ours_then, answered[topic], strict=True)]
        assert answered[topic] == ours_then, topic


def times(log: Log) -> list[int]:
    """Times to ask for: at, before and behind some of its records."""
    rng = random.Random(log.log_end_offset)
    seen = sorted({seen.timestamp for seen in our_records(log, Isolation.READ_UNCOMMITTED)})
    chosen = rng.sample(seen, min(len(seen), 10))
    return [moment for at in chosen for moment in (at, at + 1) if moment >= 0] + [seen[-1] + 1 if seen else 1]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("recover", [True, False], ids=["after an unclean stop", "after a clean stop"])
def test_kafka_serves_our_directories(theatre: Theatre, recover: bool, tmp_path: Path) -> None:
    shutil.copytree(theatre.ours, tmp_path / "ours")
    directory, logs = theatre.open(tmp_path / "ours")
    theatre.lay(recover=recover)
    theatre.broker.start()
    try:
        compare(theatre, logs)
        assert [line for line in theatre.broker.complaints() if concerns(theatre, line, recover=recover)] == []
    finally:
        theatre.broker.stop()
        directory.close()
    for topic in theatre.topics:
        same_bytes(theatre, topic)


def concerns(theatre: Theatre, line: str, *, recover: bool) -> bool:
    """Is the line of the broker's log about one of our logs? That it cuts the zeros of a preallocated one is right."""
    expected = {"preallocated"} if recover else set()
    return any(f"{topic}-0" in line for topic in theatre.topics if topic not in expected)


def same_bytes(theatre: Theatre, topic: str) -> None:
    """What the broker has left is what our own clean stop left: the batches, and all indexes, rebuilt by it or not."""
    rebuilt, written = (derived(directory / f"{topic}-0") for directory in (theatre.broker.directory, theatre.ours))
    assert sorted(rebuilt) == sorted(written), topic
    for name, data in written.items():
        if topic == "compacted-txn" and name.endswith(".txnindex"):
            continue  # the cleaner keeps the entry of a transaction for one round longer than its records
        assert rebuilt[name] == data, f"{topic}/{name}"


def derived(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in DERIVED}
