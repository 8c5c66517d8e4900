"""Nodes with a listener of Kafka's protocol, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from node.process.local_cluster import LocalCluster

QUICK_FAILOVER: Final = {"broker.session.timeout.ms": 1_000, "broker.heartbeat.interval.ms": 200}
QUICK_GROUPS: Final = {"group.initial.rebalance.delay.ms": 0}


def kafka_cluster(*settings: Mapping[str, object], nodes: int = 3) -> Any:
    """A fixture, for a module to assign to `cluster`: that many nodes with all these settings, healthy."""
    together = {name: value for each in settings for name, value in each.items()}

    @pytest.fixture(scope="module", name="cluster")
    def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
        home = tmp_path_factory.mktemp("cluster")
        with LocalCluster(home, nodes, kafka=True, settings=together) as started:
            started.wait_healthy(60)
            yield started

    return cluster
