"""Settings of groups: what may be set, what remains in the metadata, and what it does to the members of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from replication.controller import features
from replication.controller.events import AlterGroupConfigs, ChangedTopic, ConfigChange, GroupConfigsAltered
from replication.controller.group_configs import GROUP_ID_BYTES_MAX
from replication.controller.image import EMPTY, ClusterImage, apply
from replication.controller.image_records import records_of
from replication.controller.metadata_records import GroupConfigsRecord
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.group_times import (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    GroupTimes,
    valid_group_configs,
)
from replication.coordination.groups.topic_catalog import TopicCatalog
from tests.replication.controlled import Controlled
from tests.replication.group_stories import Client, Coordinator
from tidelog.errors import InvalidConfig, InvalidRequest, TidelogError, UnsupportedVersion
from tidelog.types import Offset


def started(level: int = features.LATEST) -> Controlled:
    world = Controlled(level=level)
    world.start(1)
    return world


def alter(world: Controlled, group: str = "g", *, validate_only: bool = False, **changes: str | None) -> object:
    """Change settings (`_` for `.`; None: reset)."""
    asked = tuple(ConfigChange(key.replace("_", "."), value) for key, value in changes.items())
    return world.ask(AlterGroupConfigs(group, asked, validate_only))


def test_a_group_gets_settings_before_it_exists_and_loses_them_one_by_one() -> None:
    world = started()
    assert isinstance(alter(world, a="1", b="2"), GroupConfigsAltered)
    alter(world, "other", a="3")
    alter(world, a=None, c="4")
    assert world.image.group_configs == {"g": {"b": "2", "c": "4"}, "other": {"a": "3"}}
    end = world.end
    alter(world, b="2")
    alter(world, a=None)
    alter(world, validate_only=True, b="9")
    assert world.end == end, "nothing that changes nothing is written"
    alter(world, b=None, c=None)
    assert world.image.group_configs == {"other": {"a": "3"}}


def test_a_snapshot_has_the_settings_of_groups() -> None:
    world = started()
    alter(world, a="1", b="2")
    located = [(Offset(number), record) for number, record in enumerate(records_of(world.image))]
    assert apply(EMPTY, located).group_configs == world.image.group_configs == {"g": {"a": "1", "b": "2"}}


@pytest.mark.parametrize(
    ("group", "changes", "error"),
    [
        ("", [("a", "1")], InvalidRequest),
        ("x" * (GROUP_ID_BYTES_MAX + 1), [("a", "1")], InvalidRequest),
        ("g", [("a", "1"), ("a", None)], InvalidConfig),
        ("g", [("no.such.key", "1")], InvalidConfig),
    ],
)
def test_what_no_group_can_have_is_refused(
    group: str, changes: list[tuple[str, str | None]], error: type[TidelogError]
) -> None:
    world = started()
    end = world.end
    refused = world.ask(AlterGroupConfigs(group, tuple(ConfigChange(*each) for each in changes)))
    assert isinstance(refused, error)
    assert world.end == end


def test_so_many_groups_and_no_more_have_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replication.controller.group_configs.GROUPS_MAX", 2)
    world = started()
    alter(world, "a", x="1")
    alter(world, "b", x="1")
    assert isinstance(alter(world, "c", x="1"), InvalidRequest)
    assert isinstance(alter(world, "b", x="2"), GroupConfigsAltered)
    alter(world, "a", x=None)
    assert isinstance(alter(world, "c", x="1"), GroupConfigsAltered)


def test_nothing_is_written_that_an_older_node_could_not_read() -> None:
    world = started(features.GROUP_CONFIGS - 1)
    refused = alter(world, a="1")
    assert isinstance(refused, UnsupportedVersion)
    assert "tidelog cluster upgrade" in refused.message


def test_the_limits_of_the_nodes_hold_for_each_group() -> None:
    config = GroupConfig()
    largest = {SESSION_TIMEOUT: "60000", HEARTBEAT_INTERVAL: "15000"}
    assert valid_group_configs(config, largest) == largest
    assert valid_group_configs(config, {}) == {}
    for configs, why in (
        (
            {SESSION_TIMEOUT: "44999"},
            "^consumer.session.timeout.ms is 44999; use 45000 to 60000",
        ),
        ({SESSION_TIMEOUT: "60001"}, "group.consumer.max.session.timeout.ms of the nodes"),
        ({HEARTBEAT_INTERVAL: "4999"}, "^consumer.heartbeat.interval.ms is 4999; use 5000 to 15000"),
        ({HEARTBEAT_INTERVAL: "soon"}, "a whole number"),
        ({HEARTBEAT_INTERVAL: "0"}, "a whole number from 1"),
        ({"share.session.timeout.ms": "45000"}, "unknown group setting"),
    ):
        with pytest.raises(InvalidConfig, match=why):
            valid_group_configs(config, configs)
    narrow = GroupConfig(consumer_min_session_timeout_ms=10_000, consumer_max_heartbeat_interval_ms=20_000)
    for configs, why in (
        (
            {SESSION_TIMEOUT: "10000", HEARTBEAT_INTERVAL: "10000"},
            "it must be below consumer.session",
        ),
        ({SESSION_TIMEOUT: "10000", HEARTBEAT_INTERVAL: "20000"}, "^consumer.heartbeat.interval.ms is 20000"),
    ):
        with pytest.raises(InvalidConfig, match=why):
            valid_group_configs(narrow, configs)
    slow = replace(narrow, consumer_heartbeat_interval_ms=15_000)
    with pytest.raises(InvalidConfig, match=r"^group.consumer.heartbeat.interval.ms of the nodes is 15000"):
        valid_group_configs(slow, {SESSION_TIMEOUT: "10000"})


def test_a_number_is_kept_as_numbers_are_written_and_read_as_in_kafka() -> None:
    """The text goes into the metadata log and the memory of every node: spaces once made it MiB."""
    config = GroupConfig()
    assert valid_group_configs(config, {SESSION_TIMEOUT: " 00050000\n"}) == {SESSION_TIMEOUT: "50000"}
    arabic = "\u0665\u0660\u0660\u0660\u0660"
    for text in (" " * 8_000_000 + "50000", "0" * 300 + "50000", "5_0000", arabic, "50000.0", "", "5 0000"):
        with pytest.raises(InvalidConfig, match="a whole number") as refused:
            valid_group_configs(config, {SESSION_TIMEOUT: text})
        assert len(refused.value.message) < 1_000
    world = started()
    alter(world, a=" 1 ")
    assert world.image.group_configs == {"g": {"a": "1"}}, "the controller keeps what the check returns"


def test_settings_that_are_not_valid_any_more_can_be_looked_up_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that replaces all settings asks for the present ones first, which a later version refuses, or other
    limits. It was refused for what it was about to replace."""

    def stricter(configs: Mapping[str, str]) -> None:
        if "old.key" in configs:
            raise InvalidConfig("old.key is unknown")

    world = started()
    alter(world, old_key="1")
    world.made("orders", replicas=1, old_key="1")
    monkeypatch.setattr("tests.replication.controlled.check_configs", stricter)
    world.activate()
    world.commit()
    assert isinstance(alter(world, validate_only=True), GroupConfigsAltered)
    assert isinstance(alter(world, new_key="2"), InvalidConfig)
    assert isinstance(alter(world, old_key=None, new_key="2"), GroupConfigsAltered)
    assert world.image.group_configs == {"g": {"new.key": "2"}}
    assert isinstance(world.alter(), ChangedTopic)
    assert isinstance(world.alter(new_key="2"), InvalidConfig)
    assert isinstance(world.alter(old_key=None, new_key="2"), ChangedTopic)
    assert world.topic().configs == {"new.key": "2"}


# --- their effect ---


def with_settings(image: ClusterImage, **configs: str) -> ClusterImage:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return apply(image, [(image.offset, GroupConfigsRecord("g", named))])


def test_members_learn_the_interval_of_their_group_with_the_next_heartbeat() -> None:
    coordinator = Coordinator({"t": 2})
    client = Client(coordinator, "m1")
    assert client.join().heartbeat_interval_ms == 5_000
    coordinator.see(with_settings(coordinator.image, consumer_heartbeat_interval_ms="7000"))
    assert client.heartbeat().heartbeat_interval_ms == 7_000
    coordinator.see(with_settings(coordinator.image))
    assert client.heartbeat().heartbeat_interval_ms == 5_000


def test_a_silent_member_keeps_its_place_for_the_session_of_its_group() -> None:
    coordinator = Coordinator({"t": 2})
    coordinator.see(with_settings(coordinator.image, consumer_session_timeout_ms="60000"))
    client = Client(coordinator, "m1")
    client.join()
    coordinator.pass_time(59_000)
    assert [each.member_id for each in coordinator.group().members] == ["m1"]
    client.heartbeat()
    coordinator.pass_time(61_000)
    assert coordinator.group().members == ()


def test_values_outside_the_limits_of_a_node_count_as_the_nearest_inside() -> None:
    """The limits of this node are narrower than those of the controller that took the settings."""
    catalog = TopicCatalog()
    times = GroupTimes(GroupConfig(), catalog)
    catalog.update(
        with_settings(
            catalog.image, consumer_session_timeout_ms="90000", consumer_heartbeat_interval_ms="1", other_key="x"
        ),
        (),
    )
    assert (times.session_timeout_ms("g"), times.heartbeat_interval_ms("g")) == (60_000, 5_000)
    assert times.take_notice() == ""


def test_times_that_contradict_each_other_here_are_those_of_the_node_with_one_notice() -> None:
    """Every member would be removed before its next heartbeat."""
    config = GroupConfig(
        consumer_min_session_timeout_ms=10_000,
        consumer_max_session_timeout_ms=45_000,
        consumer_max_heartbeat_interval_ms=60_000,
    )
    coordinator = Coordinator({"t": 2}, config=config)
    catalog = TopicCatalog()
    times = GroupTimes(config, catalog)
    impossible = {"consumer_session_timeout_ms": "60000", "consumer_heartbeat_interval_ms": "50000"}
    catalog.update(with_settings(catalog.image, **impossible), ())
    assert (times.session_timeout_ms("g"), times.heartbeat_interval_ms("g")) == (45_000, 5_000)
    assert "group 'g' has the times of this node" in times.take_notice()
    catalog.update(apply(catalog.image, [(catalog.image.offset, GroupConfigsRecord("other", {"a": "1"}))]), ())
    assert times.session_timeout_ms("g") == 45_000
    assert times.take_notice() == "", "it was said already"
    unreadable = {"consumer.session.timeout.ms": "soon"}
    for group in ("g", "h"):
        catalog.update(apply(catalog.image, [(catalog.image.offset, GroupConfigsRecord(group, unreadable))]), ())
    assert [times.session_timeout_ms(group) for group in ("g", "h")] == [45_000] * 2
    for group in ("g", "h"):
        notice = times.take_notice()
        assert notice.startswith(f"group '{group}' has")
        assert "consumer.session.timeout.ms = 'soon'" in notice
    assert times.take_notice() == ""

    coordinator.see(with_settings(coordinator.image, **impossible))
    client = Client(coordinator, "m1")
    assert client.join().heartbeat_interval_ms == 5_000
    client.heartbeat()
    assert len([notice for notice in coordinator.notices if "the times of this node" in notice]) == 1
