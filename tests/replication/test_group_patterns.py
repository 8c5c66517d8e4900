"""Subscriptions by a pattern that the coordinator evaluates (KIP-848)."""

from __future__ import annotations

import pytest

from replication.coordination.group_records import ConsumerGroupRegularExpressionKey
from tests.replication.group_stories import Client, Coordinator, settle_all
from tidelog.errors import InvalidRegularExpression

TOPICS = {"orders": 2, "orders.eu": 1, "users": 1, "__consumer_offsets": 50, "__transaction_state": 50}


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


@pytest.mark.parametrize("pattern", ["(", "(?=a)b", r"(a)\1", "a" * 5_000])
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
