"""Every v2 segment of a folder that Kafka 4.1 wrote, field by field against what Kafka's own tools read from it."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tidelog.records import (
    HEADER_BYTES,
    ControlType,
    EndTxnMarker,
    LeaderChange,
    Record,
    RecordBatch,
    RecordBatchBuilder,
    control_batch,
    decode_control,
    decompress,
    iter_batches,
)
from tidelog.records.record import encode_record
from tidelog.types import Codec, TimestampType

VECTORS = Path(__file__).parent.parent / "vectors"
TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
SEGMENTS = 179
BATCHES = 1389


@cache
def kafka_says() -> dict[str, Any]:
    """What Kafka's tools printed, by partition."""
    partitions: dict[str, Any] = json.loads(lzma.decompress((VECTORS / "cluster.json.xz").read_bytes()))["partitions"]
    return partitions


@cache
def kafka_wrote() -> dict[str, bytes]:
    """The `.log` files by path below the data folder, and the metadata snapshots, which are batches as well."""
    archive = io.BytesIO(lzma.decompress((VECTORS / "cluster.tar.xz").read_bytes()))
    files = {}
    with tarfile.open(fileobj=archive) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None and member.name.endswith((".log", ".checkpoint")):
                files[member.name.partition("/")[2]] = content.read()
    return files


def segments(partition: str) -> list[tuple[list[RecordBatch], list[dict[str, Any]]]]:
    """Per file of batches of the partition: our batches and Kafka's."""
    said = kafka_says()[partition]
    found = [(f"{segment['baseOffset']:020d}.log", segment["batches"]) for segment in said["segments"]]
    found += (said.get("raftSnapshots") or {}).items()
    return [(list(iter_batches(kafka_wrote()[f"{partition}/{name}"], partial_tail="raise")), b) for name, b in found]


each_partition = pytest.mark.parametrize("partition", sorted(kafka_says()))


def test_the_folder_is_whole() -> None:
    """A vector that went missing would make the other tests pass without it."""
    said = kafka_says().values()
    assert sum(len(partition["segments"]) for partition in said) == SEGMENTS
    assert sum(len(segment["batches"]) for partition in said for segment in partition["segments"]) == BATCHES
    assert {codec for p in said for s in p["segments"] for b in s["batches"] for codec in [b["codec"]]} == {
        codec.name.lower() for codec in Codec
    }


@each_partition
def test_every_header_field_is_what_kafka_says(partition: str) -> None:
    for ours, theirs in segments(partition):
        assert len(ours) == len(theirs)
        for batch, said in zip(ours, theirs, strict=True):
            batch.ensure_valid()
            assert said["isvalid"]
            assert _header_as_kafka_prints_it(batch) == {name: said[name] for name in said if name not in NOT_HEADER}


NOT_HEADER = ("records", "isvalid")


def _header_as_kafka_prints_it(batch: RecordBatch) -> dict[str, Any]:
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "position": batch.position,
        "size": batch.size,
        "magic": batch.magic,
        "crc": batch.crc,
        "codec": batch.codec.name.lower(),
        "timestampType": {kind: name for name, kind in TIMESTAMP_TYPES.items()}[batch.timestamp_type],
        "maxTimestamp": batch.max_timestamp,
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


@each_partition
def test_every_record_is_what_kafka_says(partition: str) -> None:
    for ours, theirs in segments(partition):
        for batch, said in zip(ours, theirs, strict=True):
            records = [_record_as_kafka_prints_it(record, batch) for record in batch.records()]
            assert records == [record[:6] for record in said["records"]]


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


@each_partition
def test_every_control_record_is_what_kafka_says_and_is_built_again_byte_for_byte(partition: str) -> None:
    for ours, theirs in segments(partition):
        for batch, said in zip(ours, theirs, strict=True):
            for record, (*_, kind, epoch) in (
                (record, [*fields, None][:8])
                for record, fields in zip(batch.records(), said["records"], strict=True)
                if batch.is_control
            ):
                control = decode_control(record)
                match control:
                    case EndTxnMarker(committed, coordinator_epoch):
                        assert ("COMMIT" if committed else "ABORT", coordinator_epoch) == (kind, epoch)
                    case LeaderChange():
                        assert kind == "LEADER_CHANGE"
                    case ControlType():
                        assert control.name == kind
                        continue
                    case None:
                        pytest.fail(f"{kind} is unknown")
                if batch.delete_horizon_ms is None:
                    assert bytes(batch.buffer) == control_batch(
                        control,
                        timestamp=record.timestamp,
                        base_offset=batch.base_offset,
                        leader_epoch=batch.partition_leader_epoch,
                        producer_id=batch.producer_id,
                        producer_epoch=batch.producer_epoch,
                    )


@each_partition
def test_the_same_records_give_the_same_bytes(partition: str) -> None:
    """Uncompressed the whole batch is compared; compressed, what was compressed, since libraries and levels differ."""
    for batch, records in _rebuildable(partition):
        if batch.codec is Codec.NONE:
            assert _built_again(batch, records) == bytes(batch.buffer)
        else:
            assert _payload(batch, records) == decompress(batch.codec, batch.buffer[HEADER_BYTES:])


def test_most_batches_can_be_built_again() -> None:
    assert sum(1 for partition in kafka_says() for _ in _rebuildable(partition)) > BATCHES * 0.9


def _rebuildable(partition: str) -> Iterator[tuple[RecordBatch, list[Record]]]:
    """All batches but the cleaned ones, where offsets or base timestamp come from records that are gone, and those with
    log append time, where a reader does not learn the records' own timestamps."""
    for ours, _ in segments(partition):
        for batch in ours:
            records = list(batch.records())
            cleaned = batch.count != batch.last_offset_delta + 1 or records[0].timestamp != batch.base_timestamp
            if not cleaned and batch.delete_horizon_ms is None and batch.timestamp_type is TimestampType.CREATE_TIME:
                yield batch, records


def _payload(batch: RecordBatch, records: list[Record]) -> bytes:
    return b"".join(
        encode_record(r.offset - batch.base_offset, r.timestamp - batch.base_timestamp, r.key, r.value, r.headers)
        for r in records
    )


def _built_again(batch: RecordBatch, records: list[Record]) -> bytes:
    builder = RecordBatchBuilder(
        base_offset=batch.base_offset,
        leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
    )
    for record in records:
        builder.append(key=record.key, value=record.value, timestamp=record.timestamp, headers=record.headers)
    return builder.build()
