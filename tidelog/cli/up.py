"""`tidelog up`: a cluster of node processes on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click

from tidelog.cli.declared import Option, declared_command
from tidelog.cli.output import Json, counted, print_json
from tidelog.cli.server_packages import server_module
from tidelog.standard_streams import say
from tidelog.tiering.obstore_store import open_object_store

NODES = 3
"""Nodes of a new cluster."""
NODES_MAX = 9
PORT = 9092
"""Port of the first node of a new cluster for clients of Kafka."""
PORT_MAX = 65_535 - 200 - NODES_MAX
"""Its maximum: the other nodes use the following ones, the ports for Tidelog's clients are 100 higher, those of metrics
200."""


def up(
    nodes: Annotated[
        int | None,
        Option(
            "--nodes", "-n", min=1, max=NODES_MAX, help=f"Number of nodes, at least those in --data; default {NODES}."
        ),
    ] = None,
    data: Annotated[Path, Option("--data", "-d", help="Directory for configuration, data and logs.")] = Path(
        "tidelog-data"
    ),
    port: Annotated[
        int | None,
        Option(
            "--port",
            min=0,
            max=PORT_MAX,
            help="Port of the first node for clients of Kafka; the other nodes use the following ones. Ports for "
            "Tidelog's clients are 100 higher, those of metrics 200. 0: free ports.",
            show_default=str(PORT),
        ),
    ] = None,
    tiered: Annotated[
        bool,
        Option(
            "--tiered",
            help="Topics can have a remote tier (remote.storage.enable=true); its object store is a folder in --data. "
            "Needs the extra tiering. A directory that was started with it keeps it.",
        ),
    ] = False,
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
        existing, first_port = local.node_count(data), local.first_kafka_port(data)
        # All nodes of the directory are started, even if fewer are named: fewer might not be a majority of the voters.
        count = max(nodes or existing or NODES, existing)
        base = next(each for each in (port, first_port, PORT) if each is not None)
        cluster = local.LocalCluster(data, count, first_port=base, kafka=True, tiered=tiered)
        if cluster.store is not None:
            open_object_store(cluster.store.as_uri())  # a missing package is reported here, as above
        cluster.run(ready=lambda: _announce(cluster, nodes, port, as_json=as_json), say=say)
    except local.ClusterFailed as failure:
        for line in f"tidelog: {failure}".splitlines():  # with the last lines of a node's log
            say(line)
        raise click.exceptions.Exit(1) from None


def _announce(cluster: Any, asked: int | None, port: int | None, *, as_json: bool) -> None:
    """Print how to use the cluster. asked, port: the number of nodes and the port on the command line, if given."""
    if asked is not None and asked < len(cluster.nodes):
        say(
            f"{cluster.directory} has a cluster of {len(cluster.nodes)} nodes: all are started, since {asked} may not "
            "be a majority of its voters"
        )
    first = cluster.nodes[0]
    if port and first.kafka.port != port:
        say(
            f"{cluster.directory} has a cluster at {first.kafka}, which keeps its addresses: its voters know each "
            f"other by them. For port {port} choose another directory (--data)"
        )
    pids = [node.pid for node in cluster.nodes]
    if as_json:
        document = {
            "bootstrap": cluster.bootstrap,
            "kafka_bootstrap": cluster.kafka_bootstrap,
            "metrics": [f"http://{node.metrics}/metrics" for node in cluster.nodes],
            "nodes": len(cluster.nodes),
            "data": str(cluster.directory),
            "object_store": None if cluster.store is None else str(cluster.store),
            "pids": pids,
        }
        print_json(document)
        return
    say(f"{counted(len(cluster.nodes), 'node')} up: {cluster.bootstrap}")
    say(f"for clients of Kafka: {cluster.kafka_bootstrap}")
    say(f"web console: {', '.join(f'http://{node.metrics}/' for node in cluster.nodes)}; metrics at /metrics")
    say(f"processes {', '.join(map(str, pids))}; data in {cluster.directory}; Ctrl-C stops them")
    if cluster.store is not None:
        say(
            f"remote tier in {cluster.store}, for topics with -c remote.storage.enable=true; local.retention.* says "
            "what stays on the nodes"
        )
    say(f"try: tidelog topic create greetings -b {first.address}")
    kcat = f"-b {first.kafka} -t greetings"
    say(f"then, with kcat: echo hello | kcat -P {kcat}; kcat -C -e {kcat}")


command = declared_command(up, "up")
