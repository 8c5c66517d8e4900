"""A local cluster whose nodes also listen for users, with SASL_SSL."""

from __future__ import annotations

import json
import tomllib

from node.process.local_cluster import LocalCluster


def serve_users(cluster: LocalCluster) -> None:
    """Nodes and the operator use the listener GRPC with certificates, users the listener OUTSIDE. The cluster was
    made with TLS settings and `inner=True`, and has not been started."""
    for node in cluster.nodes:
        values = tomllib.loads(node.config.read_text(encoding="utf-8")) | {
            "listeners": [f"GRPC://{node.address}", f"OUTSIDE://{node.inner}"],
            "listener.security.protocol.map": ["GRPC:GRPC_SSL", "OUTSIDE:GRPC_SASL_SSL"],
            "listener.name.outside.ssl.client.auth": "none",
            "inter.broker.listener.name": "GRPC",
            "controller.quorum.bootstrap.servers": [str(each.address) for each in cluster.nodes],
            "super.users": ["User:CN=operator"],
            "audit.log.file": str(node.directory / "audit.log"),
        }
        lines = [f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items()]
        node.config.write_text("".join(lines), encoding="utf-8")


def outside(cluster: LocalCluster) -> str:
    """The addresses for users, a bootstrap list."""
    return ",".join(str(node.inner) for node in cluster.nodes)
