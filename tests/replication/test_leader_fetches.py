"""Which fetches a leader accepts, and its answers to the others."""

from __future__ import annotations

import pytest

from replication.partition.follower_events import NOTHING_HELD
from replication.partition.leader_events import FetchDiverged, FetchRefused, LogStartMoved
from tests.replication.partition_stories import Leader, agreed, all_of
from tidelog.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    StaleNodeEpoch,
    TidelogError,
    UnknownLeaderEpoch,
)
from tidelog.types import EpochEnd, LeaderEpoch, NodeId, Offset


def refusal(effects: list[object]) -> TidelogError:
    assert len(effects) == 1
    [effect] = effects
    assert isinstance(effect, FetchRefused)
    return effect.error


def end_told(effects: list[object]) -> tuple[int, int]:
    assert len(effects) == 1, "nothing else comes of a diverging fetch"
    [effect] = effects
    assert isinstance(effect, FetchDiverged)
    return effect.end.epoch, effect.end.end_offset


def test_a_fetch_of_another_epoch_is_refused_both_ways() -> None:
    leader = Leader()
    assert isinstance(refusal([*leader.fetch(2, 100, epoch=3)]), FencedLeaderEpoch)
    assert isinstance(refusal([*leader.fetch(2, 100, epoch=5)]), UnknownLeaderEpoch)
    assert leader.core.in_sync.positions(leader.core.in_sync.replicas[1]) is None


def test_a_fetch_of_another_incarnation_is_refused() -> None:
    leader = Leader()
    assert isinstance(refusal([*leader.fetch(2, 100, number=2)]), StaleNodeEpoch)
    leader.sees(2, number=2)
    assert agreed(leader.fetch(2, 100, number=2))
    assert isinstance(refusal([*leader.fetch(2, 100, number=1)]), StaleNodeEpoch)


def test_a_node_without_a_replica_is_refused() -> None:
    leader = Leader()
    assert isinstance(refusal([*leader.fetch(9, 100)]), NotLeaderOrFollower)


def test_a_durable_offset_beyond_the_log_end_is_faulty() -> None:
    leader = Leader()
    assert isinstance(refusal([*leader.fetch(2, 100, durable_offset=101)]), InvalidRequest)


def test_a_follower_below_the_log_start_gets_an_error() -> None:
    leader = Leader(log_start=50)
    assert isinstance(refusal([*leader.fetch(2, 49, last_epoch=1)]), OffsetOutOfRange)
    assert agreed(leader.fetch(2, 50, last_epoch=1))
    leader.core.handle(LogStartMoved(Offset(70)))
    assert isinstance(refusal([*leader.fetch(2, 69, last_epoch=3)]), OffsetOutOfRange)
    assert leader.core.in_sync.positions(leader.core.in_sync.replicas[1]) is None


# The leader's history: epoch 1 from 0, 3 from 60, 4 (its own) from 100; its log ends at 120.
@pytest.mark.parametrize(
    ("offset", "last_epoch", "answer"),
    [
        (120, 4, None),
        (100, 3, None),
        (60, 1, None),
        (30, 1, None),
        (0, -1, None),
        (120, 3, (3, 100)),  # has records of epoch 3 that the leader has not
        (121, 4, (4, 120)),  # longer than the leader in its own epoch: cut, never reset
        (80, 2, (1, 60)),  # an epoch that the leader never saw
        (80, 1, (1, 60)),
        (40, 0, (-1, 0)),  # none in common
        (130, -1, (-1, 0)),  # empty, but beginning above the leader's end
        (100, 5, (4, 120)),  # a later epoch than the leader's
    ],
)
def test_where_logs_part(offset: int, last_epoch: int, answer: tuple[int, int] | None) -> None:
    leader = Leader()
    leader.append(120)
    effects = leader.fetch(2, offset, last_epoch=last_epoch)
    if answer is None:
        assert agreed(effects)
    else:
        assert end_told([*effects]) == answer


def test_an_epoch_without_records_is_skipped() -> None:
    """Epochs 3 and 4 began at 100 and 3 has no records: the leader's cache may still contain it."""
    leader = Leader(history=((1, 0), (3, 100)))
    assert agreed(leader.fetch(2, 100, last_epoch=1))
    assert end_told([*leader.fetch(2, 110, last_epoch=3)]) == (1, 100)
    assert leader.core.epoch_end(LeaderEpoch(3)) == EpochEnd(LeaderEpoch(1), Offset(100))


def test_a_leader_that_begins_again_in_its_epoch_knows_where_that_began() -> None:
    """It led epoch 4 from 100 to 120 and stopped. A follower that was away since epoch 3 has other records there."""
    leader = Leader(history=((1, 0), (3, 60), (4, 100)), log_end=120)
    assert end_told([*leader.fetch(2, 110, last_epoch=3)]) == (3, 100)
    assert agreed(leader.fetch(2, 110, last_epoch=4))
    assert leader.core.epoch_end(LeaderEpoch(3)) == EpochEnd(LeaderEpoch(3), Offset(100))


def test_a_new_leader_does_not_report_the_committed_end_until_it_knows() -> None:
    """KIP-207: its watermark may still be below what readers of the old leader have seen."""
    leader = Leader(isr=(1, 2), watermark=80)
    with pytest.raises(OffsetNotAvailable):
        leader.core.committed_end()
    leader.fetch(2, 99)
    with pytest.raises(OffsetNotAvailable):
        leader.core.committed_end()
    leader.fetch(2, 100)
    assert leader.core.committed_end() == 100


def test_a_reader_learns_that_its_position_was_truncated() -> None:
    """KIP-320: a consumer that read 110 in epoch 3 queries a leader whose epoch 3 ends at 100."""
    leader = Leader()
    leader.append(120)
    assert leader.core.diverging_from_reader(Offset(110), LeaderEpoch(3)) == EpochEnd(LeaderEpoch(3), Offset(100))
    assert leader.core.diverging_from_reader(Offset(110), LeaderEpoch(4)) is None
    assert all_of(leader.fetch(2, 110, last_epoch=4), FetchDiverged) == []


def test_a_reader_of_deleted_records_has_lost_nothing() -> None:
    """Everything that it read up to 100 in epoch 1 is deleted, and the log knows of no epoch before 3. As in Kafka, the
    epoch is told to have ended where epoch 3 begins: Java's clients take epoch -1 for a truncation."""
    leader = Leader(history=((3, 100),), log_end=120)
    assert leader.core.epoch_end(LeaderEpoch(1)) == EpochEnd(LeaderEpoch(1), Offset(100))
    assert leader.core.diverging_from_reader(Offset(100), LeaderEpoch(1)) is None
    assert leader.core.diverging_from_reader(Offset(60), LeaderEpoch(1)) is None, "the read says that it is deleted"
    assert leader.core.diverging_from_reader(Offset(110), LeaderEpoch(1)) == EpochEnd(LeaderEpoch(1), Offset(100))


# --- markers that compaction keeps for a follower ---


def held(leader: Leader, node: int) -> int:
    return int(leader.core.in_sync.held_from(NodeId(node)))


def test_markers_are_held_from_the_first_fetch_on_whichever_stream_follows() -> None:
    leader = Leader()
    assert held(leader, 2) == NOTHING_HELD
    leader.fetch(2, 40, last_epoch=1)
    leader.fetch(2, 50, last_epoch=1)
    leader.fetch(2, 50, last_epoch=1, session=2)
    leader.fetch(2, 70, session=2)
    assert held(leader, 2) == 40
    assert leader.core.in_sync.first_unfetched() == 70


def test_markers_behind_a_follower_that_goes_back_may_be_gone() -> None:
    leader = Leader()
    leader.fetch(2, 40, last_epoch=1)
    leader.fetch(2, 70)
    leader.fetch(2, 50, last_epoch=1)
    assert held(leader, 2) == 50


def test_an_empty_log_has_all_markers_before_it() -> None:
    """Its first batch may begin below its log start."""
    leader = Leader()
    leader.fetch(2, 40, last_epoch=1, log_start=40)
    leader.fetch(2, 60, last_epoch=1, log_start=30)
    assert held(leader, 2) == 0


def test_no_markers_are_held_for_a_fenced_follower() -> None:
    leader = Leader()
    leader.fetch(2, 40, last_epoch=1)
    leader.sees(2, eligible=False)
    assert held(leader, 2) == NOTHING_HELD
    leader.fetch(2, 50, last_epoch=1)
    assert held(leader, 2) == NOTHING_HELD
    leader.sees(2, eligible=True)
    assert held(leader, 2) == NOTHING_HELD, "since its last fetch markers may have gone"
    leader.fetch(2, 55, last_epoch=1)
    assert held(leader, 2) == 55


def test_nothing_is_held_after_the_logs_have_parted() -> None:
    leader = Leader()
    leader.fetch(2, 40, last_epoch=1)
    leader.fetch(2, 70, last_epoch=1)
    assert held(leader, 2) == NOTHING_HELD
