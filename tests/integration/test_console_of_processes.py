"""The web console of nodes as they are run: beside the metrics, unless a setting leaves it out."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tidelog import sync

pytestmark = pytest.mark.integration


def get(address: object, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_port_of_the_metrics_has_a_console_which_a_setting_leaves_out(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "with", nodes=2) as cluster:
        cluster.wait_healthy()
        with sync.Admin(cluster.bootstrap) as admin:
            admin.create_topic("orders", partitions=2, replication_factor=2)
        address = cluster.nodes[1].metrics
        assert "tidelog_ready 1" in get(address, "/metrics")[1]
        for path in ("/", "/topics", "/topic?name=orders", "/records?name=orders", "/groups", "/live"):
            status, page = get(address, path)
            assert (status, "Tidelog" in page) == (200, True), page
        assert get(address, "/topic/create")[0] == 403, "a cluster without users is only looked at"
    with LocalCluster(tmp_path / "without", nodes=1, settings={"console.enabled": False}) as cluster:
        cluster.wait_healthy()
        assert get(cluster.nodes[0].metrics, "/")[0] == 404
        assert get(cluster.nodes[0].metrics, "/metrics")[0] == 200
