"""The decisions of the fetch core: what is fetched, what is dropped, which errors are raised."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.client.fetch_core_world import POLICY, TOPIC_ID, RequestSession, batch, hinted, key, opened
from tidelog.client.core_events import FindLeader
from tidelog.client.cursor import CursorState, FixedRange
from tidelog.client.fetch_core import (
    LOOKUP_MS,
    MISSING_TOPIC_MS,
    NO_HINT_MS,
    PREFERRED_MS,
    PREFERRED_SILENT_MS,
    REFUSED_CLIENT_MS,
    REFUSED_MS,
    SILENT_MS,
)
from tidelog.client.fetch_events import (
    BatchesFetched,
    CheckEpoch,
    Effect,
    EpochChecked,
    FetchPolicy,
    FindPlace,
    LeaderVerified,
    PlaceFound,
    Ready,
    Sought,
    VerifyLeader,
)
from tidelog.errors import (
    ConnectionFailed,
    ConnectionLost,
    CorruptLog,
    CorruptRecord,
    InconsistentTopicId,
    LogTruncated,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    SaslAuthenticationFailed,
    TidelogError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    Endpoint,
    EpochEnd,
    LeaderEpoch,
    Millis,
    NodeAddress,
    NodeId,
    Offset,
    TopicId,
)


def test_a_new_partition_looks_up_its_leader_then_its_offset_then_fetches() -> None:
    session = RequestSession(start="latest")
    assert session.tick() == [FindLeader(key())]
    (place,) = session.lead()
    assert place == FindPlace(key(), session.cursor().number, "latest")
    effects = session.handle(PlaceFound(key(), place.number, Offset(42), Millis(session.now)))
    (fetch,) = opened(effects)
    assert (fetch.node, fetch.offset, fetch.topic_id) == (1, 42, TOPIC_ID)
    assert session.cursor().position == 42


def test_a_fetch_is_opened_while_records_are_buffered_up_to_the_share() -> None:
    session = RequestSession()
    session.ready()
    (fetch,) = opened(session.fetched(batch(0, 10, size=20)))
    assert fetch.offset == 10
    assert session.cursor().position == 0, "the user has not received a record"
    assert opened(session.fetched(batch(10, 10, size=100))) == [], "more than the share is buffered"
    assert opened(session.consume(20)) != []


def test_all_partitions_together_stay_within_the_budget() -> None:
    session = RequestSession(FetchPolicy(10_000, 1_000_000, 500, 5_000), partitions=5)
    session.tick()
    total = 0
    for index in range(5):
        session.lead(partition=index)
        number = session.cursor(index).number
        (fetch,) = opened(session.handle(PlaceFound(key(index), number, Offset(0), Millis(session.now))))
        total += fetch.max_bytes
    assert total == 5 * (10_000 // 10)
    for index in range(5):
        session.fetched(batch(0, 1, size=900), partition=index)
    assert sum(cursor.buffered + cursor.reserved for cursor in session.core.cursors.values()) <= 10_000


def test_records_below_the_position_are_not_counted_twice() -> None:
    session = RequestSession()
    session.ready(5)
    session.fetched(batch(0, 3), batch(3, 5))
    assert [waiting.base_offset for waiting in session.cursor().batches] == [3]


def test_a_seek_makes_the_open_fetch_stale() -> None:
    session = RequestSession()
    session.ready()
    stale = session.cursor().number
    (fetch,) = opened(session.handle(Sought(key(), Offset(50), NO_LEADER_EPOCH, Millis(session.now))))
    assert fetch.offset == 50
    session.handle(
        BatchesFetched(key(), stale, (batch(60),), LeaderEpoch(0), Offset(9), Offset(9), Offset(0), Millis(session.now))
    )
    assert not session.cursor().has_data


def test_a_new_leader_must_confirm_the_log_before_a_fetch() -> None:
    session = RequestSession()
    session.ready()
    session.fetched(batch(0, 10))
    session.consume(10)
    (check,) = session.lead(2, epoch=1)
    assert isinstance(check, CheckEpoch)
    assert (check.node, check.leader_epoch, check.epoch) == (2, 1, 0)
    end = EpochEnd(LeaderEpoch(0), Offset(10))
    (fetch,) = opened(session.handle(EpochChecked(key(), check.number, end, Millis(session.now))))
    assert (fetch.node, fetch.offset, fetch.leader_epoch) == (2, 10, 1)


@pytest.mark.parametrize("end", [EpochEnd(LeaderEpoch(0), Offset(7)), EpochEnd(NO_LEADER_EPOCH, Offset(-1))])
def test_records_that_were_read_and_truncated_raise_an_error(end: EpochEnd) -> None:
    """Trap 6, KIP-320: the log was truncated below the records that the user has read."""
    session = RequestSession()
    session.ready()
    session.fetched(batch(0, 10))
    session.consume(10)
    (check,) = session.lead(2, epoch=1)
    assert isinstance(check, CheckEpoch)
    effects = session.handle(EpochChecked(key(), check.number, end, Millis(session.now)))
    assert opened(effects) == []
    error = session.cursor().error
    assert isinstance(error, LogTruncated)
    assert error.diverging == end
    assert opened(session.handle(Sought(key(), Offset(7), LeaderEpoch(0), Millis(session.now)))) == [], "checked first"
    assert session.cursor().state is CursorState.CHECKING


def read_in_epochs(session: RequestSession) -> None:
    """The user has 80 records of epoch 1 and 20 of epoch 2; the next fetch is open."""
    session.ready(epoch=2)
    session.fetched(batch(0, 80, epoch=1), batch(80, 20, epoch=2), epoch=2)
    session.consume(100, epoch=2)


def test_an_older_epoch_that_ends_after_the_position_does_not_match() -> None:
    """After an unclean election the new leader has no epoch 2, and epoch 1 up to offset 120: its records from 80 on
    differ from those that were read."""
    session = RequestSession()
    read_in_epochs(session)
    (check,) = session.lead(2, epoch=3)
    assert isinstance(check, CheckEpoch)
    assert check.epoch == 2
    effects = session.handle(
        EpochChecked(key(), check.number, EpochEnd(LeaderEpoch(1), Offset(120)), Millis(session.now))
    )
    assert opened(effects) == []
    error = session.cursor().error
    assert isinstance(error, LogTruncated)
    assert error.diverging == EpochEnd(LeaderEpoch(1), Offset(80)), "from there on the records differ"


def test_each_fetch_names_the_epoch_before_its_offset() -> None:
    session = RequestSession()
    (fetch,) = opened(session.ready(epoch=2))
    assert (fetch.offset, fetch.last_epoch) == (0, NO_LEADER_EPOCH)
    (fetch,) = opened(session.fetched(batch(0, 10, epoch=1), epoch=2))
    assert (fetch.offset, fetch.last_epoch) == (10, 1)


def test_a_fetch_that_diverges_is_a_truncation() -> None:
    """The leader compares the epoch of the fetch, also if the leader has not changed since the seek."""
    session = RequestSession()
    read_in_epochs(session)
    session.diverged(EpochEnd(LeaderEpoch(1), Offset(120)))
    error = session.cursor().error
    assert isinstance(error, LogTruncated)
    assert error.diverging == EpochEnd(LeaderEpoch(1), Offset(80))
    (fetch,) = opened(session.handle(Sought(key(), Offset(80), LeaderEpoch(1), Millis(session.now)))) or opened(
        session.handle(
            EpochChecked(key(), session.cursor().number, EpochEnd(LeaderEpoch(1), Offset(120)), Millis(session.now))
        )
    )
    assert (fetch.offset, fetch.last_epoch) == (80, 1)


def test_a_fetch_that_diverges_after_the_position_is_repeated_from_the_position() -> None:
    session = RequestSession()
    session.ready(epoch=2)
    session.fetched(batch(0, 80, epoch=1), epoch=2)
    session.consume(80, epoch=1)
    session.fetched(batch(80, 20, epoch=2), epoch=2)
    (fetch,) = opened(session.diverged(EpochEnd(LeaderEpoch(1), Offset(120))))
    assert session.cursor().error is None
    assert (fetch.offset, fetch.last_epoch) == (80, 1)


def test_a_fetch_after_deleted_epochs_is_repeated_without_a_comparison() -> None:
    session = RequestSession()
    read_in_epochs(session)
    (fetch,) = opened(session.diverged(EpochEnd(NO_LEADER_EPOCH, Offset(100))))
    assert session.cursor().error is None
    assert (fetch.offset, fetch.last_epoch) == (100, NO_LEADER_EPOCH)


@pytest.mark.parametrize("epoch", [0, 3, 1 << 30])
def test_an_implausible_epoch_is_not_compared(epoch: int) -> None:
    """The checksum of a batch does not cover its epoch: one that decreases, or is above the leader's, is corrupt."""
    session = RequestSession()
    session.ready(epoch=2)
    session.fetched(batch(0, 10, epoch=1), epoch=2)
    (fetch,) = opened([*session.consume(10, epoch=1), *session.fetched(batch(10, 5, epoch=epoch), epoch=2)])
    assert (fetch.offset, fetch.last_epoch) == (15, NO_LEADER_EPOCH)
    session.consume(15, epoch=1)
    (fetch,) = opened(session.fetched(batch(15, 5, epoch=2), epoch=2))
    assert (fetch.offset, fetch.last_epoch) == (20, 2)


def test_a_divergence_on_a_preferred_replica_is_decided_by_the_leader() -> None:
    session = RequestSession()
    read_in_epochs(session)
    (fetch,) = opened(hinted(session))
    assert fetch.node == 3
    (fetch,) = opened(session.diverged(EpochEnd(LeaderEpoch(1), Offset(90))))
    assert session.cursor().error is None
    assert (fetch.node, fetch.offset, fetch.last_epoch, fetch.hint) == (1, 100, 2, False)


@pytest.mark.parametrize("log_start", [10, 12])
def test_records_deleted_by_retention_are_not_a_truncation(log_start: int) -> None:
    """Retention deleted all records that were read, and their epochs."""
    session = RequestSession()
    session.ready()
    session.fetched(batch(0, 10))
    session.consume(10)
    (check,) = session.lead(2, epoch=1)
    assert isinstance(check, CheckEpoch)
    end = EpochEnd(NO_LEADER_EPOCH, Offset(log_start))
    (fetch,) = opened(session.handle(EpochChecked(key(), check.number, end, Millis(session.now))))
    assert fetch.offset == 10, "the leader decides whether it is out of range"


def test_buffered_records_that_were_truncated_are_fetched_again() -> None:
    session = RequestSession()
    session.ready()
    session.fetched(batch(0, 5))
    session.consume(5)
    session.fetched(batch(5, 5))
    (check,) = [effect for effect in session.lead(2, epoch=1) if isinstance(effect, CheckEpoch)]
    end = EpochEnd(LeaderEpoch(0), Offset(7))
    again = session.handle(EpochChecked(key(), check.number, end, Millis(session.now)))
    assert session.cursor().error is None
    assert not session.cursor().has_data
    (check,) = [effect for effect in again if isinstance(effect, CheckEpoch)]
    (fetch,) = opened(session.handle(EpochChecked(key(), check.number, end, Millis(session.now))))
    assert fetch.offset == 5


def test_a_topic_created_again_is_another_topic() -> None:
    session = RequestSession()
    session.ready()
    session.lead(1, epoch=0, topic_id=TopicId(UUID(int=2)))
    assert isinstance(session.cursor().error, InconsistentTopicId)


def test_an_unknown_topic_counts_as_missing_after_a_time() -> None:
    session = RequestSession()
    session.tick()
    gone = UnknownTopicOrPartition("there is no topic 'orders'")
    session.lead(NO_NODE, topic_id=None, cause=gone)
    assert session.cursor().error is None
    session.tick(MISSING_TOPIC_MS)
    session.lead(NO_NODE, topic_id=None, cause=gone)
    assert session.cursor().error is gone


def test_a_missing_answer_does_not_count_as_a_missing_topic() -> None:
    """A topic was just created, and no node answers for long: the first node that answers may not know it yet."""
    session = RequestSession()
    session.tick()
    gone = UnknownTopicOrPartition("there is no topic 'orders'")
    session.lead(NO_NODE, topic_id=None, cause=gone)
    session.tick(MISSING_TOPIC_MS)
    session.lead(NO_NODE, topic_id=None, cause=ConnectionFailed("no node of the cluster answers"))
    session.lead(NO_NODE, topic_id=None, cause=gone)
    assert session.cursor().error is None
    session.tick(MISSING_TOPIC_MS)
    session.lead(NO_NODE, topic_id=None, cause=gone)
    assert session.cursor().error is gone


@pytest.mark.parametrize(
    "refused", [SaslAuthenticationFailed("wrong password"), TopicAuthorizationFailed("no permission to read orders")]
)
def test_a_refused_client_is_told_so_after_a_time_in_which_a_node_may_lag(refused: TidelogError) -> None:
    session = RequestSession()
    session.tick()
    session.lead(NO_NODE, topic_id=None, cause=refused)
    assert session.cursor().error is None
    session.tick(REFUSED_CLIENT_MS)
    session.lead(NO_NODE, topic_id=None, cause=refused)
    assert session.cursor().error is refused


def test_a_leader_hint_in_a_rejection_is_used_at_once() -> None:
    session = RequestSession()
    session.ready()
    hint = NodeAddress(NodeId(2), Endpoint("b", 2), "", LeaderEpoch(3))
    (fetch,) = opened(session.failed(NotLeaderOrFollower("node 2 leads", leader=hint)))
    assert (fetch.node, fetch.leader_epoch) == (2, 3)


def test_after_a_broken_stream_the_leader_is_looked_up_and_the_fetch_is_repeated() -> None:
    session = RequestSession()
    session.ready()
    assert session.failed(ConnectionLost("broke")) == [FindLeader(key())]
    assert session.lead() == []
    assert len(opened(session.tick(200))) == 1


def test_a_leader_without_a_high_watermark_is_queried_again_without_a_lookup() -> None:
    session = RequestSession()
    session.ready()
    assert session.failed(OffsetNotAvailable("not yet")) == []
    assert len(opened(session.tick(200))) == 1


def test_a_late_answer_triggers_a_leader_lookup() -> None:
    session = RequestSession()
    session.ready()
    assert session.tick(POLICY.max_wait_ms + SILENT_MS) == [FindLeader(key())]
    (fetch,) = opened(session.lead(2, epoch=1))
    assert fetch.node == 2


def test_corrupt_bytes_stop_the_partition_until_the_user_seeks() -> None:
    session = RequestSession(partitions=2)
    session.ready()
    session.failed(CorruptRecord("no whole batch"))
    (again,) = opened(session.tick(200))
    assert (again.offset, again.refused) == (0, True), "the node is notified and verifies its log"
    session.tick(REFUSED_MS)
    session.failed(CorruptRecord("no whole batch"))
    assert session.cursor().state is CursorState.FAILED
    assert session.lead() == [], "the same leader has the same bytes"
    assert session.tick(10_000) == [FindLeader(key())], "another one may have valid bytes"
    assert isinstance(session.lead(partition=1)[0], FindPlace), "the other partition is still read"
    assert len(opened(session.handle(Sought(key(), Offset(9), NO_LEADER_EPOCH, Millis(session.now))))) == 1


def corrupt(session: RequestSession, error: TidelogError) -> None:
    """The node answers with this error until the core gives up."""
    session.failed(error)
    session.tick(REFUSED_MS + 200)
    session.failed(error)
    assert session.cursor().state is CursorState.FAILED
    assert session.cursor().error is error


@pytest.mark.parametrize("error", [CorruptRecord("no whole batch"), CorruptLog("damaged from offset 0 on")])
def test_a_partition_that_failed_on_corrupt_bytes_continues_with_a_new_leader(error: TidelogError) -> None:
    session = RequestSession()
    session.ready(7)
    corrupt(session, error)
    assert session.lead() == []
    assert session.tick(LOOKUP_MS) == [FindLeader(key())]
    assert session.tick(100) == [], "one lookup at a time"
    (fetch,) = opened(session.lead(2, epoch=1))
    assert (fetch.node, fetch.offset, fetch.leader_epoch, fetch.refused) == (2, 7, 1, False)
    assert session.cursor().error is None
    corrupt(session, error)
    assert session.lead(2, epoch=1) == [], "each leader epoch raises the error once"


def test_a_batch_that_stays_corrupt_is_fetched_again_from_a_new_leader_after_its_log_was_checked() -> None:
    """Buffered batches after the corrupt one were dropped: reading continues at the position."""
    session = RequestSession()
    session.ready()
    session.fetched(batch(0), batch(3), batch(6))
    session.consume(3)
    session.core.refuse(session.cursor(), CorruptRecord("checksum"), Millis(session.now))
    session.tick(REFUSED_MS)
    session.fetched(batch(3), batch(6))
    session.core.refuse(session.cursor(), CorruptRecord("checksum"), Millis(session.now))
    assert session.cursor().state is CursorState.FAILED
    (check,) = session.lead(2, epoch=1)
    assert isinstance(check, CheckEpoch)
    end = EpochEnd(LeaderEpoch(0), Offset(9))
    (fetch,) = opened(session.handle(EpochChecked(key(), check.number, end, Millis(session.now))))
    assert (fetch.node, fetch.offset) == (2, 3)
    assert session.cursor().position == 3


@pytest.mark.parametrize("error", [LogTruncated("lost"), OffsetOutOfRange("aged out")])
def test_other_errors_are_not_cleared_by_a_new_leader(error: TidelogError) -> None:
    session = RequestSession()
    session.ready(7)
    for effect in session.failed(error):
        if isinstance(effect, VerifyLeader):
            session.handle(LeaderVerified(key(), effect.number, Millis(session.now)))
    failure = session.cursor().error
    assert failure is not None
    assert session.tick(10_000) == []
    assert session.lead(2, epoch=1) == []
    assert session.cursor().error is failure


def test_corrupt_bytes_after_a_seek_are_fetched_again_before_the_error() -> None:
    """The retry time of an earlier corrupt batch has ended: it does not apply to this one."""
    session = RequestSession()
    session.ready()
    session.failed(CorruptRecord("no whole batch"))
    session.tick(REFUSED_MS + 200)
    session.failed(CorruptRecord("no whole batch"))
    assert session.cursor().state is CursorState.FAILED
    (fetch,) = opened(session.handle(Sought(key(), Offset(9), NO_LEADER_EPOCH, Millis(session.now))))
    assert not fetch.refused, "no corruption was reported from there on"
    session.failed(CorruptRecord("no whole batch"))
    (again,) = opened(session.tick(500))
    assert (again.offset, again.refused) == (9, True)


def test_partitions_assigned_again_keep_their_position() -> None:
    session = RequestSession(partitions=2)
    session.ready(7)
    session.core.assign([key(0)], "latest")
    assert session.cursor().position == 7
    assert key(1) not in session.core.cursors


# --- the nearest replica (KIP-392) -------------------------------------------------------------------------------


def test_a_preferred_replica_is_read_until_the_leader_is_queried_again() -> None:
    session = RequestSession()
    session.ready()
    (fetch,) = opened(hinted(session))
    assert (fetch.node, fetch.offset) == (3, 0)
    (fetch,) = opened(session.fetched(batch(0)))
    assert fetch.node == 3
    session.now += PREFERRED_MS
    (fetch,) = opened(session.fetched(batch(3)))
    assert (fetch.node, fetch.hint) == (1, True)


@pytest.mark.parametrize(
    "error", [ConnectionLost("broke"), OffsetOutOfRange("it has less"), NotLeaderOrFollower("moved away")]
)
def test_a_fetch_that_a_preferred_replica_rejects_goes_to_the_leader_at_once(error: TidelogError) -> None:
    session = RequestSession()
    session.ready()
    hinted(session)
    (fetch,) = opened(session.failed(error))
    assert (fetch.node, fetch.hint) == (1, False), "or it would name the same one again"
    assert session.cursor().error is None
    session.now += NO_HINT_MS
    (fetch,) = opened(session.fetched(batch(0)))
    assert fetch.hint


def test_a_silent_preferred_replica_is_abandoned_early() -> None:
    session = RequestSession()
    session.ready()
    hinted(session)
    (fetch,) = opened(session.tick(POLICY.max_wait_ms + PREFERRED_SILENT_MS))
    assert fetch.node == 1


def test_a_new_leader_names_its_own_preferred_replica() -> None:
    session = RequestSession()
    session.ready()
    hinted(session)
    (fetch,) = opened(session.lead(node=2, epoch=1))
    assert fetch.node == 2


def planned(start: int = 4, end: int = 10, epoch: int = 1) -> RequestSession:
    """A reader of a fixed range in leader epoch 2: the leader was queried for the planned epoch."""
    session = RequestSession()
    session.core.add_range(key(), FixedRange(TOPIC_ID, Offset(start), Offset(end), LeaderEpoch(epoch)))
    session.tick()
    (check,) = session.lead(epoch=2)
    assert isinstance(check, CheckEpoch)
    assert check.epoch == epoch
    return session


def checked(session: RequestSession, epoch: int, end: int) -> list[Effect]:
    answer = EpochEnd(LeaderEpoch(epoch), Offset(end))
    return session.handle(EpochChecked(key(), session.cursor().number, answer, Millis(session.now)))


def test_a_fixed_range_is_fetched_up_to_its_end_and_no_further() -> None:
    session = planned()
    (fetch,) = opened(checked(session, 1, 10))
    assert (fetch.offset, fetch.leader_epoch) == (4, 2)
    (fetch,) = opened(session.fetched(batch(3, 3, epoch=1), epoch=2))
    assert (fetch.offset, session.cursor().reached_end) == (6, False)
    assert opened(session.fetched(batch(6, 6, epoch=1), epoch=2)) == []
    assert session.cursor().reached_end
    assert opened(session.consume(12, epoch=1)) == []
    assert session.tick(10_000) == []


@pytest.mark.parametrize(("epoch", "end"), [(1, 9), (0, 50), (-1, 3)])
def test_a_log_without_the_planned_epoch_up_to_the_end_was_truncated(epoch: int, end: int) -> None:
    session = planned()
    assert opened(checked(session, epoch, end)) == []
    error = session.cursor().error
    assert isinstance(error, LogTruncated)
    assert error.diverging == EpochEnd(LeaderEpoch(epoch), Offset(end))


def test_a_fixed_range_is_checked_again_in_each_leader_epoch() -> None:
    session = planned()
    checked(session, 1, 10)
    (check,) = session.lead(2, epoch=3)
    assert isinstance(check, CheckEpoch)
    assert (check.node, check.epoch) == (2, 1), "the planned epoch, not that of the record before"
    checked(session, 1, 8)
    assert isinstance(session.cursor().error, LogTruncated)


def test_an_empty_answer_below_the_watermark_is_a_gap_up_to_the_end_of_the_range() -> None:
    session = planned()
    checked(session, 1, 10)
    assert Ready() in session.fetched(epoch=2)
    assert session.cursor().reached_end


def test_an_empty_answer_that_ends_at_an_open_transaction_is_no_gap() -> None:
    """With overlapping transactions the last stable offset of a node that lags lies below the planned end, although its
    high watermark does not: what lies between is not read yet, and would be lost."""
    session = planned()
    (fetch,) = opened(checked(session, 1, 10))
    (again,) = opened(session.fetched(epoch=2, readable_end=9))
    assert (fetch.offset, again.offset, session.cursor().reached_end) == (4, 4, False)
    assert session.cursor().readable_end == 9
    assert Ready() in session.fetched(epoch=2, readable_end=10)
    assert session.cursor().reached_end


def test_a_topic_created_again_is_not_read_as_the_planned_one() -> None:
    session = RequestSession()
    session.core.add_range(key(), FixedRange(TOPIC_ID, Offset(0), Offset(5), NO_LEADER_EPOCH))
    session.tick()
    session.lead(topic_id=TopicId(UUID(int=2)))
    assert isinstance(session.cursor().error, InconsistentTopicId)


def test_a_fetch_that_a_throttling_node_has_not_answered_is_not_late() -> None:
    session = RequestSession()
    session.ready()
    number = session.cursor().number
    session.core.patient_until[NodeId(1)] = Millis(session.now + 60_000)
    session.tick(POLICY.max_wait_ms + POLICY.request_timeout_ms)
    session.tick(60_000 - POLICY.max_wait_ms - POLICY.request_timeout_ms - 1)
    assert session.cursor().number == number
    session.tick(1)
    assert (session.cursor().state, session.cursor().number > number) == (CursorState.IDLE, True)
