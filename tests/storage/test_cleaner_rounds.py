"""Cleaning rounds that fail, and operations while a round is in progress.

Covers the applicable cases of Kafka's LogCleanerTest and LogCleanerManagerTest: unreadable logs, full disks,
cancellation."""

from __future__ import annotations

import errno
import itertools
from dataclasses import replace

import pytest

from storage.compaction.cleaning import CleaningCancelled
from storage.directory.log_cleaner import PIECE_BYTES, LogCleaner, Piece, begin_cleaning, measure_log
from storage.recovery.loaded import Damage
from tests.fakes.log_start import delete_old_segments
from tests.storage.cleaning_bench import (
    COMPACTED,
    DAY,
    CleaningBench,
    clean,
    forget_agreements,
    last_offsets,
    make_cleaner,
    records_of,
    table,
)
from tests.storage.workbench import NOW, TP
from tidelog.errors import TidelogError
from tidelog.records import iter_batches
from tidelog.records.v2.header import LEADER_EPOCH_AT
from tidelog.types import Millis, Offset

A, B, C = b"a", b"b", b"c"


def offsets(bench: CleaningBench) -> list[int]:
    return [record.offset for record in records_of(bench.log)]


# --- trouble ----------------------------------------------------------------------------------------------------------


def test_an_unreadable_log_is_reported_once_and_others_are_cleaned() -> None:
    bench = CleaningBench()
    bench.put((A, b"1"))
    bench.put((A, b"2"))
    bench.settle()
    other = CleaningBench()
    other.put((A, b"1"))
    other.put((A, b"2"))
    other.settle()
    bench.disk.flip_bit(bench.log.segments[0].path, 65)
    troubles: list[TidelogError] = []
    cleaner = make_cleaner(troubles)
    for _ in range(3):
        clean([bench.log, other.log], cleaner=cleaner)
    assert len(troubles) == 1
    assert "checksum" in troubles[0].message
    assert "orders-0 cannot be compacted" in troubles[0].message
    assert offsets(other) == [1]
    assert not [name for name in bench.files.list(bench.log.path) if name.endswith(".cleaned")]


def test_a_batch_that_reaches_into_the_next_segment_is_not_cleaned() -> None:
    """No checksum covers a base offset: in one file with the next segment's batches it would break the chain."""
    bench = CleaningBench()
    for _ in range(3):
        bench.put((A, b"1"))
        bench.settle()
    before = [segment.size for segment in bench.log.segments]
    bench.disk.flip_bit(bench.log.segments[1].path, 7, 7)  # the lowest byte of its base offset
    troubles: list[TidelogError] = []
    clean(bench.log, cleaner=make_cleaner(troubles))
    assert len(troubles) == 1
    assert "the batch ends at offset 129, but the next segment begins at 2" in troubles[0].message
    assert [segment.size for segment in bench.log.segments] == before


def test_a_batch_with_a_corrupt_leader_epoch_is_not_cleaned() -> None:
    """No checksum covers the epoch: the wrong value would be copied into the cleaned segment."""
    bench = CleaningBench()
    for _ in range(3):
        bench.put((A, b"1"))
        bench.settle()
    segment = bench.log.segments[1]
    bench.disk.flip_bit(segment.path, LEADER_EPOCH_AT + 2, 3)
    before = [segment.size for segment in bench.log.segments]
    troubles: list[TidelogError] = []
    clean(bench.log, cleaner=make_cleaner(troubles))
    assert len(troubles) == 1
    assert "the batch has leader epoch 2048, but the epoch cache has 0 for its offset" in troubles[0].message
    assert [segment.size for segment in bench.log.segments] == before


def test_a_round_ends_when_its_log_is_found_damaged() -> None:
    """A cleaned segment counts as proof that everything before it is durable: no start would find the damage again."""
    bench = CleaningBench()
    for n in range(30):
        bench.put((A, b"%d" % n), (B, b"." * 40))
    bench.settle()
    bench.directory.write_checkpoints()
    log, troubles = bench.log, list[TidelogError]()
    before = [segment.base_offset for segment in log.segments]
    cleaner = make_cleaner(troubles)
    piece = cleaner.begin([log], NOW)
    assert piece is not None
    outcome = piece.work()
    segment = log.segments[-2]
    bench.disk.flip_bit(segment.path, 70)
    first = segment.base_offset
    log.lost.note(Damage(segment.path, 0, first, Offset(first + 2), "a scrub has found it"))
    bench.directory.keep_damage(log, accepted=False)
    assert cleaner.settle(outcome, NOW, started=Millis(0), ended=Millis(0)) is None
    assert cleaner.busy_with is None
    assert [segment.base_offset for segment in log.segments] == before
    assert not [name for name in bench.files.list(log.path) if name.endswith(".cleaned")]
    assert troubles == []
    found = bench.kill().damage
    assert found is not None
    assert found.first_offset == first


def test_a_full_disk_ends_the_round_and_a_later_one_starts_again() -> None:
    bench = CleaningBench()
    for n in range(30):
        bench.put((b"k%d" % (n % 9), b"%d" % n + b"." * 60))
    bench.settle()
    before = records_of(bench.log)
    troubles: list[TidelogError] = []
    cleaner = make_cleaner(troubles)
    for operation, path in [("write", ".log.cleaned"), ("reserve", ""), ("write", "recovery-point")]:
        bench.disk.fail(operation, path, error=errno.ENOSPC, times=1)
        clean(bench.log, cleaner=cleaner)
        bench.disk.heal()
    assert bench.directory.offline is None
    assert cleaner.uncleanable == {}
    assert not [name for name in bench.files.list(bench.log.path) if name.endswith(".cleaned")]
    clean(bench.log, cleaner=cleaner)
    assert offsets(bench) == sorted(last_offsets(before).values())


def test_a_broken_disk_takes_the_directory_offline() -> None:
    bench = CleaningBench()
    bench.put((A, b"1"))
    bench.put((A, b"2"))
    bench.settle()
    troubles: list[TidelogError] = []
    bench.disk.fail("sync", ".cleaned")
    clean(bench.log, cleaner=make_cleaner(troubles))
    assert bench.directory.offline is not None
    assert len(troubles) == 1


# --- while it runs ----------------------------------------------------------------------------------------------------


def half_done(bench: CleaningBench) -> tuple[LogCleaner, Piece]:
    """A round whose first group is written and waits to be swapped in."""
    for n in range(40):
        bench.put((b"k%d" % (n % 9), b"%d" % n + b"." * 60))
    bench.settle()
    cleaner = make_cleaner()
    piece = cleaner.begin([bench.log], Millis(NOW))
    assert piece is not None
    piece.work()
    assert [name for name in bench.files.list(bench.log.path) if name.endswith(".cleaned")]
    return cleaner, piece


def finish(cleaner: LogCleaner, piece: Piece | None, outcome: int | BaseException = 0) -> None:
    while piece is not None:
        piece = cleaner.settle(outcome, Millis(NOW), started=Millis(0), ended=Millis(0))
        if piece is not None:
            try:
                outcome = piece.work()
            except Exception as error:  # noqa: BLE001
                outcome = error


def test_appends_and_reads_continue_during_a_round() -> None:
    bench = CleaningBench()
    cleaner, piece = half_done(bench)
    bench.put((b"k0", b"newest"))
    expected = table(records_of(bench.log))
    finish(cleaner, piece)
    assert table(records_of(bench.log)) == expected
    assert cleaner.busy_with is None


@pytest.mark.parametrize("change", ["cut", "emptied", "closed", "deleted"])
def test_a_change_of_the_old_segments_cancels_the_round(change: str) -> None:
    bench = CleaningBench()
    cleaner, piece = half_done(bench)
    before = records_of(bench.log)
    match change:
        case "cut":
            bench.log.truncate_to(Offset(20))
        case "emptied":
            bench.log.truncate_fully_and_start_at(Offset(5))
        case "closed":
            bench.directory.close_clean()
        case "deleted":
            bench.directory.delete_log(TP)
    finish(cleaner, piece)
    assert cleaner.busy_with is None
    assert cleaner.last is None
    if change == "closed":
        bench.reopen()
    if change in ("cut", "closed"):
        kept = before[:20] if change == "cut" else before
        assert records_of(bench.log) == kept
    if change != "deleted":
        assert not [name for name in bench.files.list(bench.log.path) if name.endswith(".cleaned")]


@pytest.mark.parametrize("out_of_the_way", ["deleted", "set aside"])
def test_a_log_that_is_deleted_at_any_moment_is_no_disk_failure(out_of_the_way: str) -> None:
    for steps in itertools.count():
        bench = CleaningBench()
        for n in range(12):
            bench.put((b"k%d" % (n % 3), b"%d" % n + b"." * 60))
        bench.settle()
        cleaning = begin_cleaning(bench.log, measure_log(bench.log, Millis(NOW)), 1 << 16, Millis(NOW))
        for _ in range(steps):
            cleaning.run(1)
        if cleaning.ready is not None:
            break
        if out_of_the_way == "deleted":
            bench.directory.delete_log(TP)
        else:
            bench.directory.set_aside(TP, "unknown topic")
        with pytest.raises(CleaningCancelled):
            cleaning.run(PIECE_BYTES)
    assert steps > 3


def test_nothing_is_deleted_during_a_round() -> None:
    """compact,delete: cleaning and deletion alternate."""
    bench = CleaningBench(replace(COMPACTED, delete=True, retention_ms=1))
    cleaner, piece = half_done(bench)
    later = Millis(NOW + DAY)
    assert delete_old_segments(bench.log, later) == 0
    finish(cleaner, piece)
    assert delete_old_segments(bench.log, later) > 0


def test_compaction_and_deletion_work_together() -> None:
    bench = CleaningBench(replace(COMPACTED, delete=True, retention_ms=1000))
    for n in range(40):
        bench.put((b"k%d" % (n % 9), b"%d" % n + b"." * 60), timestamp=NOW + n * 100)
    bench.settle()
    clean(bench.log, NOW + 4000)
    delete_old_segments(bench.log, Millis(NOW + 4000))
    left = records_of(bench.log)
    assert [record.key for record in left] == [b"k%d" % (n % 9) for n in range(31, 40)]
    delete_old_segments(bench.log, Millis(NOW + 9999))
    assert records_of(bench.log) == []
    assert bench.log.log_start_offset == bench.log.log_end_offset == 40
    bench.put((A, b"1"))
    bench.put((A, b"2"))
    bench.settle()
    clean(bench.log, NOW + 9999)
    assert offsets(bench) == [41]


def test_a_reader_continues_in_the_cleaned_segment() -> None:
    bench = CleaningBench()
    for n in range(20):
        bench.put((b"k%d" % n, b"%d" % n + b"." * 60))
    bench.settle()
    read = bench.log.read(Offset(0), 1, up_to=bench.log.log_end_offset)
    bench.put((b"k1", b"new"))
    bench.settle()
    clean(bench.log)
    rest = bench.log.read(read.next_offset, 1, up_to=bench.log.log_end_offset)
    assert next(iter_batches(rest.records)).base_offset == 2, "offset 1 was removed"


def test_a_flush_in_progress_keeps_its_files() -> None:
    bench = CleaningBench()
    for n in range(20):
        bench.put((b"k%d" % (n % 3), b"%d" % n + b"." * 60))
    bench.settle()
    bench.put((A, b"unsynced"))
    ticket = bench.log.begin_flush(everything=True)
    assert ticket is not None
    clean(bench.log)
    ticket.run()
    bench.log.finish_flush(ticket)
    assert bench.log.durable_offset == bench.log.log_end_offset


@pytest.mark.parametrize("change", ["deleted", "cut", "closed"])
def test_a_change_of_segments_ends_the_reading_of_transactions(change: str) -> None:
    bench = CleaningBench(replace(COMPACTED, segment_bytes=150, delete=True, retention_ms=DAY))
    for n in range(12):
        bench.put((b"k%d" % (n % 3), b"." * 60), timestamp=NOW + n)
    bench.settle()
    forget_agreements(bench)
    troubles: list[TidelogError] = []
    cleaner = make_cleaner(troubles)
    piece = cleaner.begin([bench.log], Millis(NOW))
    assert piece is not None
    if change == "deleted":
        delete_old_segments(bench.log, Millis(NOW + DAY + 5))
    elif change == "cut":
        bench.log.truncate_to(Offset(0))
    else:
        bench.directory.close()
    finish(cleaner, piece, FileNotFoundError())
    assert (troubles, cleaner.busy_with, cleaner.uncleanable) == ([], None, {})
    if change == "deleted":
        assert clean(bench.log, cleaner=cleaner)
        assert [record.offset for record in records_of(bench.log)] == [9, 10, 11]


def test_a_log_in_a_topic_snapshot_is_not_compacted_although_its_node_says_so() -> None:
    """No controller refuses `log.cleanup.policy` of a node. A round that is under way ends without an effect."""
    bench = CleaningBench()
    for value in (b"1", b"2"):
        bench.put((A, value))
        bench.settle()
    bench.log.pinned = True
    assert clean(bench.log) == 0
    bench.log.pinned = False
    cleaner = make_cleaner()
    piece = cleaner.begin([bench.log], Millis(NOW))
    bench.log.pinned = True
    finish(cleaner, piece)
    assert offsets(bench) == [0, 1]
    bench.log.pinned = False
    clean(bench.log)
    assert offsets(bench) == [1]
