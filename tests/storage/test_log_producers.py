"""A log and its producers: duplicates, rejections, transactions, reads by isolation, truncations, crashes, lost
files."""

from __future__ import annotations

import random

import pytest

from storage.files.file_system import read_file, write_file
from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log_config import LogConfig
from storage.producers.snapshot_files import snapshot_path
from storage.segment.agreed_indexes import AGREEMENT_FILE, read_agreements
from storage.segment.segment import segment_path
from tests.fakes.log_start import delete_old_segments, delete_records
from tests.storage.producer_batches import Sender, append, commit_all, end, eventful, from_producer
from tests.storage.workbench import NOW, SMALL, Bench
from tidelog.errors import (
    CorruptLog,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
    UnsupportedForMessageFormat,
)
from tidelog.records import EndTxnMarker, control_batch, iter_batches
from tidelog.records.producer_snapshot import ProducerSnapshot, decode_snapshot, encode_snapshot
from tidelog.types import Millis, Offset, ProducerId, TimestampType

COMMITTED, REPLICATED, ALL = (
    FetchIsolation.LAST_STABLE_OFFSET,
    FetchIsolation.HIGH_WATERMARK,
    FetchIsolation.LOG_END,
)
NEVER_ROLLS = LogConfig(index_interval_bytes=200)


def visible(log: Log, isolation: FetchIsolation) -> list[int]:
    """The offsets of the data records that a consumer receives, fetch by fetch as in Kafka's consumer."""
    found: list[int] = []
    offset = log.log_start_offset
    while True:
        read = log.fetch(offset, 1_000, isolation)
        if not len(read.records):
            return found
        waiting = list(read.aborted)
        hidden: set[int] = set()
        for batch in iter_batches(read.records):
            while waiting and waiting[0].first_offset <= batch.last_offset:
                hidden.add(waiting.pop(0).producer_id)
            if batch.is_control:
                hidden.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in hidden):
                found += [record.offset for record in batch.records() if record.offset >= offset]
        offset = read.next_offset


# --- idempotence ------------------------------------------------------------------------------------------------------


def test_a_duplicate_is_answered_with_its_first_result() -> None:
    """append-as-leader.txt: first and last offset, log append time and log start offset of the first copy."""
    bench = Bench(LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME))
    first = append(bench, from_producer(7, 0, 3))
    append(bench, from_producer(7, 3))
    bench.clock.now += 5_000
    commit_all(bench)
    delete_records(bench.log, Offset(1))
    again = append(bench, from_producer(7, 0, 3))
    assert again.duplicate and not first.duplicate
    assert (again.first_offset, again.last_offset, again.log_append_time) == (0, 2, first.log_append_time)
    assert (again.max_timestamp, again.last_leader_epoch) == (first.max_timestamp, 0)
    assert again.log_start_offset == 1, "the present log start"
    assert bench.log.log_end_offset == 4, "nothing was appended"


def test_a_duplicate_on_a_topic_with_create_time_has_no_append_time() -> None:
    bench = Bench()
    append(bench, from_producer(7, 0))
    assert append(bench, from_producer(7, 0)).log_append_time == -1


def test_a_rejected_batch_leaves_no_trace() -> None:
    bench = Bench()
    append(bench, from_producer(7, 0, epoch=3))
    producers, size = bench.log.producers.state.active_producers(), bench.log.size
    for batch, error in (
        (from_producer(7, 2, epoch=3), OutOfOrderSequenceNumber),
        (from_producer(7, 1, epoch=4), OutOfOrderSequenceNumber),
        (from_producer(7, 1, epoch=2), InvalidProducerEpoch),
    ):
        with pytest.raises(error) as raised:
            append(bench, batch)
        assert raised.value.written is False
    assert (bench.log.producers.state.active_producers(), bench.log.size, bench.log.log_end_offset) == (
        producers,
        size,
        1,
    )


def test_a_producers_batch_must_have_sequences() -> None:
    bench = Bench()
    for broken in (from_producer(7, -1), from_producer(7, 0, epoch=-1), from_producer(-1, -1, epoch=-1, txn=True)):
        with pytest.raises(InvalidRecord):
            append(bench, broken)


def test_old_formats_contain_no_producers() -> None:
    bench = Bench(LogConfig(magic=1))
    with pytest.raises(UnsupportedForMessageFormat):
        append(bench, from_producer(7, 0))
    assert bench.log.producers.state.active_producers() == ()


def test_a_follower_takes_over_the_producers_of_its_leader() -> None:
    leader, follower = Bench(), Bench()
    sender = Sender(leader)
    for producer in (1, 2, 1):
        sender.send(producer, 2, txn=True)
    sender.end(1, commit=False)
    sent = bytes(leader.log.read(Offset(0), 10_000, up_to=leader.log.log_end_offset).records)
    follower.follow(sent)
    assert follower.log.producers.state.active_producers() == leader.log.producers.state.active_producers()
    assert follower.log.first_unstable_offset == leader.log.first_unstable_offset == 0
    assert append(follower, from_producer(2, 0, 2, txn=True)).duplicate, "it may lead next"


def test_an_append_over_several_segments_leaves_a_snapshot_before_each() -> None:
    leader, follower = Bench(NEVER_ROLLS), Bench(SMALL)
    sender = Sender(leader)
    for i in range(20):
        sender.send(1 + i % 2, txn=True, size=300)
        if i % 5 == 4:
            sender.end(1, commit=False)
    follower.follow(bytes(leader.log.read(Offset(0), 100_000, up_to=leader.log.log_end_offset).records))
    bases = [segment.base_offset for segment in follower.log.segments][1:]
    assert len(bases) >= 3
    for base in bases:
        path = snapshot_path(follower.log.path, base)
        entries = decode_snapshot(read_file(follower.files, path) or b"", path)
        assert max(entry.last_offset for entry in entries) < base
    commit_all(leader)
    commit_all(follower)
    assert visible(follower.log, COMMITTED) == visible(leader.log, COMMITTED)


# --- transactions -----------------------------------------------------------------------------------------------------


def test_read_committed_readers_stop_at_an_open_transaction() -> None:
    bench = Bench()
    sender = Sender(bench)
    sender.send(1)
    sender.send(2, 2, txn=True)
    sender.send(1)
    commit_all(bench)
    log = bench.log
    assert (log.first_unstable_offset, log.last_stable_offset, log.high_watermark) == (1, 1, 4)
    assert visible(log, COMMITTED) == [0]
    assert visible(log, REPLICATED) == visible(log, ALL) == [0, 1, 2, 3]
    sender.end(2, commit=True)
    assert log.last_stable_offset == 1, "its marker is not replicated"
    commit_all(bench)
    assert (log.first_unstable_offset, log.last_stable_offset) == (None, 5)
    assert visible(log, COMMITTED) == [0, 1, 2, 3]


def test_aborted_transactions_are_listed() -> None:
    bench = Bench()
    sender = Sender(bench)
    sender.send(2, 2, txn=True)
    sender.send(3, txn=True)
    sender.end(2, commit=False)
    sender.send(2, txn=True)
    sender.end(3, commit=True)
    sender.end(2, commit=True)
    commit_all(bench)
    read = bench.log.fetch(Offset(0), 10_000, COMMITTED)
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in read.aborted] == [(2, 0, 3)]
    assert bench.log.fetch(Offset(0), 10_000, REPLICATED).aborted == ()
    assert visible(bench.log, COMMITTED) == [2, 4]


def test_a_transaction_may_span_segments() -> None:
    bench = Bench()
    sender = Sender(bench)
    sender.send(1, txn=True)
    for _ in range(60):
        sender.send(2, size=100)
    sender.end(1, commit=False)
    commit_all(bench)
    assert len(bench.log.segments) > 3
    assert [entry.first_offset for entry in bench.log.fetch(Offset(0), 100, COMMITTED).aborted] == [0]
    assert 0 not in visible(bench.log, COMMITTED)
    indexes = [name for name in bench.files.list(bench.log.path) if name.endswith(".txnindex")]
    assert len(indexes) == 1, "only the segment with the marker has one"


def test_markers_of_old_coordinators_and_plain_batches_within_a_transaction_are_rejected() -> None:
    bench = Bench()
    sender = Sender(bench)
    sender.send(1, txn=True)
    with pytest.raises(InvalidTxnState):
        append(bench, from_producer(1, 1))
    sender.end(1, commit=True, coordinator=4)
    with pytest.raises(TransactionCoordinatorFenced):
        sender.end(1, commit=True, coordinator=3)
    with pytest.raises(InvalidRecord):
        append(
            bench,
            control_batch(
                EndTxnMarker(committed=True, coordinator_epoch=4), timestamp=NOW, producer_id=1, producer_epoch=0
            ),
        )


def test_a_moved_log_start_moves_the_unstable_offset() -> None:
    bench = Bench()
    Sender(bench).send(1, 3, txn=True)
    commit_all(bench)
    delete_records(bench.log, Offset(2))
    assert (bench.log.first_unstable_offset, bench.log.last_stable_offset) == (2, 2)


# --- opening again ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["kill", "crash", "truncation"])
def test_deleted_batches_below_the_start_still_update_their_producers(stop: str) -> None:
    """The log starts within a segment, after a marker: the snapshot at the segment's base offset does not contain the
    marker. If only the snapshot were used, the transaction would stay open forever, and its producer's next batch would
    be rejected."""
    bench = Bench(NEVER_ROLLS)
    sender = Sender(bench)
    sender.send(1, 2, txn=True)
    bench.log.roll(Millis(NOW))
    sender.send(1, 2, txn=True)
    end(bench, 1, commit=True)
    sender.send(2)
    commit_all(bench)
    delete_records(bench.log, bench.log.log_end_offset)
    sender.send(2)
    commit_all(bench)
    if stop == "truncation":
        sender.send(2)
        bench.log.truncate_to(Offset(bench.log.log_end_offset - 1))
        sender.next[2] -= 1
    else:
        getattr(bench, stop)()
    commit_all(bench)
    assert bench.log.last_stable_offset == bench.log.log_end_offset
    assert not sender.send(1, txn=True).duplicate
    assert not sender.send(2).duplicate


def test_a_snapshot_is_not_used_if_the_deleted_batches_after_it_cannot_be_read() -> None:
    bench = Bench(NEVER_ROLLS)
    sender = Sender(bench)
    sender.send(1, txn=True)
    bench.log.roll(Millis(NOW))
    for _ in range(20):
        sender.send(2)
    commit_all(bench)
    delete_records(bench.log, Offset(15))
    corrupt_first_header(bench, 1)
    bench.log.truncate_to(Offset(20))
    assert bench.log.damage is None
    assert [state.producer_id for state in bench.log.producers.state.active_producers()] == [2]


def state_of(log: Log) -> list[object]:
    """The producer state of a log: what a snapshot keeps, and what readers may see."""
    return [
        sorted(state.to_snapshot() for state in log.producers.state.active_producers()),
        log.first_unstable_offset,
        log.last_stable_offset,
        log.aborted_transactions(log.log_start_offset, log.log_end_offset),
        visible(log, COMMITTED),
    ]


@pytest.mark.parametrize("stop", ["clean", "killed", "crashed"])
def test_every_stop_leaves_the_same_producers(stop: str) -> None:
    bench = Bench()
    sender = eventful(bench)
    bench.commit()
    bench.directory.write_checkpoints()
    before = state_of(bench.log)
    match stop:
        case "clean":
            bench.restart_clean()
            snapshot = snapshot_path(bench.log.path, bench.log.log_end_offset)
            assert bench.files.size(snapshot) is not None
        case "killed":
            bench.kill()
        case _:
            bench.crash(5)
    commit_all(bench)
    assert state_of(bench.log) == before
    sequence = sender.next[1]
    with pytest.raises(OutOfOrderSequenceNumber):
        append(bench, from_producer(1, sequence + 1, txn=True))
    assert append(bench, from_producer(1, sequence, txn=True)).duplicate is False


def test_agreements_are_written_less_often_in_logs_with_more_segments() -> None:
    """The file lists all segments: written with every roll it would cost a log of thousands a tenth of a second."""
    bench = Bench(NEVER_ROLLS)
    writes = bench.disk.fail("rename", AGREEMENT_FILE, times=1, skip=10**6)
    for _ in range(400):
        Sender(bench).send(len(bench.log.segments))
        bench.log.roll(Millis(NOW))
    assert 10 < 10**6 - writes.skip < 60


@pytest.mark.parametrize("damage", ["lost", "truncated", "emptied", "garbled", "another's"])
@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_a_damaged_transaction_index_never_exposes_aborted_records(stop: str, damage: str) -> None:
    """Vectors' README: Kafka does not rebuild a .txnindex below the recovery point, or after a clean stop."""
    bench = Bench()
    eventful(bench)
    bench.commit()
    bench.directory.write_checkpoints()
    before = state_of(bench.log)
    indexes = [name for name in bench.files.list(bench.log.path) if name.endswith(".txnindex")]
    assert len(indexes) > 3
    contents = {name: read_file(bench.files, f"{bench.log.path}/{name}") or b"" for name in indexes}
    if stop == "clean":
        bench.directory.close_clean()
    else:
        bench.disk.kill()
    for i, name in enumerate(indexes):
        path = f"{bench.log.path}/{name}"
        wrong = {
            "lost": None,
            "truncated": contents[name][:-34],
            "emptied": b"",
            "garbled": contents[name][:5] + b"\x77" + contents[name][6:],
            "another's": contents[indexes[i - 1]],
        }[damage]
        bench.files.remove(path)
        if wrong is not None:
            file = bench.files.open(path, create=True)
            file.pwritev([wrong], 0)
            file.close()
    bench.reopen()
    commit_all(bench)
    assert state_of(bench.log) == before
    rebuilt = {name: read_file(bench.files, f"{bench.log.path}/{name}") or b"" for name in indexes}
    assert rebuilt == contents, "the same bytes"


def corrupt_first_header(bench: Bench, base: int = 0) -> None:
    """Make every walk along this segment fail."""
    file = bench.files.open(segment_path(bench.log.path, base, ".log"))
    file.pwritev([b"\x7f"], 8)
    file.sync()
    file.close()


def test_an_agreed_index_is_not_verified_again_after_a_clean_stop() -> None:
    bench = Bench()
    eventful(bench)
    closed = bench.log.segments[1].base_offset
    wanted = bench.log.aborted_transactions(Offset(0), closed)
    bench.directory.close_clean()
    corrupt_first_header(bench)
    bench.reopen()
    assert bench.log.aborted_transactions(Offset(0), closed) == wanted


@pytest.mark.parametrize("damage", ["no agreement", "another index", "another log"])
def test_a_changed_index_is_verified_again(damage: str) -> None:
    bench = Bench()
    eventful(bench)
    second = bench.log.segments[1].base_offset
    bench.directory.close_clean()
    if damage == "no agreement":
        bench.files.remove(f"{bench.log.path}/{AGREEMENT_FILE}")
    elif damage == "another index":
        write_file(bench.files, segment_path(bench.log.path, 0, ".txnindex"), b"")
    else:
        file = bench.files.open(segment_path(bench.log.path, 0, ".log"))
        file.pwritev([b"more"], file.size())
        file.close()
    corrupt_first_header(bench)
    bench.reopen()
    with pytest.raises(CorruptLog):
        bench.log.aborted_transactions(Offset(0), second)


def test_a_recovery_discards_earlier_agreements() -> None:
    """Recovery may truncate a segment, which then may grow to its earlier size."""
    bench = Bench(NEVER_ROLLS)
    eventful(bench)
    bench.restart_clean()
    path = f"{bench.log.path}/{AGREEMENT_FILE}"
    assert list(read_agreements(bench.files, bench.log.path)) == [0]
    bench.kill()
    assert list(read_agreements(bench.files, bench.log.path)) == [0], "nothing was lost"
    append(bench, from_producer(9, 0))
    bench.kill()
    assert read_agreements(bench.files, bench.log.path) == {}
    assert bench.files.size(path) is not None


def test_a_truncation_discards_earlier_agreements() -> None:
    bench = Bench()
    eventful(bench)
    bench.restart_clean()
    bench.log.truncate_to(Offset(bench.log.log_end_offset - 1))
    assert bench.files.size(f"{bench.log.path}/{AGREEMENT_FILE}") is None
    bench.crash(1)
    assert read_agreements(bench.files, bench.log.path) == {}


@pytest.mark.parametrize("damage", ["lost", "truncated", "garbled"])
@pytest.mark.parametrize("which", ["last", "all"])
@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_damaged_snapshots_are_rebuilt_from_the_log(stop: str, which: str, damage: str) -> None:
    bench = Bench()
    sender = eventful(bench)
    bench.commit()
    bench.directory.write_checkpoints()
    before = state_of(bench.log)
    if stop == "clean":
        bench.directory.close_clean()
    else:
        bench.disk.kill()
    names = [name for name in bench.files.list(bench.log.path) if name.endswith(".snapshot")]
    for name in names if which == "all" else names[-1:]:
        path = f"{bench.log.path}/{name}"
        data = read_file(bench.files, path) or b""
        bench.files.remove(path)
        if damage != "lost":
            file = bench.files.open(path, create=True)
            file.pwritev([data[:-3] if damage == "truncated" else data[:-3] + b"rot"], 0)
            file.close()
    bench.reopen()
    commit_all(bench)
    assert state_of(bench.log) == before
    assert not sender.send(1, txn=bench.log.producers.state.active_producers()[0].transaction_start >= 0).duplicate


def test_a_transaction_with_an_unreplicated_marker_is_still_undecided_after_a_restart() -> None:
    """Its marker is in the log but not replicated: the marker may be truncated, and the transaction end otherwise."""
    bench = Bench()
    sender = Sender(bench)
    sender.send(1, txn=True)
    commit_all(bench)
    sender.end(1, commit=True)
    bench.restart_clean()
    assert (bench.log.high_watermark, bench.log.log_end_offset) == (1, 2)
    assert (bench.log.first_unstable_offset, bench.log.last_stable_offset) == (0, 0)
    commit_all(bench)
    assert bench.log.last_stable_offset == 2


# --- truncation -------------------------------------------------------------------------------------------------------


def test_each_clean_stop_leaves_one_snapshot_of_its_own() -> None:
    bench = Bench(NEVER_ROLLS)
    for i in range(3):
        append(bench, from_producer(1, i))
        bench.restart_clean()
        assert bench.directory.identity.was_clean
        assert bench.directory.notes == []
        assert [name for name in bench.files.list(bench.log.path) if name.endswith(".snapshot")] == [
            f"{i + 1:020d}.snapshot"
        ]


def test_no_state_survives_a_truncation() -> None:
    """Scenario 3: a resend of a truncated batch is appended again, not answered as a duplicate."""
    bench = Bench()
    sender = Sender(bench)
    for _ in range(40):
        sender.send(1, size=50)
    assert len(bench.log.segments) > 2
    bench.log.truncate_to(Offset(20))
    again = append(bench, from_producer(1, 20))
    assert (again.duplicate, again.last_offset) == (False, 20)
    with pytest.raises(OutOfOrderSequenceNumber):
        append(bench, from_producer(1, 30))


@pytest.mark.parametrize("offset", [0, 1, 37, 80, 111, 160])
def test_a_truncated_log_has_the_state_that_it_had_at_that_log_end(offset: int) -> None:
    bench, twin = Bench(), Bench()
    eventful(bench)
    bench.log.high_watermark = Offset(0)
    bench.log.truncate_to(Offset(offset))
    end_offset = bench.log.log_end_offset
    other = Bench(NEVER_ROLLS)
    eventful(other)
    if end_offset:
        twin.follow(bytes(other.log.read(Offset(0), 1_000_000, up_to=end_offset).records))
    assert twin.log.log_end_offset == end_offset
    commit_all(bench)
    commit_all(twin)
    assert state_of(bench.log) == state_of(twin.log)
    bench.crash(7)
    commit_all(bench)
    assert state_of(bench.log) == state_of(twin.log), "after a crash too"


def test_a_snapshot_from_before_a_truncation_does_not_return_after_a_crash() -> None:
    """The log grows past the truncation with other records; the removal of the old snapshot must have been durable."""
    for seed in range(20):
        bench = Bench()
        sender = Sender(bench)
        for _ in range(40):
            sender.send(1, size=50)
        bench.commit()
        bench.log.truncate_to(Offset(3))
        for i in range(3, 60):
            append(bench, from_producer(2, i - 3, size=50))
        bench.commit()
        bench.directory.write_checkpoints()
        bench.crash(seed)
        assert [(state.producer_id, state.last_sequence) for state in bench.log.producers.state.active_producers()] == [
            (1, 2),
            (2, 56),
        ]


def test_a_removed_snapshot_does_not_return_after_a_clean_stop() -> None:
    """Power fails after the marker was written: a removed snapshot may exist again, and the newest one may be lost."""
    for seed in range(40):
        bench = Bench(NEVER_ROLLS)
        for i in range(10):
            append(bench, from_producer(1, i))
        bench.restart_clean()
        bench.log.truncate_to(Offset(3))
        for i in range(17):
            append(bench, from_producer(2, i))
        bench.directory.close_clean()
        bench.disk.crash(random.Random(seed))
        bench.reopen()
        assert [(state.producer_id, state.last_sequence) for state in bench.log.producers.state.active_producers()] == [
            (1, 2),
            (2, 16),
        ]


@pytest.mark.parametrize("power", ["stays", "fails after a clean stop"])
def test_a_snapshot_above_the_log_end_is_never_used(power: str) -> None:
    """A page-cache log may lose records below a snapshot that is on the disk."""
    for seed in range(1 if power == "stays" else 40):
        bench = Bench(NEVER_ROLLS)
        append(bench, from_producer(1, 0))
        bench.disk.kill()
        other = ProducerSnapshot(ProducerId(9), 0, 5, Offset(5), 0, NOW, -1, Offset(-1))
        write_file(bench.files, snapshot_path(bench.log.path, 6), encode_snapshot([other]))
        bench.reopen()
        for i in range(1, 10):
            append(bench, from_producer(1, i))
        if power == "stays":
            bench.kill()
        else:
            bench.directory.close_clean()
            bench.disk.crash(random.Random(seed))
            bench.reopen()
        assert [(state.producer_id, state.last_sequence) for state in bench.log.producers.state.active_producers()] == [
            (1, 9)
        ]


def test_recovery_rebuilds_the_transaction_indexes_of_the_segments_that_it_reads() -> None:
    bench = Bench()
    eventful(bench)
    names = [name for name in bench.files.list(bench.log.path) if name.endswith((".txnindex", ".snapshot"))]
    before = {name: read_file(bench.files, f"{bench.log.path}/{name}") for name in names}
    bench.disk.kill()
    for name in names:
        bench.files.remove(f"{bench.log.path}/{name}")
    bench.reopen()
    assert bench.log.recovery_point == bench.log.log_end_offset
    for name in names:
        made = read_file(bench.files, f"{bench.log.path}/{name}") or b""
        if name.endswith(".snapshot"):
            assert sorted(decode_snapshot(made, name)) == sorted(decode_snapshot(before[name] or b"", name))
        else:
            assert made == before[name]


def test_an_emptied_log_has_no_producer() -> None:
    bench = Bench()
    eventful(bench)
    bench.log.truncate_fully_and_start_at(Offset(500))
    assert (bench.log.producers.state.active_producers(), bench.log.first_unstable_offset) == ((), None)
    assert [name for name in bench.files.list(bench.log.path) if name.endswith((".snapshot", ".txnindex"))] == []
    assert append(bench, from_producer(1, 9)).first_offset == 500
    bench.crash(1)
    assert [state.last_sequence for state in bench.log.producers.state.active_producers()] in ([9], [])


def test_old_segments_are_removed_with_their_snapshots() -> None:
    bench = Bench(LogConfig(segment_bytes=2_000, retention_bytes=4_000))
    sender = Sender(bench)
    for _ in range(200):
        sender.send(1, size=100)
    commit_all(bench)
    bench.commit()
    assert delete_old_segments(bench.log, bench.clock.wall_ms()) > 3
    names = [name for name in bench.files.list(bench.log.path) if name.endswith(".snapshot")]
    assert names == [f"{segment.base_offset:020d}.snapshot" for segment in bench.log.segments]
    assert sender.send(1).duplicate is False
