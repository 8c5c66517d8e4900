"""The batches that a leader appended last: followers are answered from memory, with the same bytes as from the file."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log.log_read import LogRead
from storage.log.recent_appends import RecentAppends, Tail
from tests.storage.workbench import NOW, Bench, batch
from tidelog.types import LeaderEpoch, Offset

MIB = 1 << 20


def led() -> Bench:
    """A log whose leader has followers."""
    bench = Bench()
    bench.log.keep_recent_appends(keep=True)
    return bench


def fetched(log: Log, offset: int, max_bytes: int = MIB) -> LogRead:
    """A follower's fetch."""
    read = log.try_fetch(Offset(offset), max_bytes, FetchIsolation.LOG_END)
    assert isinstance(read, LogRead)
    return read


def from_file(log: Log, offset: int, max_bytes: int = MIB) -> LogRead:
    return log.read(Offset(offset), max_bytes, up_to=log.log_end_offset)


def test_a_follower_is_answered_without_the_file() -> None:
    bench = led()
    bench.lead(b"one", b"two")
    bench.lead(b"three")
    expected = bytes(from_file(bench.log, 0).records)
    bench.disk.flip_bit(bench.segment_path, 70, 0)
    read = fetched(bench.log, 0)
    assert bytes(read.records) == expected
    assert read.next_offset == 3
    assert read.epochs == bench.log.epochs.entries


def test_a_consumer_is_answered_from_the_file() -> None:
    """Damage of the file becomes known when consumers read it."""
    bench = led()
    bench.lead(b"one")
    bench.log.advance_high_watermark(Offset(1))
    expected = bytes(from_file(bench.log, 0).records)
    bench.disk.flip_bit(bench.segment_path, 70, 0)
    read = bench.log.try_fetch(Offset(0), MIB, FetchIsolation.HIGH_WATERMARK)
    assert isinstance(read, LogRead)
    assert bytes(read.records) != expected


def test_batches_of_a_follower_are_not_kept() -> None:
    leader, follower = led(), led()
    leader.lead(b"one")
    follower.follow(bytes(from_file(leader.log, 0).records))
    assert leader.directory.recent_appends.size > 0
    assert follower.directory.recent_appends.size == 0


def test_a_leader_without_followers_keeps_nothing() -> None:
    """The partition has lost its other replicas, and gets a new one after some records."""
    bench = led()
    bench.lead(b"one")
    bench.log.keep_recent_appends(keep=False)
    bench.lead(b"two")
    assert bench.directory.recent_appends.size == 0
    bench.log.keep_recent_appends(keep=True)
    bench.lead(b"three")
    assert bench.directory.recent_appends.size > 0
    whole = b"".join(bench.contents())
    assert bytes(fetched(bench.log, 0).records) == whole
    assert bytes(fetched(bench.log, 2).records) == bench.contents()[2]


def test_no_truncated_record_is_served() -> None:
    bench = led()
    bench.lead(b"one")
    bench.lead(b"two")
    bench.log.truncate_to(Offset(1))
    assert bench.directory.recent_appends.size == 0
    bench.lead(b"instead of two", epoch=1)
    assert fetched(bench.log, 1).records == from_file(bench.log, 1).records
    assert b"instead of two" in bytes(fetched(bench.log, 1).records)


def test_the_senders_buffer_may_change_after_the_append() -> None:
    bench = led()
    sent = bytearray(batch(b"as it was sent"))
    bench.log.append(sent, assign_offsets=True, leader_epoch=LeaderEpoch(0))
    sent[-10:] = b"x" * 10
    assert bytes(fetched(bench.log, 0).records) == bytes(from_file(bench.log, 0).records)


def test_all_logs_together_keep_a_bounded_number_of_bytes() -> None:
    recent = RecentAppends()
    recent.bytes_max = 100
    tails: list[Tail] = [{} for _ in range(3)]
    rng = random.Random(1)
    ends = [0, 0, 0]
    for _ in range(1_000):
        which = rng.randrange(3)
        if rng.randrange(20) == 0:
            recent.forget(tails[which])
            tails[which] = {}
        size = rng.randrange(1, 40)
        begin, ends[which] = ends[which], ends[which] + 1
        recent.note(tails[which], Offset(begin), LogRead(bytes(size), Offset(begin + 1), ()))
        kept = sum(len(entry.records) for tail in tails for entry in tail.values())
        assert kept == recent.size <= 100
        for tail, end in zip(tails, ends, strict=True):
            assert list(tail) == list(range(end - len(tail), end))  # the end of each log, without a gap


def test_forgotten_batches_occupy_no_memory() -> None:
    """Retention and compaction forget the batches of a log again and again, and its leader never fills the limit."""
    recent = RecentAppends()
    other: Tail = {}
    recent.note(other, Offset(0), LogRead(b"kept", Offset(1), ()))
    for number in range(10_000):
        tail: Tail = {}
        for offset in range(number, number + 3):
            recent.note(tail, Offset(offset), LogRead(b"x", Offset(offset + 1), ()))
        recent.forget(tail)
    assert recent.size == 4
    assert len(recent._order) < 10
    assert list(other) == [0]


def test_a_closed_log_occupies_no_memory() -> None:
    bench = led()
    bench.lead(b"one")
    bench.log.close()
    assert bench.directory.recent_appends.size == 0


def test_a_small_batch_does_not_keep_a_large_message_in_memory() -> None:
    """`records` is a view of the message of a producer. Its other entries may have been rejected."""
    bench, small = led(), batch(b"small")
    message = bytes(1 << 20) + small
    bench.log.append(memoryview(message)[1 << 20 :], assign_offsets=True, leader_epoch=LeaderEpoch(0))
    [kept] = bench.log._reader._tail.values()
    assert isinstance(kept.records, bytes), "a view would keep the whole message"
    assert len(kept.records) < 2 * len(small)
    assert bytes(fetched(bench.log, 0).records) == bytes(from_file(bench.log, 0).records)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=30),
    bytes_max=st.integers(0, 4_000),
    max_bytes=st.integers(1, 3_000),
    epochs=st.lists(st.integers(0, 1), min_size=30, max_size=30),
)
def test_a_follower_reads_the_same_log_as_from_the_file(
    sizes: list[int], bytes_max: int, max_bytes: int, epochs: list[int]
) -> None:
    """Whatever is still in memory, over rolls and epochs: whole batches within the limit, and the same bytes."""
    bench = led()
    bench.directory.recent_appends.bytes_max = bytes_max
    epoch = 0
    for number, (size, step) in enumerate(zip(sizes, epochs, strict=False)):
        epoch += step
        bench.lead(b"." * size, epoch=epoch, timestamp=NOW + number)
    log, offset, whole = bench.log, Offset(0), b""
    stored = bench.contents()
    while offset < log.log_end_offset:
        read = fetched(log, offset, max_bytes)
        count = read.next_offset - offset
        assert read.records == b"".join(stored[offset : read.next_offset])
        assert count == 1 or len(read.records) <= max_bytes
        assert read.epochs == log.epochs.over(offset, read.next_offset)
        whole += read.records
        offset = read.next_offset
    assert whole == b"".join(stored)
