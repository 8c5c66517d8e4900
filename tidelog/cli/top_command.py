"""`tidelog top`: nodes, topics with their rates and groups with their lag, again and again."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final

from tidelog.cli.cluster_command import CommandCall, administrator, declared_on_cluster
from tidelog.cli.cluster_commands import problems_of
from tidelog.cli.declared import Option
from tidelog.cli.interrupts import run_until_signal
from tidelog.cli.output import TableContent, error_document, plain, print_json, print_table, whole_screen
from tidelog.cli.top_figures import ClusterLook, WatchedGroup, group_flows, topic_flows
from tidelog.client.admin import Admin
from tidelog.clock import Clock, MachineClock
from tidelog.errors import TidelogError
from tidelog.standard_streams import end_without_reader, say
from tidelog.types import NO_NODE, ByPartition, TopicPartition

GROUPS_MAX: Final = 50
"""Groups whose lag is asked for: each is several requests, in each look."""


@dataclass(frozen=True, slots=True)
class TopScreen:
    """How looks are shown."""

    show: Callable[[ClusterLook | None, ClusterLook], None]
    """Of the look before, and of the newest one."""
    fail: Callable[[ClusterLook, TidelogError], None]
    """Of the newest look that succeeded, and why there is no newer one."""


def top(
    call: CommandCall,
    interval: Annotated[float, Option(min=0.1, max=3600, help="Seconds between two looks.")] = 2.0,
    times: Annotated[int | None, Option("--times", min=1, help="Look this often, then end.")] = None,
) -> None:
    """Show nodes, topics with their rates and groups with their lag, until Ctrl-C. In a terminal on one screen, else
    one look below the other."""

    async def work() -> None:
        clock = MachineClock()
        with _screen(call) as screen:
            async with administrator(call.connection) as admin:
                await watch(lambda: look_at(admin, clock), screen, clock, int(interval * 1_000), times)

    run_until_signal(work())  # SIGTERM too leaves the terminal as it was


async def watch(
    look: Callable[[], Awaitable[ClusterLook]], screen: TopScreen, clock: Clock, interval_ms: int, times: int | None
) -> None:
    """Look again and again. Raises the error of the first look, as a wrong address gives, and of the last one; others
    are shown: `top` is watched most when nodes fail."""
    before: ClusterLook | None = None
    left = times
    while True:
        left = None if left is None else left - 1
        try:
            after = await look()
        except TidelogError as error:
            if before is None or left == 0:
                raise
            screen.fail(before, error)
        else:
            screen.show(before, after)
            before = after
        end_without_reader()
        if left == 0:
            return
        await clock.sleep_ms(interval_ms)


async def look_at(admin: Admin, clock: Clock) -> ClusterLook:
    """The cluster now. What this user may not see, or what does not answer, is left out."""
    cluster = await admin.describe_cluster()
    topics = await admin.list_topics()
    led = [
        TopicPartition(each.name, one.partition) for each in topics for one in each.partitions if one.leader != NO_NODE
    ]
    at_ms = clock.monotonic_ms()
    try:
        # A leader may just have gone: the next look may have its offsets again.
        ends = await admin.list_offsets(led, "latest", on_missing=_without)
    except TidelogError:
        ends = ByPartition()
    return ClusterLook(at_ms, cluster, topics, ends, await _groups(admin), await _open_transactions(admin))


async def _groups(admin: Admin) -> list[WatchedGroup]:
    try:
        listed = await admin.list_groups(on_missing=_left_out)
    except TidelogError:
        return []
    found = []
    for group in sorted(listed, key=lambda each: (-each.members, each.group_id))[:GROUPS_MAX]:
        try:
            lags = [each.lag for each in await admin.group_lag(group.group_id)]
        except TidelogError:
            continue
        known = [each for each in lags if each is not None]
        found.append(WatchedGroup(group.group_id, group.state, group.members, sum(known), len(lags) - len(known)))
    return found


async def _open_transactions(admin: Admin) -> int:
    try:
        return len(await admin.list_transactions(states=["Ongoing"], on_missing=_left_out))
    except TidelogError:
        return 0


def _without(_partition: TopicPartition, _error: TidelogError) -> None:
    """A leader that does not answer: what others lead is shown."""


def _left_out(_error: TidelogError) -> None:
    """A coordinator that does not answer: the next look may have its part."""


@contextmanager
def _screen(call: CommandCall) -> Iterator[TopScreen]:
    """Yields how a look is shown."""
    if call.as_json:
        yield TopScreen(
            lambda before, after: print_json(_document(before, after)),
            lambda _last, error: print_json(error_document(error)),
        )
    elif not sys.stdout.isatty():
        yield TopScreen(_print, lambda _last, error: say(f"tidelog: {error.message}"))
    else:
        with whole_screen() as draw:
            yield TopScreen(
                lambda before, after: draw(_summary(after), list(_tables(before, after))),
                lambda last, error: draw(f"the values are old: {error.message}", list(_tables(None, last))),
            )


def _tables(before: ClusterLook | None, after: ClusterLook) -> Iterator[TableContent]:
    cluster = after.cluster
    voters = {voter.node_id for voter in cluster.voters}
    yield (
        f"nodes of {cluster.cluster_id}",
        ("node", "address", "state", "role", "leads", "replicas"),
        [
            (
                int(each.node_id),
                str(each.endpoint),
                each.state,
                "controller" if each.node_id == cluster.controller_id else "voter" if each.node_id in voters else "",
                each.leaders,
                each.replicas,
            )
            for each in cluster.nodes
        ],
    )
    yield (
        "topics",
        ("topic", "partitions", "under-replicated", "no leader", "offsets", "records/s"),
        [
            (
                each.topic,
                each.partitions,
                each.under_replicated,
                each.leaderless,
                "-" if each.records is None else each.records,
                _rate(each.records_per_second),
            )
            for each in topic_flows(before, after)
        ],
    )
    yield (
        "groups",
        ("group", "state", "members", "lag", "unknown", "lag/s"),
        [
            (each.group_id, each.state, each.members, each.lag, each.unknown, _rate(each.lag_per_second))
            for each in group_flows(before, after)
        ],
    )


def _summary(after: ClusterLook) -> str:
    problems = problems_of(after.cluster)
    transactions = f"{after.open_transactions} open transactions"
    return f"{'; '.join(problems) if problems else 'healthy'}; {transactions}"


def _print(before: ClusterLook | None, after: ClusterLook) -> None:
    for title, columns, rows in _tables(before, after):
        print_table(title, columns, rows)
    say(_summary(after))


def _document(before: ClusterLook | None, after: ClusterLook) -> dict[str, Any]:
    return {
        "cluster": plain(after.cluster),
        "problems": problems_of(after.cluster),
        "open_transactions": after.open_transactions,
        "topics": plain(topic_flows(before, after)),
        "groups": plain(group_flows(before, after)),
    }


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


command = declared_on_cluster(top, "top")
