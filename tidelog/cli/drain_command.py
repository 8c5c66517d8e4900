"""`tidelog node drain`: cordons a node and moves every replica away from it."""

from __future__ import annotations

import asyncio
from typing import Annotated

import click

from tidelog.balancing.cluster_balance import ClusterBalance, expected_ms, look_at_balance
from tidelog.balancing.move_planner import ReplicaMove
from tidelog.balancing.node_drain import DrainOutcome, cancel_drain, drain_node
from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_command import CommandCall, administrator
from tidelog.cli.declared import Argument, Option
from tidelog.cli.output import counted, print_json, printed_warnings
from tidelog.cli.rebalance_command import (
    AssumedRate,
    ProgressLines,
    refusals_of,
    report_cancelled,
    say_what_is_missing,
    show_plan,
    summary_of,
)
from tidelog.client.admin import Admin
from tidelog.clock import MachineClock
from tidelog.standard_streams import say
from tidelog.types import NodeId


def drain(
    call: CommandCall,
    node_id: Annotated[int, Argument(help="The node's number.")],
    cancel: Annotated[
        bool, Option("--cancel", help="Uncordon it, and cancel the moves that leave it, queued or in progress.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the plan, change nothing.")] = False,
    assumed_rate: AssumedRate = 50_000_000,
) -> None:
    """Cordon a node and move every replica away from it, internal topics too; it stays cordoned. Waits until it has
    none; after Ctrl-C the moves go on, and the same command continues. Exit code 1: replicas are left on it."""
    if cancel and dry_run:
        raise WrongUsage("pass --cancel or --dry-run, not both")
    with printed_warnings():
        asyncio.run(_drain(call, NodeId(node_id), cancel, dry_run, assumed_rate))


async def _drain(call: CommandCall, node: NodeId, cancel: bool, dry_run: bool, assumed_rate: int) -> None:
    async with administrator(call.connection) as admin:
        if cancel:
            results = await cancel_drain(admin, node, MachineClock())
            report_cancelled(call, results, {"uncordoned_node": node}, f": node {node} may get new replicas again")
        elif dry_run:
            balance = await look_at_balance(admin)
            moves, begun = balance.planned({node})
            say_what_is_missing(balance)
            show_plan(call, balance, moves, await expected_ms(admin, moves, assumed_rate), begun, {})
        else:
            await _empty(call, admin, node, assumed_rate)


async def _empty(call: CommandCall, admin: Admin, node: NodeId, assumed_rate: int) -> None:
    async def show(balance: ClusterBalance, moves: list[ReplicaMove], begun: list[ReplicaMove]) -> None:
        say_what_is_missing(balance)
        if not call.as_json:
            duration_ms = await expected_ms(admin, moves, assumed_rate)
            say(f"node {node} is cordoned: {summary_of(moves, duration_ms, begun)}")

    progress = ProgressLines(quiet=call.as_json)
    outcome = await drain_node(admin, node, MachineClock(), on_plan=show, on_progress=progress.report)
    _report(call, node, outcome)


def _report(call: CommandCall, node: NodeId, outcome: DrainOutcome) -> None:
    failures = refusals_of(outcome.refused)
    if call.as_json:
        done = {"drained_node": node, "moved": outcome.moved, "bytes": outcome.moved_bytes}
        print_json({**done, "refused": failures, "left": outcome.left})
    else:
        for each in failures:
            say(f"{each['partition']}: {each['error']}")
        moved = f"{counted(outcome.moved, 'partition')} moved"
        if outcome.left:
            say(f"{moved}, node {node} still has {counted(outcome.left, 'replica')}: run the command again")
        else:
            empty = f"{moved}: node {node} has no replicas" if outcome.moved else f"node {node} is empty already"
            say(
                f"{empty}; it stays cordoned (`tidelog node uncordon {node}`, or stop it and `tidelog node remove "
                f"{node}`)"
            )
    if failures or outcome.left:
        raise click.exceptions.Exit(1)
