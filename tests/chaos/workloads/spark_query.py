"""The query of the worker `spark`, as a process of its own: copies a topic to another one by the exactly-once sink.

`python -m tests.chaos.workloads.spark_query BOOTSTRAP SOURCE TARGET CHECKPOINT`. It ends with the query: when that has
failed, or is killed; another process continues it from the checkpoint.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

HEAP = "512m"
TRIGGER = "1 second"


def main() -> None:
    bootstrap, source, target, checkpoint = sys.argv[1:]
    session = (
        SparkSession.builder.appName("chaos")
        .master("local[1]")
        .config("spark.driver.memory", HEAP)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    (
        session.readStream.format("tidelog")
        .option("tidelog.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("value")
        .writeStream.format("tidelog")
        .option("tidelog.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=TRIGGER)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()
