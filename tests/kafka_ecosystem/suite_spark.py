"""Spark's own Kafka connector reads and writes topics, by batch and by stream.

The newest PySpark may have no connector at Maven yet: the one of `make bench SUITE=spark PEER=kafka` is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.systems.kafka_connector import SPARK
from tests.kafka_ecosystem.programs import HERE, Failed, committed, finished, outcome, write
from tests.kafka_suites.suite import Effort, Nodes, Outcome, Suite


def _missing() -> str:
    return "" if (SPARK / "jars").is_dir() else "it is not installed: `make kafka-ecosystem` does, with pip and Maven"


def _run(cluster: Nodes, home: Path, effort: Effort) -> Iterator[Outcome]:
    yield outcome("batch and stream, from topic to topic", lambda: _copy(cluster, home, effort))


def _copy(cluster: Nodes, home: Path, effort: Effort) -> None:
    values = [f"record-{number}" for number in range(effort.records)]
    write(cluster, "records", values)
    python = SPARK / "bin" / "python"
    topics = ("batch", "stream")
    jars = ",".join(map(str, (SPARK / "jars").glob("*.jar")))
    finished(
        [python, HERE / "copy_with_spark.py", cluster.kafka_bootstrap, "records", *topics, jars],
        home / "spark.log",
        # Spark's workers run the interpreter that has PySpark's version.
        {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)},
    )
    for topic in topics:
        copies = [row.value for row in committed(cluster, topic)]
        if sorted(copies) != sorted(values):
            missing = len(set(values) - set(copies))
            raise Failed(f"{len(values)} records, {len(copies)} copies in topic {topic}, {missing} missing")


SPARK_CONNECTOR: Final = Suite("spark", _missing, _run, ("records", "batch", "stream"))
