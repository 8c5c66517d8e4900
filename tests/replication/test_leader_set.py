"""Which replicas leave the in-sync set, which join it, and how the leader proposes it."""

from __future__ import annotations

from replication.partition.leader_events import ProposalFailed, ProposeIsr
from tests.replication.partition_stories import LAG_MS, Leader, agreed, all_of, proposed
from tidelog.types import LeaderEpoch, Millis, NodeEpoch, NodeId, PartitionEpoch


def test_a_member_whose_durable_offset_stays_for_the_lag_time_leaves() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 100)
    leader.append(120)
    leader.fetch(2, 120, durable_offset=100)  # it has everything, it holds nothing more
    assert proposed(leader.later(LAG_MS - 100)) is None
    assert proposed(leader.later(300)) == (1,)


def test_a_member_that_keeps_up_with_a_delay_stays() -> None:
    """Behind by less than the lag time, always, and never at the end: it stays."""
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 100)
    for step in range(60):
        leader.append(110 + 10 * step)
        assert proposed(leader.later(100)) is None
        leader.fetch(2, 110 + 10 * step, durable_offset=max(100, 110 + 10 * (step - 7)))


def test_an_idle_member_stays_however_long_it_is_silent() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 100)
    assert proposed(leader.later(50 * LAG_MS)) is None
    leader.append(120)
    assert proposed(leader.later(LAG_MS - 100)) is None, "it has the lag time from the append on"
    assert proposed(leader.later(300)) == (1,)


def test_a_member_that_never_shows_up_leaves() -> None:
    leader = Leader(isr=(1, 2))
    assert proposed(leader.later(LAG_MS - 100)) is None
    assert proposed(leader.later(300)) == (1,)


def test_a_member_leaves_when_the_lag_time_is_over_to_the_millisecond() -> None:
    leader = Leader(isr=(1, 2))
    assert proposed(leader.later(LAG_MS - 1)) is None
    assert proposed(leader.later(1)) == (1,)


def test_a_restarted_member_has_the_lag_time_to_agree_again() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 100)
    leader.later(3 * LAG_MS)
    leader.sees(2, number=2)
    assert proposed(leader.later(LAG_MS - 100)) is None
    assert proposed(leader.later(300)) == (1,)


def test_a_member_seen_as_fenced_is_not_proposed_again() -> None:
    leader = Leader()
    leader.fetch(2, 100)
    leader.fetch(3, 100)
    assert proposed(leader.sees(3, eligible=False)) == (1, 2)


def test_a_replica_joins_when_its_durable_offset_has_reached_the_watermark_and_the_epoch_start() -> None:
    leader = Leader(isr=(1,), watermark=80)
    leader.append(120)
    assert leader.watermark == 120
    assert proposed(leader.fetch(2, 120, durable_offset=110)) is None, (
        "scenario 4: its log reaches, but it does not hold it"
    )
    assert proposed(leader.durable_reported(2, 119)) is None
    assert proposed(leader.durable_reported(2, 120)) == (1, 2)


def test_the_watermark_alone_does_not_let_a_replica_in() -> None:
    """A new leader's watermark may lie far below what is committed; its epoch's start does not."""
    leader = Leader(isr=(1, 2), watermark=80)
    assert proposed(leader.fetch(3, 95, durable_offset=95)) is None
    assert proposed(leader.fetch(3, 100, durable_offset=100)) == (1, 2, 3)


def test_a_replica_seen_as_fenced_draining_or_unknown_is_not_proposed() -> None:
    leader = Leader(isr=(1, 2), watermark=100)
    leader.sees(3, eligible=False)
    assert proposed(leader.fetch(3, 100)) is None
    assert proposed(leader.sees(3)) is None, "it may have ended since"
    assert proposed(leader.fetch(3, 100)) == (1, 2, 3)


def test_each_member_is_named_by_its_registration() -> None:
    """KIP-903: a proposal names the registrations whose fetches the leader has seen."""
    leader = Leader(isr=(1, 2), watermark=100)
    leader.sees(3, number=2)
    [proposal] = all_of(leader.fetch(3, 100, number=2), ProposeIsr)
    assert proposal.members == (
        (NodeId(1), NodeEpoch(10)),
        (NodeId(2), NodeEpoch(20)),
        (NodeId(3), NodeEpoch(31)),
    )
    assert (proposal.leader_epoch, proposal.partition_epoch) == (LeaderEpoch(4), PartitionEpoch(10))


def test_one_proposal_at_a_time_and_a_pause_after_a_refusal() -> None:
    leader = Leader(isr=(1,), watermark=100)
    assert proposed(leader.fetch(2, 100)) == (1, 2)
    assert proposed(leader.fetch(3, 100)) is None
    leader.core.handle(ProposalFailed(PartitionEpoch(9), Millis(leader.now)))
    assert proposed(leader.fetch(3, 100)) is None, "that was about an older one"
    leader.core.handle(ProposalFailed(PartitionEpoch(10), Millis(leader.now)))
    assert proposed(leader.fetch(3, 100)) is None, "not at once"
    leader.now += 250
    assert proposed(leader.fetch(3, 100)) == (1, 2, 3)
    leader.core.handle(ProposalFailed(PartitionEpoch(10), Millis(leader.now)))
    assert proposed(leader.later(250)) == (1, 2, 3), "joiners are asked for again"


def test_a_dead_replica_is_not_admitted_by_its_earlier_reports() -> None:
    leader = Leader(isr=(1, 2), min_insync=2, watermark=100)
    leader.fetch(2, 100)
    leader.metadata_changed(isr=(1,))
    assert proposed(leader.later(2_000)) is None
    assert proposed(leader.fetch(2, 100)) == (1, 2)


def test_a_new_member_has_the_lag_time_to_catch_up_with_the_end() -> None:
    """It joins at the watermark, which may be far behind the end: it must not be thrown out in the same breath."""
    leader = Leader(isr=(1,), min_insync=2, watermark=100)
    leader.append(500)
    leader.later(5 * LAG_MS)
    assert proposed(leader.fetch(2, 120, durable_offset=120)) == (1, 2)
    leader.metadata_changed(isr=(1, 2))
    assert proposed(leader.later(LAG_MS - 100)) is None
    assert proposed(leader.later(300)) == (1,)


def test_a_leader_whose_own_disk_is_behind_resigns_where_another_can_lead() -> None:
    leader = Leader(isr=(1, 2, 3))
    leader.append(120, durable_offset=100)
    leader.fetch(2, 120)
    effects = []
    for _ in range(LAG_MS // 50 + 6):
        leader.fetch(3, 120)
        effects += leader.later(50)
    assert proposed(effects) == (2, 3)


def test_a_leader_whose_own_disk_is_behind_stays_if_no_other_replica_can_lead() -> None:
    leader = Leader(isr=(1,))
    leader.append(120, durable_offset=100)
    assert proposed(leader.later(3 * LAG_MS)) is None
    refused = Leader(isr=(1, 2))
    refused.append(120, durable_offset=100)
    refused.fetch(2, 120)
    assert proposed(refused.later(LAG_MS + 200)) == (2,)
    refused.core.handle(ProposalFailed(PartitionEpoch(10), Millis(refused.now)))
    assert proposed(refused.later(LAG_MS - 100)) is None, "other changes have their turn"
    assert proposed(refused.later(200)) == (2,), "the refusal may be over, or the answer was lost"


def test_a_leader_whose_own_disk_is_behind_resigns_where_an_eligible_replica_can_lead() -> None:
    """It is alone in the set. The other replica is no successor before the metadata name it as eligible, while its node
    is fenced, or while it joins the set: then it is a member, and the next proposal concerns that."""
    leader = Leader(isr=(1,), min_insync=2, watermark=100)
    leader.append(120, durable_offset=100)
    assert proposed(leader.later(LAG_MS + 200)) is None
    leader.elr = (2,)
    leader.sees(2, eligible=False)
    assert proposed(leader.later(LAG_MS)) is None
    effects = leader.sees(2)
    assert proposed(effects + leader.later(50)) == ()
    joins = Leader(isr=(1,), min_insync=2, watermark=100)
    joins.append(120, durable_offset=100)
    joins.later(LAG_MS + 200)
    joins.elr = (2,)
    assert proposed(joins.fetch(2, 110, durable_offset=110)) == (1, 2)


def test_a_node_that_is_no_replica_is_refused() -> None:
    leader = Leader()
    assert not agreed(leader.fetch(1, 100))
    leader.core.in_sync.replicas = leader.core.in_sync.replicas[:2]
    assert not agreed(leader.fetch(3, 100))


def test_what_no_follower_has_yet_begins_at_the_smallest_log_end_of_those_that_fetch() -> None:
    """Compaction keeps markers from there on. A follower that is away keeps nothing."""
    leader = Leader(isr=(1, 2))
    leader.append(120)
    assert leader.core.in_sync.first_unfetched() == 120, "nobody has fetched"
    leader.fetch(2, 120)
    leader.fetch(3, 40)
    assert leader.core.in_sync.first_unfetched() == 40
    leader.sees(3, eligible=False)
    assert leader.core.in_sync.first_unfetched() == 120
