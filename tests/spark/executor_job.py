"""A driver of its own whose executors are real processes: `test_executors.py` starts it.

Parts, the first argument after the options:

- `count`: reads a topic in 8 and more tasks; prints how many executors read, and aggregates of the rows;
- `rows`: prints the rows of a topic, then writes them to another one;
- `stream`: a streaming query from the one topic to the other, with a shuffle between them, until all is written.

Some records bring trouble to the task that reads them, the first time only, as `--trouble 700=kill` says: `kill` is the
end of the executor's process; `stuck` is a task that never ends; `race` is one that goes on when a second attempt has
come as far as it did. A file in the directory of notes tells that it has happened.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    "spark.executor.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
}

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.efficiency.enabled": "false",
}
"""A second attempt of what takes long, on another host, while the first goes on."""


def executor_of_this_task() -> int:
    """The executor's process: the parent of the daemon that forked this worker."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8")
    return int(daemon.rpartition(")")[2].split()[1])


@dataclass(frozen=True)
class Troubled:
    """A function of a query: passes its values on, and causes trouble at some of them. notes: a directory, with a named
    pipe for each race."""

    notes: str
    trouble: Mapping[str, str]

    def __call__(self, value: str) -> str:
        kind = self.trouble.get(value)
        if kind is not None:
            first = self._note(f"{value}.first")
            if not first:
                self._note(f"{value}.second")
            self._cause(kind, value, first=first)
        return value

    def _cause(self, kind: str, value: str, *, first: bool) -> None:
        if kind == "kill" and first:
            os.kill(executor_of_this_task(), signal.SIGKILL)
        elif kind == "stuck" and first:
            signal.pause()
        elif kind == "race":
            pipe = os.path.join(self.notes, f"{value}.pipe")  # noqa: PTH118 - runs where only the standard library is
            os.close(os.open(pipe, os.O_RDONLY if first else os.O_RDWR))

    def _note(self, name: str) -> bool:
        """Create the file; False if it exists."""
        try:
            os.close(os.open(os.path.join(self.notes, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY))  # noqa: PTH118
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True)
class ExecutorJob:
    """The parts of the program."""

    spark: SparkSession
    arguments: argparse.Namespace

    def frame(self, *, stream: bool = False, **options: str) -> DataFrame:
        source = (self.spark.readStream if stream else self.spark.read).format("tidelog").options(**options)
        return source.option("tidelog.bootstrap.servers", self.arguments.bootstrap).load()

    def passed(self, frame: DataFrame) -> DataFrame:
        """The frame, with trouble."""
        passes = f.udf(
            Troubled(self.arguments.notes, dict(each.split("=") for each in self.arguments.trouble)), "string"
        )
        return frame.select("topic", "partition", "offset", passes(f.col("value").cast("string")).alias("value"))

    def count(self) -> dict[str, int]:
        frame = self.frame(subscribe=self.arguments.source, minPartitions="8")

        def executors(rows: Iterable[Row]) -> Iterator[int]:
            for _ in rows:
                pass
            yield executor_of_this_task()

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
        found = frame.select("offset").rdd.mapPartitions(executors).distinct().count()
        return {"executors": found, **aggregates.asDict()}

    def rows(self) -> list[list[object]]:
        frame = self.frame(subscribe=self.arguments.source, minPartitions="8")
        found = sorted([*row] for row in self.passed(frame).collect())
        writer = frame.select("value", "partition").write.format("tidelog").mode("append")
        writer.option("tidelog.bootstrap.servers", self.arguments.bootstrap).option("topic", self.arguments.sink).save()
        return found

    def stream(self) -> None:
        frame = self.frame(
            stream=True, subscribe=self.arguments.source, startingOffsets="earliest", maxOffsetsPerTrigger="500"
        )
        writer = self.passed(frame.repartition(4, "value")).select("value").writeStream.format("tidelog")
        query = (
            writer.option("tidelog.bootstrap.servers", self.arguments.bootstrap)
            .option("checkpointLocation", self.arguments.checkpoint)
            .option("topic", self.arguments.sink)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("count", "rows", "stream"))
    parser.add_argument("--master", default="local-cluster[2,1,1024]")
    parser.add_argument("--trouble", nargs="*", default=[], metavar="VALUE=KIND")
    parser.add_argument("--speculation", action="store_true")
    for name in ("bootstrap", "source", "sink", "checkpoint", "notes"):
        parser.add_argument(f"--{name}")
    arguments = parser.parse_args()
    builder = SparkSession.builder.appName("tidelog-executors").master(arguments.master)
    for name, value in {**SETTINGS, **(SPECULATION if arguments.speculation else {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    found = getattr(ExecutorJob(spark, arguments), arguments.part)()
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
