"""Every segment of three directories that Kafka wrote, field by field against what Kafka's own tools read from it."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.kafka_directories import DIRECTORIES, PARTITIONS, says, segments
from tidelog.errors import CorruptRecord
from tidelog.records import (
    HEADER_BYTES,
    EndTxnMarker,
    LeaderChange,
    LegacyRecordBatch,
    Record,
    RecordBatch,
    RecordBatchBuilder,
    SnapshotFooter,
    SnapshotHeader,
    control_batch,
    decode_control,
    empty_batch,
    iter_batches,
)
from tidelog.records.legacy.message_builder import MessageSetBuilder
from tidelog.records.v2.compression import decompress
from tidelog.records.v2.control import ControlType
from tidelog.records.v2.lz4_header import with_old_checksum, with_right_checksum
from tidelog.records.v2.record import encode_record
from tidelog.types import Codec, TimestampType

TIMESTAMP_TYPES = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
NOT_HEADER = ("records", "isvalid")
SEGMENTS = {"cluster": 179, "unclean": 67, "old": 128}
BATCHES = {"cluster": 1389, "unclean": 654, "old": 694}

each_partition = pytest.mark.parametrize(("directory", "partition"), PARTITIONS, ids=str)


def pairs(directory: str, partition: str) -> Iterator[tuple[RecordBatch, dict[str, Any]]]:
    for segment in segments(directory, partition):
        yield from segment.pairs()


def every_batch() -> Iterator[RecordBatch]:
    for directory, partition in PARTITIONS:
        for batch, _ in pairs(directory, partition):
            yield batch


# --- what is there -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_the_directory_is_whole(directory: str) -> None:
    """A vector that went missing would make the other tests pass without it."""
    said = says(directory).values()
    assert sum(len(partition["segments"]) for partition in said) == SEGMENTS[directory]
    assert sum(len(segment["batches"]) for partition in said for segment in partition["segments"]) == BATCHES[directory]


def test_the_directories_hold_every_kind_of_batch() -> None:
    """What a test below says of "every batch" is worth what the batches are."""
    kinds: Counter[str] = Counter()
    for batch in every_batch():
        kinds[f"v{batch.magic} {batch.codec.name.lower()}"] += 1
        kinds["log append time"] += batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        kinds["control"] += batch.is_control
        kinds["transactional"] += batch.is_transactional
        kinds["delete horizon"] += batch.delete_horizon_ms is not None
        kinds["empty"] += batch.count == 0
        kinds["idempotent"] += batch.base_sequence >= 0
        kinds["with holes"] += 0 < batch.count <= batch.last_offset_delta
    expected = {f"v2 {codec.name.lower()}" for codec in Codec}
    expected |= {f"v{magic} {name}" for magic in (0, 1) for name in ("none", "gzip", "snappy", "lz4")}
    expected |= {"log append time", "control", "transactional", "delete horizon", "empty", "idempotent", "with holes"}
    assert expected == {kind for kind, count in kinds.items() if count}


# --- reading -----------------------------------------------------------------------------------------------------


@each_partition
def test_every_header_field_equals_kafkas(directory: str, partition: str) -> None:
    for batch, said in pairs(directory, partition):
        batch.ensure_valid()
        assert said["isvalid"]
        assert _header_as_kafka_prints_it(batch) == {name: said[name] for name in said if name not in NOT_HEADER}


def _header_as_kafka_prints_it(batch: RecordBatch) -> dict[str, Any]:
    fields = {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "position": batch.position,
        "size": batch.size,
        "magic": batch.magic,
        "crc": batch.crc,
        "codec": batch.codec.name.lower(),
        "timestampType": TIMESTAMP_TYPES[batch.timestamp_type],
        "maxTimestamp": batch.max_timestamp,
    }
    if batch.magic == 2:
        fields |= {
            "count": batch.count,
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "baseSequence": batch.base_sequence,
            "lastSequence": batch.last_sequence,
            "partitionLeaderEpoch": batch.partition_leader_epoch,
            "isTransactional": batch.is_transactional,
            "isControl": batch.is_control,
            "deleteHorizonMs": batch.delete_horizon_ms,
        }
    return fields


@each_partition
def test_every_record_equals_kafkas(directory: str, partition: str) -> None:
    for batch, said in pairs(directory, partition):
        records = [_record_as_kafka_prints_it(record, batch) for record in batch.records()]
        assert records == [record[:6] for record in said["records"]]
        assert batch.count == len(records)


def _record_as_kafka_prints_it(record: Record, batch: RecordBatch) -> list[Any]:
    sequence = -1
    if batch.base_sequence >= 0:
        sequence = (batch.base_sequence + record.offset - batch.base_offset) & (2**31 - 1)
    return [
        record.offset,
        record.timestamp,
        sequence,
        _hex(record.key),
        _hex(record.value),
        [[name, _hex(value)] for name, value in record.headers],
    ]


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def test_a_preallocated_tail_of_zeros_is_corrupt_behind_the_last_batch() -> None:
    """Kafka's tool stops there too ("smaller than minimum record overhead"); it is recovery that cuts it."""
    open_segments = [
        s for directory, partition in PARTITIONS for s in segments(directory, partition) if s.ends_in_zeros
    ]
    assert open_segments
    for segment in open_segments:
        seen = []
        with pytest.raises(CorruptRecord, match="length of 0"):
            for batch in iter_batches(segment.data):
                seen.append(batch.last_offset)  # noqa: PERF401 - what came before the error counts
        assert seen == [batch["lastOffset"] for batch in segment.batches]


def test_v0_lz4_frames_have_the_checksum_of_old_and_ours_is_the_same() -> None:
    """KIP-57: the byte that Kafka wrote is the one that we write, and the right one is another."""
    frames = [b.value for b in every_batch() if isinstance(b, LegacyRecordBatch) and b.codec is Codec.LZ4]
    old = [frame for frame in frames if frame is not None and with_right_checksum(frame) != frame]
    assert len(old) == sum(1 for batch in every_batch() if batch.magic == 0 and batch.codec is Codec.LZ4)
    for frame in old:
        assert with_old_checksum(with_right_checksum(frame)) == frame


# --- writing -----------------------------------------------------------------------------------------------------


@each_partition
def test_every_control_record_equals_kafkas_and_is_rebuilt_byte_for_byte(directory: str, partition: str) -> None:
    for batch, said in pairs(directory, partition):
        if not batch.is_control:
            continue
        for record, fields in zip(batch.records(), said["records"], strict=True):
            kind, epoch = [*fields, None][6:8]
            control = decode_control(record)
            match control:
                case EndTxnMarker(committed, coordinator_epoch):
                    assert ("COMMIT" if committed else "ABORT", coordinator_epoch) == (kind, epoch)
                case LeaderChange():
                    assert kind == "LEADER_CHANGE"
                case SnapshotHeader():
                    assert kind == "SNAPSHOT_HEADER"
                case SnapshotFooter():
                    assert kind == "SNAPSHOT_FOOTER"
                case ControlType() | None:
                    pytest.fail(f"{kind} says nothing to us")
            assert bytes(batch.buffer) == control_batch(
                control,
                timestamp=record.timestamp,
                base_offset=batch.base_offset,
                leader_epoch=batch.partition_leader_epoch,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                delete_horizon_ms=batch.delete_horizon_ms,
            )


@each_partition
def test_the_same_records_give_the_same_bytes(directory: str, partition: str) -> None:
    """Uncompressed the whole batch is compared, cleaned ones and empty ones included; compressed, what was compressed
    and the header but for its length and checksum, since libraries and levels differ."""
    for batch, _ in pairs(directory, partition):
        built = _built_again(batch)
        if batch.codec is Codec.NONE:
            assert built == bytes(batch.buffer)
        elif isinstance(batch, LegacyRecordBatch):
            again = LegacyRecordBatch(built)
            again.ensure_valid()
            assert again.inner_messages() == batch.inner_messages()
            assert again.header[6:] == batch.header[6:]
        else:
            again_v2 = RecordBatch(built)
            again_v2.ensure_valid()
            assert _uncompressed(again_v2) == _uncompressed(batch)
            assert again_v2.header[6:] == batch.header[6:]
            assert again_v2.header[1] == batch.base_offset


def _uncompressed(batch: RecordBatch) -> bytes:
    return decompress(batch.codec, batch.buffer[HEADER_BYTES:])


def _built_again(batch: RecordBatch) -> bytes:
    if isinstance(batch, LegacyRecordBatch):
        return _message_set_built_again(batch)
    if batch.count == 0:
        return empty_batch(batch)
    stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    builder = RecordBatchBuilder(
        batch.codec,
        timestamp_type=batch.timestamp_type,
        log_append_time=batch.max_timestamp if stamped else None,
        delete_horizon_ms=batch.delete_horizon_ms,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
    )
    for record in _with_their_own_timestamps(batch):
        builder.append(
            key=record.key,
            value=record.value,
            timestamp=record.timestamp,
            headers=record.headers,
            offset=record.offset,
        )
    return builder.build()


def _with_their_own_timestamps(batch: RecordBatch) -> list[Record]:
    """The records as their producer stamped them: under log append time a reader does not get to see that."""
    if batch.timestamp_type is not TimestampType.LOG_APPEND_TIME:
        return list(batch.records())
    data = bytearray(batch.buffer)
    struct.pack_into(">h", data, 21, batch.attributes & ~0x08)
    return list(RecordBatch(data).records())


def _message_set_built_again(batch: LegacyRecordBatch) -> bytes:
    records = list(batch.records())
    stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    builder = MessageSetBuilder(
        batch.magic,
        batch.codec,
        timestamp_type=batch.timestamp_type,
        log_append_time=batch.max_timestamp if stamped else None,
        base_offset=_inner_base(batch, records),
    )
    for record in records:
        builder.append(key=record.key, value=record.value, timestamp=record.timestamp, offset=record.offset)
    return builder.build()


def _inner_base(batch: LegacyRecordBatch, records: list[Record]) -> int:
    """What inner offsets count from: the first record, or one that the cleaner has removed since."""
    if batch.magic == 0 or not batch.is_wrapper:
        return records[0].offset
    _, found = batch.inner_messages()
    return records[0].offset - found[0].offset


def test_most_batches_begin_where_their_first_record_does() -> None:
    """Then base timestamp and inner offsets come from the records, not from what the test read out of the batch."""
    plain = [b for b in every_batch() if b.count == b.last_offset_delta + 1 and b.delete_horizon_ms is None]
    assert len(plain) > 0.9 * sum(BATCHES.values())
    for batch in plain:
        if batch.magic == 2 and batch.codec is not Codec.NONE and batch.timestamp_type is TimestampType.CREATE_TIME:
            records = list(batch.records())
            assert batch.base_timestamp == records[0].timestamp
            assert _uncompressed(batch) == b"".join(
                encode_record(
                    r.offset - batch.base_offset, r.timestamp - records[0].timestamp, r.key, r.value, r.headers
                )
                for r in records
            )
