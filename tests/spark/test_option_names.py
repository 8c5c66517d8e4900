"""Names and values of options: found in any case, refused with the right spelling, and never anything but a value or
InvalidConfig."""

from __future__ import annotations

import json
import pickle
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidConfig
from tidelog.spark.options.connection_options import CONNECTION_NAMES, connection_options
from tidelog.spark.options.option_names import INSTEAD, canonical
from tidelog.spark.options.option_values import duration_ms
from tidelog.spark.options.query_options import (
    BATCH_NAMES,
    QUERY_NAMES,
    STREAM_NAMES,
    BatchOptions,
    StreamOptions,
    TriggerLimits,
    optional_columns,
    parse_batch_options,
    parse_stream_options,
)
from tidelog.types import EARLIEST, LATEST

CLUSTER = {"tidelog.bootstrap.servers": "localhost:9192"}
QUERY = {**CLUSTER, "subscribe": "orders"}

VALID: dict[str, tuple[str, Any]] = {
    "tidelog.client.id": ("night-load", lambda options: options.query.connection.client_id == "night-load"),
    "tidelog.client.rack": ("r1", lambda options: options.query.connection.rack == "r1"),
    "tidelog.isolation.level": ("read_uncommitted", lambda options: options.query.connection.isolation.value == 0),
    "startingTimestamp": ("17", lambda options: options.query.starting.timestamp_ms == 17),
    "startingOffsetsByTimestamp": (
        '{"orders": {"0": 5}}',
        lambda options: list(options.query.starting.times.values()) == [5],
    ),
    "startingOffsetsByTimestampStrategy": ("LATEST", lambda options: options.query.past_the_last_is_latest),
    "failOnDataLoss": ("False", lambda options: not options.query.fail_on_data_loss),
    "minPartitions": ("7", lambda options: options.query.min_partitions == 7),
    "maxRecordsPerPartition": ("8", lambda options: options.query.records_per_partition_max == 8),
    "includeHeaders": ("TRUE", lambda options: options.query.include_headers),
    "includeTimestampMs": ("true", lambda options: options.query.include_timestamp_ms),
    "remoteStorage": ("s3://b/p", lambda options: options.query.remote_storage == "s3://b/p"),
    "fetchBytes": ("9", lambda options: options.query.fetch_bytes == 9),
}
"""Options that batches and streams share: a value, and what it does."""


def refusal(call: Any, options: dict[str, str]) -> str:
    with pytest.raises(InvalidConfig) as refused:
        call(options)
    return refused.value.message


@pytest.mark.parametrize("name", VALID)
def test_batches_and_streams_share_an_option(name: str) -> None:
    value, has_effect = VALID[name]
    for parse in (parse_batch_options, parse_stream_options):
        assert not has_effect(parse({**QUERY, "startingOffsetsByTimestamp": '{"orders": {"0": 4}}'}))
        assert has_effect(parse({**QUERY, name.lower(): value}))


def test_every_shared_option_is_tested() -> None:
    elsewhere = {*CONNECTION_NAMES, "subscribe", "subscribePattern", "assign", "startingOffsets"}
    assert set(QUERY_NAMES) - set(VALID) == elsewhere - {"tidelog.client.id"}


def test_a_stream_starts_at_the_latest_offsets_unless_it_says_otherwise() -> None:
    assert parse_stream_options(QUERY).query.starting.everywhere == LATEST
    assert parse_stream_options({**QUERY, "startingOffsets": "EARLIEST"}).query.starting.everywhere == EARLIEST
    mixed = json.dumps({"orders": {"0": -1, "1": -2, "2": 7}})
    offsets = parse_stream_options({**QUERY, "startingOffsets": mixed}).query.starting.offsets
    assert offsets is not None
    assert list(offsets.values()) == [LATEST, EARLIEST, 7]
    assert pickle.loads(pickle.dumps(offsets)) == offsets


def test_a_stream_has_limits_and_an_identity() -> None:
    plain = parse_stream_options(QUERY)
    assert plain.limits == TriggerLimits(None, None, 15 * 60_000)
    assert (plain.group_id, plain.group_id_prefix) == (None, "spark-tidelog")
    named = {
        "minOffsetsPerTrigger": "10",
        "maxOffsetsPerTrigger": "20",
        "maxTriggerDelay": "30s",
        "groupIdPrefix": "etl",
        "kafka.group.id": "night",
    }
    options = parse_stream_options({**QUERY, **named})
    assert options.limits == TriggerLimits(10, 20, 30_000)
    assert (options.group_id, options.group_id_prefix) == ("night", "etl")
    assert parse_batch_options({**QUERY, **named}) == parse_batch_options(QUERY), "as in Spark's Kafka source"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "a streaming query has no end; read up to the present with trigger(availableNow"),
        ({"endingTimestamp": "1"}, "a streaming query has no end"),
        ({"endingOffsetsByTimestamp": "{}"}, "a streaming query has no end"),
        ({"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"}, "'minOffsetsPerTrigger' is 2, above"),
        ({"maxOffsetsPerTrigger": "-1"}, "'maxOffsetsPerTrigger' is '-1'"),
        ({"maxTriggerDelay": "15 weeks"}, "such as 500ms, 30s, 15m or 2h"),
        ({"groupIdPrefix": " "}, "'groupIdPrefix' is empty"),
        ({"tidelog.group.id": " "}, "group"),
        ({"startingTimestamp": "99999999999999999"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 99999999999999999}}'}, "invalid value"),
        ({"startingOffsets": "newest"}, "must be earliest, latest or, in each partition, an offset"),
        ({"startingOffsets": '{"orders": {"0": 1, "0": 2}}'}, "a name occurs twice"),
        ({"startingOffsets": "[" * 100_000}, "must be earliest, latest"),
        ({"startingOffsets": '{"a":' * 100_000}, "is not valid JSON"),
        ({"fetchBytes": "9999999999"}, "at most 1073741824"),
        ({"subscribePattern": "x"}, "set exactly one of"),
    ],
)
def test_invalid_and_contradictory_options_of_a_stream_are_refused(options: dict[str, str], said: str) -> None:
    assert said in refusal(parse_stream_options, {**QUERY, **options})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("starting_offsets", "startingOffsets"),
        ("endingOffset", "endingOffsets"),
        ("subscribe.pattern", "subscribePattern"),
        ("includeHeader", "includeHeaders"),
        ("failOnDataloss", None),
        ("fail_on_data_loss", "failOnDataLoss"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("bootstrap.servers", "tidelog.bootstrap.servers"),
        ("tidelog.bootstrap.server", "tidelog.bootstrap.servers"),
        ("kafka.isolation_level", "tidelog.isolation.level"),
        ("tidelog.ssl.ca", "tidelog.ssl.ca.file"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_right_spelling(given: str, meant: str | None) -> None:
    options = {**QUERY, given: "1"}
    if meant is None:
        parse_batch_options({**options, given: "true"})
        return
    for call in (parse_batch_options, optional_columns):
        message = refusal(call, options)
        assert f"unknown option {given!r}" in message
        assert "did you mean" in message
        assert f"{meant!r}" in message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kafka.session.timeout.ms", "has no option 'kafka.session.timeout.ms': a query is no member of a group"),
        ("KAFKA.AUTO.OFFSET.RESET", "use startingOffsets"),
        ("kafka.ssl.truststore.location", "name PEM files with tidelog.ssl.ca.file"),
        ("kafka.sasl.jaas.config", "name the user with tidelog.sasl.username"),
        ("kafka.ssl.truststore.locaton", "if you mean 'kafka.ssl.truststore.location': name PEM files"),
        ("kafka.linger.ms", "options of Kafka's clients have no effect here, except kafka.bootstrap.servers"),
        ("topic", "it names the topic of the sink"),
        ("path", "there is no path"),
        ("colour", "valid options: assign, endingOffsets"),
    ],
)
def test_an_option_of_another_program_is_refused_with_what_to_use(name: str, said: str) -> None:
    assert said in refusal(parse_batch_options, {**QUERY, name: "x"})


def test_one_meaning_has_one_value() -> None:
    twice = {"kafka.client.id": "a", "tidelog.client.id": "b"}
    assert "'tidelog.client.id' is given twice" in refusal(parse_batch_options, {**QUERY, **twice})
    assert canonical({"kafka.client.id": "a", "TIDELOG.client.id": "a"}, CONNECTION_NAMES, of="x") == {
        "tidelog.client.id": "a"
    }


def test_no_option_is_both_valid_and_refused() -> None:
    valid = {name.lower() for name in BATCH_NAMES} | {name.lower() for name in STREAM_NAMES}
    assert valid.isdisjoint(name.lower() for name in INSTEAD)


def test_a_misspelt_secret_is_not_in_the_message() -> None:
    secret = "tulip-7"
    for name in ("kafka.sasl.password", "tidelog.sasl.passwrd", "kafka.sasl.jaas.config", "password"):
        assert secret not in refusal(
            lambda given: connection_options(canonical(given, CONNECTION_NAMES, of="it")), {name: secret}
        )


@given(st.sampled_from(["ms", "s", "m", "min", "h", "d"]), st.integers(1, 10**6), st.sampled_from(["", " "]))
def test_durations_have_units(unit: str, number: int, gap: str) -> None:
    seconds = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}[unit]
    assert duration_ms({"d": f" {number}{gap}{unit.upper()}"}, "d", default=1) == round(number * seconds * 1000)


TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["earliest", "latest", "{}", "[]", "null", "true", "0", "1e5", "½", "٣", "-1", " 7 "]),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
        max_leaves=6,
    ).map(json.dumps),
)


@given(st.dictionaries(st.one_of(st.sampled_from([*BATCH_NAMES, *INSTEAD]), st.text(max_size=20)), TEXTS, max_size=5))
def test_any_options_give_a_value_or_the_documented_error(options: dict[str, str]) -> None:
    for parse, kind in ((parse_batch_options, BatchOptions), (parse_stream_options, StreamOptions)):
        for given_options in (options, {**options, **CLUSTER}, {**options, **QUERY}):
            with suppress(InvalidConfig):
                assert isinstance(parse(given_options), kind)
