"""Which records compaction keeps and removes, rule by rule.

Covers the applicable cases of Kafka's LogCleanerTest: last value of a key, tombstones, sequences, offsets, grouping,
older formats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.directory.log_cleaner import measure_log
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
)
from tests.storage.workbench import NOW, stamped
from tidelog.records import build_message_set, iter_batches
from tidelog.records.v2.record import Record
from tidelog.types import Codec, LeaderEpoch, Millis, Offset, TimestampType

A, B, C = b"a", b"b", b"c"


def offsets(bench: CleaningBench) -> list[int]:
    return [record.offset for record in records_of(bench.log)]


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_the_last_value_of_each_key_keeps_its_offset(codec: Codec) -> None:
    bench = CleaningBench()
    for round_ in range(5):
        bench.put(*((b"k%d" % n, b"%d.%d" % (round_, n) + b"." * 30) for n in range(7)), codec=codec)
    bench.put((b"k3", b"the last"), codec=codec)
    bench.settle()
    before = records_of(bench.log)
    assert clean(bench.log)
    after = records_of(bench.log)
    assert after == [record for record in before if last_offsets(before)[record.key] == record.offset]
    assert table(after)[b"k3"] == b"the last"
    assert {batch.codec for batch in batches_of(bench.log)} == {codec}, "the codec is kept"


def test_remaining_records_keep_headers_timestamps_and_epochs() -> None:
    bench = CleaningBench()
    bench.put((A, b"old"), (B, b"kept"), timestamp=NOW - 5)
    bench.put((A, b"new"), timestamp=NOW - 9)
    bench.settle()
    before = {batch.base_offset: batch for batch in batches_of(bench.log)}
    clean(bench.log)
    for batch in batches_of(bench.log):
        was = before[batch.base_offset]
        assert (batch.last_offset, batch.partition_leader_epoch) == (was.last_offset, was.partition_leader_epoch)
        assert (batch.timestamp_type, batch.magic) == (was.timestamp_type, was.magic)
        batch.ensure_valid()
    first = batches_of(bench.log)[0]
    assert (first.base_offset, first.last_offset, first.count) == (0, 1, 1), "its header spans the removed records"
    assert [tuple(record)[1:4] for record in records_of(bench.log)] == [(NOW - 5, B, b"kept"), (NOW - 9, A, b"new")]


def test_a_batch_without_removed_records_keeps_its_bytes() -> None:
    bench = CleaningBench()
    bench.put((A, b"1"), (B, b"2"), codec=Codec.GZIP)
    bench.settle()
    before = [bytes(batch.buffer) for batch in batches_of(bench.log)]
    clean(bench.log)
    assert [bytes(batch.buffer) for batch in batches_of(bench.log)] == before


def test_log_append_time_of_a_batch_stays() -> None:
    bench = CleaningBench(replace(COMPACTED, timestamp_type=TimestampType.LOG_APPEND_TIME))
    bench.clock.now = NOW + 77
    bench.put((A, b"old"), (B, None), timestamp=5)
    bench.put((A, b"new"), timestamp=6)
    bench.settle()
    clean(bench.log)
    clean(bench.log)
    assert [record.timestamp for record in records_of(bench.log)] == [NOW + 77, NOW + 77]


def test_records_without_a_key_are_removed() -> None:
    """The topic was not compacted when they were written; a compacted topic rejects them."""
    bench = CleaningBench(replace(COMPACTED, compact=False))
    bench.put((None, b"x"), (A, b"1"))
    bench.settle()
    bench.log.reconfigure(COMPACTED)
    clean(bench.log)
    assert [record.key for record in records_of(bench.log)] == [A]


def test_an_empty_key_is_a_key() -> None:
    bench = CleaningBench()
    bench.put((b"", b"1"), (b"\x00", b"x"))
    bench.put((b"", b"2"))
    bench.settle()
    clean(bench.log)
    assert [(record.key, record.value) for record in records_of(bench.log)] == [(b"\x00", b"x"), (b"", b"2")]


# --- what is not touched ----------------------------------------------------------------------------------------------


def test_the_active_segment_is_not_cleaned() -> None:
    bench = CleaningBench(replace(COMPACTED, segment_bytes=100_000))
    for n in range(5):
        bench.put((A, b"%d" % n))
    bench.settle(roll=False)
    assert clean(bench.log) == 0
    assert offsets(bench) == [0, 1, 2, 3, 4]


def test_uncommitted_records_are_not_cleaned() -> None:
    """Scenario 10: k=v1 at 50 is committed, k=v2 at 90 is not. Removing 50 would lose k when 90 is truncated."""
    bench = CleaningBench(replace(COMPACTED, segment_bytes=120))
    for n in range(8):
        bench.put((A, b"%d" % n + b"." * 40))
    bench.settle()
    bench.log.high_watermark = Offset(4)
    clean(bench.log)
    assert offsets(bench) == [3, 4, 5, 6, 7]
    bench.log.truncate_to(Offset(4))
    assert table(records_of(bench.log)) == {A: b"3" + b"." * 40}


def test_records_that_are_not_durable_are_not_cleaned() -> None:
    bench = CleaningBench(replace(COMPACTED, segment_bytes=120))
    for n in range(4):
        bench.put((A, b"%d" % n + b"." * 40))
    bench.settle()
    for n in range(4):
        bench.put((A, b"%d" % n + b"." * 40))
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    bench.log.flush_state.recovery_point = Offset(4)
    assert measure_log(bench.log, Millis(NOW)).end == 4


def test_open_transactions_are_not_cleaned() -> None:
    bench = CleaningBench(replace(COMPACTED, segment_bytes=120))
    bench.put((A, b"1" + b"." * 40))
    bench.put((A, b"2" + b"." * 40))
    bench.produce(7, (A, b"3" + b"." * 40), transactional=True)
    bench.put((A, b"4" + b"." * 40))
    bench.settle()
    assert bench.log.last_stable_offset == 2
    clean(bench.log)
    assert offsets(bench) == [1, 2, 3]


def test_records_younger_than_min_compaction_lag_stay() -> None:
    bench = CleaningBench(replace(COMPACTED, segment_bytes=120, min_compaction_lag_ms=1000))
    for n in range(6):
        bench.put((A, b"%d" % n + b"." * 40), timestamp=NOW + n * 500)
    bench.settle()
    clean(bench.log, NOW + 2000)
    assert offsets(bench) == [2, 3, 4, 5], "those up to NOW + 1000 were old enough"
    clean(bench.log, NOW + 9999)
    assert offsets(bench) == [5]


# --- tombstones -------------------------------------------------------------------------------------------------------


def test_a_tombstone_stays_until_its_delete_horizon() -> None:
    """KIP-534: the first cleaning that reads the tombstone sets the horizon, so it does not count from the record's
    time."""
    bench = CleaningBench()
    bench.put((A, b"1"), (B, b"1"))
    bench.put((A, None), timestamp=NOW - 99 * DAY)
    bench.put((C, b"1"))
    bench.settle()
    clean(bench.log, NOW)
    assert [(record.key, record.timestamp) for record in records_of(bench.log)] == [
        (B, NOW),
        (A, NOW - 99 * DAY),
        (C, NOW),
    ]
    assert [batch.delete_horizon_ms for batch in batches_of(bench.log)] == [None, NOW + DAY, None]

    bench.put((C, b"2"))
    bench.settle()
    clean(bench.log, NOW + DAY - 1)
    assert [batch.delete_horizon_ms for batch in batches_of(bench.log) if batch.count][1] == NOW + DAY, "not later"
    assert A in {record.key for record in records_of(bench.log)}

    bench.put((C, b"3"))
    bench.settle()
    clean(bench.log, NOW + DAY)
    assert A not in {record.key for record in records_of(bench.log)}
    assert table(records_of(bench.log)) == {B: b"1", C: b"3"}


def test_a_superseded_tombstone_is_removed_at_once() -> None:
    bench = CleaningBench()
    bench.put((A, None), (B, b"1"))
    bench.put((A, b"alive again"))
    bench.settle()
    clean(bench.log)
    assert [record.value for record in records_of(bench.log)] == [b"1", b"alive again"]


def test_tombstones_are_removed_by_the_second_cleaning_with_a_delete_retention_of_0() -> None:
    """The vectors' compacted-gone: the second cleaning, not the first, removes it."""
    bench = CleaningBench(replace(COMPACTED, delete_retention_ms=0))
    bench.put((A, None), (B, b"1"))
    bench.settle()
    clean(bench.log)
    assert offsets(bench) == [0, 1]
    bench.put((B, b"2"))
    bench.settle()
    clean(bench.log)
    assert table(records_of(bench.log)) == {B: b"2"}
    assert A not in {record.key for record in records_of(bench.log)}


def test_a_tombstone_stays_while_a_follower_is_still_to_fetch_it() -> None:
    """The follower may have an older record of the key."""
    bench = CleaningBench(replace(COMPACTED, delete_retention_ms=0))
    bench.put((A, None), (B, b"1"))
    position = Offset(1)
    bench.log.first_unfetched = lambda: position
    for n in range(3):
        bench.put((B, b"%d" % n))
        bench.settle()
        clean(bench.log)
        assert A in {record.key for record in records_of(bench.log)}, f"cleaning {n}"
    position = Offset(2)
    bench.put((B, b"last"))
    bench.settle()
    clean(bench.log)
    assert A not in {record.key for record in records_of(bench.log)}


def test_a_tombstone_of_v1_stays_while_a_follower_is_still_to_fetch_it() -> None:
    bench = CleaningBench(replace(COMPACTED, magic=1, segment_bytes=10_000, delete_retention_ms=0))
    bench.log.first_unfetched = lambda: Offset(0)
    for offset, (key, value) in enumerate([(A, None), (B, b"1"), (B, b"2"), (B, b"3")]):
        data = build_message_set([Record(Offset(offset), Millis(NOW + offset), key, value)], 1)
        bench.log.append(data, assign_offsets=False, leader_epoch=LeaderEpoch(0))
        bench.settle()
        clean(bench.log, NOW + offset)
    assert offsets(bench) == [0, 3]


# --- offsets and segments ---------------------------------------------------------------------------------------------


def test_an_empty_batch_keeps_the_last_offset_of_the_round() -> None:
    """Otherwise a log that ends before its segments do could not be distinguished from one that lost its end."""
    bench = CleaningBench(replace(COMPACTED, compact=False))
    bench.put((None, b"x"))
    bench.put((A, b"1"))
    bench.put((None, b"x"), (None, b"x"), codec=Codec.GZIP)
    bench.settle()
    bench.log.reconfigure(COMPACTED)
    clean(bench.log)
    assert [(batch.base_offset, batch.last_offset, batch.count) for batch in batches_of(bench.log)] == [
        (1, 1, 1),
        (2, 3, 0),
    ]
    assert batches_of(bench.log)[1].codec is Codec.NONE


def test_the_last_message_of_a_round_stays_in_formats_without_empty_batches() -> None:
    """v0 and v1 have no empty batch: Kafka's cleaner would stop here."""
    bench = CleaningBench(replace(COMPACTED, magic=1, compact=False))
    records = [Record(Offset(n), Millis(NOW), None, b"%d" % n) for n in range(3)]
    bench.log.append(build_message_set(records, 1, Codec.GZIP), assign_offsets=False, leader_epoch=LeaderEpoch(0))
    bench.settle()
    bench.log.reconfigure(replace(COMPACTED, magic=1))
    clean(bench.log)
    assert offsets(bench) == [2]


def test_segments_are_joined_up_to_segment_bytes() -> None:
    bench = CleaningBench(replace(COMPACTED, segment_bytes=300))
    for n in range(40):
        bench.put((b"k%d" % n, b"." * 40))
    bench.settle()
    for _ in range(3):
        bench.put(*((b"k%d" % n, b"") for n in range(4)))
        bench.settle()
    many = len(bench.log.segments)
    bench.log.reconfigure(replace(COMPACTED, segment_bytes=100_000, segment_index_bytes=10_000))
    clean(bench.log)
    assert many > 15
    assert [segment.base_offset for segment in bench.log.segments] == [0, 52]
    ends = [segment.end_below(Offset(1 << 40)) for segment in bench.log.segments]
    assert all(end <= behind.base_offset for end, behind in zip(ends, bench.log.segments[1:], strict=False))


def test_a_cleaned_segment_supports_lookups_by_offset_and_time() -> None:
    bench = CleaningBench(replace(COMPACTED, index_interval_bytes=100))
    for n in range(60):
        bench.put((b"k%d" % (n % 20), b"%d" % n + b"." * 20), timestamp=NOW + n)
    bench.settle()
    clean(bench.log)
    for record in records_of(bench.log):
        found = bench.log.offset_for_timestamp(record.timestamp, up_to=bench.log.log_end_offset)
        assert found is not None
        assert found.offset == record.offset
        read = bench.log.read(record.offset, 1, up_to=bench.log.log_end_offset)
        assert record in list(next(iter_batches(read.records)).records())
    largest = bench.log.largest_timestamp(up_to=bench.log.log_end_offset)
    assert largest is not None
    assert largest.timestamp == NOW + 59


def test_an_index_that_would_not_fit_starts_another_segment() -> None:
    bench = CleaningBench(replace(COMPACTED, segment_bytes=100_000, index_interval_bytes=0, segment_index_bytes=240))
    for n in range(40):
        bench.put((b"k%d" % n, b"." * 40))
    bench.settle()
    before = len(bench.log.segments)
    clean(bench.log)
    assert len(bench.log.segments) == before > 2
    assert len(records_of(bench.log)) == 40


def test_offsets_too_far_apart_start_another_segment() -> None:
    """Relative offsets have 31 bits: two small segments of a log with a wide hole are not joined."""
    bench = CleaningBench(replace(COMPACTED, segment_bytes=100_000))
    for base in (0, 2**31 - 2, 2**31 + 5):
        bench.follow(stamped(base, b"%d" % base))
        bench.settle()
    clean(bench.log)
    bases = [segment.base_offset for segment in bench.log.segments]
    assert bases[0] == 0
    assert bases[1] >= 2**31 - 2 - 1
    assert [record.offset for record in records_of(bench.log)] == [2**31 + 5]


# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_full_map_ends_the_round_and_the_next_one_continues() -> None:
    bench = CleaningBench(replace(COMPACTED, segment_bytes=2000))
    for n in range(200):
        bench.put((b"k%d" % (n % 70), b"%d" % n + b"." * 20))
    bench.settle()
    expected = table(records_of(bench.log))
    cleaner, ends = make_cleaner(map_bytes=2 * 769), []
    while clean(bench.log, cleaner=cleaner):
        assert cleaner.last is not None
        ends.append(cleaner.last.end)
        assert table(records_of(bench.log)) == expected
    assert len(ends) > 2
    assert ends == sorted(set(ends))
    assert ends[-1] == bench.log.active.base_offset


# --- older formats ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_message_sets_are_compacted(magic: int, codec: Codec) -> None:
    bench = CleaningBench(replace(COMPACTED, magic=magic, segment_bytes=700))
    for n in range(20):
        records = [
            Record(Offset(5 * n + i), Millis(NOW + n), b"k%d" % (n * i % 9), b"%d" % n + b"." * 20) for i in range(5)
        ]
        data = build_message_set(records, magic, codec)
        bench.log.append(data, assign_offsets=False, leader_epoch=LeaderEpoch(0))
    bench.settle()
    before = records_of(bench.log)
    clean(bench.log)
    after = records_of(bench.log)
    assert after == [record for record in before if last_offsets(before)[record.key] == record.offset]
    assert {(batch.magic, batch.codec) for batch in batches_of(bench.log)} == {(magic, codec)}
    for batch in batches_of(bench.log):
        batch.ensure_valid()
    bench.crash(seed=2)
    assert records_of(bench.log) == after


def test_formats_may_be_mixed_in_one_log() -> None:
    bench = CleaningBench()
    for n in range(12):
        record = Record(Offset(n), Millis(NOW), b"k%d" % (n % 4), b"%d" % n + b"." * 40)
        data = stamped(n, record.value or b"") if n % 3 == 2 else build_message_set([record], n % 3)
        bench.log.append(data, assign_offsets=False, leader_epoch=LeaderEpoch(0))
    bench.settle()
    before = records_of(bench.log)
    clean(bench.log)
    assert records_of(bench.log) == [r for r in before if last_offsets(before)[r.key] == r.offset]


def test_tombstones_without_a_horizon_field_expire_by_the_age_of_their_segment() -> None:
    """v1: a day younger than the newest clean record, they stay; an hour older, they are removed."""
    bench = CleaningBench(replace(COMPACTED, magic=1, segment_bytes=10_000))

    def write(offset: int, key: bytes, value: bytes | None, timestamp: int) -> None:
        data = build_message_set([Record(Offset(offset), Millis(timestamp), key, value)], 1)
        bench.log.append(data, assign_offsets=False, leader_epoch=LeaderEpoch(0))
        bench.settle()

    write(0, A, None, NOW)
    write(1, B, b"1", NOW + 1000)
    clean(bench.log, NOW + 1000)
    assert offsets(bench) == [0, 1], "nothing was clean before"
    write(2, B, b"2", NOW + 2000)
    clean(bench.log, NOW + 2000)
    assert offsets(bench) == [0, 2], "younger than a day compared with the clean part"
    bench.log.reconfigure(replace(bench.log.config, delete_retention_ms=0))
    write(3, B, b"3", NOW + 3000)
    clean(bench.log, NOW + 3000)
    assert offsets(bench) == [3]


def test_the_largest_timestamp_is_that_of_a_remaining_record() -> None:
    """A header that is kept for a producer's last sequence still has the timestamp of removed records."""
    bench = CleaningBench()
    bench.put((b"b", b"first"), timestamp=NOW + 1)
    bench.produce(1, (b"a", b"old"), timestamp=NOW + 900)
    bench.put((b"a", b"new"), timestamp=NOW + 5)
    bench.settle()
    clean(bench.log)
    assert [(batch.base_offset, batch.count) for batch in batches_of(bench.log)] == [(0, 1), (1, 0), (2, 1)]
    assert bench.log.largest_timestamp(up_to=bench.log.log_end_offset) == (2, NOW + 5, 0)
