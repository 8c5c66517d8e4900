"""Members of classic groups at real nodes: their requests wait, and are answered once; coordinators move.

gRPC has no methods for them: they call the handlers, as a listener of Kafka's protocol does.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from node.api.table import (
    GROUPS_DESCRIBE_CLASSIC_GROUPS,
    GROUPS_HEARTBEAT,
    GROUPS_JOIN_GROUP,
    GROUPS_LEAVE_GROUP,
    GROUPS_SYNC_GROUP,
)
from node.coordinator_settings import CoordinatorSettings, GroupSettings
from node.requests.context import RequestContext
from replication.coordination.classic_requests import (
    ClassicHeartbeat,
    DescribeClassicGroups,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    SyncGroup,
)
from replication.coordination.group_records import ClassicProtocol
from tests.node.coordinator_requests import ask, find, story
from tests.node.real_nodes import RealNodes
from tidelog.clock import MachineClock
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InvalidGroupId,
    InvalidRequest,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    TidelogError,
    UnknownMemberId,
)
from tidelog.protocol import methods
from tidelog.protocol.v1 import groups_pb2

SETTINGS = CoordinatorSettings(GroupSettings(initial_rebalance_delay_ms=0))
CALLER = RequestContext("GRPC", "ipv4:10.0.0.7:5000", host="/10.0.0.7", client_id="app")


async def asked(nodes: RealNodes, api: Any, request: Any, group: str = "g") -> Any:
    """The answer of the coordinator, which is looked up again while it is loaded or moves."""
    while True:
        at = await find(nodes, group)
        try:
            return await nodes.nodes[at].node.services[api.service].handler(api)(request, CALLER)
        except (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator):
            await MachineClock().sleep_ms(20)


def join(member_id: str = "", *, instance: str | None = None, metadata: bytes = b"t") -> JoinGroup:
    return JoinGroup("g", member_id, instance, "consumer", (ClassicProtocol("range", metadata),), 30_000, 60_000)


async def joined(nodes: RealNodes, **options: Any) -> JoinGroupAnswer:
    """A new member joins: it is given an id, and joins again with that."""
    answer: JoinGroupAnswer = await asked(nodes, GROUPS_JOIN_GROUP, join(**options))
    if isinstance(answer.error, MemberIdRequired):
        answer = await asked(nodes, GROUPS_JOIN_GROUP, join(answer.member_id, **options))
    return answer


async def synced(nodes: RealNodes, member: JoinGroupAnswer) -> bytes:
    assigned = tuple(MemberAssignment(each.member_id, f"for {each.member_id}".encode()) for each in member.members)
    request = SyncGroup("g", member.member_id, member.generation, None, "consumer", "range", assigned)
    return bytes((await asked(nodes, GROUPS_SYNC_GROUP, request)).assignment)


async def pair(nodes: RealNodes) -> tuple[JoinGroupAnswer, JoinGroupAnswer]:
    """A stable group of a leader and another member."""
    first = await joined(nodes)
    await synced(nodes, first)
    async with asyncio.TaskGroup() as tasks:
        coming = tasks.create_task(joined(nodes))
        await until_rebalance(nodes, first)
        first = await asked(nodes, GROUPS_JOIN_GROUP, join(first.member_id))
        second = await coming
    assert (first.generation, second.generation) == (2, 2)
    assert [each.member_id for each in first.members] == [first.member_id, second.member_id]
    await asyncio.gather(synced(nodes, second), synced(nodes, first))
    return first, second


async def until_rebalance(nodes: RealNodes, member: JoinGroupAnswer) -> None:
    with pytest.raises(RebalanceInProgress):
        while True:
            await asked(nodes, GROUPS_HEARTBEAT, ClassicHeartbeat("g", member.member_id, member.generation))
            await MachineClock().sleep_ms(5)


async def outcome(asking: Awaitable[Any]) -> Any:
    """The answer, or the refusal."""
    try:
        return await asking
    except TidelogError as refusal:
        return refusal


def waiting(nodes: RealNodes) -> int:
    """Requests on all nodes that wait for other members."""
    found = [each.node._coordinators for each in nodes.nodes.values()]
    return sum(len(each.waiting) for each in found if each is not None)


def test_members_wait_for_each_other_and_get_what_the_leader_assigns(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        first, second = await pair(nodes)
        assert first.member_id.startswith("app-")
        syncing = await asyncio.gather(synced(nodes, second), synced(nodes, first))
        assert list(syncing) == [f"for {second.member_id}".encode(), f"for {first.member_id}".encode()]
        described = (await asked(nodes, GROUPS_DESCRIBE_CLASSIC_GROUPS, DescribeClassicGroups(("g",)))).groups[0]
        assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
        assert {(each.client_id, each.client_host, each.metadata) for each in described.members} == {
            ("app", "/10.0.0.7", b"t")
        }
        listed = await ask(nodes, methods.GROUPS_LIST_GROUPS, groups_pb2.ListGroupsRequest())
        assert [(each.group_id, each.type, each.state) for each in listed.groups] == [("g", "classic", "Stable")]
        left = await asked(nodes, GROUPS_LEAVE_GROUP, LeaveGroup("g", (LeavingMember(second.member_id),)))
        assert left.members[0].error is None
        await until_rebalance(nodes, first)
        alone = await asked(nodes, GROUPS_JOIN_GROUP, join(first.member_id))
        assert len(alone.members) == 1
        assert waiting(nodes) == 0

    story(tmp_path, 1, steps, SETTINGS)


def test_requests_that_wait_are_refused_when_the_coordinator_moves_and_the_group_goes_on(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        first, second = await pair(nodes)
        at = await find(nodes, "g")
        handler = nodes.nodes[at].node.services["Groups"].handler(GROUPS_JOIN_GROUP)
        third = await handler(join(), CALLER)
        async with asyncio.TaskGroup() as tasks:
            coming = tasks.create_task(outcome(handler(join(third.member_id), CALLER)))
            await until_rebalance(nodes, first)
            assert waiting(nodes) == 1
            await nodes.stop(at)
            refusal = await coming
        assert isinstance(refusal, NotCoordinator), refusal
        assert await synced(nodes, second) == f"for {second.member_id}".encode(), "the last assignment is recorded"
        await asked(nodes, GROUPS_HEARTBEAT, ClassicHeartbeat("g", first.member_id, first.generation))
        assert waiting(nodes) == 0

    story(tmp_path, 3, steps, SETTINGS)


def test_a_member_whose_connection_breaks_leaves_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(nodes: RealNodes) -> None:
        first, second = await pair(nodes)
        async with asyncio.TaskGroup() as tasks:
            coming = tasks.create_task(asked(nodes, GROUPS_JOIN_GROUP, join(first.member_id)))
            await until_rebalance(nodes, second)
            assert waiting(nodes) == 1
            coming.cancel()
        assert waiting(nodes) == 0
        again, _ = await asyncio.gather(
            asked(nodes, GROUPS_JOIN_GROUP, join(first.member_id)),
            asked(nodes, GROUPS_JOIN_GROUP, join(second.member_id)),
        )
        assert again.generation == 3

    story(tmp_path, 1, steps, SETTINGS)
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_a_request_that_is_repeated_answers_the_first_one(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        first, second = await pair(nodes)
        async with asyncio.TaskGroup() as tasks:
            earlier = tasks.create_task(outcome(asked(nodes, GROUPS_JOIN_GROUP, join(first.member_id))))
            await until_rebalance(nodes, second)
            later = tasks.create_task(asked(nodes, GROUPS_JOIN_GROUP, join(first.member_id)))
            assert isinstance(await earlier, RebalanceInProgress)
            await asked(nodes, GROUPS_JOIN_GROUP, join(second.member_id))
            assert (await later).generation == 3

    story(tmp_path, 1, steps, SETTINGS)


def test_what_no_member_sends_is_refused(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        long = "x" * 256
        for api, request, error in (
            (GROUPS_JOIN_GROUP, JoinGroup("", "", None, "consumer", (), 10_000, 1), InvalidGroupId),
            (GROUPS_JOIN_GROUP, join(instance=""), InvalidRequest),
            (GROUPS_JOIN_GROUP, join(long), InvalidRequest),
            (GROUPS_JOIN_GROUP, JoinGroup("g", "", None, long, (), 10_000, 1), InvalidRequest),
            (
                GROUPS_JOIN_GROUP,
                JoinGroup("g", "", None, "consumer", (ClassicProtocol(long, b""),), 10_000, 1),
                InvalidRequest,
            ),
            (GROUPS_SYNC_GROUP, SyncGroup("g", long, 1), InvalidRequest),
            (GROUPS_SYNC_GROUP, SyncGroup("g", "m", 1), UnknownMemberId),
            (GROUPS_HEARTBEAT, ClassicHeartbeat("", "m", 1), InvalidGroupId),
            (GROUPS_HEARTBEAT, ClassicHeartbeat("g", "m", 1), UnknownMemberId),
            (GROUPS_LEAVE_GROUP, LeaveGroup("g", (LeavingMember(long),)), InvalidRequest),
        ):
            with pytest.raises(error):
                await asked(nodes, api, request)
        described = await asked(nodes, GROUPS_DESCRIBE_CLASSIC_GROUPS, DescribeClassicGroups(("g", "")))
        assert [type(each.error) for each in described.groups] == [GroupIdNotFound, InvalidGroupId]

    story(tmp_path, 1, steps, SETTINGS)
