"""The speed of compaction, compared with only reading and writing the same bytes.

One thread, the operating system's files, page cache. A log of 1 KiB values is written in which later records overwrite
half of the keys, scattered over all batches, so that every batch is rebuilt: the worst case. One round of cleaning then
reads the whole log twice (keys, then records), writes the remaining records and syncs them. A figure is the
uncompressed bytes of the records divided by the processor time of the round.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from bench.figure import Figure, Run
from storage.compaction.offset_map import OffsetMap
from storage.directory.log_cleaner import LogCleaner
from storage.directory.log_directory import LogDirectory
from storage.files.os_files import OsFiles
from storage.log.log import Log
from storage.log_config import LogConfig
from tidelog.errors import TidelogError
from tidelog.records import RecordBatchBuilder
from tidelog.types import Codec, Durability, LeaderEpoch, Millis, Offset, PartitionIndex, TopicId, TopicPartition

NOW: Final = 1_700_000_000_000
VALUE_BYTES: Final = 1024
BATCH_RECORDS: Final = 64
LOG_BYTES: Final = 128 << 20
SEGMENT_BYTES: Final = 32 << 20
CHUNK_BYTES: Final = 1 << 20
KEYS: Final = 200_000


class StandingClock:
    """A wall clock that does not move."""

    def wall_ms(self) -> Millis:
        return Millis(NOW)


def cleaning(run: Run) -> Iterator[Figure]:
    """MB/s of compaction by codec, and operations of the offset map."""
    size = LOG_BYTES // (16 if run.quick else 1)
    for name, codec, target in [("", Codec.NONE, 100.0), (", lz4", Codec.LZ4, None), (", zstd", Codec.ZSTD, None)]:
        run.say(f"compacting {size >> 20} MiB{name}")
        log = fill(run.scratch / f"cleaning-{codec.name}", codec, size)
        took, kept = clean(log)
        rate = size / took / 1e6
        yield Figure(f"compaction of 1 KiB values, half of them overruled{name}", rate, "MB/s", target=target)
        if codec is Codec.NONE:
            raw = size / copy_raw(run.scratch / "raw", size, kept) / 1e6
            yield Figure("compaction, against reading twice and writing what stays", rate, "MB/s", raw)
        log.directory.close()  # type: ignore[attr-defined]  # it is a LogDirectory
    yield from offset_map(run)


def fill(path: Path, codec: Codec, size: int) -> Log:
    """A log with that many bytes of records, durable and committed, with an empty active segment."""
    config = LogConfig(
        compact=True, delete=False, segment_bytes=SEGMENT_BYTES, durability=Durability.PAGE_CACHE, min_cleanable_ratio=0
    )
    directory = LogDirectory(str(path), files=OsFiles(), clock=StandingClock(), rng=random.Random(1))
    log = directory.create_log(TopicPartition("compacted", PartitionIndex(0)), TopicId(UUID(int=1)), config)
    rng = random.Random(7)
    records = size // VALUE_BYTES
    keys = [b"key-%09d" % number for number in range(records // 2)] * 2
    rng.shuffle(keys)
    noise = rng.randbytes(VALUE_BYTES // 2)
    for start in range(0, records, BATCH_RECORDS):
        builder = RecordBatchBuilder(codec=codec)
        for key in keys[start : start + BATCH_RECORDS]:
            builder.append(key=key, value=noise + rng.randbytes(8) * (VALUE_BYTES // 16), timestamp=NOW)
        log.append(builder.build(), assign_offsets=True, leader_epoch=LeaderEpoch(0))
    log.roll(Millis(NOW))
    log.flush()
    log.advance_high_watermark(log.log_end_offset)
    return log


def clean(log: Log) -> tuple[float, int]:
    """Seconds of one round, and the bytes that remain."""
    troubles: list[TidelogError] = []
    cleaner = LogCleaner(map_bytes=128 << 20, bytes_per_second=1 << 50, on_failure=troubles.append)
    began = time.process_time()
    piece = cleaner.begin([log], Millis(NOW))
    while piece is not None:
        piece = cleaner.settle(piece.work(), Millis(NOW), started=Millis(0), ended=Millis(0))
    took = time.process_time() - began
    assert not troubles, troubles
    assert cleaner.last is not None, "nothing was cleaned"
    return took, cleaner.last.stats.bytes_kept


def copy_raw(path: Path, size: int, kept: int) -> float:
    """Seconds to read twice the bytes of the log, write the bytes that remain, and sync them."""
    files = OsFiles()
    source = files.open(str(path), create=True)
    target = files.open(f"{path}-copy", create=True)
    chunk = random.Random(3).randbytes(CHUNK_BYTES)
    for position in range(0, size, CHUNK_BYTES):
        source.pwritev([chunk], position)
    began = time.process_time()
    for copying in (False, True):
        for position in range(0, size, CHUNK_BYTES):
            data = source.pread(CHUNK_BYTES, position)
            if copying and position < kept:
                target.pwritev([data], position)
    target.sync()
    took = time.process_time() - began
    source.close()
    target.close()
    return took


def offset_map(run: Run) -> Iterator[Figure]:
    """Puts into the offset map, and lookups in it."""
    count = KEYS // (16 if run.quick else 1)
    keys = [b"key-%09d" % number for number in range(count)]
    offsets = OffsetMap.for_records(count, 128 << 20)
    began = time.process_time()
    for offset, key in enumerate(keys):
        offsets.put(key, Offset(offset))
    filled = time.process_time()
    for key in keys:
        offsets.get(key)
    found = time.process_time()
    yield Figure("keys put into the offset map", count / (filled - began), "keys/s")
    yield Figure("keys found in the offset map", count / (found - filled), "keys/s")
    yield Figure("memory of the offset map", offsets.memory_bytes / count, "bytes/key")
