"""`tidelog cluster upgrade-check`: may a rolling restart begin or go on, and may the feature level be raised?

The checks are a pure function of what the cluster answers; the command prints them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import click

from tidelog.cli.cluster_command import CommandCall
from tidelog.cli.output import counted, print_json, print_table
from tidelog.client.admin import Admin
from tidelog.cluster_descriptions import ClusterDescription, ReassignmentDescription
from tidelog.errors import FeatureUpdateFailed, TidelogError
from tidelog.standard_streams import say

_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class UpgradeCheck:
    """One precondition of an upgrade, and whether it holds."""

    name: str
    passed: bool
    detail: str
    """What was found; if it does not hold, also what to do."""


def upgrade_check(call: CommandCall) -> None:
    """Check whether nodes can be restarted with another version, and whether the feature level can be raised: quorum,
    fenced nodes, replicas in sync, moves in progress, and the level that every node knows. Changes nothing. Exit
    code 1: a check failed."""
    found, moves, level = call.query(_ask)
    checks = checks_of(found, moves, level)
    failed = [each for each in checks if not each.passed]
    if call.as_json:
        known = level if isinstance(level, int) else None
        levels = {"feature_level": found.feature_level, "next_level": known}
        print_json({"ready": not failed, **levels, "checks": checks})
    else:
        rows = [(each.name, "ok" if each.passed else "FAILED", each.detail) for each in checks]
        print_table(f"upgrade of cluster {found.cluster_id}", ("check", "", "detail"), rows)
        say(f"{counted(len(failed), 'check')} failed: do not go on yet" if failed else _next_step(found, level))
    if failed:
        raise click.exceptions.Exit(1)


async def _ask(admin: Admin) -> tuple[ClusterDescription, list[ReassignmentDescription], int | TidelogError]:
    found = await admin.describe_cluster()
    moves = await admin.list_reassignments()
    if found.controller_id < 0:
        # Without a controller the request would be repeated until it expires.
        return found, moves, FeatureUpdateFailed("unknown without an active controller")
    try:
        return found, moves, await admin.update_features(validate_only=True)
    except TidelogError as error:
        return found, moves, error


def checks_of(
    found: ClusterDescription, moves: Sequence[ReassignmentDescription], level: int | TidelogError
) -> list[UpgradeCheck]:
    """The checks, in the order in which an operator resolves them. level: the feature level that the cluster could
    have now, or why it cannot be raised."""
    return [
        _quorum(found),
        _nodes(found),
        _partitions(found),
        _disks(found),
        UpgradeCheck(
            "moves",
            not moves,
            f"{counted(len(moves), 'reassignment')} in progress ({_named(each.partition for each in moves)}): wait "
            "(`tidelog partition moves`), or end them with `tidelog partition reassign TOPIC-N --cancel`"
            if moves
            else "no reassignment in progress",
        ),
        _feature_level(found, level),
    ]


def _quorum(found: ClusterDescription) -> UpgradeCheck:
    if found.trouble:
        return UpgradeCheck("quorum", passed=False, detail=found.trouble)
    alive = {node.node_id for node in found.nodes if not node.fenced}
    missing = [voter.node_id for voter in found.voters if voter.node_id not in alive]
    if missing:
        # The restart of one more voter could leave the quorum without a majority.
        detail = (
            f"{len(missing)} of {counted(len(found.voters), 'voter')} not in service (node {_named(missing)}): start "
            "it, or let another node take its place (`tidelog cluster remove-voter`)"
        )
        return UpgradeCheck("quorum", passed=False, detail=detail)
    detail = f"node {found.controller_id} is the controller, {counted(len(found.voters), 'voter')} in service"
    return UpgradeCheck("quorum", passed=True, detail=detail)


def _nodes(found: ClusterDescription) -> UpgradeCheck:
    away = {
        node.node_id: "fenced" if node.fenced else "draining" for node in found.nodes if node.fenced or node.draining
    }
    if not away:
        return UpgradeCheck("nodes", passed=True, detail=f"{counted(len(found.nodes), 'node')} in service")
    states = _named(f"node {node} is {state}" for node, state in sorted(away.items()))
    return UpgradeCheck(
        "nodes",
        passed=False,
        detail=f"{states}: wait for it, start it, or remove one that is gone for good (`tidelog node remove`)",
    )


def _partitions(found: ClusterDescription) -> UpgradeCheck:
    counts = (
        (found.leaderless_partitions, "without a leader"),
        (found.under_min_isr_partitions, "with too few in-sync replicas for acks=all"),
        (found.damaged_partitions, "with a damaged replica"),
        (found.under_replicated_partitions, "under-replicated"),
    )
    problems = [f"{counted(count, 'partition')} {what}" for count, what in counts if count]
    if not problems:
        detail = f"all replicas of {counted(found.partitions, 'partition')} are in sync"
        return UpgradeCheck("partitions", passed=True, detail=detail)
    detail = f"{', '.join(problems)}: `tidelog partition why-unavailable` says why; replicas that catch up need time"
    return UpgradeCheck("partitions", passed=False, detail=detail)


def _disks(found: ClusterDescription) -> UpgradeCheck:
    problems = []
    if found.full_partitions:
        problems.append(f"{counted(found.full_partitions, 'partition')} on full disks")
    if found.unanswered_nodes:
        problems.append(f"no report of node {_named(found.unanswered_nodes)}")
    if not problems:
        return UpgradeCheck("disks", passed=True, detail="no full disk")
    return UpgradeCheck("disks", passed=False, detail=f"{', '.join(problems)}: see `tidelog log-dirs`")


def _feature_level(found: ClusterDescription, level: int | TidelogError) -> UpgradeCheck:
    if isinstance(level, TidelogError):
        return UpgradeCheck("feature level", passed=False, detail=f"{found.feature_level}; {level.message}")
    if level == found.feature_level:
        detail = f"{level}, the latest that the active controller (node {found.controller_id}) knows"
    else:
        detail = f"{found.feature_level}; every node knows level {level}"
    return UpgradeCheck("feature level", passed=True, detail=detail)


def _next_step(found: ClusterDescription, level: int | TidelogError) -> str:
    if level == found.feature_level:
        return "nodes may be restarted with a newer version, one after the other"
    return f"`tidelog cluster upgrade` would raise the feature level from {found.feature_level} to {level}"


def _named(items: Iterable[object]) -> str:
    names = [str(each) for each in items]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
