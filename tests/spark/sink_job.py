"""A streaming query whose tasks fail at random, as a process of its own: `sink_failures.py` starts and kills it.

Tasks fail while the sink gets rows (in a function of the query), and in the sink after they have committed or prepared,
by an exception or by the sudden end of their process. The driver fails in `commit`. Each failure is a line in a file. A
query that has failed is started again with another number of tasks.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tidelog.spark import TidelogDataSource
from tidelog.spark.sink.writers import TidelogStreamWriter

ROWS = 60
"""Of a batch."""


def append(file: str, line: str) -> None:
    """Add a line, which survives the end of this process."""
    note = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(note, f"{line}\n".encode())
    os.close(note)


class Failing:
    """Fails with this probability, and notes it."""

    def __init__(self, file: str, probability: float) -> None:
        self.file, self.probability = file, probability

    def maybe(self, what: str, share: float = 1.0) -> None:
        """Fail now, or not. share: of the probability."""
        dice = random.SystemRandom()
        if dice.random() >= self.probability * share:
            return
        append(self.file, what)
        if dice.random() < 0.2:
            os._exit(1)  # as a lost executor
        raise RuntimeError(f"a failure by chance: {what}")


class FailingWriter(TidelogStreamWriter):
    """The writer, with failures behind its work."""

    failing: Failing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:  # type: ignore[override]
        report = super().write(iterator)
        self.failing.maybe(f"after {report.outcome.name}", 0.5)
        return report

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        self.failing.maybe("driver before commit", 0.03)
        super().commit(messages, batchId)
        self.failing.maybe("driver after commit", 0.03)


class FailingSource(TidelogDataSource):
    """The data source with this writer."""

    @classmethod
    def name(cls) -> str:
        return "failing-tidelog"

    def streamWriter(self, schema: StructType, overwrite: bool) -> TidelogStreamWriter:
        options = dict(self.options)
        failing = Failing(options.pop("failures"), float(options.pop("probability")))
        writer = TidelogDataSource(options).streamWriter(schema, overwrite)
        assert isinstance(writer, TidelogStreamWriter)
        writer.__class__ = FailingWriter
        writer.failing = failing  # type: ignore[attr-defined]
        return writer


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "checkpoint", "failures", "starts"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--tasks", type=int, nargs="+", required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--probability", type=float, required=True)
    arguments = parser.parse_args()
    session = (
        SparkSession.builder.appName("sink-failures")
        .master("local[2,8]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.daemon.module", "tests.spark.preloading_daemon")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "2")
        .config("spark.sql.execution.python.udf.maxRecordsPerBatch", "2")
        .config("spark.sql.execution.pythonUDF.arrow.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(FailingSource)
    while True:
        query = start(session, arguments, random.SystemRandom().choice(arguments.tasks))
        with suppress(StreamingQueryException):
            while query.isActive and (query.lastProgress or {"batchId": -1})["batchId"] < arguments.batches - 1:
                query.awaitTermination(1)
        error = query.exception()
        append(arguments.starts, "complete" if error is None else reason_of(str(error)))
        if error is None:
            query.stop()
            return


def start(session: SparkSession, arguments: argparse.Namespace, tasks: int) -> StreamingQuery:
    """Start the query from its checkpoint."""
    failing = Failing(arguments.failures, arguments.probability)

    def some_fail(value: str) -> str:
        failing.maybe("among rows", 0.1)
        return value

    return (
        session.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=ROWS, numPartitions=2)
        .load()
        .selectExpr("cast(value as string) value")
        .repartition(tasks)
        .select(udf(some_fail, "string")("value").alias("value"))
        .writeStream.format("failing-tidelog")
        .option("tidelog.bootstrap.servers", arguments.bootstrap)
        .option("checkpointLocation", arguments.checkpoint)
        .option("topic", arguments.topic)
        .option("failures", arguments.failures)
        .option("probability", str(arguments.probability))
        .trigger(processingTime="0 seconds")
        .start()
    )


def reason_of(error: str) -> str:
    """What ended a query, in one line."""
    if "worker exited unexpectedly" in error:
        return "by chance"
    for name in ("DifferentRetry", "BatchNotCommitted", "OutdatedBatch", "driver before", "driver after", "by chance"):
        if name in error:
            return name
    return " ".join(error.split())[:2000]


if __name__ == "__main__":
    main()
