"""Appending as the leader, in the order of append-as-leader.txt (appendAsLeader) and design section 3."""

from __future__ import annotations

import pytest

from storage.append_info import LogAppendInfo, Origin
from storage.log_config import LogConfig
from tests.fakes.log_start import latest_epoch
from tests.storage.workbench import NOW, Bench, batch, stamped
from tidelog.errors import (
    CorruptRecord,
    FencedLeaderEpoch,
    InvalidRecord,
    InvalidTimestamp,
    RecordListTooLarge,
    RecordTooLarge,
    TidelogError,
)
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.builder import RecordBatchBuilder
from tidelog.types import Codec, LeaderEpoch, Millis, Offset, TimestampType

EPOCH = LeaderEpoch(3)


def append(bench: Bench, data: bytes | bytearray, origin: Origin = Origin.CLIENT) -> LogAppendInfo:
    return bench.log.append(data, assign_offsets=True, leader_epoch=EPOCH, origin=origin)


def refused(bench: Bench, data: bytes, error: type[TidelogError], match: str | None = None) -> None:
    """The append is rejected and leaves no trace."""
    before = (bench.log.log_end_offset, bench.log.size, bench.log.epochs.entries)
    with pytest.raises(error, match=match):
        append(bench, data)
    assert (bench.log.log_end_offset, bench.log.size, bench.log.epochs.entries) == before


def test_offsets_and_epoch_are_stamped_into_the_batch() -> None:
    bench = Bench()
    append(bench, batch(b"a", b"b"))
    append(bench, batch(b"c"))
    first, second = (RecordBatch(data) for data in bench.contents())
    assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
    assert first.partition_leader_epoch == second.partition_leader_epoch == EPOCH
    for stored in (first, second):
        stored.ensure_valid()
    assert [record.value for record in first.records()] == [b"a", b"b"]


def test_the_senders_bytes_stay_unchanged() -> None:
    bench = Bench()
    append(bench, batch(b"first"))
    sent = bytearray(batch(b"a", b"b"))
    copy = bytes(sent)
    append(bench, sent)
    assert sent == copy
    assert bench.contents()[-1][61:] == copy[61:]


def test_the_result_has_all_fields() -> None:
    bench = Bench()
    append(bench, batch(b"x"))
    data = batch(b"a" * 50, b"b" * 50, timestamp=NOW + 5, codec=Codec.GZIP)
    info = append(bench, data)
    assert info == LogAppendInfo(
        first_offset=Offset(1),
        last_offset=Offset(2),
        last_leader_epoch=EPOCH,
        max_timestamp=Millis(NOW + 5),
        log_append_time=Millis(-1),
        log_start_offset=Offset(0),
        record_count=2,
        valid_bytes=len(data),
        duplicate=False,
        converted_records=0,
        checksum=RecordBatch(bench.contents()[-1]).crc,
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_stored_as_sent(codec: Codec) -> None:
    bench = Bench()
    data = batch(b"v" * 200, codec=codec)
    append(bench, data)
    assert bench.contents()[0][16:] == data[16:]


def test_log_append_time_is_stamped_with_a_new_checksum() -> None:
    bench = Bench(LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME))
    bench.clock.now = NOW + 1_000
    info = append(bench, batch(b"a", timestamp=17))
    stored = RecordBatch(bench.contents()[0])
    stored.ensure_valid()
    assert info.log_append_time == info.max_timestamp == stored.max_timestamp == NOW + 1_000
    assert stored.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in stored.records()] == [NOW + 1_000]


def test_an_append_without_a_whole_batch_changes_nothing() -> None:
    bench = Bench()
    for data in (b"", batch(b"a")[:-1], batch(b"a")[:40]):
        assert append(bench, data) == LogAppendInfo(log_start_offset=Offset(0))
    assert bench.log.size == 0


def test_a_partial_batch_at_the_end_is_dropped() -> None:
    bench = Bench()
    data = batch(b"a")
    assert append(bench, data + batch(b"b")[:-3]).valid_bytes == len(data)
    assert len(bench.contents()) == 1


def test_a_flipped_bit_is_rejected() -> None:
    bench = Bench()
    good = batch(b"some value")
    for position in (17, 21, 23, 30, 40, 57, 61, len(good) - 1):
        bad = bytearray(good)
        bad[position] ^= 4
        refused(bench, bytes(bad), CorruptRecord)


def test_two_batches_in_one_append_are_rejected() -> None:
    refused(Bench(), batch(b"a") + batch(b"b"), InvalidRecord, "2 batches")


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_a_v2_batch_with_an_older_magic_is_rejected(magic: int) -> None:
    """Its checksum does not cover the magic; the checksum of an older message covers other bytes."""
    other = bytearray(batch(b"a" * 60))
    other[16] = magic
    refused(Bench(), bytes(other), CorruptRecord)


def test_a_batch_above_max_message_bytes_is_rejected_and_counted() -> None:
    data = batch(b"x" * 100)
    bench = Bench(LogConfig(max_message_bytes=len(data) - 1))
    refused(bench, data, RecordTooLarge, "max.message.bytes")
    assert bench.log.bytes_rejected == len(data)
    exactly = Bench(LogConfig(max_message_bytes=len(data)))
    append(exactly, data)


def test_a_batch_above_segment_bytes_is_rejected_and_counted() -> None:
    data = batch(b"x" * 100)
    bench = Bench(LogConfig(segment_bytes=len(data) - 1))
    refused(bench, data, RecordListTooLarge, "segment.bytes")
    assert bench.log.bytes_rejected == len(data)


def test_a_producer_cannot_choose_offsets() -> None:
    refused(Bench(), stamped(7, b"a"), InvalidRecord, "base offset is 7")


def test_a_record_count_must_agree_with_the_offsets() -> None:
    builder = RecordBatchBuilder()
    builder.append(key=None, value=b"a", timestamp=NOW)
    builder.append(key=None, value=b"b", timestamp=NOW, offset=Offset(5))
    refused(Bench(), builder.build(), InvalidRecord, "offsets 0 to 5")


def test_clients_cannot_append_control_batches() -> None:
    builder = RecordBatchBuilder(is_control=True)
    builder.append(key=b"\0\0\0\1", value=b"", timestamp=NOW)
    bench = Bench()
    refused(bench, builder.build(), InvalidRecord, "control")
    assert append(bench, builder.build(), Origin.COORDINATOR).last_offset == 0


def test_timestamps_far_in_the_future_are_rejected() -> None:
    bench = Bench(LogConfig(timestamp_after_ms_max=1_000))
    append(bench, batch(b"a", timestamp=NOW + 1_000))
    refused(bench, batch(b"a", timestamp=NOW + 1_001), InvalidTimestamp, "out of range")


def test_a_producer_cannot_claim_log_append_time() -> None:
    builder = RecordBatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME)
    builder.append(key=None, value=b"a", timestamp=NOW)
    refused(Bench(), builder.build(), InvalidTimestamp, "log append time")


def test_an_append_in_an_older_epoch_is_rejected() -> None:
    bench = Bench()
    bench.log.begin_epoch(LeaderEpoch(4))
    refused(bench, batch(b"a"), FencedLeaderEpoch)
    with pytest.raises(FencedLeaderEpoch):
        bench.log.begin_epoch(LeaderEpoch(3))


def test_appends_build_the_epoch_cache() -> None:
    bench = Bench()
    bench.log.begin_epoch(LeaderEpoch(1))
    assert bench.log.last_epoch == -1, "no record yet"
    bench.lead(epoch=1)
    bench.lead(epoch=1)
    bench.log.begin_epoch(LeaderEpoch(2))
    assert (bench.log.last_epoch, latest_epoch(bench.log)) == (1, 2)
    bench.lead(epoch=4)
    assert _pairs(bench) == [(1, 0), (4, 2)]


def _pairs(bench: Bench) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in bench.log.epochs.entries]
