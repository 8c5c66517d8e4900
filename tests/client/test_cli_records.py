"""Records on the command line as they are: what `produce` writes, what `consume` prints, and where both end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.hidden_records import data, fill, marker
from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread
from tests.client.terminal import Terminal
from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.moments import moment_of
from tidelog.cli.record_text import compiled_format, record_as_json, record_of_json, unescaped
from tidelog.client.consumer_record import ConsumerRecord
from tidelog.clock import MachineClock
from tidelog.records import RecordBatch
from tidelog.types import Millis, Offset, PartitionIndex


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    with cluster_in_a_thread() as made:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", made.bootstrap)
        yield made


def written(cluster: MemoryCluster, topic: str) -> list[tuple[Any, ...]]:
    """The records of a topic: partition, timestamp, key, value, headers."""
    return [
        (index, record.timestamp, record.key, record.value, record.headers)
        for index, partition in enumerate(cluster.topics[topic].partitions)
        for batch in partition.batches
        for record in RecordBatch(batch).records()
    ]


BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
HEADER_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(BYTES, BYTES, st.lists(st.tuples(HEADER_NAMES, BYTES), max_size=3), st.none() | st.integers(0, 2**40))
def test_a_record_is_the_same_after_json(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int | None
) -> None:
    at = None if timestamp is None else Millis(timestamp)
    record = ConsumerRecord("orders", PartitionIndex(3), Offset(7), at, key, value, tuple(headers))
    line = record_as_json(record)
    assert line.count("\n") == 1
    found = record_of_json(line.encode())
    assert (found.topic, found.partition, found.key, found.value) == ("orders", 3, key, value)
    assert found.headers == tuple(headers)
    assert found.timestamp == (-1 if timestamp is None else timestamp)


def test_what_is_consumed_as_json_is_produced_again(cluster: MemoryCluster, tidelog: Terminal) -> None:
    for topic in ("orders", "copies"):
        cluster.create(topic, 2)
    lines = [
        {"key": "k", "value": None, "partition": 1, "timestamp": 5, "headers": [["h", "1"], ["h", None]]},
        {"key": "", "value": "", "partition": 0, "timestamp": 6},
        {"key": None, "value": {"base64": "/w=="}, "partition": 0, "timestamp": 7},
    ]
    given = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert tidelog("produce", "orders", "-F", "json", typed=given) == 0
    assert written(cluster, "orders") == [
        (0, 6, b"", b"", ()),
        (0, 7, None, b"\xff", ()),
        (1, 5, b"k", None, (("h", b"1"), ("h", None))),
    ]
    assert tidelog("consume", "orders", "--json") == 0
    printed = tidelog.out
    assert tidelog("produce", "copies", "--input-format", "json", "--json", typed=printed) == 0
    assert tidelog.json["acknowledged"] == 3
    assert written(cluster, "copies") == written(cluster, "orders")
    assert tidelog("produce", "-F", "json", typed=printed) == 0, "the lines name their topic"
    assert len(written(cluster, "orders")) == 6


@pytest.mark.usefixtures("no_lag")
def test_a_wrong_line_is_named_and_the_others_are_sent(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.create("orders")
    given = (
        b'{"value": "1"}\nnothing\n[1]\n{"value": 1}\n{"valeu": "x"}\n{"value": "2", "partition": 9}\n{"value": "3"}\n'
    )
    assert tidelog("produce", "orders", "-F", "json", typed=given) == 1
    said = tidelog.err.splitlines()
    assert [line.partition(":")[2].split(":")[0].strip() for line in said[:-1]] == [
        f"line {n}" for n in (2, 3, 4, 5, 6)
    ]
    assert said[-1] == "2 records acknowledged, 5 not written"
    assert [value for *_, value, _ in written(cluster, "orders")] == [b"1", b"3"]
    assert tidelog("produce", "orders", "-F", "json", "--stop-on-error", "--json", typed=given) == 1
    assert (tidelog.json["sent"], tidelog.json["failures"][0]["line"]) == (1, 2)


def test_a_line_that_is_nested_without_end_is_a_wrong_line(cluster: MemoryCluster, tidelog: Terminal) -> None:
    """The depth that Python's parser takes depends on what called it, so many depths are tried."""
    cluster.create("orders")
    depths = (*range(100, 1_100, 25), 200_000)
    nested = [b'{"value": %s%s}' % (b"[" * depth, b"]" * depth) for depth in depths]
    given = b"\n".join([b'{"value": "first"}', *nested, b'{"value": "last"}'])
    assert tidelog("produce", "orders", "-F", "json", typed=given) == 1
    assert "Traceback" not in tidelog.err
    assert "line 2: value must be a text, null," in tidelog.err
    assert [value for *_, value, _ in written(cluster, "orders")] == [b"first", b"last"]
    assert tidelog.err.splitlines()[-1] == f"2 records acknowledged, {len(depths)} not written"


@pytest.mark.usefixtures("no_lag")
def test_a_record_that_its_topic_refuses_takes_no_other_line_with_it(cluster: MemoryCluster, tidelog: Terminal) -> None:
    """A leader refuses the whole batch of such a record."""
    cluster.create("orders", configs={"message.timestamp.after.max.ms": "60000"})
    cluster.create("state", configs={"cleanup.policy": "compact,delete"})
    far = MachineClock().wall_ms() + 3_600_000
    given: list[dict[str, object]] = [
        {"value": "1"},
        {"value": "2", "timestamp": far},
        {"value": "3", "timestamp": far - 3_600_000},
        {"value": "4", "timestamp": None},
        {"topic": "state", "value": "5"},
        {"topic": "state", "value": "6", "key": "k"},
        {"topic": ["state"], "value": "7"},
        {"topic": "nothing", "value": "8"},
    ]
    typed = b"".join(json.dumps({"topic": "orders", **each}).encode() + b"\n" for each in given)
    assert tidelog("produce", "-F", "json", typed=typed) == 1
    *lines, tally = tidelog.err.splitlines()
    assert lines[0].startswith(f"tidelog: line 2: its timestamp {far} is out of range")
    assert lines[1] == "tidelog: line 5: it has no key, which a compacted topic needs"
    assert lines[2] == "tidelog: line 7: topic is the name of one, as a text"
    assert lines[3].startswith("tidelog: line 8: there is no topic 'nothing'")
    assert tally == "4 records acknowledged, 4 not written"
    assert [value for *_, value, _ in written(cluster, "orders")] == [b"1", b"3", b"4"]
    assert [value for *_, value, _ in written(cluster, "state")] == [b"6"]
    cluster.topics["orders"].configs["message.timestamp.type"] = "LogAppendTime"
    assert tidelog("produce", "orders", "--timestamp", str(far), typed=b"9\n") == 0


def test_nobody_acknowledges_a_record_that_is_sent_with_acks_0(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.create("orders")
    assert tidelog("produce", "orders", "--acks", "0", typed=b"1\n2\n") == 0
    assert tidelog.err.splitlines() == ["2 records sent, none acknowledged (acks=0)"]
    assert tidelog("produce", "orders", "--acks", "0", "--json", typed=b"3\n") == 0
    assert (tidelog.json["sent"], tidelog.json["acknowledged"], tidelog.json["unconfirmed"]) == (1, 0, 1)


def test_lines_become_records_as_the_options_say(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.create("orders", 2)
    arguments = (
        "-k",
        r"\t",
        "-D",
        r"\0",
        "--null",
        "NULL",
        "-H",
        "source=test",
        "-p",
        "1",
        "--timestamp",
        "1700000000",
    )
    assert tidelog("produce", "orders", *arguments, typed=b"a\tone\r\n\0NULL\tNULL\0\t") == 0
    header = (("source", b"test"),)
    assert written(cluster, "orders") == [
        (1, 1_700_000_000_000, b"a", b"one\r\n", header),
        (1, 1_700_000_000_000, None, None, header),
        (1, 1_700_000_000_000, b"", b"", header),
    ]
    assert tidelog("produce", "orders", "--tombstone", "--key", "a", "-p", "0") == 0
    assert [each[2:4] for each in written(cluster, "orders") if each[0] == 0] == [(b"a", None)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--tombstone",), "--tombstone needs the --key"),
        (("--key", "a", "-k", ":"), "--key and --key-separator"),
        (("-F", "json", "-k", ":"), "leave out --key-separator"),
        (("-k", r"\q"), r"unknown escape \q"),
        (("-D", ""), "--delimiter is empty"),
        (("-H", "name"), "write NAME=VALUE"),
        (("--timestamp", "soon"), "2026-01-31T12:00:00Z"),
        (("-F", "csv"), "'csv' is not one of"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    cluster: MemoryCluster, tidelog: Terminal, arguments: tuple[str, ...], says: str
) -> None:
    cluster.create("orders")
    assert tidelog("produce", "orders", *arguments, typed=b"line\n") == 2
    assert says in tidelog.err
    assert written(cluster, "orders") == []


def test_a_rate_limits_the_records_of_a_second(cluster: MemoryCluster, tidelog: Terminal) -> None:
    """Forty records at 100 a second: the last one leaves 390 ms after the command has begun, or later."""
    cluster.create("orders")
    begun = MachineClock().wall_ms()
    assert tidelog("produce", "orders", "--rate", "100", typed=b"x\n" * 40) == 0
    times = [
        record.timestamp
        for batch in cluster.topics["orders"].partitions[0].batches
        for record in RecordBatch(batch).records()
    ]
    assert len(times) == 40
    assert times[-1] - begun >= 380


def test_records_are_printed_as_kcat_does(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.create("orders")
    lines = '{"key": "k", "value": "v", "timestamp": 5, "headers": [["a", "1"], ["b", null]]}\n'
    lines += '{"value": null, "timestamp": 6}\n'
    assert tidelog("produce", "orders", "-F", "json", typed=lines.encode()) == 0
    assert tidelog("consume", "orders", "-f", r"%t[%p]@%o %T %k %h %s %K %S%%\n", "--null", "-") == 0
    assert tidelog.out == b"orders[0]@0 5 k a=1,b=- v 1 1%\norders[0]@1 6 -  - -1 -1%\n"
    assert tidelog("consume", "orders", "-f", "%R%s", "-n", "1") == 0
    assert tidelog.out == b"\0\0\0\1v"
    for wrong in ("%x", "%"):
        assert tidelog("consume", "orders", "-f", wrong) == 2
        assert "is unknown; use %t %p %o" in tidelog.err
    assert tidelog("consume", "orders", "-f", "%s", "--json") == 2


def test_a_part_of_the_records_is_printed(cluster: MemoryCluster, tidelog: Terminal) -> None:
    for topic in ("orders", "orders-eu", "other"):
        cluster.create(topic)
        lines = "".join(f'{{"value": "{topic} {n}", "timestamp": {1_000_000 * n}}}\n' for n in range(1, 6))
        assert tidelog("produce", topic, "-F", "json", typed=lines.encode()) == 0

    def consumed(*arguments: str) -> list[str]:
        assert tidelog("consume", *arguments) == 0, tidelog.err
        return tidelog.out.decode().splitlines()

    assert consumed("orders", "--last", "2") == ["orders 4", "orders 5"]
    assert consumed("orders", "--last", "9") == [f"orders {n}" for n in range(1, 6)]
    assert consumed("orders", "--from", "2000", "--to", "4000") == ["orders 2", "orders 3"]
    assert consumed("orders", "--from", "1970-01-01T00:50:00Z", "--exit") == ["orders 3", "orders 4", "orders 5"]
    assert consumed("orders", "--from", "-1h") == []
    assert consumed("orders", "-o", "1", "--to-offset", "3", "-p", "0") == ["orders 2", "orders 3"]
    assert sorted(consumed("orders", "other", "--last", "1")) == ["orders 5", "other 5"]
    assert sorted(consumed("orders.*", "--regex", "--last", "1")) == ["orders 5", "orders-eu 5"]
    for arguments, code, says in (
        (("orders", "--last", "1", "--from", "latest"), 2, "two places to start at"),
        (("orders", "--follow", "--exit"), 2, "--follow never ends"),
        (("orders", "--to", "yesterday"), 2, "--to 'yesterday'"),
        (("orders", "other", "-o", "1", "-p", "0"), 2, "needs one partition"),
        (("orders", "--group", "g", "--last", "1"), 2, "leave out --partition"),
        (("(", "--regex"), 2, "is not a regular expression"),
        (("nothing.*", "--regex"), 1, "no topic matches nothing.*"),
    ):
        assert tidelog("consume", *arguments) == code
        assert says in tidelog.err


def test_the_last_records_are_counted_without_the_offsets_that_have_none(
    cluster: MemoryCluster, tidelog: Terminal
) -> None:
    """Markers of transactions, aborted records, and a second partition that is short."""
    first, second = cluster.create("orders", 2).partitions
    for partition, batches in ((first, 4), (second, 1)):
        for _ in range(batches):
            partition.append(data(3))
            partition.append(marker(3, commit=True))
    fill(cluster.create("mixed").partitions[0])

    def offsets(*arguments: str) -> list[str]:
        assert tidelog("consume", *arguments, "-f", r"%p@%o\n") == 0, tidelog.err
        return sorted(tidelog.out.decode().split())

    assert offsets("orders", "--last", "1") == ["0@6", "1@0"]
    assert offsets("orders", "--last", "2") == ["0@4", "0@6", "1@0"]
    assert offsets("orders", "--last", "100000000000000000000") == ["0@0", "0@2", "0@4", "0@6", "1@0"]
    assert offsets("mixed", "--last", "3") == ["0@7", "0@8", "0@9"]
    assert offsets("mixed", "--last", "2", "--isolation", "read_committed") == ["0@3", "0@7"]
    cluster.create("empty")
    assert offsets("empty", "--last", "2") == []
    first.start = 4
    assert offsets("orders", "--last", "9", "-p", "0") == ["0@4", "0@6"]
    assert tidelog("consume", "orders", "-o", "3", "-p", "0") == 1
    assert "offset 3 is below the start 4 of orders-0" in tidelog.err and "--from earliest" in tidelog.err


def test_times_are_read_in_every_usual_form() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    now_ms = int(now.timestamp() * 1000)
    for text, expected in (
        ("1769860800", now),
        ("1769860800000", now),
        ("1769860800.25", now + timedelta(milliseconds=250)),
        ("2026-01-31T12:00:00Z", now),
        ("2026-01-31", now - timedelta(hours=12)),
        ("-1h30m", now - timedelta(minutes=90)),
        ("-2d", now - timedelta(days=2)),
        ("-250ms", now - timedelta(milliseconds=250)),
    ):
        assert moment_of(text, now_ms) == expected
    for text in ("", "soon", "-1", "-1y", "1h", "-h", "9" * 30, "1e5"):
        assert moment_of(text, now_ms) is None


@given(st.text())
def test_escapes_and_formats_of_any_text_end_with_bytes_or_a_sentence(text: str) -> None:
    record = ConsumerRecord("t", PartitionIndex(0), Offset(0), None, None, b"v")
    try:
        assert isinstance(unescaped("-k", text), bytes)
        assert isinstance(compiled_format(text, b"")(record), bytes)
    except WrongUsage:
        pass


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_produce_with_what_was_acknowledged(
    cluster: MemoryCluster, number: signal.Signals, code: int
) -> None:
    """Method: the input stays open. The signal comes once the lines have been read and sent."""
    cluster.create("orders")
    entry = "import sys; from tidelog.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", entry, "produce", "orders"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TIDELOG_BOOTSTRAP": cluster.bootstrap},
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        consumer = ["consume", "orders", "--follow", "-n", "2", "-b", cluster.bootstrap]
        subprocess.run([sys.executable, "-c", entry, *consumer], check=True, capture_output=True, timeout=60)
        process.send_signal(number)
        assert process.wait(60) == code
        assert process.stderr.read().decode().split("\n")[0] == "2 records acknowledged"
