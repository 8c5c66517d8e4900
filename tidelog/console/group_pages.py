"""Groups: the list with states, and one group with its members and its lag."""

from __future__ import annotations

from typing import Final

from tidelog.client.group_admin import GroupDescription, PartitionLag
from tidelog.console.cluster_page import partition_link
from tidelog.console.html import Content, Html, address, element, facts, field, link, table
from tidelog.console.layout import ROWS_SHOWN_MAX, alarm, few, not_shown, read_only, search
from tidelog.console.page_call import PageCall, Shown
from tidelog.errors import TidelogError

ALL_OF_GROUP: Final = "`tidelog group describe` has all."


async def groups(call: PageCall) -> Shown:
    """All groups whose ids have the text of the filter."""
    wanted = call.request.text("filter")
    missing: list[TidelogError] = []
    listed = await call.admin.list_groups(on_missing=missing.append)
    every = [each for each in listed if wanted.casefold() in each.group_id.casefold()]
    return Shown(
        "Groups",
        [
            search("/groups", field("Id contains", "filter", wanted), button="Filter"),
            *[alarm(element("p", each.message)) for each in missing],
            table(
                f"{len(every)} groups",
                ("Group", "Type", "State", "Members"),
                [
                    (link(address("/group", id=each.group_id), each.group_id), each.type, each.state, each.members)
                    for each in every[:ROWS_SHOWN_MAX]
                ],
                empty="There is no such group that you may see.",
            ),
            not_shown(len(every), "The filter finds the others."),
        ],
    )


async def group(call: PageCall) -> Shown:
    """One group."""
    group_id = call.identity("id")
    found = (await call.admin.describe_groups([group_id]))[group_id]
    if isinstance(found, TidelogError):
        raise found
    lag = await call.admin.group_lag(group_id)
    known = [each.lag for each in lag if each.lag is not None]
    return Shown(
        f"Group {group_id}",
        [
            element("p", link(address("/group/reset", id=group_id), "Set its offsets", class_="button"))
            if call.visitor.may_change
            else read_only(call.visitor),
            facts(
                (
                    ("Type", found.type),
                    ("State", found.state),
                    ("Assignor", found.assignor or "-"),
                    ("Group epoch", found.group_epoch),
                    ("Lag, all partitions", sum(known) if len(known) == len(lag) else f"{sum(known)} and unknown"),
                )
            ),
            _members(found),
            not_shown(len(found.members), ALL_OF_GROUP),
            lag_table(lag),
            not_shown(len(lag), ALL_OF_GROUP),
        ],
    )


def _members(found: GroupDescription) -> Html:
    return table(
        f"{len(found.members)} members",
        ("Member", "Client", "Host", "Epoch", "Subscribes", "Has", "Gets"),
        [
            (
                each.instance_id or each.member_id,
                each.client_id,
                each.client_host,
                each.member_epoch,
                few(each.topics) or each.topic_pattern,
                few(list(map(str, each.assignment))),
                "" if each.target == each.assignment else few(list(map(str, each.target))),
            )
            for each in found.members[:ROWS_SHOWN_MAX]
        ],
        empty="The group has no members.",
    )


def lag_table(lag: list[PartitionLag]) -> Html:
    """How far the group has read in each partition."""

    def row(each: PartitionLag) -> tuple[Content, ...]:
        lost = element("strong", each.deleted, class_="bad") if each.deleted else 0 if each.deleted == 0 else "-"
        return (
            partition_link(each.partition),
            "-" if each.committed is None else int(each.committed.offset),
            "-" if each.start is None else int(each.start),
            "-" if each.end is None else int(each.end),
            "unknown" if each.lag is None else each.lag,
            lost,
            each.instance_id or each.member_id,
        )

    return table(
        "Lag",
        ("Partition", "Committed", "Log start", "Log end", "Lag", "Deleted unread", "Member"),
        [row(each) for each in lag[:ROWS_SHOWN_MAX]],
        empty="The group has no partitions and has committed no offsets.",
    )
