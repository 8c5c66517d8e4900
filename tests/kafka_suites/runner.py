"""Runs a suite at three nodes of its own, and prints each test with its verdict and its seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from node.process.local_cluster import LocalCluster
from tests.kafka_suites.kafka_brokers import KafkaBrokers
from tests.kafka_suites.killer import killed_in_turns
from tests.kafka_suites.suite import PARTITIONS, Effort, Nodes, Outcome, Suite, Verdict

SETTINGS: Final = {
    "broker.session.timeout.ms": 30_000,
    "broker.heartbeat.interval.ms": 2_000,
    "auto.create.topics.enable": True,
    "num.partitions": 4,
    "default.replication.factor": 3,
}
"""The suites load all cores, and expect no failover but that of a killed node, which its closed port reveals at once:
a session lasts longer than any of them waits for a core. Some write to topics that nobody has created."""


@contextmanager
def _started(home: Path, settings: Mapping[str, object], *, at_kafka: bool) -> Iterator[Nodes]:
    if at_kafka:
        with KafkaBrokers(home / "brokers", settings) as brokers:
            yield brokers
    else:
        with LocalCluster(home / "nodes", kafka=True, settings=settings) as cluster:
            cluster.wait_healthy(60)
            yield cluster


def outcomes(suite: Suite, home: Path, effort: Effort) -> Iterator[Outcome]:
    """Run a suite at nodes of its own; all logs are kept in `home`."""
    with _started(home, {**SETTINGS, **suite.settings}, at_kafka=effort.at_kafka) as nodes:
        for topic in suite.topics:
            nodes.create_topic(topic, PARTITIONS, min_insync_replicas="2")
        if not effort.kill_every_s:
            yield from suite.run(nodes, home, effort)
            return
        with killed_in_turns(nodes, effort.kill_every_s) as killed:
            yield from suite.run(nodes, home, effort)
        print(f"{suite.name:12} nodes were killed {len(killed)} times")


def run_suite(suite: Suite, home: Path, effort: Effort) -> int:
    """Run a suite; its logs are kept in `home`, which must not exist. Returns how many tests failed that should not."""
    failed = 0
    home.mkdir(parents=True)
    why_not = suite.missing()
    if why_not:
        print(f"{suite.name}: left out, {why_not}", file=sys.stderr)
        return 1
    for outcome in outcomes(suite, home, effort):
        known = suite.known.get(outcome.test, "") if outcome.verdict is not Verdict.PASSED else ""
        failed += outcome.verdict is Verdict.FAILED and not known
        note = " ".join(filter(None, (known, outcome.note)))
        print(f"{suite.name:12} {outcome.verdict.value:8} {outcome.seconds:6.1f} s  {outcome.test}  {note}".rstrip())
    return failed
