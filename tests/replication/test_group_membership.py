"""Members join, share partitions, leave and time out (KIP-848)."""

from __future__ import annotations

from uuid import UUID

import pytest

from replication.coordination.group_records import TopicPartitions
from replication.coordination.group_requests import (
    ConsumerGroupHeartbeat,
    DeleteGroups,
    DescribeGroups,
    ListGroups,
    MemberHeartbeat,
    MemberNudged,
)
from replication.coordination.groups.group_config import GroupConfig
from tests.replication.group_stories import (
    REBALANCE_MS,
    SESSION_MS,
    Client,
    Coordinator,
    settle_all,
)
from tidelog.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    NonEmptyGroup,
    TidelogError,
    UnknownMemberId,
    UnsupportedAssignor,
)
from tidelog.types import PartitionIndex

ALL = {("t", index) for index in range(4)}


def test_the_first_member_gets_everything_with_its_first_answer() -> None:
    coordinator = Coordinator({"t": 4})
    first = Client(coordinator, "m1")
    answer = first.join()
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (1, 5_000)
    assert first.partitions == ALL
    group = coordinator.group()
    assert (group.type, group.state, group.group_epoch, group.assignment_epoch) == ("consumer", "Stable", 1, 1)
    assert (group.assignor, group.members[0].client_id) == ("uniform", "client-m1")


def test_a_second_member_waits_until_the_first_gives_up_its_half_and_the_first_keeps_reading_the_other() -> None:
    """Trap 19: a partition has one owner, and what does not move is read without a pause."""
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1", stream=False), Client(coordinator, "m2", stream=False)
    first.join()
    second.join()
    assert (second.epoch, second.partitions) == (2, set())
    first.beat()
    assert (first.epoch, len(first.given), first.partitions) == (1, 1, ALL)
    kept = set(first.given.popitem()[1])
    first.given = dict.fromkeys(first.owned, frozenset(kept))
    second.heartbeat()
    assert second.partitions == set(), "the first has not given anything up yet"
    first.heartbeat()
    assert (first.epoch, first.partitions) == (2, {("t", each) for each in kept})
    second.heartbeat()
    assert second.partitions == ALL - first.partitions
    assert coordinator.group().state == "Stable"


def test_with_open_streams_a_rebalance_needs_no_heartbeat_but_the_one_that_confirms_revocation() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2")
    first.join()
    second.join()
    assert [len(push.assignment or ()) for push in first.pushed] == [1], "asked at once to give up two"
    first.heartbeat()
    assert len(second.pushed) == 1
    assert second.partitions | first.partitions == ALL
    assert len(second.partitions) == 2


def test_the_partitions_of_a_member_that_leaves_reach_the_others_at_once() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2")
    first.join()
    second.join()
    settle_all(first, second)
    at = coordinator.now_ms
    second.leave()
    assert first.partitions == ALL
    assert coordinator.now_ms == at
    assert [member.member_id for member in coordinator.group().members] == ["m1"]


def test_a_member_that_is_still_revoking_and_leaves_frees_what_others_wait_for() -> None:
    """The target of the second member does not change then: it must be told all the same."""
    coordinator = Coordinator({"t": 2})
    first, second, third = (Client(coordinator, f"m{number}") for number in (1, 2, 3))
    first.join()
    second.join()
    third.join()
    assert (second.partitions, third.partitions) == (set(), set())
    first.leave()
    assert len(second.partitions) == len(third.partitions) == 1


def test_a_member_that_times_out_is_told_and_its_partitions_go_to_the_others() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2")
    first.join()
    second.join()
    settle_all(first, second)
    coordinator.pass_time(SESSION_MS // 2)
    first.heartbeat()
    coordinator.pass_time(SESSION_MS // 2)
    assert [type(error) for error in second.errors] == [UnknownMemberId]
    assert first.partitions == ALL
    with pytest.raises(UnknownMemberId, match="has to join again"):
        second.heartbeat()


def test_a_removal_is_noticed_and_says_who_and_why() -> None:
    coordinator = Coordinator({"t": 4})
    Client(coordinator, "m1").join()
    coordinator.now_ms += SESSION_MS
    [decision] = [each for each in coordinator.machine.tick(coordinator.now) if each.notice]
    assert decision.notice.startswith("removed from group 'g': m1 (client id ")
    assert decision.notice.endswith(": it sent no heartbeat for the session timeout")


def test_a_push_does_not_extend_a_session() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2")
    first.join()
    coordinator.pass_time(SESSION_MS - 1)
    second.join()
    assert first.pushed
    coordinator.pass_time(1)
    assert [member.member_id for member in coordinator.group().members] == ["m2"]


def test_a_member_that_does_not_give_up_in_time_is_removed() -> None:
    """Trap 19: a member that never answers does not stop the others."""
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2")
    first.join()
    second.join()
    coordinator.pass_time(REBALANCE_MS - 1)
    first.beat()
    assert len(coordinator.group().members) == 2
    coordinator.pass_time(1)
    assert [member.member_id for member in coordinator.group().members] == ["m2"]
    assert second.partitions == ALL


def test_a_member_that_gives_up_in_time_is_not_removed_later() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2")
    first.join()
    second.join()
    coordinator.pass_time(REBALANCE_MS - 1)
    settle_all(first, second)
    coordinator.pass_time(REBALANCE_MS)
    assert len(coordinator.group().members) == 2


def test_members_that_time_out_together_cost_one_epoch() -> None:
    coordinator = Coordinator({"t": 4})
    clients = [Client(coordinator, f"m{number}") for number in range(3)]
    for client in clients:
        client.join()
    settle_all(*clients)
    epoch = coordinator.group().group_epoch
    coordinator.pass_time(1_000)
    clients[0].heartbeat()
    coordinator.pass_time(SESSION_MS - 1_000)
    assert coordinator.group().group_epoch == epoch + 1
    assert clients[0].partitions == ALL


def test_epochs_of_others_are_refused_and_the_member_joins_again_without_partitions() -> None:
    coordinator = Coordinator({"t": 4})
    first = Client(coordinator, "m1")
    first.join()
    for epoch in (7, 100):
        with pytest.raises(FencedMemberEpoch, match=f"is in epoch 1, not {epoch}"):
            first.beat(member_epoch=epoch)
    first.join()
    assert (first.epoch, first.partitions) == (1, ALL)


def test_the_epoch_before_is_accepted_if_the_answer_may_have_been_lost() -> None:
    """The member has no partitions that the coordinator does not count as its own."""
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1", stream=False), Client(coordinator, "m2", stream=False)
    first.join()
    second.join()
    settle_all(first, second)
    assert (first.epoch, second.epoch) == (2, 2)
    answer = first.reconnect(member_epoch=1)
    assert answer.member_epoch == 2
    assert answer.assignment is not None, "the assignment of the lost answer is repeated"
    with pytest.raises(FencedMemberEpoch):
        first.beat(member_epoch=1, topic_partitions=None)
    with pytest.raises(FencedMemberEpoch):
        first.reconnect(member_epoch=1, topic_partitions=second.reconnect().assignment)


def test_a_member_that_starts_again_under_its_id_gets_its_partitions_back() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2")
    first.join()
    second.join()
    settle_all(first, second)
    had, epoch = first.partitions, coordinator.group().group_epoch
    again = Client(coordinator, "m1")
    again.join()
    assert again.partitions == had
    assert coordinator.group().group_epoch == epoch


def test_a_member_that_joins_again_while_revoking_has_released_what_others_wait_for() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2")
    first.join()
    second.join()
    first.join()
    assert len(first.partitions) == len(second.partitions) == 2
    assert first.partitions | second.partitions == ALL


def test_a_full_heartbeat_is_answered_with_the_assignment() -> None:
    coordinator = Coordinator({"t": 4})
    first = Client(coordinator, "m1")
    first.join()
    assert first.beat(topic_partitions=None).assignment is None
    assert first.reconnect(topic_partitions=()).assignment is not None


def test_an_unchanged_heartbeat_writes_nothing() -> None:
    coordinator = Coordinator({"t": 4})
    first = Client(coordinator, "m1")
    first.join()
    first.settle()
    before = len(coordinator.log)
    for _ in range(3):
        coordinator.pass_time(5_000)
        first.heartbeat()
    assert len(coordinator.log) == before


def test_a_group_has_a_largest_size() -> None:
    coordinator = Coordinator({"t": 4}, config=GroupConfig(consumer_max_size=2))
    first, second, third = (Client(coordinator, f"m{number}") for number in range(3))
    first.join()
    second.join()
    with pytest.raises(GroupMaxSizeReached, match=r"group\.consumer\.max\.size"):
        third.join()
    second.join()
    second.leave()
    third.join()


def test_members_without_partitions_are_members_like_others() -> None:
    coordinator = Coordinator({"t": 1})
    clients = [Client(coordinator, f"m{number}") for number in range(3)]
    for client in clients:
        client.join()
    settle_all(*clients)
    assert sorted(len(client.partitions) for client in clients) == [0, 0, 1]
    next(client for client in clients if client.partitions).leave()
    assert sum(len(client.partitions) for client in clients[1:]) == 1


def test_an_unknown_topic_is_tolerated_and_picked_up_when_it_is_created() -> None:
    coordinator = Coordinator({})
    first = Client(coordinator, "m1")
    assert first.join().member_epoch == 1
    assert first.partitions == set()
    coordinator.change_topics({"t": 2})
    assert first.partitions == {("t", 0), ("t", 1)}


def test_new_partitions_are_picked_up() -> None:
    coordinator = Coordinator({"t": 2, "u": 1})
    first = Client(coordinator, "m1")
    first.join()
    coordinator.change_topics({"t": 4, "u": 1})
    assert first.partitions == ALL
    epoch = coordinator.group().group_epoch
    coordinator.change_topics({"t": 4, "u": 9})
    assert coordinator.group().group_epoch == epoch, "the group does not subscribe to u"


def test_a_deleted_topic_is_given_up() -> None:
    coordinator = Coordinator({"t": 2, "u": 1})
    first = Client(coordinator, "m1", ("t", "u"))
    first.join()
    coordinator.change_topics({"u": 1})
    first.heartbeat()
    assert first.partitions == {("u", 0)}
    coordinator.change_topics({"t": 1, "u": 1}, incarnations={"t": 1})
    first.settle()
    assert first.partitions == {("t", 0), ("u", 0)}


def test_a_change_of_subscription_moves_only_what_has_to_move() -> None:
    coordinator = Coordinator({"t": 2, "u": 2})
    first, second = Client(coordinator, "m1", ("t", "u")), Client(coordinator, "m2", ("t", "u"))
    first.join()
    second.join()
    settle_all(first, second)
    second.heartbeat(subscribed_topic_names=("t",))
    settle_all(first, second)
    assert {("u", 0), ("u", 1)} <= first.partitions
    assert first.partitions | second.partitions == {("t", 0), ("t", 1), ("u", 0), ("u", 1)}
    assert {topic for topic, _ in second.partitions} <= {"t"}


def test_a_coordinator_takes_over_in_the_middle_of_a_rebalance() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2")
    first.join()
    second.join()
    before = coordinator.group()
    coordinator.fail_over()
    assert coordinator.group() == before
    first.reconnect()
    second.reconnect()
    settle_all(first, second)
    assert len(first.partitions) == len(second.partitions) == 2
    assert first.partitions | second.partitions == ALL


def test_after_a_take_over_sessions_and_rebalance_timeouts_start_again() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2")
    first.join()
    second.join()
    coordinator.pass_time(REBALANCE_MS - 1)
    coordinator.fail_over()
    coordinator.pass_time(REBALANCE_MS - 1)
    assert len(coordinator.group().members) == 2
    coordinator.pass_time(1)
    assert [member.member_id for member in coordinator.group().members] == ["m2"]
    coordinator.pass_time(SESSION_MS - REBALANCE_MS)
    assert coordinator.group().members == ()


def test_what_changed_while_no_coordinator_was_there_is_found_when_one_is_loaded() -> None:
    coordinator = Coordinator({"t": 2})
    first = Client(coordinator, "m1")
    first.join()
    coordinator.image = Coordinator({"t": 4}).image
    coordinator.fail_over()
    first.reconnect()
    first.settle()
    assert first.partitions == ALL


def test_groups_are_listed_by_state_and_type() -> None:
    coordinator = Coordinator({"t": 2})
    Client(coordinator, "m1", group_id="b").join()
    left = Client(coordinator, "m1", group_id="a")
    left.join()
    left.leave()
    coordinator.commit_offset(0, 5, group_id="simple")
    listed = coordinator.ask(ListGroups()).groups
    assert [(group.group_id, group.type, group.state, group.members) for group in listed] == [
        ("a", "consumer", "Empty", 0),
        ("b", "consumer", "Stable", 1),
        ("simple", "classic", "Empty", 0),
    ]
    assert [group.group_id for group in coordinator.ask(ListGroups(("stable",))).groups] == ["b"]
    assert [group.group_id for group in coordinator.ask(ListGroups((), ("Classic",))).groups] == ["simple"]


def test_a_group_that_does_not_exist_is_described_as_dead() -> None:
    coordinator = Coordinator({"t": 2})
    [unknown] = coordinator.ask(DescribeGroups(("x",))).groups
    assert (type(unknown.error), unknown.state) == (GroupIdNotFound, "Dead")


def test_nobody_is_pushed_what_it_knows() -> None:
    coordinator = Coordinator({"t": 2})
    Client(coordinator, "m1").join()
    assert coordinator.ask(MemberNudged("g", "m1")) is None
    with pytest.raises(UnknownMemberId):
        coordinator.ask(MemberNudged("g", "m2"))
    with pytest.raises(UnknownMemberId):
        coordinator.ask(MemberNudged("h", "m1"))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"server_assignor": "sticky"}, UnsupportedAssignor),
        ({"member_epoch": 1}, UnknownMemberId),
        ({"member_epoch": -1}, UnknownMemberId),
        ({"member_epoch": 1, "instance_id": "i"}, UnknownMemberId),
    ],
)
def test_bad_heartbeats_are_refused_and_leave_nothing(fields: dict[str, object], error: type[TidelogError]) -> None:
    coordinator = Coordinator({"t": 2})
    valid = {
        "group_id": "g",
        "member_id": "m1",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
    }
    request = ConsumerGroupHeartbeat(**{**valid, **fields})  # type: ignore[arg-type]
    with pytest.raises(error):
        coordinator.ask(MemberHeartbeat(request, "c", "h"))
    assert coordinator.log == []


def test_partitions_of_unknown_topics_in_a_heartbeat_do_no_harm() -> None:
    coordinator = Coordinator({"t": 2})
    first = Client(coordinator, "m1")
    answer = first.join()
    assert answer.assignment is not None
    first.beat(topic_partitions=(TopicPartitions(UUID(int=99), (PartitionIndex(7), PartitionIndex(7))),))
    assert coordinator.group().state == "Stable"


def test_a_group_with_members_cannot_be_deleted_and_nothing_is_left_of_one_that_is() -> None:
    coordinator = Coordinator({"t": 2})
    first = Client(coordinator, "m1", None, pattern="t.*")
    first.join()
    coordinator.commit_offset(0, 5, member=first)
    refused = coordinator.ask(DeleteGroups(("g", "x"))).groups
    assert [type(each.error) for each in refused] == [NonEmptyGroup, GroupIdNotFound]
    first.leave()
    assert [each.error for each in coordinator.ask(DeleteGroups(("g", "g"))).groups] == [None, None]
    assert coordinator.ask(ListGroups()).groups == ()
    assert set(coordinator.last_values().values()) == {None}, "every key that was written has a tombstone"
