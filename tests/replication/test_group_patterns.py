"""Subscriptions by a pattern that the coordinator evaluates (KIP-848)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from replication.coordination.group_records import ConsumerGroupRegularExpressionKey
from tests.replication.group_stories import Client, Coordinator, names_of, settle_all
from tidelog.errors import InvalidRegularExpression

TOPICS = {"orders": 2, "orders.eu": 1, "users": 1, "__consumer_offsets": 50, "__transaction_state": 50}


@dataclass(frozen=True)
class Shows:
    """The view of a principal that may describe topics with these prefixes."""

    prefixes: tuple[str, ...]

    def shows(self, topic: str, /) -> bool:
        return topic.startswith(self.prefixes)


def pattern_records(coordinator: Coordinator) -> dict[str, object]:
    """The last value of each pattern."""
    return {
        key.regular_expression: value
        for key, value in coordinator.last_values().items()
        if isinstance(key, ConsumerGroupRegularExpressionKey)
    }


def test_a_pattern_is_for_whole_names_and_never_for_internal_topics() -> None:
    coordinator = Coordinator(TOPICS)
    first, second = Client(coordinator, "m1", None, pattern="orders"), Client(coordinator, "m2", None, pattern=".*")
    first.join()
    assert first.partitions == {("orders", 0), ("orders", 1)}
    second.join()
    settle_all(first, second)
    assert {topic for topic, _ in first.partitions | second.partitions} == {"orders", "orders.e", "users"}


def test_topics_that_match_are_picked_up_and_dropped() -> None:
    coordinator = Coordinator(TOPICS)
    first = Client(coordinator, "m1", None, pattern="orders.*")
    first.join()
    coordinator.change_topics({**TOPICS, "ordersX": 1, "others": 1})
    assert ("ordersX", 0) in first.partitions
    coordinator.change_topics({"orders": 2})
    first.settle()
    assert first.partitions == {("orders", 0), ("orders", 1)}


def test_a_new_topic_that_does_not_match_bumps_no_epoch() -> None:
    coordinator = Coordinator(TOPICS)
    first = Client(coordinator, "m1", None, pattern="orders.*")
    first.join()
    before = len(coordinator.log)
    coordinator.change_topics({**TOPICS, "others": 1})
    assert len(coordinator.log) == before


def test_names_and_pattern_together_count_once() -> None:
    coordinator = Coordinator(TOPICS)
    first = Client(coordinator, "m1", ("orders", "users"), pattern="orders.*")
    first.join()
    assert first.partitions == {("orders", 0), ("orders", 1), ("orders.e", 0), ("users", 0)}
    first.heartbeat(subscribed_topic_regex="")
    first.settle()
    assert first.partitions == {("orders", 0), ("orders", 1), ("users", 0)}


def test_a_pattern_is_forgotten_with_its_last_member() -> None:
    coordinator = Coordinator(TOPICS)
    first, second = (Client(coordinator, f"m{each}", None, pattern="orders.*") for each in (1, 2))
    first.join()
    second.join()
    first.leave()
    assert pattern_records(coordinator)["orders.*"] is not None
    second.heartbeat(subscribed_topic_regex="users")
    records = pattern_records(coordinator)
    assert (records["orders.*"], records["users"] is None) == (None, False)
    second.leave()
    assert set(pattern_records(coordinator).values()) == {None}


@pytest.mark.parametrize("pattern", ["(", "(?=a)b", r"(a)\1"])
def test_a_bad_pattern_is_refused_and_the_group_does_not_change(pattern: str) -> None:
    coordinator = Coordinator(TOPICS)
    first = Client(coordinator, "m1")
    first.join()
    before = len(coordinator.log)
    with pytest.raises(InvalidRegularExpression):
        Client(coordinator, "m2", None, pattern=pattern).join()
    with pytest.raises(InvalidRegularExpression):
        first.heartbeat(subscribed_topic_regex=pattern)
    assert len(coordinator.log) == before


def test_patterns_are_evaluated_again_by_the_next_coordinator() -> None:
    coordinator = Coordinator(TOPICS)
    first = Client(coordinator, "m1", None, pattern="orders.*")
    first.join()
    coordinator.image = Coordinator({"orders": 2, "orders2": 1}).image
    coordinator.fail_over()
    first.reconnect()
    first.settle()
    assert first.partitions == {("orders", 0), ("orders", 1), ("orders2", 0)}


def test_a_member_gets_only_the_matching_topics_that_it_may_describe() -> None:
    """Members of one group may have different principals: each topic goes to those that may describe it."""
    coordinator = Coordinator(TOPICS)
    first = Client(coordinator, "m1", None, pattern=".*", view=Shows(("orders.",)))
    second = Client(coordinator, "m2", None, pattern=".*", view=Shows(("orders", "users")))
    first.join()
    assert first.partitions == {("orders.e", 0)}
    second.join()
    settle_all(first, second)
    assert first.partitions == {("orders.e", 0)}
    assert second.partitions == {("orders", 0), ("orders", 1), ("users", 0)}
    coordinator.change_topics({**TOPICS, "plans": 1, "orders.x": 1, "usersX": 1})
    settle_all(first, second)
    assert first.partitions | second.partitions == {
        *(("orders", 0), ("orders", 1), ("users", 0)),
        *(("orders.e", 0), ("orders.x", 0), ("usersX", 0)),
    }
    assert first.partitions <= {("orders.e", 0), ("orders.x", 0)}


def test_a_permission_that_is_withdrawn_counts_from_the_next_assignment_on() -> None:
    coordinator = Coordinator(TOPICS)
    first = Client(coordinator, "m1", None, pattern="orders.*")
    first.join()
    first.view = Shows(("orders.",))
    first.heartbeat()
    assert ("orders", 0) in first.partitions
    coordinator.change_topics({**TOPICS, "orders.x": 1})
    first.settle()
    assert first.partitions == {("orders.e", 0), ("orders.x", 0)}


def test_the_next_coordinator_gives_nothing_new_before_it_knows_what_a_member_may_describe() -> None:
    """It computes an assignment before the members have sent a heartbeat, and another one as soon as they have."""
    coordinator = Coordinator(TOPICS)
    first = Client(coordinator, "m1", None, pattern=".*", view=Shows(("orders",)))
    second = Client(coordinator, "m2", None, pattern=".*", view=Shows(("users",)))
    first.join()
    second.join()
    settle_all(first, second)
    coordinator.fail_over()
    coordinator.change_topics({**TOPICS, "users": 2, "users2": 1, "orders2": 1})
    coordinator.pass_time(2_000)
    targets = {member.member_id: member.target for member in coordinator.group().members}
    assert names_of(targets["m1"]) == {("orders", 0), ("orders", 1), ("orders.e", 0)}
    assert names_of(targets["m2"]) == {("users", 0), ("users", 1)}, "partitions of a topic that it has"
    epoch = coordinator.group().group_epoch
    first.reconnect()
    assert coordinator.group().group_epoch == epoch, "the other one is still unknown"
    second.reconnect()
    assert coordinator.group().group_epoch == epoch + 1
    coordinator.pass_time(2_000)
    settle_all(first, second)
    assert first.partitions == {("orders", 0), ("orders", 1), ("orders.e", 0), ("orders2", 0)}
    assert second.partitions == {("users", 0), ("users", 1), ("users2", 0)}
    first.heartbeat()
    assert coordinator.group().group_epoch == epoch + 1


def test_a_member_that_never_comes_back_does_not_keep_the_others_waiting() -> None:
    coordinator = Coordinator(TOPICS)
    first = Client(coordinator, "m1", None, pattern=".*", view=Shows(("orders",)))
    second = Client(coordinator, "m2", None, pattern=".*", view=Shows(("orders",)))
    first.join()
    second.join()
    settle_all(first, second)
    coordinator.fail_over()
    coordinator.change_topics({**TOPICS, "orders2": 1})
    coordinator.pass_time(2_000)
    first.reconnect()
    for _ in range(50):
        coordinator.pass_time(1_000)
        first.settle()
    assert first.partitions == {("orders", 0), ("orders", 1), ("orders.e", 0), ("orders2", 0)}
