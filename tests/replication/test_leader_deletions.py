"""Deletions of records: what may be deleted, which replicas a deletion waits for, how it ends."""

from __future__ import annotations

import pytest

from replication.partition.leader import OWN_DELETION_MS
from replication.partition.leader_events import (
    DeletionFailed,
    LeaderEffect,
    LeadershipEnded,
    LogStartKept,
    MoveLogStart,
    ProposalAccepted,
    RecordsDeleted,
    Ticket,
)
from tests.replication.partition_stories import EPOCH, Leader, all_of, proposed
from tidelog.errors import (
    DiskFull,
    LeadershipLost,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    TidelogError,
)
from tidelog.types import HIGH_WATERMARK, Millis, NodeId, Offset, PartitionEpoch


def leading(*, isr: tuple[int, ...] = (1, 2, 3), watermark: int = 100) -> Leader:
    """A leader whose log is 0..99. Its members have fetched everything, others lag; their logs start at 0."""
    leader = Leader(isr=isr, watermark=watermark)
    for node in (2, 3):
        leader.fetch(node, 100 if node in isr else 70)
    return leader


def deleted(effects: list[LeaderEffect]) -> dict[Ticket, int]:
    """The deletions that are done, with the low watermark of each answer."""
    return {ticket: effect.low_watermark for effect in all_of(effects, RecordsDeleted) for ticket in effect.tickets}


def refused(effects: list[LeaderEffect]) -> dict[Ticket, tuple[type[TidelogError], int]]:
    return {
        ticket: (type(effect.error), effect.low_watermark)
        for effect in all_of(effects, DeletionFailed)
        for ticket in effect.tickets
    }


def test_a_deletion_is_answered_when_every_replica_has_deleted_the_records() -> None:
    leader = leading()
    ticket, effects = leader.delete(40)
    assert effects == [MoveLogStart(Offset(40))]
    assert deleted(leader.durable_reported(2, 100, log_start=40)) == {}, "not before the leader's own is durable"
    assert deleted(leader.starts_at(40)) == {}
    assert deleted(leader.durable_reported(3, 100, log_start=39)) == {}
    assert deleted(leader.durable_reported(3, 100, log_start=40)) == {ticket: 40}
    assert leader.core.waiting == 0


def test_a_fetch_reports_the_log_start_too() -> None:
    leader = leading()
    ticket, _ = leader.delete(40)
    leader.starts_at(40)
    leader.fetch(2, 100, log_start=40)
    assert deleted(leader.fetch(3, 100, log_start=50)) == {ticket: 40}


def test_what_is_deleted_already_is_answered_at_once() -> None:
    leader = leading()
    leader.starts_at(40)
    for node in (2, 3):
        leader.fetch(node, 100, log_start=40)
    ticket, effects = leader.delete(30)
    assert (deleted(effects), all_of(effects, MoveLogStart)) == ({ticket: 40}, [])


def test_minus_one_deletes_all_that_is_committed() -> None:
    leader = leading(watermark=80)
    leader.append(120)
    assert leader.watermark == 100
    _, effects = leader.delete(HIGH_WATERMARK)
    assert effects == [MoveLogStart(Offset(100))]


@pytest.mark.parametrize("offset", [101, 120, 2**63 - 1, -2, -(2**63)])
def test_uncommitted_records_are_not_deleted(offset: int) -> None:
    leader = leading()
    leader.append(120)
    with pytest.raises(OffsetOutOfRange, match="high watermark at 100"):
        leader.delete(offset)


@pytest.mark.parametrize("offset", [90, HIGH_WATERMARK])
def test_a_new_leader_that_does_not_know_what_is_committed_lets_the_sender_repeat(offset: int) -> None:
    leader = Leader(watermark=80)
    with pytest.raises(OffsetNotAvailable):
        leader.delete(offset)
    _, effects = leader.delete(80)
    assert effects == [MoveLogStart(Offset(80))], "this much is known to be committed"


def test_a_replica_whose_node_is_down_is_not_waited_for() -> None:
    leader = leading(isr=(1, 2))
    ticket, _ = leader.delete(40)
    leader.starts_at(40)
    assert deleted(leader.fetch(2, 100, log_start=40)) == {}, "node 3 is in service, in sync or not"
    assert deleted(leader.sees(3, eligible=False)) == {ticket: 40}


def test_a_member_of_the_in_sync_set_is_waited_for_in_any_case() -> None:
    """It could be the next leader, and its readers would see the records again."""
    leader = leading()
    ticket, _ = leader.delete(40)
    leader.starts_at(40)
    leader.fetch(2, 100, log_start=40)
    assert deleted(leader.sees(3, eligible=False)) == {}
    assert deleted(leader.metadata_changed(isr=(1, 2))) == {ticket: 40}


def test_a_replica_that_is_eligible_to_lead_is_waited_for() -> None:
    leader = leading(isr=(1, 2))
    leader.elr = (3,)
    leader.sees(3, eligible=False)
    ticket, _ = leader.delete(40)
    leader.starts_at(40)
    assert deleted(leader.fetch(2, 100, log_start=40)) == {}
    leader.elr = ()
    assert deleted(leader.sees(3, eligible=False)) == {ticket: 40}


def test_a_former_member_is_waited_for_until_the_metadata_tell_whether_it_is_eligible_to_lead() -> None:
    """The controller has answered the proposal without it. Only its metadata say that it may lead again."""
    leader = leading()
    leader.sees(3, eligible=False)
    ticket, _ = leader.delete(40)
    leader.starts_at(40)
    leader.fetch(2, 100, log_start=40)
    accepted = ProposalAccepted(EPOCH, PartitionEpoch(11), (NodeId(1), NodeId(2)), Millis(leader.now))
    assert deleted(leader.core.handle(accepted)) == {}
    leader.elr = (3,)
    assert deleted(leader.metadata_changed(isr=(1, 2))) == {}, "it may"
    leader.elr = ()
    assert deleted(leader.metadata_changed()) == {ticket: 40}, "it may not any more"


def test_a_replica_that_has_not_fetched_in_this_epoch_is_waited_for() -> None:
    leader = Leader(watermark=100)
    leader.fetch(2, 100, log_start=40)
    ticket, _ = leader.delete(40)
    leader.starts_at(40)
    assert leader.core.in_sync.low_watermark == -1
    assert deleted(leader.fetch(3, 100, log_start=40)) == {ticket: 40}


def test_another_incarnation_of_a_node_reports_its_log_start_again() -> None:
    leader = leading()
    leader.durable_reported(3, 100, log_start=40)
    leader.sees(3, number=2)
    leader.delete(40)
    leader.starts_at(40)
    assert deleted(leader.fetch(2, 100, log_start=40)) == {}


def test_a_replica_joins_the_in_sync_set_only_with_the_log_start_of_the_leader() -> None:
    """Otherwise it could lead with records whose deletion was answered while it was down."""
    leader = Leader(isr=(1, 2), watermark=100)
    leader.fetch(2, 100)
    leader.starts_at(40)
    assert proposed(leader.fetch(3, 100)) is None
    assert proposed(leader.durable_reported(3, 100, log_start=40)) == (1, 2, 3)


def test_a_deletion_that_takes_too_long_fails_with_what_is_deleted_everywhere() -> None:
    leader = leading()
    ticket, _ = leader.delete(40, within=200)
    leader.starts_at(40)
    leader.durable_reported(2, 100, log_start=40)
    leader.durable_reported(3, 100, log_start=15)
    assert refused(leader.later(100)) == {}
    assert leader.core.deadline == 200
    assert refused(leader.later(100)) == {ticket: (RequestTimedOut, 15)}
    assert deleted(leader.durable_reported(3, 100, log_start=40)) == {}, "answered once"


def test_a_deletion_without_a_timeout_succeeds_if_no_other_replica_has_to_follow() -> None:
    """It was answered with a timeout before the leader's own log start was durable, although it was done then."""
    leader = leading(isr=(1,))
    ticket, effects = leader.delete(40, within=0)
    assert effects == [MoveLogStart(Offset(40))]
    assert refused(leader.later(100)) == {}
    for node in (2, 3):
        leader.fetch(node, 100, log_start=40)
    assert deleted(leader.starts_at(40)) == {ticket: 40}


def test_a_deletion_without_a_timeout_does_not_wait_for_other_replicas() -> None:
    leader = leading()
    ticket, _ = leader.delete(40, within=0)
    assert deleted(leader.starts_at(40)) == {}
    assert refused(leader.later(1)) == {ticket: (RequestTimedOut, 0)}


def test_a_deletion_whose_leader_cannot_write_ends_some_time_after_its_deadline() -> None:
    leader = leading()
    ticket, _ = leader.delete(40, within=200)
    assert refused(leader.later(OWN_DELETION_MS)) == {}
    assert refused(leader.later(200)) == {ticket: (RequestTimedOut, 0)}


def test_a_deletion_ends_with_the_leadership() -> None:
    leader = leading()
    ticket, _ = leader.delete(40)
    assert refused(leader.core.handle(LeadershipEnded("node 2 leads"))) == {ticket: (LeadershipLost, 0)}


def test_a_full_disk_fails_the_deletion() -> None:
    leader = leading()
    ticket, _ = leader.delete(40)
    assert refused(leader.core.handle(LogStartKept(DiskFull("no space")))) == {ticket: (DiskFull, 0)}
    _, effects = leader.delete(40)
    assert effects == [MoveLogStart(Offset(40))], "it may be repeated"
