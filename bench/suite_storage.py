"""One partition's log on this machine's disk: the cost of appends, reads, lookups, recovery, a start, compaction and
group commit, compared with the bare machine's cost for the same bytes.

Method, for a shared machine: one thread, the operating system's files, page cache only. Contenders take turns in one
run, over the same buffers (more than the processor's caches hold). Each counts with its best turn, in the processor
time of its thread: other programs evict caches and lengthen clock time, and the best turn is the least disturbed one.
Processor time is meaningless for waits for a disk: a clean start counts with its best turn by the clock, group commit
with its median.

Appends: every turn writes to new files, raw writes too, and no file is preallocated. Batches are whole and deeply
validated. The first few appends of a turn are not counted, since the creation of files and the first page of an index
are costs per segment. Each buffer is read once before its turn, so that the caches are alike for all. Only group commit
syncs.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from bench.figure import Better, Figure, Run
from bench.storage_cleaning import cleaning
from bench.storage_group_commit import group_commits
from bench.storage_reading import reading
from bench.storage_recovery import recoveries
from bench.storage_start import starts
from storage.directory.log_directory import LogDirectory
from storage.files.os_files import OsFiles
from storage.log.log import Log
from storage.log_config import LogConfig
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import TimeIndex
from tidelog.records import HEADER_BYTES, RecordBatch, RecordBatchBuilder, crc32c, stamp
from tidelog.types import (
    Durability,
    EpochStart,
    LeaderEpoch,
    Millis,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicPartition,
)

NOW: Final = 1_700_000_000_000
VALUE_BYTES: Final = 1024
LARGE: Final = 256 << 10
SMALL: Final = 16 << 10
SMALLEST: Final = 1 << 10
TURN_BYTES: Final = 32 << 20
ROUNDS: Final = 25
UNCOUNTED: Final = 3
"""Appends at the start of a turn that are not counted: the second one adds the first entry to the indexes."""
EPOCH: Final = LeaderEpoch(0)
SEGMENTS: Final = 1000
Work = Callable[[], Any]


def figures(run: Run) -> Iterator[Figure]:
    yield from appends(run)
    for size, name in ((LARGE, "256 KiB"), (SMALL, "16 KiB"), (SMALLEST, "1 KiB")):
        log = make_log(run, f"read-{size}", LogConfig(durability=Durability.PAGE_CACHE))
        yield from reading(run, log, build(size), name, target=0.6)
    yield from lookups(run)
    recovered = make_log(run, "recovered", LogConfig(durability=Durability.PAGE_CACHE, segment_bytes=128 << 20))
    yield from recoveries(run, recovered, build(LARGE))
    yield from cleaning(run)
    yield from starts(run)
    for size, name in ((SMALL, "16 KiB"), (SMALLEST, "1 KiB")):
        log = make_log(run, f"committed-{size}", LogConfig())
        yield from group_commits(run, log, build(size), name, target=0.6)


class SystemClock:
    """The wall clock, read at each append as a node does."""

    def wall_ms(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000)


def make_log(run: Run, name: str, config: LogConfig) -> Log:
    directory = LogDirectory(
        str(run.scratch / name), files=OsFiles(), clock=SystemClock(), rng=random.Random(1), executor=None
    )
    return directory.create_log(TopicPartition(name, PartitionIndex(0)), TopicId(UUID(int=1)), config)


# --- appends -----------------------------------------------------------------------------------------------------


def appends(run: Run) -> Iterator[Figure]:
    """Batches of 1 KiB values, each buffer once per turn."""
    rate = append_rates(run, LARGE)
    yield Figure("leader append of 256 KiB, against raw writes", rate["leader"], "MB/s", rate["raw"], target=0.45)
    yield Figure("follower append of 256 KiB, against raw writes", rate["follower"], "MB/s", rate["raw"], target=0.5)
    yield Figure("follower append of 256 KiB, against the leader's", rate["follower"], "MB/s", rate["leader"], target=1)
    rate = append_rates(run, SMALL)
    for name, what in (("leader", "16 KiB"), ("idempotent", "16 KiB of an idempotent producer")):
        yield Figure(f"leader append of {what}", rate[name] * 1e6 / SMALL, "appends/s", target=20_000)
    yield Figure("follower append of 16 KiB, against the leader's", rate["follower"], "MB/s", rate["leader"], target=1)
    yield Figure("leader append of 16 KiB, against raw writes", rate["leader"], "MB/s", rate["raw"])


def append_rates(run: Run, size: int) -> dict[str, float]:
    """MB/s of raw writes, a leader, a leader with an idempotent producer, a follower."""
    count = max(2 * UNCOUNTED, TURN_BYTES // size // (8 if run.quick else 1))
    sent = build(size)
    records = RecordBatch(sent).count
    stamped = [placed(sent, Offset(i * records)) for i in range(count)]
    fresh = [bytes(bytearray(sent)) for _ in range(count)]
    numbered = [build(size, sequence=i * records) for i in range(count)]
    log = make_log(run, f"appends-{size}", LogConfig(durability=Durability.PAGE_CACHE))
    raw = RawFile(run.scratch / f"raw-{size}")
    epochs = (EpochStart(EPOCH, Offset(0)),)

    def lead(buffers: Sequence[bytes]) -> None:
        for buffer in buffers:
            log.append(buffer, assign_offsets=True, leader_epoch=EPOCH)

    def follow(buffers: Sequence[bytes]) -> None:
        for buffer in buffers:
            log.append(buffer, assign_offsets=False, leader_epoch=EPOCH, epochs=epochs)

    def empty() -> None:
        log.truncate_fully_and_start_at(Offset(0))

    seconds = turns(
        run,
        {
            "raw": (raw.renew, raw.write, fresh),
            "leader": (empty, lead, fresh),
            "idempotent": (empty, lead, numbered),
            "follower": (empty, follow, stamped),
        },
    )
    raw.close()
    log.close()
    return {name: (count - UNCOUNTED) * len(sent) / 1e6 / taken for name, taken in seconds.items()}


class RawFile:
    """A file to which buffers are written one after the other, without further work."""

    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def renew(self) -> None:
        self.close()
        self._path.unlink()
        self._fd, self._position = os.open(self._path, os.O_RDWR | os.O_CREAT), 0

    def write(self, buffers: Sequence[bytes]) -> None:
        fd, position = self._fd, self._position
        for buffer in buffers:
            os.pwritev(fd, [buffer], position)
            position += len(buffer)
        self._position = position

    def close(self) -> None:
        os.close(self._fd)


def build(size: int, *, sequence: int | None = None) -> bytes:
    """A producer's batch of that size without its header, or of one record if that needs more: values of
    `VALUE_BYTES`, the last one shorter. Its size is no multiple of a page, as with any producer: bare writes of
    whole pages would be a sixth (256 KiB) to two fifths (16 KiB) faster. sequence: of its first record, if its
    producer is idempotent."""
    value = random.Random(1).randbytes(VALUE_BYTES)
    size -= HEADER_BYTES
    values = [value] * max(1, (size - HEADER_BYTES) // (VALUE_BYTES + 20))
    while len(batch_of([*values, value], sequence)) <= size:
        values.append(value)
    missing = size - len(batch_of([*values, b""], sequence))
    if missing > 0:
        excess = len(batch_of([*values, value[:missing]], sequence)) - size
        values.append(value[: missing - excess])
    return batch_of(values, sequence)


def batch_of(values: Sequence[bytes], sequence: int | None) -> bytes:
    builder = RecordBatchBuilder()
    if sequence is not None:
        builder = RecordBatchBuilder(producer_id=ProducerId(1), producer_epoch=0, base_sequence=sequence)
    for i, value in enumerate(values):
        builder.append(key=b"key", value=value, timestamp=NOW + i)
    return builder.build()


def placed(batch: bytes, offset: Offset) -> bytes:
    """The batch as a leader sends it to its followers."""
    stamped = bytearray(batch)
    stamp(stamped, 0, base_offset=offset, leader_epoch=EPOCH)
    return bytes(stamped)


def turns(
    run: Run, works: Mapping[str, tuple[Work, Callable[[Sequence[bytes]], None], Sequence[bytes]]]
) -> dict[str, float]:
    """The best processor time of each contender over its buffers without the first `UNCOUNTED`."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(3 if run.quick else ROUNDS):
        for name, (reset, work, buffers) in works.items():
            reset()
            for buffer in buffers:
                crc32c(buffer)  # else the first contender would warm the caches for the others
            work(buffers[:UNCOUNTED])
            begun = time.thread_time()
            work(buffers[UNCOUNTED:])
            seconds[name].append(time.thread_time() - begun)
    return {name: min(taken) for name, taken in seconds.items()}


# --- lookups -----------------------------------------------------------------------------------------------------


def lookups(run: Run) -> Iterator[Figure]:
    """At random places: in full indexes of 10 MiB, and in logs of many segments and of one."""
    yield from index_lookups(run)
    one = make_log(run, "one", LogConfig(durability=Durability.PAGE_CACHE))
    many = make_log(run, "many", LogConfig(durability=Durability.PAGE_CACHE, segment_index_bytes=4096))
    segments = 50 if run.quick else SEGMENTS
    batch = build(8 << 10)
    for log in (one, many):
        for _ in range(segments):
            for _ in range(3):
                log.append(batch, assign_offsets=True, leader_epoch=EPOCH)
            if log is many:
                log.roll(Millis(NOW))
    took = {log: read_seconds(run, log) for log in (one, many)}
    yield Figure(
        f"read at an offset in a log of {segments} segments, against one of 1 segment",
        took[many] * 1e6,
        "us",
        took[one] * 1e6,
        target=1.5,
        better=Better.LESS,
    )
    for log in (one, many):
        log.close()


def index_lookups(run: Run) -> Iterator[Figure]:
    size, base = 10 << 20, Offset(1 << 40)
    offsets = OffsetIndex(OsFiles(), str(run.scratch / "full.index"), base, size, fresh=True)
    times = TimeIndex(OsFiles(), str(run.scratch / "full.timeindex"), base, size, fresh=True)
    offsets.reserve_entries(offsets.max_entries)
    times.reserve_entries(times.max_entries)
    count = times.max_entries // (100 if run.quick else 1)
    for i in range(count):
        offsets.append(base + 7 * i + 6, 5000 * (i + 1) % 2**31)
        times.maybe_append(NOW + 3 * i, base + 7 * i + 6, skip_full_check=True)
    rng = random.Random(1)
    asked = [rng.randrange(count) for _ in range(1000)]
    offset = best(run, lambda: [offsets.lookup(base + 7 * i) for i in asked]) / len(asked)
    when = best(run, lambda: [times.lookup(NOW + 3 * i) for i in asked]) / len(asked)
    last = best(run, lambda: [offsets.lookup(base + 7 * count) for _ in asked]) / len(asked)
    yield Figure("lookup of an offset in a full index", offset * 1e6, "us", target=15, better=Better.LESS)
    yield Figure("lookup of a time in a full index", when * 1e6, "us", target=15, better=Better.LESS)
    yield Figure("lookup near the end of a full index", last * 1e6, "us", target=15, better=Better.LESS)
    offsets.close()
    times.close()


def read_seconds(run: Run, log: Log) -> float:
    """Processor time to read one batch at a random offset, with open indexes."""
    rng, end = random.Random(1), log.log_end_offset
    asked = [Offset(rng.randrange(end)) for _ in range(200 if run.quick else 1000)]

    def read() -> None:
        for offset in asked:
            log.read(offset, 1, up_to=end)

    read()
    return best(run, read) / len(asked)


def best(run: Run, work: Work) -> float:
    """The least processor time of several calls."""
    taken = []
    for _ in range(3 if run.quick else ROUNDS):
        begun = time.thread_time()
        work()
        taken.append(time.thread_time() - begun)
    return min(taken)
