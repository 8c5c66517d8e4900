"""`tidelog cluster status|upgrade|upgrade-check|remove-voter|rebalance|snapshot|restore`."""

from __future__ import annotations

from typing import Annotated

import click

from tidelog.cli.cluster_command import CommandCall, ValidateOnly, cluster_command
from tidelog.cli.declared import Argument, CommandGroup
from tidelog.cli.output import counted, plain, print_json, print_table
from tidelog.cli.rebalance_command import rebalance
from tidelog.cli.snapshot_commands import restore_command, snapshot
from tidelog.cli.upgrade_check import upgrade_check
from tidelog.cluster_descriptions import ClusterDescription
from tidelog.standard_streams import say

app = CommandGroup()


@cluster_command(app)
def status(call: CommandCall) -> None:
    """Show nodes, controller and problems. Exit code 1: a partition is not writable or is damaged, a node did not
    report its disks, or the cluster cannot be changed."""
    found = call.query(lambda admin: admin.describe_cluster())
    problems = problems_of(found)
    if call.as_json:
        print_json({**plain(found), "healthy": not problems, "problems": problems})
    else:
        _print(found)
        say("; ".join(problems) if problems else "healthy")
    stuck = found.leaderless_partitions or found.under_min_isr_partitions or found.full_partitions
    if stuck or found.damaged_partitions or found.unanswered_nodes or found.controller_id < 0:
        raise click.exceptions.Exit(1)


@cluster_command(app)
def upgrade(call: CommandCall, validate_only: ValidateOnly = False) -> None:
    """Raise the feature level of the metadata after every node runs this version. This cannot be undone."""
    level = call.query(lambda admin: admin.update_features(validate_only=validate_only))
    document = {"feature_level": level, "updated": not validate_only}
    call.report(document, f"the feature level {'could be' if validate_only else 'is'} {level}")


cluster_command(app, "upgrade-check")(upgrade_check)


@cluster_command(app, "remove-voter")
def remove_voter(call: CommandCall, node: Annotated[int, Argument(help="Number of the node.")]) -> None:
    """Remove a permanently lost node from the voters of the metadata quorum; another node replaces it."""
    call.query(lambda admin: admin.remove_voter(node))
    call.report({"removed_voter": node}, f"node {node} is no longer a voter")


cluster_command(app)(rebalance)
cluster_command(app)(snapshot)
app.commands["restore"] = restore_command


def problems_of(found: ClusterDescription) -> list[str]:
    """Return the problems of the cluster, as text."""
    problems = []
    if found.trouble:
        problems.append(found.trouble)
    fenced = [str(node.node_id) for node in found.nodes if node.fenced]
    if fenced:
        problems.append(f"fenced: node {', '.join(fenced)}")
    if found.unanswered_nodes:
        silent = ", ".join(map(str, found.unanswered_nodes))
        problems.append(f"no report about the disks of node {silent}: try again, then check the log of that node")
    for count, what in (
        (found.leaderless_partitions, "without a leader"),
        (found.under_min_isr_partitions, "with too few in-sync replicas for acks=all"),
        (found.full_partitions, "rejecting writes: the leader's disk is full"),
        (found.damaged_partitions, "with a damaged replica"),
        (found.under_replicated_partitions, "under-replicated"),
    ):
        if count:
            problems.append(f"{counted(count, 'partition')} {what}")
    return problems


def _print(found: ClusterDescription) -> None:
    voters = {voter.node_id for voter in found.voters}
    rows = [
        (
            node.node_id,
            str(node.endpoint),
            node.state,
            "controller" if node.node_id == found.controller_id else "voter" if node.node_id in voters else "",
            node.leaders,
            node.replicas,
            node.rack,
        )
        for node in found.nodes
    ]
    title = f"cluster {found.cluster_id}: {counted(found.topics, 'topic')}, {counted(found.partitions, 'partition')}"
    print_table(title, ("node", "address", "state", "quorum", "leads", "replicas", "rack"), rows)
    quorum = [
        (voter.node_id, voter.directory_id, "leads" if voter.node_id == found.controller_id else "")
        for voter in found.voters
    ]
    print_table(
        f"metadata quorum: epoch {found.controller_epoch}, offset {found.metadata_offset}, "
        f"feature level {found.feature_level}",
        ("voter", "directory", ""),
        quorum,
    )
