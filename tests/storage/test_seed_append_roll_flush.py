"""log-append-roll-flush.txt: maybeRoll, roll, flush and LogSegment.append, beyond test_roll.py and test_flush.py. If
Kafka 4.1 has another rule than the document, the test says so."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from storage.log_config import LogConfig
from tests.storage.workbench import NOW, SMALL, Bench, Deferred, batch
from tidelog.errors import DiskFull, KafkaStorageError
from tidelog.records import Record, build_message_set
from tidelog.types import Codec, Durability, LeaderEpoch, Millis, Offset


def bases(bench: Bench) -> list[int]:
    return [segment.base_offset for segment in bench.log.segments]


def test_a_stored_message_is_offset_size_and_bytes() -> None:
    """MessageSet => [Offset MessageSize Message]; writeMessage: putLong(offset), putInt(message.size), put(buffer)."""
    bench = Bench(LogConfig(magic=0))
    record = Record(Offset(0), Millis(-1), b"key", b"value")
    for _ in range(2):
        data = build_message_set([record], 0)
        bench.log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(0))
    stored = bench.disk.open(bench.segment_path).pread(1_000, 0)
    message = data[12:]
    assert message[4:] == b"\0\0" + (3).to_bytes(4) + b"key" + (5).to_bytes(4) + b"value"
    assert stored == b"".join(offset.to_bytes(8) + len(message).to_bytes(4) + message for offset in (0, 1))


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_segments_of_every_format_roll_by_size(magic: int, codec: Codec) -> None:
    """segment.size > config.segmentSize - messagesSize; with one index entry or more in each."""
    bench = Bench(replace(SMALL, magic=magic, codec=codec))
    for i in range(40):
        bench.lead(b"v" * 60, timestamp=NOW + i)
    assert len(bases(bench)) > 1
    assert bases(bench) == sorted(set(bases(bench)))
    for segment in bench.log.segments[:-1]:
        assert segment.size <= SMALL.segment_bytes
        assert segment.index.entries > 0
        assert segment.time_index.entries == 0 if magic == 0 else segment.time_index.last == segment.largest
    assert bench.log.log_end_offset == 40


def test_segments_without_timestamps_age_by_the_clock() -> None:
    """time.milliseconds - segment.created > config.segmentMs: Kafka keeps that for records without a timestamp."""
    bench = Bench(LogConfig(magic=0, segment_ms=100))
    bench.lead(b"a")
    bench.clock.now += 100
    bench.lead(b"b")
    assert bases(bench) == [0]
    bench.clock.now += 1
    bench.lead(b"c")
    assert bases(bench) == [0, 2]


def test_an_index_entry_is_added_before_its_batch_counts() -> None:
    """if (bytesSinceLastIndexEntry > indexIntervalBytes) index.append(...): before the write, then counted from zero.
    The document adds the batch's first offset; since 4.1 it is the last one (design section 3)."""
    size = len(batch(b"a", b"b"))
    bench = Bench(LogConfig(index_interval_bytes=2 * size))
    for _ in range(8):
        bench.lead(b"a", b"b")
    index = bench.log.active.index
    assert [tuple(index.entry(slot)) for slot in range(index.entries)] == [(7, 3 * size), (13, 6 * size)]


@pytest.mark.parametrize(
    ("call", "file"),
    [
        ("open", "00000000000000000001.log"),
        ("open", "0000.index"),
        ("open", "0000.timeindex"),
        ("truncate", "0000.timeindex"),
    ],
)
def test_a_failed_roll_leaves_the_old_segment_active(call: str, file: str) -> None:
    """Creating the new segment fails, or writing the indexes of the old one."""
    bench = Bench()
    bench.lead(b"x" * 1_500)
    bench.disk.fail(call, file, error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        bench.lead(b"x" * 1_500)
    assert bases(bench) == [0]
    left = [name for name in bench.disk.list("/data/orders-0") if name.startswith("00000000000000000001")]
    assert [name for name in left if not name.endswith(".snapshot")] == []
    bench.disk.heal()
    bench.lead(b"x" * 1_500)
    assert bases(bench) == [0, 1]


def test_a_write_that_fails_halfway_leaves_no_byte() -> None:
    """catch IOException: KafkaStorageException. The written part is truncated."""
    bench = Bench()
    bench.lead(b"a")
    size = bench.log.active.size
    bench.disk.capacity = bench.disk.used + 20
    with pytest.raises(DiskFull):
        bench.lead(b"b" * 500)
    assert bench.disk.size(bench.segment_path) == bench.log.active.size == size
    bench.disk.capacity = None
    bench.disk.fail("write", ".log", error=errno.EIO)
    with pytest.raises(KafkaStorageError):
        bench.lead(b"c")


def test_a_flush_advances_the_recovery_point_and_never_lowers_it() -> None:
    """flush(offset): nothing at or below the recovery point; lastflushedTime is set where it moves."""
    bench = Bench(replace(SMALL, durability=Durability.PAGE_CACHE))
    bench.lead(b"a")
    bench.clock.now += 50
    syncs = bench.disk.syncs
    bench.log.flush()
    assert (bench.log.recovery_point, bench.log.last_flush_ms) == (1, NOW + 50)
    assert bench.disk.syncs > syncs
    syncs = bench.disk.syncs
    bench.clock.now += 50
    bench.log.flush()
    assert (bench.log.recovery_point, bench.log.last_flush_ms) == (1, NOW + 50)
    assert bench.disk.syncs == syncs


def test_a_flush_syncs_each_segment_from_the_recovery_point_on() -> None:
    """for (segment <- logSegments(this.recoveryPoint, offset)) segment.flush()."""
    bench = Bench(LogConfig(segment_bytes=200, durability=Durability.PAGE_CACHE), executor=Deferred())
    for _ in range(3):
        bench.lead(b"x" * 100)
    bench.log.flush()
    for _ in range(2):
        bench.lead(b"x" * 100)
    ticket = bench.log.begin_flush(everything=True)
    assert ticket is not None
    synced = [int(handle.path[-24:-4]) for handle in ticket.handles if handle.path.endswith(".log")]
    assert bases(bench)[-2:] == [3, 4]
    assert synced == [3, 4, 2], (
        "the segments below were flushed; the last of them was truncated to its size when it was closed"
    )
    ticket.run()
    bench.log.finish_flush(ticket)
    assert bench.log.recovery_point == 5


def test_an_empty_append_changes_nothing() -> None:
    """if (messages.sizeInBytes > 0): an empty append does not touch the segment."""
    bench = Bench()
    bench.lead(b"a")
    calls = bench.disk.calls
    for assign in (True, False):
        info = bench.log.append(b"", assign_offsets=assign, leader_epoch=LeaderEpoch(0))
        assert info.valid_bytes == 0
    assert bench.disk.calls == calls
    assert bench.log.log_end_offset == 1
