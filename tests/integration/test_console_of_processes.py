"""The web console of nodes as they are run: beside the metrics, unless a setting leaves it out."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.certificates import Authority, settings_of
from tests.node.kafka_tls_clients import client_of
from tidelog import sync

pytestmark = pytest.mark.integration


def get(address: object, path: str, tls: ssl.SSLContext | None = None) -> tuple[int, str]:
    scheme = "http" if tls is None else "https"
    request = urllib.request.Request(f"{scheme}://{address}{path}")
    try:
        with urllib.request.urlopen(request, timeout=20, context=tls) as answer:
            return int(answer.status), str(answer.read().decode())
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


def test_with_tls_a_certificate_says_who_the_visitor_is(tmp_path: Path) -> None:
    """Of two nodes that know each other by certificates: the console of one asks the other in the visitor's name."""
    authority = Authority(tmp_path / "certificates")
    settings = {
        **settings_of(authority.node()),
        "listener.security.protocol.map": ["GRPC:GRPC_SSL"],
        "metrics.tls.listener": "GRPC",
        "super.users": ["User:CN=admin"],
    }
    admin, bob = authority.client("admin"), authority.client("bob")
    with LocalCluster(tmp_path / "cluster", 2, settings=settings, tls=admin) as cluster:
        cluster.wait_healthy()
        cluster.create_topic("orders", 2, 1)
        address = cluster.nodes[0].metrics
        for partition in range(2):
            path = f"/records?name=orders&partition={partition}"
            assert get(address, path, client_of(admin))[0] == 200
            assert get(address, path, client_of(bob))[0] == 403
        assert "CN=admin" in get(address, "/topic/create", client_of(admin))[1]
        stranger = client_of(admin, has_certificate=False)
        assert "Log in" in get(address, "/topics", stranger)[1]
        metrics = get(address, "/metrics", stranger)[1]
        assert "tidelog_ready 1" in metrics
        certificates = 'tidelog_certificate_not_after_seconds{listener="GRPC"}'
        assert metrics.count(certificates) == 1, "the port has the certificate of the listener, which is there once"
    settings["console.enabled"] = False
    with LocalCluster(tmp_path / "without", 1, settings=settings, tls=admin) as cluster:
        cluster.wait_healthy()
        address = cluster.nodes[0].metrics
        assert "tidelog_ready 1" in get(address, "/metrics", stranger)[1], "the port has TLS also without the console"
        assert get(address, "/", stranger)[0] == 404
