"""Reading: whole batches up to a watermark, the epochs over them, and lookups by time (index-files.txt: lookup)."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log.log_reader import LogReader
from storage.log.recent_appends import RecentAppends
from storage.log_config import LogConfig
from storage.segment.batch_walk import BrokenChain
from tests.fakes.log_start import delete_records
from tests.storage.workbench import NOW, SMALL, Bench, batch, epoch_end, stamped
from tidelog.errors import CorruptLog, CorruptRecord, InvalidRequest, OffsetOutOfRange, UnsupportedForMessageFormat
from tidelog.records.v2.batch import stamp
from tidelog.records.v2.builder import RecordBatchBuilder
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.header import HEADER_BYTES, walk_headers
from tidelog.types import EARLIEST, LATEST, MAX_TIMESTAMP, Codec, EpochEnd, EpochStart, LeaderEpoch, Millis, Offset

ALL = Offset(10**9)


def filled(batches: int = 30, config: LogConfig = SMALL) -> Bench:
    """Batches of two records each, over several segments."""
    bench = Bench(config)
    for i in range(batches):
        bench.lead(b"%d" % i * 20, b"." * 20, timestamp=NOW + 10 * i)
    return bench


def test_a_read_from_inside_a_batch_returns_it_whole() -> None:
    bench = filled()
    read = bench.log.read(Offset(7), 1, up_to=ALL)
    assert bytes(read.records) == bench.contents()[3]
    assert read.next_offset == 8


def test_a_read_returns_as_many_whole_batches_as_fit() -> None:
    bench = filled()
    stored = bench.contents()
    two = len(stored[0]) + len(stored[1])
    for max_bytes, expected in ((two - 1, 1), (two, 2), (two + 60, 2), (two + 61, 2), (10 * two, None)):
        read = bench.log.read(Offset(0), max_bytes, up_to=ALL)
        if expected is None:
            assert bytes(read.records) == b"".join(s for s in stored if len(s))[: len(read.records)]
            assert read.next_offset > 4
        else:
            assert bytes(read.records) == b"".join(stored[:expected])


def test_without_min_one_batch_a_small_limit_gives_nothing() -> None:
    bench = filled()
    read = bench.log.read(Offset(0), 10, up_to=ALL, min_one_batch=False)
    assert (bytes(read.records), read.next_offset) == (b"", 0)


def test_a_batch_larger_than_the_limit_is_returned_alone() -> None:
    bench = Bench(LogConfig())
    bench.lead(b"x" * 100_000)
    bench.lead(b"y")
    assert bytes(bench.log.read(Offset(0), 1_000, up_to=ALL).records) == bench.contents()[0]


def test_nothing_at_or_above_the_bound_is_read() -> None:
    bench = filled(10)
    read = bench.log.read(Offset(0), 1 << 20, up_to=Offset(6))
    assert bytes(read.records) == b"".join(bench.contents()[:3])
    inside = bench.log.read(Offset(4), 1 << 20, up_to=Offset(5))
    assert (bytes(inside.records), inside.next_offset) == (b"", 4)
    at_the_end = bench.log.read(Offset(6), 1 << 20, up_to=Offset(6))
    assert at_the_end.records == b""


@pytest.mark.parametrize("offset", [-1, 7])
def test_outside_the_log_is_out_of_range(offset: int) -> None:
    bench = filled(10)
    with pytest.raises(OffsetOutOfRange, match=r"range 0\.\.6"):
        bench.log.read(Offset(offset), 100, up_to=Offset(6))


def test_consecutive_reads_pass_through_all_segments() -> None:
    bench = filled(60)
    assert len(bench.log.segments) > 3
    offset, data = Offset(0), b""
    while offset < bench.log.log_end_offset:
        read = bench.log.read(offset, 500, up_to=ALL)
        data += bytes(read.records)
        offset = read.next_offset
    assert data == b"".join(bench.contents())


def test_a_reader_at_the_log_end_continues_after_a_roll() -> None:
    bench = filled(3)
    end = bench.log.log_end_offset
    bench.log.read(Offset(0), 1 << 20, up_to=ALL)
    for i in range(30):
        bench.lead(b"new %d" % i * 10)
    read = bench.log.read(end, 1, up_to=ALL)
    assert b"new 0" in bytes(read.records)


def test_a_read_returns_the_epochs_of_its_range() -> None:
    bench = Bench()
    for epoch, base in ((1, 0), (1, 1), (4, 2), (4, 3), (6, 4)):
        bench.follow(stamped(base, b"v", epoch=epoch))
    one, four, six = (EpochStart(LeaderEpoch(e), Offset(o)) for e, o in ((1, 0), (4, 2), (6, 4)))
    assert bench.log.read(Offset(0), 1 << 20, up_to=ALL).epochs == (one, four, six)
    assert bench.log.read(Offset(1), 1, up_to=ALL).epochs == (one,)
    assert bench.log.read(Offset(3), 1 << 20, up_to=ALL).epochs == (four, six)
    assert bench.log.read(Offset(3), 1 << 20, up_to=Offset(4)).epochs == (four,)


SHORT = replace(SMALL, segment_bytes=300)
"""Two of these batches fill a segment."""


@pytest.mark.parametrize("config", [SHORT, LogConfig()], ids=["several segments", "one segment"])
def test_no_flipped_bit_leaves_a_reader_waiting(config: LogConfig) -> None:
    """A batch that claims to reach beyond the readable range looks undecided: a reader would wait forever, and the log
    would not be repaired."""
    bench = filled(6, config)
    log, end = bench.log, bench.log.log_end_offset
    for segment in log.segments:
        for byte, bit in product(range(segment.size), range(8)):
            bench.disk.flip_bit(segment.path, byte, bit)
            for start in range(0, end, 2):
                reader = LogReader(log.segments, log.epochs, 0, RecentAppends())
                with suppress(BrokenChain):
                    read = reader.read(Offset(start), 1 << 20, end, min_one_batch=True, end=end)
                    assert read.next_offset > start, f"bit {bit} of byte {byte} of {segment.path}"
            bench.disk.flip_bit(segment.path, byte, bit)


@pytest.mark.parametrize("batches", [1, 2, 100])
@pytest.mark.parametrize("cold", [False, True], ids=["at once", "read elsewhere"])
@pytest.mark.parametrize("config", [SHORT, SMALL, LogConfig()], ids=["several segments", "indexed", "one segment"])
def test_no_flipped_bit_moves_records_to_another_offset(config: LogConfig, cold: bool, batches: int) -> None:
    """No checksum covers a base offset. A batch that contradicts the next batch or the next segment is not returned: a
    follower would store it with the wrong offsets."""
    bench = filled(6, config)
    log, end, size = bench.log, bench.log.log_end_offset, len(bench.contents()[0])
    written = {header.base_offset: header.crc for stored in bench.contents() for header in walk_headers(stored)}
    for segment in log.segments:
        for position, byte, bit in product(range(0, segment.size, size), range(8), range(8)):
            bench.disk.flip_bit(segment.path, position + byte, bit)
            for start in range(0, end, 2):
                reader = LogReader(log.segments, log.epochs, 0, RecentAppends())
                with suppress(BrokenChain):
                    ready = reader.begin(bench.disk, Offset(start), size * batches) if cold else None
                    if ready is not None:
                        ready.run()
                    read = reader.read(
                        Offset(start), size * batches, end, min_one_batch=True, wait=not cold, ready=ready, end=end
                    )
                    given = {header.base_offset: header.crc for header in walk_headers(read.records)}
                    assert given, f"nothing is read at {start}"
                    assert given.items() <= written.items(), f"bit {bit} of byte {byte} moved a batch"
                    assert list(given) == list(range(start, read.next_offset, 2))
            bench.disk.flip_bit(segment.path, position + byte, bit)


@pytest.mark.parametrize("cold", [False, True], ids=["at once", "read elsewhere"])
@pytest.mark.parametrize("config", [SHORT, LogConfig()], ids=["several segments", "one segment"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_no_flipped_bit_moves_a_message_to_another_offset(
    magic: int, codec: Codec, config: LogConfig, cold: bool
) -> None:
    """As above for messages of formats v0 and v1, bare ones and compressed ones of one record."""
    bench = Bench(replace(config, magic=magic, codec=codec))
    for i in range(6):
        bench.lead(b"%d" % i * 60)
    log, end = bench.log, bench.log.log_end_offset
    written = dict(enumerate(bench.contents()))
    for segment in log.segments:
        for message, byte, bit in product(list(segment.walk()), range(8), range(8)):
            bench.disk.flip_bit(segment.path, message.position + byte, bit)
            for start in range(end):
                reader = LogReader(log.segments, log.epochs, 0, RecentAppends())
                with suppress(BrokenChain):
                    ready = reader.begin(bench.disk, Offset(start), 1 << 20) if cold else None
                    if ready is not None:
                        ready.run()
                    read = reader.read(
                        Offset(start), 1 << 20, end, min_one_batch=True, wait=not cold, ready=ready, end=end
                    )
                    expected = b"".join(written[offset] for offset in range(start, read.next_offset))
                    assert expected, f"nothing is read at {start}"
                    assert bytes(read.records) == expected, f"bit {bit} of byte {byte} moved a message"
            bench.disk.flip_bit(segment.path, message.position + byte, bit)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_compressed_set_that_the_next_one_contradicts_is_not_returned(magic: int) -> None:
    """Its header has the offset of its last record only: its records tell that it does not follow the set before."""
    bench = Bench(LogConfig(magic=magic, codec=Codec.GZIP))
    for _ in range(3):
        bench.lead(b"x", b"y")
    first, second, _ = stored = bench.contents()
    read = bench.log.read(Offset(0), 1 << 20, up_to=ALL)
    assert bytes(read.records) == b"".join(stored), "sets of several records follow each other"
    bench.disk.flip_bit(bench.segment_path, len(first) + 7, 2)  # the second one claims 7, beyond the last one's 5
    assert bytes(bench.log.read(Offset(0), 1 << 20, up_to=ALL).records) == first
    with pytest.raises(CorruptLog):
        bench.log.read(Offset(2), 1 << 20, up_to=ALL)
    bench.disk.flip_bit(bench.segment_path, len(first) + 7, 2)
    bench.disk.flip_bit(bench.segment_path, len(first + second) + 7, 2)  # the last one claims 1
    assert bytes(bench.log.read(Offset(0), 1 << 20, up_to=ALL).records) == first + second, "the second one is sound"


def test_a_batch_that_claims_to_reach_beyond_the_log_is_damage() -> None:
    bench = filled(3, LogConfig())
    bench.disk.flip_bit(bench.segment_path, 2 * len(bench.contents()[0]) + 25, 5)  # the third batch's last offset
    read = bench.log.read(Offset(0), 1 << 20, up_to=ALL)
    assert read.next_offset == 4
    with pytest.raises(CorruptLog, match=r"lost offsets 4\.\.5 .* the batch at offset 4 has checksum"):
        bench.log.read(read.next_offset, 1 << 20, up_to=ALL)
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.end_offset) == (4, 6)


def test_damage_found_by_a_read_is_reported_and_appends_continue_in_another_segment() -> None:
    bench = filled(5)
    size = len(bench.contents()[0])
    bench.disk.flip_bit(bench.segment_path, size + 11, 5)  # the second batch's length
    assert bytes(bench.log.read(Offset(0), 1 << 20, up_to=ALL).records) == bench_first(bench, size)
    with pytest.raises(CorruptLog, match="another replica"):
        bench.log.read(Offset(2), 1 << 20, up_to=ALL)
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.position) == (2, size)
    end, first = bench.log.log_end_offset, bench_first(bench, size)
    bench.lead()
    assert bench.log.active.base_offset == end
    assert len(bench.log.read(end, 1 << 20, up_to=ALL).records) > 0
    assert bytes(bench.log.read(Offset(0), 1, up_to=ALL).records) == first
    with pytest.raises(CorruptLog, match="lost offsets 2"):
        bench.log.read(Offset(3), 1, up_to=ALL)


def bench_first(bench: Bench, size: int) -> bytes:
    return bench.disk.open(bench.segment_path).pread(size, 0)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_offset_with_any_limit_reads_the_same_as_a_scan(data: st.DataObject) -> None:
    bench = Bench(SMALL)
    base = 0
    for _ in range(data.draw(st.integers(1, 40))):
        base += data.draw(st.integers(0, 5))
        values = [b"v" * data.draw(st.integers(0, 60)) for _ in range(data.draw(st.integers(1, 3)))]
        bench.follow(stamped(base, *values))
        base += len(values)
    stored = bench.contents()
    lasts = [int.from_bytes(one[0:8]) + int.from_bytes(one[23:27]) for one in stored]
    for _ in range(10):
        offset = data.draw(st.integers(0, base))
        max_bytes = data.draw(st.integers(1, 1_500))
        read = bench.log.read(Offset(offset), max_bytes, up_to=Offset(base))
        first = next((i for i, last in enumerate(lasts) if last >= offset), len(stored))
        assert b"".join(stored[first:]).startswith(bytes(read.records))
        assert bool(len(read.records)) == (first < len(stored))


# --- by time --------------------------------------------------------------------------------------------------------


def test_the_first_record_at_or_after_a_time() -> None:
    bench = filled(30)
    for i in range(30):
        assert bench.log.offset_for_timestamp(NOW + 10 * i, up_to=ALL) == (2 * i, NOW + 10 * i, 0)
        found = bench.log.offset_for_timestamp(NOW + 10 * i + 1, up_to=ALL)
        assert found == ((2 * i + 2, NOW + 10 * i + 10, 0) if i < 29 else None)
    assert bench.log.offset_for_timestamp(0, up_to=ALL) == (0, NOW, 0)


def test_a_time_above_the_watermark_is_not_found() -> None:
    bench = filled(10)
    assert bench.log.offset_for_timestamp(NOW + 50, up_to=Offset(10)) is None
    assert bench.log.offset_for_timestamp(NOW + 40, up_to=Offset(10)) == (8, NOW + 40, 0)


def test_lookups_with_timestamps_out_of_order() -> None:
    bench = Bench(SMALL)
    times = [50, 10, 90, 20, 70, 95, 5, 60] * 6
    for time in times:
        bench.lead(b"x" * 30, timestamp=NOW + time)
    for asked in range(0, 100, 5):
        first = next((i for i, time in enumerate(times) if time >= asked), None)
        found = bench.log.offset_for_timestamp(NOW + asked, up_to=ALL)
        assert found == (None if first is None else (first, NOW + times[first], 0))


def test_list_offsets() -> None:
    """fetchOffsetByTimestamp: earliest, latest, the largest timestamp (KIP-734), a time."""
    bench = filled()
    bench.lead(b"x", epoch=4, timestamp=NOW - 5)
    end = bench.log.log_end_offset
    assert bench.log.fetch_offset_by_timestamp(EARLIEST, up_to=end) == (0, -1, 0)
    assert bench.log.fetch_offset_by_timestamp(LATEST, up_to=end) == (end, -1, 4)
    assert bench.log.fetch_offset_by_timestamp(MAX_TIMESTAMP, up_to=end) == bench.log.largest_timestamp(up_to=end)
    assert bench.log.fetch_offset_by_timestamp(NOW, up_to=end) == (0, NOW, 0)
    assert bench.log.fetch_offset_by_timestamp(NOW + 10**9, up_to=end) is None
    with pytest.raises(InvalidRequest, match="-4"):
        bench.log.fetch_offset_by_timestamp(-4, up_to=end)


def test_a_topic_without_timestamps_rejects_lookups_by_time() -> None:
    """Kafka answers UNSUPPORTED_FOR_MESSAGE_FORMAT for format v0."""
    bench = Bench(replace(SMALL, magic=0))
    bench.lead(b"a")
    with pytest.raises(UnsupportedForMessageFormat, match="v0"):
        bench.log.fetch_offset_by_timestamp(NOW, up_to=ALL)
    assert bench.log.fetch_offset_by_timestamp(MAX_TIMESTAMP, up_to=ALL) is None
    assert bench.log.fetch_offset_by_timestamp(EARLIEST, up_to=ALL) == (0, -1, 0)


def test_the_largest_timestamp() -> None:
    bench = Bench(SMALL)
    assert bench.log.largest_timestamp(up_to=ALL) is None
    for i, time in enumerate([5, 80, 7, 80, 99, 3] + [1] * 30):
        bench.lead(b"%d" % i, timestamp=NOW + time)
    assert bench.log.largest_timestamp(up_to=ALL) == (4, NOW + 99, 0)
    assert bench.log.largest_timestamp(up_to=Offset(4)) == (1, NOW + 80, 0)
    bench.log.truncate_to(Offset(4))
    assert bench.log.largest_timestamp(up_to=ALL) == (1, NOW + 80, 0)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
@settings(max_examples=40, deadline=None)
def test_the_largest_timestamp_equals_its_slow_twin(times: list[int]) -> None:
    bench = Bench(SMALL)
    for time in times:
        bench.lead(b"x" * 30, timestamp=NOW + time)
    for up_to in range(1, len(times) + 1):
        largest = max(times[:up_to])
        expected = (times.index(largest), NOW + largest, 0)
        assert bench.log.largest_timestamp(up_to=Offset(up_to)) == expected


@pytest.mark.parametrize(("magic", "codec"), [(2, Codec.NONE), (2, Codec.GZIP), (1, Codec.GZIP)])
def test_the_largest_timestamp_with_a_batch_partly_below_the_log_start(magic: int, codec: Codec) -> None:
    """The largest timestamp of a batch may belong to a deleted record: then it is not the result."""
    bench = Bench(replace(SMALL, magic=magic, codec=codec))
    builder = RecordBatchBuilder()
    for time in (50, 30, 40):
        builder.append(key=b"k", value=b"v", timestamp=Millis(NOW + time))
    bench.log.append(builder.build(), assign_offsets=True, leader_epoch=LeaderEpoch(0))
    bench.lead(b"last", timestamp=NOW + 20)
    bench.log.advance_high_watermark(Offset(4))
    for start, found in ((1, (2, 40)), (3, (3, 20))):
        delete_records(bench.log, Offset(start))
        reported = bench.log.largest_timestamp(up_to=ALL)
        assert reported is not None
        assert (reported.offset, reported.timestamp - NOW) == found


def test_the_largest_timestamp_is_found_without_reading_the_segment() -> None:
    """Goal: the cost of a query does not depend on the size of the segment. Method: damage that only a walk would
    find."""
    bench = Bench(LogConfig(index_interval_bytes=200))
    for i in range(300):
        bench.lead(b"x" * 30, timestamp=NOW + i)
    bench.disk.flip_bit(bench.segment_path, 16)  # the magic of the first batch
    assert bench.log.largest_timestamp(up_to=ALL) == (299, NOW + 299, 0)
    assert bench.log.largest_timestamp(up_to=Offset(150)) == (149, NOW + 149, 0)


def test_lookups_by_time_inside_a_batch() -> None:
    bench = Bench()
    builder = batch(b"a", b"b")
    bench.log.append(builder, assign_offsets=True, leader_epoch=LeaderEpoch(0))
    assert bench.log.offset_for_timestamp(NOW, up_to=ALL) == (0, NOW, 0)
    assert bench.log.offset_for_timestamp(NOW + 1, up_to=ALL) is None


def test_lookups_work_after_indexes_were_deleted() -> None:
    """Any index can be deleted; it is rebuilt when the log is opened."""
    bench = filled(60)
    expected = [bench.log.offset_for_timestamp(NOW + 10 * i, up_to=ALL) for i in range(60)]
    contents = bench.contents()
    bench.directory.close_clean()
    for name in bench.disk.list(bench.log.path):
        if name.endswith("index"):
            bench.disk.remove(f"{bench.log.path}/{name}")
    bench.reopen()
    assert bench.contents() == contents
    assert [bench.log.offset_for_timestamp(NOW + 10 * i, up_to=ALL) for i in range(60)] == expected
    assert any("rebuilt" in note for note in bench.directory.notes)


# --- watermark and epochs -------------------------------------------------------------------------------------------


def test_the_high_watermark_never_decreases_nor_passes_the_log_end() -> None:
    bench = filled(5)
    assert bench.log.advance_high_watermark(Offset(4))
    assert not bench.log.advance_high_watermark(Offset(3))
    assert bench.log.advance_high_watermark(Offset(99))
    assert bench.log.high_watermark == 10


def test_the_end_offsets_of_epochs() -> None:
    bench = Bench()
    assert epoch_end(bench.log, 3) == EpochEnd(LeaderEpoch(-1), Offset(0))
    for epoch, base in ((2, 0), (2, 1), (5, 2), (7, 3)):
        bench.follow(stamped(base, b"v", epoch=epoch))
    ends = {asked: epoch_end(bench.log, asked) for asked in range(1, 10)}
    assert [(ends[e].epoch, ends[e].end_offset) for e in range(1, 10)] == [
        (-1, 0),
        (2, 2),
        (2, 2),
        (2, 2),
        (5, 3),
        (5, 3),
        (7, 4),
        (7, 4),
        (7, 4),
    ]


def test_a_batch_with_unreadable_records_does_not_damage_the_log() -> None:
    """Goal: a producer cannot stop a partition. Method: a batch with a correct checksum over bytes that are no gzip: a
    leader rejects it, a follower stores what its leader has."""
    data = bytearray(batch(b"x" * 60, timestamp=NOW + 5))
    data[61:] = b"\xff" * (len(data) - 61)
    struct.pack_into(">h", data, 21, Codec.GZIP.value)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    bench = Bench()
    bench.lead(b"a")
    with pytest.raises(CorruptRecord, match="gzip"):
        bench.log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(0))
    stamp(data, 0, base_offset=1, leader_epoch=0)
    bench.follow(bytes(data))
    for _ in range(2):
        with pytest.raises(CorruptRecord, match=r"offsets 1\.\.1"):
            bench.log.offset_for_timestamp(NOW + 1, up_to=ALL)
        with pytest.raises(CorruptRecord):
            bench.log.largest_timestamp(up_to=ALL)
    assert bench.log.damage is None
    assert bench.lead(b"b", timestamp=NOW + 9) == 2
    assert bench.log.offset_for_timestamp(NOW + 9, up_to=ALL) == (2, NOW + 9, 0)
    bench.commit()
    record = bench.log.active.size - len(batch(b"b")) + HEADER_BYTES
    bench.disk.flip_bit(bench.segment_path, record, 6)  # the length of the last record: this is damage of the disk
    with pytest.raises(CorruptLog, match="checksum"):
        bench.log.offset_for_timestamp(NOW + 9, up_to=ALL)
