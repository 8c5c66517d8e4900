"""`tidelog group list|describe|delete|delete-offsets|lag`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict, dataclass
from typing import Annotated

import click

from tidelog.cli.argument_values import WrongUsage, partition_of
from tidelog.cli.cluster_command import CommandCall, administrator, cluster_command
from tidelog.cli.declared import Argument, CommandGroup, Option
from tidelog.cli.group_resets import reset_offsets
from tidelog.cli.output import counted, ensure_complete, print_json, print_table
from tidelog.client.admin import Admin
from tidelog.client.group_admin import GroupDescription, MemberDescription, PartitionLag
from tidelog.clock import MachineClock
from tidelog.errors import InvalidRequest, NonEmptyGroup, TidelogError
from tidelog.printable import shell_word
from tidelog.standard_streams import end_without_reader, say
from tidelog.types import TopicPartition

app = CommandGroup()
cluster_command(app, "reset-offsets")(reset_offsets)
Groups = Annotated[list[str], Argument(help="Ids of groups.")]

STATES = ("Empty", "Assigning", "Reconciling", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")

CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal and moves to its first line."""


@cluster_command(app, "list")
def list_(
    call: CommandCall,
    state: Annotated[
        list[str] | None, Option("--state", help="Only groups in this state: Empty, Stable, ...; repeatable.")
    ] = None,
) -> None:
    """List all groups. Exit code 1: those of a coordinator are missing."""
    missing: list[TidelogError] = []
    unknown = [name for name in state or () if name.lower() not in map(str.lower, STATES)]
    if unknown:
        raise WrongUsage(f"unknown group state {unknown[0]!r}; use {', '.join(STATES)}")
    found = call.query(lambda admin: admin.list_groups(states=state or (), on_missing=missing.append))
    rows = [(group.group_id, group.type, group.state, group.members) for group in found]
    call.show(found, "groups", ("group", "type", "state", "members"), rows)
    ensure_complete(missing)


@cluster_command(app)
def describe(call: CommandCall, groups: Groups) -> None:
    """Show members and what each one reads."""
    found = call.query(lambda admin: admin.describe_groups(groups))
    if call.as_json:
        print_json([_document(group_id, each) for group_id, each in found.items()])
    for group_id, each in found.items():
        if isinstance(each, TidelogError):
            say(f"tidelog: group {group_id!r}: {each.message}")
        elif not call.as_json:
            _print(each)
    if any(isinstance(each, TidelogError) for each in found.values()):
        raise click.exceptions.Exit(1)


@cluster_command(app)
def delete(call: CommandCall, groups: Groups) -> None:
    """Delete groups that have no members, with all their committed offsets."""
    found = call.query(lambda admin: admin.delete_groups(groups))
    failed = {group_id: error for group_id, error in found.items() if error is not None}
    if call.as_json:
        print_json([{"group": group_id, "deleted": group_id not in failed} for group_id in found])
    for group_id in found:
        if group_id not in failed and not call.as_json:
            say(f"group {group_id!r} deleted")
    for group_id, error in failed.items():
        hint = (
            f"; `tidelog group describe {shell_word(group_id)}` shows them" if isinstance(error, NonEmptyGroup) else ""
        )
        say(f"tidelog: group {group_id!r} was not deleted: {error.message}{hint}")
    if failed:
        raise click.exceptions.Exit(1)


@cluster_command(app, "delete-offsets")
def delete_offsets(
    call: CommandCall,
    group: Annotated[str, Argument(help="Id of the group.")],
    topic: Annotated[
        list[str] | None, Option("--topic", "-t", help="All committed offsets of this topic; repeatable.")
    ] = None,
    partition: Annotated[
        list[str] | None, Option("--partition", "-p", help="That of this partition, TOPIC-N; repeatable.")
    ] = None,
) -> None:
    """Delete committed offsets of topics to which no member of the group subscribes."""
    if not (topic or partition):
        raise WrongUsage("say which offsets to delete: pass --topic NAME or --partition TOPIC-N")
    named = [partition_of(name) for name in partition or ()]

    async def work(admin: Admin) -> dict[TopicPartition, TidelogError | None]:
        keys = list(named)
        committed = await admin.list_group_offsets(group) if topic else {}
        for name in topic or ():
            found = [key for key in committed if key.topic == name]
            if not found:
                raise InvalidRequest(
                    f"nothing was deleted: group {group!r} has no committed offset of {name!r}; `tidelog group lag "
                    f"{shell_word(group)}` shows those that it has"
                )
            keys += found
        return await admin.delete_group_offsets(group, sorted(set(keys)))

    found = call.query(work)
    failed = {key: error for key, error in found.items() if error is not None}
    if call.as_json:
        print_json({"group": group, "partitions": [{"partition": key, "deleted": key not in failed} for key in found]})
    say(f"{counted(len(found) - len(failed), 'offset')} of group {group!r} deleted")
    for key, error in failed.items():
        say(f"tidelog: the offset of {key} was not deleted: {error.message}")
    if failed:
        raise click.exceptions.Exit(1)


@cluster_command(app)
def lag(
    call: CommandCall,
    groups: Groups,
    watch: Annotated[bool, Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[float, Option(min=0.1, max=3600, help="Seconds between two repetitions.")] = 2.0,
    times: Annotated[int | None, Option("--times", min=1, help="Repeat this often, then end.")] = None,
) -> None:
    """Show how many records a group has still to read: for each partition, with its member, client and host. Unknown
    (-) where nothing is committed. Records that were deleted before it read them are counted apart."""

    async def work() -> None:
        async with administrator(call.connection) as admin:
            left = times if times is not None else None if watch else 1
            clock = MachineClock()
            while True:
                lags = {group_id: await admin.group_lag(group_id) for group_id in dict.fromkeys(groups)}
                _print_lags(lags, clears=(watch or times is not None) and sys.stdout.isatty(), as_json=call.as_json)
                end_without_reader()
                left = None if left is None else left - 1
                if left == 0:
                    return
                await clock.sleep_ms(int(interval * 1000))

    asyncio.run(work())


def _document(group_id: str, found: GroupDescription | TidelogError) -> object:
    if isinstance(found, TidelogError):
        return {"group_id": group_id, "error": found.kafka_name or type(found).__name__, "message": found.message}
    return found


def _print(group: GroupDescription) -> None:
    say(
        f"group {group.group_id!r} ({group.type}): {group.state}, {counted(len(group.members), 'member')}, epoch "
        f"{group.group_epoch}, assignor {group.assignor or 'none'}"
    )
    if group.members:
        rows = [
            (
                member.member_id,
                member.instance_id or "-",
                member.client_id or "-",
                member.client_host,
                member.member_epoch,
                _partitions(member.assignment),
                _changes(member),
            )
            for member in group.members
        ]
        columns = ("member", "instance", "client", "host", "epoch", "has", "changes to come")
        print_table(f"members of {group.group_id}", columns, rows)


def _changes(member: MemberDescription) -> str:
    gains = sorted(set(member.target) - set(member.assignment))
    losses = sorted(set(member.assignment) - set(member.target))
    parts = [f"+ {_partitions(tuple(gains))}"] * bool(gains) + [f"- {_partitions(tuple(losses))}"] * bool(losses)
    return "; ".join(parts) or "-"


def _partitions(partitions: tuple[TopicPartition, ...]) -> str:
    """Return `orders-0,1,2 payments-4`."""
    by_topic: dict[str, list[str]] = {}
    for key in partitions:
        by_topic.setdefault(key.topic, []).append(str(key.partition))
    return " ".join(f"{topic}-{','.join(indexes)}" for topic, indexes in by_topic.items()) or "-"


def _print_lags(lags: dict[str, list[PartitionLag]], *, clears: bool, as_json: bool) -> None:
    if as_json:
        print_json([{"group": group_id, **asdict(_total(rows)), "partitions": rows} for group_id, rows in lags.items()])
        return
    if clears:
        sys.stdout.write(CLEAR)
    for group_id, rows in lags.items():
        cells = [
            (
                str(row.partition),
                "-" if row.committed is None else row.committed.offset,
                "-" if row.start is None else row.start,
                "-" if row.end is None else row.end,
                "-" if row.lag is None else row.lag,
                "-" if row.deleted is None else row.deleted,
                row.instance_id or row.member_id or "-",
                row.client_id or "-",
                row.client_host or "-",
            )
            for row in rows
        ]
        columns = ("partition", "committed", "start", "end", "lag", "deleted", "member", "client", "host")
        print_table(f"{group_id}: {_total(rows)}", columns, cells)
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class _Total:
    """The lag of a group."""

    lag: int | None
    """The sum over the partitions whose lag is known; None if there is none."""
    deleted: int | None
    """As `lag`, of the records that were deleted before the group read them."""
    unknown: int
    """The number of partitions whose lag is unknown."""

    def __str__(self) -> str:
        if self.lag is None:
            return "lag unknown"
        parts = [f"{counted(self.lag, 'record')} behind"]
        if self.unknown:
            parts.append(f"unknown of {counted(self.unknown, 'partition')}")
        if self.deleted:
            parts.append(f"{self.deleted} deleted before it read them")
        return ", ".join(parts)


def _total(rows: list[PartitionLag]) -> _Total:
    lags = [row.lag for row in rows if row.lag is not None]
    if not lags:
        return _Total(None, None, len(rows))
    return _Total(sum(lags), sum(row.deleted or 0 for row in rows), len(rows) - len(lags))
