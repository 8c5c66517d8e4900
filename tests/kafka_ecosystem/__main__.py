"""`python -m tests.kafka_ecosystem`: programs around Kafka, as they are, at three nodes (`make kafka-ecosystem`).

Prints each test with its verdict and its seconds. The exit code is 1 if one failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.kafka_ecosystem.suite_connect import CONNECT
from tests.kafka_ecosystem.suite_console import CONSOLE
from tests.kafka_ecosystem.suite_registry import REGISTRY
from tests.kafka_ecosystem.suite_spark import SPARK_CONNECTOR
from tests.kafka_ecosystem.suite_streams import STREAMS
from tests.kafka_suites.runner import run_suite
from tests.kafka_suites.suite import Effort, Suite

SUITES: Final[dict[str, Suite]] = {
    suite.name: suite for suite in (STREAMS, CONNECT, SPARK_CONNECTOR, REGISTRY, CONSOLE)
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_ecosystem", description=__doc__)
    parser.add_argument("program", nargs="*", default=list(SUITES), help=f"some of: {', '.join(SUITES)}")
    parser.add_argument("--records", type=int, default=100_000, help="that each handles (%(default)s)")
    parser.add_argument("--kill-every", type=float, default=0, metavar="SECONDS", help="kill -9 and restart a node")
    parser.add_argument("--home", type=Path, help="a directory that is kept, with the logs of nodes and programs")
    options = parser.parse_args()
    unknown = sorted({*options.program} - {*SUITES})
    if unknown:
        parser.error(f"no program {unknown[0]!r}; there are: {', '.join(SUITES)}")
    failed = 0
    with ExitStack() as stack:
        home = options.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-ecosystem-")))
        for name in options.program:
            failed += run_suite(SUITES[name], home / name, Effort(options.records, options.kill_every))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
