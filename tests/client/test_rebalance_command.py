"""`tidelog cluster rebalance` and `topic alter --replication-factor`: plans, files and results. The moves themselves:
test_cluster_balance.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.client.memory_cluster import MemoryCluster, MemoryNode, cluster_in_a_thread
from tests.client.terminal import Terminal
from tidelog.balancing.cluster_balance import REVIEW_MS, MoveProgress, execute_moves, look_at_balance
from tidelog.balancing.log_dir_moves import execute_log_dir_moves
from tidelog.balancing.move_planner import ReplicaMove
from tidelog.client.admin import Admin
from tidelog.clock import MachineClock
from tidelog.cluster_descriptions import PartitionResult
from tidelog.errors import InvalidReplicaAssignment, NoReassignmentInProgress
from tidelog.protocol.status import to_proto
from tidelog.protocol.v1 import admin_pb2
from tidelog.settings import SettingType
from tidelog.types import NodeId, PartitionIndex, TopicPartition

NAMES = [
    {"topic": "orders", "partition": 1, "replicas": [0], "log_dirs": ["any"]},
]


def place(index: int) -> admin_pb2.TopicPartitionId:
    return admin_pb2.TopicPartitionId(topic="orders", partition=index)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    """Two nodes; orders-0 is on node 0, orders-1 on node 1 with 1,000 bytes. A move is complete at once."""
    with cluster_in_a_thread() as made:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", made.bootstrap)
        made.create("orders", 2)
        made.described["feature_level"] = 10
        logs = [
            admin_pb2.ReplicaLog(partition=place(index), size=1_000, bytes_in_rate=1_000, bytes_out_rate=2_000)
            for index in range(2)
        ]
        for node in made.nodes:
            node.scripted["describe_replica_logs"] = admin_pb2.DescribeReplicaLogsResponse(
                log_dirs=[admin_pb2.ReplicaLogDir(path="/data", logs=[logs[node.node_id]])]
            )
            throttle = admin_pb2.ConfigInForce(
                key="follower.replication.throttled.rate",
                type=SettingType.LONG,
                values=[admin_pb2.ConfigValue(value="100", source=4)],
            )
            node.scripted["describe_configs"] = admin_pb2.DescribeConfigsResponse(
                resources=[admin_pb2.ResourceConfigs(configs=[throttle])]
            )
            node.scripted["list_partition_reassignments"] = admin_pb2.ListPartitionReassignmentsResponse()
            node.on_get_metadata = partial(with_replicas, made, node.on_get_metadata)
            begin(node, admin_pb2.PartitionOutcome(partition=place(1)))
        yield made


def with_replicas(cluster: MemoryCluster, answer: Callable[[Any], Any], request: admin_pb2.GetMetadataRequest) -> Any:
    """The metadata, with partition n on node n until it is moved."""
    found, moved = answer(request), dict(begun(cluster))
    for partition in (each for topic in found.topics for each in topic.partitions):
        partition.replicas[:] = partition.isr[:] = moved.get(partition.partition, [partition.partition])
    return found


def begin(node: MemoryNode, *outcomes: admin_pb2.PartitionOutcome) -> None:
    """The answer of the node to a reassignment."""
    answer = admin_pb2.AlterPartitionReassignmentsResponse(partitions=outcomes)
    node.scripted["alter_partition_reassignments"] = answer


def listing(cluster: MemoryCluster, *moves: admin_pb2.OngoingReassignment) -> None:
    """What the nodes list as queued and in progress."""
    for node in cluster.nodes:
        answer = admin_pb2.ListPartitionReassignmentsResponse(partitions=moves)
        node.scripted["list_partition_reassignments"] = answer


def begun(cluster: MemoryCluster) -> list[tuple[int, list[int]]]:
    """The partitions whose reassignment was requested, with their new replicas."""
    return [
        (each.partition.partition, list(each.replicas))
        for node in cluster.nodes
        for request in node.asked
        if isinstance(request, admin_pb2.AlterPartitionReassignmentsRequest)
        for each in request.partitions
    ]


def test_a_balanced_cluster_has_nothing_to_move(cluster: MemoryCluster, tidelog: Terminal) -> None:
    assert tidelog("cluster", "rebalance") == 0
    assert tidelog.err == "nothing to move\n"
    assert begun(cluster) == []


def test_a_plan_of_an_old_placement_says_so(cluster: MemoryCluster, tidelog: Terminal) -> None:
    """Without a controller nothing can be moved, and nodes that have failed since look as if they ran."""
    cluster.controller_silence_ms = 7_000
    assert tidelog("cluster", "rebalance", "--dry-run") == 0
    assert "warning: no active controller has been heard for 7 s" in tidelog.err


def test_a_dry_run_shows_moves_bytes_and_duration_and_changes_nothing(
    cluster: MemoryCluster, tidelog: Terminal
) -> None:
    assert tidelog("cluster", "rebalance", "--drain", "1", "--dry-run") == 0
    assert b"orders-1" in tidelog.out
    assert "1 partition to move, 1,000 bytes, at least 10 s" in tidelog.err, "at the throttled rate of node 0"
    assert tidelog("cluster", "rebalance", "--drain", "1", "--dry-run", "--json", "--assumed-rate", "50") == 0
    assert tidelog.json["partitions"] == NAMES
    assert (tidelog.json["bytes"], tidelog.json["expected_ms"]) == (1_000, 20_000)
    share = {"replicas": 1, "leaders": 1, "bytes": 1_000, "load": 3_000}
    assert tidelog.json["nodes"] == [
        {"node": 0, "before": share, "after": {"replicas": 2, "leaders": 2, "bytes": 2_000, "load": 6_000}},
        {"node": 1, "before": share, "after": dict.fromkeys(share, 0)},
    ]
    assert tidelog("cluster", "rebalance", "--drain", "1", "--dry-run") == 0
    assert b"3,000 -> 6,000" in tidelog.out
    assert begun(cluster) == []


def test_a_log_directory_is_emptied_and_the_plan_shows_what_leaves_it(
    cluster: MemoryCluster, tidelog: Terminal
) -> None:
    drained = ("cluster", "rebalance", "--drain", "1", "--log-dir", "/data/", "--dry-run")
    assert tidelog(*drained) == 0
    assert b"/data of node 1" in tidelog.out
    assert "warning: /data of node 1 is not cordoned" in tidelog.err
    assert "`tidelog node cordon 1 --log-dir /data`" in tidelog.err
    assert tidelog(*drained, "--json") == 0
    (move,) = tidelog.json["moves"]
    assert (move["partition"], move["leaving_log_dirs"]) == ("orders-1", {"1": "/data"})
    assert tidelog.json["partitions"] == NAMES, "the controller chooses the directory of the new replica"
    for node in cluster.nodes:
        for each in node.scripted["describe_replica_logs"].log_dirs:
            each.cordoned = True
    assert tidelog(*drained) == 0
    assert "warning" not in tidelog.err


def test_a_saved_plan_is_executed_later(cluster: MemoryCluster, tidelog: Terminal, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    assert tidelog("cluster", "rebalance", "--drain", "1", "--dry-run", "--save-plan", plan) == 0
    assert json.loads(Path(plan).read_text(encoding="utf-8")) == {"version": 1, "partitions": NAMES}
    assert begun(cluster) == []
    assert tidelog("cluster", "rebalance", "--plan-file", plan, "--json") == 0
    assert tidelog.json == {"moved": 1, "bytes": 1_000, "log_dirs": 0, "refused": []}
    assert begun(cluster) == [(1, [0])]


def test_a_plan_that_names_log_directories_moves_replicas_there(
    cluster: MemoryCluster, tidelog: Terminal, tmp_path: Path
) -> None:
    """The replicas stay where they are, and one of them changes its log directory. It is waited for."""
    plan = tmp_path / "plan.json"
    entries = [{"topic": "orders", "partition": each, "replicas": [each], "log_dirs": ["any"]} for each in (0, 1)]
    entries[1]["log_dirs"] = ["/more"]
    plan.write_text(json.dumps({"version": 1, "partitions": entries}), encoding="utf-8")
    for node in cluster.nodes:
        node.scripted["alter_replica_log_dirs"] = admin_pb2.AlterReplicaLogDirsResponse(
            partitions=[admin_pb2.PartitionOutcome(partition=place(1))]
        )
    assert tidelog("cluster", "rebalance", "--plan-file", str(plan), "--dry-run") == 0
    assert b"orders-1" in tidelog.out and b"/more" in tidelog.out
    assert "1 replica to move between log directories, 1,000 bytes" in tidelog.err
    asked = admin_pb2.AlterReplicaLogDirsRequest
    assert not any(isinstance(each, asked) for node in cluster.nodes for each in node.asked)
    assert tidelog("cluster", "rebalance", "--plan-file", str(plan), "--no-wait") == 0
    assert "1 replica to be in the log directories of the plan" in tidelog.err
    assert begun(cluster) == []
    found = [(node.node_id, each) for node in cluster.nodes for each in node.asked if isinstance(each, asked)]
    assert found == [(1, asked(moves=[admin_pb2.LogDirMove(partition=place(1), path="/more")]))]
    cluster.nodes[1].scripted["describe_replica_logs"].log_dirs[0].path = "/more"
    assert tidelog("cluster", "rebalance", "--plan-file", str(plan), "--json") == 0
    assert tidelog.json == {"moved": 0, "bytes": 0, "log_dirs": 1, "refused": []}


def in_two_directories(cluster: MemoryCluster, *, is_copied: bool = False) -> None:
    """Node 1 has orders-1 in /data, /more is empty, and the disk of /data is a fifth of the other one."""
    (logs,) = cluster.nodes[1].scripted["describe_replica_logs"].log_dirs[0].logs
    copies = [admin_pb2.ReplicaLog(partition=place(1), size=10, is_future=True)] if is_copied else []
    cluster.nodes[1].scripted["describe_replica_logs"] = admin_pb2.DescribeReplicaLogsResponse(
        log_dirs=[
            admin_pb2.ReplicaLogDir(path="/data", logs=[logs], total_bytes=10_000, usable_bytes=5_000),
            admin_pb2.ReplicaLogDir(path="/more", logs=copies, total_bytes=50_000, usable_bytes=5_000),
        ]
    )


def test_bytes_are_evened_out_over_log_directories(
    cluster: MemoryCluster, tidelog: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The plan shows it, and is one of Kafka's tool; the drain of a node moves nothing within nodes."""
    in_two_directories(cluster)
    assert tidelog("cluster", "rebalance") == 0
    assert tidelog.err == "nothing to move\n", "too few bytes"
    monkeypatch.setattr("tidelog.balancing.dir_planner.SLACK_BYTES", 100)
    assert tidelog("cluster", "rebalance", "--dry-run") == 0
    assert "1 replica to move between log directories, 1,000 bytes" in tidelog.err
    assert b"1,000 -> 0" in tidelog.out
    plan = tmp_path / "plan.json"
    assert tidelog("cluster", "rebalance", "--dry-run", "--json", "--save-plan", str(plan)) == 0
    entries = [{"topic": "orders", "partition": 1, "replicas": [1], "log_dirs": ["/more"]}]
    assert tidelog.json["partitions"] == json.loads(plan.read_text(encoding="utf-8"))["partitions"] == entries
    assert tidelog.json["log_dirs"] == [{"node": 1, "partition": "orders-1", "log_dir": "/more", "bytes": 1_000}]
    full, empty = {"replicas": 1, "bytes": 1_000}, {"replicas": 0, "bytes": 0}
    assert tidelog.json["directories"] == [
        {"node": 0, "log_dir": "/data", "before": full, "after": full},
        {"node": 1, "log_dir": "/data", "before": full, "after": empty},
        {"node": 1, "log_dir": "/more", "before": empty, "after": full},
    ]
    assert tidelog("cluster", "rebalance", "--drain", "0", "--dry-run", "--json") == 0
    assert tidelog.json["log_dirs"] == []


def test_copies_within_nodes_are_part_of_the_task_and_of_the_status(cluster: MemoryCluster, tidelog: Terminal) -> None:
    in_two_directories(cluster, is_copied=True)
    assert tidelog("cluster", "rebalance", "--dry-run") == 0
    assert "1 replica to move between log directories, 1,000 bytes" in tidelog.err
    assert tidelog("cluster", "rebalance", "--status") == 0
    assert "0 in progress, at most 0 bytes to fetch; 1 replica copied within their nodes" in tidelog.err


def test_a_move_within_a_node_that_is_cancelled_elsewhere_ends_the_wait(
    cluster: MemoryCluster, tidelog: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the node has begun to copy, the command goes on waiting."""
    monkeypatch.setattr("tidelog.balancing.log_dir_moves.REVIEW_MS", 1)
    in_two_directories(cluster)
    empty = cluster.nodes[1].scripted["describe_replica_logs"]
    in_two_directories(cluster, is_copied=True)
    copied = cluster.nodes[1].scripted["describe_replica_logs"]
    outcome = admin_pb2.AlterReplicaLogDirsResponse(partitions=[admin_pb2.PartitionOutcome(partition=place(1))])
    cluster.nodes[1].scripted["alter_replica_log_dirs"] = outcome
    answers = iter([copied])
    reviews: list[MoveProgress] = []

    def report(progress: MoveProgress) -> None:
        reviews.append(progress)
        cluster.nodes[1].scripted["describe_replica_logs"] = next(answers, empty)

    async def move() -> tuple[int, list[PartitionResult]]:
        cluster.nodes[1].scripted["describe_replica_logs"] = empty
        partition = TopicPartition("orders", PartitionIndex(1))
        async with Admin(cluster.bootstrap) as admin:
            wanted = {NodeId(1): {partition: "/more"}}
            return await execute_log_dir_moves(admin, wanted, {partition: 7}, MachineClock(), on_progress=report)

    done, (refused,) = asyncio.run(move())
    assert done == 0
    with pytest.raises(
        NoReassignmentInProgress, match="to /more of node 1 was cancelled, or failed, and it is in /data"
    ):
        raise refused.error or AssertionError
    assert [each.running for each in reviews[:3]] == [0, 1, 0]
    assert reviews[0].total_bytes == 7


def test_the_more_moves_are_queued_the_less_often_they_are_listed(cluster: MemoryCluster) -> None:
    """A node with a list of 50,000 is not to spend its time on it."""
    others = [admin_pb2.OngoingReassignment(partition=place(10 + index), queued=[0]) for index in range(5_000)]
    listing(cluster, *others)
    pauses: list[int] = []

    class Waits(MachineClock):
        async def sleep_ms(self, ms: int) -> None:
            pauses.append(ms)
            listing(cluster, *others[:10])

    async def drain() -> list[PartitionResult]:
        async with Admin(cluster.bootstrap) as admin:
            moves, _ = (await look_at_balance(admin)).planned({1})
            return await execute_moves(admin, [*moves, absent], Waits(), on_progress=lambda _progress: None)

    absent = ReplicaMove(TopicPartition("absent", PartitionIndex(0)), (NodeId(1),), (NodeId(0),))
    assert [each.partition for each in asyncio.run(drain())] == [absent.partition]
    assert pauses == [REVIEW_MS + 500]


def test_moves_are_queued_and_the_command_need_not_wait(cluster: MemoryCluster, tidelog: Terminal) -> None:
    assert tidelog("cluster", "rebalance", "--drain", "1", "--no-wait", "--json") == 0
    assert tidelog.json == {"queued": 1, "bytes": 1_000, "log_dirs": 0, "refused": []}
    assert begun(cluster) == [(1, [0])]
    asked = [each for node in cluster.nodes for each in node.asked]
    (request,) = [each for each in asked if isinstance(each, admin_pb2.AlterPartitionReassignmentsRequest)]
    assert all(each.queued for each in request.partitions), "the controller begins them"


def test_a_cluster_of_an_earlier_version_would_begin_all_moves_at_once(
    cluster: MemoryCluster, tidelog: Terminal
) -> None:
    cluster.described["feature_level"] = 9
    assert tidelog("cluster", "rebalance", "--drain", "1") == 1
    assert "moves are queued from feature level 10 on, the cluster has level 9" in tidelog.err
    assert begun(cluster) == []


def test_the_status_is_what_is_queued_and_in_progress(cluster: MemoryCluster, tidelog: Terminal) -> None:
    assert tidelog("cluster", "rebalance", "--status") == 0
    assert tidelog.err == "0 moves queued, 0 in progress, at most 0 bytes to fetch\n"
    listing(
        cluster,
        admin_pb2.OngoingReassignment(partition=place(0), replicas=[0], isr=[0], queued=[1]),
        admin_pb2.OngoingReassignment(partition=place(1), replicas=[0, 1], adding=[0], removing=[1], isr=[1]),
    )
    assert tidelog("cluster", "rebalance", "--status") == 0
    assert "1 move queued, 1 in progress, at most 2,000 bytes to fetch; orders-1 waits for node 0" in tidelog.err
    assert tidelog("cluster", "rebalance", "--status", "--json") == 0
    assert (tidelog.json["queued"], tidelog.json["running"], tidelog.json["left_bytes"]) == (1, 1, 2_000)
    listing(cluster, admin_pb2.OngoingReassignment(partition=place(0), replicas=[0], isr=[0], queued=[1]))
    assert tidelog("cluster", "rebalance", "--status") == 0
    assert "orders-0 waits for its turn, and for node 1 to be in service" in tidelog.err
    assert tidelog("partition", "moves") == 0
    assert b"queued" in tidelog.out


def test_a_cancel_takes_queued_moves_and_those_in_progress(
    cluster: MemoryCluster, tidelog: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until nothing is listed, or a few times: the node that is asked may be behind."""
    monkeypatch.setattr("tidelog.balancing.cluster_balance.REVIEW_MS", 1)
    assert tidelog("cluster", "rebalance", "--cancel", "--json") == 0
    assert tidelog.json == {"cancelled": [], "refused": []}
    listing(cluster, admin_pb2.OngoingReassignment(partition=place(1), replicas=[0], isr=[0], queued=[1]))
    assert tidelog("cluster", "rebalance", "--cancel") == 0
    assert "1 move cancelled" in tidelog.err
    assert {*map(str, begun(cluster))} == {"(1, [])"}
    assert tidelog("cluster", "rebalance", "--cancel", "--dry-run") == 2
    assert "pass --status or --cancel alone" in tidelog.err


def test_moves_in_progress_are_part_of_the_task(cluster: MemoryCluster, tidelog: Terminal) -> None:
    """An earlier run began to empty node 1: it is not empty yet."""

    def moving(answer: Callable[[Any], Any], request: admin_pb2.GetMetadataRequest) -> Any:
        found = answer(request)
        for partition in (each for topic in found.topics for each in topic.partitions if each.partition == 1):
            partition.replicas[:], partition.adding[:], partition.removing[:] = [0, 1], [0], [1]
        return found

    for node in cluster.nodes:
        node.on_get_metadata = partial(moving, node.on_get_metadata)
    assert tidelog("cluster", "rebalance", "--drain", "1", "--dry-run") == 0
    assert "1 partition already in progress" in tidelog.err
    assert "nothing to move" not in tidelog.err
    assert tidelog("cluster", "rebalance", "--drain", "1", "--dry-run", "--json") == 0
    assert (tidelog.json["moves"], tidelog.json["in_progress"]) == ([], ["orders-1"])
    assert tidelog("cluster", "rebalance", "--drain", "0", "--dry-run") == 0
    assert "already in progress" not in tidelog.err, "that move does not empty node 0"


def test_a_partition_that_no_other_node_can_take_refuses_a_drain_which_may_be_partial(
    cluster: MemoryCluster, tidelog: Terminal
) -> None:
    """A node that is only half empty cannot be removed: its operator learns that before bytes are moved."""

    def wide(answer: Callable[[Any], Any], request: admin_pb2.GetMetadataRequest) -> Any:
        found = answer(request)
        for partition in (each for topic in found.topics for each in topic.partitions if topic.name == "wide"):
            partition.replicas[:] = partition.isr[:] = [0, 1]
        return found

    cluster.create("wide")
    for node in cluster.nodes:
        node.on_get_metadata = partial(wide, node.on_get_metadata)
    assert tidelog("cluster", "rebalance", "--drain", "1") == 1
    assert "wide-0 needs another node" in tidelog.err
    assert "Nothing was moved; --partial moves the others" in tidelog.err
    assert begun(cluster) == []
    assert tidelog("cluster", "rebalance", "--drain", "1", "--partial", "--dry-run", "--json") == 0
    assert (tidelog.json["partitions"], [each["partition"] for each in tidelog.json["staying"]]) == (NAMES, ["wide-0"])
    assert tidelog("cluster", "rebalance", "--drain", "1", "--partial") == 1
    assert begun(cluster) == [(1, [0])]
    assert "wide-0: wide-0 needs another node" in tidelog.err
    assert "1 partition moved" in tidelog.err
    assert tidelog("cluster", "rebalance", "--drain", "1", "--partial") == 1, "nothing to move, and not empty either"
    assert "wide-0: wide-0 needs another node" in tidelog.err
    assert tidelog("cluster", "rebalance", "--partial") == 2
    assert "--partial is for --drain" in tidelog.err


def test_topics_that_the_caller_may_not_describe_are_no_empty_node(cluster: MemoryCluster, tidelog: Terminal) -> None:
    """Their logs are on the node, and nodes do not list them."""
    cluster.topics.pop("orders")
    assert tidelog("cluster", "rebalance", "--drain", "1") == 0
    assert "leaves out 1 topic that you may not DESCRIBE" in tidelog.err
    assert "orders" in tidelog.err


def test_a_refused_move_is_named(cluster: MemoryCluster, tidelog: Terminal) -> None:
    refusal = to_proto(InvalidReplicaAssignment("orders-1 cannot be moved"))
    for node in cluster.nodes:
        begin(node, admin_pb2.PartitionOutcome(partition=place(1), error=refusal))
    assert tidelog("cluster", "rebalance", "--drain", "1") == 1
    assert "orders-1: orders-1 cannot be moved" in tidelog.err
    assert "0 partitions moved" in tidelog.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--drain", "7"), 1, "there is no node 7; the registered nodes are 0, 1"),
        (("--plan-file", "absent.json"), 2, "cannot be read"),
        (("--plan-file", "absent.json", "--drain", "1"), 2, "leave out --drain"),
        (("--drain", "0", "--drain", "1"), 1, "only 0 nodes take replicas"),
        (("--drain", "1", "--log-dir", "/none"), 1, "node 1 has no log directory '/none': name one of /data"),
        (("--log-dir", "/data"), 2, "--log-dir is for --drain N"),
        (("--drain", "0", "--drain", "1", "--log-dir", "/data"), 2, "pass one node"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    cluster: MemoryCluster, tidelog: Terminal, arguments: tuple[str, ...], code: int, says: str
) -> None:
    assert tidelog("cluster", "rebalance", *arguments) == code
    assert says in tidelog.err
    assert begun(cluster) == []


def test_a_topic_gets_more_replicas(cluster: MemoryCluster, tidelog: Terminal) -> None:
    assert tidelog("topic", "alter", "orders", "--replication-factor", "2", "--validate-only") == 0
    assert begun(cluster) == []
    for node in cluster.nodes:
        begin(node, *(admin_pb2.PartitionOutcome(partition=place(index)) for index in range(2)))
    assert tidelog("topic", "alter", "orders", "--replication-factor", "2") == 0
    assert begun(cluster) == [(0, [0, 1]), (1, [1, 0])]
    assert tidelog("topic", "alter", "orders", "-r", "3") == 1
    assert "only 2 nodes take replicas" in tidelog.err
