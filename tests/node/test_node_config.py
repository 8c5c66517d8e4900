"""A node's configuration: what is read, what overrides it, the error of every mistake, and its documentation."""

from __future__ import annotations

import re

import pytest

from node import config
from node.config import SETTINGS, NodeConfig
from node.listener_settings import ListenerProtocol
from node.process.console import lets_strangers_look
from node.process.metadata_node import _controller_config
from replication.controller.partition_limits import PartitionLimits
from tests.node.configuration_document import DOCUMENT, document
from tidelog.cli.app import app
from tidelog.cli.declared import commands_below
from tidelog.client_variables import ClientVariable
from tidelog.errors import InvalidConfig
from tidelog.security.tls_files import Tls
from tidelog.types import Durability, Endpoint

GOOD = """
"node.id" = 3
broker.rack = "a"
"log.dirs" = ["/data/one/", "/data/two"]
listeners = ["inner://0.0.0.0:9193", "GRPC://127.0.0.1:0"]
advertised.listeners = ["inner://node-3.inner:9193"]
listener.security.protocol.map = ["inner:GRPC"]
"metrics.listener" = "127.0.0.1:0"

[cluster.bootstrap]
enable = true

[controller.quorum]
bootstrap.servers = ["127.0.0.1:9192", "[::1]:9193"]

["broker".heartbeat]
interval.ms = 100

[log]
"segment.bytes" = 1048576
durability = "page-cache"
cleaner.backoff.ms = 7

[allow]
insecure = true
"""
RACK = 'broker.rack = "a"'


def parse(text: str, host_name: str = "host", **environ: str) -> NodeConfig:
    return config.parse(text, environ, source="tidelog.toml", host_name=host_name)


def test_a_whole_file_is_read() -> None:
    read = parse(GOOD)
    assert (read.node_id, read.rack) == (3, "a")
    assert read.log_directories == ("/data/one", "/data/two")
    assert [listener.name for listener in read.listeners] == ["GRPC", "inner"]
    assert read.listeners[1].advertised == Endpoint("node-3.inner", 9193)
    assert read.quorum.bootstrap
    assert read.quorum.nodes == (Endpoint("127.0.0.1", 9192), Endpoint("::1", 9193))
    assert read.metrics_bind == Endpoint("127.0.0.1", 0)
    assert (read.replication.heartbeat_ms, read.replication.lag_ms_max) == (100, 5000)
    assert read.log_config.segment_bytes == 1048576
    assert read.log_config.durability is Durability.PAGE_CACHE
    assert read.maintenance.cleaner_backoff_ms == 7


@pytest.mark.parametrize(("nodes", "replicas"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_a_new_topic_has_three_replicas_where_there_are_as_many_nodes(nodes: int, replicas: int) -> None:
    """Unless the setting says another number. A topic of one replica, as in Kafka, is lost with its node."""
    addresses = [f"127.0.0.1:{9_192 + each}" for each in range(nodes)]
    text = GOOD.replace('["127.0.0.1:9192", "[::1]:9193"]', str(addresses))
    assert parse(text).topics.replication_factor == replicas
    assert parse(f'"default.replication.factor" = 4\n{text}').topics.replication_factor == 4


def test_settings_of_coordinators_have_kafkas_names_and_reach_the_state_machines() -> None:
    given = """
        [group.consumer]
        session.timeout.ms = 6000
        min.session.timeout.ms = 6000
        heartbeat.interval.ms = 500
        min.heartbeat.interval.ms = 500
        assignors = ["range"]
        [offsets]
        retention.minutes = 3
        topic.replication.factor = 2
        commit.timeout.ms = 7000
        [transaction]
        max.timeout.ms = 60000
        state.log.min.isr = 1
        partition.verification.enable = false
    """
    read = parse(GOOD + given, TIDELOG_OFFSET_METADATA_MAX_BYTES="100").coordinators
    groups = read.groups
    assert (groups.consumer_session_timeout_ms, groups.consumer_heartbeat_interval_ms) == (6_000, 500)
    assert (groups.consumer_assignors, groups.offsets_retention_minutes) == (("range",), 3)
    assert groups.offset_metadata_max_bytes == 100
    assert (read.groups.partitions, read.groups.replication_factor, read.groups.commit_timeout_ms) == (50, 2, 7_000)
    assert read.transactions.transaction_max_timeout_ms == 60_000
    assert (read.transactions.min_isr, read.transactions.verification) == (1, False)


def test_limits_of_partitions_reach_the_controller() -> None:
    read = parse(GOOD, TIDELOG_MAX_PARTITIONS="500", TIDELOG_MAX_BROKER_PARTITIONS="70")
    assert _controller_config(read).limits == PartitionLimits(cluster=500, node=70)


def test_the_environment_overrides_the_file() -> None:
    read = parse(
        GOOD.replace('"/data/one/"', '""'),  # not looked at
        TIDELOG_NODE_ID="7",
        TIDELOG_LOG_DIRS="/a, /b",
        TIDELOG_ADVERTISED_LISTENERS="GRPC://me:1,inner://me:2",
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


TLS = """
node.id = 0
listeners = ["GRPC://0.0.0.0:9192", "inner://0.0.0.0:9193"]
advertised.listeners = ["GRPC://me:9192", "inner://me:9193"]
listener.security.protocol.map = ["GRPC:GRPC_SSL", "inner:GRPC_SSL"]
inter.broker.listener.name = "inner"
ssl.certificate.file = "/tls/tls.crt"
ssl.key.file = "/tls/tls.key"
ssl.ca.file = "/tls/ca.crt"
controller.quorum.bootstrap.servers = ["me:9193"]
super.users = ["User:CN=admin"]

[listener.name.inner.ssl]
client.auth = "required"
ca.file = "/tls/nodes.crt"
"""


def test_listeners_have_protocols_and_settings_of_their_own() -> None:
    read = parse(TLS, TIDELOG_LISTENER_NAME_GRPC_SSL_PRINCIPAL_MAPPING_RULES="RULE:^CN=(.*)$/$1/L")
    grpc, inner = read.listeners
    assert (grpc.for_nodes, inner.for_nodes) == (False, True)
    assert grpc.tls is not None
    assert inner.tls is not None
    assert (grpc.tls.requires_certificate, inner.tls.requires_certificate) == (False, True)
    assert (grpc.tls.ca_file, inner.tls.ca_file) == ("/tls/ca.crt", "/tls/nodes.crt")
    assert grpc.tls.mapping_rules[0].apply("CN=Alice") == "alice"
    assert inner.tls.mapping_rules[0].apply("CN=Alice") == "CN=Alice"
    assert read.node_tls == Tls("/tls/nodes.crt", "/tls/tls.crt", "/tls/tls.key")
    assert read.controller_listener == "inner"


def test_by_default_one_listener_in_plain_text_serves_clients_and_nodes() -> None:
    (grpc,) = parse(MINIMAL, host_name="tidelog-2").listeners
    assert (grpc.name, grpc.for_nodes, grpc.tls) == ("GRPC", True, None)
    assert grpc.protocol is ListenerProtocol.GRPC


KAFKA = """
node.id = 0
listeners = ["KAFKA://:9092", "GRPC://127.0.0.1:9192", "OUTSIDE://10.0.0.1:9093"]
advertised.listeners = ["KAFKA://a-host:9092"]
listener.security.protocol.map = ["OUTSIDE:PLAINTEXT"]
controller.quorum.bootstrap.servers = ["127.0.0.1:9192"]
allow.insecure = true
"""


def test_listeners_are_for_clients_of_kafka_or_for_our_own_and_nodes() -> None:
    grpc, kafka, outside = parse(KAFKA).listeners
    assert [each.protocol.is_kafka for each in (grpc, kafka, outside)] == [False, True, True]
    assert [each.for_nodes for each in (grpc, kafka, outside)] == [True, False, False]
    assert (str(kafka.bind), str(kafka.advertised)) == ("0.0.0.0:9092", "a-host:9092")


@pytest.mark.parametrize("protocol", ListenerProtocol)
def test_each_protocol_has_a_twin_with_grpc_and_the_same_security(protocol: ListenerProtocol) -> None:
    twin = protocol.with_grpc
    assert protocol.is_kafka is ("GRPC" not in protocol.name)
    assert (twin.is_kafka, twin.has_tls, twin.has_sasl) == (False, protocol.has_tls, protocol.has_sasl)


def test_a_listener_with_the_name_of_a_protocol_needs_no_entry() -> None:
    """As in Kafka. With an entry, the name says nothing."""
    names = KAFKA.replace("KAFKA:", "PLAINTEXT:").replace("OUTSIDE:", "SSL:", 1)
    read = parse(names.replace('"OUTSIDE:PLAINTEXT"', '"SSL:GRPC"'))
    assert {each.name: each.protocol.value for each in read.listeners} == {
        "GRPC": "GRPC",
        "PLAINTEXT": "PLAINTEXT",
        "SSL": "GRPC",
    }


OUTSIDE = '"OUTSIDE://10.0.0.1:9093"'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"OUTSIDE:PLAINTEXT"', '"OTHER:PLAINTEXT"', "line 5: listener.security.protocol.map: no listener 'OTHER' in"),
        ('"OUTSIDE:PLAINTEXT"', '"KAFKA:SSL"', "map: no protocol for the listener 'OUTSIDE': add OUTSIDE:PLAINTEXT"),
        ("GRPC:", "grpc:", "line 3: listeners: no listener 'GRPC', by which nodes reach each other; add GRPC://HOST:P"),
        ('"GRPC://127.0.0.1:9192", ', "", "line 3: listeners: no listener 'GRPC', by which nodes reach each other"),
        (
            '["OUTSIDE:',
            '["GRPC:SSL", "OUTSIDE:',
            "line 5: listener.security.protocol.map: listener 'GRPC' speaks Kafka's",
        ),
        (
            '["OUTSIDE:',
            '["GRPC:SSL", "OUTSIDE:',
            "reach each other by gRPC: write GRPC:GRPC_SSL in listener.security.pro",
        ),
        (
            "allow",
            'inter.broker.listener.name = "KAFKA"\nallow',
            "line 3: listeners: listener 'KAFKA' speaks Kafka's prot",
        ),
        (
            "allow",
            'inter.broker.listener.name = "KAFKA"\nallow',
            "by gRPC: add GRPC://HOST:PORT to listeners, and name GRPC in inter.broker.listener.name",
        ),
        (
            "allow",
            'controller.listener.names = ["OUTSIDE"]\nallow',
            "write OUTSIDE:GRPC in listener.security.protocol.map, or name another listener in controller.listener.na",
        ),
        (
            "allow",
            'controller.listener.names = ["OUTSIDE"]\nallow',
            "listener 'OUTSIDE' speaks Kafka's protocol (PLAINT",
        ),
        (OUTSIDE, '"OUTSIDE://10.0.0.1:9092"', "OUTSIDE at 10.0.0.1:9092 has the port of KAFKA at 0.0.0.0:9092; give"),
        (OUTSIDE, '"OUTSIDE://127.0.0.1:9192"', "127.0.0.1:9192 is the address of two listeners, 'GRPC' and 'OUTSIDE'"),
        (
            "allow",
            'metrics.listener = "127.0.0.1:9092"\nallow',
            "line 7: metrics.listener: metrics.listener at 127.0.0.",
        ),
        (
            '["KAFKA://a-host:9092"',
            '["KAFKA://a-host:9092", "OUTSIDE://a-host:9092"',
            "line 4: advertised.listeners: a-host:9092 is the address of two listeners, 'KAFKA' and 'OUTSIDE'; each ",
        ),
        (
            '["127.0.0.1:9192"]',
            '["a-host:9092"]',
            "line 6: controller.quorum.bootstrap.servers: a-host:9092 is the address of the listener 'KAFKA', which",
        ),
    ],
)
def test_each_mistake_in_names_protocols_and_addresses_of_listeners_is_refused(old: str, new: str, words: str) -> None:
    assert old in KAFKA
    with pytest.raises(InvalidConfig, match=re.escape(words)):
        parse(KAFKA.replace(old, new, 1))


def test_one_port_serves_two_listeners_at_different_addresses() -> None:
    read = parse(KAFKA.replace("KAFKA://:9092", "KAFKA://127.0.0.1:9093"))
    assert {each.bind.port for each in read.listeners} == {9093, 9192}


def test_variables_that_name_kafka_are_not_taken_for_settings() -> None:
    """As that of `make interop`, with the directory of Apache Kafka's libraries."""
    assert parse(MINIMAL, TIDELOG_NODE_ID="0", TIDELOG_KAFKA_LIBS="/libs").node_id == 0


def test_while_the_listener_between_nodes_moves_both_serve_nodes() -> None:
    read = parse('controller.listener.names = ["inner", "GRPC"]\n' + TLS, TIDELOG_SSL_CLIENT_AUTH="required")
    assert [listener.for_nodes for listener in read.listeners] == [True, True]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            '"GRPC:GRPC_SSL"',
            '"GRPC:SASL_GSSAPI"',
            "'GRPC:SASL_GSSAPI': the protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, GRPC, GRPC_SSL",
        ),
        ('"GRPC:GRPC_SSL"', '"GRPC:TLS"', "'GRPC:TLS': the protocol must be one of PLAINTEXT, SSL"),
        ('"GRPC:GRPC_SSL"', '"GRPC"', "'GRPC' names no protocol; write NAME:PROTOCOL"),
        ('"GRPC:GRPC_SSL"', '"inner:GRPC"', "names listener 'inner' twice"),
        ('"GRPC:GRPC_SSL"', '"other:SSL"', "listener.security.protocol.map: no listener 'other' in listeners"),
        ('name = "inner"', 'name = "outer"', "line 6: inter.broker.listener.name: no listener 'outer' in listeners"),
        ("ssl.key.file", "#", "ssl.key.file: missing for listener 'GRPC', whose protocol has TLS"),
        ('ca.file = "/tls/nodes.crt"', 'ca.file = ""', "the file with the authorities of the certificates that it req"),
        ('"required"', '"requested"', "gRPC cannot ask for a certificate without requiring one; use none or required"),
        ('"required"', '"yes"', "listener.name.inner.ssl.client.auth = 'yes': must be none or required"),
        (
            "[listener.name.inner.ssl]",
            "[listener.name.iner.ssl]",
            "listener.name.iner.ssl.client.auth: there is no such",
        ),
        (
            "[listener.name.inner.ssl]",
            "[listener.name.inner.tls]",
            "unknown setting listener.name.inner.tls.client.auth",
        ),
        ('"required"', '"required"\nprincipal.mapping.rules = "RULE:(/$1/"', "'(' is not a regular expression"),
        ('"required"', '"required"\nprincipal.mapping.rules = "CN=a"', "'CN=a' is not a rule; write DEFAULT or RULE:"),
        (
            '"inner:GRPC_SSL"',
            '"inner:GRPC"',
            "ssl.client.auth: the protocol of that listener has no TLS; set it to one that ends in SSL",
        ),
        ('"required"', '"none"', "listener 'inner' takes everyone for a node. Give it the protocol GRPC_SSL and ssl"),
        (
            '"GRPC:GRPC_SSL", "inner:GRPC_SSL"]',
            '"inner:GRPC_SSL"]\ncontroller.listener.names = ["GRPC"]',
            "controller.listener.names: 'GRPC' has another protocol than 'inner' of inter.broker.listener.name",
        ),
    ],
)
def test_each_mistake_in_the_security_of_listeners_is_refused(old: str, new: str, words: str) -> None:
    text = TLS.replace(old, new, 1)
    assert text != TLS
    with pytest.raises(InvalidConfig, match=re.escape(words)):
        parse(text)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "node-0", "[::]"])
def test_a_node_that_takes_everyone_for_a_node_binds_only_loopback_unless_allowed(host: str) -> None:
    listeners = {"TIDELOG_LISTENERS": f"GRPC://{host}:9192", "TIDELOG_ADVERTISED_LISTENERS": "GRPC://me:9192"}
    with pytest.raises(InvalidConfig, match=r"set allow\.insecure = true"):
        parse(MINIMAL, TIDELOG_NODE_ID="0", **listeners)
    assert parse(MINIMAL, TIDELOG_NODE_ID="0", TIDELOG_ALLOW_INSECURE="true", **listeners).allow_insecure


def test_the_port_of_the_metrics_takes_tls_from_a_listener_that_has_it() -> None:
    read = parse(TLS, TIDELOG_METRICS_LISTENER="0.0.0.0:9100", TIDELOG_METRICS_TLS_LISTENER="inner")
    tls = {each.name: each.tls for each in read.listeners}
    assert read.http.tls(tls) is tls["inner"] is not None
    assert parse(TLS).http.tls(tls) is None
    for text, named, words in (
        (TLS, "outer", r"name one of GRPC, inner"),
        (USERS + SUPER_USERS, "outside", "none has it: remove the setting"),
    ):
        with pytest.raises(InvalidConfig, match=rf"metrics\.tls\.listener: .*{words}"):
            parse(text, TIDELOG_METRICS_TLS_LISTENER=named)


@pytest.mark.parametrize(
    ("text", "metrics", "insecure", "may_look"),
    [
        ("MINIMAL", "127.0.0.1:9100", "false", True),
        ("MINIMAL", "10.0.0.1:9100", "false", False),
        ("MINIMAL", "10.0.0.1:9100", "true", True),
        ("REQUIRED", "127.0.0.1:9100", "true", False),
    ],
)
def test_a_stranger_looks_at_the_console_only_where_a_client_may_connect_without_a_proof(
    text: str, metrics: str, insecure: str, may_look: bool
) -> None:
    """And from other machines only if the operator has accepted that. Without the port there is no console."""
    files = {"MINIMAL": MINIMAL, "REQUIRED": TLS + '[listener.name.grpc.ssl]\nclient.auth = "required"\n'}
    given = {"TIDELOG_NODE_ID": "0", "TIDELOG_ALLOW_INSECURE": insecure}
    assert lets_strangers_look(parse(files[text], TIDELOG_METRICS_LISTENER=metrics, **given)) is may_look
    assert not lets_strangers_look(parse(files[text], **given))


SUPER_USERS = 'super.users = ["User:CN=admin"]\n'
USERS = """
node.id = 0
listeners = ["GRPC://127.0.0.1:9192", "outside://127.0.0.1:9193"]
listener.security.protocol.map = ["outside:GRPC_SASL_PLAINTEXT"]
controller.quorum.bootstrap.servers = ["127.0.0.1:9192"]
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TLS.replace(SUPER_USERS, ""), "listener 'inner' requires certificates"),
        (USERS, "listener 'outside' requires SASL"),
        ('authorizer.class.name = "StandardAuthorizer"\n' + GOOD, "authorizer.class.name is set"),
    ],
)
def test_once_a_listener_authenticates_all_that_no_acl_allows_is_refused_and_administrators_must_be_named(
    text: str, why: str
) -> None:
    with pytest.raises(InvalidConfig, match=rf"super\.users: missing: .* {re.escape(why)}") as refused:
        parse(text)
    assert 'set authorizer.class.name = "none"' in refused.value.message
    assert "Name the administrators in super.users, for example [" in refused.value.message
    for way_out in ({"TIDELOG_SUPER_USERS": "User:admin"}, {"TIDELOG_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "true"}):
        read = parse(text, **way_out)
        assert (read.authorizer.enabled, read.unrestricted) == (True, "")


def test_a_listener_that_asks_for_no_proof_of_identity_needs_no_administrator() -> None:
    one_way = TLS.replace(SUPER_USERS, "").replace('"required"', '"none"')
    for read in (parse(GOOD), parse(one_way, TIDELOG_ALLOW_INSECURE="true")):
        assert (read.authorizer.enabled, read.unrestricted) == (False, "")


def test_a_node_whose_super_users_have_no_effect_says_so() -> None:
    forgotten = TLS.replace('"required"', '"none"').replace("0.0.0.0", "127.0.0.1")
    for text in (forgotten, GOOD.replace(RACK, SUPER_USERS), f'authorizer.class.name = "none"\n{SUPER_USERS}\n{GOOD}'):
        read = parse(text, TIDELOG_ALLOW_INSECURE="true")
        assert not read.authorizer.enabled
        assert "super.users has no effect: no listener has SASL or ssl.client.auth" in read.unrestricted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TLS, "listener 'inner' requires certificates, and by authorizer.class.name = \"none\" every caller"),
        (USERS, "listener 'outside' requires SASL, and by authorizer.class.name = \"none\" every caller"),
    ],
)
def test_a_node_that_knows_its_callers_and_restricts_none_says_so(text: str, why: str) -> None:
    read = parse('authorizer.class.name = "none"\n' + text)
    assert not read.authorizer.enabled
    assert why in read.unrestricted


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "0", "0.0", "000.0.0.0", "0x0", "[::]", "[0:0:0:0:0:0:0:0]", "[0::0]", "[::ffff:0:0]"],
)
def test_an_address_that_stands_for_all_is_never_given_to_clients_however_it_is_spelled(host: str) -> None:
    allowed = {"TIDELOG_NODE_ID": "0", "TIDELOG_ALLOW_INSECURE": "true"}
    bound = {**allowed, "TIDELOG_LISTENERS": f"GRPC://{host}:9192"}
    with pytest.raises(InvalidConfig, match=r"listener 'GRPC': missing: clients and nodes cannot reach .*:9192"):
        parse(MINIMAL, **bound)
    with pytest.raises(InvalidConfig, match=r"listener 'GRPC': clients and nodes cannot reach .*:9193"):
        parse(MINIMAL, **bound, TIDELOG_ADVERTISED_LISTENERS=f"GRPC://{host}:9193")
    (grpc,) = parse(MINIMAL, **bound, TIDELOG_ADVERTISED_LISTENERS="GRPC://node-0:9192").listeners
    assert grpc.advertised == Endpoint("node-0", 9192)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_loopback_needs_no_setting(host: str) -> None:
    parse(MINIMAL, TIDELOG_NODE_ID="0", TIDELOG_LISTENERS=f"GRPC://{host}:9192")


MINIMAL = """
listeners = ["GRPC://127.0.0.1:9192"]
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
LISTENERS = 'listeners = ["inner://0.0.0.0:9193", "GRPC://127.0.0.1:0"]'
ADVERTISED = 'advertised.listeners = ["inner://node-3.inner:9193"]'
PROTOCOLS = 'listener.security.protocol.map = ["inner:GRPC"]'
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
        ('"metrics.listener"', '"metric.bind"', "line 8: unknown setting metric.bind; "),
        (
            RACK,
            "ssl.keystore.location = 'a.jks'",
            "line 3: unknown setting ssl.keystore.location; keys and certificates",
        ),
        (RACK, "ssl.truststore.location = 'a.jks'", "are PEM files: ssl.ca.file. Remove or rename it."),
        (RACK, "cordoned.log.dirs = '/a'", "tidelog node cordon N --log-dir PATH"),
        (RACK, "listener.name.inner.ssl.keystore.key = 'a'", "certificates are PEM files: ssl.key.file. Remove"),
        (
            RACK,
            "authorizer.class.name = 'org.apache.kafka.metadata.authorizer.StandardAuthorizer'",
            "StandardAuthorizer': must be none or StandardAuthorizer; write StandardAuthorizer, without the package",
        ),
        ("[cluster.bootstrap]", "[metric]\n[cluster.bootstrap]", "line 10: unknown setting metric; "),
        ('"/data/two"', '"/data/one"', "line 4: log.dirs = ['/data/one/', '/data/one']: names a directory twice"),
        ('["/data/one/", "/data/two"]', "[]", "must be a list of one or more directories in quotes"),
        ('["/data/one/", "/data/two"]', '"/data"', "must be a list of one or more directories in quotes"),
        (
            LISTENERS,
            'listeners = ["GRPC://127.0.0.1"]',
            "line 5: listeners = ['GRPC://127.0.0.1']: '127.0.0.1' is not",
        ),
        (LISTENERS, 'listeners = ["GRPC://a:65536"]', "is not an address; write HOST:PORT"),
        (LISTENERS, 'listeners = ["a:1"]', "'a:1' is not a listener; write NAME://HOST:PORT"),
        (LISTENERS, 'listeners = ["GRPC://a:1", "GRPC://a:2"]', "names a listener twice"),
        (LISTENERS, "", "tidelog.toml: listeners: missing; it must be a list of one or more NAME://HOST:PORT"),
        (LISTENERS, 'listeners = ["inner://a:1"]', "line 5: listeners: no listener 'GRPC'"),
        (ADVERTISED, "", "listener 'inner': missing: clients and nodes cannot reach 0.0.0.0:9193"),
        (ADVERTISED, 'advertised.listeners = ["inner://node-3:0"]', "cannot reach node-3:0. Name a reachable address"),
        (
            PROTOCOLS,
            "",
            "listener.security.protocol.map: no protocol for the listener 'inner': add inner:PLAINTEXT for",
        ),
        (ADVERTISED, 'advertised.listeners = ["x://a:1"]', "line 6: advertised.listeners: no listener 'x'"),
        (
            "bootstrap.servers",
            "voter.count = 2\n#",
            "line 13: controller.quorum.bootstrap.servers: missing; it must be",
        ),
        ("enable = true", "enable = 1", "line 11: cluster.bootstrap.enable = 1: must be true or false"),
        ("enable = true", "enable = true\nnode.id = 0", "line 11: cluster.bootstrap.enable: contradicts"),
        ("interval.ms = 100", "interval.ms = 2000", "broker.session.timeout.ms: 2000 ms is less than two heartbeats"),
        (SEGMENT, '"segment.bytes" = "1"', "line 20: log.segment.bytes = '1': must be a whole number from 14"),
        (SEGMENT, '"segment.size" = 1', "line 20: unknown setting log.segment.size; similar: log.segment.bytes"),
        (SEGMENT, 'message.format = "v1"\ncleaner.max.compaction.lag.ms = 0', "max.compaction.lag.ms = 0: must be"),
        (
            BACKOFF,
            'message.format = "v1"\n[compression]\ntype = "zstd"',
            "toml: defaults of topics: compression.type is",
        ),
        ("[log]", "[log", "tidelog.toml: not TOML: "),
        (RACK, 'authorizer.class.name = "Acl"', "authorizer.class.name = 'Acl': must be none or StandardAuthorizer"),
        (
            RACK,
            'authorizer.class.name = "StandardAuthorizer"',
            "super.users: missing: the node refuses what no ACL allows, because authorizer.class.name is set",
        ),
        (RACK, 'super.users = ["alice"]', "line 3: super.users = ['alice']: principal 'alice': write User:NAME"),
        (RACK, 'super.users = "User:a;User:*"', "User:* is no principal; name each super user"),
        (
            RACK,
            'ssl.client.auth = "required"',
            "line 3: ssl.client.auth: has no effect: no listener has TLS; give one a p",
        ),
        (RACK, "ssl.connection.max.age.ms = 1000", "ssl.connection.max.age.ms: has no effect: no listener has TLS"),
        (
            RACK,
            "group.consumer.session.timeout.ms = 3000",
            "tidelog.toml: group.consumer.session.timeout.ms is 3000; use group.consumer.min.session.timeout.ms, 45000",
        ),
        (
            RACK,
            'group.consumer.assignors = ["uniform", "sticky"]',
            "line 3: group.consumer.assignors = ['uniform', 'sticky']: list each of uniform, range at most once",
        ),
        (
            RACK,
            'group.consumer.migration.policy = "both"',
            "group.consumer.migration.policy = 'both': must be disabled or downgrade or upgrade or bidirectional",
        ),
        (RACK, "offsets.topic.num.partitions = 0", "offsets.topic.num.partitions = 0: must be a whole number from 1"),
        (
            RACK,
            "transaction.state.log.replication.factor = 0",
            "transaction.state.log.replication.factor = 0: must be -1 or a whole number from 1 to 32767",
        ),
        (
            RACK,
            "remote.log.orphan.sweep.interval.ms = 0",
            "remote.log.orphan.sweep.interval.ms = 0: must be -1 or a whole number from 60000 to",
        ),
        (RACK, "remote.log.orphan.sweep.interval.ms = -2", "interval.ms = -2: must be -1 or a whole number from 60000"),
        (RACK, "remote.fetch.max.wait.ms = 0", "remote.fetch.max.wait.ms = 0: must be a whole number from 1 to"),
        (RACK, "super.users = [1]", "super.users = [1]: must be a list of principals in quotes"),
        (
            RACK,
            'super.users = ["User:a;User:b"]',
            "'User:a;User:b' has a ; and each item of a list is one principal: make",
        ),
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
        ("TIDELOG_BROKER_RAK", "x", "variable TIDELOG_BROKER_RAK: unknown setting; similar: TIDELOG_BROKER_RACK"),
        ("TIDELOG_SUPER_USR", "User:a", "TIDELOG_SUPER_USR: unknown setting; similar: TIDELOG_SUPER_USERS"),
        ("TIDELOG_SSL_KEYSTORE_LOCATION", "a.jks", "unknown setting; keys and certificates are PEM files: ssl.certif"),
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


def test_the_variables_of_the_client_do_not_concern_a_node() -> None:
    """A shell that is set up for `tidelog` starts nodes too: `tidelog up`, for one."""
    read = {option.envvar for each in commands_below(app) for option in each.params if isinstance(option.envvar, str)}
    assert read == {*ClientVariable}
    assert parse(GOOD, **dict.fromkeys(read, "anything")) == parse(GOOD)
    assert read.isdisjoint(declared.variable for declared in SETTINGS.values())


@pytest.mark.parametrize(
    ("former", "words"),
    [
        ('[node]\ndata_folders = ["/a"]', "line 2: [node] data_folders is now log.dirs; rename it"),
        ('[node]\nlog_directories = ["/a"]', "line 2: [node] log_directories is now log.dirs"),
        ('[listeners.client]\nbind = "a:1"', "line 2: [listeners.client] bind is now listeners; write listeners = ["),
        ('[listeners.a]\nadvertised = "a:1"', "[listeners.a] advertised is now advertised.listeners; write advertised"),
        (
            'listener.kafka.names = ["kafka"]',
            "[listener] kafka.names is now listener.security.protocol.map; write NAME:PLAINTEXT (or SSL) for each",
        ),
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


def test_super_users_are_a_list_or_one_text_as_in_kafka() -> None:
    """A distinguished name contains commas, so Kafka separates principals by semicolons."""
    authorizer = 'authorizer.class.name = "StandardAuthorizer"\n'
    names = frozenset({"User:CN=node-0,O=example", "User:admin"})
    for given in ('["User:CN=node-0,O=example", "User:admin"]', '"User:CN=node-0,O=example; User:admin"'):
        read = parse(GOOD.replace(RACK, f"{authorizer}super.users = {given}"))
        assert (read.authorizer.enabled, read.authorizer.super_users) == (True, names)
    read = parse(GOOD, TIDELOG_SUPER_USERS="User:CN=node-0,O=example;User:admin")
    assert (read.authorizer.enabled, read.authorizer.super_users) == (False, names)
    escaped = {r"User:CN=a\;b", "User:admin"}
    assert parse(GOOD, TIDELOG_SUPER_USERS=r"User:CN=a\;b;User:admin").authorizer.super_users == escaped
    listed = parse(GOOD.replace(RACK, r"super.users = ['User:CN=a\;b', 'User:admin']"))
    assert listed.authorizer.super_users == escaped


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
