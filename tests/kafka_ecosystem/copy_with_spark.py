"""Spark's Kafka connector copies a topic: `ADDRESSES FROM TO_BY_BATCH TO_BY_STREAM JARS`.

A batch copies all that is there, and then a stream, until nothing is left.
"""

import sys
import tempfile

from pyspark.sql import SparkSession


def main() -> None:
    addresses, source, batch, stream, jars = sys.argv[1:]
    nodes = {"kafka.bootstrap.servers": addresses}
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    records = spark.read.format("kafka").options(**nodes).option("subscribe", source).load()
    records.select("key", "value").write.format("kafka").options(**nodes).option("topic", batch).save()

    new = (
        spark.readStream.format("kafka")
        .options(**nodes)
        .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="10000")
        .load()
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            new.select("key", "value")
            .writeStream.format("kafka")
            .options(**nodes)
            .options(topic=stream, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
