"""Requests of operators, sent to nodes that must forward them: elections, moves, settings, partitions, explanations."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.api.admin_requests import CreateTopicsRequest, DeleteTopicsRequest, ElectLeadersRequest, TopicPartitionId
from node.api.caller import Caller
from node.api.config_requests import DescribeConfigsRequest
from node.api.metadata import GetMetadataRequest
from node.quorum.state import LOST_MS
from node.requests.context import RequestContext
from node.security.authorizer import Authorizer
from replication.controller import features
from replication.controller.events import CreateTopic, DeleteTopic, ElectionType
from testbed.topic_requests import altering, changed, growing
from tests.node.metadata_world import MetadataWorld
from tidelog.cluster_descriptions import ConfigResource, ConfigResourceType
from tidelog.errors import (
    ElectionNotNeeded,
    FeatureUpdateFailed,
    InvalidConfig,
    InvalidPartitions,
    NotController,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from tidelog.protocol import methods
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import admin_pb2
from tidelog.security.acls import OPERATIONS, AclOperation, ResourceType
from tidelog.types import NodeId, PartitionIndex

PLACE = admin_pb2.TopicPartitionId(topic="orders", partition=0)


def test_settings_and_partitions_are_changed_through_any_node_and_are_there_when_it_answers() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create(min_insync_replicas="1")

        def alter(**configs: str | None) -> None:
            changes = [admin_pb2.ConfigChange(key=key.replace("_", "."), value=value) for key, value in configs.items()]
            request = altering(topic="orders", changes=changes)
            changed(world.call(2, methods.ADMIN_INCREMENTAL_ALTER_CONFIGS, request))

        alter(min_insync_replicas="2", retention_ms="1000")
        topic = world.image(2).topic("orders")
        assert topic is not None
        assert (topic.min_insync_replicas, topic.configs["retention.ms"]) == (2, "1000")
        alter(retention_ms=None)
        assert "retention.ms" not in world.image(2).topics[topic.topic_id].configs
        with pytest.raises(InvalidConfig, match="create a new topic"):
            alter(durability="page-cache")
        with pytest.raises(InvalidConfig, match=r"no\.such\.key"):
            alter(no_such_key="1")
        more = growing(topic="orders", count=5)
        changed(world.call(1, methods.ADMIN_CREATE_PARTITIONS, more))
        assert len(world.image(1).topics[topic.topic_id].partitions) == 5
        with pytest.raises(InvalidPartitions):
            changed(world.call(1, methods.ADMIN_CREATE_PARTITIONS, more))
        by_hand = growing(topic="orders", count=0)
        by_hand.topics[0].first = 5
        by_hand.topics[0].assignments.add(replicas=[2, 0, 1])
        changed(world.call(1, methods.ADMIN_CREATE_PARTITIONS, by_hand))
        assert world.image(1).topics[topic.topic_id].partitions[5].replicas == (2, 0, 1)


def test_topics_of_one_request_are_changed_one_by_one_and_their_errors_are_theirs() -> None:
    def ended(answer: admin_pb2.ChangedTopics) -> list[tuple[str, str]]:
        return [(topic.name, topic.error.name) for topic in answer.topics]

    with MetadataWorld() as world:
        world.begin()
        kept = UUID(bytes=world.create("kept"))
        new = [
            admin_pb2.CreateTopic(name=name, partitions=partitions, replication_factor=1, validate_only=only)
            for name, partitions, only in (
                ("a", 1, False),
                ("kept", 1, False),
                ("a", 1, False),
                ("b", 0, False),
                ("__consumer_offsets", 1, False),
                ("checked", 1, True),
                ("c", 2, False),
            )
        ]
        created = world.call(1, methods.ADMIN_CREATE_TOPICS, admin_pb2.CreateTopicsRequest(topics=new))
        assert ended(created) == [
            ("a", ""),
            ("kept", "TOPIC_ALREADY_EXISTS"),
            ("a", "TOPIC_ALREADY_EXISTS"),
            ("b", "INVALID_PARTITIONS"),
            ("__consumer_offsets", "INVALID_TOPIC_EXCEPTION"),
            ("checked", ""),
            ("c", ""),
        ]
        assert set(world.image(1).topic_ids) == {"kept", "a", "c"}, "applied when it is answered"
        assert [bool(topic.topic_id) for topic in created.topics if not topic.error.name] == [True, False, True]

        more = [admin_pb2.CreatePartitions(name=name, count=3) for name in ("a", "none", "c")]
        grown = world.call(2, methods.ADMIN_CREATE_PARTITIONS, admin_pb2.CreatePartitionsRequest(topics=more))
        assert ended(grown) == [("a", ""), ("none", "UNKNOWN_TOPIC_OR_PARTITION"), ("c", "")]
        assert [len(topic.partitions) for topic in map(world.image(2).topic, ("a", "c")) if topic] == [3, 3]

        change = admin_pb2.ConfigChange(key="retention.ms", value="1000")
        wrong = admin_pb2.ConfigChange(key="retention.ms", value="soon")
        alterations = [
            admin_pb2.AlterConfigs(name=name, changes=[each])
            for name, each in (("a", wrong), ("none", change), ("c", change))
        ]
        request = admin_pb2.IncrementalAlterConfigsRequest(topics=alterations)
        altered = world.call(0, methods.ADMIN_INCREMENTAL_ALTER_CONFIGS, request)
        assert ended(altered) == [("a", "INVALID_CONFIG"), ("none", "UNKNOWN_TOPIC_OR_PARTITION"), ("c", "")]
        assert [topic.configs for topic in map(world.image(0).topic, ("a", "c")) if topic] == [
            {},
            {"retention.ms": "1000"},
        ]

        gone = [
            admin_pb2.DeleteTopic(name="a"),
            admin_pb2.DeleteTopic(topic_id=bytes(16)),
            admin_pb2.DeleteTopic(name="none"),
            admin_pb2.DeleteTopic(name="c", topic_id=kept.bytes),
            admin_pb2.DeleteTopic(topic_id=kept.bytes),
        ]
        deleted = world.call(1, methods.ADMIN_DELETE_TOPICS, admin_pb2.DeleteTopicsRequest(topics=gone))
        assert ended(deleted) == [
            ("a", ""),
            ("", "UNKNOWN_TOPIC_ID"),
            ("none", "UNKNOWN_TOPIC_OR_PARTITION"),
            ("c", "INCONSISTENT_TOPIC_ID"),
            ("kept", ""),
        ]
        assert set(world.image(1).topic_ids) == {"c"}


def test_errors_of_single_topics_and_partitions_are_counted() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create("kept")
        handlers: Any = world.side(0).services["Admin"]

        def errors(handle: str, request: object) -> dict[str, int]:
            context = RequestContext("GRPC", "here")
            world.do(getattr(handlers, handle)(request, context))
            return context.meter.errors

        new = tuple(CreateTopic(name, 1, 1, {}) for name in ("kept", "new", "kept"))
        assert errors("create_topics", CreateTopicsRequest(new)) == {"TOPIC_ALREADY_EXISTS": 2}
        gone = (DeleteTopic("none"), DeleteTopic("new"))
        assert errors("delete_topics", DeleteTopicsRequest(gone)) == {"UNKNOWN_TOPIC_OR_PARTITION": 1}
        unknown = {"UNKNOWN_TOPIC_OR_PARTITION": 1}
        topics = tuple(ConfigResource(ConfigResourceType.TOPIC, name) for name in ("none", "kept"))
        assert errors("describe_configs", DescribeConfigsRequest(topics)) == unknown
        places = (TopicPartitionId("none", PartitionIndex(0)), TopicPartitionId("kept", PartitionIndex(0)))
        elected = errors("elect_leaders", ElectLeadersRequest(ElectionType.PREFERRED, places))
        assert elected == {**unknown, "ELECTION_NOT_NEEDED": 1}


def test_a_lost_controller_is_waited_for_once_however_many_topics_are_asked_for() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.stall(0)
        new = [admin_pb2.CreateTopic(name=f"t-{n}", partitions=1, replication_factor=1) for n in range(5)]
        task = world.asking(1, methods.ADMIN_CREATE_TOPICS, admin_pb2.CreateTopicsRequest(topics=new))
        world.run_until(task.done)
        errors = [topic.error for topic in task.result().topics]
        assert [type(from_proto(each)) for each in errors] == [RequestTimedOut] * 5
        for number, error in enumerate(errors[1:], 1):
            assert error.message.startswith(
                f"t-{number} was not changed: the controller did not answer in time for t-0"
            )
        world.release(0)
        world.wait_whole()
        assert set(world.image().topic_ids) <= {"t-0"}


def test_a_move_begins_is_listed_and_is_taken_back() -> None:
    with MetadataWorld(nodes=4) as world:
        world.begin()
        world.create(partitions=1)
        state = next(world.image().partitions())
        (other,) = {0, 1, 2, 3} - set(state.replicas)
        target = [*state.replicas[:2], other]
        item = admin_pb2.PartitionReassignment(partition=PLACE, replicas=target)
        request = admin_pb2.AlterPartitionReassignmentsRequest(partitions=[item])
        (outcome,) = world.call(3, methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, request).partitions
        assert not outcome.HasField("error")
        assert outcome.partition.topic == "orders"
        world.run_until(
            lambda: any(state.adding for state in world.image(3).partitions()), what="node 3 has applied it"
        )
        asked = admin_pb2.ListPartitionReassignmentsRequest()
        (moving,) = world.call(3, methods.ADMIN_LIST_PARTITION_REASSIGNMENTS, asked).partitions
        assert (list(moving.adding), list(moving.removing)) == ([other], [state.replicas[2]])
        cancel = admin_pb2.PartitionReassignment(partition=PLACE, cancel=True)
        request = admin_pb2.AlterPartitionReassignmentsRequest(partitions=[cancel])
        world.call(3, methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, request)
        assert set(next(world.image().partitions()).replicas) == set(state.replicas)


def test_elections_are_refused_one_by_one() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create(partitions=1)
        for kind in (admin_pb2.ELECTION_TYPE_PREFERRED, admin_pb2.ELECTION_TYPE_UNCLEAN):
            request = admin_pb2.ElectLeadersRequest(type=kind, partitions=[PLACE])
            (outcome,) = world.call(1, methods.ADMIN_ELECT_LEADERS, request).partitions
            assert isinstance(from_proto(outcome.error), ElectionNotNeeded)
        nothing = admin_pb2.TopicPartitionId(topic="nothing")
        one_more = admin_pb2.TopicPartitionId(topic="orders", partition=1)
        for places, errors in (
            ([nothing], ["UNKNOWN_TOPIC_OR_PARTITION"]),
            ([one_more, nothing, PLACE], ["UNKNOWN_TOPIC_OR_PARTITION"] * 2 + ["ELECTION_NOT_NEEDED"]),
        ):
            answer = world.call(1, methods.ADMIN_ELECT_LEADERS, admin_pb2.ElectLeadersRequest(partitions=places))
            assert [(each.partition.topic, each.partition.partition) for each in answer.partitions] == [
                (each.topic, each.partition) for each in places
            ]
            assert [each.error.name for each in answer.partitions] == errors
        moves = [admin_pb2.PartitionReassignment(partition=each, cancel=True) for each in (nothing, PLACE)]
        moving = admin_pb2.AlterPartitionReassignmentsRequest(partitions=moves)
        moved = world.call(2, methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, moving)
        assert [each.error.name for each in moved.partitions] == [
            "UNKNOWN_TOPIC_OR_PARTITION",
            "NO_REASSIGNMENT_IN_PROGRESS",
        ]
        empty = world.call(1, methods.ADMIN_ELECT_LEADERS, admin_pb2.ElectLeadersRequest())
        assert list(empty.partitions) == []


def test_any_node_explains_unhealthy_partitions() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create(partitions=1, min_insync_replicas="3")
        everything = admin_pb2.ExplainPartitionsRequest()
        assert list(world.call(1, methods.ADMIN_EXPLAIN_PARTITIONS, everything).partitions) == []
        restart = admin_pb2.ExplainRestartRequest(node_id=2)
        explanation = world.call(1, methods.ADMIN_EXPLAIN_RESTART, restart)
        assert not explanation.safe
        assert "min.insync.replicas" in explanation.reasons[0]
        world.kill(2)
        world.run_until(lambda: world.image(1).nodes[2].fenced, what="node 2 is fenced")  # type: ignore[index]
        (found,) = world.call(1, methods.ADMIN_EXPLAIN_PARTITIONS, everything).partitions
        assert (found.partition.topic, found.readable, found.writable) == ("orders", True, False)
        assert "start node 2" in found.steps
        missing = admin_pb2.ExplainPartitionsRequest(partitions=[admin_pb2.TopicPartitionId(topic="nothing")])
        (unknown,) = world.call(1, methods.ADMIN_EXPLAIN_PARTITIONS, missing).partitions
        assert isinstance(from_proto(unknown.error), UnknownTopicOrPartition)


def test_the_remaining_nodes_report_a_lost_majority_and_call_nothing_safe() -> None:
    """Otherwise a remaining node would repeat the last state of the controller, in which all was well."""
    with MetadataWorld(4, voters=3) as world:
        world.begin()
        world.create(partitions=1)
        describe, restart = admin_pb2.DescribeClusterRequest(), admin_pb2.ExplainRestartRequest(node_id=3)
        world.run_until(lambda: len(world.image(3).voters) == 3, what="three vote")
        assert world.call(3, methods.ADMIN_DESCRIBE_CLUSTER, describe).controller_silence_ms < LOST_MS
        for node in (0, 1):
            world.kill(node)
        for node in (2, 3):  # one that votes, and one that does not
            world.run_until(lambda node=node: world.side(node).view.is_lost, what="it misses the controller")  # type: ignore[misc]
            explanation = world.call(node, methods.ADMIN_DESCRIBE_CLUSTER, describe)
            assert (explanation.controller_id, explanation.controller_silence_ms > LOST_MS) == (-1, True)
            explained = world.call(node, methods.ADMIN_EXPLAIN_RESTART, restart)
            assert not explained.safe
            assert "a majority of the voters, nodes [0, 1, 2], must run" in explained.reasons[0]
        asked_at = world.loop.time()
        with pytest.raises(NotController, match=r"a majority of the voters, nodes \[0, 1, 2\], must run"):
            world.create("more", at=3)
        assert world.loop.time() - asked_at < 4, "it does not keep an operator waiting"
        world.start(0)
        world.run_until(lambda: world.unfenced(3) == {0, 2, 3}, what="two of three continue")
        assert world.call(3, methods.ADMIN_DESCRIBE_CLUSTER, describe).controller_id in (0, 2)


def test_the_feature_level_is_the_latest_and_stays() -> None:
    with MetadataWorld() as world:
        world.begin()
        described = world.call(1, methods.ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest())
        assert described.feature_level == features.LATEST
        assert world.call(1, methods.ADMIN_UPDATE_FEATURES, admin_pb2.UpdateFeaturesRequest()).level == features.LATEST
        with pytest.raises(FeatureUpdateFailed, match="cannot go back"):
            world.call(1, methods.ADMIN_UPDATE_FEATURES, admin_pb2.UpdateFeaturesRequest(level=1))


def test_any_node_describes_the_quorum_as_its_leader_knows_it() -> None:
    """A node that is asked as the leader, and does not lead, passes nothing on."""
    with MetadataWorld(nodes=4, voters=3) as world:
        world.begin()
        world.wait_whole()
        leader = world.image().nodes[NodeId(0)].node_id
        answers = [
            world.call(node, methods.ADMIN_DESCRIBE_QUORUM, admin_pb2.DescribeQuorumRequest()) for node in range(4)
        ]
        for answer in answers:
            assert answer.leader_id == leader
            assert [each.node_id for each in answer.voters] == [0, 1, 2]
            assert [each.node_id for each in answer.observers] == [3]
            assert answer.high_watermark > 0
            by_node = {each.node_id: each for each in (*answer.voters, *answer.observers)}
            assert by_node[leader].last_fetch_ms == -1
            assert min(each.log_end_offset for each in by_node.values()) >= 0
            assert all(each.last_fetch_ms > 0 for node, each in by_node.items() if node != leader)
            assert [address.host for address in by_node[1].listeners] == ["node-1"]
        asked = admin_pb2.DescribeQuorumRequest(is_forwarded=True)
        with pytest.raises(NotLeaderOrFollower, match="node 1 does not lead"):
            world.call(1, methods.ADMIN_DESCRIBE_QUORUM, asked)


class Describes(Authorizer):
    """Allows to describe and to read the topic "orders"."""

    def allows(self, _caller: Caller, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        wanted = (AclOperation.DESCRIBE, AclOperation.READ)
        return resource_type is ResourceType.TOPIC and name == "orders" and operation in wanted


def test_a_caller_learns_what_it_may_do_if_it_asks() -> None:
    """Without an authorizer all that there is; with nothing of what it may not describe."""
    with MetadataWorld() as world:
        world.begin()
        world.create("orders")
        handlers: Any = world.side(0).services["Admin"]

        def asked(authorizer: Authorizer, **fields: Any) -> tuple[Any, Any]:
            context = RequestContext("client", "here", authorizer=authorizer)
            answer = world.do(handlers.get_metadata(GetMetadataRequest(("orders",), **fields), context))
            return answer.operations, answer.topics[0].operations

        assert asked(Authorizer()) == (None, None)
        both = {"with_topic_operations": True, "with_cluster_operations": True}
        cluster, topic = asked(Authorizer(), **both)
        assert set(cluster) == OPERATIONS[ResourceType.CLUSTER]
        assert set(topic) == OPERATIONS[ResourceType.TOPIC]
        assert asked(Describes(), **both) == ((), (AclOperation.READ, AclOperation.DESCRIBE))
