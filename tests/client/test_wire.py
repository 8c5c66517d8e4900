"""`tidelog/protocol/wire.py` writes protobuf's bytes and reads what protobuf reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.message_bytes import bytes_of
from tests.record_values import fetched
from tidelog.errors import NotLeaderOrFollower
from tidelog.protocol import status, wire
from tidelog.protocol.v1 import common_pb2, data_pb2
from tidelog.record_exchange import FetchAnswer, ProduceBatch, ProduceRequest

read_produce, read_fetched = wire.reader(ProduceRequest), wire.reader(FetchAnswer)
fixed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the fixture is the same for all draws

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(alphabet="aZ0 ü€😀", max_size=12)
errors = st.builds(common_pb2.Error, code=int32, name=text, message=text).map(
    lambda sent: status.to_proto(status.from_proto(sent))  # an unknown code becomes what it stands for
)
produce_entries = st.fixed_dictionaries(
    {"batch_id": int64, "topic_id": st.binary(), "partition": int32, "leader_epoch": int32, "records": st.binary()}
)
fetch_entries = st.fixed_dictionaries(
    {
        "fetch_id": int64,
        "topic_id": st.binary(max_size=20),
        "partition": int32,
        "leader_epoch": int32,
        "error": st.none() | errors,
        "high_watermark": int64,
        "last_stable_offset": int64,
        "log_start_offset": int64,
        "diverging": st.none() | st.builds(common_pb2.EpochEnd, epoch=int32, end_offset=int64),
        "epochs": st.lists(st.builds(common_pb2.EpochStart, epoch=int32, start_offset=int64), max_size=3),
        "aborted": st.lists(st.builds(data_pb2.AbortedTransaction, producer_id=int64, first_offset=int64), max_size=3),
        "preferred_read_replica": int32,
        "records": st.binary(max_size=300),
    }
)


@fixed
@given(int32, int32, st.lists(produce_entries, max_size=4), st.text(max_size=9), st.integers(0, 2), st.booleans())
def test_a_produce_request_is_written_and_read_as_protobuf_does(
    acks: int, timeout_ms: int, entries: list[dict[str, Any]], transactional_id: str, version: int, receipts: bool
) -> None:
    transaction: dict[str, Any] = {
        "transactional_id": transactional_id,
        "transaction_version": version,
        "receipts": receipts,
    }
    theirs = data_pb2.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        partitions=[data_pb2.PartitionProduce(**entry) for entry in entries],
        **transaction,
    )
    ours = ProduceRequest(acks, timeout_ms, [_sent(**entry) for entry in entries], **transaction)
    assert bytes_of(ours) == theirs.SerializeToString()
    assert read_produce(theirs.SerializeToString()) == ours


@fixed
@given(st.lists(fetch_entries, max_size=3))
def test_a_fetch_response_is_written_and_read_as_protobuf_does(entries: list[dict[str, Any]]) -> None:
    theirs = data_pb2.FetchResponse(partitions=[data_pb2.PartitionFetched(**entry) for entry in entries])
    read = read_fetched(theirs.SerializeToString())
    assert bytes_of(read) == theirs.SerializeToString()
    for entry, answer in zip(entries, read.partitions, strict=True):
        plain = answer._asdict() | {"fetch_id": answer.correlation_id}
        for name in ("fetch_id", "topic_id", "partition", "high_watermark", "preferred_read_replica", "records"):
            assert plain[name] == entry[name]


@fixed
@given(st.binary(max_size=80))
def test_any_bytes_are_read_as_protobuf_reads_them(data: bytes) -> None:
    _read_both(ProduceRequest, data_pb2.ProduceRequest, data)
    _read_both(FetchAnswer, data_pb2.FetchResponse, data)


@fixed
@given(st.lists(fetch_entries, min_size=1, max_size=2), st.data())
def test_a_corrupt_message_is_read_as_protobuf_reads_it(entries: list[dict[str, Any]], draw: st.DataObject) -> None:
    whole = data_pb2.FetchResponse(partitions=[data_pb2.PartitionFetched(**entry) for entry in entries])
    data = bytearray(whole.SerializeToString())
    position = draw.draw(st.integers(0, max(0, len(data) - 1)))
    data[position:] = draw.draw(st.sampled_from([b"", bytes([data[position] ^ 0x41]) + data[position + 1 :]]))
    _read_both(FetchAnswer, data_pb2.FetchResponse, bytes(data))


def test_unknown_fields_within_an_aborted_transaction_are_ignored() -> None:
    entry = b"\x5a\x0b\x08\x05" + b"I\x80\x01\x10\x80\x80\x80\x80\x01"
    _read_both(FetchAnswer, data_pb2.FetchResponse, bytes([0x0A, len(entry)]) + entry)


def test_fields_of_a_later_version_are_skipped() -> None:
    known = ProduceRequest(-1, 0, [ProduceBatch(b"", 3, b"batch")])
    unknown_varint, unknown_bytes = b"\xa0\x06\x01", b"\xaa\x06\x02hi"
    assert read_produce(bytes_of(known) + unknown_varint + unknown_bytes) == known


def test_a_message_sent_in_two_parts_is_merged() -> None:
    first = data_pb2.PartitionFetched(error=common_pb2.Error(code=6)).SerializeToString()
    second = data_pb2.PartitionFetched(error=common_pb2.Error(message="x")).SerializeToString()
    entry = first + second
    read = read_fetched(bytes([0x0A, len(entry)]) + entry)
    assert type(read.partitions[0].error) is NotLeaderOrFollower


def test_records_are_not_copied_when_read_and_any_buffer_can_be_written() -> None:
    batch = bytearray(b"batch" * 10_000)
    data = bytes_of(FetchAnswer([fetched(records=batch)]))
    records = read_fetched(data).partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is data
    assert bytes_of(FetchAnswer([fetched(records=records)])) == data


@pytest.mark.parametrize("topic_id", [b"z" * 16, b"z" + bytes(15), bytes(16)])
def test_large_and_small_entries_of_one_message_are_read(topic_id: bytes) -> None:
    """The tag of the records is the letter z, which ids contain, too."""
    large, small, empty = b"z" * 100_000, b"z" * 100, b""
    batches = [ProduceBatch(topic_id, 7, records, correlation_id=1 << 40) for records in (small, large, empty, large)]
    request = ProduceRequest(-1, 5, batches, "id", 2)
    assert read_produce(bytes_of(request)) == request


@pytest.fixture(autouse=True, params=["all by hand", "large ones by hand"])
def _by_hand(request: pytest.FixtureRequest) -> Iterator[None]:
    """Small messages are read by protobuf; the reading by hand is tested with small ones too."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "all by hand":
            patch.setattr(wire, "_LARGE", 0)
            patch.setattr(wire, "_LARGE_ENTRY", 1)
        yield


def _sent(batch_id: int, **fields: Any) -> ProduceBatch:
    return ProduceBatch(correlation_id=batch_id, **fields)


def _read_both(ours: type[Any], theirs: type[Message], data: bytes) -> None:
    read = wire.reader(ours)
    try:
        expected = theirs.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            read(data)
        return
    again = theirs.FromString(bytes_of(read(data)))
    for message in (expected, again):  # unknown fields are not kept
        message.DiscardUnknownFields()
    assert _plain(again) == _plain(expected)


def _plain(message: Any) -> Any:
    """The message with its errors as they are understood: unknown codes and leaders become what they stand for."""
    for entry in message.partitions:
        if isinstance(entry, data_pb2.PartitionFetched) and entry.HasField("error"):
            entry.error.CopyFrom(status.to_proto(status.from_proto(entry.error)))
    return message
