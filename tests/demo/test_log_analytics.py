"""The analytics of log lines: what is recognised in a line, and what the tables of the queries say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.analytics import findings, picture
from examples.analytics.log_lines import log_lines
from examples.analytics.streams import COUNTS, TALKERS

pytestmark = pytest.mark.spark

SENT = datetime(2026, 11, 26, 12, 0, 0, tzinfo=UTC)
LINES = {
    "2015-10-18 18:01:47,978 INFO [main] org.example.Server: started": (
        "2015-10-18 18:01:47",
        "INFO",
        "org.example.Server:",
    ),
    "2026-11-26T09:00:01.5Z ERROR db.Pool - no connection": ("2026-11-26 09:00:01", "ERROR", "db.Pool"),
    "Nov  3 07:08:09 web-1 sshd[412]: Accepted publickey": ("2026-11-03 07:08:09", "-", "sshd"),
    '1.2.3.4 - - [26/Nov/2026:10:00:00 +0000] "GET /api/users?id=7 HTTP/1.1" 503 12': (
        "2026-11-26 10:00:00",
        "ERROR",
        "/api",
    ),
    "2026-11-26 09:00:02 status installed libc6:amd64 2.36": ("2026-11-26 09:00:02", "-", "status"),
    'time="now" level=warning msg="disk"': ("2026-11-26 12:00:00", "WARN", "-"),
    '{"at": 1700000000000, "severity": "fatal", "logger": "queue"}': ("2023-11-14 22:13:20", "FATAL", "queue"),
    "nothing is known of this": ("2026-11-26 12:00:00", "-", "-"),
    "2026-13-45 99:00:00 INFO clock: no such time": ("2026-11-26 12:00:00", "INFO", "clock:"),
}


def test_time_level_and_component_are_found_in_lines_of_many_kinds(spark: SparkSession) -> None:
    records = spark.createDataFrame([(line.encode(), SENT) for line in LINES], "value binary, timestamp timestamp")
    rows = log_lines(records).selectExpr(
        "text", "date_format(event_time, 'yyyy-MM-dd HH:mm:ss') t", "level", "component"
    )
    found = {row["text"]: (row["t"], row["level"], row["component"].rstrip(":")) for row in rows.collect()}
    assert found == {line: (*wanted[:2], wanted[2].rstrip(":")) for line, wanted in LINES.items()}


def test_bytes_that_are_no_text_are_counted_too(spark: SparkSession) -> None:
    records = spark.createDataFrame([(b"\xff\xfe\x00", SENT), (None, SENT)], "value binary, timestamp timestamp")
    assert [row["bytes"] for row in log_lines(records).collect()] == [3, None]


def test_a_window_with_far_more_errors_than_before_is_a_burst(spark: SparkSession, tmp_path: Path) -> None:
    errors = [2, 1, 2, 2, 30, 2, 4]
    counts = []
    for number, count in enumerate(errors):
        begins = SENT + timedelta(seconds=10 * number)
        counts += [(begins, "ERROR", "db", count, 10 * count), (begins, "INFO", "web", 50, 500)]
    shape = "from timestamp, level string, component string, lines long, bytes long"
    spark.createDataFrame(counts, shape).createOrReplaceTempView(COUNTS)
    spark.createDataFrame(
        [("web", 350, 3_500), ("db", 43, 430)], "component string, lines long, bytes long"
    ).createOrReplaceTempView(TALKERS)
    found = findings.find(spark, late=3)
    (burst,) = found.bursts
    assert burst.errors == 30
    assert burst.mean == pytest.approx(1.75)
    assert found.talkers == (("web", 350, 3_500), ("db", 43, 430))
    assert found.lines == 43 + 350
    picture.draw(found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_nothing_gives_an_empty_picture(tmp_path: Path) -> None:
    picture.draw(findings.LogFindings((), (), (), 0), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").exists()
