"""`python -m tests.kafka_ecosystem`: programs around Kafka, as they are, at three nodes (`make kafka-ecosystem`).

Prints each test with its verdict and its seconds. The exit code is 1 if one failed.
"""

from __future__ import annotations

import sys
from typing import Final

from tests.kafka_ecosystem.suite_connect import CONNECT
from tests.kafka_ecosystem.suite_console import CONSOLE
from tests.kafka_ecosystem.suite_dev_ui import DEV_UI
from tests.kafka_ecosystem.suite_flink import FLINK
from tests.kafka_ecosystem.suite_mirror import MIRROR
from tests.kafka_ecosystem.suite_registry import REGISTRY
from tests.kafka_ecosystem.suite_spark import SPARK_CONNECTOR
from tests.kafka_ecosystem.suite_streams import STREAMS
from tests.kafka_suites.command import run

SUITES: Final = (STREAMS, CONNECT, MIRROR, SPARK_CONNECTOR, FLINK, REGISTRY, CONSOLE, DEV_UI)

if __name__ == "__main__":
    sys.exit(run("tests.kafka_ecosystem", __doc__, 100_000, SUITES))
