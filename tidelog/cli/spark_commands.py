"""`tidelog spark check`."""

from __future__ import annotations

from typing import Annotated

import click

from tidelog.cli.cluster_command import query
from tidelog.cli.cluster_options import CONNECTION, connection_of, connection_options, profile_defaults
from tidelog.cli.declared import CommandGroup, Option
from tidelog.cli.output import Json, counted, print_json
from tidelog.cli.spark_environment import SparkFinding, environment
from tidelog.cli.spark_session import session_findings
from tidelog.cluster_connection import ClusterConnection
from tidelog.errors import TidelogError
from tidelog.standard_streams import say

app = CommandGroup()


def check(
    ctx: click.Context,
    master: Annotated[
        str, Option("--master", help="Spark's master, for example spark://host:7077; empty: Spark's own default.")
    ] = "local[2]",
    timeout: Annotated[int, Option("--timeout", min=1, help="Seconds that the session may take.")] = 180,
    as_json: Json = False,
) -> None:
    """Check what Spark needs: Java, PySpark, Python and versions on the driver and on executors.

    Starts a short session. With --bootstrap also checks that the driver and the executors reach the cluster.
    """
    found: list[SparkFinding] = []

    def note(finding: SparkFinding) -> None:
        found.append(finding)
        if not as_json:
            say(f"{'ok ' if finding.is_good else 'BAD'} {finding.what}: {finding.found}")
            if finding.advice:
                say(f"    -> {finding.advice}")

    for finding in environment():
        note(finding)
    nodes: list[str] = []
    if connection_options(ctx).bootstrap is not None:
        reached, nodes = _cluster(connection_of(ctx))
        note(reached)
    if is_ready := all(finding.is_good for finding in found):
        for finding in session_findings(master, nodes, timeout_s=timeout):
            note(finding)
    bad = [finding for finding in found if not finding.is_good]
    if as_json:
        print_json({"good": not bad, "findings": found})
    elif not bad:
        say('all is well: spark.read.format("tidelog")')
        say("a thread of your own that writes frames begins with spark.createDataFrame([], 'x int'): see docs/spark.md")
    else:
        say(f"{counted(len(bad), 'finding')} to correct" + ("" if is_ready else "; no session was started"))
    if bad:
        raise click.exceptions.Exit(1)


def _cluster(connection: ClusterConnection) -> tuple[SparkFinding, list[str]]:
    """Whether the driver reaches the cluster, and the addresses of its nodes that executors need."""
    try:
        cluster = query(connection, lambda admin: admin.describe_cluster())
    except TidelogError as error:
        return SparkFinding(
            "cluster", f"{connection.bootstrap}: {error.message}", "correct --bootstrap, or start the nodes"
        ), []
    nodes = [str(node.endpoint) for node in cluster.nodes if not node.fenced]
    return SparkFinding(
        "cluster", f"{cluster.cluster_id} with {counted(len(nodes), 'node')} at {connection.bootstrap}"
    ), nodes


app.add("check", check, more=CONNECTION, defaults=profile_defaults)
