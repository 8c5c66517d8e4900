"""The command line that runs suites, those of clients and of programs around Kafka."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.kafka_suites.runner import run_suite
from tests.kafka_suites.suite import Effort, Suite


def run(package: str, description: str | None, records: int, suites: Sequence[Suite]) -> int:
    """Run the named suites, by default all, and print each test with its verdict and its seconds. records: how many
    each handles by default. Returns the exit code: 1 if a test failed that should not."""
    names = {suite.name: suite for suite in suites}
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=description)
    parser.add_argument("suite", nargs="*", default=list(names), help=f"some of: {', '.join(names)}")
    parser.add_argument("--records", type=int, default=records, help="that each test handles (%(default)s)")
    parser.add_argument("--kill-every", type=float, default=0, metavar="SECONDS", help="kill -9 and restart a node")
    parser.add_argument("--at-kafka", action="store_true", help="three brokers of Apache Kafka in place of nodes")
    parser.add_argument("--home", type=Path, help="a directory that is kept, with the logs of nodes and suites")
    options = parser.parse_args()
    unknown = sorted({*options.suite} - {*names})
    if unknown:
        parser.error(f"no suite {unknown[0]!r}; there are: {', '.join(names)}")
    effort = Effort(options.records, options.kill_every, options.at_kafka)
    failed = 0
    with ExitStack() as stack:
        home = options.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-suites-")))
        for name in options.suite:
            failed += run_suite(names[name], home / name, effort)
    return 1 if failed else 0
