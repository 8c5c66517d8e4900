"""What `tidelog top` makes of two looks at a cluster, and of looks that fail."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from rich.console import Console

from tidelog.cli.output import drawn
from tidelog.cli.top_command import TopScreen, watch
from tidelog.cli.top_figures import ClusterLook, WatchedGroup, group_flows, topic_flows
from tidelog.client.admin import PartitionDescription, TopicDescription
from tidelog.clock import MachineClock
from tidelog.cluster_descriptions import ClusterDescription
from tidelog.errors import ConnectionFailed, TidelogError
from tidelog.types import LeaderEpoch, NodeId, Offset, PartitionEpoch, PartitionIndex, TopicId, TopicPartition

CLUSTER = ClusterDescription("c", NodeId(0), 1, 1, (), (), 0, 0, 0, 0, 0)


def topic(name: str, *leaders: int, isr: int = 2) -> TopicDescription:
    nodes = tuple(map(NodeId, range(2)))
    partitions = tuple(
        PartitionDescription(
            PartitionIndex(index), NodeId(leader), LeaderEpoch(1), PartitionEpoch(1), nodes, nodes[:isr], (), ()
        )
        for index, leader in enumerate(leaders)
    )
    return TopicDescription(name, TopicId(UUID(int=1)), partitions, {})


def look(at_ms: int, *topics: TopicDescription, groups: tuple[WatchedGroup, ...] = (), **ends: int) -> ClusterLook:
    """ends: by topic and partition, as orders_0."""
    keys = {TopicPartition(key[:-2], PartitionIndex(int(key[-1]))): Offset(end) for key, end in ends.items()}
    return ClusterLook(at_ms, CLUSTER, topics, keys, groups, 0)


def test_topics_are_sorted_by_their_rates() -> None:
    topics = topic("slow", 0), topic("fast", 0, 1)
    before, after = (
        look(1_000, *topics, slow_0=5, fast_0=0, fast_1=0),
        look(3_000, *topics, slow_0=7, fast_0=60, fast_1=40),
    )
    first = topic_flows(None, before)
    assert [(each.topic, each.records_per_second) for each in first] == [("fast", None), ("slow", None)]
    assert [(each.topic, each.records_per_second, each.records) for each in topic_flows(before, after)] == [
        ("fast", 50.0, 100),
        ("slow", 1.0, 7),
    ]


def test_a_partition_counts_only_if_it_had_a_leader_both_times() -> None:
    before = look(0, topic("orders", 0, -1), orders_0=10)
    after = look(1_000, topic("orders", 0, 1, isr=1), orders_0=11, orders_1=1_000_000)
    (flow,) = topic_flows(before, after)
    assert (flow.records_per_second, flow.under_replicated, flow.leaderless) == (1.0, 2, 0)
    (flow,) = topic_flows(None, before)
    assert flow.leaderless == 1


def test_a_topic_that_was_created_again_has_no_negative_rate() -> None:
    orders = topic("orders", 0)
    (flow,) = topic_flows(look(0, orders, orders_0=500), look(1_000, orders, orders_0=3))
    assert flow.records_per_second == 0.0


def test_the_largest_lag_is_first_and_says_whether_it_grows() -> None:
    def group(name: str, lag: int) -> WatchedGroup:
        return WatchedGroup(name, "Stable", 1, lag, 0)

    before = look(0, groups=(group("billing", 100), group("audit", 5)))
    after = look(2_000, groups=(group("audit", 5), group("billing", 50), group("new", 7)))
    assert [(each.group_id, each.lag, each.lag_per_second) for each in group_flows(before, after)] == [
        ("billing", 50, -25.0),
        ("new", 7, None),
        ("audit", 5, 0.0),
    ]
    assert {each.lag_per_second for each in group_flows(None, after)} == {None}
    assert {each.lag_per_second for each in group_flows(after, after)} == {None}


def test_top_draws_one_screen_that_fits() -> None:
    """Of a cluster with more topics than a screen has lines."""
    topics = [topic(f"topic-{number}", 0) for number in range(100)]
    text = io.StringIO()
    screen = Console(width=100, height=30, file=text)
    nodes: list[tuple[object, ...]] = [(0, "alive")]
    rows = [(each.topic, each.partitions) for each in topic_flows(None, look(0, *topics))]
    screen.print(drawn("healthy", [("nodes", ("node", "state"), nodes), ("topics", ("topic", "partitions"), rows)], 30))
    lines = text.getvalue().splitlines()
    assert 25 <= len(lines) <= 30, lines
    assert "healthy" in lines[0] and "topic-0" in "".join(lines)


def looks(*found: ClusterLook | TidelogError) -> Callable[[], Awaitable[ClusterLook]]:
    left = iter(found)

    async def next_look() -> ClusterLook:
        now = next(left)
        if isinstance(now, TidelogError):
            raise now
        return now

    return next_look


async def test_top_shows_a_failed_look_and_goes_on() -> None:
    """The first look is another matter: a wrong address would fail each time. The last one says how the command
    ends."""
    shown: list[object] = []
    screen = TopScreen(
        lambda before, after: shown.append((before and before.at_ms, after.at_ms)),
        lambda last, error: shown.append((last.at_ms, error.message)),
    )
    lost = ConnectionFailed("no node answers")
    await watch(looks(look(1), lost, lost, look(4)), screen, MachineClock(), 0, times=4)
    assert shown == [(None, 1), (1, "no node answers"), (1, "no node answers"), (1, 4)]
    for failing in (looks(lost), looks(look(1), lost)):
        with pytest.raises(ConnectionFailed):
            await watch(failing, screen, MachineClock(), 0, times=2)


TOP_IN_A_TERMINAL = """
from contextlib import asynccontextmanager
from types import SimpleNamespace
from tests.client.test_top_figures import look
from tidelog.cli import top_command

@asynccontextmanager
async def nobody(_connection):
    yield

async def constant(_admin, _clock):
    return look(0)

top_command.administrator, top_command.look_at = nobody, constant
top_command.top(SimpleNamespace(as_json=False, connection=None), 60.0, None)
"""


def test_top_leaves_the_terminal_as_it_was_when_sigterm_ends_it() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    child = subprocess.Popen(
        [sys.executable, "-c", TOP_IN_A_TERMINAL], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    text = b""
    while b"healthy" not in text:
        text += os.read(ours, 4096)
    assert b"\x1b[?1049h" in text, "it has a screen of its own"
    child.send_signal(signal.SIGTERM)
    while b"\x1b[?1049l" not in text:
        text += os.read(ours, 4096)  # raises OSError at the end of the process
    child.wait()
    os.close(ours)
