"""The demo's judge, a real Spark: it lets pass what is right, and names each kind of wrong that is planted."""

from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from examples.demo.analysis import of_telemetry
from examples.demo.check import Findings, check, first_occurrences, plant_loss
from examples.demo.ledger import SCHEMA

pytestmark = pytest.mark.spark

Row = tuple[str, int, int, int, int]
"""key, n, crc, partition, offset"""
Judge = Callable[[Iterable[Row], Iterable[Row]], Findings]

LOG: list[Row] = [(f"k{offset % 5}", offset // 5, 1_000 + offset, 0, offset) for offset in range(40)]
"""One partition, five keys, every record acknowledged at its place."""


def frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    return spark.createDataFrame(
        pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
    )


@pytest.fixture
def judge(spark: SparkSession) -> Judge:
    def judged(ledger: Iterable[Row], committed: Iterable[Row]) -> Findings:
        return check(frame(spark, ledger), frame(spark, committed))

    return judged


def moved(row: Row, offset: int) -> Row:
    return (*row[:4], offset)


def test_acknowledged_records_read_in_order_pass(judge: Judge) -> None:
    """The first test of the file: Spark compiles its first queries."""
    findings = judge(LOG, LOG)
    assert findings.faults == []
    assert (findings.acknowledged, findings.read, findings.duplicates) == (40, 40, 0)


def test_a_lost_record_is_missed_and_named(judge: Judge) -> None:
    findings = judge(LOG, LOG[:17] + LOG[18:])
    assert findings.missing == 1
    assert findings.faults == ["1 acknowledged records are missing"]
    (example,) = findings.examples
    assert "k2 n=3" in example
    assert "0@17" in example


def test_a_planted_loss_is_found(judge: Judge, spark: SparkSession) -> None:
    whole = frame(spark, LOG)
    planted = plant_loss(whole, whole)
    assert planted.count() == len(LOG) - 1
    assert check(whole, planted).missing == 1


def test_another_record_or_other_bytes_at_the_place_are_no_substitute(judge: Judge) -> None:
    other = ("k9", 0, 1, 0, 3)
    rotten = (*LOG[20][:2], 7, *LOG[20][3:])
    findings = judge(LOG, [*LOG[:3], other, *LOG[4:20], rotten, *LOG[21:]])
    assert (findings.missing, findings.altered, findings.unexpected) == (0, 2, 1)
    assert len(findings.examples) == 2


def test_a_batch_appended_again_is_a_fault(judge: Judge) -> None:
    """Records 10 to 14 are written, their answer is lost, they are sent again: the ledger knows the second copy."""
    again = [moved(row, row[4] + 5) for row in LOG[10:]]
    findings = judge([*LOG[:10], *again], [*LOG[:15], *again])
    assert findings.faults == ["5 copies of records were written"]
    assert (findings.duplicates, findings.read) == (5, 45)
    assert "k0 n=2, first at 0@10: read 2 times" in findings.examples


def test_a_batch_sent_again_after_a_later_one_is_out_of_order(judge: Judge) -> None:
    """Records 10 to 14 are lost at first and resent only behind 15 to 19: each key's later record came first."""
    wrong = [
        *LOG[:10],
        *(moved(row, row[4] - 5) for row in LOG[15:20]),
        *(moved(row, row[4] + 5) for row in LOG[10:15]),
    ]
    findings = judge(wrong, wrong)
    assert findings.out_of_order == 5
    assert findings.faults == ["5 records are out of order within their key"]
    assert "k0 n=2" in findings.examples[0]


def test_order_is_judged_on_first_occurrences(judge: Judge) -> None:
    """A copy that comes late is a duplicate, whatever stands between; one that comes early makes the others late."""
    late_copy = moved(LOG[0], 40)
    assert judge(LOG, [*LOG, late_copy]).faults == ["1 copies of records were written"]
    shifted = [moved(row, row[4] + 1) for row in LOG]
    early_copy = moved(LOG[35], 0)
    assert judge(shifted, [early_copy, *shifted]).out_of_order == 7


def test_an_offset_that_is_read_twice_is_the_readers_fault(judge: Judge) -> None:
    findings = judge(LOG, [*LOG, LOG[5]])
    assert (findings.read_twice, findings.duplicates) == (1, 0)
    assert findings.faults == ["1 offsets were read twice"]


def test_a_run_without_acknowledgements_proves_nothing(judge: Judge) -> None:
    assert judge([], []).faults == ["nothing was acknowledged at all"]


@pytest.fixture
def frame_of(spark: SparkSession) -> Callable[..., DataFrame]:
    def made(*rows: tuple[str, int, int, str]) -> DataFrame:
        frame = spark.createDataFrame(list(rows), "key string, n long, offset long, value string")
        return frame.selectExpr("*", "0 AS partition", "timestamp'2026-01-01 10:00:00Z' AS timestamp")

    return made


def test_copies_count_once(frame_of: Callable[..., DataFrame]) -> None:
    records = first_occurrences(frame_of(("a", 0, 0, "disk full"), ("a", 1, 1, "disk again"), ("a", 0, 2, "disk full")))
    assert sorted(row["offset"] for row in records.collect()) == [0, 1]


def test_telemetry_gives_the_load_of_a_process_between_its_records(frame_of: Callable[..., DataFrame]) -> None:
    value = '{{"kind":"{kind}","at":{at},"name":"{name}","busy_seconds":{busy},"rss_bytes":{rss},"threads":3}}'
    rows = [
        ("process-1", 0, 0, value.format(kind="process", at=1_000, name="idle", busy=7, rss=1 << 20)),
        ("process-1", 1, 1, value.format(kind="process", at=5_000, name="idle", busy=7, rss=1 << 20)),
        ("process-2", 0, 2, value.format(kind="process", at=1_000, name="busy", busy=3, rss=2 << 20)),
        ("process-2", 1, 3, value.format(kind="process", at=5_000, name="busy", busy=6, rss=3 << 20)),
        ("process-3", 0, 6, value.format(kind="process", at=1_000, name="gone", busy=3, rss=2 << 20)),
        ("core-0", 0, 4, '{"kind":"core","at":1000,"busy_seconds":10}'),
        ("core-0", 1, 5, '{"kind":"core","at":5000,"busy_seconds":12}'),
    ]
    cores, processes = of_telemetry(frame_of(*rows))
    assert cores.rows == (("core-0", "50.0", 2),)
    assert processes.rows[0] == ("process-2", "busy", "75.0", "3.0", 3, 2)
    assert processes.rows[1][:3] == ("process-1", "idle", "0.0")
    assert len(processes.rows) == 2, "nothing can be said of a process that was seen once"
