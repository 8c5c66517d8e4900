"""Settings of topics and nodes, as clients of Kafka's protocol describe and change them."""

from __future__ import annotations

from typing import Any

import pytest

from node.api.api import Api
from node.api.caller import Caller
from node.api.config_requests import (
    AlterConfigsOfResources,
    AlteredResource,
    ConfigOperation,
    DescribeConfigsRequest,
    ListConfigResourcesRequest,
    SettingChange,
)
from node.config import GRPC_LISTENER, SETTINGS, parse
from node.requests.context import RequestContext
from node.requests.cordoned_log_dirs import CordonedLogDirs
from node.requests.node_settings import node_settings
from node.security.authorizer import Authorizer
from replication.controller.events import ChangedTopic, CreateTopic
from tests.node.metadata_world import MetadataWorld
from tidelog.cluster_descriptions import ConfigResource, ConfigResourceType, ConfigSource, ResourceConfigs
from tidelog.errors import (
    ClusterAuthorizationFailed,
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    TidelogError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tidelog.security.acls import AclOperation, ResourceType
from tidelog.settings import SettingType
from tidelog.types import NodeId

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
CALLER = RequestContext("client", "here")


def group(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.GROUP, name)


def topic(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name)


def node(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.NODE, name)


def describe(world: MetadataWorld, *resources: ConfigResource, caller: Any = CALLER) -> list[ResourceConfigs]:
    handlers: Any = world.side(0).services["Admin"]
    answer = world.do(handlers.describe_configs(DescribeConfigsRequest(resources), caller))
    return list(answer.resources)


def alter(world: MetadataWorld, *resources: AlteredResource, caller: Any = CALLER) -> list[ChangedTopic]:
    handlers: Any = world.side(1).services["Admin"]
    answer = world.do(handlers.alter_configs(AlterConfigsOfResources(resources), caller))
    return list(answer.topics)


def altered(world: MetadataWorld, *changes: SettingChange, name: str = "orders", **fields: Any) -> TidelogError | None:
    """The error of a change of one topic."""
    [changed] = alter(world, AlteredResource(topic(name), changes, **fields))
    assert changed.name == name
    return changed.error


def configs(world: MetadataWorld, name: str = "orders") -> dict[str, str]:
    found = world.image(0).topic(name)
    assert found is not None
    return dict(found.configs)


class RefusesAll(Authorizer):
    """Allows nothing."""

    def topic_refusal(self, *_: object, **__: object) -> TidelogError | None:
        return TopicAuthorizationFailed("no permission")

    def resource_refusal(
        self, caller: Caller, api: Api[Any, Any], operation: AclOperation, resource_type: ResourceType, name: str
    ) -> TidelogError | None:
        return ClusterAuthorizationFailed(f"{operation.name} of {resource_type.name}")


# --- describing ---------------------------------------------------------------------------------------------------


def test_settings_are_described_with_their_origin_and_errors_one_by_one() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create("orders", retention_ms="1000")
        missing, orders, again = describe(world, *map(topic, ("none", "orders", "none")))
        assert isinstance(missing.error, UnknownTopicOrPartition)
        assert isinstance(again.error, UnknownTopicOrPartition)
        found = {each.key: (each.value, each.source, each.type) for each in orders.configs}
        assert found["retention.ms"] == ("1000", ConfigSource.TOPIC, SettingType.LONG)
        assert found["cleanup.policy"] == ("delete", ConfigSource.DEFAULT, SettingType.LIST)
        assert list(found) == sorted(found)


def test_a_node_describes_its_own_configuration() -> None:
    with MetadataWorld() as world:
        world.begin()
        own, other, every = describe(world, node("0"), node("1"), node(""))
        found = {each.key: each for each in own.configs}
        assert found["node.id"].value == "0"
        assert found["listeners"].value == "GRPC://node-0:9092"
        assert found["log.dirs"].source is ConfigSource.NODE
        assert found["log.retention.ms"].source is ConfigSource.DEFAULT
        assert [each.key for each in own.configs if not each.is_read_only] == ["cordoned.log.dirs"]
        assert every.error is None
        assert every.configs == ()
        assert isinstance(other.error, InvalidRequest)
        assert "ask that one" in other.error.message
        with pytest.raises(InvalidRequest, match="11 nodes: at most 10"):
            describe(world, *[node("0")] * 11)


@pytest.mark.parametrize(
    ("kind", "next_step"),
    [
        (8, "Set logging.level in the configuration of the node"),
        (16, "Read those of the clients where they run"),
        (99, "resource type 99 is unknown: only topics (2), nodes (4) and groups (32) have settings here"),
    ],
)
def test_what_has_no_settings_of_its_own_is_refused_with_what_to_do(kind: int, next_step: str) -> None:
    with MetadataWorld() as world:
        world.begin()
        resource = ConfigResource(kind, "0")
        (described,) = describe(world, resource)
        (changed,) = alter(world, AlteredResource(resource, (SettingChange("level", "DEBUG"),)))
        for error in (described.error, changed.error):
            assert isinstance(error, InvalidRequest)
            assert next_step in error.message


def test_every_setting_of_a_node_is_described_as_it_would_be_written() -> None:
    """But those of TLS, which are of a listener."""
    text = """
        "node.id" = 3
        "listeners" = ["GRPC://127.0.0.1:9192", "KAFKA://127.0.0.1:9092"]
        "advertised.listeners" = ["KAFKA://localhost:9092"]
        "controller.quorum.bootstrap.servers" = ["127.0.0.1:9192", "127.0.0.1:9292"]
        "metrics.listener" = "127.0.0.1:9100"
        "log.cleanup.policy" = "compact,delete"
        "leader.imbalance.check.interval.seconds" = 60
        "super.users" = ["User:a", "User:b"]
    """
    config = parse(text, {}, source="node.toml", host_name="host")
    found = {each.key: each for each in node_settings(config)}
    assert {key for key in SETTINGS if not key.startswith("ssl.")} - {"cluster.bootstrap.node.id"} <= set(found)
    for key, each in found.items():
        if key in SETTINGS and each.value:
            declared = SETTINGS[key]
            assert declared.kind.show(declared.parse(each.value)) == each.value, key
    set_by_file = {key for key, each in found.items() if each.source is ConfigSource.NODE}
    assert set_by_file == {
        "node.id",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "controller.quorum.bootstrap.servers",
        "default.replication.factor",  # by the number of these
        "metrics.listener",
        "log.cleanup.policy",
        "leader.imbalance.check.interval.seconds",
        "super.users",
    }
    assert found["leader.imbalance.check.interval.seconds"].value == "60"
    assert found["controller.quorum.bootstrap.servers"].value == "127.0.0.1:9192,127.0.0.1:9292"
    assert (found["broker.id"].value, found["auto.create.topics.enable"].value) == ("3", "false")


# --- changing -----------------------------------------------------------------------------------------------------


def test_settings_are_set_reset_and_lists_get_and_lose_items() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create("orders", segment_bytes="1000000")
        changes = (SettingChange("retention.ms", "7"), SettingChange("segment.bytes", None, DELETE))
        assert altered(world, *changes, SettingChange("cleanup.policy", "compact", APPEND)) is None
        assert configs(world) == {"retention.ms": "7", "cleanup.policy": "delete,compact"}
        assert altered(world, SettingChange("cleanup.policy", "compact, delete", APPEND)) is None
        assert configs(world)["cleanup.policy"] == "delete,compact", "what it has is not added again"
        assert altered(world, SettingChange("cleanup.policy", "delete", SUBTRACT)) is None
        assert configs(world)["cleanup.policy"] == "compact"
        assert altered(world, SettingChange("retention.ms", "9"), validate_only=True) is None
        assert configs(world)["retention.ms"] == "7"
        assert altered(world, SettingChange("never.heard.of", None, DELETE)) is None, "tools clean up so"


IMPOSSIBLE = (
    (SettingChange("retention.ms", "1", APPEND), InvalidConfig, "not a list"),
    (SettingChange("never.heard.of", "1", SUBTRACT), InvalidConfig, "not a list"),
    (SettingChange("never.heard.of", "1"), InvalidConfig, "unknown topic setting"),
    (SettingChange("cleanup.policy", "delete", SUBTRACT), InvalidConfig, "must be delete or compact"),
    (SettingChange("retention.ms", None), InvalidRequest, "has no value"),
    (SettingChange("retention.ms", "1", 7), InvalidRequest, "operation 7"),
)


def test_impossible_changes_are_refused_with_their_reason() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create("orders")
        before = configs(world)
        for change, error, text in IMPOSSIBLE:
            refusal = altered(world, change)
            assert type(refusal) is error, change
            assert text in refusal.message
        assert configs(world) == before


def test_a_change_of_a_list_sees_what_another_node_has_changed() -> None:
    """The node that is asked has not applied it yet, and looks at what the controller has."""
    with MetadataWorld() as world:
        world.begin()
        world.create("orders", cleanup_policy="compact")
        assert world.image(1).topic("orders") is None
        assert altered(world, SettingChange("cleanup.policy", "delete", APPEND)) is None
        assert configs(world)["cleanup.policy"] == "compact,delete"
        missing = altered(world, SettingChange("cleanup.policy", "delete", APPEND), name="none")
        assert isinstance(missing, UnknownTopicOrPartition)


def test_settings_and_topics_that_are_named_twice_are_refused() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create("orders")
        world.create("kept")
        twice = altered(world, SettingChange("retention.ms", "1"), SettingChange("retention.ms", None, DELETE))
        assert isinstance(twice, InvalidRequest)
        one = AlteredResource(topic("orders"), (SettingChange("retention.ms", "1"),))
        changed = alter(world, one, AlteredResource(topic("kept"), one.changes), one)
        assert [type(each.error) for each in changed] == [InvalidRequest, type(None), InvalidRequest]
        assert configs(world, "kept")["retention.ms"] == "1"
        assert "retention.ms" not in configs(world)


def test_a_request_that_replaces_all_settings_resets_the_others() -> None:
    """But durability, which Kafka does not have, and which nobody may change."""
    with MetadataWorld() as world:
        world.begin()
        world.create("orders", retention_ms="1", segment_ms="2", durability="page-cache")
        assert altered(world, SettingChange("segment.ms", "3"), replaces_all=True) is None
        assert configs(world) == {"segment.ms": "3", "durability": "page-cache"}
        assert altered(world, replaces_all=True) is None
        assert configs(world) == {"durability": "page-cache"}


def test_no_setting_of_a_node_changes_while_it_runs() -> None:
    """A reset is so already: Kafka's tools take limits of replication away from all nodes when a move has ended."""
    with MetadataWorld() as world:
        world.begin()
        reset = SettingChange("leader.replication.throttled.rate", None, DELETE)
        wanted = (
            AlteredResource(node("0"), (reset,)),
            AlteredResource(node("1"), (reset, SettingChange("log.cleaner.threads", "2"))),
            AlteredResource(node(""), (), replaces_all=True),
            AlteredResource(ConfigResource(16, "subscription"), ()),
        )
        changed = alter(world, *wanted)
        assert [type(each.error) for each in changed] == [type(None), InvalidRequest, type(None), InvalidRequest]
        assert changed[1].error is not None
        assert "set it in the configuration" in changed[1].error.message


# --- groups -------------------------------------------------------------------------------------------------------


def in_force(world: MetadataWorld, name: str = "readers") -> dict[str, tuple[str | None, ConfigSource]]:
    (described,) = describe(world, group(name))
    assert described.error is None
    return {each.key: (each.value, each.source) for each in described.configs}


def test_a_group_has_the_settings_of_the_nodes_and_may_have_its_own() -> None:
    with MetadataWorld() as world:
        world.begin()
        assert in_force(world) == {
            "consumer.session.timeout.ms": ("45000", ConfigSource.DEFAULT),
            "consumer.heartbeat.interval.ms": ("5000", ConfigSource.DEFAULT),
        }
        session = SettingChange("consumer.session.timeout.ms", "50000")
        interval = SettingChange("consumer.heartbeat.interval.ms", "9000")
        (changed,) = alter(world, AlteredResource(group("readers"), (session, interval)))
        assert (changed.name, changed.error) == ("readers", None)
        world.run_until(lambda: world.image(0).group_configs == world.image(1).group_configs)
        assert in_force(world)["consumer.session.timeout.ms"] == ("50000", ConfigSource.GROUP)
        assert in_force(world, "others")["consumer.session.timeout.ms"] == ("45000", ConfigSource.DEFAULT)
        (described,) = describe(world, group("readers"))
        assert [each.key for each in described.configs[0].values] == [session.key, "group." + session.key]

        alter(world, AlteredResource(group("readers"), (session,), replaces_all=True))
        assert world.image(1).group_configs == {"readers": {session.key: "50000"}}
        alter(world, AlteredResource(group("readers"), (SettingChange(session.key, None, DELETE),)))
        assert world.image(1).group_configs == {}


def test_impossible_settings_of_groups_are_refused_with_their_reason() -> None:
    with MetadataWorld() as world:
        world.begin()
        session = "consumer.session.timeout.ms"
        for name, change, error, text in (
            ("readers", SettingChange(session, "1"), InvalidConfig, "group.consumer.min.session.timeout.ms"),
            ("readers", SettingChange(session, "50000", APPEND), InvalidConfig, "not a list"),
            ("readers", SettingChange("cleanup.policy", "delete", APPEND), InvalidConfig, "not a list"),
            ("readers", SettingChange("share.session.timeout.ms", "45000"), InvalidConfig, "unknown group setting"),
            ("readers", SettingChange(session, None), InvalidRequest, "has no value"),
            ("", SettingChange(session, "50000"), InvalidRequest, "name a group"),
        ):
            (changed,) = alter(world, AlteredResource(group(name), (change,)))
            assert type(changed.error) is error, change
            assert changed.error is not None
            assert text in changed.error.message
        (described,) = describe(world, group(""))
        assert isinstance(described.error, InvalidRequest)
        checked = AlteredResource(group("readers"), (SettingChange(session, "50000"),), validate_only=True)
        (changed,) = alter(world, checked)
        assert changed.error is None
        assert world.image(1).group_configs == {}


def test_what_has_settings_is_listed_by_type() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.wait_whole()
        world.create("orders")
        alter(world, AlteredResource(group("readers"), (SettingChange("consumer.session.timeout.ms", "50000"),)))
        handlers: Any = world.side(1).services["Admin"]

        def listed(*types: int, listener: str = GRPC_LISTENER) -> list[tuple[int, str]]:
            caller = RequestContext(listener, "here")
            answer = world.do(handlers.list_config_resources(ListConfigResourcesRequest(types), caller))
            return [(each.type, each.name) for each in answer.resources]

        nodes = [(4, "0"), (4, "1"), (4, "2")]
        assert listed() == [(2, "orders"), *nodes, (32, "readers")]
        assert listed(32, 4, 32) == [(32, "readers"), *nodes]
        assert listed(8, 16) == [], "nodes have none of them"
        assert listed(4, listener="KAFKA") == [], "a client there could not ask any of them"
        with pytest.raises(UnsupportedVersion, match="resource type 99"):
            listed(2, 99)
        world.kill(2)
        world.run_until(lambda: world.image(1).nodes[NodeId(2)].fenced)
        assert listed(4) == [(4, "0"), (4, "1")], "nobody answers at the third"


def test_what_coordinators_depend_on_is_not_changed() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.do(world.side(1).create_topic(CreateTopic("__consumer_offsets", 1, 1, {"cleanup.policy": "compact"})))
        world.run_until(lambda: world.image(1).topic("__consumer_offsets") is not None)
        for fields in ({}, {"replaces_all": True}):
            changes = () if fields else (SettingChange("cleanup.policy", "delete"),)
            assert isinstance(altered(world, *changes, name="__consumer_offsets", **fields), InvalidTopic)
        assert altered(world, SettingChange("segment.bytes", "1000000"), name="__consumer_offsets") is None


def test_each_topic_and_node_needs_its_own_permission() -> None:
    """Whether there is such a topic is not told to who may not know."""
    caller = RequestContext("client", "here", authorizer=RefusesAll())
    with MetadataWorld() as world:
        world.begin()
        world.create("orders")
        resources = (topic("orders"), topic("none"), node("0"), group("readers"))
        kinds = [TopicAuthorizationFailed, TopicAuthorizationFailed, *[ClusterAuthorizationFailed] * 2]
        described = describe(world, *resources, caller=caller)
        assert [type(each.error) for each in described] == kinds
        assert described[2].error is not None
        assert described[2].error.message == "DESCRIBE_CONFIGS of CLUSTER"
        assert described[3].error is not None
        assert described[3].error.message == "DESCRIBE_CONFIGS of GROUP"
        changed = alter(world, *(AlteredResource(each, ()) for each in resources), caller=caller)
        assert [type(each.error) for each in changed] == kinds
        assert changed[2].error is not None
        assert changed[2].error.message == "ALTER_CONFIGS of CLUSTER"
        assert changed[3].error is not None
        assert changed[3].error.message == "ALTER_CONFIGS of GROUP"


# --- cordoned.log.dirs of a node ----------------------------------------------------------------------------------


def cordoned(world: MetadataWorld, *changes: SettingChange, name: str = "1", **fields: Any) -> TidelogError | None:
    """The error of a change of settings of node 1."""
    [changed] = alter(world, AlteredResource(node(name), changes, **fields))
    return changed.error


def test_log_directories_are_cordoned_by_a_setting_of_the_running_node() -> None:
    with MetadataWorld() as world:
        world.begin()
        handlers: Any = world.side(1).services["Admin"]

        def shown() -> tuple[str | None, ConfigSource]:
            (own,) = world.do(handlers.describe_configs(DescribeConfigsRequest((node("1"),)), CALLER)).resources
            found = next(each for each in own.configs if each.key == "cordoned.log.dirs")
            assert (found.type, found.is_read_only) == (SettingType.LIST, False)
            return found.value, found.source

        def takes_replicas() -> bool:
            return not world.image(1).nodes[NodeId(1)].gets_no_replicas

        (path,) = (each.path for each in world.do(handlers.describe_log_dirs(None, CALLER)).log_dirs)
        assert shown() == ("", ConfigSource.DEFAULT)
        assert cordoned(world, SettingChange("cordoned.log.dirs", path), validate_only=True) is None
        assert takes_replicas(), "it was only checked"
        key = "cordoned.log.dirs"
        steps = [
            (SettingChange(key, f" {path}/ ,"), path),
            (SettingChange(key, ""), ""),
            (SettingChange(key, "*"), path),
            (SettingChange(key, path, SUBTRACT), ""),
            (SettingChange(key, path, APPEND), path),
            (SettingChange(key, None, DELETE), ""),
        ]
        for change, value in steps:
            assert cordoned(world, change) is None
            assert shown() == (value, ConfigSource.DYNAMIC_NODE if value else ConfigSource.DEFAULT)
            assert takes_replicas() is not bool(value)
        assert cordoned(world, SettingChange(key, path, APPEND)) is None
        # The node is started without the directory: no list of paths can name it any more.
        without, image = CordonedLogDirs(NodeId(1), ()), world.image(1)
        for change in (SettingChange(key, None, DELETE), SettingChange(key, "")):
            (ended,) = without.cordons_of(AlteredResource(node("1"), (change,)), image)
            assert (ended.cordoned, ended.directories) == (False, image.nodes[NodeId(1)].cordoned_directories)
        assert cordoned(world, replaces_all=True) is None
        assert takes_replicas(), "AlterConfigs resets what it does not name"


def test_a_cordon_of_what_is_no_log_directory_of_the_node_is_refused() -> None:
    with MetadataWorld() as world:
        world.begin()
        unknown = cordoned(world, SettingChange("cordoned.log.dirs", "/elsewhere"))
        assert isinstance(unknown, InvalidConfig)
        assert "names '/elsewhere', which is no log directory of node 1: name those of its log.dirs" in unknown.message
        for value in ("*", "/of/node/0"):
            other = cordoned(world, SettingChange("cordoned.log.dirs", value), name="0")
            assert isinstance(other, InvalidRequest)
            assert "ask that one" in other.message
        every = cordoned(world, SettingChange("cordoned.log.dirs", "*"), name="")
        assert isinstance(every, InvalidRequest)
        assert "cordoned.log.dirs is a setting of a single node: name the node" in every.message
        odd = cordoned(world, SettingChange("cordoned.log.dirs", "*", 9))
        assert isinstance(odd, InvalidConfig)
        assert "operation 9 is unknown" in odd.message
        both = cordoned(world, SettingChange("cordoned.log.dirs", "*"), SettingChange("log.retention.ms", "1"))
        assert isinstance(both, InvalidRequest), "all of a request or nothing"
        assert not world.image(1).nodes[NodeId(1)].gets_no_replicas


def test_a_cordon_is_not_ended_by_a_change_that_has_no_value() -> None:
    with MetadataWorld() as world:
        world.begin()
        assert cordoned(world, SettingChange("cordoned.log.dirs", "*")) is None
        for operation in (SET, APPEND, SUBTRACT):
            empty = cordoned(world, SettingChange("cordoned.log.dirs", None, operation))
            assert isinstance(empty, InvalidRequest)
            assert "cordoned.log.dirs has no value: name one, or use DELETE" in empty.message
        assert world.image(1).nodes[NodeId(1)].gets_no_replicas
