"""A driver of its own whose executor is a real process, which reads history from the store: `test_history_in_s3.py`
starts it. Prints the rows of a frame and those of a query with `availableNow`, or the error of the first."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.executor_job import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows_of(frame: DataFrame) -> list[list[Any]]:
    return sorted([row.partition, row.offset, bytes(row.value).decode()] for row in frame.collect())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--secret", help="of the executor; the driver's without it")
    for name in ("bootstrap", "topic", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    builder = SparkSession.builder.appName("tidelog-history").master("local-cluster[1,2,1024]")
    secret = {} if arguments.secret is None else {"spark.executorEnv.AWS_SECRET_ACCESS_KEY": arguments.secret}
    for name, value in {**SETTINGS, **secret}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    options = {
        "tidelog.bootstrap.servers": arguments.bootstrap,
        "subscribe": arguments.topic,
        "remoteStorage": "on",
        "startingOffsets": "earliest",
        "maxRecordsPerPartition": "50",
    }
    found: dict[str, Any] = {}
    try:
        found["batch"] = rows_of(spark.read.format("tidelog").options(**options).load())
    except PySparkException as error:
        found["error"] = str(error)
    else:
        streamed = found["stream"] = []
        stream = spark.readStream.format("tidelog").options(**options, maxOffsetsPerTrigger="100").load()
        writer = stream.writeStream.foreachBatch(lambda frame, _: streamed.extend(rows_of(frame)))
        query = writer.option("checkpointLocation", arguments.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
