"""Runs a suite at three nodes of its own, and prints each test with its verdict and its seconds."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from node.process.local_cluster import LocalCluster
from tests.kafka_suites.killer import killed_in_turns
from tests.kafka_suites.suite import PARTITIONS, Effort, Suite, Verdict

SETTINGS: Final = {
    "broker.session.timeout.ms": 9_000,
    "broker.heartbeat.interval.ms": 2_000,
    "auto.create.topics.enable": True,
    "num.partitions": 4,
    "default.replication.factor": 3,
}
"""Times as Kafka's: the suites load all cores, and expect no failover but that of a killed node. Some write to topics
that nobody has created."""


def run_suite(suite: Suite, home: Path, effort: Effort) -> int:
    """Run a suite; its logs are kept in `home`, which must not exist. Returns how many tests failed that should not."""
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
