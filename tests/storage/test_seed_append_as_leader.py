"""append-as-leader.txt, step by step: what the leader does with records of every format before they are in the log, and
the results. Offsets, epochs and sizes of v2 alone: test_append_leader.py."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace

import pytest

from storage.append_info import LogAppendInfo, Origin
from storage.log_config import LogConfig
from testbed.fake_disk import SimulatedCrash
from tests.records.reference import iter_records
from tests.storage.workbench import NOW, SMALL, TOPIC_ID, Bench, batch
from tidelog.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    KafkaStorageError,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    RecordTooLarge,
    TidelogError,
    UnsupportedForMessageFormat,
)
from tidelog.records import Record, build_batch, build_message_set, iter_batches
from tidelog.types import (
    Codec,
    Durability,
    LeaderEpoch,
    Millis,
    Offset,
    PartitionIndex,
    ProducerId,
    TimestampType,
    TopicPartition,
)

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
THREE = [
    Record(Offset(0), Millis(NOW), b"a", b"1" * 40),
    Record(Offset(1), Millis(NOW + 7), b"b", None),
    Record(Offset(2), Millis(NOW + 3), b"", b"3" * 40),
]

each_magic = pytest.mark.parametrize("magic", [0, 1, 2])


def sent(magic: int, records: list[Record] = THREE, codec: Codec = Codec.NONE) -> bytes:
    """What a producer of that format sends."""
    return build_batch(records, codec) if magic == 2 else build_message_set(records, magic, codec)


def lead(bench: Bench, data: bytes, origin: Origin = Origin.CLIENT) -> LogAppendInfo:
    return bench.log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(2), origin=origin)


def stored(bench: Bench) -> list[Record]:
    return [record for data in bench.contents() for record in iter_records(data)]


def refused(bench: Bench, data: bytes, error: type[TidelogError], match: str | None = None) -> TidelogError:
    """The append is rejected and leaves no trace."""
    before = (bench.log.log_end_offset, bench.log.size, bench.log.epochs.entries)
    with pytest.raises(error, match=match) as caught:
        lead(bench, data)
    assert (bench.log.log_end_offset, bench.log.size, bench.log.epochs.entries) == before
    return caught.value


# --- who may append ----------------------------------------------------------------------------------------------


def test_clients_do_not_write_internal_topics() -> None:
    """非admin客户端写入__consumer_offsets等特殊主题."""
    bench = Bench()
    internal = bench.directory.create_log(TopicPartition("__consumer_offsets", PartitionIndex(0)), TOPIC_ID, SMALL)
    with pytest.raises(InvalidTopic, match="internal topic"):
        internal.append(batch(b"a"), assign_offsets=True, leader_epoch=LeaderEpoch(0))
    assert internal.log_end_offset == 0
    internal.append(batch(b"a"), assign_offsets=True, leader_epoch=LeaderEpoch(0), origin=Origin.COORDINATOR)
    assert internal.log_end_offset == 1


def test_a_closed_log_rejects_appends() -> None:
    """checkIfMemoryMappedBufferClosed: KafkaStorageException."""
    bench = Bench()
    lead(bench, batch(b"a"))
    bench.log.close()
    with pytest.raises(KafkaStorageError, match="closed"):
        lead(bench, batch(b"b"))


def test_a_disk_failure_takes_the_directory_offline() -> None:
    """maybeHandleIOException: the directory is recorded as failed, and the caller gets KafkaStorageException."""
    bench = Bench()
    bench.disk.fail("write", ".log", error=errno.EIO)
    with pytest.raises(KafkaStorageError):
        lead(bench, batch(b"a"))
    assert bench.directory.offline is not None


# --- nothing valid, and what is cut off --------------------------------------------------------------------------


@each_magic
def test_without_a_whole_batch_the_result_is_empty(magic: int) -> None:
    """shallowCount == 0: return appendInfo. Its numbers are those of UnknownLogAppendInfo: -1."""
    bench = Bench(replace(SMALL, magic=magic))
    one = [THREE[0]]
    info = lead(bench, sent(magic, one)[:-1])
    assert info == LogAppendInfo(log_start_offset=Offset(0))
    assert (info.first_offset, info.last_offset, info.max_timestamp, info.log_append_time) == (-1, -1, -1, -1)
    assert (info.valid_bytes, bench.log.size) == (0, 0)


@each_magic
def test_a_partial_batch_at_the_end_is_not_counted(magic: int) -> None:
    """trimInvalidBytes: validBytes counts whole batches."""
    bench = Bench(replace(SMALL, magic=magic))
    whole = sent(magic)
    info = lead(bench, whole + whole[:16])
    assert (info.valid_bytes, info.last_offset) == (len(whole), 2)
    assert stored(bench) == [record._replace(timestamp=Millis(-1)) if magic == 0 else record for record in THREE]


# --- formats and codecs ------------------------------------------------------------------------------------------


@each_magic
@pytest.mark.parametrize("came", [0, 1, 2])
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_any_format_are_stored_in_the_topics_format(magic: int, came: int, codec: Codec) -> None:
    """validateMessagesAndAssignOffsets(..., messageFormatVersion, ...): offsets from the log end on, one conversion."""
    bench = Bench(LogConfig(magic=magic))
    lead(bench, sent(2, [THREE[0]]))
    info = lead(bench, sent(came, THREE, codec))
    batches = [found for data in bench.contents() for found in iter_batches(data)]
    assert {found.magic for found in batches} == {magic}
    for found in batches:
        found.ensure_valid()
    has_time = min(magic, came) > 0
    expected = [(THREE[0].key, THREE[0].value)] + [(record.key, record.value) for record in THREE]
    assert [(record.key, record.value) for record in stored(bench)] == expected
    assert [record.offset for record in stored(bench)] == [0, 1, 2, 3]
    assert [record.timestamp for record in stored(bench)][1:] == [
        record.timestamp if has_time else -1 for record in THREE
    ]
    assert (info.first_offset, info.last_offset, info.record_count) == (1, 3, 3)
    assert info.max_timestamp == (NOW + 7 if has_time else -1)
    assert {found.codec for found in batches[1:]} == {codec}
    assert info.converted_records == (0 if magic == came else 3)
    assert info.valid_bytes == bench.log.size - batches[0].size
    assert bench.log.log_end_offset == 4


@each_magic
@pytest.mark.parametrize("wanted", CODECS)
def test_the_topics_codec_has_precedence_over_the_producers(magic: int, wanted: Codec) -> None:
    """compression.type (targetCodec): "producer" leaves the source codec, any other is what is stored."""
    bench = Bench(LogConfig(magic=magic, codec=wanted))
    info = lead(bench, sent(magic, THREE, Codec.GZIP))
    assert {found.codec for data in bench.contents() for found in iter_batches(data)} == {wanted}
    assert [record.value for record in stored(bench)] == [record.value for record in THREE]
    assert info.converted_records == 0, "the format is unchanged"


@pytest.mark.parametrize("magic", [0, 1])
def test_records_that_an_older_format_cannot_represent_are_rejected(magic: int) -> None:
    bench = Bench(replace(SMALL, magic=magic))
    headers = [THREE[0]._replace(headers=(("h", b"1"),))]
    assert "headers" in refused(bench, sent(2, headers), UnsupportedForMessageFormat).message
    idempotent = build_batch(THREE, producer_id=ProducerId(4), producer_epoch=0, base_sequence=0)
    assert "idempotent" in refused(bench, idempotent, UnsupportedForMessageFormat).message


# --- time --------------------------------------------------------------------------------------------------------


@each_magic
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_log_append_time_is_the_leaders_clock(magic: int, codec: Codec) -> None:
    """If LOG_APPEND_TIME, appendInfo.logAppendTime = now; v0 has no field for it."""
    bench = Bench(LogConfig(magic=magic, timestamp_type=TimestampType.LOG_APPEND_TIME))
    bench.clock.now = NOW + 1_000
    info = lead(bench, sent(magic, THREE, codec))
    assert info.log_append_time == NOW + 1_000
    expected = -1 if magic == 0 else NOW + 1_000
    assert {record.timestamp for record in stored(bench)} == {expected}
    assert info.max_timestamp == expected


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize(("off", "fits"), [(-1_001, False), (-1_000, True), (500, True), (501, False)])
def test_create_times_are_limited_in_both_directions(magic: int, off: int, fits: bool) -> None:
    """messageTimestampDifferenceMaxMs, as its two successors; the error names the records."""
    bench = Bench(LogConfig(magic=magic, timestamp_before_ms_max=1_000, timestamp_after_ms_max=500))
    data = sent(magic, [THREE[0], THREE[1]._replace(timestamp=Millis(NOW + off))])
    if fits:
        assert lead(bench, data).record_count == 2
        return
    error = refused(bench, data, InvalidTimestamp)
    assert [(each.index, str(NOW + off) in each.message) for each in error.record_errors] == [(1, True)]


# --- limits ------------------------------------------------------------------------------------------------------


def test_sizes_are_checked_again_if_conversion_made_them_larger() -> None:
    """messageSizeMaybeChanged: RecordTooLargeException; the statistics count what was sent, before trimming."""
    compressed = sent(2, [THREE[0]._replace(value=b"x" * 5_000)], Codec.GZIP)
    bench = Bench(LogConfig(codec=Codec.NONE, max_message_bytes=4_000))
    tail = compressed[:20]
    assert "max.message.bytes" in refused(bench, compressed + tail, RecordTooLarge).message
    assert bench.log.bytes_rejected == len(compressed) + 20
    refused(bench, sent(2, [THREE[0]._replace(value=b"x" * 5_000)]), RecordTooLarge)
    assert bench.log.bytes_rejected > len(compressed) + 5_000


def test_an_append_larger_than_a_segment_is_rejected() -> None:
    """RecordBatchTooLargeException: against segment.bytes, as it would be stored."""
    compressed = sent(2, [THREE[0]._replace(value=b"x" * 5_000)], Codec.GZIP)
    bench = Bench(LogConfig(codec=Codec.NONE, segment_bytes=4_000))
    refused(bench, compressed, RecordListTooLarge, "segment.bytes")
    assert bench.log.bytes_rejected == len(compressed)


@each_magic
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_compacted_topic_requires_keys(magic: int, codec: Codec) -> None:
    """config.compact: a record without a key is rejected with its batch."""
    bench = Bench(replace(SMALL, magic=magic, compact=True))
    data = sent(magic, [THREE[0], THREE[1]._replace(key=None)], codec)
    error = refused(bench, data, InvalidRecord, "no key")
    assert [each.index for each in error.record_errors] == [1]
    assert lead(bench, sent(magic, THREE, codec)).record_count == 3


# --- producers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stamped", [False, True])
def test_a_duplicate_is_answered_with_its_first_result(stamped: bool) -> None:
    """maybeDuplicate: its first and last offset, its time where the log stamps, the log start."""
    kind = TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME
    bench = Bench(replace(SMALL, timestamp_type=kind))
    data = build_batch(THREE, producer_id=ProducerId(4), producer_epoch=0, base_sequence=0)
    first = lead(bench, data)
    lead(bench, batch(b"between"))
    bench.clock.now += 60_000
    again = lead(bench, data)
    assert again.duplicate
    assert not first.duplicate
    assert (again.first_offset, again.last_offset, again.log_append_time, again.log_start_offset) == (
        first.first_offset,
        first.last_offset,
        first.log_append_time,
        first.log_start_offset,
    )
    assert bench.log.log_end_offset == 4
    gap = build_batch(THREE, producer_id=ProducerId(4), producer_epoch=0, base_sequence=99)
    refused(bench, gap, OutOfOrderSequenceNumber)


# --- epochs ------------------------------------------------------------------------------------------------------


@each_magic
def test_the_epoch_cache_has_the_epochs_of_every_format(magic: int) -> None:
    """The document adds epochs of v2 batches only; v0 and v1 contain none, and get them from the cache (design section
    2)."""
    bench = Bench(replace(SMALL, magic=magic))
    info = bench.log.append(sent(magic), assign_offsets=True, leader_epoch=LeaderEpoch(1))
    assert info.last_leader_epoch == 1
    bench.log.append(sent(magic), assign_offsets=True, leader_epoch=LeaderEpoch(4))
    assert [(entry.epoch, entry.start_offset) for entry in bench.log.epochs.entries] == [(1, 0), (4, 3)]
    read = bench.log.read(Offset(4), 1, up_to=Offset(6))
    assert [(entry.epoch, entry.start_offset) for entry in read.epochs] == [(4, 3)]


@pytest.mark.parametrize("durability", list(Durability))
def test_no_byte_of_an_old_format_survives_without_its_epoch_entry(durability: Durability) -> None:
    """Goal: the epoch of a v1 record is known wherever the record exists. Method: power fails at each call of an
    append."""
    for number in range(1, 20):
        for seed in range(4):
            bench = Bench(replace(SMALL, magic=1, durability=durability))
            lead(bench, sent(1))
            bench.commit_log()
            bench.disk.crash_at_call(bench.disk.calls + number)
            with suppress(SimulatedCrash):
                bench.log.append(sent(1), assign_offsets=True, leader_epoch=LeaderEpoch(5))
                bench.commit_log()
            bench.crash(seed)
            epochs = [(entry.epoch, entry.start_offset) for entry in bench.log.epochs.entries]
            assert epochs[:1] == [(2, 0)]
            assert bench.log.damage is None
            if bench.log.log_end_offset > 3:
                assert epochs == [(2, 0), (5, 3)]


# --- flush -------------------------------------------------------------------------------------------------------


def test_flush_messages_counts_unflushed_records() -> None:
    """unflushedMessages >= config.flushInterval: log end less recovery point."""
    bench = Bench(replace(SMALL, durability=Durability.PAGE_CACHE, flush_messages=6))
    lead(bench, sent(2))
    assert bench.log.recovery_point == 0
    lead(bench, sent(2))
    assert bench.log.recovery_point == 6
