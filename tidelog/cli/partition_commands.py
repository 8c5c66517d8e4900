"""`tidelog partition why-unavailable|who-holds-lso|elect|reassign|moves`."""

from __future__ import annotations

from typing import Annotated

import click

from tidelog.cli.argument_values import WrongUsage, partition_of
from tidelog.cli.cluster_command import CommandCall, cluster_command
from tidelog.cli.declared import Argument, CommandGroup, Option
from tidelog.cli.output import counted, print_json, print_table
from tidelog.cli.transaction_commands import who_holds_lso
from tidelog.client.admin import Admin
from tidelog.cluster_descriptions import PartitionExplanation, PartitionResult
from tidelog.errors import ElectionNotNeeded, TidelogError
from tidelog.standard_streams import say

app = CommandGroup()
Names = Annotated[list[str] | None, Argument(help="Partitions as TOPIC-N; none: all that need it.")]


@cluster_command(app, "why-unavailable")
def why_unavailable(call: CommandCall, names: Names = None) -> None:
    """Show why partitions cannot be read or written, and what to do. Exit code 1: some cannot, or it is unknown."""
    wanted = [partition_of(name) for name in names or ()]

    async def explain(admin: Admin) -> tuple[list[PartitionExplanation], str]:
        return await admin.explain_partitions(wanted), (await admin.describe_cluster()).trouble

    explanations, trouble = call.query(explain)
    if trouble:
        say(trouble)
    if call.as_json:
        print_json([_plain(each) for each in explanations])
    else:
        for each in explanations:
            _say_explanation(each)
        if not trouble and not any(each.causes or each.error for each in explanations):
            say("no problems found")
    if trouble or any(each.error or not each.writable for each in explanations):
        raise click.exceptions.Exit(1)


@cluster_command(app, "who-holds-lso")
def holders_of_lso(call: CommandCall, name: Annotated[str, Argument(help="The partition as TOPIC-N.")]) -> None:
    """Show which open transaction read_committed consumers wait for, whose it is, and what to do."""
    who_holds_lso(call, name)


def _say_explanation(explanation: PartitionExplanation) -> None:
    if explanation.error is not None:
        say(f"{explanation.partition}: {explanation.error.message}")
        return
    unwritable = "can be read, not written with acks=all" if explanation.readable else "is unavailable"
    say(f"{explanation.partition} {'works' if explanation.writable else unwritable}")
    for cause in explanation.causes:
        say(f"  why: {cause}")
    for step in explanation.steps:
        say(f"  do:  {step}")


@cluster_command(app)
def elect(
    call: CommandCall,
    names: Names = None,
    unclean: Annotated[
        bool,
        Option(
            "--unclean", help="If no replica is eligible, elect the most complete one: committed records may be LOST."
        ),
    ] = False,
    yes: Annotated[bool, Option("--yes", help="With --unclean: do not ask for confirmation.")] = False,
) -> None:
    """Elect preferred leaders, or with --unclean any available replica. Exit code 1: an election was rejected or not
    confirmed; a partition that its preferred leader leads already counts as done. With --unclean and --json but without
    --yes: show the loss and change nothing."""
    wanted = [partition_of(name) for name in names or ()]
    if unclean and not wanted:
        raise WrongUsage("--unclean loses records: name the partitions as TOPIC-N")

    if unclean and not yes:
        expected = call.query(lambda admin: admin.elect_leaders(wanted, unclean=True, validate_only=True))
        if call.as_json:
            print_json([{**_plain(each), "elected": False} for each in expected])
            raise click.exceptions.Exit(1)
        if not _is_confirmed(expected):
            raise click.exceptions.Exit(1)
    outcomes = call.query(lambda admin: admin.elect_leaders(wanted, unclean=unclean))
    # What the command is for is so already: the same script can be run again, as Kafka's command can.
    _show(call, outcomes, harmless=ElectionNotNeeded)


def _is_confirmed(expected: list[PartitionResult]) -> bool:
    """Show what an unclean election would lose, and ask for confirmation."""
    for each in expected:
        if each.error is not None:
            say(f"{each.partition}: {each.error.message}")
        else:
            say(f"{each.partition}: node {each.leader} would lead. {each.loss or 'nothing would be lost'}")
    if all(each.error is not None for each in expected):
        return False
    try:
        is_confirmed = click.confirm("Lose these records?", err=True)
    except click.Abort:
        say("no answer: pass --yes")
        is_confirmed = False
    if not is_confirmed:
        say("nothing was changed")
    return is_confirmed


@cluster_command(app)
def reassign(
    call: CommandCall,
    name: Annotated[str, Argument(help="The partition as TOPIC-N.")],
    replicas: Annotated[str, Option("--replicas", "-r", help="The new replicas, preferred leader first: 1,2,3.")] = "",
    cancel: Annotated[bool, Option("--cancel", help="Cancel the reassignment, in progress or queued.")] = False,
) -> None:
    """Move a partition's replicas; returns once the reassignment has started."""
    nodes = replicas.split(",") if replicas else []
    if cancel == bool(nodes) or not all(node.strip().isdecimal() for node in nodes):
        raise WrongUsage("pass --replicas with node ids (1,2,3), or --cancel")
    target = None if cancel else [int(node) for node in nodes]
    partition = partition_of(name)
    _show(call, call.query(lambda admin: admin.reassign({partition: target})))


@cluster_command(app)
def moves(call: CommandCall) -> None:
    """Show the reassignments in progress, and the queued ones, which the controller begins one after the other."""
    found = call.query(lambda admin: admin.list_reassignments())
    rows = [(str(each.partition), each.replicas, each.adding, each.removing, each.isr, each.queued) for each in found]
    columns = ("partition", "replicas", "adding", "removing", "in sync", "queued")
    call.show(found, "reassignments in progress", columns, rows)


def _show(call: CommandCall, outcomes: list[PartitionResult], *, harmless: type[TidelogError] | tuple[()] = ()) -> None:
    """Show the outcomes of partitions. harmless: errors that leave the exit code at 0."""
    refused = [each for each in outcomes if each.error is not None]
    if call.as_json:
        print_json([_plain(each) for each in outcomes])
    else:
        for each in outcomes:
            if each.error is not None:
                said = each.error.message  # that of many errors names the partition already
                say(said if said.startswith(str(each.partition)) else f"{each.partition}: {said}")
            elif each.loss:
                say(f"{each.partition}: RECORDS MAY BE LOST: {each.loss}")
        done = [(str(each.partition), each.leader, each.leader_epoch) for each in outcomes if each.error is None]
        if done:
            print_table(counted(len(done), "partition"), ("partition", "leader", "epoch"), done)
        elif not refused:
            say("nothing to do")
    if any(not isinstance(each.error, harmless) for each in refused):
        raise click.exceptions.Exit(1)


def _plain(result: PartitionExplanation | PartitionResult) -> dict[str, object]:
    """Convert to JSON fields; the error by name and message."""
    error = result.error
    shown = None if error is None else {"name": type(error).__name__, "message": error.message}
    return {**{name: getattr(result, name) for name in result.__dataclass_fields__}, "error": shown}
