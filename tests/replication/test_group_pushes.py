"""Assignments that the coordinator pushes, while heartbeats of the member are on their way."""

from __future__ import annotations

from uuid import UUID

import pytest

from replication.coordination.groups.assignments import as_topics
from replication.coordination.groups.member import CurrentAssignment
from replication.coordination.groups.pushes import Pushes
from tests.replication.group_stories import Client, Coordinator, settle_all
from tidelog.errors import FencedMemberEpoch

TOPIC = UUID(int=1)


def has(epoch: int, *partitions: int) -> CurrentAssignment:
    return CurrentAssignment(epoch, epoch - 1, 0, as_topics({TOPIC: set(partitions)}), ())


def owned(pushes: Pushes, epoch: int, *reported: int) -> set[int]:
    counted = pushes.owned("g", "m", epoch, {TOPIC: frozenset(reported)})
    assert counted is not None
    return set(counted[TOPIC])


def test_a_heartbeat_with_the_epoch_from_before_a_push_is_accepted() -> None:
    coordinator = Coordinator({"t": 4})
    first = Client(coordinator, "m1")
    first.join()
    coordinator.change_topics({"t": 5})
    coordinator.change_topics({"t": 6})
    assert (first.epoch, len(first.pushed)) == (3, 2)
    answer = first.beat(member_epoch=1, topic_partitions=None)
    assert answer.member_epoch == 3
    assert answer.assignment is not None
    first.heartbeat()
    with pytest.raises(FencedMemberEpoch):
        first.beat(member_epoch=1, topic_partitions=None)


def test_a_push_that_was_lost_is_repeated_with_the_next_answer() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2")
    first.join()
    second.join()
    second.is_deaf = True
    first.heartbeat()
    assert second.partitions == set()
    second.is_deaf = False
    assert second.beat(member_epoch=2, topic_partitions=None).assignment is not None
    assert len(second.partitions) == 2


def test_an_older_heartbeat_does_not_give_up_what_a_push_has_just_brought() -> None:
    """The heartbeat was sent before the push arrived, and does not have the partition. A third member must not get the
    partition before the second one has seen that it lost it."""
    coordinator = Coordinator({"t": 2})
    first, second, third = Client(coordinator, "m1"), Client(coordinator, "m2"), Client(coordinator, "m3")
    first.join()
    second.join()
    assert second.partitions == set()
    first.heartbeat()
    assert second.partitions == {("t", 1)}, "by a push"
    epoch = second.epoch
    first.leave()
    third.join()
    wanted = {part for member in coordinator.group().members for topic in member.target for part in topic.partitions}
    assert wanted == {0, 1}
    second.beat(member_epoch=epoch, topic_partitions=())
    assert not (second.partitions & third.partitions)
    settle_all(second, third)
    assert len(second.partitions) == len(third.partitions) == 1


def test_a_push_counts_until_its_epoch_comes_back() -> None:
    pushes = Pushes()
    pushes.note("g", "m", has(1, 0), has(2, 0, 1))
    assert pushes.knows_epoch("g", "m", 1)
    assert owned(pushes, 1, 0) == {0, 1}
    assert owned(pushes, 2, 0) == {0}
    assert not pushes.is_unconfirmed("g", "m")


def test_a_push_within_an_epoch_counts_until_it_is_reported() -> None:
    pushes = Pushes()
    pushes.note("g", "m", has(2, 0), has(2, 0, 1))
    assert owned(pushes, 2, 0, 1) == {0, 1}
    assert owned(pushes, 2, 0) == {0}


def test_as_many_heartbeats_may_be_older_as_pushes_are_unconfirmed() -> None:
    pushes = Pushes()
    pushes.note("g", "m", has(2, 0), has(2, 0, 1))
    pushes.note("g", "m", has(2, 0, 1), has(2, 0, 1, 2))
    assert owned(pushes, 2, 0) == {0, 1, 2}
    assert owned(pushes, 2, 0) == {0, 2}
    assert owned(pushes, 2, 0) == {0}
    assert not pushes.is_unconfirmed("g", "m")


def test_a_heartbeat_that_names_no_partitions_tells_nothing() -> None:
    pushes = Pushes()
    assert pushes.owned("g", "m", 1, None) is None
    pushes.note("g", "m", has(1, 0), has(2, 0, 1))
    assert pushes.owned("g", "m", 2, None) is None
    pushes.note("g", "m", has(2, 0, 1), has(3, 0, 1, 2))
    pushes.forget("g", "m")
    assert owned(pushes, 3, 0) == {0}
