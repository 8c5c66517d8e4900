"""`tidelog group reset-offsets`: shows new offsets, and sets them with --execute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from tidelog.cli.argument_values import WrongUsage, partition_of
from tidelog.cli.cluster_command import CommandCall
from tidelog.cli.declared import Argument, Option
from tidelog.cli.moments import HELP as TIME_HELP
from tidelog.cli.moments import moment_of
from tidelog.cli.output import counted, print_json, print_table
from tidelog.client.admin import Admin
from tidelog.client.group_options import duration_ms
from tidelog.client.offset_resets import OffsetChange, ResetGoal, members_of, plan_reset
from tidelog.clock import MachineClock
from tidelog.errors import InvalidRequest, NonEmptyGroup, TidelogError
from tidelog.printable import shell_word
from tidelog.standard_streams import say
from tidelog.types import PartitionIndex, TopicPartition


def reset_offsets(
    call: CommandCall,
    group: Annotated[str, Argument(help="Id of the group.")],
    topic: Annotated[
        list[str] | None, Option("--topic", "-t", help="All partitions of this topic; repeatable.")
    ] = None,
    partition: Annotated[
        list[str] | None, Option("--partition", "-p", help="This partition, TOPIC-N; repeatable.")
    ] = None,
    all_topics: Annotated[bool, Option("--all-topics", help="All partitions with a committed offset.")] = False,
    to_earliest: Annotated[bool, Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, Option("--to-latest", help="Behind the last record.")] = False,
    to_time: Annotated[
        str | None, Option("--to-time", help=f"To the first record at or after a time: {TIME_HELP}.")
    ] = None,
    by_duration: Annotated[
        str | None, Option("--by-duration", help="To the first record of the last PT1H, P7D, 1h30m, ...")
    ] = None,
    to_offset: Annotated[int | None, Option("--to-offset", min=0, help="To this offset.")] = None,
    shift_by: Annotated[int | None, Option("--shift-by", help="By this number of records; negative: back.")] = None,
    execute: Annotated[bool, Option("--execute", help="Change the offsets.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would change (the default).")] = False,
) -> None:
    """Set committed offsets of a group without members. Without --execute, only show what would change."""
    if execute and dry_run:
        raise WrongUsage("--execute changes the offsets and --dry-run does not: pass one of them")
    if not (topic or partition or all_topics):
        raise WrongUsage("say of which partitions: pass --topic NAME, --partition TOPIC-N, or --all-topics")
    if to_time is not None and by_duration is not None:
        raise WrongUsage("--to-time and --by-duration both name a time: pass one of them")
    time = _time(to_time) if to_time is not None else _before(by_duration) if by_duration is not None else None
    goal = _goal(earliest=to_earliest, latest=to_latest, time=time, offset=to_offset, shift=shift_by)
    named = [partition_of(name) for name in partition or ()]

    async def work(admin: Admin) -> tuple[list[OffsetChange], int | None]:
        members = await members_of(admin, group)
        if execute and members:
            raise NonEmptyGroup(
                f"group {group!r} has {counted(members, 'member')}, which would go on from their own positions: stop "
                f"all consumers of the group, then repeat (`tidelog group describe {shell_word(group)}` shows them)"
            )
        committed = await admin.list_group_offsets(group)
        keys = list(named)
        for name in topic or ():
            described = await admin.describe_topic(name)
            keys += [TopicPartition(name, PartitionIndex(each.partition)) for each in described.partitions]
        if all_topics:
            keys += committed
        if not keys:
            raise InvalidRequest("no partition is chosen: the group has no committed offsets; pass --topic NAME")
        changes = await plan_reset(admin, sorted(set(keys)), committed, goal)
        if execute:
            await admin.alter_group_offsets(group, {change.partition: change.after for change in changes})
        return changes, members

    changes, members = call.query(work)
    if call.as_json:
        print_json({"group": group, "executed": execute, "changes": changes})
    else:
        rows = [(str(each.partition), "-" if each.before is None else each.before, each.after) for each in changes]
        print_table(f"committed offsets of {group}", ("partition", "now" if not execute else "before", "after"), rows)
    is_new = members is None
    if execute:
        created = f": there was no group {group!r}, it was created with them" if is_new else ""
        say(f"{counted(len(changes), 'offset')} set{created}")
        return
    stop = f" Stop its {counted(members, 'member')} first." if members else ""
    new = f" There is no group {group!r}: that would create it; `tidelog group list` shows those that exist."
    say(f"nothing was changed: pass --execute to set these offsets.{new if is_new else stop}")


def _goal(*, earliest: bool, latest: bool, time: datetime | None, offset: int | None, shift: int | None) -> ResetGoal:
    given = [earliest, latest, *(each is not None for each in (time, offset, shift))]
    if sum(given) != 1:
        raise WrongUsage(
            "say where to set the offsets, with one of --to-earliest, --to-latest, --to-time, --by-duration, "
            "--to-offset, --shift-by"
        )
    return ResetGoal(earliest, latest, time, offset, shift)


def _time(text: str) -> datetime:
    moment = moment_of(text, MachineClock().wall_ms())
    if moment is None:
        raise WrongUsage(f"--to-time {text!r}: write {TIME_HELP}")
    return moment


def _before(duration: str) -> datetime:
    """Return the time of this duration ago."""
    now_ms = MachineClock().wall_ms()
    moment = moment_of(f"-{duration}", now_ms)  # 1h30m, as --to-time has it
    if moment is not None:
        return moment
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    try:
        return now - timedelta(milliseconds=duration_ms(duration))
    except TidelogError as error:
        raise WrongUsage(f"--by-duration: {error.message}") from None
    except OverflowError:
        raise WrongUsage(f"--by-duration {duration!r} reaches back beyond the year 1") from None
