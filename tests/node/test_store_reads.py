"""Reads of an object store that is slow, down, and well again: which are at it, and which wait or are refused."""

from __future__ import annotations

from node.replicas.store_reads import STORE_READS_AT_ONCE, StoreReads
from tests.node.later_executor import Later
from tidelog.clock import MachineClock
from tidelog.errors import TidelogError
from tidelog.tiering.remote_cache import Part, RemoteCache
from tidelog.tiering.remote_errors import ObjectStoreUnavailable, RemoteObjectMissing
from tidelog.tiering.remote_segment import SectionKind

DOWN = ObjectStoreUnavailable("the store does not answer; look at it")


class Read:
    """A read that ends as the test wants."""

    def __init__(self, bench: Bench, key: str) -> None:
        self.bench, self.object_key = bench, key
        self.error: TidelogError | None = None
        self.is_wanted = True
        self.begun = self.ended = False

    def run(self) -> None:
        self.error = self.bench.failure
        if self.error is None:  # as a reader does with what the store has answered
            self.bench.cache.put(Part(self.object_key, SectionKind.LOG, self.bench.cache.misses), b"x")

    def begin(self) -> None:
        self.begun = True

    def end(self, defect: BaseException | None) -> None:
        assert defect is None
        self.ended = True


class Bench:
    def __init__(self) -> None:
        self.executor, self.cache = Later(), RemoteCache(1 << 20)
        self.reads = StoreReads(self.executor, self.cache, MachineClock())
        self.failure: TidelogError | None = None

    def submit(self, key: str) -> Read:
        read = Read(self, key)
        self.reads.submit(read, read.end, is_wanted=lambda: read.is_wanted, begun=read.begin)
        return read


def test_a_few_reads_are_at_the_store_and_the_others_wait_their_turn() -> None:
    bench = Bench()
    reads = [bench.submit(f"object {number}") for number in range(10)]
    assert [read.begun for read in reads] == [True] * STORE_READS_AT_ONCE + [False] * 6
    bench.executor.work.pop(0)()
    assert reads[0].ended and reads[STORE_READS_AT_ONCE].begun
    bench.executor.run()
    assert all(read.ended for read in reads)


def test_what_nobody_waits_for_any_more_is_not_read() -> None:
    bench = Bench()
    reads = [bench.submit(f"object {number}") for number in range(6)]
    reads[4].is_wanted = False
    bench.executor.run()
    assert [read.begun for read in reads] == [True, True, True, True, False, True]


def test_one_object_takes_one_thread() -> None:
    """A reader that asks again and again for an object that is slow takes no place of other objects."""
    bench = Bench()
    same = [bench.submit("slow") for _ in range(9)]
    other = bench.submit("other")
    assert other.begun and sum(read.begun for read in same) == 1
    bench.executor.run()
    assert all(read.ended for read in same)


def test_while_the_store_is_down_one_read_tries_it_and_the_others_are_refused_at_once() -> None:
    bench = Bench()
    bench.failure = DOWN
    waiting = [bench.submit(f"object {number}") for number in range(20)]
    bench.executor.work.pop(0)()
    others = [read for read in waiting if not read.begun]
    assert len(others) == 20 - STORE_READS_AT_ONCE
    assert all(read.ended and read.error is DOWN for read in others), "they need not wait until it is their turn"
    bench.executor.run()
    assert bench.reads.errors == STORE_READS_AT_ONCE

    probe, refused = bench.submit("object 1"), bench.submit("object 2")
    assert probe.begun and not probe.ended
    assert refused.error is DOWN and refused.ended and not refused.begun
    bench.failure = None
    bench.executor.run()
    assert probe.error is None
    again = [bench.submit(f"object {number}") for number in range(20)]
    assert sum(read.begun for read in again) == STORE_READS_AT_ONCE, "the store answers: all are read again"


def test_a_read_from_memory_does_not_show_that_the_store_is_well() -> None:
    bench = Bench()
    bench.failure = DOWN
    bench.submit("object 1")
    bench.executor.run()
    cached = bench.submit("object 1")
    cached.run = lambda: None  # type: ignore[method-assign]
    bench.executor.run()
    bench.submit("object 2")
    assert bench.submit("object 3").error is DOWN


def test_an_object_that_is_missing_is_no_failure_of_the_store() -> None:
    bench = Bench()
    bench.failure = RemoteObjectMissing("no such object; restore it")
    missing = bench.submit("object 1")
    bench.executor.run()
    assert missing.error is bench.failure and bench.reads.errors == 1
    assert all(bench.submit(f"object {number}").begun for number in range(STORE_READS_AT_ONCE))
