"""`python -m tests.kafka_suites`: test suites of Kafka's clients, unmodified, at three nodes (`make kafka-suites`).

Prints each test with its verdict and its seconds. The exit code is 1 if one failed that a Kafka broker passes.
"""

from __future__ import annotations

import sys

from tests.kafka_suites.command import run
from tests.kafka_suites.suite_franz_go import FRANZ_GO
from tests.kafka_suites.suite_java import JAVA
from tests.kafka_suites.suite_librdkafka import LIBRDKAFKA

if __name__ == "__main__":
    sys.exit(run("tests.kafka_suites", __doc__, 500_000, (FRANZ_GO, LIBRDKAFKA, JAVA)))
