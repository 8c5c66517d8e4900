"""A node's configuration: what is read, what overrides it, the error of every mistake, and its documentation."""

from __future__ import annotations

import re

import pytest

from node import config
from node.config import SETTINGS, NodeConfig
from tests.node.configuration_document import DOCUMENT, document
from tidelog.errors import InvalidConfig
from tidelog.types import Durability, Endpoint

GOOD = """
"node.id" = 3
broker.rack = "a"
"log.dirs" = ["/data/one/", "/data/two"]
listeners = ["inner://0.0.0.0:9093", "client://127.0.0.1:0"]
advertised.listeners = ["inner://node-3.inner:9093"]
"metrics.listener" = "127.0.0.1:0"

[cluster.bootstrap]
enable = true

[controller.quorum]
bootstrap.servers = ["127.0.0.1:9092", "[::1]:9093"]

["broker".heartbeat]
interval.ms = 100

[log]
"segment.bytes" = 1048576
durability = "page-cache"
cleaner.backoff.ms = 7
"""


def parse(text: str, host_name: str = "host", **environ: str) -> NodeConfig:
    return config.parse(text, environ, source="tidelog.toml", host_name=host_name)


def test_a_whole_file_is_read() -> None:
    read = parse(GOOD)
    assert (read.node_id, read.rack) == (3, "a")
    assert read.log_directories == ("/data/one", "/data/two")
    assert [listener.name for listener in read.listeners] == ["client", "inner"]
    assert read.listeners[1].advertised == Endpoint("node-3.inner", 9093)
    assert read.quorum.bootstrap
    assert read.quorum.nodes == (Endpoint("127.0.0.1", 9092), Endpoint("::1", 9093))
    assert read.metrics_bind == Endpoint("127.0.0.1", 0)
    assert (read.replication.heartbeat_ms, read.replication.lag_ms_max) == (100, 5000)
    assert read.log_config.segment_bytes == 1048576
    assert read.log_config.durability is Durability.PAGE_CACHE
    assert read.maintenance.cleaner_backoff_ms == 7


def test_the_environment_overrides_the_file() -> None:
    read = parse(
        GOOD.replace('"/data/one/"', '""'),  # not looked at
        TIDELOG_NODE_ID="7",
        TIDELOG_LOG_DIRS="/a, /b",
        TIDELOG_ADVERTISED_LISTENERS="client://me:1,inner://me:2",
        TIDELOG_CLUSTER_BOOTSTRAP_ENABLE="false",
        TIDELOG_REPLICA_LAG_TIME_MAX_MS="900",
        TIDELOG_LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS="5",
        TIDELOG_MIN_INSYNC_REPLICAS="2",
        TIDELOG_LOG_CLEANER_ENABLE="false",
        TIDELOG_PURE_PYTHON="1",
        TIDELOG_PORT_9092_TCP="not ours",
    )
    assert read.node_id == 7
    assert read.log_directories == ("/a", "/b")
    assert read.listeners[0].advertised == Endpoint("me", 1)
    assert not read.quorum.bootstrap
    assert (read.replication.lag_ms_max, read.replication.imbalance_check_ms) == (900, 5_000)
    assert read.log_config.min_insync_replicas == 2
    assert not read.maintenance.cleaner


MINIMAL = """
listeners = ["client://127.0.0.1:9092"]
"controller.quorum.bootstrap.servers" = ["a:1"]
"cluster.bootstrap.node.id" = 2
"""


def test_the_node_id_is_the_ordinal_of_a_stateful_set() -> None:
    assert parse(MINIMAL, host_name="tidelog-2").node_id == 2
    assert parse(MINIMAL, host_name="tidelog-2.tidelog-nodes.default.svc").quorum.bootstrap
    other = parse(MINIMAL, host_name="localhost", TIDELOG_POD_NAME="tidelog-11", TIDELOG_NODE_ID="auto")
    assert other.node_id == 11
    assert not other.quorum.bootstrap
    with pytest.raises(
        InvalidConfig, match=r"host name 'localhost' does not end in -NUMBER\. Set it, or TIDELOG_NODE_ID"
    ):
        parse(MINIMAL, host_name="localhost")


NODE_ID = '"node.id" = 3'
LISTENERS = 'listeners = ["inner://0.0.0.0:9093", "client://127.0.0.1:0"]'
ADVERTISED = 'advertised.listeners = ["inner://node-3.inner:9093"]'
BACKOFF = "cleaner.backoff.ms = 7"
SEGMENT = '"segment.bytes" = 1048576'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (NODE_ID, '"node.id" = -3', "tidelog.toml, line 2: node.id = -3: must be a whole number from 0 to"),
        (NODE_ID, '"node.id" = "x"', "line 2: node.id = 'x': must be a whole number"),
        (NODE_ID, '"node.id" = true', "line 2: node.id = True: must be a whole number"),
        (NODE_ID, '"node.id" = 3\nnode.id = 4', "line 2: node.id: set twice"),
        ('broker.rack = "a"', "broker.rack = 1", "line 3: broker.rack = 1: must be text in quotes"),
        ('broker.rack = "a"', 'broker.wrack = "a"', "line 3: unknown setting broker.wrack; similar: broker.rack"),
        ('"metrics.listener"', '"metric.bind"', "line 7: unknown setting metric.bind; "),
        ("[cluster.bootstrap]", "[metric]\n[cluster.bootstrap]", "line 9: unknown setting metric; "),
        ('"/data/two"', '"/data/one"', "line 4: log.dirs = ['/data/one/', '/data/one']: names a directory twice"),
        ('["/data/one/", "/data/two"]', "[]", "must be a list of one or more directories in quotes"),
        ('["/data/one/", "/data/two"]', '"/data"', "must be a list of one or more directories in quotes"),
        (
            LISTENERS,
            'listeners = ["client://127.0.0.1"]',
            "line 5: listeners = ['client://127.0.0.1']: '127.0.0.1' is not",
        ),
        (LISTENERS, 'listeners = ["client://a:65536"]', "is not an address; write HOST:PORT"),
        (LISTENERS, 'listeners = ["a:1"]', "'a:1' is not a listener; write NAME://HOST:PORT"),
        (LISTENERS, 'listeners = ["client://a:1", "client://a:2"]', "names a listener twice"),
        (LISTENERS, "", "tidelog.toml: listeners: missing; it must be a list of one or more NAME://HOST:PORT"),
        (LISTENERS, 'listeners = ["inner://a:1"]', "line 5: listeners: no listener 'client'"),
        (ADVERTISED, "", "missing for listener 'inner': clients and nodes cannot reach 0.0.0.0:9093"),
        (ADVERTISED, 'advertised.listeners = ["x://a:1"]', "line 6: advertised.listeners: no listener 'x'"),
        (
            "bootstrap.servers",
            "voter.count = 2\n#",
            "line 12: controller.quorum.bootstrap.servers: missing; it must be",
        ),
        ("enable = true", "enable = 1", "line 10: cluster.bootstrap.enable = 1: must be true or false"),
        ("enable = true", "enable = true\nnode.id = 0", "line 10: cluster.bootstrap.enable: contradicts"),
        ("interval.ms = 100", "interval.ms = 2000", "broker.session.timeout.ms: 2000 ms is less than two heartbeats"),
        (SEGMENT, '"segment.bytes" = "1"', "line 19: log.segment.bytes = '1': must be a whole number from 14"),
        (SEGMENT, '"segment.size" = 1', "line 19: unknown setting log.segment.size; similar: log.segment.bytes"),
        (SEGMENT, 'message.format = "v1"\ncleaner.max.compaction.lag.ms = 0', "max.compaction.lag.ms = 0: must be"),
        (
            BACKOFF,
            'message.format = "v1"\n[compression]\ntype = "zstd"',
            "toml: defaults of topics: compression.type is",
        ),
        ("[log]", "[log", "tidelog.toml: not TOML: "),
    ],
)
def test_each_mistake_names_place_value_and_valid_values(old: str, new: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidConfig, match=re.escape(words)):
        parse(GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TIDELOG_NODE_ID", "three", "environment variable TIDELOG_NODE_ID: node.id = 'three': must be a whole number"),
        ("TIDELOG_BROKER_RAK", "x", "environment variable TIDELOG_BROKER_RAK: unknown setting"),
        (
            "TIDELOG_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS",
            "a:1,b",
            "SERVERS: controller.quorum.bootstrap.servers = 'a:1,b': 'b' is not an address",
        ),
        ("TIDELOG_CLUSTER_BOOTSTRAP_ENABLE", "yes", "must be true or false"),
        ("TIDELOG_NODE_LOG_DIRECTORIES", "/a", "TIDELOG_NODE_LOG_DIRECTORIES is now TIDELOG_LOG_DIRS; rename it"),
        ("TIDELOG_NODE_DATA_FOLDERS", "/a", "TIDELOG_NODE_DATA_FOLDERS is now TIDELOG_LOG_DIRS"),
        ("TIDELOG_LOG_MIN_INSYNC_REPLICAS", "2", "is now TIDELOG_MIN_INSYNC_REPLICAS"),
        ("TIDELOG_LISTENERS_CLIENT_ADVERTISED", "a:1", "is now TIDELOG_ADVERTISED_LISTENERS; write advertised.list"),
    ],
)
def test_mistakes_in_the_environment_name_the_variable(name: str, value: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(words)):
        parse(GOOD, **{name: value})


@pytest.mark.parametrize(
    ("former", "words"),
    [
        ('[node]\ndata_folders = ["/a"]', "line 2: [node] data_folders is now log.dirs; rename it"),
        ('[node]\nlog_directories = ["/a"]', "line 2: [node] log_directories is now log.dirs"),
        ('[listeners.client]\nbind = "a:1"', "line 2: [listeners.client] bind is now listeners; write listeners = ["),
        ('[listeners.a]\nadvertised = "a:1"', "[listeners.a] advertised is now advertised.listeners; write advertised"),
        ("[quorum]\nbootstrap = true", "[quorum] bootstrap is now cluster.bootstrap.enable"),
        ("[replication]\nlag_ms_max = 1", "[replication] lag_ms_max is now replica.lag.time.max.ms"),
        (
            "[replication]\nimbalance_check_ms = 1",
            "imbalance_check_ms is now leader.imbalance.check.interval.seconds; rename it, and give seconds",
        ),
        ("[limits]\nmemory_bytes = 1", "[limits] memory_bytes is now memory.max.bytes"),
        ('[logs]\nlevel = "info"', "[logs] level is now logging.level"),
        (
            '[log]\n"min.insync.replicas" = 1',
            "line 2: [log] min.insync.replicas is now min.insync.replicas; write it outs",
        ),
        ('[log]\n"segment.ms" = 1', "[log] segment.ms is now log.roll.ms"),
    ],
)
def test_a_key_of_an_earlier_version_is_refused_with_its_name_now(former: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(words)):
        parse(former)


def test_every_name_is_distinct_and_can_be_nested() -> None:
    """No key is a table for another one, no two keys share a variable, and no former name has another meaning now."""
    assert len({declared.variable for declared in SETTINGS.values()}) == len(SETTINGS)
    assert [(key, other) for key in SETTINGS for other in SETTINGS if other.startswith(f"{key}.")] == []
    assert set(config._FORMER) & set(SETTINGS) == set()
    assert set(config._FORMER.values()) <= set(SETTINGS)
    times = "heartbeat_ms session_ms lag_ms_max fetch_wait_ms fetch_bytes_max drain_ms_max imbalance_check_ms"
    for key in (*times.split(), "imbalance_percent", "throttled_rate"):
        assert f"replication.{key}" in config._FORMER


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run python -m tests.node.configuration_document"
