"""The compiled hot loops equal the reference on any input: same values, same bytes, same errors."""

from __future__ import annotations

import copy
import gc
import importlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.consumer_record import ConsumerRecord
from tidelog.errors import InvalidRecord, InvalidTimestamp, OffsetsNotMonotonic, RecordTooLarge, TidelogError
from tidelog.records import Record, Rules, build_batch
from tidelog.records.v2 import chain, columns, fast_paths, record_check, records_buffer
from tidelog.records.v2.batch import stamp
from tidelog.records.v2.header import ATTRIBUTES_AT, HEADER_BYTES
from tidelog.records.v2.record import decode_records, encode_record, located_records
from tidelog.records.v2.varint import encode_varint
from tidelog.types import INT64_MAX, LeaderEpoch, Millis, Offset, PartitionIndex, TimestampType

NOW = 1_700_000_000_000


def compiled(module: str) -> Any:
    """The compiled module; tests are skipped if it was not built."""
    return pytest.importorskip(f"tidelog.records.v2.{module}", reason="the compiled codec was not built")


NAMES = st.text(st.characters(codec="utf-8"), max_size=5) | st.binary(max_size=4).map(
    lambda data: data.decode("utf-8", "surrogateescape")
)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
BYTES = st.none() | st.binary(max_size=200)
FIELDS = st.lists(st.tuples(BYTES, BYTES, st.integers(-1, INT64_MAX - 1), HEADERS), min_size=1, max_size=20)


@st.composite
def payloads(draw: st.DrawFn) -> tuple[bytes, int]:
    """Records, valid or corrupt, and their expected number."""
    fields = draw(FIELDS)
    numbers = st.integers(-(2**31), 2**31 - 1)
    data = b"".join(
        encode_record(index if draw(st.booleans()) else draw(numbers), timestamp - NOW, key, value, headers)
        for index, (key, value, timestamp, headers) in enumerate(fields)
    )
    count = len(fields) + draw(st.sampled_from((0, 0, 0, 1, -1, 2**31 - 1)))
    match draw(st.integers(0, 4)):
        case 1:
            return data[: draw(st.integers(0, len(data)))], count
        case 2:
            at = draw(st.integers(0, len(data) - 1))
            return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :], count
        case 3:
            at = draw(st.integers(0, len(data)))
            return data[:at] + draw(st.binary(max_size=12)) + data[at:], count
        case 4:
            return draw(st.binary(max_size=60)), count
    return data, count


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or its error as text."""
    try:
        return call()
    except TidelogError as error:
        return type(error), str(error)


@given(payloads(), st.sampled_from((0, 7, 2**63 - 2)), st.sampled_from((NOW, -1, INT64_MAX)), st.none() | st.just(NOW))
def test_records_are_read_alike(
    payload: tuple[bytes, int], base_offset: int, base_timestamp: int, append_time: Millis | None
) -> None:
    reader = compiled("_reader")
    data, count = payload
    arguments = (count, base_offset, base_timestamp, append_time)
    expected = outcome(lambda: list(decode_records(data, *arguments)))
    assert outcome(lambda: list(reader.RecordReader(data, *arguments))) == expected
    assert outcome(lambda: reader.record_list(memoryview(bytearray(data)), *arguments)) == expected
    kept: list[Record] = []
    before: list[Record] = []
    outcome(lambda: kept.extend(reader.RecordReader(data, *arguments)))
    outcome(lambda: before.extend(decode_records(data, *arguments)))
    assert kept == before


@given(
    payloads(),
    st.sampled_from((0, 7, 2**63 - 2)),
    st.sampled_from((NOW, -1, INT64_MAX)),
    st.none() | st.just(NOW),
    st.sampled_from((-(2**63), 0, 9, 2**63 - 1)),
    st.sampled_from((-1, 0, 2**31 - 1)),
)
def test_located_records_are_read_alike(
    payload: tuple[bytes, int],
    base_offset: int,
    base_timestamp: int,
    append_time: Millis | None,
    first: int,
    leader_epoch: LeaderEpoch,
) -> None:
    reader = compiled("_reader")
    data, count = payload
    timestamp_type = TimestampType.CREATE_TIME if append_time is None else TimestampType.LOG_APPEND_TIME
    place = ConsumerRecord, "orders", 3, timestamp_type, leader_epoch
    arguments = (count, base_offset, base_timestamp, append_time, first, *place)
    expected = outcome(lambda: located_records(data, *arguments))
    found = outcome(lambda: reader.located_records(memoryview(bytearray(data)), *arguments))
    assert found == expected
    if isinstance(found, list):
        assert all(type(record) is ConsumerRecord for record in found)
        assert pickle.loads(pickle.dumps(found)) == expected


def test_located_records_survive_the_garbage_collector() -> None:
    reader = compiled("_reader")
    data = b"".join(encode_record(index, 0, b"k%d" % index, b"v", (("h", b"1"),)) for index in range(2_000))
    place = "orders", 3, TimestampType.CREATE_TIME, LeaderEpoch(7)
    found = reader.located_records(data, 2_000, 0, NOW, None, 5, ConsumerRecord, *place)
    assert not any(map(gc.is_tracked, found))
    kept = found[::2]
    del found
    gc.collect()
    assert [record.key for record in kept] == [b"k%d" % index for index in range(5, 2_000, 2)]
    first = ConsumerRecord("orders", PartitionIndex(3), Offset(5), Millis(NOW), b"k5", b"v", (("h", b"1"),))
    assert kept[0] == first._replace(leader_epoch=LeaderEpoch(7))
    with pytest.raises(TypeError, match="NamedTuple"):
        reader.located_records(data, 2_000, 0, NOW, None, 5, type("Loose", (ConsumerRecord,), {}), *place)


@given(
    payloads(),
    st.sampled_from((0, 2**63 - 2)),
    st.sampled_from((NOW, -1, INT64_MAX)),
    st.builds(Rules, st.booleans(), st.sampled_from((NOW, -(2**70))), st.sampled_from((NOW, 2**70)), st.booleans()),
    st.integers(-1, 25),
)
def test_records_are_validated_alike(
    payload: tuple[bytes, int], base_offset: int, base_timestamp: int, rules: Rules, last: int
) -> None:
    reader = compiled("_reader")
    data, count = payload
    facts: dict[str, Any] = {
        "base_offset": base_offset,
        "last_offset_delta": last,
        "base_timestamp": base_timestamp,
        "rules": rules,
    }
    expected = outcome(lambda: record_check.check_records(data, count, **facts))
    assert outcome(lambda: reader.check_records(data, count, **facts)) == expected


def test_a_large_payload_is_validated_without_the_interpreter_lock() -> None:
    reader = compiled("_reader")
    data = b"".join(encode_record(index, 0, None, b"v" * 1000) for index in range(500))
    facts = reader.check_records(
        data, 500, base_offset=0, last_offset_delta=499, base_timestamp=0, rules=Rules(key_required=True)
    )
    assert (facts.record_count, len(facts.problems)) == (500, record_check.PROBLEMS_MAX)


def test_a_compiled_record_behaves_as_a_record() -> None:
    reader = compiled("_reader")
    plain: Any = Record(Offset(3), Millis(NOW), b"k", None, (("h", b"1"),))
    fast: Any
    (fast,) = reader.record_list(encode_record(3, 0, b"k", None, (("h", b"1"),)), 1, 0, NOW)
    assert fast == plain
    assert plain == fast
    assert (fast != plain) is False
    assert hash(fast) == hash(plain)
    assert repr(fast) == repr(plain)
    assert tuple(fast) == plain
    offset, timestamp, key, value, headers = fast
    assert (offset, timestamp, key, value, headers) == plain
    assert (fast.offset, fast.timestamp, fast.key, fast.value, fast.headers) == plain
    assert (len(fast), fast[2], fast[-1], fast[:2], b"k" in fast) == (5, b"k", (("h", b"1"),), (3, NOW), True)
    assert fast._replace(key=b"x") == plain._replace(key=b"x")
    assert fast._asdict() == plain._asdict()
    assert (fast < plain, fast <= plain, fast < (4,), fast.__add__((1,)), fast == 3) == (
        False,
        True,
        True,
        (*plain, 1),
        False,
    )
    for again in (pickle.loads(pickle.dumps(fast)), copy.copy(fast), copy.deepcopy(fast)):
        assert again == plain
    match fast:
        case Record(offset=3, key=b"k"):
            pass
        case _:
            pytest.fail("a class pattern does not match")
    match fast:
        case (3, *_):
            pass
        case _:
            pytest.fail("a sequence pattern does not match")
    for change in ("offset", "key"):
        with pytest.raises(AttributeError):
            setattr(fast, change, 1)
    with pytest.raises(AttributeError):
        getattr(fast, "nothing")  # noqa: B009
    with pytest.raises(TypeError):
        reader.FastRecord()
    kinds = [isinstance(fast, kind) for kind in (Record, tuple, list)]
    assert kinds == [True, True, False]


def test_a_reader_releases_its_buffer_at_the_end_or_on_failure() -> None:
    reader = compiled("_reader")
    for data in (bytearray(encode_record(0, 0, b"k", b"v")), bytearray(b"\x02")):
        outcome(partial(reader.record_list, data, 1, 0, 0))
        data += b"more"


BUFFERS = [
    pytest.param(lambda: records_buffer.RecordsBuffer, id="pure Python"),
    pytest.param(lambda: compiled("_writer").RecordsBuffer, id="compiled"),
]
HEAD = bytes(HEADER_BYTES)


@given(FIELDS, st.sampled_from((0, 5, -(2**63))), st.none() | st.just(NOW))
def test_records_are_written_alike(fields: list[Any], base_offset: int, base_timestamp: int | None) -> None:
    slow, fast = records_buffer.RecordsBuffer(base_offset, base_timestamp), None
    fast = compiled("_writer").RecordsBuffer(base_offset, base_timestamp)
    slow.extend(fields)
    for record in fields[:3]:
        assert fast.append(*record) == fast.size
    assert fast.extend(fields[3:]) == slow.size
    for name in ("size", "count", "last_offset", "base_timestamp", "max_timestamp"):
        assert getattr(fast, name) == getattr(slow, name), name
    assert bytes(fast.payload()) == slow.payload()
    assert fast.batch(HEAD) == slow.batch(HEAD)


@pytest.mark.parametrize("buffer_class", BUFFERS)
def test_a_rejected_record_leaves_nothing_behind(buffer_class: Callable[[], Any]) -> None:
    buffer = buffer_class()()
    buffer.append(b"k", b"v", NOW)
    before = bytes(buffer.payload())
    for error, arguments in (
        (InvalidTimestamp, (b"k", b"v", -2)),
        (InvalidTimestamp, (b"k", b"v", 2**63)),
        (InvalidTimestamp, (b"k", b"v", -(2**70))),
        (OffsetsNotMonotonic, (b"k", b"v", NOW, (), 0)),
        (OffsetsNotMonotonic, (b"k", b"v", NOW, (), -(2**70))),
        (RecordTooLarge, (b"k", b"v", NOW, (), 2**31)),
        (RecordTooLarge, (b"k", b"v", NOW, (), 2**70)),
        (InvalidRecord, (b"k", b"v", NOW, (("\ud800", b""),))),
        (TypeError, ("text", b"v", NOW)),
        (TypeError, (b"k", b"v", NOW, (("h", "text"),))),
    ):
        with pytest.raises(error):
            buffer.append(*arguments)
        assert bytes(buffer.payload()) == before
        assert (buffer.count, buffer.size, buffer.last_offset) == (1, len(before), 0)


@pytest.mark.parametrize("buffer_class", BUFFERS)
def test_a_returned_batch_does_not_change(buffer_class: Callable[[], Any]) -> None:
    buffer = buffer_class()()
    buffer.append(b"k", b"v", NOW)
    first = buffer.batch(HEAD)
    kept = bytes(bytearray(first))
    other = buffer.batch(b"\xff" * HEADER_BYTES)
    buffer.append(b"k2", b"v2", NOW)
    longer = buffer.batch(HEAD)
    assert first == kept
    assert other[HEADER_BYTES:] == first[HEADER_BYTES:]
    assert longer[HEADER_BYTES:].startswith(first[HEADER_BYTES:])


def test_a_buffer_is_not_moved_while_a_view_exists() -> None:
    buffer = compiled("_writer").RecordsBuffer()
    view = buffer.payload()
    with pytest.raises(BufferError):
        buffer.append(b"k", b"v", NOW)
    view.release()
    assert buffer.append(b"k", b"v", NOW) == buffer.size


def test_bytes_like_objects_are_accepted_as_keys() -> None:
    buffers: list[Any] = [records_buffer.RecordsBuffer(), compiled("_writer").RecordsBuffer()]
    for buffer in buffers:
        buffer.append(bytearray(b"k"), memoryview(b"v"), NOW, iter([("h", bytearray(b"1"))]))
    assert bytes(buffers[1].payload()) == buffers[0].payload()


@given(
    st.lists(st.tuples(payloads(), st.integers(0, 30), st.integers(-1, 40), st.none() | st.just(NOW)), max_size=4),
    st.lists(st.sampled_from(columns.NAMES), unique=True),
)
def test_columns_are_gathered_alike(batches: Iterable[Any], names: list[str]) -> None:
    pytest.importorskip("pyarrow")
    slow, fast = columns.ColumnsBuffer(names), compiled("_columns").ColumnsBuffer(names)
    for (data, count), first, behind, append_time in batches:
        results = [
            outcome(partial(buffer.add, data, count, 3, NOW, append_time, 1, first, behind)) for buffer in (slow, fast)
        ]
        assert results[0] == results[1]
        assert (slow.rows, slow.size) == (fast.rows, fast.size)
    for _ in range(2):
        expected, found = slow.take(), fast.take()
        assert list(found) == list(expected) == names
        for name in names:
            found[name].validate(full=True)
            assert found[name].equals(expected[name]), name


def test_the_environment_selects_the_reference() -> None:
    script = (
        "from tidelog.records import implementation, arrow_columns; "
        "from tidelog.records.v2.fast_paths import RecordsBuffer; "
        "print(implementation(), RecordsBuffer.__module__, arrow_columns.ColumnsBuffer.__module__)"
    )
    for asked, expected in (
        ("1", "pure Python tidelog.records.v2.records_buffer tidelog.records.v2.columns"),
        ("0", "compiled tidelog.records.v2._writer tidelog.records.v2._columns"),
    ):
        if asked == "0":
            compiled("_writer")
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={"TIDELOG_PURE_PYTHON": asked, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.strip() == expected


@st.composite
def chains(draw: st.DrawFn) -> bytes:
    """Consecutive batches, valid or with a few changed header bytes."""
    data, offset, epoch = bytearray(), 0, 0
    for _ in range(draw(st.integers(0, 6))):
        offset += draw(st.sampled_from((0, 0, 0, 3, -1)))
        epoch += draw(st.sampled_from((0, 0, 1, -1)))
        count = draw(st.integers(1, 4))
        batch = bytearray(build_batch([Record(Offset(i), Millis(NOW), None, b"v") for i in range(count)]))
        stamp(batch, 0, base_offset=offset, leader_epoch=epoch)
        offset += count
        data += batch
    for at in draw(st.lists(st.integers(0, len(data) - 1), max_size=2)) if data else ():
        data[at] = draw(st.integers(0, 255))
    return bytes(data) + draw(st.binary(max_size=70))


@given(chains(), st.integers(0, 600), st.integers(0, 8), st.sampled_from((0, 5, 12, INT64_MAX)))
def test_chains_are_followed_alike(data: bytes, size_max: int, next_offset: int, up_to: int) -> None:
    twin = compiled("_chain")
    given_ = (data, size_max, next_offset, up_to)
    assert twin.follow_chain(*given_) == chain.follow_chain(*given_)
    assert twin.follow_chain(memoryview(data), *given_[1:]) == chain.follow_chain(*given_)


FOLLOWERS = [chain.follow_chain, fast_paths.follow_chain]


@pytest.mark.parametrize("follow", FOLLOWERS)
def test_a_chain_is_followed_to_its_last_valid_batch(follow: Callable[..., Any]) -> None:
    """Each reason for which a second batch is not the next one ends the walk after the first."""
    first, second = (
        bytearray(build_batch([Record(Offset(i), Millis(NOW), None, b"v") for i in range(2)])) for _ in "ab"
    )
    for base_offset, batch in ((0, first), (2, second)):
        stamp(batch, 0, base_offset=base_offset, leader_epoch=0)
    whole, size = bytes(first + second), len(first)
    behind_first = (chain.Place(0, 0, -1), chain.Place(size, 2, 0))
    assert follow(whole, 10**6, 0, 100) == (chain.Place(size, 2, 0), chain.Place(2 * size, 4, 0))
    assert follow(whole, 2 * size - 1, 0, 100) == behind_first, "within so many bytes"
    assert follow(whole[:-1], 10**6, 0, 100) == behind_first, "whole"
    assert follow(whole, 10**6, 0, 3) == behind_first, "below that offset"
    assert follow(whole, 10**6, 1, 100) == (chain.Place(0, 1, -1),) * 2, "from that offset on"
    for at, number in ((7, 1), (11, 36), (12, 0x80), (16, 1), (16, 3), (0, 0x80), (23, 0x80), (0, 0x7F)):
        damaged = bytearray(whole)
        damaged[size + at] = number
        if (at, number) == (0, 0x7F):
            damaged[size : size + 8] = b"\x7f" + b"\xff" * 7
        assert follow(damaged, 10**6, 0, INT64_MAX) == behind_first, (at, number)
    for at, bit in ((0, 1), (1, 0x80)):
        reserved = bytearray(whole)
        reserved[size + ATTRIBUTES_AT + at] |= bit
        passed = (chain.Place(size, 2, 0), chain.Place(2 * size, 4, 0))
        assert follow(reserved, 10**6, 0, 100) == passed, "undefined attributes are ignored"


def test_this_process_uses_the_implementation_that_it_reports() -> None:
    if fast_paths.implementation() == "compiled":
        assert importlib.import_module("tidelog.records.v2._writer").RecordsBuffer is fast_paths.RecordsBuffer
    else:
        assert fast_paths.RecordsBuffer is records_buffer.RecordsBuffer


def test_an_impossible_count_uses_no_memory() -> None:
    data = encode_record(0, 0, None, None) + encode_varint(-1)
    for call in (fast_paths.record_list, lambda *given: list(fast_paths.decode_records(*given))):
        with pytest.raises(TidelogError, match="record 2 of 2147483647"):
            call(data, 2**31 - 1, 0, 0)
    assert len(build_batch([Record(Offset(0), Millis(0), None, None)])) == HEADER_BYTES + 7
