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

from node.process.local_cluster import LocalCluster
from tests.kafka_suites.killer import killed_in_turns
from tests.kafka_suites.suite import PARTITIONS, Effort, Suite, Verdict
from tests.kafka_suites.suite_franz_go import FRANZ_GO
from tests.kafka_suites.suite_java import JAVA
from tests.kafka_suites.suite_librdkafka import LIBRDKAFKA

SUITES: Final[dict[str, Suite]] = {suite.name: suite for suite in (FRANZ_GO, LIBRDKAFKA, JAVA)}
SETTINGS: Final = {"broker.session.timeout.ms": 9_000, "broker.heartbeat.interval.ms": 2_000}
"""Kafka's own: the suites load all cores, and expect no failover but that of a killed node."""


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
            failed += _run(SUITES[name], home / name, Effort(options.records, options.kill_every))
    return 1 if failed else 0


def _run(suite: Suite, home: Path, effort: Effort) -> int:
    """Run a suite at nodes of its own. Returns how many tests failed that should not."""
    failed = 0
    home.mkdir(parents=True)
    why_not = suite.missing()
    if why_not:
        print(f"{suite.name}: left out, {why_not}", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(home / "nodes", kafka=True, settings=SETTINGS))
        cluster.wait_healthy(60)
        for topic in suite.topics:
            cluster.create_topic(topic, PARTITIONS, min_insync_replicas="2")
        if effort.kill_every_s:
            stack.enter_context(killed_in_turns(cluster, effort.kill_every_s))
        for outcome in suite.run(cluster, home, effort):
            known = suite.known.get(outcome.test, "") if outcome.verdict is not Verdict.PASSED else ""
            failed += outcome.verdict is Verdict.FAILED and not known
            note = " ".join(filter(None, (known, outcome.note)))
            print(
                f"{suite.name:12} {outcome.verdict.value:8} {outcome.seconds:6.1f} s  {outcome.test}  {note}".rstrip()
            )
    return failed


if __name__ == "__main__":
    sys.exit(main())
