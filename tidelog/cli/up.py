"""`tidelog up`: a cluster of node processes on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.cli.output import Json, counted, print_json
from tidelog.cli.server_packages import server_module
from tidelog.standard_streams import say

NODES = 3
"""Nodes of a new cluster."""
NODES_MAX = 9
PORT_MAX = 65_535 - 100 - NODES_MAX
"""Highest port of the first node for clients of Kafka: the other nodes use the following ones, and the ports for
Tidelog's clients are 100 higher."""


def up(
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes", "-n", min=1, max=NODES_MAX, help=f"Number of nodes, at least those in --data; default {NODES}."
        ),
    ] = None,
    data: Annotated[Path, typer.Option("--data", "-d", help="Directory for configuration, data and logs.")] = Path(
        "tidelog-data"
    ),
    port: Annotated[
        int,
        typer.Option(
            "--port",
            min=0,
            max=PORT_MAX,
            help="Port of the first node for clients of Kafka; the other nodes use the following ones. Ports for "
            "Tidelog's clients are 100 higher. 0: free ports.",
        ),
    ] = 9092,
    as_json: Json = False,
) -> None:
    """Start nodes on this machine and keep them running until interrupted (Ctrl-C).

    Each node listens for Tidelog's clients (by default 127.0.0.1:9192, 9193, ...) and for clients of Kafka (9092, 9093,
    ...), which use the same topics. The same directory starts the same cluster again, with all its nodes and addresses.
    A node that dies (try kill) is restarted.
    """
    server_module("node.process.process")  # missing packages are reported here, not only in the nodes' logs
    local: Any = server_module("node.process.local_cluster")
    try:
        existing = local.node_count(data)
        # All nodes of the directory are started, even if fewer are named: fewer might not be a majority of the voters.
        cluster = local.LocalCluster(data, max(nodes or existing or NODES, existing), first_port=port, kafka=True)
        cluster.run(ready=lambda: _announce(cluster, nodes, as_json=as_json), say=say)
    except local.ClusterFailed as failure:
        for line in f"tidelog: {failure}".splitlines():  # with the last lines of a node's log
            say(line)
        raise typer.Exit(1) from None


def _announce(cluster: Any, asked: int | None, *, as_json: bool) -> None:
    """Print how to use the cluster. asked: the number of nodes on the command line, if it was given."""
    if asked is not None and asked < len(cluster.nodes):
        say(
            f"{cluster.directory} has a cluster of {len(cluster.nodes)} nodes: all are started, since {asked} may not "
            "be a majority of its voters"
        )
    pids = [node.pid for node in cluster.nodes]
    if as_json:
        document = {
            "bootstrap": cluster.bootstrap,
            "kafka_bootstrap": cluster.kafka_bootstrap,
            "nodes": len(cluster.nodes),
            "data": str(cluster.directory),
            "pids": pids,
        }
        print_json(document)
        return
    first = cluster.nodes[0]
    say(f"{counted(len(cluster.nodes), 'node')} up: {cluster.bootstrap}")
    say(f"for clients of Kafka: {cluster.kafka_bootstrap}")
    say(f"processes {', '.join(map(str, pids))}; data in {cluster.directory}; Ctrl-C stops them")
    say(f"try: tidelog topic create greetings -b {first.address}")
    kcat = f"-b {first.kafka} -t greetings"
    say(f"then, with kcat: echo hello | kcat -P {kcat}; kcat -C -e {kcat}")
