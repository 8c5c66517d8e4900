"""Message sets v0 and v1 against the codecs of two independent clients, kafka-python and aiokafka, in both directions.

Bare messages have the same bytes. Of a wrapper what is inside has the same bytes; the wrapper itself differs: as
producers these clients know neither its offset nor its timestamp and write 0 for both, and libraries compress
differently. aiokafka counts twice, compiled and in Python. It refuses lz4 in v0: the checksum of old is unknown to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import aiokafka.errors
import aiokafka.record.legacy_records
import aiokafka.record.memory_records
import cramjam
import kafka.codec
import kafka.errors
import kafka.record.legacy_records
import kafka.record.memory_records
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.records.reference import iter_records
from tidelog.errors import UnsupportedCompressionType
from tidelog.records import (
    AppendRules,
    LegacyRecordBatch,
    Record,
    analyze,
    assign_offsets,
    build_message_set,
    iter_batches,
)
from tidelog.records.legacy.message_set import set_message_timestamp
from tidelog.types import Codec, Millis, Offset, TimestampType

NOW = 1_700_000_000_000
BUILDERS = {
    "kafka-python": kafka.record.legacy_records.LegacyRecordBatchBuilder,
    "aiokafka": aiokafka.record.legacy_records.LegacyRecordBatchBuilder,
    "aiokafka-python": aiokafka.record.legacy_records._LegacyRecordBatchBuilderPy,
}
READERS = {
    "kafka-python": kafka.record.memory_records.MemoryRecords,
    "aiokafka": aiokafka.record.memory_records.MemoryRecords,
    "aiokafka-python": aiokafka.record.memory_records._MemoryRecordsPy,
}


@dataclass(frozen=True)
class Oracle:
    """One client's codec of old."""

    name: str

    def build(self, records: Sequence[Record], magic: int, codec: Codec) -> bytes:
        builder = BUILDERS[self.name](magic, codec.value, 10_000_000)
        for record in records:
            assert builder.append(record.offset, record.timestamp, record.key, record.value) is not None
        return bytes(builder.build())

    def read(self, data: bytes) -> list[Record]:
        """Every record of every message in the buffer, checksums of outer messages checked. It says None where there is
        no timestamp."""
        reader, records = READERS[self.name](data), []
        while (batch := reader.next_batch()) is not None:
            assert batch.validate_crc()
            records += [
                Record(Offset(r.offset), Millis(-1 if r.timestamp is None else r.timestamp), r.key, r.value)
                for r in batch
            ]
        return records

    def knows(self, magic: int, codec: Codec) -> bool:
        return self.name == "kafka-python" or (magic, codec) != (0, Codec.LZ4)


ORACLES = [Oracle(name) for name in BUILDERS]
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]

each_oracle = pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
each_magic = pytest.mark.parametrize("magic", [0, 1], ids=["v0", "v1"])
each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())


@pytest.fixture(autouse=True)
def libraries_of_kafka_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python asks for python-snappy; these are the parts of it that it calls."""
    snappy = SimpleNamespace(
        compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
        decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
    )
    monkeypatch.setattr(kafka.codec, "snappy", snappy)


def some_records(magic: int) -> list[Record]:
    fields = [
        (b"key", b"value " * 50, NOW),
        (None, b"text that a codec can shorten, and more of it, and more of it, and more of it", NOW + 70_000),
        (b"", b"", NOW),
        (b"tombstone", None, NOW - 1),
        (None, None, NOW),
        (b"large", bytes(range(256)) * 400, NOW),
    ]
    return [
        Record(Offset(index), Millis(timestamp if magic else -1), key, value)
        for index, (key, value, timestamp) in enumerate(fields)
    ]


def test_the_oracles_are_the_ones_meant() -> None:
    assert BUILDERS["aiokafka"] is not BUILDERS["aiokafka-python"]
    assert READERS["aiokafka"] is not READERS["aiokafka-python"]


@each_codec
@each_magic
@each_oracle
def test_they_read_what_we_build(oracle: Oracle, magic: int, codec: Codec) -> None:
    records = some_records(magic)
    moved = [record._replace(offset=Offset(record.offset + 1000)) for record in records]
    data = build_message_set(records, magic, codec) + build_message_set(moved, magic, codec)
    if not oracle.knows(magic, codec):
        with pytest.raises(aiokafka.errors.UnsupportedCodecError):
            oracle.read(data)
        return
    assert oracle.read(data) == records + moved


@each_codec
@each_magic
@each_oracle
def test_we_read_what_they_build(oracle: Oracle, magic: int, codec: Codec) -> None:
    records = some_records(magic)
    if not oracle.knows(magic, codec):
        with pytest.raises(aiokafka.errors.UnsupportedCodecError):
            oracle.build(records, magic, codec)
        return
    data = oracle.build(records, magic, codec)
    for batch in iter_batches(data, partial_tail="raise"):
        batch.ensure_valid()
        assert (batch.magic, batch.codec) == (magic, codec)
    assert list(iter_records(data)) == records


@each_magic
@each_oracle
def test_uncompressed_the_bytes_are_the_same(oracle: Oracle, magic: int) -> None:
    assert build_message_set(some_records(magic), magic) == oracle.build(some_records(magic), magic, Codec.NONE)


@each_codec
@each_magic
@each_oracle
def test_inside_a_wrapper_the_bytes_are_the_same(oracle: Oracle, magic: int, codec: Codec) -> None:
    if codec is Codec.NONE or not oracle.knows(magic, codec):
        return
    records = some_records(magic)
    (ours,) = iter_batches(build_message_set(records, magic, codec))
    (theirs,) = iter_batches(oracle.build(records, magic, codec))
    assert isinstance(ours, LegacyRecordBatch)
    assert isinstance(theirs, LegacyRecordBatch)
    assert ours.inner_messages() == theirs.inner_messages()
    assert (theirs.last_offset, ours.last_offset) == (0, 5)


@each_codec
@each_magic
@each_oracle
def test_requests_of_other_clients_are_stored_as_sent(oracle: Oracle, magic: int, codec: Codec) -> None:
    """v1 wrappers count from 0, so they are stamped in place; the timestamp 0 becomes the largest inside."""
    if not oracle.knows(magic, codec):
        return
    records = some_records(magic)
    data = bytearray(oracle.build(records, magic, codec))
    assigned = assign_offsets(
        data, analyze(data), AppendRules(magic=magic), first_offset=500, leader_epoch=0, now=NOW + 1
    )
    stored = bytes(assigned.records)
    moved = [record._replace(offset=Offset(record.offset + 500)) for record in records]
    assert list(iter_records(stored)) == oracle.read(stored) == moved
    assert assigned.rewritten == (magic == 0 and codec is not Codec.NONE)
    assert assigned.max_timestamp == (NOW + 70_000 if magic else -1)


@each_codec
@each_oracle
def test_they_see_log_append_time_on_every_record(oracle: Oracle, codec: Codec) -> None:
    data = bytearray(build_message_set(some_records(1), 1, codec))
    for batch in list(iter_batches(data)):
        set_message_timestamp(data, batch.position, TimestampType.LOG_APPEND_TIME, NOW + 5_000_000)
    assert {record.timestamp for record in oracle.read(bytes(data))} == {NOW + 5_000_000}


@each_magic
def test_zstd_is_refused_on_all_sides(magic: int) -> None:
    """KIP-110: it came with v2 only. kafka-python says so too, aiokafka does not know the number."""
    with pytest.raises(UnsupportedCompressionType):
        build_message_set(some_records(magic), magic, Codec.ZSTD)
    for oracle in ORACLES:
        with pytest.raises((kafka.errors.UnsupportedCodecError, aiokafka.errors.UnsupportedCodecError)):
            oracle.build(some_records(magic), magic, Codec.ZSTD)


some_bytes = st.none() | st.binary(max_size=60)
some_fields = st.tuples(some_bytes, some_bytes, st.integers(0, 2**50))


@each_oracle
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(some_fields, min_size=1, max_size=6), st.integers(0, 1), st.sampled_from(CODECS))
def test_any_records_agree_both_ways(
    oracle: Oracle, fields: list[tuple[bytes | None, bytes | None, int]], magic: int, codec: Codec
) -> None:
    records = [
        Record(Offset(index), Millis(timestamp if magic else -1), key, value)
        for index, (key, value, timestamp) in enumerate(fields)
    ]
    assert build_message_set(records, magic) == oracle.build(records, magic, Codec.NONE)
    if oracle.knows(magic, codec):
        assert list(iter_records(oracle.build(records, magic, codec))) == records
        assert oracle.read(build_message_set(records, magic, codec)) == records
