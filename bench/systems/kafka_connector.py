"""Apache Kafka with Spark's Kafka connector as its client.

The connector has an environment of its own: Maven has it for few versions of Spark, and seldom for the newest.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bench.systems.kafka import Kafka
from bench.systems.system import HOME, PeerMissing

SPARK: Final = Path(os.environ.get("TIDELOG_BENCH_SPARK_PEER", HOME / "build" / "peers-spark"))
"""The environment with PySpark, and the connector's jars in `jars`: `make peers PEER=kafka` makes it."""


class KafkaWithConnector(Kafka):
    def __init__(self, directory: Path, environment: Path = SPARK) -> None:
        self._python = environment / "bin" / "python"
        if not self._python.exists() or not list((environment / "jars").glob("spark-sql-kafka-*.jar")):
            raise PeerMissing(
                "Spark's Kafka connector is not installed: `make bench SUITE=spark PEER=kafka` installs it"
            )
        super().__init__(directory)

    def interpreter(self, kind: str) -> str:
        return str(self._python) if kind == "spark" else super().interpreter(kind)
