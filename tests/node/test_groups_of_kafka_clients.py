"""What only clients of Kafka's protocol ask of groups, at a real node: gRPC has no methods for it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from node.api.table import (
    GROUPS_CONSUMER_GROUP_HEARTBEAT,
    GROUPS_DESCRIBE_CONSUMER_GROUPS,
    GROUPS_FETCH_OFFSETS_OF_GROUPS,
    GROUPS_OFFSET_COMMIT,
)
from node.requests.context import RequestContext
from node.security.authorizer import Authorizer
from replication.coordination.group_requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    DescribeConsumerGroups,
    DescribeConsumerGroupsAnswer,
    FetchOffsetsOfGroups,
    FetchOffsetsOfGroupsAnswer,
    NamedPartition,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
)
from tests.node.coordinator_requests import create, find, story
from tests.node.real_nodes import RealNodes
from tidelog.clock import MachineClock
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    InvalidGroupId,
    InvalidRequest,
    NotCoordinator,
    TidelogError,
    TopicAuthorizationFailed,
    UnknownMemberId,
)
from tidelog.types import Offset, PartitionIndex

CALLER = RequestContext("client", "ipv4:10.0.0.7:5000", host="10.0.0.7", client_id="app")
COORDINATOR_MOVES = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)
JOINS = ConsumerGroupHeartbeat("new", "m", 0, None, None, 60_000, ("orders",))


@dataclass(frozen=True)
class Denies(Authorizer):
    """Allows everything but these names of groups and topics."""

    names: frozenset[str] = field(default=frozenset())

    def resource_refusal(self, _caller: Any, _api: Any, _operation: Any, _type: Any, name: str) -> TidelogError | None:
        return GroupAuthorizationFailed("no") if name in self.names else None

    def topic_refusal(self, _caller: Any, _api: Any, topic: str, *, by_id: bool = False) -> TidelogError | None:
        del by_id
        return TopicAuthorizationFailed("no") if topic in self.names else None

    def allows(self, _caller: Any, _operation: Any, _type: Any, name: str) -> bool:
        return name not in self.names


def denied(*names: str) -> RequestContext:
    return replace(CALLER, authorizer=Denies(frozenset(names)))


async def asked(nodes: RealNodes, api: Any, request: Any, caller: RequestContext = CALLER) -> Any:
    """The answer of the only node, once it coordinates all groups that the request names."""
    await find(nodes, "g")
    while True:
        with suppress(*COORDINATOR_MOVES):
            answer = await nodes.nodes[0].node.services[api.service].handler(api)(request, caller)
            errors = [getattr(each, "error", None) for each in getattr(answer, "groups", ())]
            if not any(isinstance(error, COORDINATOR_MOVES) for error in errors):
                return answer
        await MachineClock().sleep_ms(20)


async def committed(nodes: RealNodes, group: str, offset: int) -> None:
    partitions = (OffsetToCommit("orders", PartitionIndex(0), Offset(offset)),)
    await asked(nodes, GROUPS_OFFSET_COMMIT, OffsetCommit(group, "", -1, None, partitions))


async def fetched(nodes: RealNodes, *asking: OffsetFetch, caller: RequestContext = CALLER) -> list[Any]:
    """The offsets of each group, or its error."""
    answer = await asked(nodes, GROUPS_FETCH_OFFSETS_OF_GROUPS, FetchOffsetsOfGroups(asking), caller)
    assert isinstance(answer, FetchOffsetsOfGroupsAnswer)
    return [
        type(each.error) if each.error is not None else [part.error or part.offset for part in each.partitions]
        for each in answer.groups
    ]


def test_a_member_that_has_no_id_gets_one_of_its_own(tmp_path: Path) -> None:
    """Java before 4.0 leaves it to the coordinator; without it, all of them were one member."""

    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        joined: list[ConsumerGroupHeartbeatAnswer] = [
            await asked(nodes, GROUPS_CONSUMER_GROUP_HEARTBEAT, replace(JOINS, member_id="")) for _ in range(2)
        ]
        ids = {UUID(each.member_id) for each in joined}
        assert len(ids) == 2
        with pytest.raises(InvalidRequest, match="member id is empty"):
            await asked(nodes, GROUPS_CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeat("new", "", 1))

    story(tmp_path, 1, steps)


def test_a_member_without_topics_is_a_member(tmp_path: Path) -> None:
    """The pattern of its client matches no topic yet."""

    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        answer = await asked(nodes, GROUPS_CONSUMER_GROUP_HEARTBEAT, replace(JOINS, subscribed_topic_names=()))
        assert (answer.member_epoch, answer.assignment) == (1, ())
        later = ConsumerGroupHeartbeat("new", "m", 1, subscribed_topic_names=("orders",))
        answer = await asked(nodes, GROUPS_CONSUMER_GROUP_HEARTBEAT, later)
        assert [len(each.partitions) for each in answer.assignment] == [4]

    story(tmp_path, 1, steps)


def test_consumer_groups_are_described_and_classic_ones_are_not(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        topic_id = await create(nodes, "orders")
        await asked(nodes, GROUPS_CONSUMER_GROUP_HEARTBEAT, JOINS)
        await committed(nodes, "old", 1)
        request = DescribeConsumerGroups(("new", "old", "none"))
        answer = await asked(nodes, GROUPS_DESCRIBE_CONSUMER_GROUPS, request)
        assert isinstance(answer, DescribeConsumerGroupsAnswer)
        first, *others = answer.groups
        assert (first.state, [each.member_id for each in first.members]) == ("Stable", ["m"])
        assert answer.topic_names == {UUID(bytes=topic_id): "orders"}
        assert [type(each.error) for each in others] == [GroupIdNotFound, GroupIdNotFound]
        hidden = await asked(nodes, GROUPS_DESCRIBE_CONSUMER_GROUPS, request, denied("orders", "old"))
        assert [type(each.error) for each in hidden.groups] == [
            TopicAuthorizationFailed,
            GroupAuthorizationFailed,
            GroupIdNotFound,
        ]
        assert (hidden.groups[0].members, hidden.topic_names) == ((), {})

    story(tmp_path, 1, steps)


def test_each_group_has_its_own_offsets_or_error(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        await asked(nodes, GROUPS_CONSUMER_GROUP_HEARTBEAT, JOINS)
        for group, offset in (("a", 7), ("b", 8)):
            await committed(nodes, group, offset)
        named = (NamedPartition("orders", PartitionIndex(0)),)
        asking = (
            OffsetFetch("b", "", -1, named),
            OffsetFetch("", "", -1, None),
            OffsetFetch("a", "", -1, None),
            OffsetFetch("new", "stranger", 3, named),
            OffsetFetch("new", "m", 1, named),
            OffsetFetch("none", "", -1, named),
        )
        assert await fetched(nodes, *asking) == [[8], InvalidGroupId, [7], UnknownMemberId, [-1], [-1]]
        found = await fetched(nodes, *asking[:3], caller=denied("b"))
        assert found == [GroupAuthorizationFailed, InvalidGroupId, [7]]
        [[refused], everything] = await fetched(nodes, asking[0], asking[2], caller=denied("orders"))
        assert isinstance(refused, TopicAuthorizationFailed)
        assert everything == [], "what the caller may not see is left out of all"

    story(tmp_path, 1, steps)
