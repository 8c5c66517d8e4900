"""How far a partition is committed: the high watermark over the maximal in-sync set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replication.partition.leader_events import CommitUpTo, ProposalAccepted, ProposalFailed
from tests.replication.partition_stories import EPOCH, G, Leader, agreed, all_of, proposed
from tidelog.types import LeaderEpoch, Millis, NodeId, Offset, PartitionEpoch


def test_the_watermark_is_the_smallest_durable_offset_of_the_members() -> None:
    leader = Leader()
    leader.append(120)
    leader.fetch(2, 120)
    assert leader.watermark == 80  # node 3 has not said anything yet
    effects = leader.fetch(3, 110)
    assert all_of(effects, CommitUpTo) == [CommitUpTo(Offset(110))]
    assert leader.watermark == 110


def test_a_followers_records_count_only_once_they_are_durable() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(120)
    leader.fetch(2, 120, durable_offset=100)
    assert leader.watermark == 100
    leader.durable_reported(2, 115)
    assert leader.watermark == 115


def test_records_must_be_durable_on_the_leader_too() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(120, durable_offset=100)
    leader.fetch(2, 120)
    assert leader.watermark == 100
    leader.holds(120)
    assert leader.watermark == 120


def test_a_leader_alone_commits_its_durable_records() -> None:
    leader = Leader(isr=(1,))
    leader.append(120, durable_offset=100)
    assert leader.watermark == 100
    leader.holds(120)
    assert leader.watermark == 120


def test_the_watermark_never_moves_back() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(120)
    leader.fetch(2, 120)
    assert leader.watermark == 120
    assert all_of(leader.fetch(2, 110), CommitUpTo) == []
    assert leader.watermark == 120


def test_the_watermark_does_not_advance_while_the_set_is_too_small() -> None:
    """KIP-966: with min.insync.replicas=2 a leader alone commits nothing, not even for acks=1."""
    leader = Leader(isr=(1, 2), min_insync=2)
    leader.append(120)
    leader.metadata_changed(isr=(1,))
    assert leader.watermark == 80
    leader.holds(120)
    assert leader.watermark == 80
    leader.fetch(2, 120)
    leader.metadata_changed(isr=(1, 2))
    assert leader.watermark == 120


def test_a_raised_minimum_stops_the_watermark_at_once() -> None:
    """Scenario 6: the minimum and the set come together, by partition epoch."""
    leader = Leader(isr=(1,), min_insync=1)
    leader.append(120)
    assert leader.watermark == 120
    leader.metadata_changed(min_insync=2)
    leader.append(130)
    assert leader.watermark == 120


def test_an_answer_that_skips_a_change_waits_for_the_metadata() -> None:
    """Scenario 6: the answer to a proposal names the set alone; a change between may have raised the minimum."""
    leader = Leader(isr=(1, 2), min_insync=1)
    leader.append(120)
    leader.core.handle(ProposalAccepted(EPOCH, PartitionEpoch(12), (NodeId(1),), Millis(0)))
    assert leader.watermark == 80, "node 2 still counts"
    leader.core.handle(ProposalAccepted(EPOCH, PartitionEpoch(11), (NodeId(1),), Millis(0)))
    assert leader.watermark == 120


# --- joiners and leavers ---


def with_straggler() -> Leader:
    """Node 3 is out of the set and has caught up to 100 when the leader's end is 100."""
    leader = Leader(isr=(1, 2), watermark=100)
    leader.fetch(2, 100)
    return leader


def test_a_joiner_counts_from_the_proposal_on() -> None:
    leader = with_straggler()
    assert proposed(leader.fetch(3, 100)) == (1, 2, 3)
    leader.append(120)
    leader.fetch(2, 120)
    assert leader.watermark == 100, "node 3 may be in the set already"


def test_a_joiner_counts_after_a_rejection_and_without_an_answer() -> None:
    """Scenario 5: a copy of the refused proposal may still arrive and be valid."""
    leader = with_straggler()
    leader.fetch(3, 100)
    leader.core.handle(ProposalFailed(PartitionEpoch(10), Millis(0)))
    leader.sees(3, eligible=False)
    leader.append(120)
    leader.fetch(2, 120)
    assert leader.watermark == 100


def test_a_further_proposal_ends_it_even_with_an_unchanged_set() -> None:
    leader = with_straggler()
    leader.fetch(3, 100)
    leader.core.handle(ProposalFailed(PartitionEpoch(10), Millis(0)))
    leader.sees(3, eligible=False)
    leader.append(120)
    leader.fetch(2, 120)
    assert proposed(leader.later(250)) == (1, 2), "the set as it is: it raises the partition epoch"
    assert leader.watermark == 100, "asking is not knowing"
    leader.core.handle(ProposalAccepted(EPOCH, PartitionEpoch(11), (NodeId(1), NodeId(2)), Millis(leader.now)))
    assert leader.watermark == 120


def test_metadata_of_the_same_partition_epoch_change_nothing() -> None:
    """Scenario 5, variant: an older answer, or metadata sent twice, must not drop the joiner."""
    leader = with_straggler()
    leader.fetch(3, 100)
    leader.append(120)
    leader.fetch(2, 120)
    leader.core.handle(leader.known())
    leader.core.handle(ProposalAccepted(EPOCH, PartitionEpoch(10), (NodeId(1), NodeId(2)), Millis(0)))
    leader.core.handle(ProposalAccepted(LeaderEpoch(3), PartitionEpoch(11), (NodeId(1), NodeId(2)), Millis(0)))
    assert leader.watermark == 100


def test_a_leaver_counts_until_its_removal_is_known() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 100)
    leader.append(120)
    assert proposed(leader.later(2_000)) == (1,)
    assert leader.watermark == 100
    leader.metadata_changed(isr=(1,))
    assert leader.watermark == 120


# --- whose word counts ---


def test_the_progress_starts_empty() -> None:
    """A leader knows no position of a follower until a fetch agrees in its own epoch, even of members of the set."""
    leader = Leader()
    leader.append(120)
    leader.durable_reported(2, 120)
    leader.durable_reported(3, 120)
    assert leader.watermark == 80


def test_positions_of_a_diverging_fetch_do_not_count() -> None:
    """Scenario 2: node 2 had 100 of epoch 3, the leader's epoch 3 ends at 90."""
    leader = Leader(isr=(1, 2), log_end=90)
    leader.append(120)
    assert not agreed(leader.fetch(2, 100, last_epoch=3))
    leader.durable_reported(2, 100)
    assert leader.watermark == 80
    assert agreed(leader.fetch(2, 90, last_epoch=3, durable_offset=85))
    assert leader.watermark == 85


def test_a_diverging_fetch_clears_the_progress() -> None:
    leader = Leader(isr=(1, 2), log_end=90)
    leader.fetch(2, 90, last_epoch=3, durable_offset=85)
    leader.fetch(2, 100, last_epoch=3)
    leader.durable_reported(2, 90)
    assert leader.watermark == 85


def test_a_report_of_another_epoch_does_not_count() -> None:
    """Scenario 2, variant: a report of epoch 3 reaches the same leader in epoch 5."""
    leader = Leader(isr=(1, 2))
    leader.append(120)
    leader.fetch(2, 110, durable_offset=90)
    leader.durable_reported(2, 110, epoch=3)
    leader.durable_reported(2, 110, epoch=5)
    assert leader.watermark == 90


def test_a_report_from_an_older_stream_does_not_count() -> None:
    """Scenario 2, variant: the old stream's last report overtakes the new one."""
    leader = Leader(isr=(1, 2))
    leader.append(120)
    leader.fetch(2, 110, durable_offset=90, session=1)
    leader.fetch(2, 110, durable_offset=90, session=2)
    leader.durable_reported(2, 110, session=1)
    assert leader.watermark == 90
    leader.durable_reported(2, 110, session=2, number=2)
    assert leader.watermark == 90, "nor from another incarnation, on whichever stream"
    leader.durable_reported(2, 110, session=2)
    assert leader.watermark == 110


def test_a_restarted_follower_counts_for_nothing_until_it_agrees_again() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(120)
    leader.fetch(2, 110, durable_offset=90)
    leader.sees(2, number=2)
    leader.durable_reported(2, 110)
    leader.durable_reported(2, 110, number=2)
    assert leader.watermark == 90
    assert not agreed(leader.fetch(2, 110, number=1)), "its earlier incarnation has ended"
    assert agreed(leader.fetch(2, 105, number=2))
    assert leader.watermark == 105


def test_a_position_beyond_the_leaders_log_end_does_not_count() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 100)
    leader.append(120)
    leader.durable_reported(2, 130)
    assert leader.watermark == 100


def test_a_report_of_more_than_its_fetch_had_does_not_count() -> None:
    """Scenario 2, variant: a report from before a truncation arrives after the fetch that followed the truncation."""
    leader = Leader(isr=(1, 2))
    leader.append(120)
    leader.fetch(2, 105, durable_offset=90)
    leader.durable_reported(2, 110)
    assert leader.watermark == 90
    leader.durable_reported(2, 105)
    assert leader.watermark == 105


# --- against an obvious twin ---


class SlowTwin:
    """The same rule in its simplest form: the minimum of the last reports of the counted replicas, never decreasing."""

    def __init__(self, isr: set[int]) -> None:
        self.isr, self.joiners = set(isr), set[int]()
        self.durable_offset: dict[int, int] = {1: 100}
        self.watermark, self.min_insync = 80, 2

    def settle(self) -> None:
        counted = self.isr | self.joiners | {1}
        if len(self.isr) >= self.min_insync and counted <= self.durable_offset.keys():
            self.watermark = max(self.watermark, min(self.durable_offset[node] for node in counted))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 20)),
        st.tuples(st.just("fetch"), st.sampled_from([2, 3]), st.integers(0, 60), st.integers(0, 30)),
        st.tuples(st.just("restart"), st.sampled_from([2, 3])),
        st.tuples(st.just("refused")),
        st.tuples(st.just("news"), st.sets(st.sampled_from([2, 3]))),
        st.tuples(st.just("later"), st.integers(50, 400)),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_watermark_equals_that_of_a_slow_and_obvious_twin(steps: list[tuple[object, ...]]) -> None:
    leader, twin = Leader(isr=(1, 2), min_insync=2), SlowTwin({1, 2})
    end, run_numbers = 100, {2: 1, 3: 1}
    for step in steps:
        effects = []
        match step:
            case ("append", int(count)):
                end += count
                effects = leader.append(end)
                twin.durable_offset[1] = end
            case ("fetch", int(node), int(behind), int(unsynced)):
                offset = max(end - behind, 0)
                epoch = 4 if offset > 100 else 3 if offset > 60 else 1
                durable_offset = max(offset - unsynced, 0)
                effects = leader.fetch(
                    node, offset, durable_offset=durable_offset, last_epoch=epoch, number=run_numbers[node]
                )
                twin.durable_offset[node] = durable_offset
            case ("restart", int(node)):
                run_numbers[node] += 1
                effects = leader.sees(node, number=run_numbers[node])
                twin.durable_offset.pop(node, None)
            case ("refused",):
                leader.core.handle(ProposalFailed(PartitionEpoch(leader.partition_epoch), Millis(leader.now)))
            case ("news", set(others)):
                twin.isr, twin.joiners = {1, *others}, set()
                effects = leader.metadata_changed(isr=(1, *sorted(others)))
            case ("later", int(ms)):
                effects = leader.later(ms)
        before = leader.watermark
        twin.settle()
        if (members := proposed(effects)) is not None:
            twin.joiners |= set(members) - twin.isr
        assert leader.watermark == twin.watermark
        assert leader.watermark >= before
        assert set(leader.core.in_sync.counted) == twin.isr | twin.joiners | {1}
    assert G in leader.core.in_sync.replicas
