"""How much a node logs: a failover of many partitions is a line, and repeated lines are counted."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from node.observability import logs
from node.observability.repeated_lines import KINDS_MAX, LINES_MAX, WINDOW_S, RepeatedLines
from node.observability.stderr_lines import log_line
from node.replicas.replica_config import ReplicaConfig
from tests.node.wires import Cluster
from tidelog.types import NodeId

COUNT = 1_000
FIRST = "(t-0, t-1, t-2, ...)"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(2, partitions=COUNT, config=ReplicaConfig(applied_at_once=50))
    lead_all(cluster, 1)
    cluster.until(lambda: all(each.role is not None for node in (1, 2) for each in cluster.manager(node).partitions()))
    cluster.run(1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def lead_all(cluster: Cluster, node: int) -> None:
    for index in range(COUNT):
        cluster.set(index, publish=False, leader=NodeId(node))
    cluster.publish()


def test_a_failover_of_a_thousand_partitions_is_one_line_on_each_node(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "node.partition")
    caplog.clear()
    lead_all(cluster, 2)
    cluster.run(1)
    said = sorted(record.getMessage() for record in caplog.records if record.name == "node.partition")
    assert said == [
        f"roles of 1000 partitions changed: follows 1000 {FIRST}; no longer leads 1000 {FIRST}",
        f"roles of 1000 partitions changed: leads 1000 {FIRST}",
    ]


def test_a_failover_of_a_few_names_each_with_its_offsets(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "node.partition")
    caplog.clear()
    cluster.set(7, leader=NodeId(2))
    cluster.run(1)
    epoch = next(iter(cluster.manager(2).partitions())).leader_epoch
    said = {record.getMessage() for record in caplog.records if record.name == "node.partition"}
    assert f"t-7: leads in epoch {epoch + 1}, log end offset 0, high watermark 0" in said
    assert f"t-7: follows node 2 in epoch {epoch + 1}, log end offset 0" in said


def test_at_level_debug_each_has_a_line(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "node.partition")
    caplog.clear()
    lead_all(cluster, 2)
    cluster.run(1)
    assert sum(": leads in epoch" in record.getMessage() for record in caplog.records) == COUNT


def line(
    text: str, *values: object, at: float, level: int = logging.WARNING, name: str = "node.x"
) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": name, "levelno": level, "msg": text, "args": values})
    made.created = at
    return made


def test_repeated_lines_are_counted_and_the_count_follows() -> None:
    repeated = RepeatedLines()
    admitted = [repeated.admits(line("no room in %s", f"t-{number}", at=100.0)) for number in range(250)]
    assert admitted == [True] * LINES_MAX + [False] * (250 - LINES_MAX)
    assert repeated.admits(line("other", at=100.0)), "each kind has its own limit"
    assert repeated.take_ended(100.0 + WINDOW_S - 0.1) == []
    (summary,) = repeated.take_ended(100.0 + WINDOW_S)
    assert summary.getMessage() == f"{250 - LINES_MAX} more lines like this one: no room in t-249"
    assert (summary.name, summary.levelname) == ("node.x", "WARNING")
    assert repeated.take_ended(1_000.0) == []
    assert repeated.admits(line("no room in %s", "t-0", at=111.0)), "a new window"


def test_finished_texts_are_the_same_if_only_their_numbers_differ() -> None:
    repeated = RepeatedLines()
    for number in range(20):
        repeated.admits(line("%s", f"node {number} is fenced", at=1.0))
    assert not repeated.admits(line("%s", "node 21 is fenced", at=1.0))
    assert repeated.admits(line("%s", "node 21 is back", at=1.0))


def test_debug_critical_and_audit_lines_are_never_left_out() -> None:
    repeated = RepeatedLines()
    for _ in range(50):
        assert repeated.admits(line("a", at=1.0, level=logging.DEBUG))
        assert repeated.admits(line("b", at=1.0, level=logging.CRITICAL))
        assert repeated.admits(line("c", at=1.0, level=logging.INFO, name="node.audit"))


def test_a_clock_that_is_set_back_does_not_silence_a_line_for_long() -> None:
    repeated = RepeatedLines()
    for _ in range(50):
        repeated.admits(line("a", at=1_000_000.0))
    (summary,) = repeated.take_ended(5.0)
    assert summary.getMessage().startswith("40 more lines")


def test_what_is_kept_of_different_lines_is_bounded() -> None:
    repeated = RepeatedLines()
    assert all(repeated.admits(line(f"text {chr(0x4E00 + number)}", at=1.0)) for number in range(3 * KINDS_MAX))
    assert len(repeated._windows) == KINDS_MAX


@pytest.fixture
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.mark.usefixtures("root_logger")
def test_the_process_writes_the_count_at_its_end_at_the_latest() -> None:
    stream = io.StringIO()
    logs.configure(style="json", level="info", stream=stream)
    for number in range(30):
        logging.getLogger("node.story").warning("no answer from node %d", number)
    logs.write_repeated()  # too early
    logging.getLogger().handlers[0].close()
    lines = [json.loads(each) for each in stream.getvalue().splitlines()]
    assert len(lines) == LINES_MAX + 1
    assert lines[-1]["message"] == "20 more lines like this one: no answer from node 29"
    assert (lines[-1]["repeated"], lines[-1]["level"]) == (20, "warning")


@pytest.mark.usefixtures("root_logger")
def test_lines_that_nobody_reads_any_more_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard error is read as lines of the log: a report of each that failed would be more of them, without end."""

    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError("nobody reads")

    logs.configure(style="json", level="info", stream=Closed())
    logging.getLogger("node.story").warning("a line")
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("root_logger")
def test_lines_of_grpc_and_of_the_interpreter_become_lines_of_the_log() -> None:
    stream = io.StringIO()
    logs.configure(style="json", level="info", node_id=3, stream=stream)
    log_line("I1129 04:21:31.441303    6428 chttp2_transport.cc:1403] ipv4:127.0.0.1:1: Got goaway [2]")
    log_line("E1129 04:21:31.441303 6428 ssl.cc:7] no certificate")
    log_line("Exception ignored in: <function f>")
    log_line("  ")
    found = [json.loads(each) for each in stream.getvalue().splitlines()]
    assert [(each["logger"], each["level"], each["message"]) for each in found] == [
        ("grpc", "info", "ipv4:127.0.0.1:1: Got goaway [2]"),
        ("grpc", "error", "no certificate"),
        ("stderr", "warning", "Exception ignored in: <function f>"),
    ]
    assert found[0]["source"] == "chttp2_transport.cc:1403"
