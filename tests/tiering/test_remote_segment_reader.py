"""Reading a copied segment: the same batches, records and transactions as the log that was copied, or an error."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log.log import Log
from storage.log_config import LogConfig
from testbed.fake_object_store import FakeObjectStore, StoreCall
from tests.storage.filled_logs import filled
from tests.storage.producer_batches import eventful
from tests.storage.workbench import NOW, Bench, batch, contents
from tests.tiering.remote_bench import TOPIC, build, copy, copy_all, large, read_all, reader
from tidelog.errors import TidelogError
from tidelog.records.batches import iter_batches
from tidelog.tiering.remote_cache import Part, RemoteCache
from tidelog.tiering.remote_errors import ObjectStoreUnavailable, RemoteObjectDamaged, RemoteObjectMissing
from tidelog.tiering.remote_segment import SectionKind
from tidelog.tiering.remote_segment_reader import RemoteSegmentReader, aborted_in
from tidelog.tiering.segment_manifest import segment_key
from tidelog.types import Offset

END = Offset(1 << 60)
MIB = 1 << 20


def readers_of(log: Log, store: FakeObjectStore, cache: RemoteCache | None = None) -> list[RemoteSegmentReader]:
    cache = cache or RemoteCache(64 * MIB)
    return [reader(store, segment, cache) for segment in copy_all(log, store)]


@pytest.fixture(scope="module")
def large_log() -> Log:
    return large().log


def ranges_read(calls: Iterable[StoreCall]) -> list[int]:
    """MiB of each read of the log itself."""
    return [-(-call.size // MIB) for call in calls if call.operation == "get_range" and call.size > MIB // 2]


@pytest.mark.parametrize("max_bytes", [1, 300, 100_000])
def test_every_batch_is_read_as_it_was_in_the_log(max_bytes: int) -> None:
    bench = filled()
    readers = readers_of(bench.log, FakeObjectStore())
    copied = [
        data for data in contents(bench.log) if next(iter_batches(data)).last_offset < readers[-1].segment.end_offset
    ]
    assert len(readers) == 3
    assert read_all(readers, max_bytes) == b"".join(copied)


def test_a_read_at_any_offset_equals_that_of_the_log() -> None:
    bench = eventful_log()
    for each in readers_of(bench.log, FakeObjectStore()):
        for offset in range(each.segment.start_offset, each.segment.end_offset):
            for max_bytes in (1, 250):
                local = bench.log.read(Offset(offset), max_bytes, up_to=each.segment.end_offset)
                remote = each.read(Offset(offset), max_bytes, up_to=END)
                assert (bytes(remote.records), remote.next_offset) == (bytes(local.records), local.next_offset)


def eventful_log() -> Bench:
    bench = Bench()
    eventful(bench)
    bench.commit()
    return bench


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_older_formats_are_read(magic: int) -> None:
    bench = Bench(LogConfig(segment_bytes=2_000, index_interval_bytes=200, segment_index_bytes=240, magic=magic))
    for number in range(100):
        bench.log.append(batch(b"a%d" % number, b"b"), assign_offsets=True, leader_epoch=bench.log.epochs.latest)
    readers = readers_of(bench.log, FakeObjectStore())
    assert len(readers) > 1
    for each in readers:
        for offset in range(each.segment.start_offset, each.segment.end_offset):
            local = bench.log.read(Offset(offset), 150, up_to=each.segment.end_offset)
            remote = each.read(Offset(offset), 150, up_to=END)
            assert (bytes(remote.records), remote.next_offset) == (bytes(local.records), local.next_offset)


def test_a_read_ends_at_its_bound() -> None:
    each = readers_of(filled().log, FakeObjectStore())[0]
    assert each.read(Offset(0), 10_000, up_to=Offset(5)).next_offset == 5
    assert each.read(Offset(5), 10_000, up_to=Offset(5)) == (b"", 5)


# --- ranges and the cache -----------------------------------------------------------------------------------------


def test_a_read_takes_a_range_and_not_the_segment(large_log: Log) -> None:
    store = FakeObjectStore()
    each = reader(store, copy(large_log, 0, store))
    store.calls.clear()
    middle = Offset(each.segment.end_offset // 2)

    each.read(middle, 10_000, up_to=END)

    assert ranges_read(store.calls) == [1]
    assert sum(call.size for call in store.calls if call.operation == "get_range") < 2 * MIB
    store.calls.clear()
    each.read(middle, 10_000, up_to=END)
    assert store.calls == []  # from the cache


def test_sequential_reads_ask_for_more_at_a_time(large_log: Log) -> None:
    store = FakeObjectStore()
    each = reader(store, copy(large_log, 0, store))
    store.calls.clear()
    assert read_all([each], 200_000) == b"".join(contents(large_log))[: each.segment.log_size]
    assert ranges_read(store.calls) == [2, 4, 3]
    (index,) = (section.start for section in each.segment.sections if section.kind is SectionKind.OFFSET_INDEX)
    assert index not in [call.start for call in store.calls], (
        "a read that begins where another one ended needs no index"
    )

    scattered = reader(store, each.segment)
    store.calls.clear()
    for offset in (300, 200, 100):
        scattered.read(Offset(offset), 1, up_to=END)
    assert ranges_read(store.calls) == [1, 1, 1]


def test_a_reader_for_each_read_asks_for_as_much(large_log: Log) -> None:
    """As in a node, which makes one for each fetch. Two consumers at different places do not disturb each other."""
    store, cache = FakeObjectStore(), RemoteCache(64 * MIB)
    segment = copy(large_log, 0, store)
    store.calls.clear()
    end = segment.end_offset
    places = [Offset(0), Offset(end // 2)]
    while places[0] < end // 2:
        for number, place in enumerate(places):
            places[number] = reader(store, segment, cache).read(place, 200_000, up_to=END).next_offset
    assert max(ranges_read(store.calls)) == 4
    assert len(ranges_read(store.calls)) <= 6, "one of each MiB would be nine"


def test_a_large_read_is_divided(large_log: Log) -> None:
    """No request has more than 4 MiB: a slow store would hold its thread too long."""
    store = FakeObjectStore()
    each = reader(store, copy(large_log, 0, store))
    store.calls.clear()
    read = each.read(Offset(0), 100 * MIB, up_to=END)
    assert read.next_offset == each.segment.end_offset
    assert len(read.records) == each.segment.log_size
    assert max(call.size for call in store.calls) <= 4 * MIB


@pytest.mark.parametrize("size", [0, 3 * MIB])
def test_a_cache_of_any_size_gives_the_same_bytes(large_log: Log, size: int) -> None:
    store, cache = FakeObjectStore(), RemoteCache(size)
    each = reader(store, copy(large_log, 0, store), cache)
    assert read_all([each], 600_000) == b"".join(contents(large_log))[: each.segment.log_size]
    assert cache.size <= size


def test_the_cache_keeps_what_was_used_last() -> None:
    cache = RemoteCache(3_000)
    parts = [Part("key", SectionKind.LOG, number) for number in range(3)]
    for part in parts[:2]:
        cache.put(part, bytes(900))
    assert cache.get(parts[0]) is not None
    cache.put(parts[2], bytes(900))
    assert [cache.get(part) is not None for part in parts] == [True, False, True]
    cache.put(Part("key", SectionKind.LOG, 9), bytes(5_000))  # larger than all of it
    assert cache.get(parts[0]) is not None
    assert cache.size == 2 * (900 + 512)


async def test_readers_on_many_threads_read_each_range_once(large_log: Log) -> None:
    """Many threads at the same offsets: one request for each range, and all get the same bytes."""
    store, cache = FakeObjectStore(), RemoteCache(64 * MIB)
    segment = copy(large_log, 0, store)
    store.calls.clear()
    due = b"".join(contents(large_log))[: segment.log_size]
    loop = asyncio.get_running_loop()
    threads = [loop.run_in_executor(None, lambda: read_all([reader(store, segment, cache)], 300_000)) for _ in range(8)]
    assert await asyncio.gather(*threads) == [due] * 8
    assert sum(ranges_read(store.calls)) == 9
    assert cache._loading == {}


# --- lookups ------------------------------------------------------------------------------------------------------


def test_a_record_is_found_by_its_time() -> None:
    bench, rng = Bench(), random.Random(4)
    for _ in range(120):
        bench.lead(b"a", b"b", timestamp=NOW + rng.randrange(1000))
    log = bench.log
    readers = readers_of(log, FakeObjectStore())
    for _ in range(300):
        timestamp, start = NOW + rng.randrange(-5, 1005), Offset(rng.randrange(240))
        for each in readers:
            inside = [
                (record.offset, record.timestamp)
                for data in contents(log)
                for found in iter_batches(data)
                for record in found.records()
                if record.timestamp >= timestamp
                and max(start, each.segment.start_offset) <= record.offset < each.segment.end_offset
            ]
            got = each.find_timestamp(timestamp, start, END)
            assert (None if got is None else got[:2]) == (inside[0] if inside else None)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_largest_timestamp_is_that_of_the_records_between_two_offsets(magic: int) -> None:
    """Not of the segment: its largest one may be below the log start."""
    config = LogConfig(segment_bytes=2_000, index_interval_bytes=200, segment_index_bytes=240, magic=magic)
    bench, rng = Bench(config), random.Random(5)
    for _ in range(120):
        bench.lead(b"a", b"b", timestamp=NOW + rng.randrange(1000))
    bench.commit()
    stamps = [record for data in contents(bench.log) for found in iter_batches(data) for record in found.records()]
    for each in readers_of(bench.log, FakeObjectStore()):
        segment = each.segment
        for _ in range(60):
            start, up_to = (Offset(rng.randrange(240)) for _ in range(2))
            inside = range(max(start, segment.start_offset), min(up_to, segment.end_offset))
            expected = max((record.timestamp for record in stamps if record.offset in inside), default=-1)
            assert each.largest_timestamp(start, up_to) == expected


def test_aborted_transactions_are_those_of_the_log() -> None:
    bench = eventful_log()
    readers = readers_of(bench.log, FakeObjectStore())
    end_of_copies = readers[-1].segment.end_offset
    complete = 0
    for start in range(end_of_copies):
        inside = [each for each in readers if each.segment.end_offset > start]
        end = Offset(min(start + 5, end_of_copies))
        found, is_complete = aborted_in(inside, Offset(start), end)
        due = bench.log.aborted_transactions(Offset(start), end)
        complete += is_complete
        assert set(found) <= set(due)
        assert set(due) - set(found) == {each for each in due if each.last_offset >= end_of_copies}
        if is_complete:
            assert found == due
    assert complete


# --- damage -------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.data())
def test_a_changed_byte_is_never_read(data: st.DataObject) -> None:
    """Wherever a bit flips, also where the checksum of a batch does not look: its offset, its epoch, an index."""
    store, log = FakeObjectStore(), filled(60).log
    segment = copy(log, 0, store)
    key = segment_key(TOPIC, segment)
    at = data.draw(st.integers(0, sum(section.size for section in segment.sections) - 1))
    store.tamper(key, at, data.draw(st.integers(1, 255)))
    due = b"".join(contents(log))[: segment.log_size]
    each = reader(store, segment)
    try:
        assert read_all([each]) == due
        each.read(Offset(segment.end_offset // 2), 1, up_to=END)
        assert each.find_timestamp(NOW + 3, Offset(0), END) is not None
        each.aborted_transactions(Offset(0), END)
    except RemoteObjectDamaged:
        return
    changed = next(part.kind for part in segment.sections if part.start <= at < part.start + part.size)
    assert changed in (SectionKind.PRODUCER_SNAPSHOT, SectionKind.LEADER_EPOCHS), "nothing has looked at these"
    with pytest.raises(RemoteObjectDamaged, match=key):
        each.section(changed)


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (lambda store, key: store.lose(key), RemoteObjectMissing),
        (lambda store, key: store.truncate(key, 10), RemoteObjectDamaged),
        (lambda store, key: store.fail("get_range"), ObjectStoreUnavailable),
    ],
)
def test_an_error_of_the_store_names_itself_and_spoils_nothing(
    harm: Callable[[FakeObjectStore, str], None], error: type[TidelogError]
) -> None:
    store, log = FakeObjectStore(), filled().log
    cache = RemoteCache(64 * MIB)
    first, second = (copy(log, number, store) for number in range(2))
    key, whole = segment_key(TOPIC, first), store.objects[segment_key(TOPIC, first)]
    harm(store, key)
    with pytest.raises(error):
        reader(store, first, cache).read(Offset(0), 300, up_to=END)
    assert read_all([reader(store, second, cache)])
    store.objects[key] = whole
    assert read_all([reader(store, first, cache)])


def test_a_segment_whose_sections_cannot_be_right_is_refused() -> None:
    store, log = FakeObjectStore(), filled().log
    segment = copy(log, 0, store)
    for wrong in (
        replace(segment, log_size=segment.log_size + 1),
        replace(segment, sections=()),
        replace(segment, sections=segment.sections[:-1]),
    ):
        with pytest.raises(RemoteObjectDamaged):
            reader(store, wrong)


@settings(max_examples=60)
@given(st.binary(min_size=1, max_size=300), st.integers(0, 40))
def test_a_log_of_hostile_bytes_ends_with_the_documented_error(garbage: bytes, offset: int) -> None:
    """The checksums are right, the bytes are not batches: a faulty or hostile writer."""
    segment, data = build(garbage, [64])
    segment = replace(segment, start_offset=Offset(0), end_offset=Offset(50))
    store = FakeObjectStore()
    store.objects[segment_key(TOPIC, segment)] = data
    each = reader(store, segment)
    with pytest.raises(RemoteObjectDamaged):
        each.read(Offset(offset), 100, up_to=END)
