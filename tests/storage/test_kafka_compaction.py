"""Tidelog's compaction compared with Kafka's: the remains of the same records, and logs that Kafka has cleaned.

From `sent` (all that producers sent) a log is written and cleaned over the range that Kafka had cleaned; a reader must
find what Kafka's readers find. Then Kafka's own cleaned directories are opened and cleaned further."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.log.log import Log
from storage.log_config import LogConfig
from tests.storage.cleaning_bench import (
    COMPACTED,
    DAY,
    CleaningBench,
    batches_of,
    clean,
    last_offsets,
    make_cleaner,
    records_of,
    table,
    visible,
)
from tests.storage.kafka_vectors import log_of, open_directory, producer_states, recorded, unpack
from tests.storage.workbench import NOW
from tidelog.errors import TidelogError
from tidelog.records import RecordBatchBuilder, build_message_set, empty_batch, iter_batches
from tidelog.records.v2.header import HEADER_BYTES
from tidelog.records.v2.record import Record
from tidelog.types import Codec, LeaderEpoch, Millis, Offset

NEW = ["compacted-0", "compacted-lz4-0", "compacted-txn-0", "compacted-gone-0"]
OLD = [f"v{magic}-compacted-{codec}-0" for magic in (0, 1, 2) for codec in ("none", "gzip")]
AFTER_THE_RUN = NOW + 100 * 365 * DAY


def archive_of(partition: str) -> str:
    return "cluster" if partition in NEW else "old"


def cleaned_to(partition: str) -> int:
    """The offset that Kafka's cleaner had reached."""
    topic, _, index = partition.rpartition("-")
    checkpoint = recorded(archive_of(partition))["checkpoints"]["cleaner-offset-checkpoint"]
    return next(int(offset) for name, number, offset in checkpoint if (name, number) == (topic, int(index)))


def kafkas_records(partition: str) -> list[tuple[Any, ...]]:
    """[offset, timestamp, sequence, key, value, headers] of the remaining records in Kafka's log, without markers."""
    recorded_of = recorded(archive_of(partition))["partitions"][partition]
    return [
        (record[0], record[3], record[4])
        for segment in recorded_of["segments"]
        for batch in segment["batches"]
        if not batch.get("isControl")
        for record in batch["records"]
    ]


def sent(partition: str) -> list[Record]:
    """Everything that producers sent."""
    found = recorded(archive_of(partition))["partitions"][partition]["sent"]
    return [
        Record(
            Offset(offset),
            Millis(timestamp),
            None if key is None else bytes.fromhex(key),
            None if value is None else bytes.fromhex(value),
            tuple((name, None if data is None else bytes.fromhex(data)) for name, data in headers or ()),
        )
        for offset, timestamp, key, value, headers in found
    ]


def in_batches(records: list[Record], cut: int) -> Iterator[list[Record]]:
    """Runs of up to five records without a hole, none across `cut`."""
    group: list[Record] = []
    for record in records:
        if group and (record.offset != group[-1].offset + 1 or len(group) == 5 or record.offset == cut):
            yield group
            group = []
        group.append(record)
    yield group


def encoded(records: list[Record], magic: int, codec: Codec) -> bytes:
    if magic < 2:
        return build_message_set(records, magic, codec)
    builder = RecordBatchBuilder(codec=codec, base_offset=records[0].offset, leader_epoch=0)
    for record in records:
        builder.append(
            key=record.key, value=record.value, timestamp=record.timestamp, headers=record.headers, offset=record.offset
        )
    return builder.build()


def written_again(partition: str, config: LogConfig, magic: int, codec: Codec) -> CleaningBench:
    """A log of the sent records; those from the offset that Kafka's cleaner reached are in the active segment."""
    bench, point = CleaningBench(replace(config, magic=magic)), cleaned_to(partition)
    for group in in_batches(sent(partition), point):
        if group[0].offset >= point > bench.log.active.base_offset:
            bench.settle()
            bench.log.reconfigure(replace(bench.config, segment_bytes=1 << 20))
        bench.log.append(encoded(group, magic, codec), assign_offsets=False, leader_epoch=LeaderEpoch(0))
    bench.settle(roll=False)
    return bench


def as_recorded(records: list[Record]) -> list[tuple[Any, ...]]:
    return [
        (r.offset, None if r.key is None else r.key.hex(), None if r.value is None else r.value.hex()) for r in records
    ]


CONFIG = replace(COMPACTED, segment_bytes=6_000, segment_index_bytes=2_000)


@pytest.mark.parametrize(
    ("partition", "magic", "codec"),
    [
        ("compacted-0", 2, Codec.NONE),
        ("compacted-lz4-0", 2, Codec.LZ4),
        *((name, int(name[1]), Codec.GZIP if "gzip" in name else Codec.NONE) for name in OLD),
    ],
)
def test_a_log_cleaned_here_equals_the_one_cleaned_by_kafka(partition: str, magic: int, codec: Codec) -> None:
    """Tombstones stay in both: less than a day had passed."""
    bench = written_again(partition, CONFIG, magic, codec)
    before = len(records_of(bench.log))
    while clean(bench.log):
        pass
    assert as_recorded(records_of(bench.log)) == kafkas_records(partition)
    assert len(records_of(bench.log)) < before


def test_tombstones_that_kafka_removed_are_removed_and_no_value_is() -> None:
    """compacted-gone, delete.retention.ms=0: the last remaining tombstones depend on the times of the passes; nothing
    else does."""
    partition = "compacted-gone-0"
    bench = written_again(partition, replace(CONFIG, delete_retention_ms=0), 2, Codec.NONE)
    clean(bench.log, NOW)
    bench.log.directory.claims.note_cleaned(bench.log.topic_partition, Offset(0))
    clean(bench.log, NOW + 1)
    ours, kafkas = as_recorded(records_of(bench.log)), kafkas_records(partition)
    point = cleaned_to(partition)
    assert [r for r in ours if r[2] is not None or r[0] >= point] == [
        r for r in kafkas if r[2] is not None or r[0] >= point
    ]
    assert [r for r in ours if r[2] is None and r[0] < point] == []


@pytest.mark.parametrize("partition", [*NEW, *OLD])
def test_a_log_that_kafka_has_cleaned_is_cleaned_further(partition: str, tmp_path: Path) -> None:
    """After opening, closing its last segment and cleaning, each key's last record keeps its offset, aborted records
    stay hidden, and producers keep their sequences, also after a restart."""
    archive = archive_of(partition)
    root = unpack(archive, tmp_path)
    directory = open_directory(root, archive, NOW)
    log = log_of(directory, partition)
    assert log.directory.claims.cleaned(log.topic_partition) == cleaned_to(partition)
    compact(log)
    before, all_before, producers = visible(log), records_of(log), producer_states(log)
    end, epochs = log.log_end_offset, log.epochs.entries
    troubles: list[TidelogError] = []
    clean(log, NOW, make_cleaner(troubles))
    assert troubles == []
    assert log.directory.claims.cleaned(log.topic_partition) == end
    after = visible(log)
    assert set(after) <= set(before)
    assert last_offsets(after) == last_offsets(before)
    assert table(after) == table(before)
    assert len(records_of(log)) < len(all_before)
    assert (log.log_end_offset, log.epochs.entries, producer_states(log)) == (end, epochs, producers)
    check_batches(log)
    directory.close()
    directory = open_directory(root, archive, NOW)
    log = log_of(directory, partition)
    assert (log.damage, log.log_end_offset, visible(log)) == (None, end, after)
    assert (log.epochs.entries, producer_states(log)) == (epochs, producers)
    directory.close()


@pytest.mark.parametrize("partition", [*NEW, *OLD])
def test_expired_tombstones_and_markers_are_removed(partition: str, tmp_path: Path) -> None:
    archive = archive_of(partition)
    directory = open_directory(unpack(archive, tmp_path), archive, NOW)
    log = log_of(directory, partition)
    compact(log)
    before = table(visible(log))
    for now in (AFTER_THE_RUN, AFTER_THE_RUN + 2 * DAY, AFTER_THE_RUN + 4 * DAY):
        clean(log, now)
        log.directory.claims.note_cleaned(log.topic_partition, Offset(0))
    assert table(visible(log)) == before
    if log.config.magic == 2:
        assert [record for record in records_of(log) if record.value is None] == []
    directory.close()


def compact(log: Log) -> None:
    """Close the active segment, so that everything may be cleaned."""
    log.reconfigure(replace(log.config, compact=True, delete=False, min_cleanable_ratio=0.0, segment_bytes=1 << 20))
    log.roll(Millis(NOW))
    log.flush()
    log.advance_high_watermark(log.log_end_offset)


def check_batches(log: Log) -> None:
    """Headers span removed records; a batch without records is as Kafka's cleaner leaves it."""
    end = -1
    for batch in batches_of(log):
        batch.ensure_valid()
        assert batch.base_offset > end
        end = batch.last_offset
        if batch.magic == 2 and batch.count == 0:
            assert (batch.size, batch.codec) == (HEADER_BYTES, Codec.NONE)


def test_kafkas_empty_batches_equal_ours(tmp_path: Path) -> None:
    root = unpack("cluster", tmp_path)
    seen = 0
    for partition in NEW:
        for path in sorted((root / partition).glob("*.log")):
            for batch in iter_batches(path.read_bytes()):
                if batch.count == 0:
                    assert empty_batch(batch) == bytes(batch.buffer)
                    seen += 1
    assert seen > 3
