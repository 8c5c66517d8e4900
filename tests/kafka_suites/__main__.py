"""`python -m tests.kafka_suites`: test suites of Kafka's clients, unmodified, at three nodes (`make kafka-suites`).

Prints each test with its verdict and its seconds. The exit code is 1 if one failed that a Kafka broker passes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.kafka_suites.runner import run_suite
from tests.kafka_suites.suite import Effort, Suite
from tests.kafka_suites.suite_franz_go import FRANZ_GO
from tests.kafka_suites.suite_java import JAVA
from tests.kafka_suites.suite_librdkafka import LIBRDKAFKA

SUITES: Final[dict[str, Suite]] = {suite.name: suite for suite in (FRANZ_GO, LIBRDKAFKA, JAVA)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_suites", description=__doc__)
    parser.add_argument("suite", nargs="*", default=list(SUITES), help=f"some of: {', '.join(SUITES)}")
    parser.add_argument("--records", type=int, default=500_000, help="of each transformation (%(default)s)")
    parser.add_argument("--kill-every", type=float, default=0, metavar="SECONDS", help="kill -9 and restart a node")
    parser.add_argument("--home", type=Path, help="a directory that is kept, with the logs of nodes and suites")
    options = parser.parse_args()
    unknown = sorted({*options.suite} - {*SUITES})
    if unknown:
        parser.error(f"no suite {unknown[0]!r}; there are: {', '.join(SUITES)}")
    failed = 0
    with ExitStack() as stack:
        home = options.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-suites-")))
        for name in options.suite:
            failed += run_suite(SUITES[name], home / name, Effort(options.records, options.kill_every))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
