"""Committed offsets: who may commit, what is returned, transactions, deletion, expiry."""

from __future__ import annotations

import pytest

from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import OffsetCommitKey, OffsetCommitValue
from replication.coordination.group_requests import (
    DeleteGroups,
    GenerationOffsetCommit,
    ListGroups,
    NamedPartition,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    TxnOffsetCommit,
)
from replication.coordination.groups.group_config import GroupConfig
from tests.replication.group_stories import SESSION_MS, Client, Coordinator, image_of, settle_all, topic_id
from tidelog.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InconsistentTopicId,
    InvalidRequest,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    TidelogError,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
    UnsupportedVersion,
)
from tidelog.types import LeaderEpoch, Offset, PartitionIndex, ProducerId

DAY_MS = 24 * 60 * 60_000


def at(partition: int, offset: int = 0, topic: str = "t") -> OffsetToCommit:
    return OffsetToCommit(topic, PartitionIndex(partition), Offset(offset))


def named(*partitions: int, topic: str = "t") -> tuple[NamedPartition, ...]:
    return tuple(NamedPartition(topic, PartitionIndex(each)) for each in partitions)


# --- commits ---


def test_anyone_may_commit_for_a_group_that_does_not_exist() -> None:
    """Simple consumers and Spark queries use group ids without membership."""
    coordinator = Coordinator({"t": 2})
    assert coordinator.commit_offset(1, 42, leader_epoch=LeaderEpoch(3), metadata="m") is None
    fetched = coordinator.fetched(1)
    assert (fetched.offset, fetched.leader_epoch, fetched.metadata, fetched.topic_id) == (42, 3, "m", topic_id("t"))
    assert coordinator.fetched(0).offset == -1
    assert coordinator.group().state == "Empty"


def test_a_member_commits_with_its_epoch() -> None:
    coordinator = Coordinator({"t": 2})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2")
    first.join()
    assert coordinator.commit_offset(0, 1, member=first) is None
    old = first.epoch
    second.join()
    settle_all(first, second)
    assert first.epoch == old + 1
    first.epoch = old
    with pytest.raises(StaleMemberEpoch, match="is in epoch 2, not 1"):
        coordinator.commit_offset(0, 2, member=first)


def test_a_member_that_sends_epochs_cannot_commit_in_a_version_without_them() -> None:
    """Also with the current epoch; who is no member learns that first, and an empty group takes commits of anyone."""
    coordinator = Coordinator({"t": 2})
    member = Client(coordinator, "m1")
    member.join()

    def commit(member_id: str, epoch: int) -> object:
        return coordinator.ask(GenerationOffsetCommit("g", member_id, epoch, None, (at(0, 7),)))

    for epoch in (member.epoch, member.epoch + 1):
        with pytest.raises(UnsupportedVersion, match="version 9 of OffsetCommit"):
            commit("m1", epoch)
    with pytest.raises(UnknownMemberId):
        commit("m9", 1)
    assert coordinator.fetched(0).offset == -1
    member.leave()
    commit("", -1)
    assert coordinator.fetched(0).offset == 7


def test_a_commit_that_is_late_is_refused() -> None:
    """The member has sent later commits of the same epoch since."""
    coordinator = Coordinator({"t": 2})
    member = Client(coordinator, "m1")
    member.join()
    assert coordinator.commit_offset(0, 20, member=member, known_offset=Offset(10)) is None
    with pytest.raises(IllegalGeneration, match="20 was committed since member 'm1' sent"):
        coordinator.commit_offset(0, 10, member=member, known_offset=Offset(-1))
    assert coordinator.commit_offset(0, 5, member=member, known_offset=Offset(20)) is None, "it may go back itself"
    assert coordinator.commit_offset(0, 3, member=member) is None, "of a client that says nothing of the order"


def test_an_outsider_cannot_commit_for_a_group_with_members() -> None:
    coordinator = Coordinator({"t": 2})
    first = Client(coordinator, "m1")
    first.join()
    with pytest.raises(UnknownMemberId):
        coordinator.commit_offset(0, 1)
    stranger = Client(coordinator, "m9")
    with pytest.raises(UnknownMemberId):
        coordinator.commit_offset(0, 1, member=stranger)
    first.leave()
    assert coordinator.commit_offset(0, 1) is None
    with pytest.raises(UnknownMemberId):
        coordinator.commit_offset(0, 1, member=first)


def test_who_claims_no_membership_may_commit_under_a_name() -> None:
    """librdkafka has a member id before it is a member, and names it in the commits of assigned partitions."""
    coordinator = Coordinator({"t": 2})
    assert coordinator.ask(OffsetCommit("g", "m1", -1, None, (at(0, 7),))).partitions[0].error is None
    assert coordinator.ask(OffsetCommit("g", "m1", -1, "i", (at(0, 8),))).partitions[0].error is None
    assert coordinator.fetched(0).offset == 8


def test_a_member_of_a_group_that_does_not_exist_cannot_commit() -> None:
    coordinator = Coordinator({"t": 2})
    with pytest.raises(GroupIdNotFound):
        coordinator.commit_offset(0, 1, member=Client(coordinator, "m1"))
    coordinator.commit_offset(0, 1)
    with pytest.raises(UnknownMemberId):
        coordinator.commit_offset(0, 1, member=Client(coordinator, "m1"))


def test_a_fenced_static_member_cannot_commit() -> None:
    coordinator = Coordinator({"t": 2})
    first = Client(coordinator, "m1", instance="i")
    first.join()
    first.leave(-2)
    Client(coordinator, "m2", instance="i").join()
    with pytest.raises(FencedInstanceId):
        coordinator.ask(OffsetCommit("g", "m1", 1, "i", (at(0),)))


def test_each_partition_has_its_own_outcome_in_the_order_of_the_request() -> None:
    """Trap 12: clients match by position."""
    coordinator = Coordinator({"t": 2})
    asked = (
        at(1, 5),
        at(9),
        at(0, 1, "gone"),
        at(0, -7),
        OffsetToCommit("t", PartitionIndex(0), Offset(1), metadata="é" * 2_049),
        OffsetToCommit("t", PartitionIndex(0), Offset(1), topic_id=topic_id("t", 1)),
        at(-1),
        at(1, 6),
    )
    answer = coordinator.ask(OffsetCommit("g", "", -1, None, asked)).partitions
    assert [(each.topic, each.partition) for each in answer] == [(each.topic, each.partition) for each in asked]
    assert [None if each.error is None else type(each.error) for each in answer] == [
        None,
        UnknownTopicOrPartition,
        UnknownTopicOrPartition,
        InvalidRequest,
        OffsetMetadataTooLarge,
        InconsistentTopicId,
        UnknownTopicOrPartition,
        None,
    ]
    assert coordinator.fetched(1).offset == 6
    assert coordinator.fetched(0).offset == -1
    largest = OffsetToCommit("t", PartitionIndex(0), Offset(1), metadata="é" * 2_048)
    assert coordinator.ask(OffsetCommit("g", "", -1, None, (largest,))).partitions[0].error is None


# --- fetches ---


def test_offsets_are_fetched_by_name_or_all_with_their_leader_epochs() -> None:
    """Trap 5: the leader epoch comes also when partitions are named, and from the next coordinator."""
    coordinator = Coordinator({"t": 3, "u": 1})
    coordinator.commit_offset(2, 7, leader_epoch=LeaderEpoch(4))
    coordinator.commit_offset(0, 8, topic="u")
    asked = (*named(2, 1), *named(0, topic="u"), *named(2))
    answer = coordinator.ask(OffsetFetch("g", "", -1, asked)).partitions
    assert [(each.topic, each.partition, each.offset, each.leader_epoch) for each in answer] == [
        ("t", 2, 7, 4),
        ("t", 1, -1, -1),
        ("u", 0, 8, -1),
        ("t", 2, 7, 4),
    ]
    coordinator.fail_over()
    assert coordinator.ask(OffsetFetch("g", "", -1, asked)).partitions == answer
    every = coordinator.ask(OffsetFetch("g", "", -1, None)).partitions
    assert [(each.topic, each.partition, each.offset) for each in every] == [("t", 2, 7), ("u", 0, 8)]
    assert coordinator.ask(OffsetFetch("nobody", "", -1, None)).partitions == ()


def test_a_member_fetches_with_its_epoch() -> None:
    coordinator = Coordinator({"t": 1})
    first = Client(coordinator, "m1")
    first.join()
    assert coordinator.ask(OffsetFetch("g", "m1", 1, None)).partitions == ()
    with pytest.raises(StaleMemberEpoch):
        coordinator.ask(OffsetFetch("g", "m1", 2, None))
    with pytest.raises(UnknownMemberId):
        coordinator.ask(OffsetFetch("g", "m2", 1, None))


def test_an_offset_of_a_topic_that_was_created_again_is_not_returned() -> None:
    coordinator = Coordinator({"t": 1})
    coordinator.commit_offset(0, 5)
    key = OffsetCommitKey("g", "t", PartitionIndex(0))
    coordinator.change_topics({"t": 1}, incarnations={"t": 1})
    assert coordinator.last_values()[key] is None, "it is deleted"
    coordinator = Coordinator({"t": 1})
    coordinator.commit_offset(0, 5)
    decisions = coordinator.machine.on_image(Coordinator({}).image, coordinator.now)
    assert decisions
    assert coordinator.fetched(0).offset == -1, "nor is it returned before the deletion is applied"


def test_offsets_of_topics_that_were_deleted_without_a_coordinator_are_deleted_on_loading() -> None:
    coordinator = Coordinator({"t": 1, "u": 1})
    coordinator.commit_offset(0, 5)
    coordinator.commit_offset(0, 6, topic="u")
    coordinator.image = Coordinator({"u": 1}).image
    coordinator.fail_over()
    assert [each.topic for each in coordinator.ask(OffsetFetch("g", "", -1, None)).partitions] == ["u"]
    coordinator.image = Coordinator({}).image
    coordinator.fail_over()
    assert coordinator.ask(ListGroups()).groups == ()


# --- transactions ---


def test_offsets_of_a_transaction_count_when_it_commits() -> None:
    coordinator = Coordinator({"t": 2})
    coordinator.commit_offset(0, 1)
    coordinator.commit_in_transaction(9, 0, 5)
    coordinator.commit_in_transaction(9, 1, 6)
    assert [coordinator.fetched(each).offset for each in (0, 1)] == [1, -1]
    for each in (0, 1):
        assert isinstance(coordinator.fetched(each, require_stable=True).error, UnstableOffsetCommit)
    coordinator.marker(9, committed=True)
    assert [coordinator.fetched(each, require_stable=True).offset for each in (0, 1)] == [5, 6]


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    coordinator = Coordinator({"t": 1})
    coordinator.commit_in_transaction(9, 0, 5)
    coordinator.marker(9, committed=False)
    assert coordinator.fetched(0, require_stable=True) == coordinator.fetched(0)
    assert coordinator.fetched(0).offset == -1
    coordinator.marker(9, committed=True)
    coordinator.marker(77, committed=True)
    assert coordinator.fetched(0).offset == -1
    assert coordinator.ask(ListGroups()).groups == ()


def test_the_last_record_prevails_whatever_the_order_of_the_markers() -> None:
    coordinator = Coordinator({"t": 1})
    coordinator.commit_in_transaction(1, 0, 10)
    coordinator.commit_in_transaction(2, 0, 20)
    coordinator.marker(2, committed=True)
    assert isinstance(coordinator.fetched(0, require_stable=True).error, UnstableOffsetCommit)
    coordinator.marker(1, committed=True)
    assert coordinator.fetched(0, require_stable=True).offset == 20
    coordinator.commit_in_transaction(1, 0, 30)
    coordinator.commit_offset(0, 40)
    coordinator.marker(1, committed=True)
    assert coordinator.fetched(0).offset == 40


def test_an_aborted_later_offset_does_not_hide_an_earlier_one() -> None:
    coordinator = Coordinator({"t": 1})
    coordinator.commit_in_transaction(1, 0, 10)
    coordinator.commit_in_transaction(2, 0, 20)
    coordinator.marker(2, committed=False)
    coordinator.marker(1, committed=True)
    assert coordinator.fetched(0).offset == 10


def test_a_transaction_outlives_its_coordinator() -> None:
    coordinator = Coordinator({"t": 1})
    coordinator.commit_in_transaction(1, 0, 10)
    coordinator.commit_offset(0, 3, group_id="other")
    coordinator.commit_in_transaction(1, 0, 11)
    coordinator.fail_over()
    assert isinstance(coordinator.fetched(0, require_stable=True).error, UnstableOffsetCommit)
    coordinator.marker(1, committed=True)
    assert coordinator.fetched(0).offset == 11
    coordinator.fail_over()
    assert coordinator.fetched(0).offset == 11


def test_a_transaction_commits_as_the_member_that_read() -> None:
    coordinator = Coordinator({"t": 1})
    first = Client(coordinator, "m1")
    first.join()

    def commit(member_id: str, epoch: int) -> object:
        producer = ProducerId(1)
        return coordinator.ask(TxnOffsetCommit("id", producer, 0, 2, "g", member_id, epoch, None, (at(0, 5),)))

    commit("m1", 1)
    with pytest.raises(IllegalGeneration):
        commit("m1", 2)
    with pytest.raises(UnknownMemberId):
        commit("m2", 1)
    with pytest.raises(UnknownMemberId):
        commit("m2", -1)
    coordinator.marker(1, committed=True)
    assert coordinator.fetched(0).offset == 5
    with pytest.raises(IllegalGeneration):
        coordinator.ask(TxnOffsetCommit("id", ProducerId(1), 0, 2, "none", "m1", 1, None, (at(0, 5),)))


def test_a_transaction_need_not_name_a_member() -> None:
    """KAFKA-18060: clients before KIP-447 do not, and the members of their group may change its protocol meanwhile."""
    coordinator = Coordinator({"t": 1})
    Client(coordinator, "m1").join()
    assert coordinator.commit_in_transaction(1, 0, 7) is None
    coordinator.marker(1, committed=True)
    assert coordinator.fetched(0).offset == 7
    with pytest.raises(UnknownMemberId):
        coordinator.commit_offset(0, 8)


def test_a_refused_partition_of_a_transaction_leaves_nothing() -> None:
    coordinator = Coordinator({"t": 1})
    assert isinstance(coordinator.commit_in_transaction(1, 7, 5), UnknownTopicOrPartition)
    assert coordinator.log == []


# --- deletion ---


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    coordinator = Coordinator({"t": 2, "u": 1})
    first = Client(coordinator, "m1", ("t",), pattern="u")
    first.join()
    coordinator.commit_offset(0, 5, member=first)
    delete = OffsetDelete("g", (*named(0), *named(0, topic="u"), *named(0, topic="v")))
    errors = [each.error for each in coordinator.ask(delete).partitions]
    assert [type(error) for error in errors] == [
        GroupSubscribedToTopic,
        GroupSubscribedToTopic,
        UnknownTopicOrPartition,
    ]
    first.leave()
    assert [type(each.error) for each in coordinator.ask(delete).partitions] == [
        type(None),
        type(None),
        UnknownTopicOrPartition,
    ]
    assert coordinator.fetched(0).offset == -1
    with pytest.raises(GroupIdNotFound):
        coordinator.ask(OffsetDelete("none", named(0)))


def test_deleting_an_offset_or_a_group_takes_pending_offsets_along() -> None:
    coordinator = Coordinator({"t": 2})
    coordinator.commit_in_transaction(1, 0, 5)
    coordinator.commit_in_transaction(1, 1, 5)
    coordinator.ask(OffsetDelete("g", named(0)))
    coordinator.ask(DeleteGroups(("g",)))
    coordinator.marker(1, committed=True)
    assert coordinator.ask(OffsetFetch("g", "", -1, None)).partitions == ()


def test_the_deletion_of_a_topic_takes_pending_offsets_along() -> None:
    coordinator = Coordinator({"t": 1, "u": 1})
    coordinator.commit_in_transaction(1, 0, 5)
    coordinator.commit_in_transaction(1, 0, 6, topic="u")
    coordinator.change_topics({"u": 1})
    coordinator.marker(1, committed=True)
    assert [each.topic for each in coordinator.ask(OffsetFetch("g", "", -1, None)).partitions] == ["u"]


def test_many_offsets_of_a_deleted_topic_go_in_several_batches() -> None:
    coordinator = Coordinator({"t": 2_500})
    coordinator.ask(OffsetCommit("g", "", -1, None, tuple(at(each) for each in range(2_500))))
    coordinator.image = image_of({})
    decisions = list(coordinator.machine.on_image(coordinator.image, coordinator.now))
    assert [len(decision.records) for decision in decisions] == [1_000], "no turn of the loop is long"
    for decision in decisions:
        coordinator.commit(decision)
    coordinator.settle()
    assert coordinator.ask(ListGroups()).groups == ()


def test_a_topic_that_is_created_again_before_its_offsets_are_deleted_keeps_the_new_ones() -> None:
    """Other groups come first. Meanwhile the topic is created again, and offsets of the new one are committed, at once
    and in a transaction: a tombstone for the former topic must not take them along."""
    coordinator = Coordinator({"t": 1_000})
    for group in ("a", "b", "c"):
        coordinator.ask(OffsetCommit(group, "", -1, None, tuple(at(each) for each in range(1_000))))
    requests = (
        OffsetCommit("c", "", -1, None, (at(1, 77),)),
        TxnOffsetCommit("x", ProducerId(1), 0, 2, "c", "", -1, None, (at(2, 88),)),
    )
    for image in (image_of({}, offset=2), image_of({"t": 1_000}, offset=3, incarnations={"t": 1})):
        coordinator.image = image
        for decision in coordinator.machine.on_image(image, coordinator.now):
            coordinator.commit(decision)
    for request in requests:
        coordinator.commit(coordinator.machine.handle(request, coordinator.now))
    coordinator.settle()
    coordinator.marker(1, committed=True)
    found = coordinator.ask(OffsetFetch("c", "", -1, None)).partitions
    assert [(each.partition, each.offset) for each in found if each.offset >= 0] == [(1, 77), (2, 88)]
    assert coordinator.ask(OffsetFetch("a", "", -1, None)).partitions == ()


# --- expiry ---


def expiring() -> Coordinator:
    return Coordinator({"t": 2, "u": 1}, config=GroupConfig(offsets_retention_minutes=7 * 24 * 60))


def test_offsets_of_a_group_without_members_expire_after_the_retention() -> None:
    coordinator = expiring()
    coordinator.commit_offset(0, 5)
    coordinator.pass_time(4 * DAY_MS)
    coordinator.commit_offset(1, 6)
    sizes = coordinator.machine.sizes()
    assert (sizes["group_with_offsets"], sizes["offset"]) == (1, 2)
    coordinator.pass_time(3 * DAY_MS + 600_000)
    assert [coordinator.fetched(each).offset for each in (0, 1)] == [-1, 6]
    assert coordinator.machine.sizes()["offset"] == 1
    coordinator.pass_time(4 * DAY_MS)
    assert coordinator.ask(ListGroups()).groups == ()
    assert not any(coordinator.machine.sizes().values())


def test_offsets_of_subscribed_topics_do_not_expire_and_others_do() -> None:
    coordinator = expiring()
    coordinator.commit_offset(0, 7, topic="u")
    coordinator.commit_offset(0, 5)
    first = Client(coordinator, "m1")
    first.join()
    for _ in range(8 * 24 * 60 * 60_000 // (SESSION_MS - 1) + 1):
        coordinator.now_ms += SESSION_MS - 1
        first.heartbeat()
    assert coordinator.fetched(0).offset == 5
    assert coordinator.fetched(0, topic="u").offset == -1


def test_the_age_of_an_offset_counts_from_the_end_of_its_group() -> None:
    """A group that had nothing to commit for long does not lose its offsets when its members restart."""
    coordinator = expiring()
    first = Client(coordinator, "m1")
    first.join()
    coordinator.commit_offset(0, 5, member=first)
    for _ in range(8 * 24 * 60 * 60_000 // (SESSION_MS - 1) + 1):
        coordinator.now_ms += SESSION_MS - 1
        first.heartbeat()
    first.leave()
    coordinator.pass_time(6 * DAY_MS)
    assert coordinator.fetched(0).offset == 5
    coordinator.pass_time(DAY_MS + 600_000)
    assert coordinator.fetched(0).offset == -1
    assert coordinator.ask(ListGroups()).groups == ()
    assert set(coordinator.last_values().values()) == {None}


def test_an_offset_that_a_transaction_may_change_does_not_expire() -> None:
    coordinator = expiring()
    coordinator.commit_offset(0, 5)
    coordinator.commit_in_transaction(1, 0, 6)
    coordinator.pass_time(30 * DAY_MS)
    assert coordinator.fetched(0).offset == 5
    coordinator.marker(1, committed=False)
    coordinator.pass_time(600_000)
    assert coordinator.fetched(0).offset == -1


def test_an_early_commit_expires_at_the_time_that_it_names() -> None:
    coordinator = expiring()
    coordinator.commit_offset(0, 5)
    key = OffsetCommitKey("g", "t", PartitionIndex(0))
    early = OffsetCommitValue(Offset(5), "", coordinator.now.wall_ms, expire_timestamp=coordinator.now.wall_ms)
    coordinator.machine.apply(CoordinatorRecord(key, early), Offset(-1), None)
    coordinator.pass_time(600_000)
    assert coordinator.fetched(0).offset == -1


def test_a_search_looks_at_many_groups_in_steps() -> None:
    coordinator = expiring()
    for number in range(1_500):
        coordinator.ask(OffsetCommit(f"g{number}", "", -1, None, (at(0), at(1))))
    coordinator.now_ms += 8 * DAY_MS
    coordinator.settle()
    assert 0 < len(coordinator.ask(ListGroups()).groups) < 1_500, "the first step does not look at all of them"
    coordinator.pass_time(1_000)
    assert coordinator.ask(ListGroups()).groups == ()


def test_every_refusal_is_a_typed_error() -> None:
    coordinator = Coordinator({"t": 1})
    decision = coordinator.machine.handle(OffsetCommit("g", "m1", 3, None, ()), coordinator.now)
    assert isinstance(decision.answer, TidelogError)
    assert decision.records == ()
