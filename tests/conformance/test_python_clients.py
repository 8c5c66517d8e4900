"""Record batches v2 against the codecs of two independent clients, kafka-python and aiokafka, in both directions.

Uncompressed, the bytes are the same; compressed, libraries and levels differ, so what the other side reads is compared.
aiokafka counts twice: its compiled codec and its Python one are two implementations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiokafka.record.control_record
import aiokafka.record.default_records
import aiokafka.record.memory_records
import cramjam
import kafka.codec
import kafka.record.default_records
import kafka.record.memory_records
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.records.reference import set_max_timestamp
from tidelog.records import (
    EndTxnMarker,
    Header,
    Record,
    RecordBatch,
    build_batch,
    control_batch,
)
from tidelog.types import Codec, Millis, Offset, TimestampType

NOW = 1_700_000_000_000


@dataclass(frozen=True)
class Oracle:
    """One client's codec: its builder of batches, its reader of a buffer of batches, and the leader epoch it writes.

    aiokafka writes -1 ("none") as Java's producer does, kafka-python 0. Neither matters: the leader overwrites it, and
    the checksum leaves it out.
    """

    name: str
    builder: Any
    reader: Any
    leader_epoch: int

    def build(
        self,
        records: Sequence[Record],
        codec: Codec,
        *,
        is_transactional: bool = False,
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> bytes:
        """Offsets must begin at 0: as producers, these clients know no others."""
        builder = self.builder(2, codec.value, is_transactional, *producer, batch_size=10_000_000)
        for record in records:
            appended = builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
            assert appended is not None
        return bytes(builder.build())

    def read(self, data: bytes) -> list[Record]:
        """Every record of every batch in the buffer, checksums checked."""
        reader, records = self.reader(data), []
        while (batch := reader.next_batch()) is not None:
            assert batch.validate_crc()
            records += [
                Record(Offset(r.offset), Millis(r.timestamp), r.key, r.value, tuple((n, v) for n, v in r.headers))
                for r in batch
            ]
        return records


ORACLES = [
    Oracle(
        "kafka-python",
        kafka.record.default_records.DefaultRecordBatchBuilder,
        kafka.record.memory_records.MemoryRecords,
        leader_epoch=0,
    ),
    Oracle(
        "aiokafka",
        aiokafka.record.default_records.DefaultRecordBatchBuilder,
        aiokafka.record.memory_records.MemoryRecords,
        leader_epoch=-1,
    ),
    Oracle(
        "aiokafka-python",
        aiokafka.record.default_records._DefaultRecordBatchBuilderPy,
        aiokafka.record.memory_records._MemoryRecordsPy,
        leader_epoch=-1,
    ),
]

each_oracle = pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
each_codec = pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())


@pytest.fixture(autouse=True)
def snappy_for_kafka_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python asks for python-snappy, which is a face of cramjam; this is the part of it that it calls."""
    face = SimpleNamespace(
        compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
        decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
    )
    monkeypatch.setattr(kafka.codec, "snappy", face)


def record(
    offset: int, key: bytes | None, value: bytes | None, headers: tuple[Header, ...] = (), timestamp: int = NOW
) -> Record:
    return Record(Offset(offset), Millis(timestamp), key, value, headers)


RECORDS = [
    record(0, b"key", b"value " * 50),
    record(
        1,
        None,
        b"text that a codec can shorten, and more of it, and more of it, and more of it",
        timestamp=NOW + 70_000,
    ),
    record(2, b"", b""),
    record(3, b"tombstone", None, timestamp=NOW - 1),
    record(4, None, None, (("name", b"value"), ("name", b"again"), ("", b""), ("null", None), ("ключ", b"\xff\x00"))),
    record(5, b"large", bytes(range(256)) * 400),
]


def test_the_oracles_are_the_ones_meant() -> None:
    """aiokafka falls back to Python silently where its extension is missing: then it would be one oracle less."""
    assert ORACLES[1].builder is not ORACLES[2].builder
    assert ORACLES[1].reader is not ORACLES[2].reader


@each_codec
@each_oracle
def test_they_read_what_we_build(oracle: Oracle, codec: Codec) -> None:
    first = build_batch(RECORDS, codec)
    moved = [r._replace(offset=Offset(r.offset + 1000)) for r in RECORDS]
    assert oracle.read(first + build_batch(moved, codec, leader_epoch=7)) == RECORDS + moved


@each_codec
@each_oracle
def test_we_read_what_they_build(oracle: Oracle, codec: Codec) -> None:
    batch = RecordBatch(oracle.build(RECORDS, codec))
    batch.ensure_valid()
    assert batch.codec is codec
    assert list(batch.records()) == RECORDS
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW + 70_000)


@each_oracle
def test_uncompressed_the_bytes_are_the_same(oracle: Oracle) -> None:
    assert build_batch(RECORDS, leader_epoch=oracle.leader_epoch) == oracle.build(RECORDS, Codec.NONE)


@each_codec
@each_oracle
@pytest.mark.parametrize("is_transactional", [False, True], ids=["idempotent", "transactional"])
def test_producer_fields_agree_both_ways(oracle: Oracle, codec: Codec, is_transactional: bool) -> None:
    producer = (2**62 + 1, 2**15 - 1, 2**31 - 3)
    theirs = RecordBatch(oracle.build(RECORDS, codec, is_transactional=is_transactional, producer=producer))
    theirs.ensure_valid()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == producer
    assert theirs.is_transactional == is_transactional

    ours = build_batch(
        RECORDS,
        codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=is_transactional,
        leader_epoch=oracle.leader_epoch,
    )
    batch = oracle.reader(ours).next_batch()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer
    assert batch.is_transactional == is_transactional
    if codec is Codec.NONE:
        assert ours == oracle.build(RECORDS, codec, is_transactional=is_transactional, producer=producer)


@each_oracle
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_they_read_our_markers(oracle: Oracle, committed: bool) -> None:
    """Neither client can build a control batch; brokers do, and the vectors hold those."""
    data = control_batch(
        EndTxnMarker(committed, coordinator_epoch=3), timestamp=NOW, base_offset=9, producer_id=77, producer_epoch=2
    )
    batch = oracle.reader(data).next_batch()
    assert batch.validate_crc()
    assert batch.is_control_batch
    assert batch.is_transactional
    (marker,) = list(batch)
    assert (marker.offset, marker.timestamp) == (9, NOW)
    expected = (
        aiokafka.record.control_record.COMMIT_MARKER if committed else aiokafka.record.control_record.ABORT_MARKER
    )
    assert aiokafka.record.control_record.ControlRecord.parse(marker.key) == expected
    if oracle.name == "kafka-python":
        assert (marker.commit, marker.abort) == (committed, not committed)


@each_codec
@each_oracle
def test_they_see_log_append_time_on_every_record(oracle: Oracle, codec: Codec) -> None:
    data = bytearray(oracle.build(RECORDS, codec))
    set_max_timestamp(data, TimestampType.LOG_APPEND_TIME, NOW + 5_000_000)
    assert {r.timestamp for r in oracle.read(bytes(data))} == {NOW + 5_000_000}
    assert RecordBatch(data).timestamp_type is TimestampType.LOG_APPEND_TIME


some_bytes = st.none() | st.binary(max_size=60)
some_headers = st.lists(st.tuples(st.text(max_size=6), some_bytes), max_size=3).map(tuple)
some_fields = st.tuples(some_bytes, some_bytes, some_headers, st.integers(0, 2**50))


@each_oracle
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(some_fields, min_size=1, max_size=6), st.sampled_from(Codec))
def test_any_records_agree_both_ways(
    oracle: Oracle,
    fields: list[tuple[bytes | None, bytes | None, tuple[Header, ...], int]],
    codec: Codec,
) -> None:
    records = [record(index, *field) for index, field in enumerate(fields)]
    theirs = oracle.build(records, codec)
    assert list(RecordBatch(theirs).records()) == records
    assert oracle.read(build_batch(records, codec)) == records
    assert build_batch(records, leader_epoch=oracle.leader_epoch) == oracle.build(records, Codec.NONE)
