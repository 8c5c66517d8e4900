"""The metadata side of nodes, end to end: forming a cluster, joining, replicating the log, coming back."""

from __future__ import annotations

from functools import partial

import pytest

from node.quorum.state import read_state
from testbed.topic_requests import changed, creating, deleting
from tests.node.metadata_world import MetadataWorld, endpoint_of, only_error
from tidelog.errors import (
    InconsistentClusterId,
    InvalidReplicationFactor,
    NodeNotAvailable,
    NotController,
    TopicExists,
)
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2, controller_pb2, quorum_pb2
from tidelog.records import LeaderChange, decode_control, iter_batches
from tidelog.types import NO_NODE, NodeId, Offset


def test_three_nodes_form_one_cluster_and_agree_on_it() -> None:
    with MetadataWorld() as world:
        world.begin()
        assert len({world.image(node).cluster_id for node in range(3)}) == 1
        assert {world.node_runs[node].directories[0].identity.cluster_id for node in range(3)} == {
            world.image().cluster_id
        }
        assert [voter.node_id for voter in world.image().voters] == [0]
        end = world.image().offset
        world.run_until(lambda: all(world.image(node).offset >= end for node in range(3)))
        assert world.image(1).nodes == world.image(2).nodes == world.image(0).nodes


def test_no_cluster_is_formed_before_every_node_of_the_list_has_answered() -> None:
    with MetadataWorld() as world:
        world.start(0, 1)
        world.loop.run_for(20)
        assert world.image(0).cluster_id == ""
        assert world.node_runs[0].directories[0].identity.cluster_id is None
        world.start(2)
        world.wait_whole()


def test_a_node_that_is_not_to_form_a_cluster_says_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    """If no node of the list is configured to form it, all wait for ever, each without a line."""
    caplog.set_level("INFO", "node.metadata")
    with MetadataWorld() as world:
        world.start(1)
        world.loop.run_for(20)
        (line,) = (each for each in caplog.messages if "belongs to no cluster" in each)
        assert str(endpoint_of(0)) in line and "cluster.bootstrap.enable = true" in line
        world.start(0, 2)
        world.wait_whole()
        caplog.clear()
        world.kill(1)
        world.start(1)
        world.wait_whole()
        assert not [each for each in caplog.messages if "belongs to no cluster" in each], "it is a member"


def test_an_emptied_first_node_does_not_form_another_cluster() -> None:
    """Scenario 16: the other nodes' directories belong to the cluster whose only voter's directory is lost."""
    with MetadataWorld() as world:
        world.begin()
        cluster = world.image().cluster_id
        for node in range(3):
            world.kill(node)
        world.empty(0)
        world.start(0, 1, 2)
        world.run_until(lambda: world.node_runs[0].failure is not None)
        refusal = only_error(world.node_runs[0].failure)
        assert isinstance(refusal, InconsistentClusterId)
        assert cluster in refusal.message
        assert "emptied or replaced" in refusal.message
        assert world.node_runs[0].directories[0].identity.cluster_id is None


def test_a_node_killed_while_it_formed_the_cluster_continues_with_the_same_one() -> None:
    with MetadataWorld() as world:
        world.start(0, 1, 2)
        world.run_until(
            lambda: bool(world.node_runs[0].directories and world.node_runs[0].directories[0].identity.cluster_id)
        )
        cluster = world.node_runs[0].directories[0].identity.cluster_id
        world.kill(0, power=True)
        world.start(0)
        world.wait_whole()
        assert world.image().cluster_id == cluster


def test_an_emptied_node_that_does_not_vote_joins_again() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.kill(2)
        world.empty(2)
        world.start(2)
        world.wait_whole()
        assert world.image(2).cluster_id == world.image(0).cluster_id
        assert world.image(2).nodes[NodeId(2)].former_directories != ()


def test_an_emptied_node_denies_no_topic_before_it_has_the_metadata() -> None:
    """A client that is told that its topic does not exist gives up its partitions."""
    with MetadataWorld() as world:
        world.begin()
        world.create("payments")
        world.create("orders")
        world.kill(2)
        world.empty(2)
        world.start(2)
        asked = admin_pb2.GetMetadataRequest(topics=["orders"])
        refused: list[str] = []
        answers: list[admin_pb2.TopicMetadata] = []
        while 2 not in world.unfenced(2):
            try:
                answers += world.call(2, methods.ADMIN_GET_METADATA, asked).topics
            except NodeNotAvailable as refusal:
                refused.append(refusal.message)
            world.loop.run_for(0.001)
        assert any("node 2 has not joined a cluster yet" in each for each in refused)
        assert answers
        assert [topic.error.name for topic in answers if topic.HasField("error")] == []


def test_each_leadership_of_the_quorum_has_an_epoch_of_its_own_that_a_control_record_opens() -> None:
    with MetadataWorld() as world:
        world.begin()
        for _ in range(2):
            world.kill(0, power=True)
            world.start(0)
            world.wait_whole()
        log = world.side(0).metadata.log
        entries = log.epochs.entries
        assert [entry.epoch for entry in entries] == [1, 2, 3]
        for entry in entries:
            read = log.read(entry.start_offset, 1, up_to=log.log_end_offset)
            (opening, *_) = iter_batches(read.records)
            assert opening.is_control
            (record,) = opening.records()
            change = decode_control(record)
            assert isinstance(change, LeaderChange)
            assert change.leader_id == 0
        state = read_state(world.disks[0], log.path)
        assert (state.leader_epoch, state.leader_id, state.voted_id) == (3, 0, 0)


def test_replicas_of_the_metadata_log_are_byte_identical() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create()
        end = world.image().offset
        world.run_until(lambda: all(world.image(node).offset >= end for node in range(3)))
        logs = [world.side(node).metadata.log for node in range(3)]
        copies = [bytes(log.read(Offset(0), 1 << 20, up_to=end).records) for log in logs]
        assert copies[0] == copies[1] == copies[2]
        assert logs[0].epochs.entries == logs[1].epochs.entries == logs[2].epochs.entries


def test_all_nodes_lose_power_and_the_cluster_recovers() -> None:
    with MetadataWorld() as world:
        world.begin()
        topic_id = world.create(min_insync_replicas="2")
        before = world.image().topic("orders")
        assert before is not None
        for node in range(3):
            world.kill(node, power=True)
        world.start(1, 2, 0)
        world.wait_whole()
        topic = world.image(1).topic("orders")
        assert topic is not None
        assert topic.topic_id.bytes == topic_id
        world.run_until(lambda: all(state.leader != NO_NODE for state in world.image(2).topic("orders").partitions))  # type: ignore[union-attr]
        for old, new in zip(before.partitions, world.image(2).topic("orders").partitions, strict=True):  # type: ignore[union-attr]
            assert new.leader_epoch > old.leader_epoch
            assert set(new.isr) <= set(old.isr)


def test_answered_changes_survive_a_power_failure() -> None:
    """The controller answers only what its voter has fsynced."""
    with MetadataWorld(seed=5) as world:
        world.begin()
        for round_ in range(8):
            world.create(f"topic-{round_}", partitions=1)
            world.kill(0, power=True)
            world.start(0)
            world.wait_whole()
        assert sorted(world.image().topic_ids) == [f"topic-{round_}" for round_ in range(8)]


def test_a_stuck_disk_of_the_voter_delays_answers_and_images() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.stall(0)
        request = creating(name="orders", partitions=1, replication_factor=1)
        task = world.asking(1, methods.ADMIN_CREATE_TOPICS, request)
        world.loop.run_for(5)
        assert not task.done()
        assert [world.image(node).topic("orders") for node in range(3)] == [None, None, None]
        world.release(0)
        world.run_until(task.done)
        assert world.image(1).topic("orders") is not None


def test_a_killed_node_is_fenced_and_its_restart_is_another_incarnation() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create()
        first = world.image().nodes[NodeId(2)]
        world.kill(2)
        killed_at = world.loop.time()
        world.run_until(lambda: world.unfenced() == {0, 1})
        assert world.loop.time() - killed_at < 2.7
        assert all(2 not in state.isr and state.leader in (0, 1) for state in world.image().partitions())
        world.start(2)
        world.wait_whole()
        again = world.image().nodes[NodeId(2)]
        assert again.incarnation != first.incarnation
        assert again.node_epoch > first.node_epoch


def restarted(world: MetadataWorld, node: int) -> float:
    """Start a node and wait until it is unfenced. Returns the seconds that took."""
    world.start(node)
    began = world.loop.time()
    former = world.image().nodes[NodeId(node)].incarnation

    def unfenced() -> bool:
        entry = world.image().nodes[NodeId(node)]
        return entry.incarnation != former and not entry.fenced

    world.run_until(unfenced)
    return world.loop.time() - began


def test_a_quick_restart_waits_for_no_session() -> None:
    """The locks of its directories show that the process before it has ended."""
    with MetadataWorld() as world:
        world.begin()
        world.kill(1)
        assert restarted(world, 1) < 0.5


def test_a_node_that_is_quickly_back_on_another_machine_waits_for_the_old_session_to_end() -> None:
    """Its directory may be a copy, while the process with the original still runs."""
    with MetadataWorld() as world:
        world.begin()
        world.kill(1)
        world.boots[1] = b"another machine"
        assert 1.0 < restarted(world, 1) < 4.0


def test_the_controllers_own_node_is_back_at_once() -> None:
    """Its former incarnation has certainly ended: its session need not end first."""
    with MetadataWorld(nodes=1) as world:
        world.begin()
        world.create(replicas=1)
        world.kill(0)
        world.start(0)
        began = world.loop.time()
        world.run_until(lambda: world.unfenced() == {0} and all(s.leader == 0 for s in world.image().partitions()))
        assert world.loop.time() - began < 1.0


def is_registered(world: MetadataWorld, node: int) -> bool:
    node_run = world.node_runs.get(node)
    return node_run is not None and bool(node_run.node) and world.side(node).registration.node_epoch >= 0


def test_the_number_of_a_registration_is_on_every_disk_before_the_node_is_unfenced() -> None:
    with MetadataWorld(directories=2) as world:
        world.start(0, 1, 2)
        for node in range(3):
            world.run_until(partial(is_registered, world, node))
        world.wait_whole()
        for node in range(3):
            entry = world.image().nodes[NodeId(node)]
            assert [directory.identity.last_registration for directory in world.node_runs[node].directories] == [
                entry.node_epoch
            ] * 2
            assert {state.directory_id for state in entry.directories} == {
                f.directory_id for f in world.node_runs[node].directories
            }
            for number in range(2):
                data = world.disks[node].open(f"/data{number}/registration", read_only=True)
                assert data.pread(64, 0) == f"0\n{entry.node_epoch}\n{entry.boot_id.hex()}\n".encode()


def test_a_directory_that_cannot_be_used_is_not_named() -> None:
    """Named, its number would be raised with the others': given back, it would count as an older copy of itself."""
    with MetadataWorld(directories=2) as world:
        world.begin()
        before = world.image().nodes[NodeId(2)].known_directories()
        world.kill(2)
        world.start(2)
        world.run_until(lambda: bool(world.node_runs[2].directories))
        sound, failed = world.node_runs[2].directories
        failed.offline = "a broken disk"
        world.wait_whole()
        entry = world.image().nodes[NodeId(2)]
        assert [state.directory_id for state in entry.directories] == [sound.directory_id]
        assert (
            entry.known_directories()[failed.directory_id]
            == before[failed.directory_id]
            == failed.identity.last_registration
        )


# --- changes through any node -----------------------------------------------------------------------------------


def test_a_topic_created_through_any_node_is_known_there_when_it_is_answered() -> None:
    with MetadataWorld() as world:
        world.begin()
        for node in range(3):
            topic_id = world.create(f"by-{node}", at=node)
            topic = world.image(node).topic(f"by-{node}")
            assert topic is not None
            assert topic.topic_id.bytes == topic_id


def test_errors_of_the_controller_reach_the_caller_of_any_node() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create(at=1)
        with pytest.raises(TopicExists):
            world.create(at=2)
        with pytest.raises(InvalidReplicationFactor):
            world.create("large", at=1, replicas=4)


def test_the_node_that_forwards_a_deletion_has_applied_it() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create(at=2)
        changed(world.call(1, methods.ADMIN_DELETE_TOPICS, deleting(name="orders")))
        assert world.image(1).topic("orders") is None
        assert world.image(0).topics == {}


def test_metadata_contain_topics_leaders_and_unfenced_nodes() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create(at=1, min_insync_replicas="2")
        said = world.call(1, methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(topics=["orders", "nope"]))
        assert said.cluster_id == world.image().cluster_id
        assert said.controller_id == 0
        assert [(node.node_id, node.host, node.port) for node in said.nodes] == [
            (node, f"node-{node}", 9092) for node in range(3)
        ]
        orders, nope = said.topics
        assert orders.configs["min.insync.replicas"] == "2"
        assert orders.configs["durability"] == "fsync"
        assert [partition.partition for partition in orders.partitions] == [0, 1, 2]
        assert {partition.leader for partition in orders.partitions} == {0, 1, 2}
        assert (nope.name, nope.error.name) == ("nope", "UNKNOWN_TOPIC_OR_PARTITION")
        by_id = world.call(
            2, methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(topic_ids=[orders.topic_id, b"short"])
        )
        assert [topic.name for topic in by_id.topics] == ["orders", ""]
        assert by_id.topics[1].error.name == "UNKNOWN_TOPIC_ID"
        everything = world.call(2, methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(all_topics=True))
        assert [topic.name for topic in everything.topics] == ["orders"]


def test_an_operator_gets_the_causes() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create(min_insync_replicas="3")
        world.kill(2)
        world.run_until(lambda: world.unfenced(1) == {0, 1})
        said = world.call(1, methods.ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest())
        assert [(node.address.node_id, node.fenced) for node in said.nodes] == [(0, False), (1, False), (2, True)]
        assert (said.topics, said.partitions, said.leaderless_partitions) == (1, 3, 0)
        assert (said.under_replicated_partitions, said.under_min_isr_partitions) == (3, 3)
        assert [voter.node_id for voter in said.voters] == [0]
        assert sum(node.leaders for node in said.nodes) == 3


# --- rejected nodes ---------------------------------------------------------------------------------------------


def test_a_node_that_is_not_the_controller_names_it() -> None:
    with MetadataWorld() as world:
        world.begin()
        with pytest.raises(NotController) as refused:
            world.call(2, methods.CONTROLLER_HEARTBEAT, controller_pb2.HeartbeatRequest(node_id=2))
        assert refused.value.leader is not None
        assert (refused.value.leader.node_id, refused.value.leader.endpoint) == (0, endpoint_of(0))


def test_only_the_quorums_leader_serves_the_log_and_only_to_its_cluster() -> None:
    with MetadataWorld() as world:
        world.begin()
        request = quorum_pb2.FetchMetadataRequest(
            node_id=9, last_fetched_epoch=-1, current_leader_epoch=-1, receiver=world.key(1)
        )
        elsewhere = world.call(1, methods.QUORUM_FETCH_METADATA, request)
        assert elsewhere.error.name == "NOT_LEADER_OR_FOLLOWER"
        assert elsewhere.error.leader.node_id == 0
        request.receiver.CopyFrom(world.key(0))
        stranger = quorum_pb2.FetchMetadataRequest(cluster_id="another", node_id=9, receiver=world.key(0))
        assert world.call(0, methods.QUORUM_FETCH_METADATA, stranger).error.name == "INCONSISTENT_CLUSTER_ID"
        ahead = quorum_pb2.FetchMetadataRequest(node_id=9, current_leader_epoch=99, receiver=world.key(0))
        assert world.call(0, methods.QUORUM_FETCH_METADATA, ahead).error.name == "UNKNOWN_LEADER_EPOCH"
        request.max_bytes = 1
        answer = world.call(0, methods.QUORUM_FETCH_METADATA, request)
        assert (answer.high_watermark, answer.leader_id) == (world.image().offset, 0)
        assert len(list(iter_batches(answer.records))) == 1


def test_a_diverging_log_gets_the_diverging_epoch() -> None:
    with MetadataWorld() as world:
        world.begin()
        log = world.side(0).metadata.log
        request = quorum_pb2.FetchMetadataRequest(
            cluster_id=world.image().cluster_id,
            node_id=9,
            current_leader_epoch=-1,
            fetch_offset=log.log_end_offset + 5,
            last_fetched_epoch=1,
            receiver=world.key(0),
        )
        answer = world.call(0, methods.QUORUM_FETCH_METADATA, request)
        assert (answer.diverging.epoch, answer.diverging.end_offset) == (1, log.log_end_offset)
        assert answer.records == b""


# --- stopping ---------------------------------------------------------------------------------------------------


def test_a_node_that_drains_hands_its_leaderships_over_and_may_start_again_at_once() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create(partitions=6)
        process = world.node_runs[1].process
        task = process.run(world.loop.create_task, world.side(1).drain())
        began = world.loop.time()
        world.run_until(task.done, what="drained")
        assert world.loop.time() - began < 2.0
        assert all(state.leader in (0, 2) and 1 not in state.isr for state in world.image().partitions())
        world.kill(1)
        world.start(1)
        began = world.loop.time()
        world.wait_whole()
        assert world.loop.time() - began < 1.5


def test_all_nodes_drain_at_once() -> None:
    """Scenario 16: the voter may stop first; the others do not wait half a minute for it."""
    with MetadataWorld() as world:
        world.begin()
        world.create(partitions=6)
        began = world.loop.time()
        tasks = {
            node: world.node_runs[node].process.run(world.loop.create_task, world.side(node).drain())
            for node in range(3)
        }
        for node in range(3):
            world.run_until(tasks[node].done, what=f"node {node} is drained")
            world.kill(node)
        assert world.loop.time() - began < 5.0
        world.start(0, 1, 2)
        world.wait_whole()
        world.run_until(lambda: all(state.leader != NO_NODE for state in world.image().partitions()))
