"""Small parts of the group coordinator: timers, settings, forms of assignments."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.coordination.group_records import TopicPartitions
from replication.coordination.groups.assignments import as_sets, as_topics, canonical, is_within
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.topic_catalog import TopicCatalog
from replication.coordination.timers import Timers
from tests.replication.group_stories import image_of
from tidelog.errors import InvalidConfig
from tidelog.settings import settings_of
from tidelog.types import Millis, PartitionIndex

EVERY = 1_000_000


@given(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 50)), st.booleans())))
def test_timers_do_what_a_dictionary_does(steps: list[tuple[str, int | None, bool]]) -> None:
    timers: Timers[str] = Timers()
    plain: dict[str, int] = {}
    for key, at, due in steps:
        if due:
            now = at or 0
            popped = timers.pop_due(Millis(now), EVERY)
            assert set(popped) == {each for each, time in plain.items() if time <= now}
            assert [plain.pop(each) for each in popped] == sorted(plain.get(each, 0) or 0 for each in popped) or popped
        elif at is None:
            timers.cancel(key)
            plain.pop(key, None)
        else:
            timers.schedule(key, Millis(at))
            plain[key] = at
        assert timers.next() == min(plain.values(), default=None)
        assert len(timers) == len(plain)


def test_timers_come_up_by_time_and_some_at_a_time() -> None:
    timers: Timers[str] = Timers()
    for key, at in (("late", 9), ("first", 1), ("second", 5), ("second", 2), ("first", 1)):
        timers.schedule(key, Millis(at))
    assert timers.pop_due(Millis(9), 2) == ["first", "second"]
    assert timers.pop_due(Millis(9), 2) == ["late"]
    assert timers.next() is None


def test_settings_have_kafkas_names_and_defaults() -> None:
    values = {each.name: getattr(GroupConfig(), field) for field, each in settings_of(GroupConfig).items()}
    expected = {
        "group.consumer.session.timeout.ms": 45_000,
        "group.consumer.heartbeat.interval.ms": 5_000,
        "group.consumer.assignors": ("uniform", "range"),
        "offset.metadata.max.bytes": 4_096,
        "offsets.retention.minutes": 10_080,
        "offsets.retention.check.interval.ms": 600_000,
    }
    assert {name: values[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"consumer_session_timeout_ms": 1}, r"group\.consumer\.session\.timeout\.ms is 1"),
        ({"consumer_session_timeout_ms": 60_001}, r"to group\.consumer\.max\.session\.timeout\.ms, 60000"),
        ({"consumer_heartbeat_interval_ms": 4_999}, r"group\.consumer\.heartbeat\.interval\.ms is 4999"),
        (
            {"consumer_min_session_timeout_ms": 5_000, "consumer_session_timeout_ms": 5_000},
            r"must be below group\.consumer\.session\.timeout\.ms",
        ),
    ],
)
def test_settings_out_of_range_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        GroupConfig(**values)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("consumer_max_size", 0, r"group\.consumer\.max\.size = 0: must be a whole number from 1"),
        ("consumer_assignors", ["sticky"], "list each of uniform, range at most once"),
        ("consumer_assignors", [], "a list of one or more assignors"),
        ("offset_metadata_max_bytes", 0, r"offset\.metadata\.max\.bytes = 0"),
        ("offsets_retention_minutes", 0, r"offsets\.retention\.minutes = 0"),
    ],
)
def test_a_value_that_no_setting_has_is_refused_when_it_is_read(field: str, value: object, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        settings_of(GroupConfig)[field].check(value)


topics = st.lists(
    st.builds(
        TopicPartitions,
        st.integers(0, 3).map(lambda number: UUID(int=number)),
        st.lists(st.integers(0, 5).map(PartitionIndex), max_size=4).map(tuple),
    ),
    max_size=4,
).map(tuple)


@given(topics)
def test_assignments_have_one_canonical_form(listed: tuple[TopicPartitions, ...]) -> None:
    once = canonical(listed)
    assert once == as_topics(as_sets(listed))
    assert canonical(once) is once
    assert is_within(listed, as_sets(once))
    assert not is_within((TopicPartitions(UUID(int=9), (PartitionIndex(0),)),), as_sets(once))


def test_the_hash_of_topics_tells_states_apart_and_ignores_order() -> None:
    def hash_of(*names: str, **image: Any) -> int:
        catalog = TopicCatalog()
        catalog.update(image_of({"a": 2, "b": 3}, **image), ())
        return catalog.hash_of(names)

    assert hash_of("a", "b") == hash_of("b", "a") == hash_of("b", "a", "unknown")
    assert hash_of() == hash_of("unknown") == 0
    different = {
        hash_of("a"),
        hash_of("b"),
        hash_of("a", "b"),
        hash_of("a", incarnations={"a": 1}),
        hash_of("a", racks={1: "r"}),
        hash_of("a", racks={1: "r", 2: "s"}),
    }
    assert len(different) == 6
    assert all(-(1 << 63) <= each < 1 << 63 for each in different)
