"""Kafka's kafka-reassign-partitions moves a replica to another log directory of its node (KIP-113)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.interop.kafka_tools import run
from tests.kafka_nodes import kafka_cluster

pytestmark = pytest.mark.interop

cluster = kafka_cluster({"log.dirs": ["data", "more"]}, nodes=1)


def reassign(cluster: LocalCluster, plan: Path, action: str) -> str:
    printed, _ = run(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        *("--bootstrap-server", cluster.kafka_bootstrap, "--reassignment-json-file", str(plan), action),
        is_silent=True,
    )
    return printed


def test_a_plan_with_log_dirs_is_executed_and_verified(cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.create_topic("orders", 1, replicas=1)
    home = cluster.nodes[0].directory
    (target,) = [path for path in ("data", "more") if not (home / path / "orders-0").exists()]
    # The tool knows absolute paths only, which the node's configuration does not have here: it is started again.
    cluster.stop_node(0)
    config = cluster.nodes[0].config
    config.write_text(config.read_text().replace('["data", "more"]', f'["{home}/data", "{home}/more"]'))
    assert f"{home}/more" in config.read_text()
    cluster.start_node(0)
    cluster.wait_healthy(60)
    plan = tmp_path / "plan.json"
    moved = {"topic": "orders", "partition": 0, "replicas": [0], "log_dirs": [f"{home}/{target}"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    assert (
        f"Successfully started moving log directory to {home}/{target} for replica orders-0 with broker 0"
        in reassign(cluster, plan, "--execute")
    )
    cluster.wait_until((home / target / "orders-0").exists, within_s=30, what="the log has moved")
    assert "Reassignment of replica orders-0-0 completed successfully." in reassign(cluster, plan, "--verify")
