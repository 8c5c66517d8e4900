"""Producers of one log: sequences, epochs, duplicates, transactions, snapshots, expiry."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.append_info import Origin
from storage.files.file_system import write_file
from storage.producers.producer_entry import SEQUENCE_MAX, ProducerBatch, ProducerState, read_marker
from storage.producers.producer_state import Duplicate, ProducerStateManager
from storage.producers.snapshot_files import snapshot_path
from storage.producers.verification import VERSION_2, TransactionCheck
from storage.segment.transaction_index import AbortedTransaction
from testbed.fake_disk import FakeDisk
from tidelog.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber, TransactionCoordinatorFenced
from tidelog.records import (
    EndTxnMarker,
    RecordBatch,
    RecordBatchBuilder,
    control_batch,
    empty_batch,
    iter_batches,
)
from tidelog.types import Millis, Offset, ProducerId

DIRECTORY = "/orders-0"
DAY = 86_400_000
CLIENT, REPLICATION, COORDINATOR = Origin.CLIENT, Origin.REPLICATION, Origin.COORDINATOR


def data(
    offset: int, producer: int, sequence: int, count: int = 1, *, epoch: int = 0, txn: bool = False, at: int = 0
) -> bytes:
    """A batch of `count` records, as stored in a log."""
    builder = RecordBatchBuilder(
        base_offset=offset,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=txn,
        leader_epoch=0,
    )
    for _ in range(count):
        builder.append(key=b"k", value=b"v", timestamp=Millis(at))
    return builder.build()


def marker(offset: int, producer: int, *, commit: bool = False, epoch: int = 0, coordinator: int = 0) -> bytes:
    """The end of a transaction, as stored in a log."""
    end = EndTxnMarker(committed=commit, coordinator_epoch=coordinator)
    return control_batch(
        end, timestamp=0, base_offset=offset, producer_id=producer, producer_epoch=epoch, leader_epoch=0
    )


def producer_batches(buffer: bytes) -> list[ProducerBatch]:
    """The batches of producers in a buffer, with their markers."""
    return [
        ProducerBatch(batch.header, read_marker(batch) if batch.is_control else None)
        for batch in iter_batches(buffer)
        if batch.producer_id >= 0
    ]


class Producers:
    """A ProducerStateManager over a directory, driven by bytes."""

    def __init__(self) -> None:
        self.disk = FakeDisk()
        self.disk.make_directory(DIRECTORY)
        self.state = self.opened()

    def opened(self) -> ProducerStateManager:
        return ProducerStateManager(self.disk, DIRECTORY, DAY)

    def append(self, batches: bytes, origin: Origin = CLIENT, *, now: int = 0) -> Duplicate | list[AbortedTransaction]:
        found = producer_batches(batches)
        checked = self.state.check(found, origin)
        if isinstance(checked, Duplicate):
            return checked
        aborted = self.state.apply(checked)
        self.state.appended(found, Millis(now))
        return aborted

    def of(self, producer: int) -> ProducerState:
        (found,) = [state for state in self.state.active_producers() if state.producer_id == producer]
        return found


@pytest.fixture
def producers() -> Producers:
    return Producers()


# --- sequences --------------------------------------------------------------------------------------------------------


def test_sequences_follow_one_another(producers: Producers) -> None:
    producers.append(data(0, 1, 0, 3))
    producers.append(data(3, 1, 3))
    assert producers.of(1).last_sequence == 3
    for wrong in (5, 1, 0):
        with pytest.raises(OutOfOrderSequenceNumber):
            producers.append(data(4, 1, wrong))
    assert producers.of(1).last_sequence == 3, "a rejection leaves no trace"
    producers.append(data(4, 1, 4))


def test_sequence_0_follows_the_largest(producers: Producers) -> None:
    producers.append(data(0, 1, SEQUENCE_MAX))
    producers.append(data(1, 1, 0))
    assert producers.of(1).last_sequence == 0


def test_sequences_may_wrap_within_a_batch(producers: Producers) -> None:
    producers.append(data(0, 1, SEQUENCE_MAX - 10, 9))
    producers.append(data(9, 1, SEQUENCE_MAX - 1, 11))
    assert producers.of(1).last_sequence == 8
    assert producers.append(data(99, 1, SEQUENCE_MAX - 1, 11)) == Duplicate(Offset(9), Offset(19), Millis(0))
    producers.append(data(20, 1, 9))


def test_an_unknown_producer_may_begin_with_any_sequence(producers: Producers) -> None:
    """Its state may have expired, or been deleted with its records: KIP-360."""
    producers.append(data(0, 1, 17))
    producers.append(data(1, 1, 18))
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.append(data(2, 1, 18, 2))


def test_a_transaction_of_an_unknown_producer_begins_with_sequence_0(producers: Producers) -> None:
    """With version 2, also if transactions are not verified: a producer may send the second batch before the first one
    is acknowledged."""
    later, first = producer_batches(data(0, 1, 17, txn=True)), producer_batches(data(0, 1, 0, txn=True))
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.state.check(later, CLIENT, TransactionCheck(VERSION_2))
    producers.state.check(later, CLIENT, TransactionCheck(1))
    producers.state.check(first, CLIENT, TransactionCheck(VERSION_2))


def test_a_new_epoch_begins_with_sequence_0(producers: Producers) -> None:
    producers.append(data(0, 1, 0))
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.append(data(1, 1, 1, epoch=1))
    producers.append(data(1, 1, 0, epoch=1))
    assert (producers.of(1).epoch, len(producers.of(1).batches)) == (1, 1)


def test_an_older_epoch_is_fenced(producers: Producers) -> None:
    producers.append(data(0, 1, 0, epoch=5))
    for batch in (data(1, 1, 0, epoch=4), data(1, 1, 1, epoch=4), marker(1, 1, epoch=4)):
        for origin in (CLIENT, COORDINATOR):
            with pytest.raises(InvalidProducerEpoch):
                producers.append(batch, origin)


def test_after_a_marker_of_a_new_epoch_that_epoch_begins_at_0(producers: Producers) -> None:
    producers.append(data(0, 1, 0, txn=True))
    producers.append(marker(1, 1, epoch=1), COORDINATOR)
    assert producers.of(1).last_sequence == -1
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.append(data(2, 1, 1, epoch=1, txn=True))
    producers.append(data(2, 1, 0, epoch=1, txn=True))


def test_a_follower_accepts_batches_that_its_leader_accepted(producers: Producers) -> None:
    """Replication checks no sequence, epoch or coordinator: the leader has done so."""
    producers.append(data(0, 1, 0, epoch=5), REPLICATION)
    producers.append(data(1, 1, 70, epoch=5), REPLICATION)
    producers.append(data(2, 1, 9, epoch=4), REPLICATION)
    assert (producers.of(1).epoch, producers.of(1).last_sequence) == (4, 9)
    producers.append(data(3, 1, 9, epoch=4), REPLICATION)
    assert len(producers.of(1).batches) == 2, "a follower detects no duplicates"


def test_the_coordinator_sends_data_without_sequences(producers: Producers) -> None:
    """Offsets committed in a transaction: __consumer_offsets of the vectors contains such batches."""
    producers.append(data(0, 1, -1, 3, txn=True), COORDINATOR)
    producers.append(data(3, 1, -1, txn=True), COORDINATOR)
    assert (producers.of(1).last_sequence, producers.of(1).transaction_start) == (-1, 0)


# --- duplicates -------------------------------------------------------------------------------------------------------


SEQUENCES = st.sampled_from((-1, 0, 1, 2, 3, SEQUENCE_MAX - 1, SEQUENCE_MAX))


@given(
    st.lists(st.tuples(SEQUENCES, st.integers(1, 3)), max_size=7),
    st.tuples(SEQUENCES, st.integers(1, 3), st.integers(0, 1), st.booleans()),
    st.booleans(),
    st.sampled_from((CLIENT, REPLICATION, COORDINATOR)),
)
def test_the_fast_path_gives_the_same_state(
    before: list[tuple[int, int]], last: tuple[int, int, int, bool], in_transaction: bool, origin: Origin
) -> None:
    state, offset = ProducerState(ProducerId(1)), 0
    for sequence, count in before:
        (batch,) = producer_batches(data(offset, 1, sequence, count, txn=in_transaction, at=offset))
        state, _ = state.after(batch, REPLICATION)
        offset += count
    sequence, count, epoch, txn = last
    (batch,) = producer_batches(data(offset, 1, sequence, count, epoch=epoch, txn=txn, at=7))
    simply = state.followed_by(batch)
    if simply is not None:
        assert state.duplicate_of(batch) is None
        assert state.after(batch, origin) == (simply, None)


def test_the_last_five_batches_are_detected_as_duplicates(producers: Producers) -> None:
    for i in range(7):
        producers.append(data(i * 2, 1, i * 2, 2, at=100 + i))
    for i in range(2, 7):
        found = producers.append(data(50, 1, i * 2, 2))
        assert found == Duplicate(Offset(i * 2), Offset(i * 2 + 1), Millis(100 + i))
    for gone in (0, 1):
        with pytest.raises(OutOfOrderSequenceNumber):
            producers.append(data(50, 1, gone * 2, 2))


def test_part_of_a_batch_is_no_duplicate(producers: Producers) -> None:
    producers.append(data(0, 1, 0, 4))
    for first, count in ((0, 3), (1, 3), (0, 5), (2, 4)):
        with pytest.raises(OutOfOrderSequenceNumber):
            producers.append(data(9, 1, first, count))


def test_batches_of_an_older_epoch_are_no_duplicates(producers: Producers) -> None:
    producers.append(data(0, 1, 0))
    producers.append(data(1, 1, 0, epoch=1))
    with pytest.raises(InvalidProducerEpoch):
        producers.append(data(2, 1, 0))


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_transaction_is_unstable_until_its_marker_is_below_the_high_watermark(producers: Producers) -> None:
    producers.append(data(5, 1, 0, txn=True))
    producers.append(data(6, 1, 1, txn=True))
    assert producers.state.first_unstable_offset == 5
    producers.append(marker(7, 1, commit=True), COORDINATOR)
    assert producers.state.first_unstable_offset == 5, "its marker is not replicated yet"
    producers.state.high_watermark_moved(Offset(7))
    assert producers.state.first_unstable_offset == 5
    producers.state.high_watermark_moved(Offset(8))
    assert producers.state.first_unstable_offset is None


def test_the_oldest_transaction_is_the_first_unstable_offset(producers: Producers) -> None:
    producers.append(data(0, 1, 0, txn=True))
    producers.append(data(1, 2, 0, txn=True))
    producers.append(marker(2, 2), COORDINATOR)
    producers.state.high_watermark_moved(Offset(3))
    assert producers.state.first_unstable_offset == 0
    producers.append(data(3, 2, 1, txn=True))
    producers.append(marker(4, 1), COORDINATOR)
    producers.state.high_watermark_moved(Offset(5))
    assert producers.state.first_unstable_offset == 3


def test_an_aborted_transaction_has_the_last_stable_offset(producers: Producers) -> None:
    producers.append(data(0, 1, 0, txn=True))
    producers.append(data(1, 2, 0, txn=True))
    assert producers.append(marker(2, 2), COORDINATOR) == [
        AbortedTransaction(ProducerId(2), Offset(1), Offset(2), Offset(0))
    ]
    assert producers.append(marker(3, 1), COORDINATOR) == [
        AbortedTransaction(ProducerId(1), Offset(0), Offset(3), Offset(4))
    ]


def test_several_transactions_in_one_append_equal_separate_appends(producers: Producers) -> None:
    found = producers.append(
        data(0, 1, 0, txn=True) + marker(1, 1) + data(2, 2, 0, txn=True) + data(3, 1, 1, txn=True) + marker(4, 1),
        REPLICATION,
    )
    assert found == [
        AbortedTransaction(ProducerId(1), Offset(0), Offset(1), Offset(2)),
        AbortedTransaction(ProducerId(1), Offset(3), Offset(4), Offset(2)),
    ]
    assert producers.state.open_transactions == {2: 2}


def test_a_marker_without_records_has_no_effect_for_readers(producers: Producers) -> None:
    assert producers.append(marker(0, 1, coordinator=3), COORDINATOR) == []
    assert producers.state.first_unstable_offset is None
    assert producers.of(1).coordinator_epoch == 3


def test_a_plain_batch_within_a_transaction_is_rejected(producers: Producers) -> None:
    """Trap 18."""
    producers.append(data(0, 1, 0, txn=True))
    with pytest.raises(InvalidTxnState):
        producers.append(data(1, 1, 1))


def test_an_older_coordinator_is_fenced(producers: Producers) -> None:
    producers.append(marker(0, 1, coordinator=2), COORDINATOR)
    with pytest.raises(TransactionCoordinatorFenced):
        producers.append(marker(1, 1, coordinator=1), COORDINATOR)
    producers.append(marker(1, 1, coordinator=1), REPLICATION)
    producers.append(marker(2, 1, coordinator=2), COORDINATOR)


def test_a_marker_emptied_by_the_cleaner_has_no_effect(producers: Producers) -> None:
    empty = empty_batch(RecordBatch(marker(3, 1)))
    producers.append(data(0, 1, 0, txn=True))
    producers.append(empty, REPLICATION)
    assert producers.state.first_unstable_offset == 0


# --- snapshots and expiry ---------------------------------------------------------------------------------------------


def test_a_snapshot_keeps_the_last_batch_and_the_open_transaction(producers: Producers) -> None:
    producers.append(data(0, 1, 0, 2, at=5, txn=True))
    producers.append(data(2, 1, 2, 3, at=6, txn=True))
    producers.append(data(5, 2, 9, at=7))
    producers.append(marker(6, 3, coordinator=4, epoch=2), COORDINATOR)
    producers.state.take_snapshot(Offset(7))
    again = producers.opened()
    assert again.load(Offset(7)) == (7, [])
    assert [state._replace(batches=state.batches[-1:]) for state in producers.state.active_producers()] == list(
        again.active_producers()
    )
    assert again.open_transactions == {0: 1}


def test_idle_producers_expire_and_open_transactions_do_not(producers: Producers) -> None:
    """Time counts from the append or from loading, not by the timestamps of the records."""
    producers.append(data(0, 1, 0, at=7 * DAY), now=1_000)
    producers.append(data(1, 2, 0, txn=True), now=1_000)
    producers.append(data(2, 3, 0), now=1_001)
    producers.state.take_snapshot(Offset(3))
    assert producers.state.expire(Millis(999 + DAY)) == 0
    assert producers.state.expire(Millis(1_000 + DAY)) == 1
    assert [state.producer_id for state in producers.state.active_producers()] == [2, 3]
    producers.append(data(3, 1, 44)), "it may come again, with any sequence"
    again = producers.opened()
    again.load(Offset(3))
    again.loaded(Millis(5 * DAY))
    assert again.expire(Millis(6 * DAY - 1)) == 0
    assert again.expire(Millis(6 * DAY)) == 2
    assert [state.producer_id for state in again.active_producers()] == [2]


def test_a_damaged_snapshot_is_replaced_by_the_one_before_it(producers: Producers) -> None:
    producers.append(data(0, 1, 0))
    producers.state.take_snapshot(Offset(1))
    producers.append(data(1, 1, 1))
    producers.state.take_snapshot(Offset(2))
    write_file(producers.disk, snapshot_path(DIRECTORY, 2), b"\0\x01 rot")
    again = producers.opened()
    offset, notes = again.load(Offset(2))
    assert (offset, len(notes)) == (1, 1)
    assert again.active_producers()[0].last_sequence == 0
    again.take_snapshot(Offset(2))
    assert producers.opened().load(Offset(2)) == (2, [])


def test_a_snapshot_is_written_once_and_never_of_offset_0(producers: Producers) -> None:
    producers.state.take_snapshot(Offset(0))
    assert producers.state.snapshots == []
    producers.state.take_snapshot(Offset(4))
    before = producers.disk.list(DIRECTORY)
    producers.append(data(4, 1, 0))
    producers.state.take_snapshot(Offset(4))
    assert producers.disk.list(DIRECTORY) == before == ["00000000000000000004.snapshot"]


def test_if_a_snapshot_is_removed_before_its_sync_the_next_one_is_synced(producers: Producers) -> None:
    """Retention syncs off the loop while compaction removes the snapshots of joined segments: the missing file once
    took the log directory offline (world 2914559799)."""
    for offset in (5, 10, 15):
        producers.append(data(offset, offset, 0))
        producers.state.take_snapshot(Offset(offset + 1))
    make_durable = producers.state.keeping(Offset(2))
    producers.state.remove_strays([Offset(11), Offset(16)])
    make_durable()
    producers.disk.sync_directory("/")
    producers.disk.crash(random.Random(1))
    assert 11 in producers.opened().snapshots


def test_snapshots_above_a_truncation_and_without_a_segment_are_removed(producers: Producers) -> None:
    for offset in (5, 10, 15, 20):
        producers.state.take_snapshot(Offset(offset))
    assert producers.state.remove_snapshots_above(Offset(15))
    assert not producers.state.remove_snapshots_above(Offset(15))
    producers.state.remove_strays([Offset(7), Offset(10)])
    assert producers.state.snapshots == producers.opened().snapshots == [10, 15], "15 is that of a clean stop"
    producers.state.take_snapshot(Offset(20))
    producers.state.remove_strays([Offset(10), Offset(20)])
    assert producers.opened().snapshots == [10, 20]


# --- against a model --------------------------------------------------------------------------------------------------


class ProducersMachine(RuleBasedStateMachine):
    """The producers of one log, compared with a list of the appended batches."""

    IDS = st.integers(1, 3)

    @initialize()
    def begin(self) -> None:
        self.producers = Producers()
        self.log: list[tuple[int, int, int, int, int, bool]] = []
        """(producer, epoch, first sequence, count, offset, transactional); a marker has count 0."""
        self.end = 0
        self.watermark = 0
        self.reloaded_at = 0

    def last(self, producer: int) -> tuple[int, int, bool]:
        """Epoch, next sequence and whether a transaction is open, according to the list."""
        epoch, following, is_open = -1, 0, False
        for who, its_epoch, first, count, _, txn in self.log:
            if who != producer:
                continue
            if count:
                following = first + count
                is_open |= txn
            elif its_epoch != epoch:
                following = 0
            if not count:
                is_open = False
            epoch = its_epoch
        return epoch, following, is_open

    @rule(producer=IDS, count=st.integers(1, 3), txn=st.booleans(), bump=st.booleans())
    def send_next(self, producer: int, count: int, txn: bool, bump: bool) -> None:
        epoch, following, is_open = self.last(producer)
        bump = bump and not is_open
        epoch, following = (epoch + 1, 0) if bump or epoch < 0 else (epoch, following)
        txn = txn or is_open
        batch = data(self.end, producer, following, count, epoch=epoch, txn=txn)
        assert self.producers.append(batch) == []
        self.log.append((producer, epoch, following, count, self.end, txn))
        self.end += count

    @rule(producer=IDS, commit=st.booleans(), bump=st.booleans())
    def end_transaction(self, producer: int, commit: bool, bump: bool) -> None:
        epoch, _, is_open = self.last(producer)
        epoch = max(epoch, 0) + bump
        found = self.producers.append(marker(self.end, producer, commit=commit, epoch=epoch), COORDINATOR)
        assert isinstance(found, list)
        assert [(entry.producer_id, entry.last_offset) for entry in found] == (
            [(producer, self.end)] if is_open and not commit else []
        )
        self.log.append((producer, epoch, -1, 0, self.end, True))
        self.end += 1

    @precondition(lambda self: self.log)
    @rule(choice=st.data())
    def send_again(self, choice: st.DataObject) -> None:
        """Resend one of the last batches: a duplicate if it is one of the last five of its epoch since the state was
        loaded (a snapshot keeps one), otherwise rejected."""
        producer, epoch, first, count, offset, txn = choice.draw(st.sampled_from(self.log))
        if not count:
            return
        of_epoch = [entry for entry in self.log if entry[:2] == (producer, epoch) and entry[3]]
        later = [entry for entry in self.log if entry[0] == producer and entry[1] != epoch and entry[4] > offset]
        kept = of_epoch[-5:]
        before = [entry for entry in kept if entry[4] < self.reloaded_at]
        kept = kept[len(before) - 1 :] if before else kept
        batch = data(self.end, producer, first, count, epoch=epoch, txn=txn)
        if (producer, epoch, first, count, offset, txn) in kept and not later:
            found = self.producers.append(batch)
            assert found == Duplicate(Offset(offset), Offset(offset + count - 1), Millis(0))
        else:
            with pytest.raises((OutOfOrderSequenceNumber, InvalidProducerEpoch)):
                self.producers.append(batch)

    @rule(producer=IDS, gap=st.integers(1, 5))
    def leave_a_gap(self, producer: int, gap: int) -> None:
        epoch, following, is_open = self.last(producer)
        if epoch >= 0:
            with pytest.raises(OutOfOrderSequenceNumber):
                self.producers.append(data(self.end, producer, following + gap, epoch=epoch, txn=is_open))

    @rule(ahead=st.integers(0, 10))
    def commit(self, ahead: int) -> None:
        self.watermark = min(self.watermark + ahead, self.end)
        self.producers.state.high_watermark_moved(Offset(self.watermark))

    @rule()
    def load_again(self) -> None:
        self.producers.state.take_snapshot(Offset(self.end))
        self.producers.state = self.producers.opened()
        self.producers.state.load(Offset(self.end))
        self.reloaded_at = self.watermark = self.end

    @invariant()
    def the_first_unstable_offset_is_that_of_the_list(self) -> None:
        begun: dict[int, int] = {}
        unstable = []
        for producer, _, _, count, offset, txn in self.log:
            if count and txn:
                begun.setdefault(producer, offset)
            elif not count and producer in begun:
                first = begun.pop(producer)
                unstable += [first] if offset >= self.watermark else []
        wanted = min([*unstable, *begun.values()], default=None)
        assert self.producers.state.first_unstable_offset == wanted


TestProducersMachine = ProducersMachine.TestCase
