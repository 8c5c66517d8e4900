"""A program for a driver of its own: reads topics in `local-cluster[2,1,1024]`, whose executors are real processes.

Arguments: the bootstrap addresses and a topic. Prints one JSON document: how many
executors read, and aggregates of the rows.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f


def main(bootstrap: str, topic: str) -> None:
    spark = (
        SparkSession.builder.appName("tidelog-local-cluster")
        .master("local-cluster[2,1,1024]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    source = spark.read.format("tidelog").option("tidelog.bootstrap.servers", bootstrap).option("minPartitions", "8")
    frame = source.option("subscribe", topic).load()

    def parents(rows: Iterable[Row]) -> Iterator[int]:
        """The executor's process: the parent of the daemon that forked this worker."""
        for _ in rows:
            pass
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8")
        yield int(daemon.rpartition(")")[2].split()[1])

    aggregates = (
        frame.withColumn("task", f.spark_partition_id())
        .agg(
            f.count("*").alias("rows"),
            f.sum("offset").alias("offsets"),
            f.sum(f.length("value")).alias("bytes"),
            f.countDistinct("task").alias("tasks"),
        )
        .first()
    )
    assert aggregates is not None
    executors = frame.select("offset").rdd.mapPartitions(parents).distinct().count()
    sys.stdout.write("\n" + json.dumps({"executors": executors, **aggregates.asDict()}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
