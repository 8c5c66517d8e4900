"""Kafka's messages about offsets of groups, members of consumer groups and tools for groups, and their values: every
offered version of each."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.listeners.kafka.exchange import Exchange, KafkaApi, head_of
from node.listeners.kafka.kafka_consumer_groups import CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT
from node.listeners.kafka.kafka_group_admin import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS
from node.listeners.kafka.kafka_group_offsets import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from node.listeners.kafka.kafka_groups import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from replication.coordination import classic_requests as classic
from replication.coordination.group_requests import (
    CommittedPartition,
    CommittedPartitions,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    DeletedGroup,
    DeleteGroupsAnswer,
    DescribeConsumerGroupsAnswer,
    DescribedGroup,
    DescribedMember,
    FetchedOffset,
    FetchOffsetsOfGroupsAnswer,
    GenerationOffsetCommit,
    ListedCoordinator,
    ListGroupsAnswer,
    NamedPartition,
    OffsetFetch,
    OffsetsOfGroup,
)
from tests.node.kafka_exchanges import answered, begun, exchanged, name_of, request
from tests.node.kafka_frames import request_frame
from tidelog.cluster_descriptions import GroupListing
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InconsistentGroupProtocol,
    InvalidRequest,
    NonEmptyGroup,
    NotCoordinator,
    RequestTimedOut,
    TidelogError,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from tidelog.types import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicPartitions,
)

TOPIC_ID = UUID(int=77)


@pytest.mark.parametrize("version", OFFSET_COMMIT.versions)
def test_a_member_of_a_group_that_does_not_exist_learns_it_as_its_version_can(version: int) -> None:
    """Members that know only the classic protocol join again after ILLEGAL_GENERATION (22)."""
    module = request("OffsetCommit")
    partitions = tuple(module.OffsetCommitRequestPartition(each, 70, None) for each in (5, 2))
    message = module.OffsetCommitRequest(
        "g", 4, "m", (module.OffsetCommitRequestTopic(name="a", partitions=partitions),)
    )
    exchange, asked = begun(OFFSET_COMMIT, version, message)
    assert isinstance(asked, GenerationOffsetCommit) == (version < 9)
    for error, code in (
        (GroupIdNotFound("there is none"), 69 if version >= 9 else 22),
        (UnknownMemberId("not a member"), 25),
        (RequestTimedOut("it may be committed"), 15),
    ):
        (topic,) = answered(OFFSET_COMMIT, version, exchange.refuse(error)).topics
        assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(5, code), (2, code)]


def fetched(topic: str, index: int, error: TidelogError | None = None) -> FetchedOffset:
    return FetchedOffset(topic, PartitionIndex(index), error, Offset(70 + index), LeaderEpoch(3), "note")


def shown(topics: Any) -> list[tuple[str, list[tuple[int, int, str]]]]:
    """The partitions of an answer to OffsetFetch."""
    return [
        (topic.name, [(each.partition_index, each.committed_offset, each.metadata) for each in topic.partitions])
        for topic in topics
    ]


@pytest.mark.parametrize("version", [each for each in OFFSET_FETCH.versions if each < 8])
def test_committed_offsets_are_answered_in_the_order_of_the_request(version: int) -> None:
    """All of a group are asked for by null, and then answered topic by topic."""
    module = request("OffsetFetch")
    stable: dict[str, Any] = {"require_stable": True} if version >= 7 else {}
    message = module.OffsetFetchRequest("g", (module.OffsetFetchRequestTopic("a", (5, 2)),), **stable)
    _, value = begun(OFFSET_FETCH, version, message)
    partitions = (NamedPartition("a", PartitionIndex(5)), NamedPartition("a", PartitionIndex(2)))
    assert value.groups == (OffsetFetch("g", "", -1, partitions, require_stable=version >= 7),)

    unstable = fetched("a", 2, UnstableOffsetCommit("a transaction is open"))
    answer = exchanged(OFFSET_FETCH, version, message, offsets(OffsetsOfGroup("g", None, (fetched("a", 5), unstable))))
    assert shown(answer.topics) == [("a", [(5, 75, "note"), (2, 72, "note")])]
    assert [each.error_code for each in answer.topics[0].partitions] == [0, 88]
    assert {each.committed_leader_epoch for each in answer.topics[0].partitions} == {3 if version >= 5 else -1}
    if version >= 2:
        everything = OffsetsOfGroup("g", None, (fetched("b", 1), fetched("a", 2), fetched("b", 0)))
        answer = exchanged(OFFSET_FETCH, version, module.OffsetFetchRequest("g", None), offsets(everything))
        parts = [(each.name, [part.partition_index for part in each.partitions]) for each in answer.topics]
        assert parts == [("a", [2]), ("b", [0, 1])]


def offsets(*groups: OffsetsOfGroup) -> FetchOffsetsOfGroupsAnswer:
    return FetchOffsetsOfGroupsAnswer(groups)


@pytest.mark.parametrize("version", OFFSET_FETCH.versions)
def test_offsets_of_a_group_that_its_coordinator_refuses_have_its_error(version: int) -> None:
    """At the partitions, later for the whole answer, and from version 8 on for each group. A consumer of librdkafka
    asks again after COORDINATOR_LOAD_IN_PROGRESS (14) only; aiokafka stops after COORDINATOR_NOT_AVAILABLE."""
    module = request("OffsetFetch")
    refused = OffsetsOfGroup("g", CoordinatorNotAvailable("it is cut off"))
    if version >= 8:
        asked = module.OffsetFetchRequestTopics((5, 2), name="a")
        groups = tuple(module.OffsetFetchRequestGroup(each, (asked,)) for each in ("g", "h"))
        message = module.OffsetFetchRequest(groups=groups)
        found = OffsetsOfGroup("h", None, (fetched("a", 5), fetched("a", 2)))
        answer = exchanged(OFFSET_FETCH, version, message, offsets(refused, found))
        assert [(each.group_id, each.error_code) for each in answer.groups] == [("g", 14), ("h", 0)]
        assert (answer.groups[0].topics, shown(answer.groups[1].topics)[0][0]) == ((), "a")
        return
    message = module.OffsetFetchRequest("g", (module.OffsetFetchRequestTopic("a", (5, 2)),))
    answer = exchanged(OFFSET_FETCH, version, message, offsets(refused))
    assert answer.error_code == (14 if version >= 2 else 0)
    found_codes = [each.error_code for topic in answer.topics for each in topic.partitions]
    assert found_codes == ([] if version >= 2 else [14, 14])


@pytest.mark.parametrize(
    ("kafka", "loading"),
    [(JOIN_GROUP, 14), (SYNC_GROUP, 27), (HEARTBEAT, 15)],
    ids=["JoinGroup", "SyncGroup", "Heartbeat"],
)
def test_a_member_whose_coordinator_may_not_answer_yet_learns_what_it_knows(kafka: KafkaApi, loading: int) -> None:
    """After COORDINATOR_LOAD_IN_PROGRESS (14) in answer to SyncGroup or Heartbeat the reads of aiokafka raise. Kafka's
    brokers before 4.0 have members join again after SyncGroup (REBALANCE_IN_PROGRESS, 27)."""
    message = {
        JOIN_GROUP.key: request("JoinGroup").JoinGroupRequest("g", 6_000, "m", "consumer", (), 9_000),
        SYNC_GROUP.key: request("SyncGroup").SyncGroupRequest("g", 1, "m", (), None, "consumer", "range"),
        HEARTBEAT.key: request("Heartbeat").HeartbeatRequest("g", 1, "m"),
    }[kafka.key]
    for error, code in (
        (CoordinatorLoadInProgress("it is being loaded"), loading),
        (CoordinatorNotAvailable("it has no lease"), 15),
        (NotCoordinator("it has moved"), 16),
    ):
        exchange, _ = begun(kafka, kafka.versions[-1], message)
        assert answered(kafka, kafka.versions[-1], exchange.refuse(error)).error_code == code


@pytest.mark.parametrize("version", [each for each in OFFSET_FETCH.versions if each >= 8])
def test_a_request_names_many_groups_and_the_member_that_asks(version: int) -> None:
    module = request("OffsetFetch")
    member: dict[str, Any] = {"member_id": "m", "member_epoch": 7} if version >= 9 else {}
    topic = module.OffsetFetchRequestTopics((1,), name="a")
    groups = (module.OffsetFetchRequestGroup("g", (topic,), **member), module.OffsetFetchRequestGroup("h", None))
    message = module.OffsetFetchRequest(groups=groups, require_stable=True)
    _, value = begun(OFFSET_FETCH, version, message)
    named = (NamedPartition("a", PartitionIndex(1)),)
    asking = ("m", 7) if version >= 9 else ("", -1)
    assert value.groups == (
        OffsetFetch("g", *asking, named, require_stable=True),
        OffsetFetch("h", "", -1, None, require_stable=True),
    )
    answer = exchanged(
        OFFSET_FETCH,
        version,
        message,
        offsets(
            OffsetsOfGroup("g", None, (fetched("a", 1),)),
            OffsetsOfGroup("h", None, (fetched("b", 0), fetched("a", 4), fetched("b", 9))),
        ),
    )
    assert [(each.group_id, shown(each.topics)) for each in answer.groups] == [
        ("g", [("a", [(1, 71, "note")])]),
        ("h", [("a", [(4, 74, "note")]), ("b", [(0, 70, "note"), (9, 79, "note")])]),
    ]


def test_offsets_are_deleted_one_by_one() -> None:
    module = request("OffsetDelete")
    partitions = tuple(module.OffsetDeleteRequestPartition(each) for each in (5, 2))
    message = module.OffsetDeleteRequest("g", (module.OffsetDeleteRequestTopic("a", partitions),))
    exchange, value = begun(OFFSET_DELETE, 0, message)
    assert [(each.topic, each.partition) for each in value.partitions] == [("a", 5), ("a", 2)]
    outcomes = (None, GroupSubscribedToTopic("a member reads it"))
    answer = exchanged(
        OFFSET_DELETE,
        0,
        message,
        CommittedPartitions(tuple(CommittedPartition("a", PartitionIndex(0), each) for each in outcomes)),
    )
    (topic,) = answer.topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(5, 0), (2, 86)]
    refused = answered(OFFSET_DELETE, 0, exchange.refuse(NonEmptyGroup("it has members")))
    assert (refused.error_code, refused.topics) == (68, ())


# --- members and tools of groups ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", CONSUMER_GROUP_HEARTBEAT.versions)
def test_a_member_of_a_consumer_group_joins_and_is_assigned(version: int) -> None:
    """null stands for what has not changed; a pattern and an id of one's own came with version 1."""
    module = request("ConsumerGroupHeartbeat")
    pattern: dict[str, Any] = {"subscribed_topic_regex": "or.*"} if version >= 1 else {}
    message = module.ConsumerGroupHeartbeatRequest("g", "m", 0, "one", "rack", 9_000, ("a",), "uniform", (), **pattern)
    _, value = begun(CONSUMER_GROUP_HEARTBEAT, version, message)
    assert value == ConsumerGroupHeartbeat(
        "g", "m", 0, "one", "rack", 9_000, ("a",), "or.*" if version >= 1 else None, "uniform", ()
    )
    later = module.ConsumerGroupHeartbeatRequest("g", "m", 3, None, None, -1, None, None, None)
    _, value = begun(CONSUMER_GROUP_HEARTBEAT, version, later)
    assert value == ConsumerGroupHeartbeat("g", "m", 3)

    assigned = (TopicPartitions(TOPIC_ID, (PartitionIndex(0), PartitionIndex(2))),)
    answer = exchanged(
        CONSUMER_GROUP_HEARTBEAT, version, later, ConsumerGroupHeartbeatAnswer(None, "m", 4, 5_000, assigned)
    )
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (
        0,
        "m",
        4,
        5_000,
    )
    assert answer.assignment.topic_partitions == assigned
    unchanged = exchanged(CONSUMER_GROUP_HEARTBEAT, version, later, ConsumerGroupHeartbeatAnswer(None, "m", 4, 5_000))
    assert unchanged.assignment is None


def test_a_member_chooses_its_id_where_its_version_says_so() -> None:
    """Version 0 may leave it to the coordinator, as Java 3.9 does."""
    module = request("ConsumerGroupHeartbeat")
    message = module.ConsumerGroupHeartbeatRequest("g", "", 0, None, None, 9_000, ("a",), None, ())
    assert begun(CONSUMER_GROUP_HEARTBEAT, 0, message)[1].member_id == ""
    frame = memoryview(request_frame("ConsumerGroupHeartbeat", 1, message, 7))[4:]
    exchange = Exchange(CONSUMER_GROUP_HEARTBEAT, head_of(frame), 12)
    with pytest.raises(InvalidRequest, match="member id is empty") as refused:
        exchange.decode(frame)
    answer = answered(CONSUMER_GROUP_HEARTBEAT, 1, exchange.refuse(refused.value))
    assert (answer.error_code, answer.assignment) == (42, None)


@pytest.mark.parametrize("version", CONSUMER_GROUP_DESCRIBE.versions)
def test_consumer_groups_are_described_with_the_names_of_topics(version: int) -> None:
    """A topic that was deleted since has none, and is left out."""
    has = (TopicPartitions(TOPIC_ID, (PartitionIndex(0),)), TopicPartitions(UUID(int=9), (PartitionIndex(1),)))
    members = tuple(
        DescribedMember(name, None, None, "client", "10.0.0.1", 3, ("orders",), "or.*", has, (), is_classic=is_classic)
        for name, is_classic in (("m", False), ("old", True))
    )
    group = DescribedGroup("g", None, "consumer", "Stable", 4, 3, "uniform", members)
    refused = DescribedGroup("h", GroupIdNotFound("there is none"))
    message = request("ConsumerGroupDescribe").ConsumerGroupDescribeRequest(
        ("g", "h"), include_authorized_operations=True
    )
    _, value = begun(CONSUMER_GROUP_DESCRIBE, version, message)
    assert value.group_ids == ("g", "h")
    answer = exchanged(
        CONSUMER_GROUP_DESCRIBE, version, message, DescribeConsumerGroupsAnswer((group, refused), {TOPIC_ID: "orders"})
    )
    first, second = answer.groups
    assert (first.group_state, first.group_epoch, first.assignment_epoch, first.assignor_name) == (
        "Stable", 4, 3, "uniform",
    )  # fmt: skip
    assert [(each.topic_name, each.partitions) for each in first.members[0].assignment.topic_partitions] == [
        ("orders", (0,))
    ]
    assert [each.member_type for each in first.members] == ([1, 0] if version >= 1 else [-1, -1])
    assert (second.error_code, second.error_message, second.members) == (69, "there is none", ())


@pytest.mark.parametrize("version", LIST_GROUPS.versions)
def test_groups_are_listed_as_the_version_can_say(version: int) -> None:
    filters: dict[str, Any] = {"states_filter": ("Stable",)} if version >= 4 else {}
    filters |= {"types_filter": ("consumer",)} if version >= 5 else {}
    message = request("ListGroups").ListGroupsRequest(**filters)
    _, value = begun(LIST_GROUPS, version, message)
    assert (value.states, value.types) == (filters.get("states_filter", ()), filters.get("types_filter", ()))
    listed = (GroupListing("g", "classic", "Stable", 2, "connect"),)
    moved = ListedCoordinator(PartitionIndex(3), NotCoordinator("another node has it"))
    answer = exchanged(LIST_GROUPS, version, message, ListGroupsAnswer(listed, (moved,), 50))
    (group,) = answer.groups
    assert (answer.error_code, group.group_id, group.protocol_type) == (0, "g", "connect")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


def test_a_listing_without_the_groups_of_a_coordinator_is_an_error() -> None:
    """Clients ask again: they would take the missing groups for deleted."""
    loading = ListedCoordinator(PartitionIndex(3), CoordinatorLoadInProgress("it reads its log"))
    answer = exchanged(
        LIST_GROUPS,
        5,
        request("ListGroups").ListGroupsRequest(),
        ListGroupsAnswer((GroupListing("g", "classic", "Stable", 2),), (loading,), 50),
    )
    assert (answer.error_code, answer.groups) == (14, ())


@pytest.mark.parametrize("version", DESCRIBE_GROUPS.versions)
def test_classic_groups_are_described_with_the_bytes_of_their_members(version: int) -> None:
    """A group that does not exist, or is a consumer group, is Dead, and from version 6 on an error, too."""
    instance = "one" if version >= 4 else None
    member = classic.DescribedClassicMember("m", instance, "client", "10.0.0.1", b"topics", b"partitions")
    group = classic.DescribedClassicGroup("g", None, "Stable", "consumer", "range", (member,))
    missing = classic.DescribedClassicGroup("h", GroupIdNotFound("there is none"))
    other = classic.DescribedClassicGroup("i", NotCoordinator("another node has it"))
    message = request("DescribeGroups").DescribeGroupsRequest(
        ("g", "h", "i"), include_authorized_operations=version >= 3
    )
    _, value = begun(DESCRIBE_GROUPS, version, message)
    assert value.group_ids == ("g", "h", "i")
    answer = exchanged(DESCRIBE_GROUPS, version, message, classic.DescribeClassicGroupsAnswer((group, missing, other)))
    first, second, third = answer.groups
    assert (first.error_code, first.group_state, first.protocol_type, first.protocol_data) == (
        0, "Stable", "consumer", "range",
    )  # fmt: skip
    assert [
        (each.member_id, each.group_instance_id, each.member_metadata, each.member_assignment) for each in first.members
    ] == [("m", instance, b"topics", b"partitions")]
    assert (second.error_code, second.group_state) == (69 if version >= 6 else 0, "Dead")
    assert (third.error_code, third.group_state) == (16, "")
    if version >= 6:
        assert second.error_message == "there is none"


@pytest.mark.parametrize("version", DELETE_GROUPS.versions)
def test_groups_are_deleted_one_by_one(version: int) -> None:
    message = request("DeleteGroups").DeleteGroupsRequest(("g", "h"))
    _, value = begun(DELETE_GROUPS, version, message)
    assert value.group_ids == ("g", "h")
    outcomes = DeleteGroupsAnswer((DeletedGroup("g"), DeletedGroup("h", NonEmptyGroup("it has members"))))
    answer = exchanged(DELETE_GROUPS, version, message, outcomes)
    assert [(each.group_id, each.error_code) for each in answer.results] == [("g", 0), ("h", 68)]


@pytest.mark.parametrize("kafka", [JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP, CONSUMER_GROUP_HEARTBEAT])
def test_a_member_looks_for_the_coordinator_that_did_not_commit_in_time(kafka: KafkaApi) -> None:
    """Members of Java stop after REQUEST_TIMED_OUT (7), which these answers of Kafka never have."""
    version = kafka.versions[-1]
    fields = {
        JOIN_GROUP: ("g", 6_000, "m", "consumer", (), 9_000),
        SYNC_GROUP: ("g", 4, "m", (), None, "consumer", "range"),
        HEARTBEAT: ("g", 4, "m"),
        LEAVE_GROUP: ("g",),
        CONSUMER_GROUP_HEARTBEAT: ("g", "m", 4, None, None, -1, None, None, None),
    }
    module = request(name_of(kafka))
    exchange, _ = begun(kafka, version, getattr(module, f"{name_of(kafka)}Request")(*fields[kafka]))
    assert answered(kafka, version, exchange.refuse(RequestTimedOut("it may be committed"))).error_code == 15


@pytest.mark.parametrize(("kind", "protocol"), [("consumer", None), (None, "range"), (None, None)])
def test_a_member_names_the_protocol_of_its_generation(kind: str | None, protocol: str | None) -> None:
    """From version 5 on (KIP-559); before, there are no such fields."""
    message = request("SyncGroup").SyncGroupRequest("g", 4, "m", (), None, kind, protocol)
    with pytest.raises(InconsistentGroupProtocol, match="name the protocol type and the protocol"):
        begun(SYNC_GROUP, 5, message)
    _, value = begun(SYNC_GROUP, 4, request("SyncGroup").SyncGroupRequest("g", 4, "m", ()))
    assert (value.protocol_type, value.protocol) == (None, None)
