"""What a log of Kafka may contain: classic groups, members of the classic protocol, old records, records that
compaction has left over in an odd order."""

from __future__ import annotations

from itertools import permutations
from uuid import UUID

import pytest

from replication.coordination.classic_requests import ClassicHeartbeat
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    TopicPartitions,
)
from replication.coordination.group_requests import (
    DeleteGroups,
    ListGroups,
    NamedPartition,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
)
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.group_config import GroupConfig, MigrationPolicy
from tests.replication.classic_clients import ClassicClient
from tests.replication.group_stories import WALL_START_MS, Client, Coordinator, Entry, settle_all, topic_id
from tests.replication.rolling_clients import Roller
from tidelog.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    NonEmptyGroup,
    UnknownMemberId,
)
from tidelog.protocol.kafka.messages.consumer_protocol_assignment import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    ConsumerProtocolAssignment,
    TopicPartition,
)
from tidelog.protocol.kafka.messages.consumer_protocol_subscription import (
    CONSUMER_PROTOCOL_SUBSCRIPTION,
    ConsumerProtocolSubscription,
)
from tidelog.types import Millis, Offset, PartitionIndex

MEMBER = MemberMetadata("c1", "client", "/10.0.0.1", 10_000, b"\0\1", b"\0\2", rebalance_timeout=60_000)
"""With metadata and an assignment that only its kind understands."""
SUBSCRIPTION = CONSUMER_PROTOCOL_SUBSCRIPTION.encode(ConsumerProtocolSubscription(("t", "u"), None), 3)
ASSIGNMENT = CONSUMER_PROTOCOL_ASSIGNMENT.encode(
    ConsumerProtocolAssignment((TopicPartition("t", tuple(map(PartitionIndex, (3, 1, -1, 9)))),), None), 0
)
CONSUMER = MemberMetadata(
    "c1",
    "client",
    "/10.0.0.1",
    10_000,
    b"\0\4" + SUBSCRIPTION + b"and what later versions add",
    b"\0\4" + ASSIGNMENT,
    rebalance_timeout=60_000,
)
"""Reads t and u, as clients of Kafka say it."""


def loaded(*records: GroupRecord, config: GroupConfig | None = None) -> Coordinator:
    """A coordinator that has read these records."""
    coordinator = Coordinator({"t": 4}, config=config)
    coordinator.log = [Entry(record) for record in records]
    coordinator.fail_over()
    return coordinator


def classic(*members: MemberMetadata, protocol_type: str = "consumer") -> GroupRecord:
    value = GroupMetadataValue(protocol_type, 3, "range", "c1", members, Millis(WALL_START_MS))
    return CoordinatorRecord(GroupMetadataKey("g"), value)


def committed(offset: int, *, topic: str = "t", known: bool = False) -> GroupRecord:
    value = OffsetCommitValue(
        Offset(offset), "", Millis(WALL_START_MS), topic_id=topic_id(topic) if known else UUID(int=0)
    )
    return CoordinatorRecord(OffsetCommitKey("g", topic, PartitionIndex(0)), value)


def test_a_classic_group_is_listed_described_and_its_offsets_served() -> None:
    coordinator = loaded(classic(MEMBER), committed(7))
    (listed,) = coordinator.ask(ListGroups()).groups
    assert (listed.type, listed.state, listed.members) == ("classic", "Stable", 1)
    group = coordinator.group()
    assert (group.type, group.group_epoch, group.assignor) == ("classic", 3, "range")
    assert (group.members[0].member_id, group.members[0].client_host) == ("c1", "/10.0.0.1")
    assert coordinator.fetched(0).offset == 7


def test_offsets_of_topics_that_this_cluster_does_not_know_are_served() -> None:
    coordinator = loaded(committed(7))
    coordinator.image = Coordinator({}).image
    coordinator.fail_over()
    assert coordinator.fetched(0).offset == 7
    assert coordinator.fetched(0).topic_id is None


def test_members_of_a_classic_group_are_kept_until_their_sessions_time_out() -> None:
    other = MemberMetadata("c2", "client", "/10.0.0.2", 20_000, b"", b"", "instance", 60_000)
    coordinator = loaded(classic(MEMBER, other), committed(7))
    coordinator.pass_time(9_999)
    assert len(coordinator.group().members) == 2
    with pytest.raises(GroupIdNotFound, match="what its member 'c2' subscribes to, or was assigned, is malformed"):
        coordinator.pass_time(1)
        Client(coordinator, "m1").join()
    coordinator.pass_time(10_000)
    group = coordinator.group()
    assert (group.state, group.members, group.group_epoch) == ("Empty", (), 104)
    coordinator.fail_over()
    assert coordinator.group() == group


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets() -> None:
    coordinator = loaded(classic(), committed(7))
    client = Client(coordinator, "m1")
    client.join()
    assert coordinator.group().type == "consumer"
    assert coordinator.fetched(0).offset == 7
    assert coordinator.last_values()[GroupMetadataKey("g")] is None


def test_a_classic_group_with_members_is_neither_deleted_nor_committed_for() -> None:
    coordinator = loaded(classic(MEMBER), committed(7))
    assert isinstance(coordinator.ask(DeleteGroups(("g",))).groups[0].error, NonEmptyGroup)
    commit = (OffsetToCommit("t", PartitionIndex(0), Offset(8)),)
    with pytest.raises(UnknownMemberId):
        coordinator.ask(OffsetCommit("g", "", -1, None, commit))
    with pytest.raises(IllegalGeneration):
        coordinator.ask(OffsetCommit("g", "c1", 2, None, commit))
    coordinator.ask(OffsetCommit("g", "c1", 3, None, commit))
    assert coordinator.fetched(0).offset == 8


def test_it_is_said_what_members_of_the_consumer_protocol_read() -> None:
    """As far as it exists: t has four partitions, u is no topic any more; clients may send any number."""
    coordinator = loaded(classic(CONSUMER), committed(7))
    (member,) = coordinator.group().members
    assert member.subscribed_topic_names == ("t", "u")
    assert member.assignment == member.target == parts(1, 3)
    assert member.is_classic
    (listed,) = coordinator.ask(ListGroups()).groups
    assert (listed.type, listed.protocol_type) == ("classic", "consumer")


@pytest.mark.parametrize(
    ("subscription", "protocol_type"), [(b"", "consumer"), (b"\0\1\0\0\0\7", "consumer"), (SUBSCRIPTION, "connect")]
)
def test_bytes_of_another_protocol_say_nothing(subscription: bytes, protocol_type: str) -> None:
    member = MemberMetadata("c1", "client", "h", 10_000, subscription, subscription, rebalance_timeout=60_000)
    coordinator = loaded(classic(member, protocol_type=protocol_type))
    (described,) = coordinator.group().members
    assert (described.subscribed_topic_names, described.assignment) == ((), ())


def deleted(coordinator: Coordinator, *topics: str) -> list[type]:
    """The errors of the deletion of the offset of partition 0 of these topics."""
    named = tuple(NamedPartition(topic, PartitionIndex(0)) for topic in topics)
    return [type(each.error) for each in coordinator.ask(OffsetDelete("g", named)).partitions]


def test_offsets_of_topics_that_classic_members_read_are_not_deleted() -> None:
    other = CoordinatorRecord(
        OffsetCommitKey("g", "v", PartitionIndex(0)), OffsetCommitValue(Offset(3), "", Millis(WALL_START_MS))
    )
    coordinator = loaded(classic(CONSUMER), committed(7), other)
    assert deleted(coordinator, "t", "u", "v") == [GroupSubscribedToTopic, GroupSubscribedToTopic, type(None)]
    assert coordinator.fetched(0).offset == 7
    assert coordinator.fetched(0, topic="v").offset == -1


def test_offsets_of_members_that_say_nothing_are_not_deleted() -> None:
    """Those of consumers may be of each topic. Connect's coordinate something else."""
    assert deleted(loaded(classic(MEMBER), committed(7)), "t") == [GroupSubscribedToTopic]
    with pytest.raises(NonEmptyGroup):
        deleted(loaded(classic(CONSUMER, protocol_type="connect"), committed(7)), "t")
    assert deleted(loaded(classic(), committed(7)), "t") == [type(None)]


def test_offsets_that_classic_members_do_not_read_expire() -> None:
    """While the group is stable: between two generations nobody knows what its next members read."""

    def left(member: MemberMetadata, protocol_type: str = "consumer") -> set[str]:
        offsets = [
            CoordinatorRecord(
                OffsetCommitKey("g", topic, PartitionIndex(0)), OffsetCommitValue(Offset(3), "", Millis(WALL_START_MS))
            )
            for topic in ("t", "v")
        ]
        config = GroupConfig(offsets_retention_minutes=1)
        coordinator = loaded(classic(member, protocol_type=protocol_type), *offsets, config=config)
        for _ in range(config.offsets_retention_check_interval_ms // 9_000 + 1):
            coordinator.pass_time(9_000)
            coordinator.ask(ClassicHeartbeat("g", "c1", 3))
        return {each.topic for each in coordinator.ask(OffsetFetch("g", "", -1, None)).partitions}

    assert left(CONSUMER) == {"t"}
    assert left(MEMBER) == {"t", "v"}
    assert left(CONSUMER, "connect") == {"t", "v"}


SHORT = GroupConfig(offsets_retention_minutes=1)
"""Offsets expire with the first search after a minute."""


def read_until_the_search(coordinator: Coordinator, before_ms: int) -> None:
    """The member c1 sends heartbeats until so long before the first search for expired offsets."""
    left_ms = SHORT.offsets_retention_check_interval_ms - before_ms
    while left_ms:
        step_ms = min(left_ms, 9_000)
        coordinator.pass_time(step_ms)
        coordinator.ask(ClassicHeartbeat("g", "c1", 3))
        left_ms -= step_ms


def test_a_last_member_that_times_out_during_the_search_leaves_offsets_that_are_new() -> None:
    """Its session ends in the moment in which offsets are looked for: they expired without the time that consumers have
    to come back."""
    coordinator = loaded(classic(CONSUMER), committed(7), config=SHORT)
    read_until_the_search(coordinator, CONSUMER.session_timeout)
    coordinator.pass_time(CONSUMER.session_timeout)
    assert (coordinator.group().members, coordinator.fetched(0).offset) == ((), 7)
    coordinator.pass_time(SHORT.offsets_retention_check_interval_ms)
    assert coordinator.fetched(0).offset == -1
    assert coordinator.ask(ListGroups()).groups == ()


def test_nothing_expires_while_members_join_the_next_generation() -> None:
    """Of a topic that no member of the last generation reads: those of the next one may."""
    coordinator = loaded(classic(CONSUMER), committed(7, topic="v"), config=SHORT)
    read_until_the_search(coordinator, 1_000)
    other = ClassicClient(coordinator, "c2", protocols={"range": b"topics of c2"})
    other.join()
    assert coordinator.group().state == "PreparingRebalance"
    coordinator.pass_time(1_000)
    assert coordinator.fetched(0, topic="v").offset == 7


def test_an_empty_classic_group_is_deleted_and_expires() -> None:
    coordinator = loaded(classic(), committed(7))
    assert coordinator.ask(DeleteGroups(("g",))).groups[0].error is None
    assert coordinator.ask(ListGroups()).groups == ()
    coordinator = loaded(classic(), committed(7))
    coordinator.pass_time(8 * 24 * 60 * 60_000)
    assert coordinator.ask(ListGroups()).groups == ()


# --- consumer groups --------------------------------------------------------------------------------------------------

METADATA = ConsumerGroupMemberMetadataValue(None, None, "c", "h", ("t",), None, 60_000, "uniform")
OLD_PROTOCOL = ConsumerGroupMemberMetadataValue(
    None,
    None,
    "c",
    "h",
    ("t",),
    None,
    60_000,
    None,
    ClassicMemberMetadata(7_000, (ClassicProtocol("range", b""), ClassicProtocol("cooperative-sticky", b""))),
)


def parts(*indexes: int) -> tuple[TopicPartitions, ...]:
    return (TopicPartitions(topic_id("t"), tuple(PartitionIndex(each) for each in indexes)),)


def member_records(
    member: str = "m1", state: int = 0, metadata: ConsumerGroupMemberMetadataValue = METADATA
) -> tuple[GroupRecord, ...]:
    current = ConsumerGroupCurrentMemberAssignmentValue(5, 4, state, parts(3, 1), ())
    return (
        CoordinatorRecord(ConsumerGroupMemberMetadataKey("g", member), metadata),
        CoordinatorRecord(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(5)),
        CoordinatorRecord(
            ConsumerGroupTargetAssignmentMemberKey("g", member), ConsumerGroupTargetAssignmentMemberValue(parts(3, 1))
        ),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey("g"), ConsumerGroupTargetAssignmentMetadataValue(5)),
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey("g", member), current),
    )


def test_records_in_any_order_give_the_same_group() -> None:
    described = {repr(loaded(*order).group()) for order in permutations(member_records())}
    assert len(described) == 1
    group = loaded(*member_records()).group()
    assert group.members[0].assignment[0].partitions == (1, 3), "sorted, whatever the writer's order"


def test_tombstones_without_what_they_delete_are_ignored() -> None:
    tombstones: list[GroupRecord] = [
        CoordinatorRecord(record.key, None) for record in (*member_records(), classic(), committed(1))
    ]
    tombstones.append(CoordinatorRecord(ConsumerGroupRegularExpressionKey("g", "x"), None))
    tombstones.append(CoordinatorRecord(ConsumerGroupPartitionMetadataKey("g"), None))
    assert loaded(*tombstones).ask(ListGroups()).groups == ()
    deleted = loaded(*member_records(), *tombstones)
    assert deleted.ask(ListGroups()).groups == ()


def test_the_tombstone_of_a_group_ends_all_that_was_recorded_of_it() -> None:
    pattern = CoordinatorRecord(
        ConsumerGroupRegularExpressionKey("g", "t.*"), ConsumerGroupRegularExpressionValue(("t",), 1, Millis(1))
    )
    coordinator = loaded(*member_records(), pattern, CoordinatorRecord(ConsumerGroupMetadataKey("g"), None))
    assert coordinator.ask(ListGroups()).groups == ()
    client = Client(coordinator, "m1")
    client.join()
    assert client.epoch == 1


def test_a_member_of_which_only_the_assignment_is_known_is_removed() -> None:
    coordinator = loaded(*member_records()[1:], *member_records("m2"))
    assert [member.member_id for member in coordinator.group().members] == ["m2"]
    assert coordinator.group().group_epoch >= 6


def test_a_partition_that_has_a_new_owner_keeps_it_when_the_tombstone_of_the_old_one_comes_late() -> None:
    group = ConsumerGroup("g", {})
    for member in ("m1", "m2"):
        group.set_current(member, ConsumerGroupCurrentMemberAssignmentValue(5, 4, 0, parts(1), ()))
        group.set_target(member, parts(1))
    group.set_current("m1", None)
    group.set_target("m1", None)
    assert group.owner(topic_id("t"), 1) == "m2"
    assert group.waiting_for(parts(1)) == {"m2"}
    group.set_current("m2", None)
    assert group.owner(topic_id("t"), 1) is None


def test_a_group_of_an_earlier_kafka_gets_a_hash_and_drops_the_old_record() -> None:
    old = CoordinatorRecord(ConsumerGroupPartitionMetadataKey("g"), ConsumerGroupPartitionMetadataValue(()))
    coordinator = loaded(*member_records(), old)
    assert coordinator.group().group_epoch == 6
    assert coordinator.last_values()[ConsumerGroupPartitionMetadataKey("g")] is None
    epoch = coordinator.last_values()[ConsumerGroupMetadataKey("g")]
    assert isinstance(epoch, ConsumerGroupMetadataValue)
    assert epoch.metadata_hash != 0


def test_a_member_in_an_unknown_state_joins_again_without_partitions() -> None:
    coordinator = loaded(*member_records(state=9))
    client = Client(coordinator, "m1", stream=False)
    client.epoch = 5
    with pytest.raises(FencedMemberEpoch, match="newer version"):
        client.reconnect(topic_partitions=parts(1))
    with pytest.raises(FencedMemberEpoch):
        client.beat(topic_partitions=None)
    client.join()
    client.settle()
    assert client.partitions == {("t", index) for index in range(4)}


def test_a_member_of_the_classic_protocol_is_kept_for_its_own_session_timeout() -> None:
    config = GroupConfig(migration_policy=MigrationPolicy.DISABLED)  # else it would be a classic group from now on
    coordinator = loaded(*member_records(metadata=OLD_PROTOCOL), config=config)
    coordinator.pass_time(6_999)
    assert len(coordinator.group().members) == 1
    with pytest.raises(IllegalGeneration):
        coordinator.ask(OffsetCommit("g", "m1", 4, None, ()))
    coordinator.ask(OffsetCommit("g", "m1", 5, None, ()))
    coordinator.pass_time(1)
    assert coordinator.group().members == ()


def test_a_member_that_changes_to_the_consumer_protocol_keeps_its_partitions() -> None:
    coordinator = loaded(*member_records(metadata=OLD_PROTOCOL), *member_records("m2"))
    client = Client(coordinator, "m1")
    client.join()
    coordinator.pass_time(20_000)
    assert [member.member_id for member in coordinator.group().members] == ["m1", "m2"]
    settle_all(client)


def test_a_classic_member_in_an_unknown_state_joins_as_a_new_one() -> None:
    coordinator = loaded(*member_records(state=9, metadata=OLD_PROTOCOL), *member_records("m2"))
    member = Roller(coordinator, "x", cooperative=True)
    member.member_id, member.places = "m1", {("t", 1)}
    member.topics = ("t",)
    with pytest.raises(UnknownMemberId, match="newer version"):
        member.send_join()
    member.places = set()
    answer = member.send_join()
    assert answer is not None
    assert answer.generation >= 5


def test_a_pattern_that_another_version_accepted_keeps_what_it_has_found() -> None:
    pattern = "(?=t)t"
    metadata = ConsumerGroupMemberMetadataValue(None, None, "c", "h", (), pattern, 60_000, None)
    resolved = CoordinatorRecord(
        ConsumerGroupRegularExpressionKey("g", pattern), ConsumerGroupRegularExpressionValue(("t",), 1, Millis(1))
    )
    coordinator = loaded(*member_records(metadata=metadata), resolved)
    client = Client(coordinator, "m2")
    client.join()
    coordinator.change_topics({"t": 6, "x": 1})
    assert {index for member in coordinator.group().members for each in member.target for index in each.partitions} == {
        *range(6)
    }
