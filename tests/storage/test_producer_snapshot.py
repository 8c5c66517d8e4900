"""Producer snapshots: Kafka's bytes, read and written; damaged ones are rejected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.producers.snapshot_files import snapshot_offset, snapshot_path
from tests.storage.kafka_producers import files_of, recorded_of
from tidelog.errors import CorruptLog
from tidelog.records.producer_snapshot import ProducerSnapshot, decode_snapshot, encode_snapshot

INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
ENTRIES = st.lists(st.builds(ProducerSnapshot, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64), max_size=5)


@pytest.mark.parametrize("directory", ["cluster", "unclean"])
def test_every_snapshot_that_kafka_wrote_is_read_as_by_kafka(directory: str) -> None:
    compared = 0
    for partition, recorded in recorded_of(directory).items():
        for name, producers in (recorded["snapshots"] or {}).items():
            data = files_of(directory)[f"{partition}/{name}"]
            entries = decode_snapshot(data, name)
            by_id = {entry.producer_id: entry for entry in entries}
            assert len(by_id) == len(entries) == len(producers)
            for producer in producers:
                entry = by_id[producer["producerId"]]
                assert entry.epoch == producer["producerEpoch"]
                assert entry.coordinator_epoch == producer["coordinatorEpoch"]
                assert entry.timestamp == producer["lastTimestamp"]
                start = producer["currentTxnFirstOffset"]
                assert entry.transaction_start == (-1 if start is None else start)
                if "lastOffset" in producer:
                    assert entry.last_offset == producer["lastOffset"]
                    assert entry.offset_delta == producer["offsetDelta"]
                    assert entry.last_sequence == producer["lastSequence"]
                else:
                    assert (entry.last_offset, entry.offset_delta, entry.last_sequence) == (-1, 0, -1)
            assert encode_snapshot(entries) == data
            compared += 1
    assert compared > 50


def test_a_log_without_producers_has_a_snapshot_of_ten_bytes() -> None:
    assert len(encode_snapshot([])) == 10
    assert decode_snapshot(encode_snapshot([]), "x") == []


@given(ENTRIES)
def test_a_written_snapshot_is_read_back(entries: list[ProducerSnapshot]) -> None:
    assert decode_snapshot(encode_snapshot(entries), "x") == entries


@given(ENTRIES, st.data())
def test_a_flipped_bit_is_always_found(entries: list[ProducerSnapshot], data: st.DataObject) -> None:
    encoded = bytearray(encode_snapshot(entries))
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptLog):
        decode_snapshot(bytes(encoded), "x")


@given(ENTRIES, st.data())
def test_a_truncated_or_extended_snapshot_is_rejected(entries: list[ProducerSnapshot], data: st.DataObject) -> None:
    encoded = encode_snapshot(entries)
    with pytest.raises(CorruptLog):
        decode_snapshot(encoded[: data.draw(st.integers(0, len(encoded) - 1))], "x")
    with pytest.raises(CorruptLog):
        decode_snapshot(encoded + data.draw(st.binary(min_size=1, max_size=60)), "x")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_snapshot_or_corrupt(data: bytes) -> None:
    try:
        entries = decode_snapshot(data, "x")
    except CorruptLog:
        return
    assert encode_snapshot(entries) == data


def test_only_names_of_twenty_digits_are_snapshots() -> None:
    assert snapshot_offset("00000000000000000231.snapshot") == 231
    assert snapshot_path("/data/orders-0", 231).endswith("/orders-0/00000000000000000231.snapshot")
    for name in ("231.snapshot", "00000000000000000231.log", "00000000000000000231.snapshot.deleted", "x" * 20):
        assert snapshot_offset(name) is None
