"""`tidelog topic delete-records`: shows which records would be deleted, asks, and deletes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import click

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_command import CommandCall
from tidelog.cli.declared import Argument, Option
from tidelog.cli.moments import HELP as TIME_HELP
from tidelog.cli.moments import moment_of
from tidelog.cli.output import counted, error_document, print_json, print_table
from tidelog.client.admin import Admin
from tidelog.clock import MachineClock
from tidelog.errors import TidelogError
from tidelog.standard_streams import say
from tidelog.types import Offset, PartitionIndex, TopicPartition

Limit: TypeAlias = int | datetime | Literal["latest"]


@dataclass(frozen=True, slots=True)
class Deletion:
    """What is deleted from one partition: the records from the offset `start` on, below the offset `below`."""

    partition: TopicPartition
    start: Offset
    below: Offset


def delete_records(
    call: CommandCall,
    name: Annotated[str, Argument(help="Name of the topic.")],
    offset: Annotated[
        list[str] | None,
        Option("--offset", "-o", help="PARTITION=OFFSET: the records below it; repeatable. OFFSET may be latest."),
    ] = None,
    before: Annotated[str | None, Option("--before", help=f"The records before a time: {TIME_HELP}.")] = None,
    everything: Annotated[bool, Option("--all", help="All records that are committed now.")] = False,
    partition: Annotated[
        list[int] | None,
        Option("--partition", "-p", min=0, help="With --before or --all: only this partition; repeatable."),
    ] = None,
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete the first records of a topic's partitions, on all replicas. They cannot be restored.

    With --json but without --yes: show what would be deleted and change nothing. Exit code 1: refused, also for one
    partition of several, or not confirmed.
    """
    if sum((bool(offset), before is not None, everything)) != 1:
        raise WrongUsage("say which records to delete, with one of --offset PARTITION=OFFSET, --before TIME, --all")
    if offset and partition:
        raise WrongUsage("--offset names its partition: leave out --partition")
    limits = dict(_offset(name, each) for each in offset or ())
    place: Limit = "latest" if before is None else _time(before)

    async def plan(admin: Admin) -> list[Deletion]:
        wanted = limits
        if not wanted:
            chosen = partition or [each.partition for each in (await admin.describe_topic(name)).partitions]
            wanted = {TopicPartition(name, PartitionIndex(index)): place for index in chosen}
        starts = await admin.list_offsets(wanted, "earliest")
        ends = await admin.list_offsets(wanted, "latest")
        by_time = await admin.list_offsets(wanted, place) if isinstance(place, datetime) else ends
        belows = {key: Offset(limit) if isinstance(limit, int) else by_time[key] for key, limit in wanted.items()}
        return [Deletion(key, starts[key], belows[key]) for key in sorted(wanted)]

    deletions = call.query(plan)
    if not yes:
        if call.as_json:
            print_json({"deleted": False, "partitions": deletions})
            raise click.exceptions.Exit(1)
        if not _is_confirmed(deletions):
            raise click.exceptions.Exit(1)
    outcomes = call.query(lambda admin: admin.delete_records({each.partition: int(each.below) for each in deletions}))
    failed = {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, TidelogError)}
    call.report(
        {"deleted": not failed, "partitions": [_document(*each) for each in outcomes.items()]},
        *(f"{key} starts at offset {start}" for key, start in outcomes.items() if key not in failed),
    )
    for key, error in failed.items():
        say(f"tidelog: {key}: {error.message}")
    if failed:
        raise click.exceptions.Exit(1)


def _document(partition: TopicPartition, outcome: Offset | TidelogError) -> dict[str, object]:
    """The outcome for one partition, for scripts."""
    result = error_document(outcome) if isinstance(outcome, TidelogError) else {"log_start": outcome}
    return {"partition": partition, **result}


def _is_confirmed(deletions: list[Deletion]) -> bool:
    """Show what would be deleted, and ask for confirmation."""
    rows = [(each.partition, each.start, each.below, max(0, each.below - each.start)) for each in deletions]
    print_table("to delete", ("partition", "from offset", "below offset", "offsets"), rows)
    try:
        is_confirmed = click.confirm(f"Delete these records of {counted(len(rows), 'partition')}?", err=True)
    except click.Abort:
        say("no answer: pass --yes")
        is_confirmed = False
    if not is_confirmed:
        say("nothing was changed")
    return is_confirmed


def _offset(topic: str, given: str) -> tuple[TopicPartition, Limit]:
    """Parse PARTITION=OFFSET. Raises WrongUsage."""
    index, separator, offset = given.partition("=")
    if not separator or not index.isdecimal() or not (offset.isdecimal() or offset == "latest"):
        raise WrongUsage(f"--offset {given!r}: write PARTITION=OFFSET, for example 0=1000 or 0=latest")
    return TopicPartition(topic, PartitionIndex(int(index))), "latest" if offset == "latest" else int(offset)


def _time(text: str) -> datetime:
    moment = moment_of(text, MachineClock().wall_ms())
    if moment is None:
        raise WrongUsage(f"--before {text!r}: write {TIME_HELP}")
    return moment
