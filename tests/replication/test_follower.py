"""A follower: which fetches it sends, which answers it applies, where it truncates."""

from __future__ import annotations

import random

import pytest

from replication.partition.follower import PAUSE_MS_MAX, PAUSE_MS_MIN, REMOTE_PAUSE_MS_MAX, PartitionFollower
from replication.partition.follower_events import (
    AdvanceLogStart,
    AdvanceWatermark,
    Answered,
    AppendRecords,
    DurableOffsetMoved,
    FetchAgainFrom,
    FollowerEffect,
    LogChanged,
    LogFailed,
    LogView,
    RemoteStartFailed,
    ReportDurable,
    RestartAt,
    RestartBehindRemote,
    RetryLater,
    SendFetch,
    StartMoved,
    StreamBroken,
    StreamReady,
    TruncateTo,
    Waited,
    WantFetch,
)
from replication.partition.follower_states import FollowerState
from tidelog.errors import (
    CoordinatorNotAvailable,
    CorruptRecord,
    DiskFull,
    NotLeaderOrFollower,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
    TidelogError,
)
from tidelog.types import EpochEnd, EpochStart, LeaderEpoch, Millis, Offset, PartitionIndex, TopicPartition

NAME = TopicPartition("t", PartitionIndex(0))


class Follower:
    """Follows in epoch 4; its log is 0..99, epochs 1 from 0 and 3 from 60."""

    def __init__(
        self,
        *,
        log_end: int = 100,
        durable_offset: int = 100,
        log_start: int = 0,
        last_epoch: int = 3,
        history: tuple[tuple[int, int], ...] = ((1, 0), (3, 60)),
    ) -> None:
        self.now = 0
        self.history = tuple(EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in history)
        self.log = LogView(Offset(log_start), Offset(log_end), Offset(durable_offset), LeaderEpoch(last_epoch))
        self.core = PartitionFollower(name=NAME, leader_epoch=LeaderEpoch(4), log=self.log, rng=random.Random(1))
        assert self.core.start() == [WantFetch()]
        self.fetches = 0

    def fetch(self) -> SendFetch:
        self.fetches += 1
        [effect] = self.core.handle(StreamReady(self.fetches))
        assert isinstance(effect, SendFetch)
        return effect

    def answer(
        self,
        *,
        fetch: int | None = None,
        records: bool = False,
        watermark: int = 0,
        diverging: tuple[int, int] | None = None,
        error: TidelogError | None = None,
        epoch: int = 4,
        log_start: int = 0,
        waits: bool = False,
        many: bool = True,
        unended: int | None = None,
        is_held: bool = True,
        is_counted: bool = True,
        local_start: int = 0,
        leader_history: tuple[EpochStart, ...] = (),
    ) -> list[FollowerEffect]:
        end = None if diverging is None else EpochEnd(LeaderEpoch(diverging[0]), Offset(diverging[1]))
        return self.core.handle(
            Answered(
                self.fetches if fetch is None else fetch,
                LeaderEpoch(epoch),
                error,
                end,
                records,
                Offset(watermark),
                Offset(log_start),
                Millis(self.now),
                self.history,
                waits,
                many,
                None if unended is None else Offset(unended),
                is_held,
                is_counted,
                Offset(local_start),
                leader_history,
            )
        )

    def changed(
        self, log_end: int, *, durable_offset: int = 100, last_epoch: int = 4, log_start: int = 0
    ) -> list[FollowerEffect]:
        self.log = LogView(Offset(log_start), Offset(log_end), Offset(durable_offset), LeaderEpoch(last_epoch))
        return self.core.handle(LogChanged(self.log))

    def later(self, ms: int) -> list[FollowerEffect]:
        self.now += ms
        return self.core.handle(Waited(Millis(self.now)))


def test_it_fetches_from_its_log_end_and_reports_its_durable_offset() -> None:
    follower = Follower(durable_offset=90)
    assert follower.fetch() == SendFetch(1, Offset(100), LeaderEpoch(3), Offset(90), Offset(0))


def test_the_watermark_is_taken_only_after_the_append() -> None:
    follower = Follower()
    follower.fetch()
    assert follower.answer(records=True, watermark=115) == [AppendRecords()]
    assert follower.changed(110) == [AdvanceWatermark(Offset(110)), WantFetch()], "bounded by what it has"


def test_the_next_fetch_does_not_wait_for_the_disk_where_there_may_be_more() -> None:
    follower = Follower()
    follower.fetch()
    follower.answer(records=True, many=True)
    assert follower.changed(110, durable_offset=100)[-1] == WantFetch()
    assert follower.fetch() == SendFetch(2, Offset(110), LeaderEpoch(4), Offset(100), Offset(0))
    assert follower.core.handle(DurableOffsetMoved(Offset(110))) == [ReportDurable(Offset(110), Offset(0))]
    assert follower.core.handle(DurableOffsetMoved(Offset(110))) == [], "it is reported already"


def test_a_small_append_is_durable_before_the_next_fetch_which_reports_it() -> None:
    follower = Follower()
    follower.fetch()
    follower.answer(records=True, watermark=100, many=False)
    assert follower.changed(110, durable_offset=100) == [AdvanceWatermark(Offset(100))], "nothing is asked yet"
    assert follower.core.state is FollowerState.SYNCING
    assert follower.core.handle(StreamReady(9)) == []
    assert follower.core.handle(DurableOffsetMoved(Offset(110))) == [WantFetch()]
    assert follower.fetch() == SendFetch(2, Offset(110), LeaderEpoch(4), Offset(110), Offset(0))


def test_records_that_need_no_fsync_are_durable_at_once() -> None:
    follower = Follower()
    follower.fetch()
    follower.answer(records=True, many=False)
    assert follower.changed(110, durable_offset=110)[-1] == WantFetch()


def test_a_slow_disk_is_not_waited_for_long() -> None:
    follower = Follower()
    follower.fetch()
    follower.answer(records=True, many=False)
    follower.changed(110, durable_offset=100)
    assert follower.later(1) == [WantFetch()], "the driver lets time pass now and then"
    assert follower.fetch().durable_offset == 100
    assert follower.core.handle(DurableOffsetMoved(Offset(110))) == [ReportDurable(Offset(110), Offset(0))]


def test_a_stream_that_breaks_meanwhile_is_not_waited_for_either() -> None:
    follower = Follower()
    follower.fetch()
    follower.answer(records=True, many=False)
    follower.changed(110, durable_offset=100)
    assert follower.core.handle(StreamBroken()) == [WantFetch()]
    assert follower.fetch().next_offset == 110


def test_an_offset_that_moves_while_no_fetch_is_open_is_reported_by_the_next() -> None:
    follower = Follower(durable_offset=90)
    assert follower.core.handle(DurableOffsetMoved(Offset(95))) == []
    assert follower.fetch().durable_offset == 95
    follower.answer(records=True)
    assert follower.core.handle(DurableOffsetMoved(Offset(100))) == []


def test_an_empty_answer_moves_the_watermark_alone() -> None:
    follower = Follower()
    follower.fetch()
    assert follower.answer(watermark=95) == [AdvanceWatermark(Offset(95)), WantFetch()]


def test_the_log_start_follows_the_leaders_as_far_as_records_are_committed() -> None:
    follower = Follower()
    follower.fetch()
    effects = follower.answer(records=True, watermark=105, log_start=40)
    assert effects == [AppendRecords()], "nothing before the append"
    assert follower.changed(110) == [AdvanceWatermark(Offset(105)), AdvanceLogStart(Offset(40)), WantFetch()]
    follower.core.handle(StartMoved(Offset(40)))
    assert follower.fetch().log_start == 40
    assert follower.answer(watermark=105, log_start=40) == [AdvanceWatermark(Offset(105)), WantFetch()], "nothing new"
    follower.fetch()
    assert follower.answer(watermark=105, log_start=20) == [AdvanceWatermark(Offset(105)), WantFetch()], "never back"
    follower.fetch()
    effects = follower.answer(watermark=106, log_start=108)
    assert effects == [AdvanceWatermark(Offset(106)), AdvanceLogStart(Offset(106)), WantFetch()]


def test_a_log_start_is_reported_once_it_is_durable() -> None:
    """The leader tells then that the records are deleted: after a crash this replica must not have them."""
    follower = Follower()
    follower.fetch()
    effects = follower.answer(watermark=100, log_start=40, waits=True)
    assert effects == [AdvanceWatermark(Offset(100)), AdvanceLogStart(Offset(40))]
    assert follower.core.handle(StartMoved(Offset(40))) == [ReportDurable(Offset(100), Offset(40))]
    assert follower.core.handle(StartMoved(Offset(40))) == [], "it is reported already"
    follower.answer(watermark=100, log_start=60)
    assert follower.fetch().log_start == 40
    follower.core.handle(StreamBroken())
    assert follower.core.handle(StartMoved(Offset(60))) == [], "the next fetch reports it"
    assert follower.fetch().log_start == 60


def test_a_log_start_that_could_not_be_made_durable_is_moved_again() -> None:
    follower = Follower()
    follower.fetch()
    for _ in range(2):
        effects = follower.answer(watermark=100, log_start=40)
        assert effects == [AdvanceWatermark(Offset(100)), AdvanceLogStart(Offset(40)), WantFetch()]
        follower.fetch()


def test_a_diverging_answer_moves_no_log_start() -> None:
    follower = Follower()
    follower.fetch()
    assert follower.answer(diverging=(1, 60), log_start=40) == [TruncateTo(Offset(60))]
    assert follower.changed(60, durable_offset=60, last_epoch=1) == [WantFetch()]
    assert follower.fetch().log_start == 0


def test_an_answer_counts_only_for_the_fetch_that_is_open() -> None:
    """Scenario 7: fetch 1 was lost with its stream; its answer arrives while another fetch is open."""
    follower = Follower()
    follower.fetch()
    assert follower.core.handle(StreamBroken()) == [WantFetch()]
    assert follower.answer(fetch=1, records=True, watermark=100) == []
    follower.fetch()
    assert follower.answer(fetch=1, records=True, watermark=100) == []
    assert follower.answer(fetch=2, diverging=(3, 80)) == [TruncateTo(Offset(80))]
    assert follower.answer(fetch=2, records=True) == [], "nothing is open while the log changes"
    follower.changed(80, durable_offset=80, last_epoch=3)
    assert follower.answer(fetch=2, records=True) == []


@pytest.mark.parametrize("kind", ["records", "empty", "diverging", "below the start"])
def test_an_answer_of_another_epoch_is_dropped(kind: str) -> None:
    follower = Follower()
    follower.fetch()
    match kind:
        case "records":
            effects = follower.answer(epoch=3, records=True, watermark=120)
        case "empty":
            effects = follower.answer(epoch=3, watermark=100)
        case "diverging":
            effects = follower.answer(epoch=3, diverging=(3, 80))
        case _:
            effects = follower.answer(epoch=3, error=OffsetOutOfRange("too low"), log_start=200)
    assert not [effect for effect in effects if not isinstance(effect, WantFetch | RetryLater)]


def test_an_answer_is_dropped_when_the_log_end_has_moved() -> None:
    follower = Follower()
    follower.fetch()
    follower.core._log = LogView(Offset(0), Offset(85), Offset(85), LeaderEpoch(3))
    assert follower.answer(records=True, watermark=100) == [WantFetch()]


def test_a_diverging_answer_brings_no_watermark() -> None:
    follower = Follower()
    follower.fetch()
    assert follower.answer(diverging=(3, 80), watermark=100) == [TruncateTo(Offset(80))]
    assert follower.changed(80, durable_offset=80, last_epoch=3) == [WantFetch()]
    assert follower.fetch() == SendFetch(2, Offset(80), LeaderEpoch(3), Offset(80), Offset(0))


# Follower: 1 from 0, 3 from 60, end 100.
@pytest.mark.parametrize(
    ("diverging", "cut"),
    [
        ((3, 80), 80),  # the leader's epoch 3 is shorter
        ((3, 100), 100),
        ((2, 70), 60),  # no epoch 2 here: the end of 1
        ((1, 50), 50),
        ((1, 90), 60),  # the leader has more of epoch 1
    ],
)
def test_it_truncates_to_the_smaller_of_both_ends(diverging: tuple[int, int], cut: int) -> None:
    follower = Follower()
    follower.fetch()
    assert follower.answer(diverging=diverging) == [TruncateTo(Offset(cut))]


def test_the_two_questions_of_scenario_15_end() -> None:
    """Leader 1@0, 4@50, end 100; follower 1@0, 2@30, 3@60, end 80. With the leader's answer alone the fetches would
    never end."""
    follower = Follower(log_end=80, durable_offset=80, history=((1, 0), (2, 30), (3, 60)))
    follower.fetch()
    assert follower.answer(diverging=(1, 50)) == [TruncateTo(Offset(30))]


def test_with_no_epoch_in_common_it_restarts_at_the_leaders_start() -> None:
    follower = Follower(history=((2, 0), (3, 60)))
    follower.fetch()
    [effect] = follower.answer(diverging=(1, 50), log_start=20)
    assert isinstance(effect, RestartAt)
    assert effect.offset == 20
    follower.changed(20, durable_offset=20, last_epoch=-1, log_start=20)
    other = Follower()
    other.fetch()
    [effect] = other.answer(diverging=(-1, 40), log_start=40)
    assert isinstance(effect, RestartAt)
    assert effect.offset == 40


@pytest.mark.parametrize(
    ("own_start", "leader_start", "begins"),
    [(20, 17, 20), (18, 17, 18), (17, 18, 18), (21, 17, 20)],
    ids=["deleted up to the epoch it led", "within", "the leader has deleted more", "never above what the leader has"],
)
def test_deleted_records_do_not_lower_its_durable_offset(own_start: int, leader_start: int, begins: int) -> None:
    """A member that led epoch 1 has nothing older left; the next leader ends at 20, in epoch 0."""
    follower = Follower(log_start=own_start, log_end=22, durable_offset=22, history=((1, own_start),))
    follower.fetch()
    [effect] = follower.answer(diverging=(0, 20), log_start=leader_start)
    assert isinstance(effect, RestartAt)
    assert effect.offset == begins


def test_a_log_that_begins_above_the_truncation_restarts() -> None:
    follower = Follower(log_start=70, history=((3, 70),))
    follower.fetch()
    [effect] = follower.answer(diverging=(3, 65), log_start=10)
    assert isinstance(effect, RestartAt)
    assert effect.offset == 65


def test_below_the_leaders_start_it_restarts_there() -> None:
    follower = Follower()
    follower.fetch()
    [effect] = follower.answer(error=OffsetOutOfRange("the log begins at 150"), log_start=150)
    assert isinstance(effect, RestartAt)
    assert effect.offset == 150


def test_above_the_leaders_end_it_is_never_reset() -> None:
    """An out-of-range answer that does not concern the log start changes nothing: divergence determines the
    truncation."""
    follower = Follower()
    follower.fetch()
    [effect] = follower.answer(error=OffsetOutOfRange("the log ends at 50"), log_start=0)
    assert isinstance(effect, RetryLater)


MOVED = OffsetMovedToTieredStorage("it is in the remote tier")
HISTORY = (EpochStart(LeaderEpoch(1), Offset(40)), EpochStart(LeaderEpoch(4), Offset(150)))


def test_below_the_leaders_local_start_it_restarts_behind_the_remote_tier() -> None:
    """The log starts where the leader's does. It is emptied only once the remote part is known: the log stays as it is
    while the remote tier does not answer, and the leader is asked again where its local log starts."""
    follower = Follower()
    follower.fetch()
    effects = follower.answer(error=MOVED, log_start=40, local_start=200, leader_history=HISTORY)
    assert effects == [RestartBehindRemote(Offset(200), Offset(40), HISTORY)]
    assert follower.core.handle(StreamBroken()) == [], "the search goes on"

    unavailable = CoordinatorNotAvailable("no coordinator")
    [effect] = follower.core.handle(RemoteStartFailed(unavailable, Millis(follower.now)))
    assert isinstance(effect, RetryLater)
    assert effect.in_remote_tier
    assert follower.later(PAUSE_MS_MAX) == [WantFetch()]
    assert follower.fetch().next_offset == 100
    follower.answer(error=MOVED, log_start=40, local_start=300, leader_history=HISTORY)
    assert follower.changed(310, durable_offset=310, last_epoch=4, log_start=40) == [WantFetch()]
    assert follower.fetch() == SendFetch(3, Offset(310), LeaderEpoch(4), Offset(310), Offset(40))


def test_the_remote_tier_is_asked_less_and_less() -> None:
    follower = Follower()
    pauses = []
    for _ in range(12):
        follower.fetch()
        follower.answer(error=MOVED, local_start=200)
        [effect] = follower.core.handle(RemoteStartFailed(DiskFull("x"), Millis(follower.now)))
        assert isinstance(effect, RetryLater)
        pauses.append(effect.until - follower.now)
        follower.later(pauses[-1])
    assert PAUSE_MS_MIN // 2 <= pauses[0] <= PAUSE_MS_MIN
    assert PAUSE_MS_MAX < max(pauses) <= REMOTE_PAUSE_MS_MAX


@pytest.mark.parametrize(
    ("epoch", "local_start", "log_end"),
    [(3, 200, 100), (4, 100, 100), (4, 200, 90)],
    ids=["of another epoch", "not below it", "the log has changed"],
)
def test_what_does_not_concern_its_log_end_empties_no_log(epoch: int, local_start: int, log_end: int) -> None:
    follower = Follower()
    follower.fetch()
    follower.core._log = LogView(Offset(0), Offset(log_end), Offset(log_end), LeaderEpoch(3))
    [effect] = follower.answer(error=MOVED, epoch=epoch, local_start=local_start)
    assert isinstance(effect, RetryLater)


def test_refusals_are_waited_out_longer_each_time_until_one_fetch_succeeds() -> None:
    follower = Follower()
    pauses = []
    for _ in range(8):
        follower.fetch()
        [effect] = follower.answer(error=NotLeaderOrFollower("not yet"))
        assert isinstance(effect, RetryLater)
        pauses.append(effect.until - follower.now)
        assert follower.core.handle(StreamReady(99)) == []
        assert follower.later(pauses[-1] - 1) == []
        assert follower.later(1) == [WantFetch()]
    bounds = [min(PAUSE_MS_MIN << failures, PAUSE_MS_MAX) for failures in range(8)]
    assert all(bound // 2 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True))
    assert len(set(pauses[-3:])) > 1, "the longest ones are drawn by chance"
    follower.fetch()
    follower.answer()
    follower.fetch()
    [effect] = follower.answer(error=NotLeaderOrFollower("again"))
    assert isinstance(effect, RetryLater)
    assert effect.until - follower.now <= PAUSE_MS_MIN


@pytest.mark.parametrize("error", [DiskFull("no room"), CorruptRecord("bad checksum")])
def test_records_that_cannot_be_appended_are_fetched_again(error: TidelogError) -> None:
    follower = Follower()
    follower.fetch()
    follower.answer(records=True, watermark=110)
    [effect] = follower.core.handle(LogFailed(follower.log, error, Millis(0)))
    assert isinstance(effect, RetryLater)
    assert follower.later(PAUSE_MS_MIN) == [WantFetch()]
    assert follower.fetch().next_offset == 100


def test_a_broken_stream_while_the_log_changes_asks_again_afterwards() -> None:
    follower = Follower()
    follower.fetch()
    follower.answer(records=True)
    assert follower.core.handle(StreamBroken()) == []
    assert follower.changed(110)[-1] == WantFetch()
    assert follower.core.state is FollowerState.READY


def test_a_new_watermark_arrives_while_the_fetch_keeps_waiting() -> None:
    follower = Follower()
    follower.fetch()
    assert follower.answer(watermark=90, waits=True) == [AdvanceWatermark(Offset(90))]
    assert follower.core.state is FollowerState.OPEN
    assert follower.answer(watermark=170, waits=True) == [AdvanceWatermark(Offset(100))]
    assert follower.answer(records=True, watermark=105) == [AppendRecords()]


def test_offsets_of_another_fetch_or_epoch_are_ignored() -> None:
    follower = Follower()
    follower.fetch()
    assert follower.answer(fetch=7, watermark=90, waits=True) == []
    assert follower.answer(epoch=3, watermark=90, waits=True) == []
    assert follower.core.state is FollowerState.OPEN
    follower.answer(records=True, watermark=90)
    assert follower.answer(watermark=95, waits=True) == [], "its log is being changed"


# --- markers that compaction has removed ------------------------------------------------------------------------------


def appended(follower: Follower, log_end: int) -> None:
    assert follower.answer(records=True) == [AppendRecords()]
    follower.changed(log_end, durable_offset=log_end)
    follower.fetch()


def fetched_again_from(effects: list[FollowerEffect]) -> Offset:
    [effect] = effects
    assert isinstance(effect, FetchAgainFrom)
    return effect.offset


def test_a_transaction_whose_marker_may_be_gone_is_fetched_again() -> None:
    follower = Follower()
    follower.fetch()
    assert fetched_again_from(follower.answer(records=True, watermark=200, unended=90)) == 90
    follower.changed(90, durable_offset=90)
    assert follower.fetch().next_offset == 90
    appended(follower, 95)


def test_one_that_is_open_again_then_makes_it_fetch_its_whole_log() -> None:
    """Not one transaction after the other: each would cost an answer and a truncation."""
    follower = Follower(log_start=10)
    follower.fetch()
    assert fetched_again_from(follower.answer(records=True, watermark=200, unended=90)) == 90
    follower.changed(90, durable_offset=90, log_start=10)
    follower.fetch()
    assert fetched_again_from(follower.answer(records=True, watermark=200, unended=85)) == 10


def test_nothing_is_fetched_again_while_the_leader_keeps_no_markers_for_it() -> None:
    """Its node is fenced: what it fetched now would not be believed either."""
    follower = Follower()
    follower.fetch()
    [effect] = follower.answer(records=True, watermark=200, unended=90, is_held=False)
    assert isinstance(effect, RetryLater)
    assert "unfenced" in effect.error.message
    follower.later(1_000)
    assert follower.fetch().next_offset == 100
    assert fetched_again_from(follower.answer(records=True, watermark=200, unended=90)) == 90


def test_after_a_truncation_that_failed_it_fetches_again_from_its_log_start() -> None:
    """The log is as it was, with the transaction whose marker may be gone."""
    follower = Follower()
    follower.fetch()
    assert fetched_again_from(follower.answer(records=True, watermark=200, unended=90)) == 90
    follower.core.handle(LogFailed(follower.log, DiskFull("no space"), Millis(0)))
    follower.later(1_000)
    follower.fetch()
    assert fetched_again_from(follower.answer(records=True, watermark=200, unended=90)) == 0


def test_a_member_does_not_truncate_for_a_gap() -> None:
    """A member has everything below the watermark, and compaction stops there: what looks like a gap is none."""
    follower = Follower()
    follower.fetch()
    assert follower.answer(records=True, watermark=100, unended=90) == [AppendRecords()]


def test_of_a_watermark_that_the_leader_does_not_know_yet_its_own_place_decides() -> None:
    follower = Follower()
    follower.fetch()
    effects = follower.answer(records=True, watermark=50, unended=90, is_counted=False)
    assert fetched_again_from(effects) == 90
