"""Reads that must wait for the disk: begun on the owner's thread, run on another, checked against the log
afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from storage.isolation import FetchIsolation
from storage.log.cold_read import BytesRead, ReadTicket, TransactionsRead
from storage.log.log import Log
from storage.log.log_read import LogRead
from storage.producers.aborted_transactions import AbortedTransactions
from storage.segment.agreed_indexes import AGREEMENT_FILE
from storage.segment.batch_walk import BrokenChain
from storage.segment.segment import INDEX_SUFFIX, LogSegment, segment_path
from storage.segment.segments import LogSegments
from storage.segment.transaction_index import TransactionIndex
from tests.fakes.log_start import delete_old_segments, delete_records
from tests.storage.cleaning_bench import CleaningBench, clean
from tests.storage.producer_batches import eventful
from tests.storage.workbench import NOW, SMALL, Bench, stamped
from tidelog.errors import OffsetOutOfRange
from tidelog.types import Millis, Offset

EVERYTHING = FetchIsolation.LOG_END
DECIDED = FetchIsolation.LAST_STABLE_OFFSET


def filled(upto: int = 100) -> Bench:
    """Several segments of a dozen batches with one record each, none of them in memory."""
    bench = Bench()
    for i in range(upto):
        bench.follow(stamped(i, b"old %03d" % i, epoch=1, timestamp=NOW + i))
    bench.commit()
    bench.log.advance_high_watermark(Offset(upto))
    bench.disk.is_cold = lambda _: True
    return bench


def begin(log: Log, offset: int, max_bytes: int = 300, isolation: FetchIsolation = EVERYTHING) -> ReadTicket:
    ticket = log.try_fetch(Offset(offset), max_bytes, isolation)
    assert not isinstance(ticket, LogRead), "the read did not wait"
    return ticket


def fetch(
    log: Log, offset: int, max_bytes: int = 300, isolation: FetchIsolation = EVERYTHING
) -> tuple[LogRead, list[ReadTicket]]:
    """Run tickets until the read succeeds. Returns the result and the tickets that ran."""
    tickets: list[ReadTicket] = []
    found = log.try_fetch(Offset(offset), max_bytes, isolation)
    while not isinstance(found, LogRead):
        assert len(tickets) < 20, "the read does not end"
        found.run()
        tickets.append(found)
        found = log.try_fetch(Offset(offset), max_bytes, isolation, found)
        tickets[-1].release()
    return found, tickets


def test_a_read_from_memory_is_immediate() -> None:
    bench = filled()
    bench.disk.is_cold = None
    found = fetch(bench.log, 0)
    while found[0].next_offset < 100:
        assert found[1] == []
        found = fetch(bench.log, found[0].next_offset)
    assert fetch(bench.log, 99)[1] == []


def test_the_index_of_a_closed_segment_is_read_off_the_owners_thread() -> None:
    """The index is mapped: a lookup might wait for the disk."""
    bench = filled()
    bench.disk.is_cold = None
    bench.restart_clean()
    found, tickets = fetch(bench.log, bench.log.segments[1].base_offset + 2)
    assert len(tickets) == 1
    assert fetch(bench.log, found.next_offset)[1] == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_cold_read_equals_a_waiting_read(restarted: bool) -> None:
    """At every offset, alone and as a continuation, whatever files of the segments are open."""
    bench = filled()
    if restarted:
        bench.restart_clean()
    log = bench.log
    for max_bytes in (1, 150, 300, 1 << 20):
        for offset in (*range(100), *reversed(range(100))):
            found, tickets = fetch(log, offset, max_bytes)
            assert found == log.fetch(Offset(offset), max_bytes, EVERYTHING)
            assert len(tickets) == 1


def test_a_batch_larger_than_the_limit_is_read_whole() -> None:
    bench = Bench()
    bench.follow(stamped(0, b"x" * 1_000), stamped(1, b"y"))
    bench.disk.is_cold = lambda _: True
    found, tickets = fetch(bench.log, 0, 10)
    assert (found.next_offset, len(tickets)) == (1, 1)


def test_a_batch_that_begins_below_the_offset_is_read_whole() -> None:
    bench = Bench()
    bench.follow(stamped(0, b"a"), stamped(1, b"b", b"c", b"d"), stamped(4, b"e"))
    bench.disk.is_cold = lambda _: True
    assert fetch(bench.log, 2)[0] == bench.log.fetch(Offset(2), 300, EVERYTHING)


def test_a_log_with_holes_is_read_to_its_end() -> None:
    """The segment has no batch at or above the offset: the next one has it."""
    bench = Bench(replace(SMALL, compact=True))
    bench.follow(stamped(0, b"a"))
    bench.follow(stamped(20, b"b"))
    bench.log.roll(Millis(NOW))
    bench.follow(stamped(30, b"c"))
    bench.disk.is_cold = lambda _: True
    for offset in (5, 20, 21, 29, 30):
        assert fetch(bench.log, offset)[0] == bench.log.fetch(Offset(offset), 300, EVERYTHING)


@pytest.mark.parametrize("restarted", [False, True])
def test_holes_of_compaction_are_skipped_off_the_owners_thread(restarted: bool) -> None:
    """Segments end with a hole, and some are empty: the next batch is in a later segment, which is cold too."""
    bench = CleaningBench()
    for keys in (b"ax", b"x", b"x", b"bx", b"cx", b"d"):
        for number in keys:
            bench.put((bytes([number]), b"v" * 400))
        bench.settle()
    clean(bench.log)
    if restarted:
        bench.restart_clean()
    log = bench.log
    assert [segment.base_offset for segment in log.segments if not segment.size][:-1], "some segments are empty"
    bench.disk.is_cold = lambda _: True
    for offset in (*range(log.log_end_offset), *reversed(range(log.log_end_offset))):
        found, tickets = fetch(log, offset, 1_000)
        assert len(tickets) == 1
        assert found == log.fetch(Offset(offset), 1_000, EVERYTHING)


def test_bytes_above_the_visible_end_are_not_read_again() -> None:
    bench = Bench()
    bench.follow(stamped(0, b"a"), stamped(1, b"b", b"c"))
    bench.log.advance_high_watermark(Offset(2))
    bench.disk.is_cold = lambda _: True
    ticket = begin(bench.log, 1, isolation=FetchIsolation.HIGH_WATERMARK)
    ticket.run()
    calls: list[str] = []
    bench.disk.on_call = calls.append
    found = bench.log.try_fetch(Offset(1), 300, FetchIsolation.HIGH_WATERMARK, ticket)
    assert found == LogRead(b"", Offset(1), ())
    assert calls == []


def test_a_file_opened_by_a_ticket_stays_open_for_the_next_read() -> None:
    bench = filled()
    bench.restart_clean()
    bench.disk.is_cold = lambda _: False
    found, tickets = fetch(bench.log, 0)
    assert len(tickets) == 1
    assert fetch(bench.log, found.next_offset)[1] == []


def test_bytes_truncated_during_a_read_are_not_returned() -> None:
    for late in (False, True):
        bench = filled()
        ticket = begin(bench.log, 90)
        if late:
            ticket.run()
        bench.log.truncate_to(Offset(85))
        bench.follow(*(stamped(i, b"new %03d" % i, epoch=2) for i in range(85, 100)))
        if not late:
            ticket.run()
        found = bench.log.try_fetch(Offset(90), 300, EVERYTHING, ticket)
        assert isinstance(found, BytesRead), "the read must run again"
        found.run()
        assert bench.log.try_fetch(Offset(90), 300, EVERYTHING, found) == bench.log.fetch(Offset(90), 300, EVERYTHING)


def test_bytes_deleted_during_a_read_are_not_returned() -> None:
    bench = filled()
    ticket = begin(bench.log, 0)
    delete_records(bench.log, Offset(50))
    delete_old_segments(bench.log, Millis(NOW))
    ticket.run()
    with pytest.raises(OffsetOutOfRange):
        bench.log.try_fetch(Offset(0), 300, EVERYTHING, ticket)


def test_a_segment_renamed_before_it_was_opened_is_looked_up_again() -> None:
    bench = filled()
    bench.restart_clean()
    ticket = begin(bench.log, 0)
    delete_records(bench.log, Offset(50))
    delete_old_segments(bench.log, Millis(NOW))
    with pytest.raises(FileNotFoundError):
        ticket.run()


def test_a_read_stays_valid_if_the_log_rolls_and_grows() -> None:
    bench = filled(5)
    ticket = begin(bench.log, 2, 1 << 20)
    bench.log.roll(Millis(NOW))
    bench.follow(stamped(5, b"more", epoch=1))
    ticket.run()
    found = bench.log.try_fetch(Offset(2), 1 << 20, EVERYTHING, ticket)
    assert found == bench.log.fetch(Offset(2), 1 << 20, EVERYTHING)


def test_a_read_returns_only_records_that_became_visible_meanwhile() -> None:
    bench = Bench()
    bench.follow(*(stamped(i) for i in range(10)))
    bench.log.advance_high_watermark(Offset(3))
    bench.disk.is_cold = lambda _: True
    ticket = begin(bench.log, 0, 1 << 20, FetchIsolation.HIGH_WATERMARK)
    ticket.run()
    bench.log.advance_high_watermark(Offset(7))
    found = bench.log.try_fetch(Offset(0), 1 << 20, FetchIsolation.HIGH_WATERMARK, ticket)
    assert isinstance(found, LogRead)
    assert found.next_offset == 7


def test_a_log_may_be_closed_during_a_read() -> None:
    bench = filled()
    base = bench.log.active.base_offset
    there = bytes(bench.log.fetch(base, 1 << 20, EVERYTHING).records)
    ticket = begin(bench.log, base)
    bench.directory.delete_log(bench.log.topic_partition)
    ticket.run()
    assert isinstance(ticket, BytesRead)
    assert there.startswith(bytes(ticket.data))
    assert ticket.data
    ticket.release()


def test_a_wrong_index_is_repaired_by_the_owner() -> None:
    """The ticket changes nothing: the waiting read repairs the index and reads."""
    bench = filled()
    bench.restart_clean()
    first = bench.log.segments[0]
    file = bench.files.open(segment_path(bench.log.path, first.base_offset, INDEX_SUFFIX))
    for entry in range(file.size() // 8):
        file.pwritev([(7 + entry).to_bytes(4)], 8 * entry + 4)
    file.close()
    last = bench.log.segments[1].base_offset - 1
    ticket = begin(bench.log, last)
    with pytest.raises(BrokenChain):
        ticket.run()
    assert bench.log.fetch(Offset(last), 300, EVERYTHING).next_offset == last + 1
    assert fetch(bench.log, last)[0].next_offset == last + 1


# --- transactions -----------------------------------------------------------------------------------------------------


def unknown_transactions(seed: int = 3) -> Bench:
    """Transactions of several producers, in segments whose indexes no process has verified."""
    bench = Bench()
    eventful(bench, seed)
    bench.directory.close_clean()
    bench.disk.remove(f"{bench.path}/orders-0/{AGREEMENT_FILE}")
    bench.reopen()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    return bench


def test_transaction_indexes_are_verified_off_the_owners_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner's thread walks no segment, neither in the first search nor in a later one."""
    for seed in range(5):
        wanted, offset, checked = all_decided(unknown_transactions(seed).log), Offset(0), 0
        bench = unknown_transactions(seed)
        with monkeypatch.context() as patch:
            patch.setattr(AbortedTransactions, "_verify", verified_already(AbortedTransactions._verify))
            while offset < bench.log.last_stable_offset:
                found, tickets = fetch(bench.log, offset, 200, DECIDED)
                checked += sum(isinstance(ticket, TransactionsRead) for ticket in tickets)
                assert found == wanted[offset]
                offset = found.next_offset
        assert 0 < checked <= len(bench.log.segments)


def all_decided(log: Log) -> dict[Offset, LogRead]:
    """The results of waiting reads, by offset."""
    reads, offset = {}, Offset(0)
    while offset < log.last_stable_offset:
        reads[offset] = log.fetch(offset, 200, DECIDED)
        offset = reads[offset].next_offset
    return reads


def verified_already(verify: Callable[..., TransactionIndex]) -> Callable[..., TransactionIndex]:
    def checked(self: AbortedTransactions, segment: LogSegment, segments: LogSegments, *rest: Any) -> TransactionIndex:
        assert self._is_in_memory(segment, segments), "the owner's thread walks a segment"
        return verify(self, segment, segments, *rest)

    return checked


def test_a_segment_that_grows_during_its_verification_is_verified_again() -> None:
    bench = unknown_transactions()
    log = bench.log
    log.roll(Millis(NOW))  # into a segment that this process wrote
    last = log.segments[-2]
    offset = last.base_offset
    tickets = []
    found = log.try_fetch(offset, 1 << 20, DECIDED)
    while not isinstance(found, LogRead):
        found.run()
        tickets.append(found)
        found = log.try_fetch(offset, 1 << 20, DECIDED, found)
    assert all(isinstance(ticket, TransactionsRead | BytesRead) for ticket in tickets)
    assert found == log.fetch(offset, 1 << 20, DECIDED)


def test_a_truncation_during_a_verification_is_noticed() -> None:
    rng = random.Random(1)
    for _ in range(10):
        bench = unknown_transactions()
        log = bench.log
        ticket = log.try_fetch(Offset(0), 1 << 20, DECIDED)
        while isinstance(ticket, BytesRead):
            ticket.run()
            ticket = log.try_fetch(Offset(0), 1 << 20, DECIDED, ticket)
        assert isinstance(ticket, TransactionsRead)
        cut = Offset(rng.randrange(1, log.segments[1].base_offset))
        ticket.run()
        log.truncate_to(cut)
        log.advance_high_watermark(log.log_end_offset)
        found, _ = fetch(log, 0, 1 << 20, DECIDED)
        assert found == log.fetch(Offset(0), 1 << 20, DECIDED)
