"""AlterPartition: which node may change an in-sync set, from which state, to which members."""

from __future__ import annotations

from replication.controller.events import DeleteTopic, HeartbeatAnswer, Resigned
from replication.controller.image import PartitionState
from tests.replication.controlled import SESSION_MS, Controlled
from tidelog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    RequestTimedOut,
    StaleNodeEpoch,
    UnknownLeaderEpoch,
    UnknownTopicId,
)
from tidelog.types import NO_NODE, NodeEpoch, NodeId


def three() -> Controlled:
    world = Controlled()
    world.start(1, 2, 3)
    world.made()
    return world


def others(world: Controlled) -> tuple[int, int]:
    first, second = (node for node in (1, 2, 3) if node != world.partition().leader)
    return first, second


def test_a_leader_shrinks_and_grows_its_set_and_each_step_raises_the_partition_epoch() -> None:
    world = three()
    leader, (first, second) = world.partition().leader, others(world)
    shrunk = world.propose(leader, first)
    assert isinstance(shrunk, PartitionState)
    assert (set(shrunk.isr), shrunk.partition_epoch, shrunk.leader_epoch) == ({leader, first}, 1, 0)
    grown = world.propose(leader, first, second)
    assert isinstance(grown, PartitionState)
    assert (set(grown.isr), grown.partition_epoch) == ({1, 2, 3}, 2)


def test_an_unchanged_set_raises_the_partition_epoch_so_that_an_older_copy_is_refused() -> None:
    """Scenario 5: the proposal that stalled arrives after the leader has stopped counting the joiner."""
    world = three()
    leader, (first, second) = world.partition().leader, others(world)
    world.propose(leader, first)
    stalled_in = world.partition()
    unchanged = world.propose(leader, first)
    assert isinstance(unchanged, PartitionState)
    assert unchanged.partition_epoch == stalled_in.partition_epoch + 1
    assert isinstance(world.propose(leader, first, second, state=stalled_in), InvalidUpdateVersion)


def test_a_copy_of_an_accepted_proposal_is_refused() -> None:
    world = three()
    leader, (first, second) = world.partition().leader, others(world)
    state = world.partition()
    assert isinstance(world.propose(leader, first, state=state), PartitionState)
    assert isinstance(world.propose(leader, first, state=state), InvalidUpdateVersion)
    assert second not in world.partition().isr


def test_only_proposals_of_the_present_epochs_leader_are_accepted() -> None:
    world = three()
    leader, (first, _) = world.partition().leader, others(world)
    assert isinstance(world.propose(first, by=first), InvalidRequest)
    assert isinstance(world.propose(leader, leader_epoch=-1), FencedLeaderEpoch)
    assert isinstance(world.propose(leader, leader_epoch=5), UnknownLeaderEpoch)
    world.numbers[NodeId(leader)] = NodeEpoch(world.numbers[NodeId(leader)] - 1)
    assert isinstance(world.propose(leader), StaleNodeEpoch)


def test_a_topic_created_again_ignores_the_leader_of_the_former_one() -> None:
    """Scenario 12."""
    world = three()
    old = world.partition()
    world.ask(DeleteTopic("orders"))
    world.made()
    assert isinstance(world.propose(old.leader, state=old), UnknownTopicId)


def test_a_set_must_be_a_part_of_the_replicas_named_once_each() -> None:
    world = Controlled()
    world.start(1, 2, 3, 4)
    leader = world.made().leader
    (stranger,) = {1, 2, 3, 4} - set(world.partition().replicas)
    assert isinstance(world.propose(leader, stranger), InvalidRequest)
    assert isinstance(world.propose(leader, leader), InvalidRequest)
    assert isinstance(world.propose(by=leader), InvalidRequest)


def test_a_fenced_node_is_not_admitted() -> None:
    """KIP-841."""
    world = three()
    leader, (first, second) = world.partition().leader, others(world)
    world.pass_time(SESSION_MS + 200, leader, first)
    assert isinstance(world.propose(leader, first, second), IneligibleReplica)
    world.beat(second)
    assert isinstance(world.propose(leader, first, second), PartitionState)


def test_an_earlier_incarnation_of_a_node_is_not_admitted() -> None:
    """KIP-903: the leader has seen the position of an incarnation that is gone."""
    world = three()
    leader, (first, second) = world.partition().leader, others(world)
    old = world.numbers[NodeId(second)]
    world.pass_time(SESSION_MS + 200, leader, first)
    world.start(second, run_number=2)
    assert isinstance(world.propose(leader, first, second, epochs={second: old}), IneligibleReplica)
    assert isinstance(world.propose(leader, first, second), PartitionState)


def test_a_draining_node_is_not_admitted() -> None:
    world = three()
    leader, (first, second) = world.partition().leader, others(world)
    world.beat(first, offset=0)  # far behind: the drain waits for it
    assert world.beat(second, drain=True) == HeartbeatAnswer(fenced=False, drained=False)
    assert second not in world.partition().isr
    assert isinstance(world.propose(leader, first, second), IneligibleReplica)


def test_a_proposal_is_judged_by_the_appended_image_not_by_the_committed_one() -> None:
    """Scenario 6: an election that is appended but not committed counts already."""
    world = three()
    leader, (first, second) = world.partition().leader, others(world)
    before = world.partition()
    world.hold_commits = True
    world.pass_time(SESSION_MS + 200, first, second)  # the leader is fenced; another is elected, not committed yet
    assert world.partition().leader in (first, second)
    assert world.propose(leader, first, second, by=leader, state=before) is None
    world.commit()
    answer = world.replies[world.requests]
    assert isinstance(answer.partitions[0].outcome, FencedLeaderEpoch)  # type: ignore[union-attr]


def test_nothing_is_answered_before_it_is_committed() -> None:
    world = three()
    leader, (first, _) = world.partition().leader, others(world)
    world.hold_commits = True
    assert world.propose(leader, first) is None
    world.commit(world.end - 1)
    assert world.requests not in world.replies
    world.commit()
    assert world.requests in world.replies


def test_a_leader_that_leaves_itself_out_resigns_if_another_can_lead() -> None:
    world = three()
    leader, (first, second) = world.partition().leader, others(world)
    resigned = world.propose(first, second, by=leader)
    assert isinstance(resigned, PartitionState)
    assert resigned.leader in (first, second)
    assert resigned.leader_epoch == 1
    assert resigned.leader != NO_NODE


def test_a_resigning_controller_leaves_outcomes_unknown_and_rejects_later_requests() -> None:
    world = three()
    leader, (first, _) = world.partition().leader, others(world)
    world.hold_commits = True
    assert world.propose(leader, first) is None
    world.handle(Resigned())
    assert isinstance(world.replies[world.requests], RequestTimedOut)
    assert isinstance(world.propose(leader, first), NotController)


# --- drain ---


def test_a_drain_moves_leaderships_away_and_ends_once_the_others_know() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    world.made(partitions=6)
    behind = world.end
    world.beat(2, offset=behind)
    world.beat(3, offset=behind)
    assert world.beat(1, drain=True) == HeartbeatAnswer(fenced=False, drained=False)
    assert all(state.leader in (2, 3) and 1 not in state.isr for state in world.topic().partitions)
    world.beat(2)
    assert world.beat(1, drain=True) == HeartbeatAnswer(fenced=False, drained=False)
    world.beat(3)
    assert world.beat(1, drain=True) == HeartbeatAnswer(fenced=True, drained=True)
    assert world.node(1).fenced


def test_a_drain_does_not_wait_for_ever() -> None:
    world = Controlled()
    world.start(1, 2)
    world.made(replicas=2)
    world.beat(2, offset=0)
    assert world.beat(1, drain=True) == HeartbeatAnswer(fenced=False, drained=False)
    for _ in range(160):
        world.now += 200  # type: ignore[assignment]
        world.beat(2, offset=0)
        answer = world.beat(1, drain=True)
        if answer == HeartbeatAnswer(fenced=True, drained=True):
            break
    assert world.now - 10_000 == 30_000


def test_a_drained_node_may_start_again_at_once() -> None:
    world = Controlled()
    world.start(1)
    assert world.beat(1, drain=True) == HeartbeatAnswer(fenced=True, drained=True)
    world.start(1, run_number=2)


def test_a_late_heartbeat_of_a_drained_node_brings_it_back_to_nothing() -> None:
    """The heartbeat was sent before the stop and arrives after the process has ended: the node stays fenced, and its
    next incarnation need not wait for a session to end."""
    world = Controlled()
    world.start(1)
    sent_at = world.end
    assert world.beat(1, drain=True) == HeartbeatAnswer(fenced=True, drained=True)
    world.beat(1, offset=sent_at)
    assert world.node(1).fenced
    world.start(1, run_number=2)


def test_nor_does_one_of_a_node_that_was_drained_before_it_was_ready() -> None:
    """The node was stopped while fenced; its earlier heartbeats are still in flight."""
    world = Controlled()
    world.start(1, 2, 3)
    world.made()
    world.kill(1, alive=(2, 3))
    late = world.end
    assert world.beat(1, drain=True) == HeartbeatAnswer(fenced=True, drained=True)
    assert world.beat(1, offset=late) == HeartbeatAnswer(fenced=True, drained=False)
    assert world.node(1).fenced
    end = world.end
    assert world.beat(1, drain=True) == HeartbeatAnswer(fenced=True, drained=True), "asked again, it says the same"
    assert world.end == end
    world.start(1, run_number=2)
    assert not world.node(1).fenced


def test_a_drain_that_another_sender_requested_ends_with_the_next_heartbeat() -> None:
    """One forged heartbeat drains the node, a second one ends the drain, one also fences a node for good that is not
    unfenced yet: the node's own heartbeats, sent after it knows that, undo each of them."""
    world = three()
    for forged in (1, 2):
        for _ in range(forged):
            for other in (2, 3):
                world.beat(other)
            world.beat(1, drain=True)
        assert world.node(1).draining
        assert world.node(1).fenced is (forged == 2)
        assert world.beat(1) == HeartbeatAnswer(fenced=False, drained=False)
        assert not world.node(1).draining
    world.kill(1, alive=(2, 3))
    world.beat(1, drain=True)
    assert world.beat(1, ready=False) == HeartbeatAnswer(fenced=True, drained=False)
    assert not world.node(1).draining
    assert world.beat(1) == HeartbeatAnswer(fenced=False, drained=False)
    assert any("does not stop" in report for report in world.reports)


def test_a_late_heartbeat_does_not_end_a_drain_also_after_a_change_of_the_controller() -> None:
    world = three()
    sent_at = world.end
    world.beat(2, offset=0)  # far behind: the drain waits for it
    assert world.beat(1, drain=True) == HeartbeatAnswer(fenced=False, drained=False)
    for _ in range(2):
        world.beat(1, offset=sent_at)
        assert world.node(1).draining
        assert not world.node(1).fenced
        world.activate()
    for node in (2, 3):
        world.beat(node)
    assert world.beat(1, drain=True) == HeartbeatAnswer(fenced=True, drained=True)
    for _ in range(2):
        world.beat(1, offset=sent_at)
        assert world.node(1).fenced
        world.activate()
    world.beat(1)
    assert not world.node(1).fenced, "its process is alive"


def test_all_nodes_drain_at_once_and_the_last_one_keeps_the_set() -> None:
    """Scenario 16: no node waits for another, and the last in-sync replica leads again when it returns."""
    world = three()
    for node in (1, 2, 3):
        assert world.beat(node, drain=True) is not None
    for node in (1, 2, 3):
        if not world.node(node).fenced:
            assert world.beat(node, drain=True) == HeartbeatAnswer(fenced=True, drained=True)
    (last,) = world.partition().isr
    assert world.partition().leader == NO_NODE
    world.start(1, 2, 3, run_number=2)
    assert world.partition().leader == last


def test_whom_a_draining_leader_admits_takes_over_at_once() -> None:
    world = Controlled()
    world.start(1, 2)
    leader = world.made(replicas=2).leader
    other = 3 - leader
    world.propose(leader)
    world.create("other", partitions=2, replicas=2)  # something to move, so that the drain waits for the other node
    world.beat(other, offset=0)
    assert world.beat(leader, drain=True) == HeartbeatAnswer(fenced=False, drained=False)
    assert world.partition().leader == leader
    state = world.propose(leader, other)
    assert isinstance(state, PartitionState)
    assert (state.leader, state.isr) == (other, (other,))
