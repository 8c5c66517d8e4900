"""What Spark proves about the records it read: none that was acknowledged is missing, and each key is in order.

All of it is DataFrame work: joins for what is missing, windows for order, groups for duplicates; only counts and a few
examples come back. A record is (key, n): its key and its number within the key.

  ledger      key, n, crc, partition, offset   one row for each acknowledgement
  committed   key, n, crc, partition, offset   one row for each record that was read
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from examples.demo.ledger import NUMBER_HEADER

EXAMPLES_MAX: Final = 5
IDENTITY: Final = ["key", "n"]
PLACE: Final = ["partition", "offset"]


@dataclass(frozen=True, slots=True)
class Findings:
    """Counts of records, and some examples of what is wrong."""

    acknowledged: int
    """Rows of the ledger."""
    read: int
    """Records that Spark read."""
    missing: int
    """Acknowledged, but nothing was read at that partition and offset."""
    altered: int
    """Acknowledged, but another key, number or value was read there."""
    duplicates: int
    """Further copies of a record: a batch that was sent again, and appended again."""
    out_of_order: int
    """Records whose first occurrence comes after that of a later record of the same key."""
    read_twice: int
    """The same partition and offset came more than once: the reader's fault."""
    unexpected: int
    """Read, but never acknowledged at any place."""
    examples: tuple[str, ...] = ()

    @property
    def faults(self) -> list[str]:
        """What breaks a promise; empty: all are kept."""
        wrong = {
            "acknowledged records are missing": self.missing,
            "acknowledged records came back altered": self.altered,
            "copies of records were written": self.duplicates,
            "records are out of order within their key": self.out_of_order,
            "offsets were read twice": self.read_twice,
            "records were read that were not acknowledged": self.unexpected,
        }
        found = [f"{count} {what}" for what, count in wrong.items() if count]
        return found if self.acknowledged else ["nothing was acknowledged at all", *found]


def stream_committed(spark: SparkSession, bootstrap: str, topic: str, scratch: Path) -> DataFrame:
    """All that is committed in the topic, by a streaming query into Parquet that ends with what was there when it
    began: key, n, crc, partition, offset, and value and timestamp for the analysis."""
    raw = (
        spark.readStream.format("tidelog")
        .option("tidelog.bootstrap.servers", bootstrap)
        .option("tidelog.group.id", f"{topic}-check")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    writer = _columns(raw).writeStream.format("parquet").option("path", str(scratch / "committed.parquet"))
    writer = writer.option("checkpointLocation", str(scratch / "committed.checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    return spark.read.parquet(str(scratch / "committed.parquet"))


def _columns(raw: DataFrame) -> DataFrame:
    number = F.expr(f"filter(headers, header -> header.key = '{NUMBER_HEADER}')[0].value")
    return raw.select(
        F.col("key").cast("string").alias("key"),
        number.cast("string").cast("long").alias("n"),
        F.crc32("value").alias("crc"),
        "partition",
        "offset",
        "timestamp",
        F.col("value").cast("string").alias("value"),
    )


def first_occurrences(committed: DataFrame) -> DataFrame:
    """Each record once: the copy that comes first in its partition."""
    rank = F.row_number().over(Window.partitionBy(*IDENTITY).orderBy(*PLACE))
    return committed.withColumn("copy", rank).where("copy = 1").drop("copy")


def plant_loss(committed: DataFrame, ledger: DataFrame) -> DataFrame:
    """Leave out one acknowledged record of those read: the check must find that it is missing."""
    chosen = ledger.select(*PLACE).orderBy(F.xxhash64(*PLACE)).limit(1)
    return committed.join(F.broadcast(chosen), PLACE, "left_anti")


def check(ledger: DataFrame, committed: DataFrame) -> Findings:
    """Compare what was acknowledged with what was read. Both are used several times: give them cached."""
    compared = _compared(ledger, committed)
    ordered = _ordered(committed)
    totals = compared.agg(
        F.count("*").alias("acknowledged"),
        F.count_if("missing").alias("missing"),
        F.count_if("altered").alias("altered"),
    ).first()
    seen = committed.agg(F.count("*").alias("read"), F.count_distinct(*PLACE).alias("places")).first()
    sequence = ordered.agg(F.sum(F.col("copies") - 1).alias("again"), F.count_if("late").alias("late")).first()
    unexpected = committed.join(ledger, IDENTITY, "left_anti").select(*IDENTITY).distinct().count()
    assert totals is not None
    assert seen is not None
    assert sequence is not None
    findings = Findings(
        acknowledged=totals["acknowledged"],
        read=seen["read"],
        missing=totals["missing"],
        altered=totals["altered"],
        duplicates=(sequence["again"] or 0) - (seen["read"] - seen["places"]),
        out_of_order=sequence["late"],
        read_twice=seen["read"] - seen["places"],
        unexpected=unexpected,
    )
    if not findings.faults:
        return findings
    return replace(findings, examples=_examples(compared, ordered))


def _compared(ledger: DataFrame, committed: DataFrame) -> DataFrame:
    """The ledger, with what was found at each place; `missing` and `altered` say what is wrong."""
    there = committed.dropDuplicates(PLACE).select(
        *PLACE, F.struct(*IDENTITY, "crc").alias("found"), F.expr("true").alias("present")
    )
    same = F.col("found").eqNullSafe(F.struct(*IDENTITY, "crc"))
    present = F.col("present").isNotNull()
    return ledger.join(there, PLACE, "left").withColumns({"missing": ~present, "altered": present & ~same})


def _ordered(committed: DataFrame) -> DataFrame:
    """Each record with its copies; `late`: a later record of its key was written before it."""
    firsts = committed.groupBy(*IDENTITY).agg(F.min(F.struct(*PLACE)).alias("place"), F.count("*").alias("copies"))
    before = Window.partitionBy("key").orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    return firsts.withColumn("late", F.coalesce(F.max("n").over(before) > F.col("n"), F.expr("false")))


def _examples(compared: DataFrame, ordered: DataFrame) -> tuple[str, ...]:
    absent = compared.where("missing OR altered").orderBy(*PLACE).limit(EXAMPLES_MAX).collect()
    twice = ordered.where("copies > 1").orderBy("place").limit(EXAMPLES_MAX).collect()
    late = ordered.where("late").orderBy("place").limit(EXAMPLES_MAX).collect()
    return (
        *(
            f"{row['key']} n={row['n']} crc={row['crc']:08x}, acknowledged at {row['partition']}@{row['offset']}: "
            + ("not there" if row["missing"] else _told(row["found"]))
            for row in absent
        ),
        *(
            f"{row['key']} n={row['n']}, first at {row['place']['partition']}@{row['place']['offset']}: "
            f"read {row['copies']} times"
            for row in twice
        ),
        *(
            f"{row['key']} n={row['n']}, first at {row['place']['partition']}@{row['place']['offset']}: "
            "after a later record of its key"
            for row in late
        ),
    )


def _told(found: Row) -> str:
    return f"found {found['key']} n={found['n']} crc={found['crc']:08x}"
