"""The load of Spark: one driver with `local[2]` for all jobs of a system.

It runs in the environment of the connector: this checkout's for Tidelog's source and sink, build/peers-spark for
Spark's Kafka connector, whose jars are in `jars` there. Both take the same options but for their first word, and the
same queries run over both. `Job.connector` is `tidelog`, `kafka`, `prebuilt` (bench/loads/prebuilt_arrow.py) or
`parquet`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql import SparkSession

from bench.loads.job import Gate, Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

JARS: Final = Path(sys.prefix) / "jars"
"""Those of the connector, in the environment of the peer."""
COLUMNS: Final = {"all": "", "value": "value binary", "count": "partition int"}
"""What a query reads, by `Job.columns`. Spark does not tell a Python source which columns a query uses, so its schema
names them; the Kafka connector gets the same columns by `select`, and finds out for a count by itself."""
RAW_LOCAL_FILES: Final = "org.apache.hadoop.fs.local.RawLocalFs"
"""Without it each file of a checkpoint has another one with its checksum, and Hadoop runs `chmod` for both."""
FILL_BATCH_BYTES: Final = 256 * 1024
STREAM_SECONDS_MAX: Final = 170.0
IDLE_TRIGGERS: Final = 20
DIGITS: Final = 12
"""Of the number that ends a value; the others are constant."""


def start(_job: Job, _gate: Gate) -> dict[str, Any]:
    """Start the session. Answers with Spark's version."""
    _session()
    return {"version": pyspark.__version__}


def fill(job: Job, _gate: Gate) -> dict[str, Any]:
    """Append `rows` rows to the topic, as many to each partition, in batches of 256 KiB from either system."""
    at_least_once = {"exactlyOnce": "false"} if job.connector == "tidelog" else {}
    options = {f"{job.connector}.batch.size": str(FILL_BATCH_BYTES), f"{job.connector}.linger.ms": "5"}
    _write(job, _rows(job, f"cast(id % {job.partitions} as int) as partition"), {**options, **at_least_once})
    return {}


def read(job: Job, _gate: Gate) -> dict[str, Any]:
    """Read the whole topic once: all columns or the value into Spark's `noop` sink, or a count."""
    frame = _frame(job)
    began = time.perf_counter()
    if job.columns == "count":
        found = frame.count()
        seconds = time.perf_counter() - began
        if found != job.rows:
            raise RuntimeError(f"{job.topic}: {found} rows instead of {job.rows}")
    else:
        frame.write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - began
    return {"rows": job.rows, "seconds": seconds}


def write(job: Job, _gate: Gate) -> dict[str, Any]:
    """Write `rows` rows made by Spark, with the options of the job."""
    frame = _rows(job)
    began = time.perf_counter()
    _write(job, frame, job.options)
    return {"rows": job.rows, "seconds": time.perf_counter() - began}


def save_parquet(job: Job, _gate: Gate) -> dict[str, Any]:
    """Write the topic once as Parquet, into the folder `path` of the options."""
    _frame(job._replace(options={})).write.parquet(job.options["path"])
    return {}


def stream(job: Job, _gate: Gate) -> dict[str, Any]:
    """Read the topic in micro-batches of `maxOffsetsPerTrigger`. Answers with the rows of all batches but the first,
    and the time that Spark reports for these batches: planning, checkpoint and all."""
    query = _stream(job).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(STREAM_SECONDS_MAX):
            raise RuntimeError(f"{job.topic}: the query did not end within {STREAM_SECONDS_MAX:g} s")
    finally:
        query.stop()
    batches = [each for each in _progress(query) if each["numInputRows"]]
    if sum(each["numInputRows"] for each in batches) != job.rows:
        raise RuntimeError(f"{job.topic}: the batches have {[each['numInputRows'] for each in batches]} rows")
    counted = batches[1:]
    return {
        "all_rows": job.rows,
        "rows": sum(each["numInputRows"] for each in counted),
        "seconds": sum(each["durationMs"]["triggerExecution"] for each in counted) / 1000,
    }


def small_batches(job: Job, _gate: Gate) -> dict[str, Any]:
    """Read the topic in small micro-batches to its end, and go on until Spark has looked for more some times. Answers
    with the milliseconds of the batches but the first ones, with the medians of their steps as Spark reports them, and
    with the milliseconds of the triggers that found nothing."""
    query = _stream(job).start()
    deadline = time.perf_counter() + STREAM_SECONDS_MAX
    try:
        while len(_empty(query)) < IDLE_TRIGGERS and query.isActive and time.perf_counter() < deadline:
            query.awaitTermination(0.1)
        found = [each["durationMs"] for each in _progress(query) if each["numInputRows"]]
        empty = [each["durationMs"]["triggerExecution"] for each in _empty(query)]
        if query.exception() is not None or len(found) < 2 or not empty:
            raise RuntimeError(f"{job.topic}: {len(found)} batches, {len(empty)} empty ones: {query.exception()}")
    finally:
        query.stop()
    counted = found[len(found) // 4 :]
    steps = {step: statistics.median(each.get(step, 0) for each in counted) for step in counted[0]}
    return {"small_ms": [each["triggerExecution"] for each in counted], "empty_ms": empty, "steps_ms": steps}


@cache
def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.appName("bench")
        .master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")  # as docs/spark.md advises
        .config("spark.hadoop.fs.AbstractFileSystem.file.impl", RAW_LOCAL_FILES)  # likewise
        .config("spark.sql.streaming.noDataProgressEventInterval", "0")
        .config("spark.sql.streaming.numRecentProgressUpdates", "500")
    )
    if JARS.exists():
        builder = builder.config("spark.driver.extraClassPath", f"{JARS}/*")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if not JARS.exists():
        from bench.loads.prebuilt_arrow import PrebuiltDataSource

        session.dataSource.register(PrebuiltDataSource)
    return session


def _frame(job: Job) -> DataFrame:
    reader = _session().read.format(job.connector).options(**_source(job))
    schema = COLUMNS[job.columns]
    if schema and job.connector != "kafka":
        return reader.schema(schema).load()
    return reader.load().select("value") if job.columns == "value" else reader.load()


def _source(job: Job) -> dict[str, str]:
    if job.connector == "parquet":
        return dict(job.options)
    if job.connector == "prebuilt":
        return {"rows": str(job.rows), "partitions": str(job.partitions), "valueBytes": str(job.value_bytes)}
    address = {f"{job.connector}.bootstrap.servers": job.bootstrap, "subscribe": job.topic}
    return {**address, "startingOffsets": "earliest", **job.options}


def _stream(job: Job) -> Any:
    """A writer of all columns into Spark's `noop` sink; the option `checkpointLocation` is a new directory."""
    options = dict(job.options)
    checkpoint = options.pop("checkpointLocation")
    frame = _session().readStream.format(job.connector).options(**_source(job._replace(options=options))).load()
    return frame.writeStream.format("noop").option("checkpointLocation", checkpoint)


def _progress(query: StreamingQuery) -> list[dict[str, Any]]:
    return [json.loads(each.json) for each in query.recentProgress]


def _empty(query: StreamingQuery) -> list[dict[str, Any]]:
    """The triggers that found nothing."""
    return [each for each in _progress(query) if not each["numInputRows"]]


def _rows(job: Job, *columns: str) -> DataFrame:
    """Rows that cost Spark next to nothing, in as many tasks as the topic has partitions. Only the last digits of a
    value are made for its row: padding all of a KiB takes the JVM 10 us, a third of what the sink then takes."""
    constant = "0" * (job.value_bytes - DIGITS)
    value = f"cast(concat('{constant}', lpad(cast(id as string), {DIGITS}, '0')) as binary) as value"
    return _session().range(0, job.rows, 1, job.partitions).selectExpr(value, *columns)


def _write(job: Job, frame: DataFrame, options: Any) -> None:
    writer = frame.write.format(job.connector).mode("append").option("topic", job.topic)
    writer.options(**{f"{job.connector}.bootstrap.servers": job.bootstrap, **options}).save()
