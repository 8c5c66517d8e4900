"""What Kafka's leader made of producers' batches, made again: each stored batch is put back into what its producer
sent, as far as that can be reconstructed, and assigned again. The result must be the bytes that Kafka stored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from tests.conformance.kafka_directories import PARTITIONS, says, segments
from tests.records.reference import set_max_timestamp
from tidelog.records import (
    HEADER_BYTES,
    AppendRules,
    LegacyRecordBatch,
    Record,
    RecordBatch,
    analyze,
    assign_offsets,
    build_batch,
    build_message_set,
    iter_batches,
)
from tidelog.records.v2.compression import decompress
from tidelog.types import Codec, Offset, TimestampType

LATER = 2_000_000_000_000


def appended(directory: str, partition: str) -> Iterator[RecordBatch]:
    """The batches as the leader appended them: none that a cleaner rewrote, no markers, none out of a snapshot."""
    if "compact" in (says(directory)[partition].get("config") or {}).get("cleanup.policy", "") or partition[:2] == "__":
        return
    for segment in segments(directory, partition):
        for batch, _ in segment.pairs():
            if not batch.is_control:
                yield batch


def offsets_from_0(records: list[Record]) -> list[Record]:
    return [record._replace(offset=Offset(index)) for index, record in enumerate(records)]


NEW = [
    (directory, partition)
    for directory, partition in PARTITIONS
    if any(b.magic == 2 for b in appended(directory, partition))
]
OLD = [
    (directory, partition)
    for directory, partition in PARTITIONS
    if any(b.magic < 2 for b in appended(directory, partition))
]


@pytest.mark.parametrize(("directory", "partition"), NEW)
def test_v2_batches_are_stamped_to_the_bytes_that_kafka_stored(directory: str, partition: str) -> None:
    """All codecs: a leader changes the header only. Base offset, leader epoch and (where the topic asks for it) log
    append time are put back first; under log append time a producer's own largest timestamp is that of its records."""
    for batch in appended(directory, partition):
        if batch.magic < 2:
            continue
        sent = bytearray(batch.buffer)
        struct.pack_into(">q", sent, 0, 0)
        struct.pack_into(">i", sent, 12, -1)
        stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        if stamped:
            set_max_timestamp(sent, TimestampType.CREATE_TIME, 0)
            largest = max(record.timestamp for record in RecordBatch(sent).records())
            set_max_timestamp(sent, TimestampType.CREATE_TIME, largest)
        assigned = assign_offsets(
            sent,
            analyze(sent),
            AppendRules(timestamp_type=batch.timestamp_type),
            first_offset=batch.base_offset,
            leader_epoch=batch.partition_leader_epoch,
            now=batch.max_timestamp if stamped else LATER,
        )
        assert bytes(assigned.records) == bytes(batch.buffer)
        assert (assigned.first_offset, assigned.last_offset) == (batch.base_offset, batch.last_offset)
        assert assigned.max_timestamp == batch.max_timestamp
        assert not assigned.rewritten


def sent_as_v2(batch: RecordBatch, records: list[Record]) -> bytearray:
    return bytearray(build_batch(offsets_from_0(records), Codec.GZIP if batch.codec is Codec.NONE else batch.codec))


def sent_as_v1(batch: RecordBatch, records: list[Record]) -> bytearray:
    return bytearray(build_message_set(offsets_from_0(records), 1, batch.codec))


def sent_as_v0(batch: RecordBatch, records: list[Record]) -> bytearray:
    return bytearray(build_message_set(offsets_from_0(records), 0, batch.codec))


@pytest.mark.parametrize("sent_as", [sent_as_v2, sent_as_v1, sent_as_v0])
@pytest.mark.parametrize(("directory", "partition"), OLD)
def test_records_converted_to_v0_and_v1_equal_kafkas(directory: str, partition: str, sent_as: object) -> None:
    """Kafka got v2 from its producer and converted. The bytes are the same; compressed, what was compressed, since
    libraries differ. A v0 producer has no timestamps to send: only v0 and stamped logs come out of that."""
    for batch in appended(directory, partition):
        if not isinstance(batch, LegacyRecordBatch) or "librdkafka" in partition:
            continue
        stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        if sent_as is sent_as_v0 and batch.magic == 1 and not stamped:
            continue
        assert callable(sent_as)
        sent = sent_as(batch, list(batch.records()))
        assigned = assign_offsets(
            sent,
            analyze(sent),
            AppendRules(
                magic=batch.magic,
                codec=batch.codec,
                timestamp_type=TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME,
            ),
            first_offset=batch.base_offset,
            leader_epoch=0,
            now=batch.max_timestamp if stamped else LATER,
        )
        (stored,) = iter_batches(assigned.records)
        assert isinstance(stored, LegacyRecordBatch)
        if batch.codec is Codec.NONE:
            assert bytes(stored.buffer) == bytes(batch.buffer)
        assert list(stored.records()) == list(batch.records())
        assert stored.header[6:] == batch.header[6:]
        assert stored.last_offset == batch.last_offset
        if batch.is_wrapper and assigned.rewritten:
            assert stored.inner_messages() == batch.inner_messages()


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE], ids=lambda codec: codec.name)
def test_recompressed_batches_have_the_same_records(codec: Codec) -> None:
    """The topics `broker-*`: any producer's codec in, the topic's out, records byte for byte as they were."""
    for directory, partition in NEW:
        if not partition.startswith("broker-"):
            continue
        for batch in appended(directory, partition):
            sent = bytearray(build_batch(offsets_from_0(list(batch.records())), Codec.NONE))
            assigned = assign_offsets(
                sent,
                analyze(sent),
                AppendRules(codec=codec),
                first_offset=batch.base_offset,
                leader_epoch=batch.partition_leader_epoch,
                now=LATER,
            )
            stored = RecordBatch(assigned.records)
            stored.ensure_valid()
            assert stored.codec is codec
            assert decompress(codec, stored.buffer[HEADER_BYTES:]) == decompress(
                batch.codec, batch.buffer[HEADER_BYTES:]
            )
            assert stored.header[7:] == batch.header[7:]
