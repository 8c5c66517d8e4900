"""A node of a simulated cluster is drained while topics are created, processes end and an operator cancels it; and what
`tidelog node drain` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

import tidelog
from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread
from tests.client.terminal import Terminal
from tidelog.balancing.cluster_balance import ClusterBalance, MoveProgress, look_at_balance
from tidelog.balancing.move_planner import ReplicaMove
from tidelog.balancing.node_drain import DrainOutcome, cancel_drain, drain_node
from tidelog.clock import MachineClock
from tidelog.cluster_descriptions import PartitionResult
from tidelog.errors import InvalidRequest, TooFewNodes
from tidelog.protocol.v1 import admin_pb2
from tidelog.testing import Simulation
from tidelog.types import NodeId, TopicPartition


async def nothing(*_plan: object) -> None:
    """No plan is shown."""


async def drain(bootstrap: str, node: int, progress: list[MoveProgress]) -> DrainOutcome:
    async with tidelog.Admin(bootstrap) as admin:
        return await drain_node(admin, NodeId(node), MachineClock(), on_plan=nothing, on_progress=progress.append)


async def cancel(bootstrap: str, node: int) -> list[PartitionResult]:
    async with tidelog.Admin(bootstrap) as admin:
        return await cancel_drain(admin, NodeId(node), MachineClock())


async def fill(bootstrap: str) -> None:
    async with tidelog.Producer(bootstrap, acks="all") as producer:
        for number in range(100):
            await producer.send("orders", b"order %d" % number, key=b"%d" % number)


async def look(bootstrap: str) -> ClusterBalance:
    async with tidelog.Admin(bootstrap) as admin:
        return await look_at_balance(admin)


async def replicas(bootstrap: str) -> dict[TopicPartition, tuple[NodeId, ...]]:
    return {each.partition: each.replicas for each in (await look(bootstrap)).partitions}


async def moving(bootstrap: str) -> int:
    async with tidelog.Admin(bootstrap) as admin:
        return len(await admin.list_reassignments())


async def cordoned(bootstrap: str) -> list[int]:
    async with tidelog.Admin(bootstrap) as admin:
        return [each.node_id for each in (await admin.describe_cluster()).nodes if each.cordoned]


async def remove(bootstrap: str, node: int) -> bool:
    async with tidelog.Admin(bootstrap) as admin:
        return await admin.unregister_node(node)


def ask(world: Simulation, question, *arguments):  # type: ignore[no-untyped-def]
    return world.run(world.start(question, world.bootstrap, *arguments))


def held_by(world: Simulation, node: int) -> int:
    return Counter(each for found in ask(world, replicas).values() for each in found)[NodeId(node)]


@pytest.mark.usefixtures("one_move_per_node")
def test_a_drain_whose_command_is_killed_goes_on_and_new_topics_go_elsewhere() -> None:
    """The command and the controller end in the middle, and topics are created all the time. The node is empty for
    good: it can be removed."""
    with Simulation(21, nodes=4, voters=3) as world:
        world.create_topic("orders", partitions=9, replicas=3)
        on_node = held_by(world, 3)
        assert on_node > 2
        progress: list[MoveProgress] = []
        command = world.start(drain, world.bootstrap, 3, progress)
        world.run_until(lambda: any(each.done for each in progress), what="a part has moved")
        world.create_topic("events", partitions=4, replicas=3)
        assert not any(3 in found for key, found in ask(world, replicas).items() if key.topic == "events")
        command.kill()
        world.kill(0)
        world.run_for(4)
        world.restart(0)
        world.run_for(4)
        world.create_topic("invoices", partitions=4, replicas=3)
        outcome = ask(world, drain, 3, progress)
        assert (outcome.refused, outcome.left) == ((), 0)
        assert outcome.moved < on_node, "what has moved is not moved again"
        assert held_by(world, 3) == 0
        assert ask(world, cordoned) == [3]
        assert ask(world, drain, 3, progress).moved == 0
        world.kill(3)
        world.run_for(4)
        ask(world, remove, 3)
        world.run_for(1)  # the next question may go to another node
        assert ask(world, cordoned) == []


@pytest.mark.usefixtures("one_move_per_node")
def test_a_cancelled_drain_begins_no_more_moves() -> None:
    """Another operator cancels it: what is moving returns to the node, what has moved stays, and the first command ends
    with an error."""
    with Simulation(22, nodes=4, voters=3) as world:
        world.create_topic("orders", partitions=12, replicas=3)
        on_node = held_by(world, 3)
        progress: list[MoveProgress] = []
        command = world.start(drain, world.bootstrap, 3, progress)
        world.run_until(lambda: any(each.done for each in progress), what="a part has moved")
        results = ask(world, cancel, 3)
        assert all(each.error is None for each in results)
        with pytest.raises(InvalidRequest, match="node 3 is not cordoned any more, so its drain was cancelled"):
            world.run(command)
        world.run_for(5)
        assert ask(world, moving) == 0, "neither in progress nor queued"
        assert ask(world, cordoned) == []
        left = held_by(world, 3)
        assert 0 < left < on_node
        outcome = ask(world, drain, 3, progress)
        assert (outcome.moved, outcome.left) == (left, 0)


def test_a_drain_that_is_cancelled_before_its_first_wave_moves_nothing() -> None:
    """The plan of a large cluster takes a while: its operator sees the mistake, and cancels it meanwhile."""
    with Simulation(24, nodes=4, voters=3) as world:
        world.create_topic("orders", partitions=6, replicas=3)
        before = ask(world, replicas)

        async def cancelled_meanwhile(*_plan: object) -> None:
            assert await cancel(world.bootstrap, 3) == []

        async def command(bootstrap: str) -> DrainOutcome:
            async with tidelog.Admin(bootstrap) as admin:
                return await drain_node(
                    admin,
                    NodeId(3),
                    MachineClock(),
                    on_plan=cancelled_meanwhile,
                    on_progress=lambda _progress: None,
                )

        with pytest.raises(InvalidRequest, match="node 3 is not cordoned any more, so its drain was cancelled"):
            ask(world, command)
        world.run_for(1)
        assert (ask(world, replicas), ask(world, cordoned)) == (before, [])


def test_moves_to_a_node_that_dies_are_planned_again() -> None:
    """They wait in the queue while it is fenced. Once all others are complete, they go elsewhere, though a reassignment
    of another operator is in progress that cannot end."""
    with Simulation(25, nodes=4, voters=3) as world:
        world.create_topic("orders", partitions=12, replicas=2, min_insync_replicas="1")
        world.create_topic("stuck", partitions=3, replicas=1, min_insync_replicas="1")
        stuck = next(key for key, found in ask(world, replicas).items() if key.topic == "stuck" and found[0] in (0, 1))
        ask(world, fill)
        on_node = [each for each in ask(world, look).partitions if 3 in each.replicas]
        clock, plans = MachineClock(), []

        async def command(bootstrap: str) -> DrainOutcome:
            async with tidelog.Admin(bootstrap) as admin:

                async def a_target_dies(_balance: object, moves: list[ReplicaMove], _begun: object) -> None:
                    plans.append({node for move in moves for node in move.adding})
                    if len(plans) == 1:
                        world.kill(2)
                        (begun,) = await admin.reassign({stuck: [2]})
                        assert begun.error is None
                        while not any(each.fenced for each in (await admin.describe_cluster()).nodes):
                            await clock.sleep_ms(100)

                return await drain_node(
                    admin,
                    NodeId(3),
                    clock,
                    on_plan=a_target_dies,
                    on_progress=lambda _progress: None,
                )

        outcome = ask(world, command)
        assert (2 in plans[0], 2 in plans[-1]) == (True, False)
        assert (outcome.refused, outcome.left) == ((), 0)
        assert outcome.moved == len(on_node)
        assert outcome.moved_bytes == sum(each.size_bytes for each in on_node) > 0, "cancelled moves counted, too"
        assert ask(world, moving) == 1, "it is still in progress"


def test_a_drain_says_that_a_partition_has_no_leader() -> None:
    """The only replica is on the node, which is down: the move waits until it is back, and says so."""
    with Simulation(26, nodes=4, voters=3) as world:
        world.create_topic("orders", partitions=4, replicas=1)
        on_node = next(each.partition for each in ask(world, look).partitions if 3 in each.replicas)
        world.kill(3)
        world.run_for(4)
        progress: list[MoveProgress] = []
        command = world.start(drain, world.bootstrap, 3, progress)
        waits_for = f"{on_node} has no leader, so nothing can be fetched: `tidelog partition why-unavailable`"
        world.run_until(lambda: any(waits_for in each.waits_for for each in progress), what="the command says why")
        world.restart(3)
        outcome = world.run(command)
        assert (outcome.refused, outcome.left) == ((), 0)


def test_a_drain_that_is_not_possible_leaves_no_cordon() -> None:
    with Simulation(23, nodes=3, voters=3) as world:
        world.create_topic("orders", partitions=2, replicas=3)
        with pytest.raises(TooFewNodes, match="only 2 nodes take replicas"):
            ask(world, drain, 2, [])
        assert ask(world, cordoned) == []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    """Two nodes without a topic; nothing moves."""
    with cluster_in_a_thread() as made:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", made.bootstrap)
        for node in made.nodes:
            node.scripted["list_partition_reassignments"] = admin_pb2.ListPartitionReassignmentsResponse()
            node.scripted["describe_replica_logs"] = admin_pb2.DescribeReplicaLogsResponse()
        yield made


def test_the_command_says_what_is_done_and_what_is_next(cluster: MemoryCluster, tidelog: Terminal) -> None:
    assert tidelog("node", "drain", "1", "--dry-run") == 0
    assert "nothing to move" in tidelog.err
    assert cluster.cordoned == set()
    assert tidelog("node", "drain", "1") == 0
    assert "node 1 is cordoned: nothing to move" in tidelog.err
    assert "node 1 is empty already; it stays cordoned (`tidelog node uncordon 1`" in tidelog.err
    assert "0 of 0" not in tidelog.err and "0 partitions" not in tidelog.err
    assert cluster.cordoned == {1}
    assert tidelog("node", "drain", "1", "--json") == 0
    assert tidelog.json == {"drained_node": 1, "moved": 0, "bytes": 0, "refused": [], "left": 0}
    assert tidelog("node", "drain", "1", "--cancel") == 0
    assert "0 moves cancelled: node 1 may get new replicas again" in tidelog.err
    assert tidelog("node", "drain", "1", "--cancel", "--json") == 0
    assert tidelog.json == {"uncordoned_node": 1, "cancelled": [], "refused": []}
    assert cluster.cordoned == set()


def test_replicas_that_no_plan_moves_are_reported(
    cluster: MemoryCluster, tidelog: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are of topics that the operator may not describe."""
    monkeypatch.setattr("tidelog.balancing.node_drain.REVIEW_MS", 1)
    cluster.replicas_of[1] = 2
    assert tidelog("node", "drain", "1") == 1
    assert "0 partitions moved, node 1 still has 2 replicas: run the command again" in tidelog.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("7",), 1, "there is no node 7; the registered nodes are 0, 1"),
        (("1", "--cancel", "--dry-run"), 2, "pass --cancel or --dry-run, not both"),
    ],
)
def test_what_cannot_be_drained_is_refused(
    cluster: MemoryCluster, tidelog: Terminal, arguments: tuple[str, ...], code: int, says: str
) -> None:
    assert tidelog("node", "drain", *arguments) == code
    assert says in tidelog.err
    assert cluster.cordoned == set()


def test_a_drain_that_the_feature_level_forbids_leaves_no_cordon(cluster: MemoryCluster, tidelog: Terminal) -> None:
    """Every node runs this version, and nobody has raised the level yet."""
    cluster.create("orders")
    cluster.described["feature_level"] = 9
    assert tidelog("node", "drain", "0") == 1
    assert "moves are queued from feature level 10 on, the cluster has level 9" in tidelog.err
    assert cluster.cordoned == set()
