"""A node whose address refuses connections is fenced by two witnesses, and by nothing less."""

from __future__ import annotations

from collections.abc import Iterable

from replication.controller.events import HeartbeatAnswer
from replication.controller.node_state import NodeCause
from replication.controller.refusals import ASK_MS, REPORT_MS, RefusedNode
from tests.replication.controlled import SESSION_MS, Controlled
from tidelog.errors import TidelogError
from tidelog.types import NO_NODE, Millis, NodeEpoch, NodeId

UNFENCED = HeartbeatAnswer(fenced=False, drained=False)
FENCED = HeartbeatAnswer(fenced=True, drained=False)


def cluster(*nodes: int) -> Controlled:
    world = Controlled()
    world.start(*(nodes or (1, 2, 3)))
    return world


def dead(world: Controlled, node: int) -> list[RefusedNode]:
    """A report about the present registration of a node."""
    return [RefusedNode(NodeId(node), world.numbers[NodeId(node)])]


def asked(world: Controlled, node: int, refused: Iterable[RefusedNode] = ()) -> tuple[int, ...]:
    """The nodes that the answer to the heartbeat of `node` asks it to probe."""
    answer = world.beat(node, refused=refused)
    assert isinstance(answer, HeartbeatAnswer)
    return answer.probe


def test_two_witnesses_fence_a_dead_leader_and_another_replica_leads() -> None:
    world = cluster()
    state = world.made(min_insync_replicas="2")
    leader = int(state.leader)
    first, second = (node for node in (1, 2, 3) if node != leader)
    world.beat(first, refused=dead(world, leader))
    assert not world.node(leader).fenced
    assert world.probed == [leader], "the controller's own node is to probe it too"
    world.beat(second, refused=dead(world, leader))
    assert world.node(leader).fenced
    assert world.fencings == [(NodeId(leader), NodeCause.REFUSED)]
    assert "start it again" in world.reports[-1]
    assert world.partition().leader in (first, second)
    assert leader not in world.partition().isr


def test_one_witness_is_not_enough_however_often_it_reports() -> None:
    world = cluster()
    for _ in range(5):
        world.beat(2, refused=dead(world, 1))
    world.beat(1, refused=dead(world, 1))
    assert not world.node(1).fenced, "a report of the node itself is none"


def test_a_report_is_withdrawn_by_the_next_heartbeat_without_it() -> None:
    world = cluster()
    world.beat(2, refused=dead(world, 1))
    world.beat(2)
    world.beat(3, refused=dead(world, 1))
    assert not world.node(1).fenced


def test_an_old_report_does_not_count() -> None:
    world = cluster()
    world.beat(2, refused=dead(world, 1))
    world.now = Millis(world.now + REPORT_MS + 1)
    world.beat(3, refused=dead(world, 1))
    assert not world.node(1).fenced
    world.beat(2, refused=dead(world, 1))
    assert world.node(1).fenced


def test_a_heartbeat_of_the_process_removes_the_reports_about_it() -> None:
    world = cluster()
    world.beat(2, refused=dead(world, 1))
    world.beat(1)
    world.beat(3, refused=dead(world, 1))
    assert not world.node(1).fenced


def test_a_report_about_a_former_process_does_not_fence_its_successor() -> None:
    world = cluster()
    before = dead(world, 1)
    world.beat(2, refused=before)
    world.register(1, run_number=2)
    world.beat(1)
    assert not world.node(1).fenced
    for witness in (2, 3):
        world.beat(witness, refused=before)
    assert not world.node(1).fenced


def test_reports_about_unknown_or_future_registrations_are_ignored() -> None:
    world = cluster()
    named = [RefusedNode(NodeId(1), NodeEpoch(world.numbers[NodeId(1)] + 1)), RefusedNode(NodeId(77), NodeEpoch(3))]
    for witness in (2, 3):
        assert world.beat(witness, refused=named) == UNFENCED
    assert not world.node(1).fenced


def test_a_heartbeat_that_names_many_costs_what_the_nodes_of_the_cluster_cost() -> None:
    """A faulty node names registrations that do not exist, and the same one many times."""
    world = cluster()
    invented = [RefusedNode(NodeId(number), NodeEpoch(3)) for number in range(100, 10_100)]
    world.beat(2, refused=[*invented, *dead(world, 1) * 10_000, *dead(world, 2)])
    assert world.probed == [1]
    assert world.controller._refusals._reports.keys() == set(dead(world, 1))


def test_others_are_asked_to_probe_while_one_witness_reports() -> None:
    """No other node may have connections to the dead one."""
    world = cluster(1, 2, 3, 4)
    assert asked(world, 2, refused=dead(world, 1)) == (), "it reports already"
    assert asked(world, 1) == (), "nor is the subject asked, which proves that it runs"
    world.beat(2, refused=dead(world, 1))
    assert asked(world, 3) == (1,)
    world.beat(3, refused=dead(world, 1))
    assert world.node(1).fenced
    assert asked(world, 4) == ()


def test_one_node_at_a_time_is_asked_so_that_a_bad_link_costs_little() -> None:
    world = cluster(1, 2, 3, 4)
    world.beat(2, refused=dead(world, 1))
    assert asked(world, 3) == (1,)
    assert asked(world, 4) == ()
    world.now = Millis(world.now + ASK_MS)
    assert asked(world, 4) == (1,)
    world.now = Millis(world.now + REPORT_MS)
    assert asked(world, 3) == (), "the report is old"


def test_nobody_is_asked_about_a_process_that_contradicted_its_fencing() -> None:
    world = cluster(1, 2, 3, 4)
    for witness in (2, 3):
        world.beat(witness, refused=dead(world, 1))
    world.beat(1)
    world.beat(2, refused=dead(world, 1))
    assert asked(world, 4) == ()


def test_a_fenced_node_is_no_witness() -> None:
    """It may be fenced because its own connections fail."""
    world = cluster(1, 2, 3, 4)
    world.register(4, run_number=2)
    world.beat(2, refused=dead(world, 1))
    world.beat(4, ready=False, refused=dead(world, 1))
    assert not world.node(1).fenced


def test_a_process_that_contradicts_its_fencing_is_not_fenced_again_by_reports() -> None:
    world = cluster()
    for witness in (2, 3):
        world.beat(witness, refused=dead(world, 1))
    assert world.node(1).fenced
    assert world.beat(1) == UNFENCED
    assert "check firewalls" in world.reports[-1]
    for witness in (2, 3, 2, 3):
        world.beat(witness, refused=dead(world, 1))
    assert not world.node(1).fenced
    world.pass_time(SESSION_MS + 200, 2, 3)
    assert world.node(1).fenced, "its session still ends"
    assert world.fencings[-1] == (NodeId(1), NodeCause.SESSION_ENDED)


def test_a_heartbeat_from_before_the_fencing_does_not_end_it() -> None:
    """The process is dead; its last heartbeat was delayed."""
    world = cluster()
    before = world.end
    for witness in (2, 3):
        world.beat(witness, refused=dead(world, 1))
    assert world.beat(1, offset=before) == FENCED
    assert world.node(1).fenced
    assert world.beat(1) == UNFENCED, "a heartbeat after it proves that the process runs"


def test_nor_does_it_end_the_fencing_of_a_session_that_ended() -> None:
    world = cluster()
    before = world.end
    world.kill(1, alive=(2, 3))
    assert world.beat(1, offset=before) == FENCED
    assert world.node(1).fenced
    assert world.beat(1) == UNFENCED


def test_nor_does_it_under_a_new_controller_which_knows_no_cause_of_the_fencing() -> None:
    world = cluster()
    before = world.end
    for witness in (2, 3):
        world.beat(witness, refused=dead(world, 1))
    world.activate()
    world.beat(1, offset=before)
    assert world.node(1).fenced
    assert world.beat(1) == UNFENCED


def test_the_next_process_of_such_a_node_may_be_reported_again() -> None:
    world = cluster()
    for witness in (2, 3):
        world.beat(witness, refused=dead(world, 1))
    world.beat(1)
    world.start(1, run_number=2)
    for witness in (2, 3):
        world.beat(witness, refused=dead(world, 1))
    assert world.node(1).fenced


def test_a_draining_process_that_dies_is_stopped() -> None:
    world = cluster()
    world.made()
    world.beat(1, drain=True)
    for witness in (2, 3):
        world.beat(witness, refused=dead(world, 1))
    assert world.node(1).fenced
    assert world.node(1).draining


def test_a_new_controller_knows_no_reports_of_the_former_one() -> None:
    world = cluster()
    world.beat(2, refused=dead(world, 1))
    world.activate()
    world.beat(3, refused=dead(world, 1))
    assert not world.node(1).fenced


def test_the_last_member_stays_in_its_set_when_it_is_refused() -> None:
    """Nothing acknowledged is lost by a wrong report: no replica without all records is elected."""
    world = cluster()
    state = world.made(min_insync_replicas="1")
    leader = int(state.leader)
    answer = world.propose(leader)
    assert not isinstance(answer, TidelogError)
    for witness in (node for node in (1, 2, 3) if node != leader):
        world.beat(witness, refused=dead(world, leader))
    assert world.partition().leader == NO_NODE
    assert world.partition().isr == (leader,)
    world.beat(leader)
    assert world.partition().leader == leader
