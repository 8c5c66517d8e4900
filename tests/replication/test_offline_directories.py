"""A log directory fails while its node runs: the heartbeat reports it, and its replicas leave their sets (KIP-858)."""

from __future__ import annotations

from replication.controller.events import HeartbeatAnswer, Registered
from replication.controller.explain import explain
from replication.controller.image import EMPTY, apply
from replication.controller.image_records import records_of
from tests.replication.controlled import Controlled, directory
from tidelog.errors import IneligibleReplica
from tidelog.types import NO_NODE, DirectoryId, NodeId, Offset

UNFENCED = HeartbeatAnswer(fenced=False, drained=False)


def second(node: int) -> DirectoryId:
    """The second log directory of a node; the first one contains the metadata log."""
    return directory(node + 50)


def start(world: Controlled, *nodes: int, run_number: int = 1) -> None:
    """Nodes with two directories each."""
    for node in nodes:
        named = {each: int(world.on_disk.get(each, -1)) for each in (directory(node), second(node))}
        answer = world.register(node, run_number=run_number, directories=named)
        assert isinstance(answer, Registered), answer
        world.on_disk.update(dict.fromkeys(named, answer.node_epoch))
        assert world.beat(node) == UNFENCED


def world_of(*nodes: int, min_insync: int = 1) -> tuple[Controlled, int]:
    """Twelve partitions. Returns the world, and the number of one whose followers are in second directories."""
    world = Controlled()
    start(world, *nodes)
    world.made(partitions=12, min_insync_replicas=str(min_insync))
    here = (
        state.partition
        for state in world.topic().partitions
        if state.directories[1:] == (*map(second, state.replicas[1:]),)
    )
    return world, next(here)


def test_followers_in_a_failed_directory_leave_their_sets_at_once() -> None:
    world, p = world_of(1, 2, 3)
    before = world.topic().partitions
    leader, victim, other = before[p].replicas
    assert world.beat(victim, offline=[second(victim)]) == UNFENCED
    after = world.partition(p)
    assert (after.isr, after.leader, after.leader_epoch) == ((leader, other), leader, before[p].leader_epoch)
    for was, state in zip(before, world.topic().partitions, strict=True):
        if was.directory_of(victim) == directory(victim):
            assert state == was, "its other directory works"
        else:
            assert victim not in state.isr
    assert any(str(second(victim)) in report for report in world.reports)
    end = world.end
    world.beat(victim, offline=[second(victim)])
    assert world.end == end, "every heartbeat repeats it, and only the first one changes anything"


def test_leaderships_in_a_failed_directory_move_in_the_same_record() -> None:
    world, _ = world_of(1, 2, 3)
    led = next(state for state in world.topic().partitions if state.directories[0] == second(state.leader))
    world.beat(led.leader, offline=[second(led.leader)])
    after = world.partition(led.partition)
    assert after.leader == led.replicas[1]
    assert (after.leader_epoch, after.partition_epoch) == (led.leader_epoch + 1, led.partition_epoch + 1)
    assert led.leader not in after.isr


def test_replicas_stay_in_a_failed_directory_until_the_node_registers_without_it() -> None:
    """Started again, the node may find the directory well: then nothing need be sent again."""
    world, p = world_of(1, 2, 3)
    before = [state.directories for state in world.topic().partitions]
    victim = world.partition(p).replicas[1]
    world.beat(victim, offline=[second(victim)])
    assert [state.directories for state in world.topic().partitions] == before
    start(world, victim, run_number=2)
    assert [state.directories for state in world.topic().partitions] == before
    world.beat(victim, offline=[second(victim)])
    world.register(victim, run_number=3, directories={directory(victim): world.on_disk[directory(victim)]})
    assert {state.directory_of(victim) for state in world.topic().partitions} == {directory(victim)}


def test_the_last_member_stays_and_no_replica_leads() -> None:
    world, p = world_of(1, 2, 3)
    state = world.partition(p)
    leader, victim, _ = state.replicas
    world.reassign(state.key, (victim,))
    world.propose(leader, victim, state=world.partition(p))
    alone = world.partition(p)
    assert (alone.replicas, alone.leader, alone.isr) == ((victim,), victim, (victim,))
    world.beat(victim, offline=[second(victim)])
    after = world.partition(p)
    assert (after.leader, after.isr, after.directory_of(NodeId(victim))) == (NO_NODE, (victim,), second(victim))
    explanation = explain(world.image, after)
    assert "has failed" in explanation.causes[0] and "restart the node" in explanation.causes[0]
    start(world, victim, run_number=2)
    assert world.partition(p).leader == victim, "the directory works again: it leads with what it has"


def test_an_eligible_replica_keeps_its_place_and_does_not_lead_meanwhile() -> None:
    """It has all that is committed: nothing was, since it left."""
    world, p = world_of(1, 2, 3, min_insync=3)
    leader, victim, other = world.partition(p).replicas
    world.beat(victim, offline=[second(victim)])
    assert world.partition(p).elr == (victim,)
    assert world.partition(p).directory_of(victim) == second(victim)
    world.kill(leader, other, alive=(victim,))
    after = world.partition(p)
    assert (after.leader, victim in after.elr) == (NO_NODE, True)
    start(world, victim, run_number=2)
    assert world.partition(p).leader == victim


def test_a_late_proposal_admits_no_replica_in_a_failed_directory() -> None:
    world, p = world_of(1, 2, 3)
    leader, victim, other = world.partition(p).replicas
    world.propose(leader, other, state=world.partition(p))
    world.beat(victim, offline=[second(victim)])
    refusal = world.propose(leader, other, victim, state=world.partition(p))
    assert isinstance(refusal, IneligibleReplica) and "directory" in refusal.message


def test_new_replicas_go_to_the_directory_that_works() -> None:
    world, _ = world_of(1, 2, 3)
    world.beat(2, offline=[second(2)])
    world.made("later", partitions=6)
    assert {state.directory_of(NodeId(2)) for state in world.topic("later").partitions} == {directory(2)}


def test_the_directory_of_the_metadata_log_is_never_taken_out() -> None:
    """A node without it ends; taken for another voter, its quorum would change meanwhile."""
    world, _ = world_of(1, 2, 3)
    before = world.image
    world.beat(2, offline=[directory(2)])
    assert world.image == before


def test_an_older_copy_of_the_failed_directory_is_known_as_one() -> None:
    """The node continues without it; only that very directory is accepted again."""
    world, p = world_of(1, 2, 3)
    victim = world.partition(p).replicas[1]
    number = world.on_disk[second(victim)]
    world.beat(victim, offline=[second(victim)])
    assert world.node(victim).known_directories()[second(victim)] == number
    assert [each.directory_id for each in world.node(victim).directories] == [directory(victim)]


def test_a_snapshot_contains_the_same() -> None:
    world, _ = world_of(1, 2, 3)
    world.beat(2, offline=[second(2)])
    again = apply(EMPTY, [(Offset(number), record) for number, record in enumerate(records_of(world.image))])
    assert again.nodes == world.image.nodes


def test_at_an_older_feature_level_no_such_record_is_written() -> None:
    """A node of an older version would take the directory for one that works."""
    world = Controlled(level=2)
    start(world, 1, 2, 3)
    world.made(partitions=6)
    before = world.image
    world.beat(2, offline=[second(2)])
    assert world.image == before
