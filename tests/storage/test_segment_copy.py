"""What the remote tier gets of a log: which segments, and that each is whole, verified and decided."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from storage.checkpoints.checkpoint_file import encode_epochs
from storage.files.file_system import read_file
from storage.log.log import Log
from storage.log.segment_copy import ClosedSegment, SegmentCopy, copy_limit, copyable_segments
from storage.segment.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from storage.segment.transaction_index import TRANSACTION_INDEX_SUFFIX
from tests.fakes.log_start import delete_records
from tests.storage.filled_logs import filled
from tests.storage.producer_batches import Sender, end, eventful
from tests.storage.workbench import SMALL, Bench, Deferred
from tidelog.errors import CorruptLog
from tidelog.records.producer_snapshot import decode_snapshot
from tidelog.tiering.remote_segment import SectionKind
from tidelog.types import Offset


def candidates(log: Log, copied_end: int = 0) -> list[ClosedSegment]:
    return copyable_segments(
        log.segments, copied_end=Offset(copied_end), log_start=log.log_start_offset, limit=copy_limit(log)
    )


def taken(copy: SegmentCopy) -> dict[SectionKind, bytes]:
    return {kind: b"".join(bytes(piece) for piece in pieces) for kind, pieces in copy.contents()}


def committed(bench: Bench) -> Bench:
    bench.commit()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    return bench


def test_only_closed_segments_below_the_limit_are_copied() -> None:
    bench = filled()
    log, bases = bench.log, [segment.base_offset for segment in bench.log.segments]
    assert candidates(log) == [], "nothing is committed yet"
    log.advance_high_watermark(Offset(bases[2] - 1))
    assert [each.end for each in candidates(log)] == bases[1:2]
    log.advance_high_watermark(bases[2])
    assert [each.end for each in candidates(log)] == bases[1:3]
    log.advance_high_watermark(log.log_end_offset)
    assert [each.end for each in candidates(log)] == bases[1:], "the active segment is never copied"


def test_records_of_open_transactions_are_not_copied() -> None:
    """Their outcome would be missing in the copy's transaction index."""
    bench = Bench()
    sender = Sender(bench)
    sender.send(1, txn=True)
    while len(bench.log.segments) < 3:
        sender.send(2, 3)
    committed(bench)
    assert candidates(bench.log) == []
    sender.end(1, commit=False)
    committed(bench)
    assert [each.segment for each in candidates(bench.log)] == list(bench.log.segments[:-1])


def test_what_is_not_on_the_disk_is_not_copied() -> None:
    """A power loss could remove it here, while the copy says that it exists."""
    flushes = Deferred()
    bench = Bench(executor=flushes)
    while len(bench.log.segments) < 3:
        bench.lead(b"." * 60)
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    assert candidates(bench.log) == []
    flushes.run_all()
    assert len(candidates(bench.log)) == 2


def test_copies_continue_where_the_last_leader_stopped() -> None:
    """Segments of another leader begin elsewhere: the one in which its last copy ends is copied whole."""
    log = committed(filled()).log
    bases = [segment.base_offset for segment in log.segments]
    assert [each.segment.base_offset for each in candidates(log, bases[1])] == bases[1:-1]
    assert [each.segment.base_offset for each in candidates(log, bases[1] - 1)] == bases[:-1]
    assert [each.segment.base_offset for each in candidates(log, bases[1] + 1)] == bases[1:-1]
    assert candidates(log, log.log_end_offset) == []


def test_deleted_records_are_not_copied() -> None:
    bench = committed(filled())
    delete_records(bench.log, bench.log.segments[1].base_offset)
    assert [each.segment for each in candidates(bench.log)] == list(bench.log.segments[1:-1])


def test_the_sections_are_those_of_the_files() -> None:
    bench = Bench()
    eventful(bench)
    for producer in list(bench.log.producers.state.open_transactions.values()):
        end(bench, producer, commit=False)
    committed(bench)
    log = bench.log
    found = candidates(log)
    assert len(found) >= 3
    for each in found:
        copy = SegmentCopy(log, each)
        got = taken(copy)
        assert copy.is_current(log)
        files = {
            SectionKind.LOG: ".log",
            SectionKind.OFFSET_INDEX: INDEX_SUFFIX,
            SectionKind.TIME_INDEX: TIME_INDEX_SUFFIX,
            SectionKind.TRANSACTION_INDEX: TRANSACTION_INDEX_SUFFIX,
        }
        for kind, suffix in files.items():
            assert got[kind] == (read_file(bench.files, segment_path(log.path, copy.start_offset, suffix)) or b""), kind
        assert got[SectionKind.PRODUCER_SNAPSHOT] == read_file(
            bench.files, segment_path(log.path, copy.end_offset, ".snapshot")
        )
        assert got[SectionKind.LEADER_EPOCHS] == encode_epochs(log.epochs.below(copy.end_offset))
        assert list(got) == sorted(got)
        assert copy.max_timestamp == each.segment.largest.timestamp


def test_lost_indexes_and_snapshots_are_made_from_the_batches() -> None:
    bench = Bench()
    eventful(bench)
    committed(bench)
    log = bench.log
    each = candidates(log)[1]
    due = taken(SegmentCopy(log, each))
    log.segments[1].close()
    for base, suffix in (
        (each.segment.base_offset, INDEX_SUFFIX),
        (each.segment.base_offset, TRANSACTION_INDEX_SUFFIX),
        (each.end, ".snapshot"),
    ):
        path = segment_path(log.path, base, suffix)
        if bench.files.size(path) is not None:
            bench.files.remove(path)
    assert taken(SegmentCopy(log, each)) == due


def test_producers_stay_known_when_their_segments_have_left_the_node() -> None:
    """A power loss may take snapshots between two that stay. Segments leave only up to one that is there: a copy of the
    rest tells of the open transaction, whose record is in the remote tier only."""
    bench = Bench(replace(SMALL, segment_bytes=400, remote_storage=True, local_retention_bytes=0))
    sender, log = Sender(bench), bench.log
    sender.send(7, txn=True)
    while len(log.segments) < 6:
        sender.send(2, 3)
    end(bench, 7, commit=False)
    committed(bench)
    bases = [segment.base_offset for segment in log.segments]
    lost = log.producers.state.snapshots[:2]
    assert lost == bases[1:3]
    for offset in lost:
        bench.files.remove(segment_path(log.path, offset, ".snapshot"))
        log.producers.state.snapshots.remove(offset)

    log.copied_end = bases[2]
    bench.directory.drop_expired(log)
    assert [segment.base_offset for segment in log.segments] == bases, "nothing tells of the open transaction there"
    log.copied_end = bases[3]
    bench.directory.drop_expired(log)
    assert [segment.base_offset for segment in log.segments] == bases[3:]
    each = candidates(log, bases[3])[0]
    (open_one,) = (
        one
        for one in decode_snapshot(taken(SegmentCopy(log, each))[SectionKind.PRODUCER_SNAPSHOT], "of the copy")
        if one.producer_id == 7
    )
    assert open_one.transaction_start == 0

    bench.files.remove(segment_path(log.path, each.end, ".snapshot"))
    bench.files.remove(segment_path(log.path, bases[3], ".snapshot"))
    with pytest.raises(CorruptLog, match=rf"no producer snapshot is left at offset {bases[3]}, .*partition reassign"):
        taken(SegmentCopy(log, each))

    for offset in bases[3:5]:
        log.producers.state.snapshots.remove(offset)
    log.copied_end = bases[4]
    bench.directory.drop_expired(log)
    assert [segment.base_offset for segment in log.segments] == bases[3:], "what is not copied stays in any case"


@pytest.mark.parametrize("at", [3, 12, 16, 25, 70, 300])
def test_a_damaged_segment_is_not_copied(at: int) -> None:
    """Also where no checksum of the batch looks: offset, leader epoch, magic."""
    bench = committed(filled())
    log, each = bench.log, candidates(bench.log)[0]
    with_handle = bench.files.open(each.segment.path)
    byte = bytes(with_handle.pread(1, at))
    with_handle.pwritev([bytes([byte[0] ^ 0x10])], at)
    with pytest.raises(CorruptLog, match="the segment of orders-0 at offset 0 is not copied"):
        taken(SegmentCopy(log, each))


def test_a_copy_survives_rolls_and_the_deletion_of_older_segments() -> None:
    bench = committed(filled())
    copy = SegmentCopy(bench.log, candidates(bench.log)[1])
    sections = copy.contents()
    kind, pieces = next(sections)
    delete_records(bench.log, bench.log.segments[1].base_offset)
    for _ in range(30):
        bench.lead(b"more", epoch=1)
    assert kind is SectionKind.LOG
    assert b"".join(bytes(piece) for piece in pieces)
    for _, rest in sections:
        list(rest)
    assert copy.is_current(bench.log)


def test_a_copy_of_truncated_records_does_not_count() -> None:
    """An unclean election: the segment may have the same size again, with other records."""
    bench = committed(filled())
    log = bench.log
    copy = SegmentCopy(log, candidates(log)[1])
    taken(copy)
    assert copy.is_current(log)
    log.truncate_to(Offset(copy.end_offset - 1))
    assert not copy.is_current(log)
    while len(log.segments) < 3:
        bench.lead(b"old 000", epoch=2)
    assert not copy.is_current(log)


def test_a_copy_of_a_closed_log_does_not_count() -> None:
    bench = committed(filled())
    copy = SegmentCopy(bench.log, candidates(bench.log)[0])
    bench.log.close()
    assert not copy.is_current(bench.log)


def test_an_error_of_the_disk_is_raised_as_it_is() -> None:
    bench = committed(filled())
    copy = SegmentCopy(bench.log, candidates(bench.log)[0])
    bench.disk.fail("read", ".log", error=errno.EIO, times=-1)
    with pytest.raises(OSError, match="Input/output error"):
        taken(copy)
