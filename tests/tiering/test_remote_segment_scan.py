"""Reading a copied segment once from front to back: the same batches, each range of the store taken once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from storage.files.file_system import read_file
from storage.log.log import Log
from storage.log_config import LogConfig
from testbed.fake_object_store import FakeObjectStore
from tests.storage.producer_batches import eventful
from tests.storage.workbench import Bench, batch, contents, stamped
from tests.tiering.remote_bench import TOPIC, build, copy, large
from tidelog.records.batches import iter_batches
from tidelog.tiering.remote_cache import Part, RemoteCache
from tidelog.tiering.remote_errors import ObjectStoreUnavailable, RemoteObjectDamaged
from tidelog.tiering.remote_segment import RemoteSegment, SectionKind
from tidelog.tiering.remote_segment_reader import RemoteRead
from tidelog.tiering.remote_segment_scan import RemoteSegmentScan
from tidelog.tiering.segment_manifest import segment_key
from tidelog.types import Offset

MIB = 1 << 20


@pytest.fixture(scope="module")
def large_log() -> Log:
    return large().log


def scan(store: FakeObjectStore, segment: RemoteSegment, cache: RemoteCache | None = None) -> RemoteSegmentScan:
    return RemoteSegmentScan(store, cache or RemoteCache(64 * MIB), segment_key(TOPIC, segment), segment)


def reads_of(
    each: RemoteSegmentScan, request_bytes: int, start: Offset | None = None, until: Offset | None = None
) -> Iterator[Sequence[RemoteRead]]:
    offset = each.segment.start_offset if start is None else start
    until = each.segment.end_offset if until is None else until
    while offset < until:
        reads = each.read_some(offset, request_bytes, until=until)
        yield reads
        assert reads[-1].next_offset > offset, "a read makes no progress"
        offset = reads[-1].next_offset


def joined(reads: Iterator[Sequence[RemoteRead]]) -> bytes:
    return b"".join(bytes(each.records) for some in reads for each in some)


def log_of(log: Log, segment: RemoteSegment) -> bytes:
    return b"".join(contents(log))[: segment.log_size]


@pytest.mark.parametrize("request_bytes", [1, MIB, 3 * MIB, 4 * MIB, 64 * MIB])
def test_a_scan_takes_each_range_once_and_keeps_none(large_log: Log, request_bytes: int) -> None:
    store, cache = FakeObjectStore(), RemoteCache(64 * MIB)
    segment = copy(large_log, 0, store)
    each = scan(store, segment, cache)
    store.calls.clear()

    some = list(reads_of(each, request_bytes))

    assert joined(iter(some)) == log_of(large_log, segment)
    asked = [call.size for call in store.calls if call.operation == "get_range" and call.size > 4096]
    assert sum(asked) == segment.log_size
    assert max(asked) <= max(MIB, request_bytes)
    assert len(some) == len(asked), "a call of the reader is one request"
    assert not any(Part(f"{store.url}/{each.key}", SectionKind.LOG, number) in cache for number in range(10))


def test_small_batches_take_each_range_once() -> None:
    """Mostly the header of a batch crosses from one answer into the next."""
    bench, store = Bench(LogConfig(segment_bytes=3 * MIB)), FakeObjectStore()
    while len(bench.log.segments) < 2:
        bench.follow(*(stamped(bench.log.log_end_offset + more, b"v" * 20) for more in range(1_000)))
    bench.commit()
    segment = copy(bench.log, 0, store)
    each = scan(store, segment)
    store.calls.clear()

    assert joined(reads_of(each, 1)) == read_file(bench.disk, bench.log.segments[0].path)
    asked = [call.size for call in store.calls if call.operation == "get_range" and call.size > 4096]
    assert sum(asked) == segment.log_size


def test_only_a_batch_that_crosses_is_copied(large_log: Log) -> None:
    store = FakeObjectStore()
    segment = copy(large_log, 0, store)
    first, *others = reads_of(scan(store, segment), 4 * MIB)
    assert [len(some) for some in (first, *others)] == [1, 2, 2]
    for crossed, rest in others:
        assert len(list(iter_batches(crossed.records))) == 1
        assert len(rest.records) > 10 * len(crossed.records) or rest.next_offset == segment.end_offset


@pytest.mark.parametrize("request_bytes", [1, 4 * MIB])
def test_a_scan_of_some_offsets_begins_with_the_batch_of_the_first_and_ends_with_that_of_the_last(
    large_log: Log, request_bytes: int
) -> None:
    store = FakeObjectStore()
    segment = copy(large_log, 0, store)
    start, until = Offset(segment.end_offset // 3), Offset(segment.end_offset // 2)
    store.calls.clear()

    found = list(iter_batches(joined(reads_of(scan(store, segment), request_bytes, start, until))))

    assert found[0].base_offset <= start <= found[0].last_offset
    assert [each.next_offset for each in found[:-1]] == [each.base_offset for each in found[1:]]
    assert found[-1].next_offset >= until
    assert sum(call.size for call in store.calls if call.operation == "get_range") < segment.log_size


def test_a_batch_may_be_larger_than_several_requests() -> None:
    bench = Bench(LogConfig(segment_bytes=9 * MIB, max_message_bytes=5 * MIB))
    while len(bench.log.segments) < 2:
        bench.lead(bench.rng.randbytes(3 * MIB + 12_345))
    store = FakeObjectStore()
    segment = copy(bench.log, 0, store)
    assert joined(reads_of(scan(store, segment), MIB)) == log_of(bench.log, segment)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_older_formats_are_read(magic: int) -> None:
    bench = Bench(LogConfig(segment_bytes=2_000, index_interval_bytes=200, segment_index_bytes=240, magic=magic))
    for number in range(100):
        bench.log.append(batch(b"a%d" % number, b"b"), assign_offsets=True, leader_epoch=bench.log.epochs.latest)
    store = FakeObjectStore()
    segment = copy(bench.log, 0, store)
    assert joined(reads_of(scan(store, segment), MIB)) == log_of(bench.log, segment)


def test_a_scan_from_any_offset_has_the_rest_of_the_segment() -> None:
    bench = Bench()
    eventful(bench)
    bench.commit()
    store = FakeObjectStore()
    segment = copy(bench.log, 0, store)
    whole = log_of(bench.log, segment)
    for offset in range(segment.start_offset, segment.end_offset):
        rest = joined(reads_of(scan(store, segment), 1, Offset(offset)))
        assert whole.endswith(rest)
        first = next(iter_batches(rest), None)
        assert first is None or first.base_offset <= offset <= first.last_offset or offset < first.base_offset


def test_a_changed_byte_in_any_range_is_an_error(large_log: Log) -> None:
    for number in range(9):
        store = FakeObjectStore()
        segment = copy(large_log, 0, store)
        log = next(part for part in segment.sections if part.kind is SectionKind.LOG)
        store.tamper(segment_key(TOPIC, segment), log.start + number * MIB + 17, 1)
        with pytest.raises(RemoteObjectDamaged, match=rf"bytes {number * MIB} to .* have checksum"):
            joined(reads_of(scan(store, segment), 2 * MIB))


def test_a_scan_goes_on_where_the_store_was_away(large_log: Log) -> None:
    """The store fails before the range into which a batch crosses: nothing is left out or given twice."""
    store = FakeObjectStore()
    segment = copy(large_log, 0, store)
    each = scan(store, segment)
    found, failures, offset = [], 0, segment.start_offset
    while offset < segment.end_offset:
        store.fail("get_range")
        try:
            each.read_some(offset, MIB, until=segment.end_offset)
        except ObjectStoreUnavailable:
            failures += 1
        some = each.read_some(offset, MIB, until=segment.end_offset)
        found.append(joined(iter([some])))
        offset = some[-1].next_offset
    assert failures >= 9
    assert b"".join(found) == log_of(large_log, segment)


def test_a_segment_that_compaction_has_emptied_is_passed() -> None:
    """Of a topic that was compacted before it had a tier: its first segments may have no records."""
    store = FakeObjectStore()
    segment, data = build(b"", [1])
    store.put(segment_key(TOPIC, segment), [data])
    (reads,) = reads_of(scan(store, segment), MIB)
    assert [(bytes(each.records), each.next_offset) for each in reads] == [(b"", segment.end_offset)]
