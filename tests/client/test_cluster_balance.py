"""Plans of moves are executed on simulated clusters while nodes fail, and continue where they were interrupted."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

import tidelog
from tidelog.balancing.cluster_balance import (
    ClusterBalance,
    MoveProgress,
    change_replication_factor,
    execute_moves,
    expected_ms,
    look_at_balance,
)
from tidelog.balancing.move_planner import BalancedNode, PlacedPartition, plan_moves
from tidelog.balancing.reassignment_file import parse_log_dirs, parse_reassignment, reassignment_document
from tidelog.clock import MachineClock
from tidelog.cluster_descriptions import PartitionResult
from tidelog.errors import (
    InvalidReplicaAssignment,
    InvalidRequest,
    NoReassignmentInProgress,
    TooFewNodes,
    UnknownTopicOrPartition,
)
from tidelog.testing import Simulation
from tidelog.types import NodeId, PartitionIndex, TopicPartition


async def fill(bootstrap: str, records: int) -> None:
    async with tidelog.Producer(bootstrap, acks="all") as producer:
        for number in range(records):
            await producer.send("orders", b"order %d" % number)


async def drain(bootstrap: str, node: int, progress: list[MoveProgress]) -> list[PartitionResult]:
    """Plan and execute, as `tidelog cluster rebalance --drain` does."""
    async with tidelog.Admin(bootstrap) as admin:
        balance = await look_at_balance(admin)
        moves = plan_moves(balance.nodes, balance.partitions, emptied={NodeId(node)}, evens_out=False)
        return await execute_moves(admin, moves, MachineClock(), on_progress=progress.append, begun=balance.moving)


async def rebalance(bootstrap: str) -> int:
    """The bytes that were to be moved."""
    async with tidelog.Admin(bootstrap) as admin:
        balance = await look_at_balance(admin)
        moves = plan_moves(balance.nodes, balance.partitions)
        refused = await execute_moves(admin, moves, MachineClock(), on_progress=lambda _progress: None)
        assert not refused
        assert (await expected_ms(admin, moves, 1_000) > 0) == any(move.moved_bytes for move in moves)
        return sum(move.moved_bytes for move in moves)


async def replicas(bootstrap: str) -> dict[TopicPartition, tuple[NodeId, ...]]:
    async with tidelog.Admin(bootstrap) as admin:
        return {each.partition: each.replicas for each in (await look_at_balance(admin)).partitions}


async def held(bootstrap: str) -> dict[int, int]:
    """The replicas that each node has now."""
    async with tidelog.Admin(bootstrap) as admin:
        return {each.node_id: each.replicas for each in (await admin.describe_cluster()).nodes}


async def raise_factor(bootstrap: str) -> list[PartitionResult]:
    async with tidelog.Admin(bootstrap) as admin:
        return await change_replication_factor(admin, "orders", 3)


async def remove(bootstrap: str, node: int) -> bool:
    async with tidelog.Admin(bootstrap) as admin:
        return await admin.unregister_node(node)


async def nodes(bootstrap: str) -> list[int]:
    async with tidelog.Admin(bootstrap) as admin:
        return [each.node_id for each in (await admin.describe_cluster()).nodes]


def ask(world: Simulation, question, *arguments):  # type: ignore[no-untyped-def]
    return world.run(world.start(question, world.bootstrap, *arguments))


async def cordon(bootstrap: str, node: int) -> bool:
    async with tidelog.Admin(bootstrap) as admin:
        return await admin.cordon_node(node)


async def uncordon(bootstrap: str, node: int) -> bool:
    async with tidelog.Admin(bootstrap) as admin:
        return await admin.uncordon_node(node)


def test_a_cordoned_node_gets_its_share_once_it_is_uncordoned() -> None:
    """Neither new topics nor a rebalance nor a higher replication factor place anything on it, also after a restart of
    the controller."""
    with Simulation(12, nodes=3, voters=3) as world:
        assert ask(world, cordon, 2)
        world.create_topic("orders", partitions=6, replicas=2)
        ask(world, fill, 20)
        world.kill(0)
        world.run_for(4)
        world.restart(0)
        world.run_for(4)
        assert ask(world, rebalance) == 0
        with pytest.raises(TooFewNodes, match="only 2 nodes take replicas: start or uncordon another one"):
            ask(world, raise_factor)
        assert {node for found in ask(world, replicas).values() for node in found} == {0, 1}
        assert ask(world, uncordon, 2)
        assert not ask(world, uncordon, 2), "it is not cordoned any more"
        world.run_for(1)  # the node that is asked for the placement may be behind by a commit
        assert ask(world, rebalance) > 0
        held = Counter(node for found in ask(world, replicas).values() for node in found)
        assert held == {0: 4, 1: 4, 2: 4}


@pytest.mark.usefixtures("one_move_per_node")
def test_a_drain_goes_on_without_its_command_which_is_killed_together_with_the_controller() -> None:
    """One partition per node at a time. At the end nothing is left on the node, no record is lost, and the node can be
    removed."""
    with Simulation(11, nodes=4, voters=3) as world:
        world.create_topic("orders", partitions=6, replicas=3)
        ask(world, fill, 60)
        node = max(Counter(each for found in ask(world, replicas).values() for each in found))
        before = ask(world, replicas)
        on_node = sum(node in found for found in before.values())
        assert on_node > 1
        progress: list[MoveProgress] = []
        command = world.start(drain, world.bootstrap, node, progress)
        world.run_until(lambda: any(each.done for each in progress), what="a part has moved")
        assert max(each.running for each in progress) <= 3, "each of the other nodes fetches one partition at most"
        command.kill()
        world.kill(0)
        world.run_for(4)
        world.restart(0)
        world.run_for(4)
        world.run_for(20)
        assert ask(world, held)[node] == 0, "the next controller begins the rest"
        progress.clear()
        assert ask(world, drain, node, progress) == []
        assert progress[0].total == 0, "nothing is planned again"
        assert len(world.records("orders")) == 60
        world.stop(node)
        world.run_for(4)
        ask(world, remove, node)
        world.run_for(2)
        assert ask(world, nodes) == [each for each in range(4) if each != node]


def test_a_cluster_is_evened_out_once() -> None:
    with Simulation(12, nodes=3) as world:
        world.create_topic("orders", partitions=5, replicas=1, min_insync_replicas="1")
        ask(world, fill, 30)

        async def crowd(bootstrap: str) -> None:
            async with tidelog.Admin(bootstrap) as admin:
                await admin.reassign({("orders", index): [0] for index in range(5)})

        ask(world, crowd)
        world.run_for(5)
        assert set(ask(world, replicas).values()) == {(0,)}
        assert ask(world, rebalance) > 0
        counts = Counter(each for found in ask(world, replicas).values() for each in found)
        assert sorted(counts.values()) == [1, 2, 2]
        assert ask(world, rebalance) == 0
        assert len(world.records("orders")) == 30


def test_a_refused_move_does_not_stop_the_others() -> None:
    with Simulation(13, nodes=3) as world:
        world.create_topic("orders", partitions=2, replicas=1, min_insync_replicas="1")
        present = ask(world, replicas)
        target = next(NodeId(node) for node in range(3) if (node,) not in present.values())

        async def execute(bootstrap: str) -> list[PartitionResult]:
            async with tidelog.Admin(bootstrap) as admin:
                balance = await look_at_balance(admin)
                named = {TopicPartition("orders", PartitionIndex(0)): (NodeId(9),)}
                named[TopicPartition("orders", PartitionIndex(1))] = (target,)
                moves = balance.moves_to(named)
                with pytest.raises(UnknownTopicOrPartition, match="orders-7"):
                    balance.moves_to({TopicPartition("orders", PartitionIndex(7)): (target,)})
                return await execute_moves(admin, moves, MachineClock(), on_progress=lambda _progress: None)

        (refused,) = ask(world, execute)
        assert refused.partition == ("orders", 0)
        assert isinstance(refused.error, InvalidReplicaAssignment)
        assert ask(world, replicas)["orders", 1] == (target,)


def begin_to_a_dead_node(world: Simulation) -> int:
    """Begin to move orders-0 to a node that is killed, and not fenced yet. Returns that node."""
    ((source,),) = ask(world, replicas).values()
    target = next(node for node in range(1, 4) if node != source)

    async def begin(bootstrap: str) -> None:
        async with tidelog.Admin(bootstrap) as admin:
            await admin.reassign({("orders", 0): [target]})

    world.kill(target)
    ask(world, begin)
    return target


def test_a_move_that_an_earlier_run_began_is_waited_for_and_a_cancelled_one_is_no_success() -> None:
    """The node that fetches is dead. The command does not report an empty node before the last copy has left it; it
    says what it waits for, and names a move that somebody cancelled."""
    with Simulation(15, nodes=4, voters=3) as world:
        world.create_topic("orders", partitions=1, replicas=1, min_insync_replicas="1")
        ask(world, fill, 10)
        ((source,),) = ask(world, replicas).values()
        target = begin_to_a_dead_node(world)

        progress: list[MoveProgress] = []
        again = world.start(drain, world.bootstrap, source, progress)
        world.run_until(lambda: len(progress) >= 5, what="it waits")
        assert (progress[-1].done, progress[-1].running) == (0, 1)
        assert progress[-1].waits_for == f"orders-0 waits for node {target} to be in sync"

        async def cancel(bootstrap: str) -> None:
            async with tidelog.Admin(bootstrap) as admin:
                await admin.reassign({("orders", 0): None})

        ask(world, cancel)
        (cancelled,) = world.run(again)
        assert isinstance(cancelled.error, NoReassignmentInProgress)
        assert set(ask(world, replicas).values()) == {(source,)}


def test_a_drain_names_the_dead_replica_without_which_too_few_copies_would_stay() -> None:
    with Simulation(17, nodes=4, voters=3) as world:
        world.create_topic("orders", partitions=1, replicas=2)
        ask(world, fill, 10)
        ((leaving, dead),) = ask(world, replicas).values()
        world.kill(dead)
        world.run_for(4)
        progress: list[MoveProgress] = []
        command = world.start(drain, world.bootstrap, leaving, progress)
        waits_for = f"orders-0 waits for node {dead} to be in sync"
        world.run_until(lambda: len(progress) > 3 and progress[-1].waits_for == waits_for, what="it says so")
        world.restart(dead)
        assert world.run(command) == []
        assert leaving not in next(iter(ask(world, replicas).values()))


def test_a_topic_that_is_deleted_while_it_moves_is_named() -> None:
    with Simulation(16, nodes=4, voters=3) as world:
        world.create_topic("orders", partitions=1, replicas=1, min_insync_replicas="1")
        ((source,),) = ask(world, replicas).values()
        begin_to_a_dead_node(world)
        progress: list[MoveProgress] = []
        command = world.start(drain, world.bootstrap, source, progress)
        world.run_until(lambda: any(each.running for each in progress), what="it waits for the move")

        async def delete(bootstrap: str) -> None:
            async with tidelog.Admin(bootstrap) as admin:
                await admin.delete_topic("orders")

        ask(world, delete)
        (gone,) = world.run(command)
        assert isinstance(gone.error, UnknownTopicOrPartition)


def test_a_topic_gets_another_replication_factor() -> None:
    with Simulation(14, nodes=3) as world:
        world.create_topic("orders", partitions=3, replicas=1, min_insync_replicas="1")
        world.create_topic("others", replicas=1, min_insync_replicas="1")
        before = ask(world, replicas)

        async def change(bootstrap: str, factor: int, *, validate_only: bool = False) -> int:
            async with tidelog.Admin(bootstrap) as admin:
                begun = await change_replication_factor(admin, "orders", factor, validate_only=validate_only)
                assert all(each.error is None for each in begun)
                return len(begun)

        assert ask(world, partial(change, validate_only=True), 3) == 0
        assert ask(world, replicas) == before
        with pytest.raises(TooFewNodes):
            ask(world, change, 4)
        for factor in (3, 2):
            assert ask(world, change, factor) == 3
            world.run_for(5)
            now = ask(world, replicas)
            assert {len(now["orders", index]) for index in range(3)} == {factor}
            assert all(now["orders", index][0] == before["orders", index][0] for index in range(3))
            assert now["others", 0] == before["others", 0]


def test_a_plan_is_written_and_read_as_kafkas_tool_does() -> None:
    text = '{"version":1,"partitions":[{"topic":"a-b","partition":0,"replicas":[3,1],"log_dirs":["any","any"]}]}'
    targets = parse_reassignment(text)
    assert targets == {("a-b", 0): (3, 1)}
    assert parse_log_dirs(text) == {}
    assert parse_log_dirs(text.replace('["any"', '["/x"')) == {3: {("a-b", 0): "/x"}}
    balance_moves = plan_moves([], [])
    assert reassignment_document(balance_moves) == {"version": 1, "partitions": []}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ('{"version": 2, "partitions": []}', "version 2"),
        ('{"partitions": [{"topic": 1, "partition": 0, "replicas": [1]}]}', "cannot be read"),
        ('{"partitions": [{"topic": "t", "partition": true, "replicas": [1]}]}', "cannot be read"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [false]}]}', "cannot be read"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "cannot be read"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["a", "b"]}]}',
            "log directories",
        ),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [""]}]}', "cannot be read"),
        ('{"partitions": [%s, %s]}' % (2 * ('{"topic": "t", "partition": 0, "replicas": [1]}',)), "twice"),
    ],
)
def test_a_plan_that_is_none_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        parse_reassignment(text)


def test_a_log_directory_is_emptied_into_those_with_the_fewest_bytes() -> None:
    """The largest log first. A copy that is under way goes on; a cordoned directory, and one that failed, get none."""

    def at(index: int, path: str, size: int) -> PlacedPartition:
        partition = TopicPartition("t", PartitionIndex(index))
        return PlacedPartition(partition, (NodeId(1), NodeId(2)), size, (path, "/old"))

    logs = at(0, "/old", 50), at(1, "/old", 30), at(2, "/old", 20), at(3, "/a", 40), at(4, "/old", 5)
    balance = ClusterBalance(
        (BalancedNode(NodeId(1)), BalancedNode(NodeId(2))),
        logs,
        log_dirs={NodeId(1): ("/old", "/a", "/b", "/cordoned"), NodeId(2): ("/old",)},
        taking_dirs={NodeId(1): ("/old", "/a", "/b"), NodeId(2): ("/old",)},
        copies={(NodeId(1), logs[4].partition): "/b"},
    )
    found = balance.dir_moves([1], ["/old"])[NodeId(1)]
    assert {partition.partition: path for partition, path in found.items()} == {0: "/b", 1: "/a", 2: "/b", 4: "/b"}
    assert balance.dir_moves([2], ["/old"]) == {}, "it has no other directory: they must leave the node"
    assert balance.dir_moves([1], ["/old", "/a", "/b"]) == {}
    with pytest.raises(InvalidRequest, match="no log directory '/none'"):
        balance.dir_moves([1], ["/none"])
