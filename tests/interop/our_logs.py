"""A log directory written by Tidelog, with one log of every kind that Kafka has to read.

It is written with the calls of a node: `Log.append` as leader or follower, rolls, truncation, deletion, flushes, with
or without a clean stop. Keys and values are printable, because Kafka's tool prints them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from storage.append_info import Origin
from storage.directory.log_cleaner import LogCleaner
from storage.directory.log_directory import LogDirectory
from storage.files.os_files import OsFiles
from storage.log.log import Log
from storage.log_config import LogConfig
from tests.fakes.log_start import delete_old_segments, delete_records
from tests.storage.workbench import SetClock
from tidelog.records import EndTxnMarker, RecordBatchBuilder, control_batch
from tidelog.records.legacy.message_builder import MessageSetBuilder
from tidelog.types import Codec, LeaderEpoch, Millis, Offset, PartitionIndex, TimestampType, TopicId, TopicPartition

SMALL = LogConfig(segment_bytes=8_000, index_interval_bytes=300, segment_index_bytes=1_000)
ALL_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
OLD_CODECS = ALL_CODECS[:-1]
WORDS = ("amber", "birch", "copper", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper")


@dataclass
class World:
    """The log directory while it is written. topic_ids: ids that a broker assigned; other topics get random ones."""

    directory: LogDirectory
    clock: SetClock
    rng: random.Random
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    configs: dict[str, LogConfig] = field(default_factory=dict)

    def create(self, topic: str, config: LogConfig = SMALL) -> Log:
        """A new log, partition 0 of this topic."""
        self.configs[topic] = config
        topic_id = self.topic_ids.get(topic) or UUID(int=self.rng.getrandbits(128), version=4)
        return self.directory.create_log(TopicPartition(topic, PartitionIndex(0)), TopicId(topic_id), config)

    def records(self, count: int) -> Iterator[tuple[bytes | None, bytes | None, int]]:
        """Keys, values and timestamps, with nulls, empty ones and some out of order."""
        for _ in range(count):
            self.clock.now += self.rng.randrange(1, 40)
            key = self.rng.choice((None, b"", b"key-%d" % self.rng.randrange(50)))
            size = self.rng.choice((1, 3, 10, 40))
            value = self.rng.choice((None, b"", *[" ".join(self.rng.choices(WORDS, k=size)).encode()] * 5))
            yield key, value, self.clock.now - (500 if self.rng.random() < 0.1 else 0)

    def keyed(self, count: int, codec: Codec = Codec.NONE, **fields: int | bool) -> bytes:
        """A v2 batch whose records all have one of a few keys; a tenth of them are tombstones."""
        builder = RecordBatchBuilder(codec, **fields)  # type: ignore[arg-type]
        for _, value, timestamp in self.records(count):
            key = b"key-%d" % self.rng.randrange(30)
            builder.append(key=key, value=None if self.rng.random() < 0.1 else value or b"", timestamp=timestamp)
        return builder.build()

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Headers of a record, mostly none; names may repeat or be empty."""
        if self.rng.random() < 0.7:
            return []
        return [(self.rng.choice(("trace", "kind", "", "größe")), self.rng.choice((None, b"", b"v")))] * 2

    def batch(self, count: int, codec: Codec = Codec.NONE, **fields: int | bool) -> bytes:
        """A producer's v2 batch of so many records."""
        builder = RecordBatchBuilder(codec, **fields)  # type: ignore[arg-type]
        for key, value, timestamp in self.records(count):
            builder.append(key=key, value=value, timestamp=Millis(timestamp), headers=self.headers())
        return builder.build()

    def messages(self, count: int, magic: int, codec: Codec) -> bytes:
        """A producer's v0 or v1 message set, a wrapper where it is compressed."""
        builder = MessageSetBuilder(magic, codec)
        for key, value, timestamp in self.records(count):
            builder.append(key=key, value=value, timestamp=timestamp)
        return builder.build()

    def lead(self, log: Log, data: bytes, epoch: int = 0, origin: Origin = Origin.CLIENT) -> int:
        """Append as leader. Returns the first offset."""
        info = log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(epoch), origin=origin)
        log.advance_high_watermark(log.log_end_offset)
        return info.first_offset

    def fill(self, log: Log, codecs: Iterable[Codec] = (Codec.NONE,), batches: int = 30, epoch: int = 0) -> None:
        """Append batches in these codecs in turn."""
        codecs = tuple(codecs)
        for number in range(batches):
            self.lead(log, self.batch(self.rng.randrange(1, 8), codecs[number % len(codecs)]), epoch)


Kind = Callable[[World, str], None]
"""Writes the log of this topic."""


def codec_kind(codec: Codec) -> Kind:
    """Batches that a producer has compressed, over several segments."""

    def write(world: World, topic: str) -> None:
        world.fill(world.create(topic), [codec])

    return write


def recompressed_kind(codec: Codec) -> Kind:
    """`compression.type`: batches of all codecs, compressed again by the leader."""

    def write(world: World, topic: str) -> None:
        world.fill(world.create(topic, replace(SMALL, codec=codec)), ALL_CODECS)

    return write


def append_time_kind(codec: Codec) -> Kind:
    """`message.timestamp.type=LogAppendTime`."""

    def write(world: World, topic: str) -> None:
        config = replace(SMALL, timestamp_type=TimestampType.LOG_APPEND_TIME)
        world.fill(world.create(topic, config), [codec])

    return write


def old_format_kind(magic: int, codec: Codec) -> Kind:
    """`message.format` v0 or v1, from producers of that format."""

    def write(world: World, topic: str) -> None:
        log = world.create(topic, replace(SMALL, magic=magic))
        for _ in range(25):
            world.lead(log, world.messages(world.rng.randrange(1, 7), magic, codec))

    return write


def converted(world: World, topic: str) -> None:
    """One log in v0, v1 and v2, one after another. The producers send v2, and the leader converts."""
    log = world.create(topic)
    for magic in (0, 1, 2, 1):
        log.reconfigure(replace(SMALL, magic=magic))
        for number in range(12):
            codec = OLD_CODECS[number % len(OLD_CODECS)]
            builder = RecordBatchBuilder(codec)
            for key, value, timestamp in world.records(3):
                builder.append(key=key, value=value, timestamp=Millis(timestamp))
            world.lead(log, builder.build())


def epochs(world: World, topic: str) -> None:
    """Two leader epochs. The end of the second one is truncated and written again."""
    log = world.create(topic)
    for epoch in (0, 1):
        world.fill(log, batches=12, epoch=epoch)
    log.truncate_to(Offset(log.log_end_offset - 5))
    world.fill(log, batches=8, epoch=1)


def followed(world: World, topic: str) -> None:
    """The log of a follower: several batches in one append, with holes between them."""
    log = world.create(topic)
    offset = 0
    for _ in range(12):
        sent = []
        for _ in range(3):
            builder = RecordBatchBuilder(Codec.LZ4, base_offset=offset, leader_epoch=0)
            for key, value, timestamp in world.records(4):
                builder.append(key=key, value=value, timestamp=Millis(timestamp))
            sent.append(builder.build())
            offset += 4 + world.rng.choice((0, 0, 0, 7))
        log.append(b"".join(sent), assign_offsets=False, leader_epoch=LeaderEpoch(0))
    log.advance_high_watermark(log.log_end_offset)


def by_time(world: World, topic: str) -> None:
    """Rolled by record time, with timestamps that jump."""
    log = world.create(topic, replace(SMALL, segment_ms=10_000))
    for _ in range(20):
        world.clock.now += world.rng.choice((10, 8_000))
        world.lead(log, world.batch(3))


def index_full(world: World, topic: str) -> None:
    """Rolled because an index is full."""
    world.fill(world.create(topic, replace(SMALL, index_interval_bytes=10, segment_index_bytes=60)))


def default_interval(world: World, topic: str) -> None:
    """Kafka's default settings."""
    world.fill(world.create(topic, LogConfig()), ALL_CODECS, batches=60)


def trimmed(world: World, topic: str) -> None:
    """Records deleted up to the middle of a batch: the log starts inside a segment."""
    log = world.create(topic)
    for _ in range(30):
        world.lead(log, world.batch(5))
    delete_records(log, Offset(82))


class Producer:
    """A producer with an id. It numbers its batches. `open`: it has an open transaction."""

    def __init__(self, world: World, log: Log, number: int) -> None:
        self._world, self._log, self._number = world, log, number
        self._epoch, self._sequence = 0, 0
        self.open = False

    def send(self, codec: Codec = Codec.NONE, *, transactional: bool = False, keys: bool = False) -> None:
        """Append one batch. keys: every record has one of a few."""
        fields = {"producer_id": self._number, "producer_epoch": self._epoch, "base_sequence": self._sequence}
        count = self._world.rng.randrange(1, 6)
        batch = self._world.keyed if keys else self._world.batch
        data = batch(count, codec, is_transactional=transactional, **fields)
        self._world.lead(self._log, data)
        self._sequence += count
        self.open = self.open or transactional

    def end(self, *, commit: bool) -> None:
        """Write the marker as Kafka 4's transaction coordinator does: each transaction has an epoch of its own."""
        self._epoch, self._sequence, self.open = self._epoch + 1, 0, False
        marker = control_batch(
            EndTxnMarker(commit, coordinator_epoch=3),
            timestamp=self._world.clock.now,
            producer_id=self._number,
            producer_epoch=self._epoch,
        )
        self._world.lead(self._log, marker, origin=Origin.COORDINATOR)


def idempotent(world: World, topic: str) -> None:
    """Idempotent producers and a plain one in turn. One batch is sent twice."""
    log = world.create(topic)
    producers = [Producer(world, log, number) for number in (4001, 4002, 4003)]
    for number in range(40):
        world.rng.choice(producers).send(ALL_CODECS[number % 5])
        if number % 7 == 0:
            world.lead(log, world.batch(2))
    twice = world.batch(2, producer_id=4004, producer_epoch=0, base_sequence=0)
    assert world.lead(log, twice) == world.lead(log, twice)


def transactions(world: World, topic: str) -> None:
    """Interleaved transactions of several producers, committed, aborted, and one open; with other batches between."""
    log = world.create(topic)
    producers = [Producer(world, log, number) for number in (5001, 5002, 5003)]
    plain = Producer(world, log, 5004)
    for number in range(90):
        producer = world.rng.choice(producers)
        if producer.open and world.rng.random() < 0.35:
            producer.end(commit=world.rng.random() < 0.5)
        else:
            producer.send(ALL_CODECS[number % 5], transactional=True)
        if number % 6 == 0:
            plain.send()
    for producer in producers:
        if producer.open:
            producer.end(commit=False)
    producers[0].send(transactional=True)
    world.lead(log, world.batch(3))


def clean(world: World, log: Log) -> None:
    """Compact a log as a node does, to the end of a round."""
    log.flush()
    cleaner = LogCleaner(map_bytes=1 << 20, bytes_per_second=1 << 40, on_failure=_raise)
    piece = cleaner.begin([log], Millis(world.clock.now))
    assert piece is not None, "there was nothing to clean"
    while piece is not None:
        piece = cleaner.settle(piece.work(), Millis(world.clock.now), started=Millis(0), ended=Millis(0))


def _raise(error: Exception) -> None:
    raise error


def compacted(world: World, topic: str) -> None:
    """A compressed log, compacted twice with its tombstones kept, then appended to."""
    log = world.create(topic, replace(SMALL, compact=True, delete=False, min_cleanable_ratio=0.0))
    for _ in range(2):
        for number in range(60):
            world.lead(log, world.keyed(4, ALL_CODECS[number % 5]))
        clean(world, log)
    for _ in range(5):
        world.lead(log, world.keyed(4))


def compacted_transactions(world: World, topic: str) -> None:
    """Compacted transactions, committed and aborted, and an idempotent producer whose last batch keeps its sequence."""
    log = world.create(topic, replace(SMALL, compact=True, delete=False, min_cleanable_ratio=0.0))
    producers = [Producer(world, log, number) for number in (6001, 6002)]
    plain = Producer(world, log, 6003)
    for _ in range(2):
        for number in range(80):
            producer = world.rng.choice(producers)
            if producer.open and world.rng.random() < 0.3:
                producer.end(commit=world.rng.random() < 0.5)
            else:
                producer.send(transactional=True, keys=True)
            if number % 6 == 0:
                plain.send(Codec.LZ4, keys=True)
        for producer in producers:
            if producer.open:
                producer.end(commit=True)
        clean(world, log)
        world.clock.now += 3 * 86_400_000


def retained(world: World, topic: str) -> None:
    """Old segments deleted by `retention.bytes`."""
    log = world.create(topic, replace(SMALL, retention_bytes=12_000))
    world.fill(log, batches=60)
    log.flush()
    assert delete_old_segments(log, Millis(world.clock.now)) > 0


def preallocated(world: World, topic: str) -> None:
    """`preallocate=true`: the active segment ends in zeros while it is open."""
    world.fill(world.create(topic, replace(SMALL, preallocate=True)), ALL_CODECS)


def single(world: World, topic: str) -> None:
    """A log with a single record."""
    world.lead(world.create(topic), world.batch(1))


def empty(world: World, topic: str) -> None:
    """A log without records."""
    world.create(topic)


def _name(codec: Codec) -> str:
    return codec.name.lower()


KINDS: dict[str, Kind] = {
    **{f"codec-{_name(codec)}": codec_kind(codec) for codec in ALL_CODECS},
    **{f"leader-{_name(codec)}": recompressed_kind(codec) for codec in ALL_CODECS},
    **{f"append-time-{_name(codec)}": append_time_kind(codec) for codec in (Codec.NONE, Codec.ZSTD)},
    **{f"v{magic}-{_name(codec)}": old_format_kind(magic, codec) for magic in (0, 1) for codec in OLD_CODECS},
    "upgraded": converted,
    "epochs": epochs,
    "followed": followed,
    "by-time": by_time,
    "index-full": index_full,
    "defaults": default_interval,
    "trimmed": trimmed,
    "idempotent": idempotent,
    "txn": transactions,
    "compacted": compacted,
    "compacted-txn": compacted_transactions,
    "retained": retained,
    "preallocated": preallocated,
    "single": single,
    "empty": empty,
}
"""The kinds by the name of their topic."""


def open_world(path: Path, *, seed: int = 1, now: int, topic_ids: dict[str, UUID] | None = None) -> World:
    """An empty log directory, open."""
    clock = SetClock(now)
    directory = LogDirectory(str(path), files=OsFiles(), clock=clock, rng=random.Random(seed))
    return World(directory, clock, random.Random(seed), topic_ids or {})


def write_all(world: World) -> None:
    """Write one log of each kind and flush all. The directory stays open."""
    for topic, write in KINDS.items():
        write(world, topic)
    for log in world.directory.logs.values():
        log.flush()
