"""A data folder of ours with one log of every kind that we write, and what each of them is to show.

The same calls that a node makes: `Log.append` as leader or follower, rolls, truncation, deletion, flushes, a clean stop
or none. Keys and values are printable, since Kafka's tool prints them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from storage.append_info import Origin
from storage.config import LogConfig
from storage.data_folder import DataFolder
from storage.log import Log
from storage.os_files import OsFiles
from tests.storage.workbench import SetClock
from tidelog.records import MessageSetBuilder, RecordBatchBuilder
from tidelog.types import Codec, LeaderEpoch, Millis, Offset, PartitionIndex, TimestampType, TopicId, TopicPartition

SMALL = LogConfig(segment_bytes=8_000, index_interval_bytes=300, segment_index_bytes=1_000)
ALL_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
OLD_CODECS = ALL_CODECS[:-1]
WORDS = ("amber", "birch", "copper", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper")


@dataclass
class World:
    """The folder in the making. topic_ids: those that a broker gave its topics; others are made up."""

    folder: DataFolder
    clock: SetClock
    rng: random.Random
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    configs: dict[str, LogConfig] = field(default_factory=dict)

    def create(self, topic: str, config: LogConfig = SMALL) -> Log:
        """A new log, partition 0 of this topic."""
        self.configs[topic] = config
        topic_id = self.topic_ids.get(topic) or UUID(int=self.rng.getrandbits(128), version=4)
        return self.folder.create_log(TopicPartition(topic, PartitionIndex(0)), TopicId(topic_id), config)

    def records(self, count: int) -> Iterator[tuple[bytes | None, bytes | None, int]]:
        """Keys, values and timestamps, with nulls, empty ones and some out of order."""
        for _ in range(count):
            self.clock.now += self.rng.randrange(1, 40)
            key = self.rng.choice((None, b"", b"key-%d" % self.rng.randrange(50)))
            size = self.rng.choice((1, 3, 10, 40))
            value = self.rng.choice((None, b"", *[" ".join(self.rng.choices(WORDS, k=size)).encode()] * 5))
            yield key, value, self.clock.now - (500 if self.rng.random() < 0.1 else 0)

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


Kind = Callable[[World], None]


def codec_kind(codec: Codec) -> Kind:
    """Batches as a producer compressed them, over several segments."""

    def write(world: World) -> None:
        world.fill(world.create(f"codec-{codec.name.lower()}"), [codec])

    return write


def recompressed_kind(codec: Codec) -> Kind:
    """`compression.type`: batches of all codecs, compressed again by the leader."""

    def write(world: World) -> None:
        name = "uncompressed" if codec is Codec.NONE else codec.name.lower()
        world.fill(world.create(f"leader-{name}", replace(SMALL, codec=codec)), ALL_CODECS)

    return write


def append_time_kind(codec: Codec) -> Kind:
    """`message.timestamp.type=LogAppendTime`."""

    def write(world: World) -> None:
        config = replace(SMALL, timestamp_type=TimestampType.LOG_APPEND_TIME)
        world.fill(world.create(f"append-time-{codec.name.lower()}", config), [codec])

    return write


def old_format_kind(magic: int, codec: Codec) -> Kind:
    """`message.format` v0 or v1, from producers of that format."""

    def write(world: World) -> None:
        log = world.create(f"v{magic}-{codec.name.lower()}", replace(SMALL, magic=magic))
        for _ in range(25):
            world.lead(log, world.messages(world.rng.randrange(1, 7), magic, codec))

    return write


def converted(world: World) -> None:
    """One log in v0, v1 and v2, one after another, from producers of the newest format: the leader converts."""
    log = world.create("upgraded")
    for magic in (0, 1, 2, 1):
        log.reconfigure(replace(SMALL, magic=magic))
        for number in range(12):
            codec = OLD_CODECS[number % len(OLD_CODECS)]
            builder = RecordBatchBuilder(codec)
            for key, value, timestamp in world.records(3):
                builder.append(key=key, value=value, timestamp=Millis(timestamp))
            world.lead(log, builder.build())


def epochs(world: World) -> None:
    """Several leader epochs, one of them without a record, one cut away again."""
    log = world.create("epochs")
    for epoch in (0, 1):
        world.fill(log, batches=12, epoch=epoch)
    cut = Offset(log.log_end_offset - 5)
    log.truncate_to(cut)
    world.fill(log, batches=8, epoch=1)


def followed(world: World) -> None:
    """A follower's log: as its leader sent it, with holes, several batches in one append."""
    log = world.create("followed")
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


def by_time(world: World) -> None:
    """Rolled by record time, with timestamps that jump."""
    log = world.create("by-time", replace(SMALL, segment_ms=10_000))
    for _ in range(20):
        world.clock.now += world.rng.choice((10, 8_000))
        world.lead(log, world.batch(3))


def index_full(world: World) -> None:
    """Rolled because an index is full."""
    world.fill(world.create("index-full", replace(SMALL, index_interval_bytes=10, segment_index_bytes=60)))


def default_interval(world: World) -> None:
    """Kafka's default settings."""
    world.fill(world.create("defaults", LogConfig()), ALL_CODECS, batches=60)


def trimmed(world: World) -> None:
    """Records deleted up to the middle of a batch: the log starts inside a segment."""
    log = world.create("trimmed")
    for _ in range(30):
        world.lead(log, world.batch(5))
    log.delete_records(Offset(82))


def single(world: World) -> None:
    """One record in all."""
    world.lead(world.create("single"), world.batch(1))


def empty(world: World) -> None:
    """Never written."""
    world.create("empty")


KINDS: list[Kind] = [
    *map(codec_kind, ALL_CODECS),
    *map(recompressed_kind, ALL_CODECS),
    *map(append_time_kind, (Codec.NONE, Codec.ZSTD)),
    *(old_format_kind(magic, codec) for magic in (0, 1) for codec in OLD_CODECS),
    converted,
    epochs,
    followed,
    by_time,
    index_full,
    default_interval,
    trimmed,
    single,
    empty,
]


def open_world(path: Path, *, seed: int = 1, now: int, topic_ids: dict[str, UUID] | None = None) -> World:
    """A data folder in use, nothing written yet."""
    clock = SetClock(now)
    folder = DataFolder.open(str(path), files=OsFiles(), clock=clock, rng=random.Random(seed))
    return World(folder, clock, random.Random(seed), topic_ids or {})


def write_all(world: World, kinds: Iterable[Kind] = KINDS) -> None:
    """One log of each kind, everything durable; the folder stays open."""
    for kind in kinds:
        kind(world)
    for log in world.folder.logs.values():
        log.flush()
