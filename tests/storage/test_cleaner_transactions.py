"""Compaction of transactions, markers and producer sequences.

Covers the applicable cases of Kafka's LogCleanerTest: aborted transactions, markers and their horizons, last
sequences."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from storage.isolation import FetchIsolation
from tests.storage.cleaning_bench import (
    COMPACTED,
    DAY,
    CleaningBench,
    batches_of,
    clean,
    forget_agreements,
    last_offsets,
    markers_of,
    records_of,
    table,
    visible,
)
from tests.storage.workbench import NOW
from tidelog.types import Offset

A, B, C = b"a", b"b", b"c"


def offsets(bench: CleaningBench) -> list[int]:
    return [record.offset for record in records_of(bench.log)]


def test_aborted_records_are_removed_and_do_not_supersede_committed_ones() -> None:
    bench = CleaningBench()
    bench.put((A, b"committed"))
    bench.produce(7, (A, b"aborted"), (B, b"aborted"), transactional=True)
    bench.end(7, commit=False)
    bench.put((C, b"x"))
    bench.settle()
    before = visible(bench.log)
    clean(bench.log)
    assert visible(bench.log) == before
    assert [record.value for record in records_of(bench.log)] == [b"committed", b"x"]
    assert [record.value for record in visible(bench.log, FetchIsolation.HIGH_WATERMARK)] == [b"committed", b"x"]


def test_an_abort_marker_is_removed_after_its_records_and_its_horizon() -> None:
    """Three cleanings: the first removes the records, the second finds none and sets the horizon, a third after the
    horizon removes the marker."""
    bench = CleaningBench(replace(COMPACTED, delete_retention_ms=1000))
    bench.produce(7, (A, b"aborted"), transactional=True)
    marker = bench.end(7, commit=False)
    bench.produce(7, (C, b"so that the marker is not its last"))
    newer = _ended_by_a_newer_coordinator(bench)
    both = [marker, newer]
    for n, (now, left) in enumerate([(NOW, both), (NOW, both), (NOW + 999, both), (NOW + 1000, [newer])]):
        bench.put((B, b"%d" % n))
        bench.settle()
        clean(bench.log, now)
        assert markers_of(bench.log) == left, f"after cleaning {n + 1}"
    assert bench.log.aborted_transactions(Offset(0), bench.log.log_end_offset) == ()


def test_a_marker_stays_while_a_follower_is_still_to_fetch_it() -> None:
    """The follower may have records of its transaction, which nothing else would end."""
    bench = CleaningBench(replace(COMPACTED, delete_retention_ms=0))
    bench.produce(7, (A, b"aborted"), transactional=True)
    marker = bench.end(7, commit=False)
    bench.produce(7, (C, b"so that the marker is not its last"))
    newer = _ended_by_a_newer_coordinator(bench)
    position = Offset(marker)
    bench.log.first_unfetched = lambda: position
    for n in range(4):
        bench.put((B, b"%d" % n))
        bench.settle()
        clean(bench.log, NOW + n)
        assert markers_of(bench.log) == [marker, newer], f"after cleaning {n + 1}"
    position = Offset(marker + 1)
    bench.put((B, b"last"))
    bench.settle()
    clean(bench.log, NOW + 4)
    assert markers_of(bench.log) == [newer]


def test_a_commit_marker_stays_as_long_as_a_record_of_its_transaction() -> None:
    bench = CleaningBench(replace(COMPACTED, delete_retention_ms=0))
    bench.produce(7, (A, b"1"), transactional=True)
    marker = bench.end(7, commit=True)
    bench.produce(7, (C, b"later"))
    newer = _ended_by_a_newer_coordinator(bench)
    bench.put((B, b"1"))
    bench.settle()
    for _ in range(3):
        clean(bench.log, NOW + DAY)
        bench.put((B, b"1"))
        bench.settle()
    assert markers_of(bench.log) == [marker, newer]
    bench.put((A, b"2"))
    bench.settle()
    for n in range(3):
        clean(bench.log, NOW + DAY + n)
        bench.put((B, b"1"))
        bench.settle()
    assert markers_of(bench.log) == [newer]


def test_one_marker_of_the_newest_coordinator_epoch_stays() -> None:
    """A replica built from the compacted log also rejects an older coordinator; Kafka's would accept it."""
    bench = CleaningBench(replace(COMPACTED, delete_retention_ms=0))
    markers = []
    for coordinator in (0, 1, 1, 2, 2, 2):
        bench.produce(7, (A, b"1"), transactional=True)
        markers.append(bench.end(7, commit=True, coordinator=coordinator))
    bench.produce(7, (C, b"so that no batch of the last transaction stays for its sequence"))
    bench.put((A, b"2"))
    for n in range(3):
        bench.settle()
        clean(bench.log, NOW + DAY + n)
        bench.put((B, b"1"))
    assert markers_of(bench.log) == [markers[3]]
    _forget_snapshots(bench)
    assert [state.coordinator_epoch for state in bench.log.producers.state.active_producers()] == [2]


def _ended_by_a_newer_coordinator(bench: CleaningBench) -> int:
    """Append a transaction without records in the log. Returns the offset of its marker: the one that stays for its
    epoch."""
    return bench.end(7, commit=True, coordinator=1)


def _forget_snapshots(bench: CleaningBench) -> None:
    """Restart with the state that the batches contain."""
    for name in bench.files.list(bench.log.path):
        if name.endswith(".snapshot"):
            bench.files.remove(f"{bench.log.path}/{name}")
    bench.files.sync_directory(bench.log.path)
    bench.crash(seed=1)


def test_transactions_that_span_segments_are_recognized() -> None:
    bench = CleaningBench(replace(COMPACTED, segment_bytes=150))
    for n in range(4):
        bench.produce(7, (b"k%d" % n, b"aborted" + b"." * 40), transactional=True)
        bench.put((b"p%d" % n, b"plain" + b"." * 40))
    bench.end(7, commit=False)
    bench.settle()
    before = visible(bench.log)
    clean(bench.log)
    assert visible(bench.log) == before
    assert len(records_of(bench.log)) == 4
    bench.crash(seed=3)
    bench.settle()
    assert visible(bench.log) == before


def test_the_last_batch_of_a_producer_stays_for_its_sequence() -> None:
    """An empty batch without codec keeps the producer's last sequence for the next load."""
    bench = CleaningBench()
    bench.produce(7, (A, b"1"), (A, b"2"))
    bench.produce(8, (B, b"1"))
    bench.put((A, b"3"), (B, b"2"))
    bench.settle()
    states = bench.log.producers.state.active_producers()
    clean(bench.log)
    assert [(batch.producer_id, batch.count, batch.last_sequence) for batch in batches_of(bench.log)] == [
        (7, 0, 1),
        (8, 0, 0),
        (-1, 2, -1),
    ]
    _forget_snapshots(bench)
    assert {(s.producer_id, s.last_sequence) for s in bench.log.producers.state.active_producers()} == {
        (s.producer_id, s.last_sequence) for s in states
    }
    assert bench.produce(7, (C, b"goes on")) == 5


def test_after_an_unclean_start_aborted_transactions_come_from_the_batches() -> None:
    """The indexes are unverified and may be lost: the batches are read off the owner's thread, one segment per
    piece."""
    bench = CleaningBench(replace(COMPACTED, segment_bytes=150))
    for n in range(6):
        bench.produce(7, (b"k%d" % n, b"aborted" + b"." * 40), transactional=True)
        bench.put((b"k%d" % n, b"plain" + b"." * 40))
        if n % 2:
            bench.end(7, commit=False)
            bench.put((b"k%d" % (n - 1), b"newer" + b"." * 40))
    bench.settle()
    before = visible(bench.log)
    for name in bench.files.list(bench.log.path):
        if name.endswith(".txnindex"):
            bench.files.remove(f"{bench.log.path}/{name}")
    forget_agreements(bench)
    unverified = len(bench.log.producers.unverified(bench.log.log_end_offset))
    assert unverified > 5
    assert clean(bench.log) > unverified
    assert bench.log.producers.unverified(bench.log.log_end_offset) == [], "they are not read again"
    assert table(visible(bench.log)) == table(before)
    assert last_offsets(visible(bench.log)) == last_offsets(before)


def test_a_corrupt_transaction_index_of_a_cleaned_segment_stops_no_roll() -> None:
    """This process wrote the index of a cleaned segment and never read it: the next roll records its checksum."""
    bench = CleaningBench()
    bench.put((A, b"committed"))
    bench.produce(7, (A, b"aborted"), (B, b"aborted"), transactional=True)
    bench.end(7, commit=False)
    bench.put((C, b"x"))
    bench.settle()
    before = visible(bench.log)
    clean(bench.log)
    paths = [f"{bench.log.path}/{name}" for name in bench.files.list(bench.log.path) if name.endswith(".txnindex")]
    for path in paths:
        with closing(bench.files.open(path)) as file:
            file.pwritev([b"\xff"], 2 + 8)
    assert paths, "the index has entries to corrupt"
    bench.settle()
    assert visible(bench.log)[: len(before)] == before
