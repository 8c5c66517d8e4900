"""A cordoned node gets no new replicas, whichever way they would come, and keeps those that it has (KIP-1066)."""

from __future__ import annotations

from replication.controller import features, image_records
from replication.controller.events import (
    AlterCordon,
    ChangedTopic,
    CordonAltered,
    CreatePartitions,
    CreateTopic,
    Registered,
    ReplicaAssignment,
    UnregisterNode,
)
from replication.controller.image import EMPTY, apply
from tests.replication.controlled import Controlled, directory
from tidelog.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    NodeIdNotRegistered,
    TidelogError,
    TooFewNodes,
    UnsupportedVersion,
)
from tidelog.types import DirectoryId, NodeId, Offset


def cluster(*nodes: int, level: int = features.LATEST) -> Controlled:
    controlled = Controlled(level=level)
    controlled.start(*nodes)
    return controlled


def cordon(world: Controlled, node: int, *, cordoned: bool = True) -> object:
    return world.ask(AlterCordon(NodeId(node), cordoned))


def cordon_directories(world: Controlled, node: int, *which: DirectoryId, cordoned: bool = True) -> object:
    return world.ask(AlterCordon(NodeId(node), cordoned, which))


def with_directories(world: Controlled, node: int, *numbers: int) -> list[DirectoryId]:
    """Start a node with these log directories, or start it again."""
    ids = [directory(number) for number in numbers]
    numbers_on_disk = {each: world.on_disk.get(each, -1) for each in ids}
    answer = world.register(node, run_number=len(world.log), directories=numbers_on_disk)
    assert isinstance(answer, Registered), answer
    world.on_disk |= dict.fromkeys(ids, answer.node_epoch)
    world.beat(node)
    return ids


def by_hand(*replicas: int) -> tuple[ReplicaAssignment, ...]:
    return (ReplicaAssignment(tuple(map(NodeId, replicas))),)


def refusal_of(answer: object) -> str:
    """Why a reassignment was refused."""
    assert isinstance(answer, InvalidReplicaAssignment)
    return answer.message


def test_new_topics_and_partitions_are_placed_on_the_other_nodes() -> None:
    world = cluster(1, 2, 3, 4)
    before = world.made("before", partitions=4, replicas=4)
    assert cordon(world, 4) == CordonAltered(changed=True, metadata_offset=world.end)
    world.made("orders", partitions=12, replicas=3)
    assert isinstance(world.ask(CreatePartitions("orders", 20)), ChangedTopic)
    assert {node for state in world.topic("orders").partitions for node in state.replicas} == {1, 2, 3}
    assert world.partition(0, "before") == before, "what it has stays, with its place in the in-sync set"
    assert cordon(world, 4, cordoned=False) == CordonAltered(changed=True, metadata_offset=world.end)
    world.made("after", partitions=4, replicas=3)
    assert any(4 in state.replicas for state in world.topic("after").partitions)


def test_a_cordon_that_holds_already_writes_nothing() -> None:
    world = cluster(1, 2)
    cordon(world, 2)
    end = world.end
    assert cordon(world, 2) == CordonAltered(changed=False, metadata_offset=end)
    assert cordon(world, 1, cordoned=False) == CordonAltered(changed=False, metadata_offset=end)
    assert world.end == end
    missing = cordon(world, 7)
    assert isinstance(missing, NodeIdNotRegistered)
    assert "the registered nodes are 1, 2" in missing.message


def test_a_topic_that_lacks_nodes_because_of_cordons_is_refused_and_the_error_names_them() -> None:
    world = cluster(1, 2, 3)
    cordon(world, 2)
    cordon(world, 3)
    refused = world.create(replicas=2)
    assert type(refused) is InvalidReplicationFactor, "and not an error after which clients try again"
    assert "1 of 3 registered nodes are usable now" in refused.message
    assert "Cordoned nodes get no replicas: node 2, 3 (`tidelog node uncordon 2`)" in refused.message
    cordon(world, 1)
    refused = world.create(replicas=1)
    assert type(refused) is InvalidReplicationFactor
    assert "0 of 3 registered nodes are usable now" in refused.message
    assert "node 1, 2, 3" in refused.message
    assert isinstance(world.create(replicas=4), TooFewNodes), "a fourth node may be starting"


def test_a_fenced_node_does_not_stand_in_for_cordoned_ones_as_leader() -> None:
    world = cluster(1, 2)
    world.kill(2, alive=(1,))
    cordon(world, 1)
    refused = world.create(replicas=1)
    assert isinstance(refused, TooFewNodes)
    assert "all 1 registered nodes that may get replicas are fenced now" in refused.message
    assert "Cordoned nodes get no replicas: node 1" in refused.message


def test_replicas_that_are_named_by_hand_are_refused() -> None:
    world = cluster(1, 2, 3)
    cordon(world, 3)
    for request in (
        CreateTopic("orders", -1, -1, {}, assignments=by_hand(1, 3)),
        CreateTopic("orders", -1, -1, {}, assignments=by_hand(3)),
    ):
        refused = world.ask(request)
        assert isinstance(refused, InvalidReplicaAssignment)
        assert "orders-0 cannot get a replica on node 3: the node is cordoned" in refused.message
        assert "tidelog node uncordon 3" in refused.message
    world.made("orders", replicas=2)
    refused = world.ask(CreatePartitions("orders", 0, assignments=by_hand(1, 3), first=1))
    assert isinstance(refused, InvalidReplicaAssignment)
    assert "orders-1 cannot get a replica on node 3" in refused.message


def test_a_reassignment_adds_no_replica_and_keeps_one_that_is_there() -> None:
    world = cluster(1, 2, 3, 4)
    state = world.made("orders", replicas=2)
    kept, spare = state.replicas[1], next(node for node in (1, 2, 3, 4) if node not in state.replicas)
    cordon(world, spare)
    assert "the node is cordoned" in refusal_of(world.reassign(state.key, [state.leader, spare]))
    cordon(world, kept)
    other = next(node for node in (1, 2, 3, 4) if node not in (*state.replicas, spare))
    world.reassign(state.key, [state.leader, kept, other])
    world.propose(state.leader, kept, other)
    assert world.partition().replicas == (state.leader, kept, other)


def test_a_reassignment_that_began_before_the_cordon_completes_or_is_cancelled() -> None:
    world = cluster(1, 2, 3)
    state = world.made("orders", replicas=2)
    leaving, joining = state.replicas[1], next(node for node in (1, 2, 3) if node not in state.replicas)
    world.reassign(state.key, [state.leader, joining])
    cordon(world, joining)
    cordon(world, leaving)
    world.reassign(state.key, None)
    assert world.partition().replicas == state.replicas, "the cancelled one returns to a cordoned node that it was on"
    cordon(world, joining, cordoned=False)
    world.reassign(state.key, [state.leader, joining])
    cordon(world, joining)
    world.propose(state.leader, leaving, joining)
    assert world.partition().replicas == (state.leader, joining)


def test_a_cordon_outlives_restarts_of_the_node_and_of_the_controller_and_snapshots() -> None:
    world = cluster(1, 2, 3)
    cordon(world, 3)
    world.kill(3, alive=(1, 2))
    assert isinstance(world.register(3, run_number=2), Registered)
    world.activate()
    assert world.node(3).cordoned
    records = list(image_records.records_of(world.image))
    copy = apply(EMPTY, [(Offset(index), record) for index, record in enumerate(records)])
    assert copy.nodes == world.image.nodes
    assert [node for node, entry in copy.nodes.items() if entry.cordoned] == [3]


def test_a_removed_node_returns_without_its_cordon() -> None:
    world = cluster(1, 2, 3)
    cordon(world, 3)
    world.kill(3, alive=(1, 2))
    assert not isinstance(world.ask(UnregisterNode(NodeId(3))), TidelogError)
    world.register(3, run_number=2)
    assert not world.node(3).cordoned


def test_a_cordoned_node_leads_and_joins_in_sync_sets_as_before() -> None:
    world = cluster(1, 2)
    state = world.made("orders", replicas=2)
    follower = state.replicas[1]
    cordon(world, follower)
    world.propose(state.leader)
    assert world.partition().isr == (state.leader,)
    world.propose(state.leader, follower)
    assert set(world.partition().isr) == {state.leader, follower}
    world.kill(state.leader, alive=(follower,))
    assert world.partition().leader == follower


def test_a_cordon_needs_its_feature_level() -> None:
    world = cluster(1, 2, level=features.CORDONS - 1)
    refused = cordon(world, 2)
    assert isinstance(refused, UnsupportedVersion)
    assert "tidelog cluster upgrade" in refused.message


# --- log directories ---


def test_new_replicas_go_to_the_directories_that_are_not_cordoned() -> None:
    world = cluster(1)
    one, two, three = with_directories(world, 2, 20, 21, 22)
    before = world.made("before", partitions=3, replicas=2)
    assert cordon_directories(world, 2, one, three) == CordonAltered(changed=True, metadata_offset=world.end)
    world.made("orders", partitions=4, replicas=2)
    assert {state.directory_of(NodeId(2)) for state in world.topic("orders").partitions} == {two}
    assert world.partition(0, "before") == before, "what is there stays, with its place in the in-sync set"
    cordon_directories(world, 2, three, cordoned=False)
    for index in range(4):
        world.made(f"more-{index}", replicas=2)
    used = {world.partition(0, f"more-{index}").directory_of(NodeId(2)) for index in range(4)}
    assert used == {three}, "the one with the fewest replicas, again"


def test_a_node_whose_working_directories_are_all_cordoned_counts_as_cordoned() -> None:
    world = cluster(1, 3)
    one, two = with_directories(world, 2, 20, 21)
    state = world.made("orders", replicas=1)
    cordon_directories(world, 2, two)
    assert not world.node(2).gets_no_replicas
    world.beat(2, offline=(two,))
    cordon_directories(world, 2, one)
    assert world.node(2).gets_no_replicas
    assert not world.node(2).cordoned, "the node itself is not"
    refused = world.create("more", replicas=3)
    assert type(refused) is InvalidReplicationFactor
    assert "node 2 (`tidelog node uncordon 2 --log-dir PATH`; `tidelog log-dirs --node 2` shows" in refused.message
    target = [3 if state.leader == 1 else 1, 2]
    refusal = refusal_of(world.reassign(state.key, target))
    assert "all of its log directories are cordoned" in refusal
    assert "tidelog node uncordon 2 --log-dir PATH" in refusal
    cordon(world, 2)
    cordon_directories(world, 2, one, two, cordoned=False)
    assert world.node(2).cordoned, "each cordon ends by itself"


def test_a_replica_that_lost_its_directory_gets_one_that_is_not_cordoned_if_there_is_one() -> None:
    world = cluster(1)
    one, two, three = with_directories(world, 2, 20, 21, 22)
    cordon_directories(world, 2, two, three)
    state = world.made("orders", replicas=2)
    assert state.directory_of(NodeId(2)) == one
    world.kill(2, alive=(1,))
    cordon_directories(world, 2, three, cordoned=False)
    with_directories(world, 2, 21, 22)
    assert world.partition().directory_of(NodeId(2)) == three
    cordon_directories(world, 2, three)
    world.kill(2, alive=(1,))
    with_directories(world, 2, 21)
    assert world.partition().directory_of(NodeId(2)) == two, "a cordoned one rather than none: the replica exists"


def test_cordons_of_directories_outlive_restarts_of_the_node_and_of_the_controller_and_snapshots() -> None:
    world = cluster(1)
    one, two = with_directories(world, 2, 20, 21)
    cordon_directories(world, 2, two)
    for numbers in ((20,), (20, 21)):
        world.kill(2, alive=(1,))
        with_directories(world, 2, *numbers)
    world.activate()
    assert world.node(2).cordoned_directories == (two,)
    assert [each.directory_id for each in world.node(2).open_directories] == [one]
    records = list(image_records.records_of(world.image))
    copy = apply(EMPTY, [(Offset(index), record) for index, record in enumerate(records)])
    assert copy.nodes == world.image.nodes


def test_a_cordon_of_directories_that_holds_already_writes_nothing_and_an_unknown_one_is_refused() -> None:
    world = cluster(1)
    one, two = with_directories(world, 2, 20, 21)
    cordon_directories(world, 2, two, one)
    end = world.end
    assert cordon_directories(world, 2, one) == CordonAltered(changed=False, metadata_offset=end)
    refused = cordon_directories(world, 2, one, directory(1))
    assert isinstance(refused, InvalidRequest)
    assert f"node 2 has no log directory {directory(1)}" in refused.message
    assert "tidelog log-dirs --node 2" in refused.message
    assert world.end == end


def test_a_cordon_of_directories_needs_its_feature_level() -> None:
    world = cluster(1, level=features.DIRECTORY_CORDONS - 1)
    refused = cordon_directories(world, 1, directory(1))
    assert isinstance(refused, UnsupportedVersion)
    assert "the cordon of a log directory needs feature level 10" in refused.message
    assert cordon(world, 1) == CordonAltered(changed=True, metadata_offset=world.end), "that of a node does not"
