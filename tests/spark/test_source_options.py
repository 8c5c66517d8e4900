"""The options of a query: the names of Spark's Kafka source, checked before anything is read."""

import json
import pickle

import pytest

from tidelog.errors import InvalidConfig, UnknownTopicOrPartition
from tidelog.security.sasl_user import Sasl
from tidelog.security.tls_files import Tls
from tidelog.spark.options.query_options import parse_batch_options
from tidelog.spark.options.topic_selection import ensure_present, topic_selection
from tidelog.types import EARLIEST, LATEST, Isolation, TopicPartition

CLUSTER = {"tidelog.bootstrap.servers": "localhost:9192"}
ALICE = {"tidelog.sasl.username": "alice", "tidelog.sasl.password.file": "/secret"}


def test_a_query_reads_everything_by_default() -> None:
    options = parse_batch_options({**CLUSTER, "subscribe": "orders, payments,orders"})
    assert options.query.selection.topics == ("orders", "payments")
    assert options.query.starting.everywhere == EARLIEST
    assert options.ending.everywhere == LATEST
    assert options.query.fail_on_data_loss
    assert not options.query.include_headers


def test_option_names_are_case_insensitive() -> None:
    options = parse_batch_options(
        {"kafka.bootstrap.SERVERS": "localhost:9192", "Assign": '{"a": [1, 0]}', "INCLUDEHEADERS": "true"}
    )
    assert options.query.connection.bootstrap == "localhost:9192"
    assert options.query.selection.assigned == (TopicPartition("a", 0), TopicPartition("a", 1))
    assert options.query.include_headers


def test_the_executors_rack_may_be_named() -> None:
    assert parse_batch_options({**CLUSTER, "subscribe": "a", "kafka.client.rack": " r1 "}).query.connection.rack == "r1"
    assert parse_batch_options({**CLUSTER, "subscribe": "a"}).query.connection.rack == ""


@pytest.mark.parametrize("prefix", ["tidelog", "kafka"])
def test_the_clients_of_a_query_may_be_named_for_quotas(prefix: str) -> None:
    query = {**CLUSTER, "subscribe": "a"}
    assert parse_batch_options(query).query.connection.client_id == ""
    assert (
        parse_batch_options({**query, f"{prefix}.client.id": " night-load "}).query.connection.client_id == "night-load"
    )
    with pytest.raises(InvalidConfig, match="use at most 255 printable ASCII"):
        parse_batch_options({**query, f"{prefix}.client.id": "a\tb"})


@pytest.mark.parametrize("prefix", ["tidelog", "kafka"])
def test_a_query_reads_committed_transactions_unless_it_says_otherwise(prefix: str) -> None:
    query = {**CLUSTER, "subscribe": "a"}
    assert parse_batch_options(query).query.connection.isolation is Isolation.READ_COMMITTED
    for text, level in (("read_committed", Isolation.READ_COMMITTED), ("READ_UNCOMMITTED", Isolation.READ_UNCOMMITTED)):
        assert parse_batch_options({**query, f"{prefix}.isolation.level": text}).query.connection.isolation is level
    with pytest.raises(InvalidConfig, match="must be read_committed or read_uncommitted"):
        parse_batch_options({**query, f"{prefix}.isolation.level": "serializable"})


@pytest.mark.parametrize("prefix", ["tidelog", "kafka"])
def test_tls_is_chosen_by_the_protocol_or_by_a_file(prefix: str) -> None:
    query = {**CLUSTER, "subscribe": "a"}
    assert parse_batch_options(query).query.connection.tls is None
    assert parse_batch_options({**query, f"{prefix}.security.protocol": "PLAINTEXT"}).query.connection.tls is None
    assert parse_batch_options({**query, f"{prefix}.security.protocol": "SSL"}).query.connection.tls == Tls()
    assert parse_batch_options({**query, f"{prefix}.ssl.ca.file": "/ca.pem"}).query.connection.tls == Tls("/ca.pem")
    files = {f"{prefix}.ssl.certificate.file": "/a.pem", f"{prefix}.ssl.key.file": "/a.key"}
    assert parse_batch_options({**query, **files}).query.connection.tls == Tls(None, "/a.pem", "/a.key")


def test_offsets_may_be_given_for_each_partition() -> None:
    asked = json.dumps({"orders": {"0": 23, "1": -2}})
    options = parse_batch_options({**CLUSTER, "subscribe": "orders", "startingOffsets": asked})
    assert options.query.starting.offsets == {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): EARLIEST}


def test_times_take_precedence_over_offsets() -> None:
    options = parse_batch_options(
        {**CLUSTER, "subscribe": "orders", "startingTimestamp": "1700000000000", "startingOffsets": "earliest"}
    )
    assert options.query.starting.timestamp_ms == 1_700_000_000_000
    assert options.query.starting.everywhere is None


@pytest.mark.parametrize(
    ("protocol", "tls", "user"),
    [
        ("", None, True),
        ("SASL_PLAINTEXT", None, True),
        ("SASL_SSL", Tls(), True),
        ("SSL", Tls(), False),
        ("PLAINTEXT", None, False),
    ],
)
def test_the_protocol_says_whether_there_is_tls_and_whether_there_is_a_user(
    protocol: str, tls: Tls | None, user: bool
) -> None:
    given = {"tidelog.security.protocol": protocol} if protocol else {}
    options = parse_batch_options({**CLUSTER, "subscribe": "a", **given, **(ALICE if user else {})})
    assert (options.query.connection.tls, options.query.connection.sasl) == (
        tls,
        Sasl("alice", password_file="/secret") if user else None,
    )


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"subscribe": "a"}, "tidelog.bootstrap.servers"),
        (CLUSTER, "subscribe, subscribePattern, assign"),
        ({**CLUSTER, "subscribe": "a", "assign": "{}"}, "subscribe, assign"),
        ({**CLUSTER, "subscribe": " , "}, "names no topic"),
        ({**CLUSTER, "subscribePattern": "("}, "regular expression of RE2 (missing"),
        ({**CLUSTER, "subscribePattern": "(a)\\1"}, "regular expression of RE2 (invalid escape"),
        ({**CLUSTER, "subscribePattern": "(?=a)a"}, "regular expression of RE2 (invalid perl"),
        ({**CLUSTER, "subscribePattern": "((a{999}){999}){999}"}, "regular expression of RE2 (invalid repetition"),
        ({**CLUSTER, "subscribe": "a", "kafka.security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
        (
            {**CLUSTER, "subscribe": "a", "tidelog.security.protocol": "PLAINTEXT", "tidelog.ssl.ca.file": "/ca"},
            "files for TLS are given",
        ),
        ({**CLUSTER, "subscribe": "a", "tidelog.ssl.key.file": "/key"}, "key is given without certificate"),
        (
            {**CLUSTER, **ALICE, "subscribe": "a", "tidelog.security.protocol": "PLAINTEXT"},
            "set SASL_PLAINTEXT, or remo",
        ),
        ({**CLUSTER, **ALICE, "subscribe": "a", "tidelog.security.protocol": "SSL"}, "set SASL_SSL, or remove"),
        (
            {**CLUSTER, "subscribe": "a", "tidelog.security.protocol": "SASL_PLAINTEXT", "kafka.ssl.ca.file": "/ca"},
            "files for TLS are given; set SASL_SSL",
        ),
        ({**CLUSTER, "subscribe": "a", "tidelog.security.protocol": "SASL_SSL"}, "'tidelog.sasl.username'"),
        ({**CLUSTER, "assign": "[1]"}, "JSON object"),
        ({**CLUSTER, "assign": '{"a": ["x"]}'}, "partition numbers"),
        ({**CLUSTER, "subscribe": "a", "startingOffsets": "latest"}, "reads nothing"),
        ({**CLUSTER, "subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "reads nothing"),
        ({**CLUSTER, "subscribe": "a", "startingOffsets": "{"}, "not valid JSON"),
        ({**CLUSTER, "subscribe": "a", "startingOffsets": '{"a": {"0": true}}'}, "True"),
        ({**CLUSTER, "subscribe": "a", "startingTimestamp": "yesterday"}, "milliseconds"),
        ({**CLUSTER, "subscribe": "a", "minPartitions": "0"}, "above 0"),
        ({**CLUSTER, "subscribe": "a", "failOnDataLoss": "maybe"}, "true or false"),
        ({**CLUSTER, "subscribe": "a", "startingOffset": "earliest"}, "unknown option 'startingOffset'"),
        ({**CLUSTER, "subscribe": "a", "path": "/data"}, "there is no path"),
    ],
)
def test_invalid_options_are_rejected_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidConfig, match=None) as refused:
        parse_batch_options(given)
    assert named in refused.value.message


def test_a_pattern_matches_whole_names() -> None:
    selection = parse_batch_options({**CLUSTER, "subscribePattern": "orders|pay.*"}).query.selection
    names = ("orders", "orders2", "payments", "my-payments")
    assert [name for name in names if selection.matches(name)] == ["orders", "payments"]
    assert pickle.loads(pickle.dumps(selection)) == selection, "the reader is pickled to the executors"


DEEP = "(" * 900 + "a+" + ")+" * 900 + "b"


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", "(.*)*b", "(a|aa)+$b", "(([a-z])+.)+[A-Z]b", DEEP], ids=range(6))
def test_an_expression_that_needs_exponential_time_elsewhere_is_matched_at_once(text: str) -> None:
    """The test's own time limit is the measure: Python's `re` takes longer than a person lives."""
    selection = parse_batch_options({**CLUSTER, "subscribePattern": text}).query.selection
    assert not selection.matches("a" * 249)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"subscribe": "a,b"}, None),
        ({"subscribe": "x,a,y"}, "to read 'x', 'y', which the cluster does not have"),
        ({"subscribePattern": "x.*"}, None),
        ({"assign": '{"a": [0, 1]}'}, None),
        ({"assign": '{"a": [1, 2], "x": [0, 1]}'}, r"read 'x', a-2 \('a' has 2 partitions, numbered from 0\), which"),
    ],
)
def test_all_that_the_options_name_and_the_cluster_does_not_have_is_named(
    given: dict[str, str], missing: str | None
) -> None:
    selection, counts = topic_selection(given), {"a": 2, "b": 1}
    if missing is None:
        ensure_present(selection, counts)
        return
    with pytest.raises(UnknownTopicOrPartition, match=missing):
        ensure_present(selection, counts)
