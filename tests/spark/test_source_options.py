"""The options of a query: the names of Spark's Kafka source, checked before anything is read."""

import json

import pytest

from tidelog.errors import InvalidConfig
from tidelog.spark.source_options import EARLIEST, LATEST, parse_options
from tidelog.types import TopicPartition

CLUSTER = {"tidelog.bootstrap.servers": "localhost:9092"}


def test_a_query_reads_everything_by_default() -> None:
    options = parse_options({**CLUSTER, "subscribe": "orders, payments,orders"})
    assert options.topics == ("orders", "payments")
    assert options.starting.everywhere == EARLIEST
    assert options.ending.everywhere == LATEST
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_option_names_are_case_insensitive() -> None:
    options = parse_options(
        {"kafka.bootstrap.SERVERS": "localhost:9092", "Assign": '{"a": [1, 0]}', "INCLUDEHEADERS": "true"}
    )
    assert options.bootstrap == "localhost:9092"
    assert options.assigned == (TopicPartition("a", 0), TopicPartition("a", 1))  # type: ignore[arg-type]
    assert options.include_headers


def test_the_executors_rack_may_be_named() -> None:
    assert parse_options({**CLUSTER, "subscribe": "a", "kafka.client.rack": " r1 "}).rack == "r1"
    assert parse_options({**CLUSTER, "subscribe": "a"}).rack == ""


def test_offsets_may_be_given_for_each_partition() -> None:
    asked = json.dumps({"orders": {"0": 23, "1": -2}})
    options = parse_options({**CLUSTER, "subscribe": "orders", "startingOffsets": asked})
    assert options.starting.offsets == {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): EARLIEST}  # type: ignore[arg-type]


def test_times_take_precedence_over_offsets() -> None:
    options = parse_options(
        {**CLUSTER, "subscribe": "orders", "startingTimestamp": "1700000000000", "startingOffsets": "earliest"}
    )
    assert options.starting.timestamp_ms == 1_700_000_000_000
    assert options.starting.everywhere is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"subscribe": "a"}, "tidelog.bootstrap.servers"),
        (CLUSTER, "subscribe, subscribePattern, assign"),
        ({**CLUSTER, "subscribe": "a", "assign": "{}"}, "subscribe, assign"),
        ({**CLUSTER, "subscribe": " , "}, "names no topic"),
        ({**CLUSTER, "subscribePattern": "("}, "regular expression"),
        ({**CLUSTER, "assign": "[1]"}, "JSON object"),
        ({**CLUSTER, "assign": '{"a": ["x"]}'}, "partition numbers"),
        ({**CLUSTER, "subscribe": "a", "startingOffsets": "latest"}, "reads nothing"),
        ({**CLUSTER, "subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "reads nothing"),
        ({**CLUSTER, "subscribe": "a", "startingOffsets": "{"}, "not JSON"),
        ({**CLUSTER, "subscribe": "a", "startingOffsets": '{"a": {"0": true}}'}, "True"),
        ({**CLUSTER, "subscribe": "a", "startingTimestamp": "yesterday"}, "milliseconds"),
        ({**CLUSTER, "subscribe": "a", "minPartitions": "0"}, "above 0"),
        ({**CLUSTER, "subscribe": "a", "failOnDataLoss": "maybe"}, "true or false"),
        ({**CLUSTER, "subscribe": "a", "startingOffset": "earliest"}, "unknown option 'startingOffset'"),
        ({**CLUSTER, "subscribe": "a", "path": "/data"}, "no path"),
    ],
)
def test_invalid_options_are_rejected_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidConfig, match=None) as refused:
        parse_options(given)
    assert named in refused.value.message
