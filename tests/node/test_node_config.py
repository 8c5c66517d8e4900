"""A node's configuration: what is read, what overrides it, and what every mistake is told."""

from __future__ import annotations

import re

import pytest

from node import config
from node.config import NodeConfig
from tidelog.errors import InvalidConfig
from tidelog.types import Durability, Endpoint

GOOD = """
[node]
id = 3
rack = "a"
log_directories = ["/data/one/", "/data/two"]

[listeners.client]
bind = "127.0.0.1:0"

[listeners.inner]
bind = "0.0.0.0:9093"
advertised = "node-3.inner:9093"

[quorum]
bootstrap = true
nodes = ["127.0.0.1:9092", "[::1]:9093"]

[metrics]
bind = "127.0.0.1:0"

[replication]
heartbeat_ms = 100
session_ms = 500

[log]
"segment.bytes" = 1048576
"durability" = "page-cache"
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


def test_the_environment_overrides_the_file() -> None:
    read = parse(
        GOOD,
        TIDELOG_NODE_ID="7",
        TIDELOG_NODE_LOG_DIRECTORIES="/a, /b",
        TIDELOG_LISTENERS_CLIENT_ADVERTISED="me:1",
        TIDELOG_QUORUM_BOOTSTRAP="false",
        TIDELOG_REPLICATION_LAG_MS_MAX="900",
        TIDELOG_LOG_MIN_INSYNC_REPLICAS="2",
        TIDELOG_PURE_PYTHON="1",
        TIDELOG_PORT_9092_TCP="not ours",
    )
    assert read.node_id == 7
    assert read.log_directories == ("/a", "/b")
    assert read.listeners[0].advertised == Endpoint("me", 1)
    assert not read.quorum.bootstrap
    assert read.replication.lag_ms_max == 900
    assert read.log_config.min_insync_replicas == 2


MINIMAL = """
[listeners.client]
bind = "127.0.0.1:9092"
[quorum]
bootstrap_node = 2
nodes = ["a:1"]
"""


def test_the_node_id_is_the_ordinal_of_a_stateful_set() -> None:
    assert parse(MINIMAL, host_name="tidelog-2").node_id == 2
    assert parse(MINIMAL, host_name="tidelog-2.tidelog-nodes.default.svc").quorum.bootstrap
    other = parse(MINIMAL, host_name="localhost", TIDELOG_POD_NAME="tidelog-11")
    assert other.node_id == 11
    assert not other.quorum.bootstrap
    with pytest.raises(
        InvalidConfig, match=r"host name 'localhost' does not end in -NUMBER\. Set id, or TIDELOG_NODE_ID"
    ):
        parse(MINIMAL, host_name="localhost")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("id = 3", "id = -3", "tidelog.toml, line 3: [node] id = -3: must be a whole number from 0 to"),
        ("id = 3", 'id = "x"', "line 3: [node] id = 'x': must be a whole number"),
        ("id = 3", "id = true", "line 3: [node] id = True: must be a whole number"),
        ('rack = "a"', "rack = 1", "line 4: [node] rack = 1: must be text in quotes"),
        ('rack = "a"', 'wrack = "a"', "line 4: [node] wrack is no key; known are id, rack, log_directories"),
        ("[metrics]", "[metric]", "line 18: [metric] is no section; known are node, quorum, metrics"),
        ('"/data/two"', '"/data/one"', "names a directory twice"),
        ('["/data/one/", "/data/two"]', "[]", "must be a list of one or more texts"),
        ('bind = "127.0.0.1:0"', 'bind = "127.0.0.1"', "line 8: [listeners.client] bind = '127.0.0.1': "),
        ('bind = "127.0.0.1:0"', 'bind = "127.0.0.1:65536"', "is no address; write HOST:PORT"),
        ('bind = "127.0.0.1:0"', "", "line 7: [listeners.client] bind: missing"),
        ('advertised = "node-3.inner:9093"', "", "[listeners.inner] advertised: missing, and others cannot reach"),
        ('nodes = ["127.0.0.1:9092", "[::1]:9093"]', "", "[quorum] nodes: missing. List the addresses"),
        ("bootstrap = true", "bootstrap = 1", "line 15: [quorum] bootstrap = 1: must be true or false"),
        ("bootstrap = true", "bootstrap = true\nbootstrap_node = 0", "contradicts bootstrap_node"),
        ("session_ms = 500", "session_ms = 150", "less than two heartbeats of 100 ms"),
        ('"segment.bytes" = 1048576', '"segment.bytes" = "x"', "line 26: [log] segment.bytes = 'x': segment.bytes is"),
        (
            '"segment.bytes" = 1048576',
            '"segment.size" = 1',
            "[log] segment.size = 1: unknown topic setting segment.size",
        ),
        (
            '"segment.bytes" = 1048576',
            "segment.bytes = 1",
            "line 25: [log] segment = {'bytes': 1}: a key with dots stands in",
        ),
        ("[node]", "[node", "tidelog.toml: not TOML: "),
    ],
)
def test_each_mistake_names_its_place_the_value_and_what_is_allowed(old: str, new: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidConfig, match=re.escape(words)):
        parse(GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "TIDELOG_NODE_ID",
            "three",
            "environment variable TIDELOG_NODE_ID: [node] id = 'three': must be a whole number",
        ),
        ("TIDELOG_NODE_RAK", "x", "environment variable TIDELOG_NODE_RAK: [node] rak is no key"),
        (
            "TIDELOG_QUORUM_NODES",
            "a:1,b",
            "environment variable TIDELOG_QUORUM_NODES: [quorum] nodes = 'a:1,b': 'b' is",
        ),
        ("TIDELOG_QUORUM_BOOTSTRAP", "yes", "must be true or false"),
    ],
)
def test_mistakes_in_the_environment_name_the_variable(name: str, value: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(words)):
        parse(GOOD, **{name: value})
